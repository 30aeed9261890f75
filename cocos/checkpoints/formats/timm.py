"""Folders of timm: weights, and a `config.json` with the architecture and the preparation of its images."""

import importlib
import re
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import normalize

from cocos.base.errors import InputError, nearest
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import _networks
from cocos.checkpoints.pictures import ImageEncoder, Preparation
from cocos.checkpoints.state_dicts import weights
from cocos.checkpoints.transformers import unfit

# Names of architectures. Others, such as `hf-hub:...` and `local-dir:...`, would make timm load what they point to.
ARCHITECTURE_NAME = re.compile(r"[a-z0-9_]+")
CONFIG = "config.json"
CLASSIFIERS = ("fc", "classifier", "head", "head.fc")  # names of the last layer, where the configuration has none
CROP_SHARE = 0.875  # share of the shorter side that is cut from the centre; source: timm's default `crop_pct`


class TimmNetwork(ImageEncoder):
    """A network that timm built, without its classifier."""

    def __init__(self, network: nn.Module, unit: bool, preparation: Preparation):
        super().__init__(preparation)
        self.network, self.unit = network, unit

    def forward(self, images: Tensor) -> Tensor:
        """Encode prepared images, (N, 3, h, w), to (N, D)."""
        found = self.network(images)
        return normalize(found, dim=1, eps=0.0) if self.unit else found


def build(*, architecture: str, unit: bool = False, preparation: dict[str, Any] | None = None) -> TimmNetwork:
    """Build a network with random weights.

    Args:
        architecture: a name that timm lists; the part from a dot on, which names weights, is left out.
        unit: divide each embedding by its length.
        preparation: arguments of the preparation of each image.
    """
    name = architecture.partition(".")[0]
    try:
        library = importlib.import_module("timm")
    except ImportError as error:
        raise InputError(
            f"architecture {architecture!r} is built by timm, which cannot be imported ({error}): pip install timm"
        ) from None
    except Exception as error:
        raise InputError(unfit("timm", error)) from None
    if not ARCHITECTURE_NAME.fullmatch(name) or not library.is_model(name):
        raise InputError(nearest("architecture of timm", architecture, library.list_models()))
    network = library.create_model(name, pretrained=False, num_classes=0)
    return TimmNetwork(network, unit, Preparation(**(preparation or {})))


def describe(arguments: dict) -> str:
    """Name a network; its width is not known before timm has built it."""
    return f"{arguments['architecture']}, built by timm"


def recognises(file: File) -> bool:
    """A folder whose `config.json` names an architecture, and its classes or how it was pretrained."""
    return file.kind == "folder" and bool(_config(file))


def _config(folder: File) -> dict:
    """Read the configuration; empty if it is none of timm."""
    if CONFIG not in folder:
        return {}
    try:
        config = folder.json(CONFIG)
    except InputError:
        return {}
    if not isinstance(config, dict) or not isinstance(config.get("architecture"), str):
        return {}
    return config if "pretrained_cfg" in config or "num_classes" in config else {}


def _preparation(config: dict) -> dict[str, Any]:
    """Read how images are prepared, as timm does it for evaluation."""
    about = config.get("pretrained_cfg")
    about = about if isinstance(about, dict) else {}
    size, share = about.get("input_size", (3, 224, 224)), about.get("crop_pct", CROP_SHARE)
    try:
        _, height, width = map(int, size)
        found = {
            "resize": int(height / float(share)),
            "crop": (height, width),
            "mean": tuple(map(float, about.get("mean", (0.485, 0.456, 0.406)))),
            "std": tuple(map(float, about.get("std", (0.229, 0.224, 0.225)))),
            "resampling": str(about.get("interpolation", "bicubic")),
        }
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise InputError(f"{CONFIG}: pretrained_cfg does not say how images are prepared ({error})") from None
    if not len(found["mean"]) == len(found["std"]) == 3 or not all(found["std"]):
        raise InputError(f"{CONFIG}: mean {found['mean']}, std {found['std']}, expected three numbers each, std not 0")
    return found


def _without_classifier(state: dict[str, Tensor], config: dict) -> dict[str, Tensor]:
    """Leave out the last layer, whose outputs are classes."""
    about = config.get("pretrained_cfg")
    named = about.get("classifier") if isinstance(about, dict) else None
    heads = (named,) if isinstance(named, str) else CLASSIFIERS
    last = {f"{head}.{part}" for head in heads for part in ("weight", "bias")}
    return {key: each for key, each in state.items() if key not in last}


def read(file: File, data=None) -> Checkpoint:
    """Read a folder of timm; the embeddings are those in front of the classifier."""
    config, state = _config(file), weights(file)
    if state is None:
        raise InputError(f"{file.path} has a {CONFIG} of timm and no model.safetensors or pytorch_model.bin beside it")
    preparation, bare = _preparation(config), _without_classifier(state, config)
    arguments = {"architecture": config["architecture"], "preparation": preparation}
    named = {f"network.{key}": each for key, each in bare.items()}
    network = _networks.Network("timm", arguments, named, "in the folder")
    notes = (f"{file.path}: {config['architecture']} is built by timm, if it is installed (pip install timm)",)
    contents = {"architecture": config["architecture"], "classes": config.get("num_classes"), "images": preparation}
    return _networks.checkpoint(file, network, format="timm", contents=contents, notes=notes)
