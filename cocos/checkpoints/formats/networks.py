"""ResNets under the names of torchvision, built from a state dict: all sizes are shapes of its tensors."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from cocos.checkpoints.files import state_dicts

State = Mapping[str, Tensor]
STAGES = (1, 2, 3, 4)


def find_state(content: Any, *names: str) -> dict[str, Tensor]:
    """Return the first state dict in the content of a file that has all these names; empty if absent."""
    return next((tensors for tensors in state_dicts(content) if tensors.keys() >= set(names)), {})


def part(state: State, name: str) -> dict[str, Tensor]:
    """Return the tensors of one attribute of a module."""
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}


def fill(model: nn.Module, state: State) -> nn.Module:
    """Load all tensors in float32 and freeze the model; the counters of batch normalisation may be absent."""
    model.load_state_dict({key: value.float() if value.is_floating_point() else value for key, value in state.items()})
    return model.eval().requires_grad_(False)


def stage(block: type[nn.Module], state: State, stride: int) -> nn.Sequential:
    """Return the blocks of a stage; the first one has the stride."""
    number = len({key.partition(".")[0] for key in state})
    return nn.Sequential(*(block(part(state, str(k)), stride if k == 0 else 1) for k in range(number)))


class Block(nn.Module):
    """Two 3 x 3 convolutions, or 1 x 1, 3 x 3 and 1 x 1, and a shortcut; the first 3 x 3 one has the stride."""

    def __init__(self, state: State, stride: int):
        super().__init__()
        self.names = [name for name in ("conv1", "conv2", "conv3") if f"{name}.weight" in state]
        before = state["conv1.weight"].shape[1]
        for name in self.names:
            after, inner, kernel, _ = state[f"{name}.weight"].shape
            options = {"padding": kernel // 2, "groups": before // inner, "bias": False}
            options["stride"] = stride if name == self.names[-2] else 1
            setattr(self, name, nn.Conv2d(before, after, kernel, **options))
            setattr(self, name.replace("conv", "bn"), nn.BatchNorm2d(after))
            before = after
        self.downsample = None
        if "downsample.0.weight" in state:
            after, before = state["downsample.0.weight"].shape[:2]
            shortcut = nn.Conv2d(before, after, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, after, h, w)."""
        y = x
        for name in self.names:
            y = getattr(self, name.replace("conv", "bn"))(getattr(self, name)(y))
            y = y.relu() if name != self.names[-1] else y
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet(nn.Module):
    """He et al. 2016, arXiv:1512.03385; also Wide ResNet and ResNeXt; without the classifier."""

    def __init__(self, state: State):
        super().__init__()
        stem = len(state["conv1.weight"])
        self.conv1, self.bn1 = nn.Conv2d(3, stem, 7, 2, 3, bias=False), nn.BatchNorm2d(stem)
        self.pool = nn.MaxPool2d(3, 2, 1)
        for number in STAGES:
            setattr(self, f"layer{number}", stage(Block, part(state, f"layer{number}"), 1 if number == 1 else 2))

    def maps(self, images: Tensor) -> Tensor:
        """Return the last feature maps, (N, width, h, w)."""
        x = self.pool(self.bn1(self.conv1(images)).relu())
        for number in STAGES:
            x = getattr(self, f"layer{number}")(x)
        return x

    def forward(self, images: Tensor) -> Tensor:
        """Return the mean of the last feature maps, (N, width)."""
        return self.maps(images).mean(dim=(2, 3))
