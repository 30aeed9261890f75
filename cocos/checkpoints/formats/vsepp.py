"""VSE++ and VSRN: `model_best.pth.tar` of the published training code, on images, features or region features.

A file contains `model`, the state dicts of the image tower and the text tower, `opt`, the options of the training
script, and the progress of the training. The vocabulary is a file next to the data.

Source: Faghri et al. 2018, VSE++, arXiv:1707.05612; Li et al. 2019, VSRN, arXiv:1909.02701; the names of the tensors
are those of the published code.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_sequence

from cocos import data as training_data
from cocos.base.errors import InputError
from cocos.checkpoints import recorded
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import NAMESPACES, File, plain
from cocos.checkpoints.formats import vocabulary
from cocos.checkpoints.formats.networks import VGG, ResNet, State, fill, part
from cocos.checkpoints.pictures import IMAGES_AT_ONCE, Preparation
from cocos.checkpoints.recorded import Recorded

SWITCHES = ("use_abs", "no_imgnorm", "max_violation")
# Option `criterion` -> loss, the option with its parameter, and the parameter. The first code has no such option.
LOSSES = {
    "triplet": ("triplet", "margin", "margin"),
    "ntxent": ("ntxent", "tau", "temperature"),
    "ranking": ("smoothap", "tau", "temperature"),
}
REGION_AXIS = 1  # of (N, regions, D): the published code normalises over the regions
OLD_LAYER = re.compile(r"^classifier\.(\d)\.")  # of a VGG of torchvision before 0.1.9, which counts from 1


class GRUText(nn.Module):
    """Captions in the joint space: the output of a GRU at `<end>`, with length 1."""

    def __init__(self, words: Mapping[str, int], state: State, use_abs: bool):
        super().__init__()
        self.words, self.use_abs = dict(words), use_abs
        self.embed = nn.Embedding(*state["embed.weight"].shape)
        layers = sum(bool(re.fullmatch(r"rnn\.weight_ih_l\d+", key)) for key in state)
        self.rnn = nn.GRU(self.embed.embedding_dim, state["rnn.weight_hh_l0"].shape[1], layers, batch_first=True)

    def forward(self, captions: Sequence[str]) -> Tensor:
        """Encode captions to unit vectors, (N, D)."""
        unknown = self.words["<unk>"]
        tokens = (("<start>", *vocabulary.tokens(caption), "<end>") for caption in captions)
        ids = [torch.tensor([self.words.get(token, unknown) for token in caption]) for caption in tokens]
        packed: Any = pack_sequence(ids, enforce_sorted=False)  # unpadded: captions of any length
        packed = packed.to(self.embed.weight.device)
        last = self.rnn(packed._replace(data=self.embed(packed.data)))[1][-1]
        last = normalize(last, dim=1, eps=0.0)
        return last.abs() if self.use_abs else last


class FeatureTower(nn.Module):
    """VSE++ on precomputed features: one linear layer."""

    kind, items_at_once = "features", 512

    def __init__(self, state: State):
        super().__init__()
        width, features = state["fc.weight"].shape
        self.fc = nn.Linear(features, width)

    def prepare(self, features: Any) -> Tensor:
        """Check features, (N, F)."""
        return check_features(features, ("n", self.fc.in_features))

    def forward(self, features: Tensor) -> Tensor:
        """Encode features, (N, F), to (N, D)."""
        return self.fc(features)


class ImageTower(FeatureTower):
    """VSE++ on images: a linear layer on the unit vectors of a ResNet or VGG."""

    kind, items_at_once = "image", IMAGES_AT_ONCE
    prepare = Preparation()

    def __init__(self, state: State):
        super().__init__(state)
        backbone = part(state, "cnn")
        self.cnn = ResNet(backbone) if "layer4.0.conv1.weight" in backbone else VGG(backbone)

    def forward(self, images: Tensor) -> Tensor:
        """Encode prepared images, (N, 3, 224, 224), to (N, D)."""
        return self.fc(normalize(self.cnn(images), dim=1, eps=0.0))


class GraphLayer(nn.Module):
    r"""Residual graph convolution over regions, all of them connected.

    .. math:: V' = V + W\left(\tfrac{1}{n}\,\theta(V)^\top \phi(V)\; g(V)^\top\right)

    with n regions; W ends with batch normalisation. Source: VSRN, eqs. 2-4.
    """

    def __init__(self, width: int):
        super().__init__()
        self.g, self.theta, self.phi = (nn.Conv1d(width, width, 1) for _ in range(3))
        self.W = nn.Sequential(nn.Conv1d(width, width, 1), nn.BatchNorm1d(width))

    def forward(self, regions: Tensor) -> Tensor:
        """Exchange information between the regions, (N, D, n), once."""
        relation = self.theta(regions).mT @ self.phi(regions) / regions.shape[2]
        return regions + self.W((relation @ self.g(regions).mT).mT)


class RegionTower(FeatureTower):
    """VSRN: graph layers over region features and a GRU.

    The code for Flickr30k ends with batch normalisation and does not normalise the regions before the graph layers;
    the first published code had neither variant.
    """

    def __init__(self, state: State, flickr: bool):
        super().__init__(state)
        width = self.fc.out_features
        self.img_rnn = nn.GRU(width, width, batch_first=True)
        self.Rs_GCN_1, self.Rs_GCN_2, self.Rs_GCN_3, self.Rs_GCN_4 = (GraphLayer(width) for _ in range(4))
        self.bn = nn.BatchNorm1d(width) if "bn.weight" in state else None
        self.region_norm = not (flickr and self.bn is not None)

    def prepare(self, features: Any) -> Tensor:
        """Check region features, (N, regions, F)."""
        return check_features(features, ("n", "regions", self.fc.in_features))

    def forward(self, features: Tensor) -> Tensor:
        """Encode region features, (N, regions, F), to (N, D)."""
        regions = self.fc(features)
        if self.region_norm:
            regions = normalize(regions, dim=REGION_AXIS, eps=0.0)
        regions = regions.mT
        for layer in (self.Rs_GCN_1, self.Rs_GCN_2, self.Rs_GCN_3, self.Rs_GCN_4):
            regions = layer(regions)
        image = self.img_rnn(normalize(regions.mT, dim=REGION_AXIS, eps=0.0))[1][0]
        return image if self.bn is None else self.bn(image)


def check_features(features: Any, expected: tuple) -> Tensor:
    """Refuse features of another shape."""
    features = torch.as_tensor(features)
    if features.ndim != len(expected) or features.shape[-1] != expected[-1]:
        shape = ", ".join(map(str, expected))
        raise InputError(f"image features {tuple(features.shape)}, expected ({shape})")
    return features


class TwoTowers(nn.Module):
    """Both towers, with the switches of the training script."""

    name = "VSE++ or VSRN"

    def __init__(self, image: FeatureTower, text: GRUText, no_imgnorm: bool):
        super().__init__()
        self.image, self.text, self.no_imgnorm = image, text, no_imgnorm
        self.kinds, self.items_at_once = (image.kind, "text"), image.items_at_once

    def encode(self, items: Any, kind: str, side: str) -> Tensor:
        """Encode captions, images or features to (n, D)."""
        if kind == "text":
            return self.text(items)
        image = self.image(self.image.prepare(items).to(self.image.fc.weight))
        image = image if self.no_imgnorm else normalize(image, dim=1, eps=0.0)
        return image.abs() if self.text.use_abs else image


def sniff(file: File) -> bool:
    """Recognise two towers with the names of the published code, and the options of its training script."""
    model = file.record.get("model")
    if not isinstance(file.record.get("opt"), NAMESPACES) or not isinstance(model, list | tuple) or len(model) != 2:
        return False
    names = {"embed.weight", "rnn.weight_ih_l0", "rnn.weight_hh_l0"}
    return all(isinstance(tower, dict) for tower in model) and "fc.weight" in model[0] and names <= model[1].keys()


def load(file: File, data: Any = None) -> Checkpoint:
    """Read a checkpoint; its data are a folder of features or images, with captions and the vocabulary."""
    image, text = file.record["model"]
    options = {str(key): plain(value) for key, value in sorted(vars(file.record["opt"]).items())}
    switches = {name: str(options.get(name)).lower() in {"true", "1"} for name in SWITCHES}
    graph, raw = any(key.startswith("Rs_GCN_") for key in image), any(key.startswith("cnn.") for key in image)
    image = rename_backbone(image) if raw else image
    loss, option, parameter = LOSSES.get(options.get("criterion") or "triplet", (None, "", ""))
    value = recorded.number(options.get(option))
    losses = ("triplet", "triplet_sh") if loss == "triplet" else (loss,)
    if loss == "triplet" and switches["max_violation"]:
        loss = "triplet_sh"
    # The folder of the data: from `--data`, or the recorded one if it is on this machine.
    name = str(options.get("data_name") or "")
    folder = Path(str(options.get("data_path") or "") if data is None else data)
    if name and training_data.sniff(folder / name):
        folder /= name
    folder = folder if data is not None or (options.get("data_path") and training_data.sniff(folder)) else None
    words = find_vocabulary(file.path, options, folder)
    rows = len(text["embed.weight"])
    refusal = explain_refusal(image, text, options)

    def encoder() -> nn.Module:
        if refusal:
            raise InputError(f"{file.path}: {refusal}")
        if words is None:
            raise InputError(
                f"{file.path}: its vocabulary of {rows} words, {name}_vocab.pkl or {name}_vocab.json, is not in "
                f"{folder or file.path.parent}; copy it there"
            )
        flickr = options.get("data_name") == "f30k_precomp"
        tower = RegionTower(image, flickr) if graph else ImageTower(image) if raw else FeatureTower(image)
        texts = GRUText(vocabulary.read(words, rows), text, switches["use_abs"])
        return TwoTowers(fill(tower, image), fill(texts, text), switches["no_imgnorm"])

    return Checkpoint(
        file.path,
        file.sha256,
        "vsrn" if graph else "vsepp",
        {
            **{key: plain(file.record.get(key)) for key in ("epoch", "best_rsum", "Eiters")},
            "image tower": f"{'VSRN' if graph else 'VSE++'} on {'images' if raw else 'features'}",
            "dimensions": len(image["fc.weight"]),
            "vocabulary": f"{rows} words",
            "scores": "inner products (no_imgnorm)" if switches["no_imgnorm"] else "cosines",
            "opt": options,
        },
        encoder=encoder,
        training=None if folder is None else training_data.find(folder),
        settings=Recorded(loss, {} if value is None else dict.fromkeys(losses, {parameter: value})),
        notes=(f"{file.path}: {refusal}",) if refusal else (),
    )


def rename_backbone(image: State) -> dict[str, Tensor]:
    """Return the image tower with the names of torchvision in its backbone, without the classifier.

    DataParallel wraps the whole ResNet, or the convolutions of a VGG.
    """
    backbone = {key.replace("module.", "", 1): value for key, value in part(image, "cnn").items()}
    if "classifier.1.weight" in backbone and "classifier.0.weight" not in backbone:
        backbone = {OLD_LAYER.sub(lambda match: f"classifier.{int(match[1]) - 1}.", k): v for k, v in backbone.items()}
    layers = {key: value for key, value in image.items() if not key.startswith("cnn.")}
    return layers | {f"cnn.{key}": value for key, value in backbone.items()}


def explain_refusal(image: State, text: State, options: dict[str, Any]) -> str:
    """Return why cocos cannot encode with the checkpoint; empty if it can."""
    rows, size = len(text["embed.weight"]), options.get("vocab_size")
    if isinstance(size, int) and size != rows:
        return f"opt.vocab_size {size}, expected the {rows} rows of embed.weight"
    if options.get("measure") == "order":
        return "trained with measure 'order', whose scores are no cosines; expected measure 'cosine'"
    if options.get("cross_attn") is not None:
        return f"trained with cross attention ({options['cross_attn']}), without embeddings of images"
    backbones = {"cnn.layer4.0.conv1.weight", "cnn.classifier.0.weight"}
    if any(key.startswith("cnn.") for key in image) and not backbones & image.keys():
        return f"cnn_type {options.get('cnn_type')!r}, expected a ResNet or VGG"
    return ""


def find_vocabulary(path: Path, options: dict[str, Any], data: Path | None) -> Path | None:
    """Find the vocabulary of the training, next to the data or to the checkpoint."""
    folder = path.parent if data is None else data if data.is_dir() else data.parent
    name = str(options.get("data_name") or folder.name)
    # As published, data/f30k_precomp and vocab are next to each other.
    folders = [
        folder,
        folder.parent,
        folder / "vocab",
        folder.parent / "vocab",
        folder.resolve().parent.parent / "vocab",
    ]
    folders += [Path(str(options.get("vocab_path") or path.parent)), path.parent]
    paths = [place / f"{name}_vocab{suffix}" for place in folders for suffix in (".pkl", ".json")]
    return next(filter(Path.is_file, paths), None)
