"""Which module of a trainer computes the loss, and when a trainer wants it recorded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from cocos.base.errors import InputError
from cocos.monitor import detectors

if TYPE_CHECKING:
    from cocos.monitor import Monitor

Log = Callable[[dict[str, float], int], object]

# Parts of the names that people give to the attribute with the loss.
NAMES = ("loss", "criterion")
# Modules without a gradient that a record names.
MOST_MODULES = 3
# Classes that keep a module as their attribute `module`.
WRAPPERS = ("DistributedDataParallel", "DataParallel", "_FabricModule")


@dataclass
class Due:
    """Whether the next call of a loss is recorded: the first one, and one in every `every` steps of the trainer.

    Steps are updates of the weights: under gradient accumulation one call of a step is recorded. A loss that is not
    called in a step that is due, since another dataset has its turn, is recorded at its next call.
    """

    every: int  # record one in this number of steps
    now: bool = True  # whether the next call is recorded
    step: int | None = None  # the step that began last
    asked: bool = False  # whether there was a call

    def begin(self, step: int) -> None:
        """Take note of a step that begins; a second time nothing happens."""
        if step != self.step and step % self.every == 0:
            self.now = True
        self.step = step

    def __call__(self) -> bool:
        """Whether the call that begins is recorded."""
        self.asked = True
        now, self.now = self.now, False
        return now

    def missed(self, kind: str, remedy: str) -> str | None:
        """Warn that the loss was never called.

        Args:
            kind: class of the module.
            remedy: how another module is given.
        """
        if self.asked or self.step is None:
            return None
        return (
            f"nothing was recorded: {kind} was not called in the {self.step} steps of the training, or only within a "
            f"compiled forward pass; give the module that computes the loss, {remedy}"
        )


class Unreached:
    """The parameters in training that no gradient has reached so far.

    Args:
        model: of the training.
    """

    def __init__(self, model: nn.Module):
        self._all = {name: each.numel() for name, each in model.named_parameters() if each.requires_grad}
        self._left = {name: each for name, each in model.named_parameters() if each.requires_grad}
        self._looked = False

    def look(self) -> None:
        """Take note of the gradients that a backward pass left."""
        self._looked = True
        if self._left:
            self._left = {name: each for name, each in self._left.items() if each.grad is None and each.requires_grad}

    def numbers(self) -> dict[str, Any]:
        """Entries of a record: the part of the parameters, and the largest modules all of whose parameters it has."""
        if not self._looked or len(self._left) == len(self._all):
            return {}  # where no gradient is seen at all, another program keeps them
        whole: dict[str, None] = {}
        for name in self._left:
            paths = name.split(".")
            above = (".".join(paths[: k + 1]) for k in range(len(paths)))
            whole[next(each for each in above if self._within(each))] = None
        part = sum(self._all[name] for name in self._left) / sum(self._all.values())
        return {"unreached": part} | ({"unreached_modules": ", ".join([*whole][:MOST_MODULES])} if whole else {})

    def _within(self, path: str) -> bool:
        """Whether no parameter in training of a module was reached."""
        return all(name in self._left for name in self._all if name == path or name.startswith(f"{path}."))


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside of torch.compile, DistributedDataParallel or Fabric; its hooks run in each of them."""
    inner = getattr(module, "_orig_mod", None)
    if inner is None and type(module).__name__ in WRAPPERS:
        inner = module.module
    return unwrapped(inner) if isinstance(inner, nn.Module) else module


def named(owner: object) -> dict[str, nn.Module]:
    """Modules among the attributes of an object whose names speak of a loss, by name."""
    every = vars(owner) | (dict(owner.named_children()) if isinstance(owner, nn.Module) else {})
    return {
        name: value
        for name, value in every.items()
        if isinstance(value, nn.Module) and any(part in name.lower() for part in NAMES) and not _averages(value)
    }


def _averages(module: nn.Module) -> bool:
    """Whether a module is a metric of torchmetrics, like `val_loss = MeanMetric()`, which computes no loss."""
    return any(each.__module__.startswith("torchmetrics.") for each in type(module).__mro__)


def given(loss: object, owner: object) -> nn.Module | None:
    """The module that the user asks for: itself, or an attribute of the owner like `criterion` or `head.loss`."""
    if loss is None or isinstance(loss, nn.Module):
        return loss
    if not isinstance(loss, str):
        raise InputError(f"loss: {type(loss).__name__}, expected a torch.nn.Module or the name of an attribute")
    found: Any = owner
    for part in loss.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, nn.Module):
        kind = type(owner).__name__
        raise InputError(f"loss: {loss!r} of {kind} is {type(found).__name__}, expected a torch.nn.Module")
    return found


def only(owner: object) -> nn.Module | None:
    """The one module of an object whose name speaks of a loss; None where there is none."""
    found = named(owner)
    if len({id(each) for each in found.values()}) > 1:
        names = ", ".join(sorted(found))
        raise InputError(f"loss: {type(owner).__name__} has several ({names}); name one, loss={min(found)!r}")
    return next(iter(found.values()), None)


def logged(first: Log, log: Log | None) -> Log:
    """A function that calls two functions of (dict, step), the second one where it is given."""
    if log is None:
        return first
    if not callable(log):
        raise InputError(f"log: {type(log).__name__}, expected a function of (dict, step), like wandb.log")

    def both(numbers: dict[str, float], step: int) -> None:
        first(numbers, step)
        log(numbers, step)

    return both


def closing(monitor: "Monitor", name: str = "") -> str:
    """Say at the end of a training how often detectors fired, and which of them were watching.

    Args:
        monitor: of the training.
        name: of the dataset, where there are several losses.
    """
    fired = sorted({each["detector"] for each in monitor.alarms})
    said = f"{', '.join(fired)} fired" if fired else "no detector fired"
    of = f" of {name}" if name else ""
    return f"{len(monitor.records)} records{of}: {said}; {detectors.summary(monitor.watching())}"


def renamed(numbers: Mapping[str, float], name: str) -> dict[str, float]:
    """Numbers of the loss of one dataset: `cocos/NAME/contributing` in place of `cocos/contributing`."""
    return {key.replace("cocos/", f"cocos/{name}/", 1) if name else key: value for key, value in numbers.items()}
