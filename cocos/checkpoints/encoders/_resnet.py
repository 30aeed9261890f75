"""ResNet, with the names of torchvision: a convolution, four stages of residual blocks, mean over places."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

__all__ = ["RESIDUAL_STAGES", "ResNet", "arguments"]

RESIDUAL_STAGES = (1, 2, 3, 4)


def _convolution(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)


class _Basic(nn.Module):
    """Two 3 x 3 convolutions beside an identity."""

    def __init__(self, before: int, width: int, after: int, stride: int, groups: int):
        super().__init__()
        self.conv1, self.bn1 = _convolution(before, width, 3, stride, groups), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _convolution(width, after, 3, 1, groups), nn.BatchNorm2d(after)
        self.relu, self.downsample = nn.ReLU(), _shortcut(before, after, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, after, h, w)."""
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class _Bottleneck(nn.Module):
    """1 x 1, 3 x 3 (which has the stride, as in torchvision) and 1 x 1 convolutions beside an identity."""

    def __init__(self, before: int, width: int, after: int, stride: int, groups: int):
        super().__init__()
        self.conv1, self.bn1 = _convolution(before, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _convolution(width, width, 3, stride, groups), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = _convolution(width, after, 1), nn.BatchNorm2d(after)
        self.relu, self.downsample = nn.ReLU(), _shortcut(before, after, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, after, h, w)."""
        y = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        return self.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))


def _shortcut(before: int, after: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and before == after:
        return None
    return nn.Sequential(_convolution(before, after, 1, stride), nn.BatchNorm2d(after))


class ResNet(nn.Module):
    """ResNet, also Wide ResNet and ResNeXt.

    Args:
        stem: channels of the first convolution.
        num_blocks: of each of the four stages.
        widths: channels inside the blocks of each stage.
        outputs: channels that the blocks of each stage return.
        bottleneck: blocks of three convolutions instead of two.
        groups: of the 3 x 3 convolutions.
        classes: outputs of the last layer `fc`; 0: there is none.

    Source: He et al. 2016, arXiv:1512.03385, table 1; names and strides are those of torchvision.
    """

    def __init__(
        self,
        stem: int,
        num_blocks: Sequence[int],
        widths: Sequence[int],
        outputs: Sequence[int],
        bottleneck: bool,
        groups: int = 1,
        classes: int = 0,
    ):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, stem, 7, 2, 3, bias=False), nn.BatchNorm2d(stem)
        self.relu, self.maxpool = nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        block, before = _Bottleneck if bottleneck else _Basic, stem
        for stage, number, width, after in zip(RESIDUAL_STAGES, num_blocks, widths, outputs, strict=True):
            stride = 1 if stage == 1 else 2
            first = block(before, width, after, stride, groups)
            rest = [block(after, width, after, 1, groups) for _ in range(number - 1)]
            setattr(self, f"layer{stage}", nn.Sequential(first, *rest))
            before = after
        self.width = before
        self.fc = nn.Linear(before, classes) if classes else nn.Sequential()

    def maps(self, images: Tensor) -> Tensor:
        """Return the last feature maps, (N, width, h, w)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for stage in RESIDUAL_STAGES:
            x = getattr(self, f"layer{stage}")(x)
        return x

    def features(self, images: Tensor) -> Tensor:
        """Return the mean over places of the last feature maps, (N, width)."""
        return self.maps(images).mean(dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Return the output of `fc`, (N, classes), or the features where there is none."""
        return self.fc(self.features(images))


def arguments(state: Mapping[str, Tensor]) -> dict | None:
    """Read the sizes of a ResNet off its weights; None unless it has the layers of one."""
    shape = {key: tuple(value.shape) for key, value in state.items()}
    names = ["conv1.weight", *(f"layer{stage}.0.conv{k}.weight" for stage in RESIDUAL_STAGES for k in (1, 2))]
    if not all(len(shape.get(name, ())) == 4 for name in names):
        return None
    bottleneck = "layer1.0.conv3.weight" in shape
    last = "conv3" if bottleneck else "conv2"
    inner, width = shape["layer1.0.conv2.weight"][1], shape["layer1.0.conv1.weight"][0]
    if torch.Size(shape.get(f"layer1.0.{last}.weight", ())).numel() == 0 or not inner or width % inner:
        return None
    outputs = [shape.get(f"layer{stage}.0.{last}.weight", (0,))[0] for stage in RESIDUAL_STAGES]
    return {
        "stem": shape["conv1.weight"][0],
        "num_blocks": [_number(shape, stage) for stage in RESIDUAL_STAGES],
        "widths": [shape[f"layer{stage}.0.conv1.weight"][0] for stage in RESIDUAL_STAGES],
        "outputs": outputs,
        "bottleneck": bottleneck,
        "groups": width // inner,
    } | ({"classes": shape["fc.weight"][0]} if shape.get("fc.weight") else {})


def _number(shape: Mapping[str, tuple], stage: int) -> int:
    """Count the blocks of a stage."""
    return sum(key.startswith(f"layer{stage}.") and key.endswith(".conv1.weight") for key in shape)
