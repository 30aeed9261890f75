"""VGG, with the names of torchvision: 3 x 3 convolutions in five parts, and linear layers on 7 x 7 places."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

__all__ = ["VGG", "arguments"]

PLACES = 7  # height and width of the maps that the linear layers read
PARTS_OF_VGG = 5  # each ends with a max pooling


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


def arguments(state: Mapping[str, Tensor]) -> dict | None:
    """Read the sizes of a VGG off its weights; None unless it has the layers of one."""
    shape = {key: tuple(value.shape) for key, value in state.items()}
    numbers = sorted(
        int(key.split(".")[1])
        for key, each in shape.items()
        if key.startswith("features.") and key.endswith(".weight") and len(each) == 4 and key.split(".")[1].isdigit()
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
    classes = {"classes": shape["classifier.6.weight"][0]} if shape.get("classifier.6.weight") else {}
    return {"parts": parts, "batch_norm": batch_norm, "hidden": hidden[0]} | classes
