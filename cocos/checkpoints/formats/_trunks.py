"""Trunks of image networks with the names of torchvision: ResNet and VGG.

A trunk is a class whose `sizes_of` reads its arguments off the weights of a file.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cocos.base.errors import InputError, nearest
from cocos.checkpoints.encoders import fits

RESIDUAL_STAGES = (1, 2, 3, 4)
PLACES = 7  # height and width of the maps that the linear layers of VGG read
PARTS_OF_VGG = 5  # each ends with a max pooling


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(value.shape) for key, value in state.items()}


def _classes(shape: Mapping[str, tuple], last: str) -> dict[str, int]:
    """Number of outputs of the last layer, where there is one."""
    return {"classes": shape[f"{last}.weight"][0]} if shape.get(f"{last}.weight") else {}


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

    @staticmethod
    def sizes_of(state: Mapping[str, Tensor]) -> dict[str, Any] | None:
        """Read the sizes of a ResNet off its weights; None unless it has the layers of one."""
        shape = _shapes(state)
        names = ["conv1.weight", *(f"layer{stage}.0.conv{k}.weight" for stage in RESIDUAL_STAGES for k in (1, 2))]
        if not all(len(shape.get(name, ())) == 4 for name in names):
            return None
        bottleneck = "layer1.0.conv3.weight" in shape
        last = "conv3" if bottleneck else "conv2"
        inner, width = shape["layer1.0.conv2.weight"][1], shape["layer1.0.conv1.weight"][0]
        if torch.Size(shape.get(f"layer1.0.{last}.weight", ())).numel() == 0 or not inner or width % inner:
            return None
        first = [key for key in shape if key.endswith(".conv1.weight")]
        return {
            "stem": shape["conv1.weight"][0],
            "num_blocks": [sum(key.startswith(f"layer{stage}.") for key in first) for stage in RESIDUAL_STAGES],
            "widths": [shape[f"layer{stage}.0.conv1.weight"][0] for stage in RESIDUAL_STAGES],
            "outputs": [shape.get(f"layer{stage}.0.{last}.weight", (0,))[0] for stage in RESIDUAL_STAGES],
            "bottleneck": bottleneck,
            "groups": width // inner,
        } | _classes(shape, "fc")

    @staticmethod
    def named(sizes: Mapping[str, Any]) -> str:
        """Name it, with the number of its layers that have weights."""
        depth = (3 if sizes["bottleneck"] else 2) * sum(sizes["num_blocks"]) + 2
        return f"ResNet-{depth}" if sizes["groups"] == 1 else f"ResNeXt-{depth} of {sizes['groups']} groups"


class VGG(nn.Module):
    """VGG-11 to VGG-19.

    Args:
        parts: channels of the convolutions of each of the five parts.
        batch_norm: batch normalisation after each convolution.
        hidden: width of the two hidden linear layers.
        classes: outputs of the last linear layer; 0: there is none.

    Source: Simonyan & Zisserman 2015, arXiv:1409.1556, table 1; the names are those of torchvision.
    """

    def __init__(self, parts: Sequence[Sequence[int]], batch_norm: bool, hidden: int, classes: int = 0):
        super().__init__()
        layers, before = [], 3
        for channels in parts:
            for after in channels:
                norm = [nn.BatchNorm2d(after)] if batch_norm else []
                layers += [nn.Conv2d(before, after, 3, padding=1), *norm, nn.ReLU()]
                before = after
            layers.append(nn.MaxPool2d(2))
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(PLACES)
        last = [nn.Linear(hidden, classes)] if classes else []
        self.classifier = nn.Sequential(
            nn.Linear(before * PLACES**2, hidden),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(),
            *last,
        )
        self.width = hidden

    def forward(self, images: Tensor) -> Tensor:
        """Return the output of the last linear layer, (N, classes), or the hidden features, (N, hidden)."""
        return self.classifier(self.avgpool(self.features(images)).flatten(1))

    @staticmethod
    def sizes_of(state: Mapping[str, Tensor]) -> dict[str, Any] | None:
        """Read the sizes of a VGG off its weights; None unless it has the layers of one."""
        shape = _shapes(state)
        numbers = sorted(
            int(key.split(".")[1])
            for key, each in shape.items()
            if key.startswith("features.")
            and key.endswith(".weight")
            and len(each) == 4
            and key.split(".")[1].isdigit()
        )
        hidden = shape.get("classifier.0.weight", ())
        if len(numbers) < PARTS_OF_VGG or len(hidden) != 2:
            return None
        batch_norm = f"features.{numbers[0] + 1}.weight" in shape
        parts: list[list[int]] = [[]]
        for number, after in zip(numbers, [*numbers[1:], None], strict=True):
            parts[-1].append(shape.get(f"features.{number}.weight", (0,))[0])
            if after is not None and after - number > (3 if batch_norm else 2):
                parts.append([])
        return {"parts": parts, "batch_norm": batch_norm, "hidden": hidden[0]} | _classes(shape, "classifier.6")


TRUNKS: dict[str, Any] = {"resnet": ResNet, "vgg": VGG}


def network(trunk: str, sizes: dict[str, Any]) -> nn.Module:
    """Build a trunk alone, `resnet` or `vgg`, from its name and arguments."""
    if trunk not in TRUNKS:
        raise InputError(nearest("trunk", trunk, sorted(TRUNKS)))
    return TRUNKS[trunk](**sizes)


def trunk(state: Mapping[str, Tensor]) -> tuple[str, dict[str, Any]] | None:
    """Find the trunk whose names and shapes are exactly those of a state dict, and its sizes; None if there is none."""
    for name, kind in TRUNKS.items():
        sizes = kind.sizes_of(state)
        if sizes is not None and fits(partial(kind, **sizes), state):
            return name, sizes
    return None
