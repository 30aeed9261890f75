"""Losses whose negatives enter through a sum of exponentials: NT-Xent, SupCon, softmax and margin losses, proxies."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.readers._exponentials import Exponentials
from cocos.readers._shares import EQUAL, Counted, _rows_exactly, directions_of, statistics_of
from cocos.scores import Pairs
from cocos.sweep import View

__all__ = ["Softmax", "reads"]

RECHECKED = 32  # one query in so many, and some more, may have its sum taken again in float64


def reads(loss, eps: float, *, spread: bool) -> "Softmax | None":
    """The reader of a loss; None where its negatives do not enter through Σ exp(λ score) of each query alone."""
    scale = getattr(loss, "softmax_scale", None)
    if loss.couples != "query" or scale is None or not hasattr(loss, "weight"):
        return None
    return Softmax(loss, scale, eps, spread=spread)


@dataclass(frozen=True, eq=False)
class _Whole:
    """What a query's weights come to, (n,) each, when all of its negatives are taken together."""

    share: Tensor  # of the negatives
    positive: Tensor  # share of the positives
    push: Tensor
    pull: Tensor


class Softmax:
    """Counts and sums of a loss that sees its negatives as Σ exp(λ score).

    All negatives together act as one with the logarithm of the sum as its logit. So the loss's own closed form, on the
    positives and that one, gives the weights of the positives and the sum of all others; each negative's part of it is
    its part of the sum.

    Args:
        loss: with the property `softmax_scale`.
        scale: λ.
        eps: smallest share that contributes.
        spread: the effective number and the participation ratio are wanted.
    """

    def __init__(self, loss, scale: float, eps: float, *, spread: bool):
        self.loss, self.scale, self.eps, self.spread = loss, scale, eps, spread

    def begin(self, view: View) -> None:
        """Look at the positives, and make the state."""
        self.view = view
        base, offset = [], []
        single = view.two and all(bool((view.counted(k) == 1).all()) for k in (0, 1))
        for direction in view.directions:
            if (
                direction == 1 and single and not hasattr(self.loss, "radial")
            ):  # a pair is the same to both, norms aside
                base.append(base[0][view.positives(1, 0, len(view.sides[1]))[1]])
            else:
                base.append(torch.cat([self._alone(direction, a, b) for a, b in view.chunks(direction)]))
            many = view.counted(direction).clamp(min=1).double().log2()
            offset.append((math.log2(self.eps) if self.eps else math.inf) - many)
        self.state = Exponentials(view, self.scale, spread=self.spread, base=base, offset=offset)

    def _alone(self, direction: int, start: int, stop: int) -> Tensor:
        """Smallest exponent (base 2) that a positive of each query stands for in the denominator, (n,)."""
        query, _, score = self.view.scored(direction, start, stop)
        least = torch.full((stop - start,), torch.inf, dtype=torch.float64, device=self.view.device)
        if not len(query):
            return torch.full_like(least, -torch.inf)
        positive = torch.tensor([[True, False]], device=score.device).expand(len(score), 2)
        share = self._share(
            Pairs(score[:, None].expand(-1, 2), positive, query_norm=self._norms(direction, start + query))
        )
        rest = (1 / share[:, 1] - 1 - EQUAL).clamp(min=0)
        exponent = score * self.scale * math.log2(math.e) + rest.log2()
        least = least.scatter_reduce(0, query, exponent, "amin")
        return torch.where(least < torch.inf, least, -torch.inf)

    def _share(self, pairs: Pairs) -> Tensor:
        return self.loss.weight(pairs).abs() / self.loss.unit(pairs)

    def _norms(self, direction: int, places: Tensor) -> Tensor:
        return self.view.sides[direction].norm[places]

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile."""
        self.state.tile(tile, rows, columns)

    def fold(self) -> None:
        """A part of the rows is done."""
        self.state.fold()

    def _whole(self, direction: int, logarithm: Tensor) -> _Whole:
        """Weights of all queries, from log2 of their sums."""
        parts = [self._some(direction, a, b, logarithm[a:b]) for a, b in self.view.chunks(direction)]
        return _Whole(*(torch.cat(each) for each in zip(*parts, strict=True)))

    def _some(self, direction: int, start: int, stop: int, logarithm: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        query, _, score = self.view.scored(direction, start, stop)
        number, device = stop - start, score.device
        count = torch.bincount(query, minlength=number)
        slots = int(count.max()) + 1
        slot = torch.arange(len(query), device=device) - (count.cumsum(0) - count)[query]
        scored = torch.zeros(number, slots, dtype=torch.float64, device=device)
        positive = torch.zeros(number, slots, dtype=torch.bool, device=device)
        scored[query, slot], positive[query, slot] = score, True
        there = logarithm > -torch.inf
        scored[:, -1] = torch.where(there, logarithm * math.log(2) / self.scale, 0)
        negative = torch.zeros_like(positive)
        negative[:, -1] = there
        places = torch.arange(start, stop, device=device)
        pairs = Pairs(scored, positive, negative, query_norm=self._norms(direction, places))
        weights = self.loss.weight(pairs)
        share = weights.abs() / self.loss.unit(pairs)
        pushed, pulled = weights.clamp(min=0).sum(dim=1), (-weights).clamp(min=0).sum(dim=1)
        return torch.where(there, share[:, -1], 0), torch.where(positive, share, 0).sum(dim=1), pushed, pulled

    def merge(self) -> None:
        """Put together what all processes know."""
        self.state.merge()

    def finish(self) -> tuple[dict[str, Tensor], ...]:
        """The statistics of every query, one dict a direction: see `cocos.readers`."""
        state, view = self.state, self.view
        wholes, shares = [], []
        for direction in view.directions:
            logarithm = state.result(direction).logarithm()
            wholes.append(self._whole(direction, logarithm))
            shares.append((wholes[-1].share, logarithm, state.error(direction)))
        found = directions_of(state, shares, self.eps)
        again = []
        for direction in view.directions:
            doubtful = found[direction].uncertain.nonzero().flatten()
            doubtful = doubtful[: len(view.sides[direction]) // RECHECKED + 256]
            again.append(doubtful)
            if len(doubtful):
                _, logarithm, error = shares[direction]
                exact = _rows_exactly(view, direction, doubtful, state.scale)
                logarithm = logarithm.index_copy(0, doubtful, exact)
                error = error.index_fill(0, doubtful, EQUAL)
                wholes[direction] = self._whole(direction, logarithm)
                shares[direction] = (wholes[direction].share, logarithm, error)
        if any(len(each) for each in again):
            found = directions_of(state, shares, self.eps)
        return tuple(
            self._result(direction, wholes[direction], shares[direction][1], found[direction])
            for direction in view.directions
        )

    def _result(self, direction: int, whole: _Whole, logarithm: Tensor, found: Counted) -> dict[str, Tensor]:
        weights = (whole.share, whole.positive, whole.push, whole.pull)
        return statistics_of(self.state, direction, found, logarithm, *weights)
