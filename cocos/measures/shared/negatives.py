"""Numbers of the negatives of each query, as one function of their weights, over the training batches.

If a loss allows it (`Lines.reads`), the scores are visited line by line and never stored; the weights of any other loss
are computed block by block. The function receives `OfLines` or `OfPairs`, with the same methods.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError
from cocos.counting import statistics
from cocos.embeddings.scores import Pairs
from cocos.engine.readers.lines import Lines
from cocos.engine.tiles import Tally, Tile
from cocos.engine.view import View
from cocos.measures.shared.prepared import Run, passes

NO_SHARES = "{}: the natural unit of this loss is not known, so that no share is above an eps; give it, -p unit="


@dataclass(frozen=True, eq=False)
class OfPairs:
    """The negatives of a block of queries, from their pairs and weights."""

    loss: losses.Loss
    pairs: Pairs
    weights: Tensor  # (m, n)
    unit: Tensor

    def number(self) -> Tensor:
        """Negatives of each query, (m,)."""
        return self.pairs.negative.sum(dim=1)

    def push(self) -> Tensor:
        """Push of each pair up to a factor per query, (m, n); 0 for pairs that are not negatives."""
        return statistics.spread(self.weights, self.pairs)

    def active(self) -> Tensor:
        """Whether any negative of a query has a weight, (m,) bool."""
        return torch.where(self.pairs.negative, self.weights, 0).any(dim=1)

    def shares(self) -> Tensor:
        """Shares, (m, n) float64; 0 for pairs that are not negatives."""
        if self.unit.isnan().any():
            raise InputError(NO_SHARES.format(self.loss.name))
        return torch.where(self.pairs.negative, self.weights.abs() / self.unit, 0).double()


@dataclass(frozen=True, eq=False)
class OfLines:
    """The negatives of some lines of a tile; `factor` (m,) is the ratio of shares to weights."""

    weights: Tensor
    factor: Tensor
    negatives: Tensor

    def number(self) -> Tensor:
        """Negatives of each query, (m,)."""
        return self.negatives

    def push(self) -> Tensor:
        """Push of each pair up to a factor per query, (m, n); 0 for pairs that are not negatives."""
        return self.weights

    def active(self) -> Tensor:
        """Whether any negative of a query has a weight, (m,) bool."""
        return self.weights.amax(dim=1) * self.factor > 0

    def shares(self) -> Tensor:
        """Shares, (m, n) float64; the weights are overwritten."""
        return self.weights.double().mul_(self.factor[:, None])


# Numbers of some queries: tensors whose first axis is the queries, or is 1 for a sum over them.
Numbers = Callable[[OfPairs | OfLines], tuple[Tensor, ...]]


def numbers(
    run: Run, of: Numbers, names: tuple[str, ...], report: Callable[[int, int], None] | None
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield directions and their numbers, a stack or a block of the batches at a time, in the order of the queries.

    Args:
        run: prepared with `visits=Lines.reads`.
        of: the function; a tensor with one entry along the first axis is part of a sum, and yielded unchanged.
        names: of the values that the function returns.
        report: called with (done, in all).
    """
    if run.visited:
        views = passes(run, lambda view: [[_Reader(Lines(view, run.loss), of, names)]], report, lines=Lines.tile)
        for directions, _, (numbers_by_side,) in views:
            yield from zip(directions, numbers_by_side, strict=True)
        return
    for done, batch in enumerate(run.plan.batches):
        for (name, _, _), (_, blocks) in zip(run.sides, run.sided(batch, whole=False), strict=True):
            for pairs, weights, unit in blocks:
                yield name, dict(zip(names, of(OfPairs(run.loss, pairs, weights, unit)), strict=True))
        if report:
            report(done + 1, len(run.plan.batches))


class _Reader:
    """Reader: numbers of each direction, in the batches' order."""

    whole_lines = True

    def __init__(self, lines: Lines, of: Numbers, names: tuple[str, ...]):
        self.lines, self.of, self.names = lines, of, names
        self.number = [lines.view.negatives(side) for side in lines.view.directions]

    def start(self, view: View) -> Tally:
        """Return empty lists."""
        return Tally(lists={f"{name}{side}": [] for side in view.directions for name in ("places", *self.names)})

    def see(self, state: Tally, tile: Tile) -> None:
        """Add one tile."""
        for side, where, weights, factor in self.lines.weighed(tile):
            numbers = self.of(OfLines(weights, factor, self.number[side][where]))
            places = torch.arange(where.start, where.stop, device=weights.device)
            for name, values in zip(("places", *self.names), (places, *numbers), strict=True):
                state.lists[f"{name}{side}"].append(values)

    def done(self, state: Tally) -> list[dict[str, Tensor]]:
        """Return the numbers of each direction, in the order of the batches."""
        by_side = []
        for side in self.lines.view.directions:
            order = torch.cat(state.lists[f"places{side}"]).argsort()
            numbers = {name: torch.cat(state.lists[f"{name}{side}"]) for name in self.names}
            unsorted = self.lines.view.sides[side].unsorted
            by_side.append({k: unsorted(v[order]) if len(v) == len(order) else v for k, v in numbers.items()})
        return by_side
