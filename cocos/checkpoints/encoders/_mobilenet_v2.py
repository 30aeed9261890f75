"""MobileNetV2: inverted residual blocks, mean over places."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

__all__ = ["MobileNetV2", "arguments"]

STRIDES_OF_GROUPS = (1, 2, 2, 2, 1, 2, 1)  # of the seven groups of blocks; source: table 2 of the paper
BLOCKS_OF_GROUPS = (1, 2, 3, 4, 3, 3, 1)  # of blocks in each group; source: the same


def _unit(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU6()]


class _Block(nn.Module):
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
            *(_Block(*size, nested) for size in sizes),
            nn.Sequential(*_unit(widths[-2], widths[-1], 1)),
        )
        self.width = widths[-1]
        last = [nn.Dropout(), nn.Linear(self.width, classes)] if classes else []
        self.classifier = nn.Sequential(*last)

    def forward(self, images: Tensor) -> Tensor:
        """Return the output of the last linear layer, (N, classes), or the features, (N, width)."""
        return self.classifier(self.features(images).mean(dim=(2, 3)))


def arguments(state: Mapping[str, Tensor]) -> dict | None:
    """Read the sizes of a MobileNetV2 off its weights; None unless it has the layers of one."""
    shape = {key: tuple(value.shape) for key, value in state.items()}
    nested = "features.1.conv.0.0.weight" in shape
    blocks = sum(BLOCKS_OF_GROUPS)
    ends = [f"features.{number}.0.weight" for number in (0, blocks + 1)]
    inner = [f"features.{block}.conv.{'0.0' if nested else '0'}.weight" for block in range(1, blocks + 1)]
    narrow = [_narrow(shape, block, nested) for block in range(1, blocks + 1)]
    if not all(len(shape.get(name, ())) == 4 for name in (*ends, *inner, *narrow)):
        return None
    return {
        "widths": [shape[ends[0]][0], *(shape[name][0] for name in narrow), shape[ends[1]][0]],
        "inner": [shape[name][0] for name in inner],
        "nested": nested,
    } | ({"classes": shape["classifier.1.weight"][0]} if shape.get("classifier.1.weight") else {})


def _narrow(shape: Mapping[str, tuple], block: int, nested: bool) -> str:
    """Name the weight of the last convolution of a block, which has one unit less where it does not widen."""
    without, widened = ("1", "2") if nested else ("3", "6")
    name = f"features.{block}.conv.{widened}.weight"
    return name if len(shape.get(name, ())) == 4 else f"features.{block}.conv.{without}.weight"
