"""TFeat and HardTFeat: descriptors of grey patches of 32 x 32 pixels, trained with triplets."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import instance_norm

from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import _networks
from cocos.checkpoints.pictures import ImageEncoder, Preparation

NOT_READ = "SIFT."  # filters in files of HardTFeat that never change and that its descriptor does not read
SIDE = 32  # pixels
WIDTH = 8  # places of the last maps: 32 less 6, halved, less 5
STD_FLOOR = 1e-7  # added to the standard deviation of a patch; source: the published code of HardTFeat
LENGTH_FLOOR = 1e-8  # added to the squared length of a descriptor; source: the published code of HardTFeat


class TFeat(ImageEncoder):
    """Two convolutions with tanh, of two numbers of channels, and a layer over all places.

    HardTFeat's last layer is a convolution; it divides a patch by its standard deviation and gives a unit vector. TFeat
    has instance normalisation, a linear layer, and vectors of any length.

    Source: Balntas et al. 2016, BMVC, Learning local feature descriptors with triplets (TFeat); Mishkin et al. 2018,
    arXiv:1711.06704 (HardTFeat, trained with the hardest negative in the batch); keys are named as in their files.
    """

    def __init__(self, *, channels: tuple[int, int] = (32, 64), dimensions: int = 128, hard: bool = False):
        super().__init__(Preparation((SIDE, SIDE), None, (0.0,), (1.0,), "plain"))
        self.hard = hard
        first, second = channels
        convolutions = (nn.Conv2d(1, first, 7), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(first, second, 6), nn.Tanh())
        if hard:
            self.features = nn.Sequential(*convolutions)
            self.classifier = nn.Sequential(nn.Dropout(), nn.Conv2d(second, dimensions, WIDTH), nn.Tanh())
        else:
            self.features = nn.Sequential(nn.Identity(), *convolutions)
            self.descr = nn.Sequential(nn.Linear(second * WIDTH**2, dimensions), nn.Tanh())

    def forward(self, patches: Tensor) -> Tensor:
        """Encode prepared patches, (N, 1, 32, 32), to (N, dimensions)."""
        if not self.hard:
            return self.descr(self.features(instance_norm(patches)).flatten(1))
        places = (1, 2, 3)
        spread = patches.std(dim=places, keepdim=True) + STD_FLOOR
        found = self.classifier(self.features((patches - patches.mean(dim=places, keepdim=True)) / spread)).flatten(1)
        return found / (found.square().sum(dim=1, keepdim=True) + LENGTH_FLOOR).sqrt()


build = TFeat


def arguments(state: Mapping[str, Tensor]) -> dict[str, Any] | None:
    """Read the sizes of a TFeat off its weights; None unless it has the layers of one."""
    hard = "classifier.1.weight" in state
    first, second = (0, 3) if hard else (1, 4)
    names = [f"features.{first}.weight", f"features.{second}.weight", f"{'classifier.1' if hard else 'descr.0'}.weight"]
    if not all(name in state and state[name].ndim > 1 for name in names):
        return None
    sizes = [state[name].shape[0] for name in names]
    return {"channels": tuple(sizes[:2]), "dimensions": sizes[2], "hard": hard}


def describe(arguments: dict[str, Any]) -> str:
    """Name a network in the words of its field."""
    return "HardTFeat" if arguments["hard"] else "TFeat"


def recognises(file: File) -> bool:
    """Two convolutions, and a layer over all of their places."""
    return _networks.find(file, "tfeat") is not None


def read(file: File, data=None) -> Checkpoint:
    """Read a descriptor; its data are images with labels, each made grey and resized to 32 x 32 pixels."""
    found = _networks.find(file, "tfeat")
    hard = found.arguments["hard"]
    return _networks.checkpoint(
        file,
        found,
        format="tfeat",
        contents={"descriptor": "HardTFeat, unit vectors" if hard else "TFeat, compared by Euclidean distance"},
    )
