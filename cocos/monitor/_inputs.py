"""Rows that repeat another one of their batch: of embeddings, and of what a network gets, before any dropout."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

# Names of the inputs of networks, as Transformers and sentence-transformers have them, by their ends.
NAMES = ("input_ids", "pixel_values", "input_values", "input_features")
# Parts of the names of tensors beside them, in which rows repeat without a fault.
BESIDE = ("mask", "type", "position", "label", "target", "offset", "index", "length")
# Number of inputs that are compared: queries and candidates.
SIDES = 2
# Number of values of a row from which on some of them, evenly apart, are looked at first.
MANY_VALUES = 4096


def repeated(batch: Any, *, named: bool = False) -> Tensor | None:
    """Rows of the inputs of a batch that equal an earlier one, of the side with most, (); None: there are no inputs.

    Args:
        batch: what a network or a loss is called with: tensors in lists, tuples and mappings, in any depth.
        named: whether only tensors under the names of inputs count; else, where none has such a name, all of two
            dimensions or more do.
    """
    found = [each for name, each in _leaves(batch, "") if name.endswith(NAMES)]
    if not found and not named:
        found = [each for name, each in _leaves(batch, "") if not any(part in name.lower() for part in BESIDE)]
    sides = [each.detach() for each in found if each.ndim > 1 and len(each) > 1][:SIDES]
    return torch.stack([equal_rows(each) for each in sides]).amax() if sides else None


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of nested lists, tuples and mappings, with the name under which it stands."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(each, str(key))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each, name)


def equal_rows(rows: Tensor) -> Tensor:
    """Number of rows that equal another one exactly and come after it, ().

    Equal rows stand beside each other in the order of their projections on one line.

    Args:
        rows: (n, ...) of any dtype.
    """
    rows = rows.reshape(len(rows), -1)
    some = rows[:, :: max(1, rows.shape[1] // MANY_VALUES)].float()
    line = torch.linspace(1, 2, some.shape[1], device=rows.device, dtype=torch.float32).cos()
    rows = rows[(some @ line).argsort()]
    return (rows[1:] == rows[:-1]).all(dim=1).sum()
