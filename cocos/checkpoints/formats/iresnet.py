"""Face networks of insightface (`backbone.pth`, `model.pt`), with the shards of their class weights beside them."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import _networks, class_vectors
from cocos.checkpoints.formats._trunks import RESIDUAL_STAGES
from cocos.checkpoints.pictures import ImageEncoder, Preparation

SHRINKS = 16  # pixels of an aligned face for each place of the last maps: four strides of 2
WARPED_KERNEL = 7  # of the first convolution in the code of the warped softmax


class _Block(nn.Module):
    """Batch normalisation before, between and after two 3 x 3 convolutions; the second one has the stride."""

    def __init__(self, before: int, after: int, stride: int, shortcut: bool):
        super().__init__()
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm2d(before), nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.conv1 = nn.Conv2d(before, after, 3, 1, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, stride, 1, bias=False)
        self.prelu, self.downsample = nn.PReLU(after), None
        if shortcut:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, after, h, w)."""
        y = self.bn3(self.conv2(self.prelu(self.bn2(self.conv1(self.bn1(x))))))
        return y + (x if self.downsample is None else self.downsample(x))


class IResNet(ImageEncoder):
    """Embeddings of any length; the losses of faces read their cosines.

    The first convolution has a kernel of 3 in insightface, with a stride of 2 in the first stage; of 7 in the code of
    the warped softmax, which has that stride in the first convolution instead, and one row of padding.

    Args:
        num_blocks: of each of the four stages: 2, 2, 2, 2 for IResNet-18; 3, 4, 14, 3 for 50; 3, 13, 30, 3 for 100.
        widths: channels of the stem and of each stage.
        dimensions: of the embeddings.
        side: pixels of the square that a face is resized to; the published files were trained on aligned faces.
        places: height and width of the last maps.
        kernel: of the first convolution, 3 or 7.

    Source: Duta et al. 2021, Improved residual networks, arXiv:2004.04989; Deng et al. 2019, ArcFace,
    arXiv:1801.07698; keys are named as in insightface's recognition code.
    """

    def __init__(
        self,
        *,
        num_blocks: Sequence[int],
        widths: Sequence[int] = (64, 64, 128, 256, 512),
        dimensions: int = 512,
        side: int = 112,
        places: int = 7,
        kernel: int = 3,
    ):
        if kernel not in {3, 7}:
            raise InputError(f"iresnet: kernel {kernel}, expected 3 or 7")
        super().__init__(Preparation((side, side), None, (0.5,) * 3, (0.5,) * 3))
        stem, before = widths[0], widths[0]
        first = 2 if kernel == 3 else 1  # stride of the first stage
        self.conv1 = nn.Conv2d(3, stem, kernel, 2 // first, 1, bias=False)
        self.bn1, self.prelu = nn.BatchNorm2d(stem), nn.PReLU(stem)
        for stage, number, after in zip(RESIDUAL_STAGES, num_blocks, widths[1:], strict=True):
            stride = first if stage == 1 else 2
            blocks = [_Block(before, after, stride, stride != 1 or before != after)]
            blocks += [_Block(after, after, 1, False) for _ in range(number - 1)]
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
            before = after
        self.bn2, self.fc = nn.BatchNorm2d(before), nn.Linear(before * places**2, dimensions)
        self.features = nn.BatchNorm1d(dimensions)

    def forward(self, images: Tensor) -> Tensor:
        """Encode prepared faces, (N, 3, side, side), to (N, dimensions)."""
        x = self.prelu(self.bn1(self.conv1(images)))
        for stage in RESIDUAL_STAGES:
            x = getattr(self, f"layer{stage}")(x)
        return self.features(self.fc(self.bn2(x).flatten(1)))


build = IResNet


def arguments(state: Mapping[str, Tensor]) -> dict | None:
    """Read the sizes of an IResNet off its weights; None unless it has the layers of one."""
    shape = {key: tuple(value.shape) for key, value in state.items()}
    names = ["conv1.weight", *(f"layer{stage}.0.conv2.weight" for stage in RESIDUAL_STAGES)]
    if "prelu.weight" not in shape or len(shape.get("fc.weight", ())) != 2:
        return None
    if not all(len(shape.get(name, ())) == 4 for name in names):
        return None
    widths = [shape[name][0] for name in names]
    places = math.isqrt(shape["fc.weight"][1] // max(1, widths[-1]))
    first = [key for key in shape if key.endswith(".conv1.weight")]
    blocks = [sum(key.startswith(f"layer{stage}.") for key in first) for stage in RESIDUAL_STAGES]
    return {
        "num_blocks": blocks,
        "widths": widths,
        "dimensions": shape["fc.weight"][0],
        "side": places * SHRINKS,
        "places": places,
        "kernel": shape["conv1.weight"][2],
    }


def describe(arguments: dict) -> str:
    """Name a network in the words of its field."""
    return f"IResNet-{2 * sum(arguments['num_blocks']) + 2} for faces of {arguments['side']} pixels"


def recognises(file: File) -> bool:
    """Residual blocks with PReLU that begin with batch normalisation, and a linear layer over all places."""
    return _networks.find(file, "iresnet") is not None


def read(file: File, data=None) -> Checkpoint:
    """Read a face network; its data are aligned faces with labels 0 to C - 1."""
    found = _networks.find(file, "iresnet")
    weights, width = class_vectors.read_ranks_of(Path(file.path)), found.arguments["dimensions"]
    if weights is not None and weights.shape[1] != width:
        raise InputError(f"{file.path}: class weights beside it {tuple(weights.shape)}, expected (classes, {width})")
    said = "no class weights beside it: samples are counted against samples"
    if weights is not None:
        said = f"{len(weights)} class weights beside it, joined in the order of the ranks"
    warped = found.arguments["kernel"] == WARPED_KERNEL
    return _networks.checkpoint(
        file,
        found,
        format="iresnet",
        contents={"class weights": said},
        proxies=None if weights is None else weights.float(),
        notes=(f"{file.path}: {said}; the margin and the scale of its loss are not recorded",),
        **({"trained_with": "warped_softmax"} if warped else {}),
    )
