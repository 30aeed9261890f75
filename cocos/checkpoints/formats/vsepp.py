"""Checkpoints of the VSE++ training code (`model_best.pth.tar`), on raw images or on precomputed features.

VSRN shares its text tower, its training options and the layout of its files.
"""

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_sequence

from cocos import data as shelf
from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint, encoders, words
from cocos.checkpoints.files import EMBED_INSTEAD, NAMESPACES, File, plain
from cocos.checkpoints.formats import _trunks
from cocos.checkpoints.pictures import IMAGES_AT_ONCE, Preparation
from cocos.data import Source, TrainingSet, precomputed

DEFAULT_SWITCHES = {"use_abs": False, "no_imgnorm": False, "max_violation": False}  # switches of the training scripts
TRIPLET_LOSSES = ("triplet", "triplet_sh")
OLD_LAYER = re.compile(r"^classifier\.(\d)\.")  # of a VGG
LINEAR_TOWER = {"fc.weight", "fc.bias"}


class GRUText(nn.Module):
    """Encode captions in the joint space: the vocabulary has `<pad>`, `<start>`, `<end>` and `<unk>` too.

    Source: Faghri et al. 2018, VSE++, arXiv:1707.05612, section 3.1; the keys of its state dict are those of
    the published code.
    """

    def __init__(
        self, vocabulary: Mapping[str, int], word_dim: int, embed_size: int, num_layers: int = 1, use_abs: bool = False
    ):
        super().__init__()
        missing = [word for word in words.SPECIAL if word not in vocabulary]
        if missing:
            raise InputError(f"vocabulary of {len(vocabulary)} words without {' '.join(missing)}")
        self.vocabulary, self.use_abs = dict(vocabulary), use_abs
        self.embed = nn.Embedding(len(vocabulary), word_dim)
        self.rnn = nn.GRU(word_dim, embed_size, num_layers, batch_first=True)

    def ids(self, caption: str) -> list[int]:
        """Look up the ids of `<start>`, the tokens and `<end>`; an unknown token is `<unk>`."""
        unknown = self.vocabulary["<unk>"]
        return [self.vocabulary.get(word, unknown) for word in ("<start>", *words.tokens(caption), "<end>")]

    def forward(self, captions: Sequence[str]) -> Tensor:
        """Encode M captions to unit vectors, (M, D): the output of the GRU at `<end>`."""
        packed: Any = pack_sequence([torch.tensor(self.ids(caption)) for caption in captions], enforce_sorted=False)
        ids = packed.to(self.embed.weight.device)
        found = ids._replace(data=self.embed(ids.data))  # not padded: one long caption would make all of them long
        last = normalize(self.rnn(found)[1][-1], dim=1, eps=0.0)
        return last.abs() if self.use_abs else last


class TwoTowers(nn.Module):
    """Both towers; the keys of its state dict are those of the published files under `image.` and `text.`.

    The image tower has a layer `fc`, the `kind` of rows that it reads, and for images their `preparation`.
    """

    def __init__(self, name: str, image: Any, text: GRUText):
        super().__init__()
        self.name, self.image, self.text = name, image, text
        self.kinds = (image.kind, "text")
        if image.kind == "image":
            self.items_at_once = image.items_at_once

    @property
    def identity(self) -> str:
        """Settings that the embeddings depend on beside the weights: switches, and the ids of the words."""
        switches = {key: value for key, value in vars(self.image).items() if isinstance(value, bool)}
        vocabulary = hashlib.sha256(repr(sorted(self.text.vocabulary.items())).encode()).hexdigest()
        return f"{self.name} {switches} {self.text.use_abs} {vocabulary}"

    def encode(self, items: Any, kind: str, side: str) -> Tensor:
        """Encode images or features, as the image tower reads them, or captions, to (N, D)."""
        if kind == "text":
            return self.text(items)
        prepare = self.image.preparation if kind == "image" else torch.as_tensor
        return self.image(prepare(items).to(self.image.fc.weight))


