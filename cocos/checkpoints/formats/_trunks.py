"""Trunks of image networks with the names of torchvision (ResNet, VGG, MobileNetV2), and the layers after them.

A trunk is a class that knows itself: `sizes_of` reads its arguments off the weights of a file, `width_of` and `named`
tell of them, and `last_layer` is the name of its classifier.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cocos.base.errors import InputError, nearest
from cocos.checkpoints.encoders import fits

RESIDUAL_STAGES = (1, 2, 3, 4)
PLACES = 7  # height and width of the maps that the linear layers of VGG read
PARTS_OF_VGG = 5  # each ends with a max pooling
STRIDES_OF_GROUPS = (1, 2, 2, 2, 1, 2, 1)  # of the seven groups of blocks of MobileNetV2; source: table 2 of the paper
BLOCKS_OF_GROUPS = (1, 2, 3, 4, 3, 3, 1)  # of blocks in each group; source: the same
# Layers after the trunk: the numbers that each takes.
LAYERS: dict[str, tuple[Any, int]] = {
    "linear": (nn.Linear, 2),
    "batch_norm": (nn.BatchNorm1d, 1),
    "layer_norm": (nn.LayerNorm, 1),
    "relu": (nn.ReLU, 0),
}
MAX_HEAD = 64  # layers after the trunk
NUMBERED = re.compile(r"(?:(?P<before>.+)\.)?(?P<place>\d{1,3})\.(?P<name>[a-z_]+)")


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

    last_layer: ClassVar[str] = "fc"

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
    def width_of(sizes: Mapping[str, Any]) -> int:
        """Width of the features."""
        return sizes["outputs"][-1]

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

    last_layer: ClassVar[str] = "classifier.6"

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

    @staticmethod
    def width_of(sizes: Mapping[str, Any]) -> int:
        """Width of the hidden features."""
        return sizes["hidden"]

    @staticmethod
    def named(sizes: Mapping[str, Any]) -> str:
        """Name it, with the number of its layers that have weights."""
        return f"VGG-{sum(map(len, sizes['parts'])) + 3}"


def _unit(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU6()]


class _InvertedBlock(nn.Module):
    """Widen, a convolution of each channel, narrow; beside an identity where the shape stays."""

    def __init__(self, before: int, inner: int, after: int, stride: int, nested: bool):
        super().__init__()
        units = [] if inner == before else [_unit(before, inner, 1)]
        units.append(_unit(inner, inner, 3, stride, inner))
        narrow = [nn.Conv2d(inner, after, 1, bias=False), nn.BatchNorm2d(after)]
        grouped = [nn.Sequential(*unit) for unit in units] if nested else [layer for unit in units for layer in unit]
        self.conv = nn.Sequential(*grouped, *narrow)
        self.same = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, after, h, w)."""
        return x + self.conv(x) if self.same else self.conv(x)


class MobileNetV2(nn.Module):
    """MobileNetV2.

    Args:
        widths: channels of the first convolution, of each of the 17 blocks, and of the last convolution.
        inner: channels inside each block.
        nested: names as in torchvision, where a convolution and its normalisation are one module; else all layers of a
            block are counted, as in the code that many re-identification networks come from.
        classes: outputs of the last linear layer; 0: there is none.

    Source: Sandler et al. 2018, arXiv:1801.04381, table 2.
    """

    last_layer: ClassVar[str] = "classifier"

    def __init__(self, widths: Sequence[int], inner: Sequence[int], nested: bool, classes: int = 0):
        super().__init__()
        strides = [
            stride if k == 0 else 1
            for stride, n in zip(STRIDES_OF_GROUPS, BLOCKS_OF_GROUPS, strict=True)
            for k in range(n)
        ]
        sizes = zip(widths[:-2], inner, widths[1:-1], strides, strict=True)
        self.features = nn.Sequential(
            nn.Sequential(*_unit(3, widths[0], 3, 2)),
            *(_InvertedBlock(*size, nested) for size in sizes),
            nn.Sequential(*_unit(widths[-2], widths[-1], 1)),
        )
        self.width = widths[-1]
        last = [nn.Dropout(), nn.Linear(self.width, classes)] if classes else []
        self.classifier = nn.Sequential(*last)

    def forward(self, images: Tensor) -> Tensor:
        """Return the output of the last linear layer, (N, classes), or the features, (N, width)."""
        return self.classifier(self.features(images).mean(dim=(2, 3)))

    @staticmethod
    def sizes_of(state: Mapping[str, Tensor]) -> dict[str, Any] | None:
        """Read the sizes of a MobileNetV2 off its weights; None unless it has the layers of one."""
        shape = _shapes(state)
        nested, blocks = "features.1.conv.0.0.weight" in shape, sum(BLOCKS_OF_GROUPS)

        def narrow(block: int) -> str:  # the last convolution of a block, with one unit less where it does not widen
            without, widened = ("1", "2") if nested else ("3", "6")
            name = f"features.{block}.conv.{widened}.weight"
            return name if len(shape.get(name, ())) == 4 else f"features.{block}.conv.{without}.weight"

        ends = [f"features.{number}.0.weight" for number in (0, blocks + 1)]
        inner = [f"features.{block}.conv.{'0.0' if nested else '0'}.weight" for block in range(1, blocks + 1)]
        after = [narrow(block) for block in range(1, blocks + 1)]
        if not all(len(shape.get(name, ())) == 4 for name in (*ends, *inner, *after)):
            return None
        return {
            "widths": [shape[ends[0]][0], *(shape[name][0] for name in after), shape[ends[1]][0]],
            "inner": [shape[name][0] for name in inner],
            "nested": nested,
        } | _classes(shape, "classifier.1")

    @staticmethod
    def width_of(sizes: Mapping[str, Any]) -> int:
        """Width of the features."""
        return sizes["widths"][-1]

    @staticmethod
    def named(sizes: Mapping[str, Any]) -> str:
        """Name it."""
        return "MobileNetV2"


