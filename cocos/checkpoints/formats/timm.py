"""Folders of timm: weights, and a `config.json` with the architecture and the preparation of its images."""

from typing import Any

from torch import nn

from cocos.base.errors import InputError
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats.huggingface import check_folder, import_library
from cocos.checkpoints.formats.networks import fill
from cocos.checkpoints.pictures import ImageEncoder, Preparation

CROP_SHARE = 0.875  # default of timm's `crop_pct`


def sniff(file: File) -> bool:
    """Recognise a folder with an architecture of timm in `config.json`."""
    config = file.json("config.json") if file.kind == "folder" else None
    return isinstance(config, dict) and "architecture" in config


def load(file: File, data: Any = None) -> Checkpoint:
    """Read a folder; the embeddings are the input of the classifier."""
    names, config = check_folder(file), file.json("config.json")
    settings = config.get("pretrained_cfg") or {}
    classifier = f"{settings.get('classifier', 'fc')}."
    weights = {key: tensor for name in names for key, tensor in file.file(name).content.items()}
    state = {key: tensor for key, tensor in weights.items() if not key.startswith(classifier)}
    name = str(config["architecture"]).partition(".")[0]  # the rest names the weights
    _, height, width = settings.get("input_size", (3, 224, 224))
    images = {"resize": int(height / settings.get("crop_pct", CROP_SHARE)), "crop": (height, width)}
    images |= {key: settings.get(key, getattr(Preparation, key)) for key in ("mean", "std")}
    preparation = Preparation.read(images | {"resampling": settings.get("interpolation", "bicubic")})

    def build() -> nn.Module:
        library = import_library("timm", "vision")
        if not library.is_model(name):  # such as `hf-hub:...`, for which timm loads another model
            raise InputError(f"{file.path}: architecture {config['architecture']!r}, unknown to timm")
        return ImageEncoder(fill(library.create_model(name, pretrained=False, num_classes=0), state), preparation)

    contents = {"architecture": config["architecture"], "classes": config.get("num_classes")}
    return Checkpoint(file.path, file.sha256, "timm", contents, encoder=build)