class FeatureTower(nn.Module):
    """Linear layer on precomputed features; the keys of its state dict are those of the published code."""

    kind = "features"

    def __init__(self, img_dim: int, embed_size: int, use_abs: bool, no_imgnorm: bool):
        super().__init__()
        self.use_abs, self.no_imgnorm = use_abs, no_imgnorm
        self.fc = nn.Linear(img_dim, embed_size)

    def forward(self, features: Tensor) -> Tensor:
        """Encode features, (N, img_dim), to (N, D)."""
        width = self.fc.in_features
        if features.ndim != 2 or features.shape[1] != width:
            raise InputError(
                f"image features {tuple(features.shape)}: this VSE++ image tower reads one vector of "
                f"{width} for each image, (n, {width})"
            )
        image = self.fc(features)
        image = image if self.no_imgnorm else normalize(image, dim=1, eps=0.0)
        return image.abs() if self.use_abs else image


class ImageTower(FeatureTower):
    """Linear layer on the unit vectors of a network of images, prepared as at validation."""

    kind = "image"
    items_at_once = IMAGES_AT_ONCE
    preparation = Preparation()

    def __init__(self, cnn: nn.Module, img_dim: int, embed_size: int, use_abs: bool, no_imgnorm: bool):
        super().__init__(img_dim, embed_size, use_abs, no_imgnorm)
        self.cnn = cnn

    def forward(self, images: Tensor) -> Tensor:
        """Encode prepared images, (N, 3, 224, 224), to (N, D)."""
        return super().forward(normalize(self.cnn(images), dim=1, eps=0.0))


def build(
    *,
    vocabulary: Mapping[str, int],
    img_dim: int,
    embed_size: int = 1024,
    word_dim: int = 300,
    num_layers: int = 1,
    use_abs: bool = False,
    no_imgnorm: bool = False,
    cnn: dict[str, Any] | None = None,
) -> TwoTowers:
    """Build VSE++.

    Args:
        vocabulary: word -> id, 0..V-1.
        img_dim: width of the features.
        embed_size: width of the joint space.
        word_dim: width of a word.
        num_layers: of the GRU.
        use_abs: absolute values of both embeddings, as for order embeddings.
        no_imgnorm: leave the image embeddings as long as they are.
        cnn: `trunk` and `sizes` of the network that reads images; None: the features are precomputed.

    Source: Faghri et al. 2018, VSE++, arXiv:1707.05612; sizes are the defaults of its code.
    """
    how = (img_dim, embed_size, use_abs, no_imgnorm)
    return TwoTowers(
        "VSE++",
        FeatureTower(*how) if cnn is None else ImageTower(_trunks.network(**cnn), *how),
        GRUText(vocabulary, word_dim, embed_size, num_layers, use_abs),
    )


def _plain(value):
    """Keep numbers, text, booleans and None, take a tensor of one element as its number, and the rest as text."""
    value = plain(value)
    return str(value) if isinstance(value, dict | list) else value


def _switch(value) -> bool | None:
    known = {"true": True, "1": True, "false": False, "0": False}
    return known.get(str(value).lower())


def _number(value) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None


