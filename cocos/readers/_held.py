"""The reference: the scores of a few queries at a time, held in float64, and the loss's own weights."""

import torch
from torch import Tensor

from cocos import shards, statistics, weights
from cocos.losses.smoothap import SmoothAP
from cocos.sweep import View

__all__ = ["Held", "held", "weighed"]

HELD = 2**19  # scores that are held at once
EQUAL = 1e-11  # relative difference of a share and eps below which rounding decides


def held(view: View, direction: int, places: Tensor, loss, eps: float) -> dict[str, Tensor]:
    """Statistics of some queries, (places,) each, as `cocos.statistics` has them, and `uncertain` and `negatives`."""
    parts, chunks = [], places.split(max(1, HELD // len(view.sides[1 - direction])))
    for some in shards.mine(chunks) if view.together else chunks:
        pairs = view.dense(direction, some)
        found = weights.of(loss, pairs)
        unit = loss.unit_of(found, pairs) if hasattr(loss, "unit_of") else loss.unit(pairs)
        part = statistics.per_query(found, unit, pairs, eps, equal=0 if hasattr(loss, "hinge") else EQUAL)
        if hasattr(loss, "hinge"):  # whole numbers, and their quotients, are above eps or not
            part |= {name: torch.zeros_like(part[name]) for name in ("uncertain", "relative_uncertain")}
        part["negatives"] = pairs.negative.sum(dim=1)
        if isinstance(loss, SmoothAP):
            part["eq7"] = statistics.eq7(pairs, loss.temperature, eps)
        parts.append(part)
    if view.together:
        parts = [{name: each.to(places.device) for name, each in part.items()} for part in shards.collect(parts)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def weighed(view: View, loss, eps: float) -> tuple[dict[str, Tensor], ...]:
    """Statistics of all queries, one dict a direction, in the order of the batch."""
    found = []
    for direction in view.directions:
        side = view.sides[direction]
        result = held(view, direction, torch.arange(len(side), device=view.device), loss, eps)
        found.append({name: side.unsorted(values) for name, values in result.items()})
    return tuple(found)


class Held:
    """Any loss whose queries are independent: it looks at no tile, and weighs whole rows of scores in the end.

    Args:
        loss: as in `cocos.losses.load`.
        eps: smallest share that contributes.
    """

    def __init__(self, loss, eps: float):
        self.loss, self.eps = loss, eps

    def begin(self, view: View) -> None:
        """Nothing to prepare."""
        self.view = view

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Part of a row says nothing."""

    def fold(self) -> None:
        """Nothing waits."""

    def merge(self) -> None:
        """Nothing was seen."""

    def finish(self) -> tuple[dict[str, Tensor], ...]:
        """The statistics of every query, one dict a direction: see `cocos.readers`."""
        return weighed(self.view, self.loss, self.eps)
