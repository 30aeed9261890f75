"""An encoder of the user's: any function from a batch of rows to vectors."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cocos.base.errors import InputError, NotFinite, nearest
from cocos.checkpoints.data import KINDS
from cocos.losses.external.guard import guarded

__all__ = ["OwnEncoder", "own"]

SIDES = ("query", "candidate")


class OwnEncoder(nn.Module):
    """Functions of the user's, one for each side; modules among them move with this one.

    Args:
        name: for messages.
        functions: `query` and `candidate` -> function of a batch of rows, as `Encoder.encode` gets them: a list
            of texts, or a tensor on the device of the computation. It returns (n, D), as a tensor or an array.
    """

    kinds = KINDS

    def __init__(self, name: str, functions: dict[str, Callable]):
        super().__init__()
        self.name, self.functions = name, functions
        self.modules_of = nn.ModuleList(
            dict.fromkeys(each for each in functions.values() if isinstance(each, nn.Module))
        )
        self.register_buffer("place", torch.empty(0), persistent=False)

    def encode(self, items: Any, kind: str, side: str) -> Tensor:
        """Encode rows to (n, D)."""
        device: Any = self.place.device  # type: ignore[union-attr]
        if isinstance(items, Tensor | np.ndarray):
            items = torch.as_tensor(items).to(device)
        with guarded(self.name, dtypes=False):
            found = self.functions[side](items)
        try:
            found = torch.as_tensor(found).detach()
        except (TypeError, ValueError, RuntimeError):
            raise InputError(f"{self.name} returned {type(found).__name__}, expected vectors, (n, D)") from None
        if not found.is_floating_point() or found.ndim != 2:
            return found  # refused, with its shape, where all encoders are
        if wrong := (~found.isfinite().all(dim=1)).nonzero().flatten().tolist():
            shown = f", for {str(items[wrong[0]])[:60]!r}" if kind == "text" else ""
            raise NotFinite(
                f"{self.name} returned NaN or infinity in row {wrong[0]} of a batch of {len(found)} rows of the {side} "
                f"side{shown}"
            )
        return found.to(device)


def own(found: Any, name: str) -> nn.Module:
    """Make an encoder of what a user has.

    Args:
        found: an `Encoder`, any function of a batch of rows (a module is one), or a dictionary of two, by side.
        name: of it, for messages.

    Examples:
        >>> encoder = cocos.encoders.own(lambda texts: [[float(len(text)), 1.0] for text in texts], "lengths")
        >>> encoder.encode(["a", "to"], "text", "query")
        tensor([[1., 1.],
                [2., 1.]])
    """
    if isinstance(found, nn.Module) and hasattr(found, "kinds") and callable(getattr(found, "encode", None)):
        return found
    if isinstance(found, Mapping):
        for side in found:
            if side not in SIDES:
                raise InputError(f"{name}: {nearest('side', str(side), SIDES)}")
        if wrong := [side for side in SIDES if not callable(found.get(side))]:
            raise InputError(f"{name}: no function for the side {wrong[0]!r} in a dictionary of encoders")
        return OwnEncoder(name, dict(found))
    if not callable(found):
        raise InputError(
            f"{name}: {type(found).__name__}, expected a function from a batch of rows to vectors, a module, or a "
            "dictionary of two, query and candidate"
        )
    return OwnEncoder(name, dict.fromkeys(SIDES, found))