@dataclass(frozen=True, eq=False)
class Training:
    """Training options and progress that a checkpoint records.

    Args:
        path: of the checkpoint.
        options: fields of `opt`.
        progress: epoch, best_rsum, Eiters; None if not recorded.
        rows: number of words in the word embedding.
        raw: the image tower reads images, not precomputed features.
        known: its image tower is one that cocos builds.
    """

    path: Path
    options: dict
    progress: dict
    rows: int
    raw: bool
    known: bool

    @classmethod
    def of(cls, file: File, rows: int, raw: bool, known: bool) -> "Training":
        """Read the options of a file; unusual types become plain numbers or text."""
        options = {str(key): _plain(value) for key, value in vars(file.record["opt"]).items()}
        progress = {name: _plain(file.record.get(name)) for name in ("epoch", "best_rsum", "Eiters")}
        return cls(file.path, dict(sorted(options.items())), progress, rows, raw, known)

    def switch(self, name: str) -> bool:
        """Read a switch of the training script; its default if `opt` does not record it."""
        found = _switch(self.options.get(name))
        return DEFAULT_SWITCHES[name] if found is None else found

    @cached_property
    def loss(self) -> tuple[str | None, dict]:
        """Name and recorded parameters of the loss; no name if cocos has no such loss."""
        criterion = self.options.get("criterion")
        if criterion in {None, "triplet"}:  # the code of Faghri et al. has no such option and no other loss
            name = "triplet_sh" if self.switch("max_violation") else "triplet"
        else:
            name = {"ntxent": "ntxent", "ranking": "smoothap"}.get(criterion)
        option, parameter = ("margin", "margin") if name in TRIPLET_LOSSES else ("tau", "temperature")
        value = _number(self.options.get(option))
        return name, {} if name is None or value is None else {parameter: value}

    def recorded(self) -> dict[str, dict]:
        """Return the parameters for `Checkpoint.recorded`; one margin serves both triplet losses."""
        name, parameters = self.loss
        losses = TRIPLET_LOSSES if name in TRIPLET_LOSSES else (name,)
        return dict.fromkeys(losses, parameters) if parameters else {}

    def in_words(self) -> str:
        """Describe the loss."""
        name, parameters = self.loss
        told = {
            "triplet": "triplet loss, sum over all negatives (triplet)",
            "triplet_sh": "triplet loss, hardest negative of each query (triplet_sh)",
            "ntxent": "NT-Xent (ntxent)",
            "smoothap": "SmoothAP (smoothap)",
            None: f"{self.options.get('criterion')!r}, which cocos does not know",
        }[name]
        if self.options.get("criterion") is None:
            told += ", the only one of the first code (opt has no criterion)"
        return ", ".join([told, *(f"{key} {value}" for key, value in parameters.items())])

    def scores(self) -> str:
        """Describe the scores that the training compared."""
        if self.options.get("measure") == "order":
            return "minus the length of max(0, caption - image)"
        if self.switch("no_imgnorm"):
            return "inner products with images that are not normalised (no_imgnorm); losses of cocos read cosines"
        return "cosines"

    def refusal(self) -> str | None:
        """Say why this version cannot embed with the checkpoint; None if it can."""
        if not self.known:
            return (
                f"{self.path}: its image tower reads raw images through cnn_type {self.options.get('cnn_type')!r}, "
                f"whose layers are those of no ResNet or VGG that cocos builds; {EMBED_INSTEAD}"
            )
        size = _number(self.options.get("vocab_size"))
        if size is not None and size != self.rows:
            return (
                f"{self.path}: opt.vocab_size is {size:g} and embed.weight has {self.rows} rows; options "
                "and weights are not of one training"
            )
        if self.options.get("measure") == "order":
            return (
                f"{self.path} was trained with measure 'order': it scores by minus the length of max(0, "
                "caption - image), which is no cosine, and no loss of cocos reads it; train with measure "
                "'cosine'"
            )
        if self.options.get("cross_attn") is not None:
            return (
                f"{self.path} was trained with cross attention ({self.options['cross_attn']}) between words "
                "and regions: its image has no embedding of its own, and cocos cannot run it"
            )
        return None


def towers(file: File) -> tuple[dict, dict] | None:
    """Find the state dicts of the image and the text tower; None unless the file has the published structure."""
    if not isinstance(file.record.get("opt"), NAMESPACES):
        return None
    model = file.record.get("model")
    if not isinstance(model, list | tuple) or [isinstance(part, dict) for part in model] != [True, True]:
        return None
    if not all(isinstance(k, str) and isinstance(v, Tensor) for part in model for k, v in part.items()):
        return None
    image, text = model
    need = [image.get("fc.weight"), text.get("embed.weight"), text.get("rnn.weight_ih_l0")]
    return (image, text) if all(part is not None and part.ndim == 2 for part in need) else None


