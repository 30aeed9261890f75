"""Losses whose negatives enter through a sum of exponentials: NT-Xent, SupCon, softmax and margin losses, proxies."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.readers._exponentials import Exponentials
from cocos.readers._shares import EQUAL, Counted, Shares, counts_of, recounted, rows_exactly, statistics_of
from cocos.scores import Pairs
from cocos.sweep import View

__all__ = ["Softmax", "reads"]

TOGETHER = 2**15  # queries whose weights are worked out at once, whatever their direction
RECHECKED = 32  # one query in so many, and some more, may have their sums taken again in float64


def reads(loss, eps: float, *, spread: bool, relative: bool) -> "Softmax | None":
    """The reader of a loss; None where its negatives do not enter through Σ exp(λ score) of each query alone."""
    scale = getattr(loss, "softmax_scale", None)
    if loss.couples != "query" or scale is None or not hasattr(loss, "weight"):
        return None
    return Softmax(loss, scale, eps, spread=spread, relative=relative)


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
        relative: the negatives whose part of the push is above eps are wanted.
    """

    def __init__(self, loss, scale: float, eps: float, *, spread: bool, relative: bool = False):
        self.loss, self.scale, self.eps, self.spread, self.relative = loss, scale, eps, spread, relative

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
            number = view.counted(direction).clamp(min=1).double()
            many = torch.zeros_like(number) if getattr(self.loss, "per_positive", False) else number.log2()
            offset.append((math.log2(self.eps) if self.eps else math.inf) - many)
        if self.relative:  # the positives are no part of the push
            base = [torch.full_like(each, -torch.inf) for each in base]
        self.state = Exponentials(view, self.scale, spread=self.spread, base=base, offset=offset)

    def _alone(self, direction: int, start: int, stop: int) -> Tensor:
        """Smallest exponent (base 2) that a positive of each query stands for in the denominator, (n,)."""
        query, _, score = self.view.scored(direction, start, stop)
        least = torch.full((stop - start,), torch.inf, dtype=torch.float64, device=self.view.device)
        if not len(query):
            return torch.full_like(least, -torch.inf)
        positive = torch.zeros(2, len(score), dtype=torch.bool, device=score.device).T  # see `_some`
        positive[:, 0] = True
        both = torch.stack([score, score]).T
        share = self._share(Pairs(both, positive, query_norm=self._norms(direction, start + query)))
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

    def watch(self, block: int, width: int):
        """What sees the scores inside the kernel."""
        return self.state.watch(block, width)

    def fold(self) -> None:
        """A part of the rows is done."""
        self.state.fold()

    def _wholes(self, logarithms: list[Tensor]) -> list[_Whole]:
        """Weights of all queries of each direction, from log2 of their sums."""
        view, pieces = self.view, []
        for k, logarithm in enumerate(logarithms):
            pieces += [(k, a, b, logarithm[a:b]) for a, b in view.chunks(k)]
        few = sum(b - a for _, a, b, _ in pieces) <= TOGETHER
        groups = [pieces] if few else [[piece] for piece in pieces]
        values = [torch.cat(each) for each in zip(*(self._some(group) for group in groups), strict=True)]
        sizes = [len(logarithm) for logarithm in logarithms]
        return [_Whole(*each) for each in zip(*(value.split(sizes) for value in values), strict=True)]

    def _some(self, pieces: list[tuple[int, int, int, Tensor]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weights of some queries, one after the other: direction, first and last place, log2 of their sums."""
        queries, scores, norms, number = [], [], [], 0
        for direction, start, stop, _ in pieces:
            query, _, score = self.view.scored(direction, start, stop)
            queries.append(query + number)
            scores.append(score)
            norms.append(self.view.sides[direction].norm[start:stop])
            number += stop - start
        query, score, logarithm = torch.cat(queries), torch.cat(scores), torch.cat([piece[3] for piece in pieces])
        device = score.device
        count = torch.bincount(query, minlength=number)
        slots = int(count.max()) + 1
        slot = torch.arange(len(query), device=device) - (count.cumsum(0) - count)[query]
        # each slot of all queries side by side, so that sums over the few slots are fast
        scored = torch.zeros(slots, number, dtype=torch.float64, device=device).T
        positive = torch.zeros(slots, number, dtype=torch.bool, device=device).T
        scored[query, slot], positive[query, slot] = score, True
        there = logarithm > -torch.inf
        scored[:, -1] = torch.where(there, logarithm * math.log(2) / self.scale, 0)
        negative = torch.zeros_like(positive)
        negative[:, -1] = there
        pairs = Pairs(scored, positive, negative, query_norm=torch.cat(norms))
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
        logarithms = [state.result(direction).logarithm() for direction in view.directions]
        errors = [state.error(direction) for direction in view.directions]
        wholes = self._wholes(logarithms)
        asked = self._asked(wholes, logarithms, errors)
        found = counts_of(state, asked, self.eps, noted=len(asked))
        again = [self._doubtful(found, direction) for direction in view.directions]
        for direction, places in enumerate(again):
            if len(places):
                exact = rows_exactly(view, direction, places, state.scale)
                logarithms[direction] = logarithms[direction].index_copy(0, places, exact)
                errors[direction] = errors[direction].index_fill(0, places, EQUAL)
        if any(len(places) for places in again):
            wholes = self._wholes(logarithms)
            asked = self._asked(wholes, logarithms, errors)
            found = [
                recounted(state, counts, again, shares, self.eps) for counts, shares in zip(found, asked, strict=True)
            ]
        return tuple(
            self._result(direction, wholes[direction], logarithms[direction], [counts[direction] for counts in found])
            for direction in view.directions
        )

    def _doubtful(self, found: list[list[Counted]], direction: int) -> Tensor:
        """Queries whose sums are taken again in float64, (P,): all that are uncertain, or none where they are many."""
        places = sum(counts[direction].uncertain for counts in found).nonzero().flatten()
        return places if len(places) <= len(self.view.sides[direction]) // RECHECKED + 256 else places[:0]

    def _asked(self, wholes: list[_Whole], logarithms: list[Tensor], errors: list[Tensor]) -> list[Shares]:
        """Shares of all negatives of each query by the unit of the loss, and by the push where that is wanted."""
        kinds = [[whole.share for whole in wholes]]
        if self.relative:
            kinds.append([(whole.share > 0).double() for whole in wholes])
        return [list(zip(shares, logarithms, errors, strict=True)) for shares in kinds]

    def _result(self, direction: int, whole: _Whole, logarithm: Tensor, found: list[Counted]) -> dict[str, Tensor]:
        weights = (whole.share, whole.positive, whole.push, whole.pull)
        return statistics_of(self.state, direction, *(*found, None)[:2], logarithm, *weights)
