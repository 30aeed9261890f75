"""A model and the weights of a file: do names and shapes agree? Nothing is allocated to find out."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from cocos.base.errors import InputError

__all__ = ["completed", "fits", "without_memory"]

COUNTER = "num_batches_tracked"  # of batch normalisation; files of PyTorch before 0.4.1 have none


class _Unfilled(TorchFunctionMode):
    """Initialise no layer with normal numbers: on the meta device PyTorch imports its compiler to do so (2 s)."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return kwargs["tensor"] if func is nn.init.normal_ else func(*args, **(kwargs or {}))


@contextmanager
def without_memory() -> Generator[None]:
    """Build models whose tensors have shapes and no memory."""
    with torch.device("meta"), _Unfilled():
        yield


def completed(state: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Add the counters of batch normalisation that files of an old PyTorch lack; inference does not read them."""
    absent = [key for key in model.state_dict().keys() - state.keys() if key.endswith(COUNTER)]
    return dict(state) | {key: torch.tensor(0) for key in absent}


def fits(build: Callable[[], nn.Module], state: Mapping[str, Tensor]) -> bool:
    """Whether a model has exactly the names and shapes of a state dict, save for counters that it lacks.

    Args:
        build: builds the model from sizes that were read from the state dict.
        state: weights by name.
    """
    try:
        with without_memory():
            own = build().state_dict()
    except (InputError, RuntimeError, ValueError, TypeError, OverflowError):
        return False  # sizes of other layers, read as if they were of this model
    absent = own.keys() - state.keys()
    if state.keys() - own.keys() or any(not key.endswith(COUNTER) for key in absent):
        return False
    return all(state[key].shape == each.shape for key, each in own.items() if key not in absent)