def tower_arguments(image: Mapping[str, Tensor], text: Mapping[str, Tensor], training: Training) -> dict:
    """Collect the arguments that both encoders have; sizes are those of the weights."""
    return {
        "img_dim": image["fc.weight"].shape[1],
        "embed_size": image["fc.weight"].shape[0],
        "word_dim": text["embed.weight"].shape[1],
        "num_layers": sum(key.startswith("rnn.weight_ih_l") and key[15:].isdigit() for key in text),
        "use_abs": training.switch("use_abs"),
        "no_imgnorm": training.switch("no_imgnorm"),
    }


def network(image: Mapping[str, Tensor]) -> tuple[dict, dict[str, Tensor]] | None:
    """Find the convolutional network of an image tower that reads images, and its weights under plain names.

    DataParallel stands around the whole ResNet, or around the convolutions of a VGG. Files of torchvision before 0.1.9
    count the linear layers of a VGG from 1. None for precomputed features, or an unknown network.
    """
    state = {
        key.removeprefix("cnn.").replace("module.", "", 1): each
        for key, each in image.items()
        if key.startswith("cnn.")
    }
    if "classifier.1.weight" in state and "classifier.0.weight" not in state:
        state = {OLD_LAYER.sub(lambda match: f"classifier.{int(match[1]) - 1}.", key): v for key, v in state.items()}
    found = _trunks.trunk(state)
    return None if found is None else ({"trunk": found[0], "sizes": found[1]}, state)


def _folder(training: Training, data) -> Path:
    """Find the data: those given, or the recorded ones if they are on this machine."""
    path, name = training.options.get("data_path"), training.options.get("data_name")
    wanted = "data" if training.raw else "folder with train_ims.npy"
    if data is not None:
        inner = Path(data) / str(name or "")
        found = inner if _usable(training, inner) else Path(data)
    else:
        found = Path(str(path or "")) / str(name or "")
        if path is None or not found.is_dir():
            where = f"its training read {found}, which is not here" if path else "it names none"
            raise InputError(f"data of {training.path}: {where}; name the {wanted}: --data FOLDER")
    if not _usable(training, found) and not training.raw:
        reason = "has no train_ims.npy and train_caps.txt" if found.is_dir() else "does not exist"
        raise InputError(f"data of {training.path}: folder {found} {reason}; name the right one: --data FOLDER")
    return found


def _usable(training: Training, path: Path) -> bool:
    """Whether a path holds data that the image tower reads."""
    if training.raw:
        return path.exists() and shelf.sniff(path) is not None
    return precomputed.sniff(path)


def _words(training: Training, folder: Path) -> dict[str, int]:
    """Read the vocabulary of the training from a file beside the data, or beside the checkpoint."""
    name, recorded = str(training.options.get("data_name") or folder.name), training.options.get("vocab_path")
    places = [folder, folder.parent, folder / "vocab", folder.parent / "vocab"]
    places.append(folder.resolve().parent.parent / "vocab")  # beside data/f30k_precomp, as the two are unpacked
    places += [Path(recorded)] if isinstance(recorded, str) else []
    for place in [*places, Path(training.path).parent]:
        for suffix in (".pkl", ".json"):
            if (path := place / f"{name}_vocab{suffix}").is_file():
                return words.read_vocabulary(path, training.rows)
    raise InputError(
        f"{training.path} does not hold its vocabulary, and there is no {name}_vocab.pkl or "
        f"{name}_vocab.json in {', '.join(map(str, places))}; copy the vocabulary of its training "
        f"({training.rows} words) into {folder}"
    )


def _beside(training: Training, folder: Path, source: Source) -> dict:
    """Describe the data; a vocabulary that is missing is an error."""
    _words(training, folder)
    about = {"folder": str(folder), "splits": ", ".join(source.splits)}
    return about | {"kind": source.kind} if training.raw else about


