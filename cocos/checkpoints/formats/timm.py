"""Folders of timm: weights, and a `config.json` with the architecture and the preparation of its images."""

import re
from typing import Any

from torch import Tensor, nn

from cocos.base.errors import InputError
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats.libraries import building, import_library, refuse_code
from cocos.checkpoints.formats.networks import fill
from cocos.checkpoints.pictures import ImageEncoder, Preparation
from cocos.checkpoints.state_dicts import weights

# Other names, such as `hf-hub:...` and `local-dir:...`, would make timm load another model.
ARCHITECTURE = re.compile(r"[a-z0-9_]+")
CLASSIFIERS = ("fc", "classifier", "head", "head.fc")  # names of the last layer, if the configuration has none
CROP_SHARE = 0.875  # default of timm's `crop_pct`


class TimmEncoder(ImageEncoder):
    """A network of timm without its classifier."""

    def __init__(self, network: nn.Module, preparation: Preparation):
        super().__init__(preparation)
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Encode prepared images, (N, 3, h, w), to (N, D)."""
        return self.network(images)


def read_config(file: File) -> dict:
    """Return the configuration of a timm folder; empty for all other files."""
    config = file.json("config.json") if file.kind == "folder" else None
    if not isinstance(config, dict) or not isinstance(config.get("architecture"), str):
        return {}
    return config if "pretrained_cfg" in config or "num_classes" in config else {}


def sniff(file: File) -> bool:
    """A folder with an architecture of timm in `config.json`."""
    return bool(read_config(file))


def load(file: File, data: Any = None) -> Checkpoint:
    """Read a folder; the embeddings are the input of the classifier."""
    refuse_code(file)
    config, state = read_config(file), weights(file)
    if state is None:
        raise InputError(f"{file.path} has no model.safetensors or pytorch_model.bin; copy the weights too")
    settings = config.get("pretrained_cfg") if isinstance(config.get("pretrained_cfg"), dict) else {}
    classifier = settings.get("classifier")
    heads = (classifier,) if isinstance(classifier, str) else CLASSIFIERS
    last = {f"{head}.{name}" for head in heads for name in ("weight", "bias")}
    state = {key: value for key, value in state.items() if key not in last}
    preparation = read_preparation(file, settings)
    name = config["architecture"].partition(".")[0]  # the rest names the weights

    def build() -> nn.Module:
        library = import_library("timm", "vision")
        if not ARCHITECTURE.fullmatch(name) or not library.is_model(name):
            raise InputError(f"{file.path}: architecture {config['architecture']!r}, unknown to timm")
        with building(file, "timm"):
            network = library.create_model(name, pretrained=False, num_classes=0)
        return TimmEncoder(fill(network, state), preparation)

    contents = {"architecture": config["architecture"], "classes": config.get("num_classes")}
    return Checkpoint.of(file, "timm", contents, encoder=build)


def read_preparation(file: File, settings: dict) -> Preparation:
    """Return the preparation of images, as timm does it for evaluation."""
    try:
        _, height, width = map(int, settings.get("input_size", (3, 224, 224)))
        return Preparation(
            resize=int(height / float(settings.get("crop_pct", CROP_SHARE))),
            crop=(height, width),
            mean=tuple(map(float, settings.get("mean", (0.485, 0.456, 0.406)))),
            std=tuple(map(float, settings.get("std", (0.229, 0.224, 0.225)))),
            resampling=str(settings.get("interpolation", "bicubic")),
        )
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise InputError(f"{file.path}: pretrained_cfg without a usable preparation of images ({error})") from None
