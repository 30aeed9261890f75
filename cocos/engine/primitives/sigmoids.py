r"""Sigmoids of the negatives around the positives of their query: their sums, then the weight of each negative.

With :math:`\sigma_{jk} = \sigma((s_j - s_k) / \tau)` for negative j and positive k, and :math:`g_{jk} = \sigma_{jk} (1
- \sigma_{jk})`, a first pass (`Sigmoids`) sums both over the negatives. This gives the smooth rank of every positive
among all candidates, B = A + Σ σ, with A its smooth rank among the positives. A second pass (`Shares`) computes the
share of each negative, :math:`\sum_k A_k / B_k^2\, g_{jk}`, and counts the negatives certainly above eps, and those
possibly: float64 decides about the difference.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from cocos.engine import bounds, fused
from cocos.engine.kernel import structs
from cocos.engine.parts import Part, Tile, zeros
from cocos.engine.primitives.threshold import about_positives
from cocos.engine.view import View

# Number of sums that `Shares` keeps for a query, FOUND in kernel/sigmoids.c.
SHARE_SUMS = 10


def widest(view: View, direction: int) -> int:
    """Maximum number of candidates of a query."""
    return int(np.diff((view.rows, view.columns)[1 - direction]).max())


def sigmoid_slope(difference: Tensor, temperature: float) -> Tensor:
    """σ (1 - σ), elementwise, accurate also where σ rounds to 1; 0 at -inf."""
    z = difference / temperature
    return z.sigmoid() * (-z).sigmoid()


@dataclass(frozen=True, eq=False)
class Positives:
    """Positives of every query of one direction, in float64.

    Args:
        score: (K, n), +inf where a query has fewer than K.
        rank: (K, n) smooth rank A of each among the positives; 0 where there is none.
    """

    score: Tensor
    rank: Tensor

    @classmethod
    def of(cls, view: View, temperature: float) -> "list[Positives]":
        """Score and rank the positives of a view, for each direction."""
        found = []
        for score in (level.T.contiguous() for level in about_positives(view, 0.0)[0]):
            above = [(cls._above(score, own) / temperature).sigmoid().sum(dim=0) for own in score]
            rank = torch.stack(above) + torch.where(score < torch.inf, 0.5, 0.0)  # + σ(0) of itself = 1
            found.append(cls(score, rank))
        return found

    @staticmethod
    def _above(score: Tensor, own: Tensor) -> Tensor:
        """Difference of the positives, (K, n), from one positive of each query, (n,); -inf where either is missing."""
        return torch.where((own < torch.inf) & (score < torch.inf), score - own, -torch.inf)

    def met(self, k: int, temperature: float) -> Tensor:
        """Slopes of all positives around the k-th, (K, n); 0 for itself."""
        found = sigmoid_slope(self._above(self.score, self.score[k]), temperature)
        found[k] = 0
        return found


@dataclass(eq=False)
class SigmoidState:
    """State of a pass: (lines + 1, n) float64 a direction, sums and, in the last line, a nonnegative maximum."""

    sums: list[Tensor]

    def merge(self, other: "SigmoidState", part: Part) -> None:
        """Add the state of a part."""
        for mine, its, where in zip(self.sums, other.sums, (part.rows, part.columns), strict=False):
            mine[:-1, where] += its[:-1, where]
            mine[-1, where] = mine[-1, where].maximum(its[-1, where])


@dataclass(frozen=True, eq=False)
class SigmoidSums:
    """Results of the first pass for one direction, float64, and the coefficients of shares that follow from them.

    Args:
        above: (K, n) Σ σ around every positive.
        slope: (K, n) Σ σ (1 - σ).
        factor: (K, n) A / B²; 0 where there is no positive.
        inverse: (K, n) 1 / B²; 0 where there is no positive.
        lost: (n,) bound on the total share of the sigmoids that were left out.
        error: (n,) logarithmic error of a share due to the ranks.
    """

    above: Tensor
    slope: Tensor
    factor: Tensor
    inverse: Tensor
    lost: Tensor
    error: Tensor

    @property
    def total(self) -> Tensor:
        """Total share of all negatives, (n,)."""
        return (self.factor * self.slope).sum(dim=0)

    def replaced(self, far: Tensor, exponent: Tensor) -> "SigmoidSums":
        """Replace both sums of some queries by 2^exponent, (K, n): far below, a sigmoid is an exponential."""
        power = torch.where(far, exponent.exp2(), 0)
        return replace(self, **{name: torch.where(far, power, getattr(self, name)) for name in ("above", "slope")})

    def ends(self, eps: float, share: float) -> Tensor:
        """Thresholds for shares, (4, n): the two ends around eps, and the two around eps of the push.

        Share and push err as their slopes do, by `share`. Errors of the ranks affect both, and cancel if there is one
        positive; otherwise the quotient errs by them once up and once down.
        """
        error, total = self.error + share, self.total
        heavy = 2 * (error if len(self.factor) > 1 else torch.full_like(error, share))
        heavy += torch.log1p(self.lost / total.clamp(min=1e-300))
        ends = [eps * sign.exp() for sign in (-error, error)]
        return torch.stack([*ends, *(eps * total * sign.exp() for sign in (-heavy, heavy))])


class _Pass(ABC):
    """One of the two passes over the negatives, for every positive.

    Args:
        view: the scores.
        temperature: τ, in units of score.
        far: binary exponent: scores this far below all positives of a query are left out, sigmoids below 2^-far each.
        numbers: for each direction, (.., n): first the scores of the positives, then the pass's other inputs per query.
        levels: for each direction, number of positives per query.
        lines: for each direction, number of sums.
    """

    kernel: ClassVar[type[fused.Arguments]]
    exacting: ClassVar[bool] = True  # sigmoids are steep: a wider error leaves more shares in doubt

    def __init__(self, view: View, temperature: float, far: float, numbers: list[Tensor], levels: list[int], lines):
        self.view, self.temperature, self.far, self.unit = view, temperature, far, temperature * math.log(2)
        self.numbers, self.levels, self.lines = numbers, levels, lines

    def start(self, view: View) -> SigmoidState:
        """Return an empty state."""
        sizes = [(lines + 1, numbers.shape[1]) for lines, numbers in zip(self.lines, self.numbers, strict=True)]
        return SigmoidState([zeros(*size, dtype=torch.float64, device=view.device) for size in sizes])

    def see(self, state: SigmoidState, tile: Tile) -> None:
        """Add one tile."""
        for direction, numbers in enumerate(self.numbers):
            where, dim = (tile.rows, tile.columns)[direction], 1 - direction
            sums, beside = state.sums[direction][:, where], numbers[:, where].to(tile.scores.dtype).unsqueeze(1 + dim)
            for line, values in self._terms(tile.scores, beside, self.levels[direction]):
                if line < self.lines[direction]:
                    sums[line] += values.sum(dim=dim, dtype=torch.float64)
                else:
                    sums[line] = sums[line].maximum(values.amax(dim=dim))

    @abstractmethod
    def _terms(self, scores: Tensor, numbers: Tensor, levels: int) -> Iterator[tuple[int, Tensor]]:
        """Yield (line, values), to be summed in that line or, past the last sum, to be maximised."""


class Sigmoids(_Pass):
    """The first pass: sums over the negatives, for every positive."""

    def __init__(self, view: View, temperature: float, positives: list[Positives], far: float):
        levels = [len(each.score) for each in positives]
        self.positives = positives
        super().__init__(view, temperature, far, [each.score for each in positives], levels, [2 * k for k in levels])
        nats, deep, width = 1 / temperature, fused.deep(view, self), max(widest(view, k) for k in view.directions)
        bound, size = float(view.bound(deep=deep)), nats / math.log(2) * view.most * 2
        self.short = structs.constant("strip") if deep else 0  # float32 additions before float64 takes over
        self.settled = bounds.equal(view.exactness, nats, width)
        if view.product == "float64":
            self.error = self.share = bounds.equal(bound, nats, width)
        else:
            self.error = bounds.sigmoid(bound, nats, size)
            self.share = bounds.slope(bound, nats, size) + bounds.total(max(levels) + 4, 0)

    def _terms(self, scores: Tensor, numbers: Tensor, levels: int) -> Iterator[tuple[int, Tensor]]:
        for k, level in enumerate(numbers):
            z = (scores - level) / self.temperature
            above = z.sigmoid()
            yield k, above
            yield levels + k, above.mul_(z.neg_().sigmoid_())

    def done(self, state: SigmoidState) -> list[SigmoidSums]:
        """Return the sums of each direction."""
        return [self._sums(k, *each[:-1].split(self.levels[k])) for k, each in enumerate(state.sums)]

    def _sums(self, direction: int, above: Tensor, slope: Tensor) -> SigmoidSums:
        score, rank = self.positives[direction].score, self.positives[direction].rank
        there, number, moved = score < torch.inf, widest(self.view, direction), min(self.error, 50.0)
        lost = bounds.cut(number, self.far) * ((score.amin(dim=0) - score).nan_to_num(-torch.inf) / self.unit).exp2()
        loose = above * math.expm1(bounds.total(self.short, number)) + slope * math.expm1(moved) * math.exp(moved)
        whole = torch.where(there, rank + above, 1)
        inverse, off = torch.where(there, whole.square().reciprocal(), 0), ((loose + lost) / whole).amax(dim=0)
        factor = rank * inverse
        error = -2 * torch.log1p(-off.clamp(max=0.9999))
        return SigmoidSums(above, slope, factor, inverse, (factor * lost).sum(dim=0), error)


class Shares(_Pass):
    """The second pass: the share of every negative, counts around eps, and how the push of a query is spread.

    The lines of the result are: total share of all negatives, and of those certainly above eps; Σ share², Σ share ln
    share; number possibly above eps, and certainly; number possibly above eps of the push, and certainly; terms of Eq.
    7 possibly above eps, and certainly; the largest share.

    Args:
        first: the first pass.
        sums: its results.
        idle: for each direction, (n,) queries whose negatives are skipped.
        eps: smallest share, and smallest term of Eq. 7, that counts.
    """

    def __init__(self, first: Sigmoids, sums: list[SigmoidSums], idle: list[Tensor], eps: float):
        numbers = [
            torch.cat([torch.where(some, torch.inf, score), own.factor, own.inverse, own.ends(eps, first.share)])
            for score, own, some in zip(first.numbers, sums, idle, strict=True)
        ]
        super().__init__(first.view, first.temperature, first.far, numbers, first.levels, [SHARE_SUMS] * len(sums))

    def _terms(self, scores: Tensor, numbers: Tensor, levels: int) -> Iterator[tuple[int, Tensor]]:
        level, factor, inverse, ends = numbers.split([levels, levels, levels, 4])
        share = torch.zeros_like(scores)
        for k in range(levels):
            steep = sigmoid_slope(scores - level[k], self.temperature)
            share.addcmul_(steep, factor[k])
            steep *= inverse[k]
            yield from ((8 + end, steep > ends[end]) for end in range(2))
        yield from enumerate((share, torch.where(share > ends[1], share, 0), share.square(), share.xlogy(share)))
        yield from ((4 + end, share > ends[end]) for end in range(4))
        yield SHARE_SUMS, share

    def done(self, state: SigmoidState) -> list[Tensor]:
        """Return (`SHARE_SUMS` + 1, n) for each direction."""
        return state.sums


class _KernelSigmoids(fused.Arguments):
    """Either pass in the kernel, which skips scores that are not above a floor; the padding has none above."""

    name = "sigmoids"

    def __init__(self, reader: _Pass, view: View, chunk: int):
        super().__init__(reader, view, chunk)
        columns = reader.lines[1] + 1 if view.two else 0
        self.struct.set(scale=1 / reader.unit, weigh=isinstance(reader, Shares))
        self.struct.set(work=torch.empty(columns, structs.constant("width"), dtype=torch.float32))
        for k, numbers in enumerate(reader.numbers):
            floor, size = numbers[: reader.levels[k]].amin(dim=0) - reader.far * reader.unit, numbers.shape[1]
            side, known = self.struct.sides[k], {"floor": bounds.rounded(floor, -torch.inf), "number": numbers.float()}
            known = {name: pad(values, (0, fused.PAD), value=torch.inf) for name, values in known.items()}
            side.set(step=size + fused.PAD, line=size, levels=reader.levels[k], lines=reader.lines[k], **known)

    def aim(self, state: SigmoidState, part: Part) -> None:
        for side, sums in zip(self.struct.sides, state.sums, strict=False):
            side.set(sums=sums)


Sigmoids.kernel = Shares.kernel = _KernelSigmoids