def _checked(training: Training, folder: Path, source: Source) -> Source:
    """Refuse, once a split is loaded, captions of which more than half of the words are not in the vocabulary."""

    def load(split: str) -> TrainingSet:
        vocabulary, items = _words(training, folder), source.load(split)
        captions = [side.items[row] for side in items.sides if side.kind == "text" for row in range(len(side))]
        strange, every = words.unknown(captions, vocabulary)
        if 2 * strange > every:
            raise InputError(
                f"{strange} of {every} words of the captions in {folder}, {split}, are not in the "
                f"vocabulary for {training.path}: it belongs to other data, or the captions are in another "
                "language"
            )
        return items

    return replace(source, loader=load)


def _data(training: Training, data) -> tuple[Source, Path]:
    if (reason := training.refusal()) is not None:
        raise InputError(reason)
    folder = _folder(training, data)
    source = shelf.find(folder) if training.raw else shelf.source("precomputed", folder)
    place = folder if folder.is_dir() else folder.parent
    return _checked(training, place, source), place


def _refuse(training: Training, data) -> Callable:
    """Say, when the checkpoint is asked to embed, why it cannot."""

    def embedder(split, device, progress):
        source, _ = _data(training, data)
        source.load(split)
        raise InputError(f"{training.path}: {source.path} was not there when the checkpoint was opened; open it again")

    return embedder


def checkpoint(file: File, data, *, format: str, image_tower: str, build: Callable) -> Checkpoint:
    """Make a checkpoint of two towers; the model is built when it embeds, since its vocabulary is not in the file.

    It refuses to embed when more than half of the words of the captions are not in the vocabulary. `build` makes the
    model of (training, vocabulary).
    """
    image, text = towers(file)
    raw, cnn = any(key.startswith("cnn.") for key in image), network(image)
    rows = len(text["embed.weight"])
    training = Training.of(file, rows=rows, raw=raw, known=not raw or cnn is not None)
    both = (("image", image), ("text", text))
    width, features = image["fc.weight"].shape
    size = {side: sum(map(torch.numel, tower.values())) for side, tower in both}
    reads = f"raw images through {training.options.get('cnn_type')}" if raw else f"features of {features}"
    state = {f"{side}.{key}": value for side, tower in both for key, value in tower.items()}
    if cnn is not None:
        state = {key: value for key, value in state.items() if not key.startswith("image.cnn.")}
        state |= {f"image.cnn.{key}": value for key, value in cnn[1].items()}
    source, place = None, file.path.parent
    try:
        source, place = _data(training, data)
        beside: dict | str = _beside(training, place, source)
    except InputError as error:
        source, beside = None, str(error)

    def encoder():
        vocabulary = _words(training, place)
        with encoders.without_memory():
            model = build(training, vocabulary)
        return encoders.freeze(model, encoders.completed(state, model))

    return Checkpoint.of(
        file,
        format,
        {
            **training.progress,
            "training loss": training.in_words(),
            "scores": training.scores(),
            "image tower": f"{image_tower}: {reads} -> {width}, {size['image']} numbers",
            "text tower": f"{rows} words of {text['embed.weight'].shape[1]}, GRU -> {width}, {size['text']} numbers",
            "data": beside,
            "opt": training.options,
        },
        encoder=encoder,
        training=source,
        embedder=_refuse(training, data) if source is None else None,
        recorded=training.recorded(),
        trained_with=training.loss[0],
    )


def recognises(file: File) -> bool:
    """Two towers; the image tower is one linear layer, with or without a convolutional network before it."""
    found = towers(file)
    return found is not None and all(key in LINEAR_TOWER or key.startswith("cnn.") for key in found[0])


def read(file: File, data=None) -> Checkpoint:
    """Read a VSE++ checkpoint.

    Its data are a folder of the features, captions and vocabulary (see `cocos.data.precomputed`), or of images with
    captions and the vocabulary.
    """
    image, text = towers(file)
    cnn = network(image)
    reads = {} if cnn is None else {"cnn": cnn[0]}
    return checkpoint(
        file,
        data,
        format="vsepp",
        image_tower="VSE++",
        build=lambda training, vocabulary: encoders.build(
            "vsepp", tower_arguments(image, text, training) | reads | {"vocabulary": vocabulary}
        ),
    )