TRUNKS: dict[str, Any] = {"mobilenet_v2": MobileNetV2, "resnet": ResNet, "vgg": VGG}


def trunk_class(name: str) -> Any:
    """Class of a trunk: `resnet`, `vgg` or `mobilenet_v2`."""
    if name not in TRUNKS:
        raise InputError(nearest("trunk", name, sorted(TRUNKS)))
    return TRUNKS[name]


def network(trunk: str, sizes: dict[str, Any]) -> nn.Module:
    """Build a trunk alone, from its name and arguments."""
    return trunk_class(trunk)(**sizes)


def trunk(state: Mapping[str, Tensor]) -> tuple[str, dict[str, Any]] | None:
    """Find the trunk whose names and shapes are exactly those of a state dict, and its sizes; None if there is none."""
    for name, kind in TRUNKS.items():
        sizes = kind.sizes_of(state)
        if sizes is not None and fits(partial(kind, **sizes), state):
            return name, sizes
    return None


def layer(name: str, *sizes: int) -> nn.Module:
    """Build one layer after a trunk."""
    kind, number = LAYERS.get(name, (None, 0))
    if kind is None:
        raise InputError(nearest("layer", name, list(LAYERS)))
    if len(sizes) not in {number, number + (name == "linear")}:
        raise InputError(f"layer {name}: sizes {list(sizes)}, expected {number}")
    return kind(*sizes)


def head(state: Mapping[str, Tensor]) -> tuple[list[list], dict[str, Tensor]] | None:
    """Read the layers after a trunk off their weights.

    They are one linear layer, or layers numbered in a sequence; a number without weights is taken as ReLU. A tensor
    that stands under a second name as well is read once.

    Returns:
        The layers, each a name of `LAYERS` and its sizes, and their weights, numbered from 0; None unless all weights
        belong to them.
    """
    found: dict[int, dict[str, Tensor]] = {}
    named = {f"0.{key}": each for key, each in state.items()} if state.keys() <= {"weight", "bias"} else dict(state)
    parsed = {key: match for key in named if (match := NUMBERED.fullmatch(key))}
    if not parsed or len({match["before"] for match in parsed.values()}) > 1:
        return None
    for key, match in parsed.items():
        found.setdefault(int(match["place"]), {})[match["name"]] = named[key]
    inside = [named[key] for key in parsed]
    if not all(
        any(named[key].shape == each.shape and torch.equal(named[key], each) for each in inside)
        for key in named.keys() - parsed.keys()
    ):
        return None
    if max(found) >= MAX_HEAD:
        return None
    layers = [_described(found.get(place)) for place in range(max(found) + 1)]
    known = [each for each in layers if each is not None]
    if len(known) < len(layers):
        return None
    return known, {f"{place}.{name}": each for place, layer in found.items() for name, each in layer.items()}


def _described(weights: dict[str, Tensor] | None) -> list | None:
    """Describe a layer by its weights; None for one that is not among `LAYERS`."""
    if weights is None:
        return ["relu"]
    weight = weights.get("weight")
    if weight is not None and weight.ndim == 2 and weights.keys() <= {"weight", "bias"}:
        return ["linear", weight.shape[1], weight.shape[0], *([] if "bias" in weights else [False])]
    if weight is None or weight.ndim != 1:
        return None
    return ["batch_norm" if "running_mean" in weights else "layer_norm", weight.shape[0]]
