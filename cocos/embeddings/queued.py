"""Rows of earlier steps that are candidates of every batch: a queue (MoCo), a cross-batch memory, a cache."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError, rows


@dataclass(frozen=True, eq=False)
class Queue:
    """Rows of a queue.

    Args:
        rows: (K, D), in the dtype and on the device of their side.
        group: (K,) ids as they are given, or None.
    """

    rows: Tensor
    group: Any

    @property
    def grouped(self) -> int:
        """Number of the rows that have a group."""
        return 0 if self.group is None else len(self.rows)


def of(given: Any, side: Tensor, name: str) -> Queue | None:
    """Read a queue: rows (K, D), or (rows, group (K,)); None without one.

    Examples:
        >>> from cocos.embeddings import queued
        >>> queued.of((torch.eye(3)[:2], [1, 2]), torch.eye(3), "queue").grouped
        2
    """
    if given is None:
        return None
    vectors, group = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    try:
        found = torch.as_tensor(vectors)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: expected an array of numbers (K, {side.shape[1]}), or (rows, group)") from None
    if found.ndim != 2 or not len(found) or found.shape[1] != side.shape[1] or not found.is_floating_point():
        raise InputError(
            f"{name}: {found.dtype} of shape {tuple(found.shape)}, expected floating point (K, {side.shape[1]})"
        )
    if not found.isfinite().all():
        bad = (~found.isfinite().all(dim=1)).nonzero().flatten().tolist()
        raise InputError(f"{name}: NaN or infinity in {rows(bad)}")
    if group is not None and len(group) != len(found):
        raise InputError(f"{name}_group: {len(group)} ids, expected {len(found)}, one for each row of the queue")
    return Queue(found.to(side), group)


def longer(group: Any, size: int, own: Queue | None, *, known: bool) -> Any:
    """Groups of a side, and behind them those of its queue where they are given; `known`: some queue has groups."""
    if not known:
        return group
    first = np.arange(size) if group is None else _array(group)
    return first if own is None or own.group is None else np.concatenate([first, _array(own.group)])


def _array(values: Any) -> np.ndarray:
    """Ids on the host."""
    found: np.ndarray = values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    return found
