"""Networks of images that timm builds, where it is installed: the architecture is looked up among its own names."""

import importlib
import re
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import normalize

from cocos.base.errors import InputError, nearest
from cocos.checkpoints.encoders._pictures import ImageEncoder, Preparation
from cocos.checkpoints.encoders._transformers import unfit

__all__ = ["build"]

# Names of architectures. Others, such as `hf-hub:...` and `local-dir:...`, would make timm load what they point to.
ARCHITECTURE_NAME = re.compile(r"[a-z0-9_]+")


class TimmNetwork(ImageEncoder):
    """A network without its classifier.

    Args:
        network: built by timm.
        unit: divide each embedding by its length.
        preparation: of each image.
    """

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

    Raises:
        InputError: timm is not installed, or has no such architecture.
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
