"""Common parts of the VSE++ and VSRN formats: two state dicts, and the data and vocabulary beside them."""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from cocos.base import reading
from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint, encoders
from cocos.checkpoints import data as shelf
from cocos.checkpoints.data import Source, TrainingSet, precomp
from cocos.checkpoints.encoders import image_network, words
from cocos.checkpoints.encoders._weights import completed, without_memory
from cocos.checkpoints.files import NAMESPACES, File
from cocos.checkpoints.formats import _training
from cocos.checkpoints.formats._training import Training

__all__ = ["arguments", "checkpoint", "network", "towers"]

# Captions, from the first MiB, whose unknown words are counted when a checkpoint is opened.
CAPTIONS_SAMPLED = 1000
OLD_LAYER = re.compile(r"^classifier\.(\d)\.")  # of a VGG


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


def arguments(image: Mapping[str, Tensor], text: Mapping[str, Tensor], training: Training) -> dict:
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
    count the linear layers of a VGG from 1.

    Args:
        image: weights of the tower.

    Returns:
        The arguments `trunk` and `sizes`, and the weights; None for precomputed features, or an unknown network.
    """
    state = {
        key.removeprefix("cnn.").replace("module.", "", 1): each
        for key, each in image.items()
        if key.startswith("cnn.")
    }
    if "classifier.1.weight" in state and "classifier.0.weight" not in state:
        state = {OLD_LAYER.sub(lambda match: f"classifier.{int(match[1]) - 1}.", key): v for key, v in state.items()}
    found = image_network.trunk(state)
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
        return path.exists() and shelf.recognised(path) is not None
    return bool(precomp.splits(path))


def _words(training: Training, folder: Path) -> dict[str, int]:
    """Read the vocabulary of the training from a file beside the data, or beside the checkpoint."""
    name, recorded = str(training.options.get("data_name") or folder.name), training.options.get("vocab_path")
    places = [folder, folder.parent, folder / "vocab", folder.parent / "vocab"]
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
    """Describe the data, and the words that the vocabulary lacks in the first captions of a folder of features."""
    about, vocabulary = {"folder": str(folder), "splits": ", ".join(source.splits)}, _words(training, folder)
    if training.raw:
        return about | {"kind": source.kind}
    split = source.splits[0]
    try:
        with io.TextIOWrapper(reading.stream(folder / f"{split}_caps.txt"), encoding="utf-8") as stream:
            lines = stream.read(2**20).splitlines()[:CAPTIONS_SAMPLED]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(error)) from None
    strange, every = words.unknown(lines, vocabulary)
    return about | {"unknown words": f"{strange} of the first {every} in the captions of {split}"}


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
    """Find the training data."""
    if (reason := training.refusal()) is not None:
        raise InputError(reason)
    folder = _folder(training, data)
    source = shelf.find(folder) if training.raw else shelf.source("precomp", folder)
    return _checked(training, folder, source), folder if folder.is_dir() else folder.parent


def _refuse(training: Training, data) -> Callable:
    """Say, when the checkpoint is asked to embed, why it cannot."""

    def embedder(split, device, progress):
        source, _ = _data(training, data)
        source.load(split)
        raise InputError(f"{training.path}: {source.path} was not there when the checkpoint was opened; open it again")

    return embedder


def checkpoint(file: File, data, *, format: str, image_tower: str, build: Callable) -> Checkpoint:
    """Make a checkpoint of two towers; the model is built when it embeds, since its vocabulary is not in the file.

    It refuses to embed when more than half of the words of the captions are not in the vocabulary;
    `contents` says how many are not, in the first thousand captions.

    Args:
        file: the file.
        data: folder of the data, instead of the one recorded.
        format: its name on the shelf.
        image_tower: description of the image tower.
        build: (training, vocabulary) -> the model of the shelf of encoders.
    """
    image, text = towers(file)
    raw, cnn = any(key.startswith("cnn.") for key in image), network(image)
    rows = len(text["embed.weight"])
    training = _training.read(file.path, file.record, rows=rows, raw=raw, known=not raw or cnn is not None)
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
        with without_memory():
            model = build(training, vocabulary)
        return encoders.freeze(model, completed(state, model))

    return Checkpoint(
        path=file.path,
        sha256=file.sha256,
        format=format,
        contents={
            **training.progress,
            "training loss": training.in_words(),
            "scores": training.scores(),
            "image tower": f"{image_tower}: {reads} -> {width}, {size['image']} numbers",
            "text tower": f"{rows} words of {text['embed.weight'].shape[1]}, GRU -> {width}, {size['text']} numbers",
            "data": beside,
            "not recorded": ", ".join(training.missing()) or "nothing missing",
            "opt": training.options,
        },
        encoder=encoder,
        training=source,
        embedder=_refuse(training, data) if source is None else None,
        recorded=training.recorded(),
        trained_with=training.loss[0],
    )
