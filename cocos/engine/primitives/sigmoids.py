r"""Sigmoids of the negatives about the positives of their query: their sums, and then what each negative weighs.

With :math:`\sigma_{jk} = \sigma((s_j - s_k) / \tau)` for negative j and positive k, and
:math:`g_{jk} = \sigma_{jk} (1 - \sigma_{jk})`, a first pass (`Sigmoids`) adds up both over the negatives. Then the rank
of every positive among all, B = A + Σ σ, is known, and a second pass (`Shares`) weighs each negative:
:math:`\sum_k A_k / B_k^2\, g_{jk}`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from cocos.engine import bounds, fused
from cocos.engine.kernel import structs
from cocos.engine.parts import Part, Tile, zeros
from cocos.engine.primitives.threshold import about_positives
from cocos.engine.view import View

__all__ = ["FOUND", "Positives", "Shares", "Sigmoids", "Sums", "slope", "widest"]

FOUND = 10  # sums of what negatives weigh, as in kernel/sigmoids.c


def widest(view: View, direction: int) -> int:
    """Candidates of a query at most."""
    return int(np.diff((view.rows, view.columns)[1 - direction]).max())


def slope(difference: Tensor, temperature: float) -> Tensor:
    """σ (1 - σ), elementwise, accurate for a σ that rounds to 1 too; 0 at -inf."""
    z = difference / temperature
    return z.sigmoid() * (-z).sigmoid()


@dataclass(frozen=True, eq=False)
class Positives:
    """Positives of every query of one direction, in float64.

    Args:
        score: (K, n), +inf where a query has fewer than K.
        rank: (K, n) smooth rank of each among the positives, A; 0 where there is none.
    """

    score: Tensor
    rank: Tensor

    @classmethod
    def of(cls, view: View, temperature: float) -> "list[Positives]":
        """Those of a view, of each direction."""
        levels, _ = about_positives(view, 0.0)
        return [cls._ranked(level.T.contiguous(), temperature) for level in levels]

    @classmethod
    def _ranked(cls, score: Tensor, temperature: float) -> "Positives":
        above = [(cls._above(score, own) / temperature).sigmoid().sum(dim=0) for own in score]
        return cls(score, torch.stack(above) + torch.where(score < torch.inf, 0.5, 0.0))  # σ(0) of itself makes 1

    @staticmethod
    def _above(score: Tensor, own: Tensor) -> Tensor:
        """How far the positives, (K, n), are above one of each query, (n,); -inf where either is missing."""
        return torch.where((own < torch.inf) & (score < torch.inf), score - own, -torch.inf)

    def met(self, k: int, temperature: float) -> Tensor:
        """Slopes of all positives about the k-th, (K, n)."""
        found = slope(self._above(self.score, self.score[k]), temperature)
        found[k] = 0
        return found


@dataclass(eq=False)
class Found:
    """The state of a pass: of each direction (lines + 1, n) float64, sums and, last, a maximum that is above 0."""

    sums: list[Tensor]

    def merge(self, other: "Found", part: Part) -> None:
        """Take in those of a part."""
        for mine, its, where in zip(self.sums, other.sums, (part.rows, part.columns), strict=False):
            mine[:-1, where] += its[:-1, where]
            mine[-1, where] = mine[-1, where].maximum(its[-1, where])


@dataclass(frozen=True, eq=False)
class Sums:
    """What a first pass finds of one direction, float64: sums over the negatives, and how these are weighed by them.

    Args:
        above: (K, n) Σ σ about every positive.
        slope: (K, n) Σ σ (1 - σ).
        factor: (K, n) A / B², 0 where there is no positive.
        inverse: (K, n) 1 / B², 0 where there is no positive.
        lost: (n,) shares that may have been left out, together.
        error: (n,) logarithmic error of a share that comes from the ranks.
    """

    above: Tensor
    slope: Tensor
    factor: Tensor
    inverse: Tensor
    lost: Tensor
    error: Tensor

    @property
    def total(self) -> Tensor:
        """Shares of all negatives together, (n,)."""
        return (self.factor * self.slope).sum(dim=0)

    def replaced(self, far: Tensor, exponent: Tensor) -> "Sums":
        """The same with 2^exponent, (K, n), for both sums of some queries: there sigmoids are exponentials."""
        power = torch.where(far, exponent.exp2(), 0)
        return replace(self, **{name: torch.where(far, power, getattr(self, name)) for name in ("above", "slope")})

    def ends(self, eps: float, share: float) -> Tensor:
        """What a share is compared with, (4, n): the ends about eps, and those about eps of the push.

        The share and the push err as their slopes do, by `share`. Errors of the ranks concern both, and cancel where
        there is one positive; else the quotient errs by them once up and once down.
        """
        error, total = self.error + share, self.total
        heavy = 2 * (error if len(self.factor) > 1 else torch.full_like(error, share))
        heavy += torch.log1p(self.lost / total.clamp(min=1e-300))
        ends = [eps * sign.exp() for sign in (-error, error)]
        return torch.stack([*ends, *(eps * total * sign.exp() for sign in (-heavy, heavy))])


class _Pass(ABC):
    """One of the passes over the negatives of every positive.

    Args:
        view: the scores.
        temperature: τ, in units of score.
        far: binary exponent: scores this far below all positives of a query are left out, sigmoids below 2^-far each.
        numbers: of each direction, (.., n): first the scores of the positives, then what else the pass needs of them.
        levels: of each direction, positives of a query.
        lines: of each direction, how many sums there are.
    """

    def __init__(self, view: View, temperature: float, far: float, numbers: list[Tensor], levels: list[int], lines):
        self.view, self.temperature, self.far, self.unit = view, temperature, far, temperature * math.log(2)
        self.numbers, self.levels, self.lines = numbers, levels, lines

    def start(self, view: View) -> Found:
        """Nothing yet."""
        sizes = [(lines + 1, numbers.shape[1]) for lines, numbers in zip(self.lines, self.numbers, strict=True)]
        return Found([zeros(*size, dtype=torch.float64, device=view.device) for size in sizes])

    def see(self, state: Found, tile: Tile) -> None:
        """Take in a tile."""
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
        """Values that are added to each row of sums; those with a number past the last row compete for the maximum."""


class Sigmoids(_Pass):
    """The first pass: sums over the negatives of every positive.

    Args:
        view: the scores.
        temperature: τ, in units of score.
        positives: of each direction.
        far: as in `_Pass`.
    """

    def __init__(self, view: View, temperature: float, positives: list[Positives], far: float):
        levels = [len(each.score) for each in positives]
        self.positives = positives
        super().__init__(view, temperature, far, [each.score for each in positives], levels, [2 * k for k in levels])
        nats, deep, width = 1 / temperature, fused.deep(view, self), max(widest(view, k) for k in view.directions)
        bound, size = view.bound(deep=deep), nats / math.log(2) * view.most * 2
        self.short = structs.constant("strip") if deep else 0  # terms that are added up in float32 before float64
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

    def done(self, state: Found) -> list[Sums]:
        """The sums of each direction."""
        return [self._sums(k, *each[:-1].split(self.levels[k])) for k, each in enumerate(state.sums)]

    def _sums(self, direction: int, above: Tensor, slope: Tensor) -> Sums:
        score, rank = self.positives[direction].score, self.positives[direction].rank
        there, number, moved = score < torch.inf, widest(self.view, direction), min(self.error, 50.0)
        lost = bounds.cut(number, self.far) * ((score.amin(dim=0) - score).nan_to_num(-torch.inf) / self.unit).exp2()
        loose = above * math.expm1(bounds.total(self.short, number)) + slope * math.expm1(moved) * math.exp(moved)
        whole = torch.where(there, rank + above, 1)
        inverse, off = torch.where(there, whole.square().reciprocal(), 0), ((loose + lost) / whole).amax(dim=0)
        factor = rank * inverse
        return Sums(above, slope, factor, inverse, (factor * lost).sum(dim=0), -2 * torch.log1p(-off.clamp(max=0.9999)))


class Shares(_Pass):
    """The second pass: what every negative weighs, and how the push of a query is spread over its negatives.

    It finds shares of all negatives, and of those certainly above eps; Σ share², Σ share ln share; how many may be, and
    how many certainly are, above eps; may have, and have, more than eps of the push; terms of Eq. 7 that may be, and
    that are, above eps; and the largest share.

    Args:
        first: the first pass.
        sums: what it found.
        idle: of each direction, (n,) queries whose negatives are not weighed.
        eps: smallest share, and smallest term of Eq. 7, that counts.
    """

    def __init__(self, first: Sigmoids, sums: list[Sums], idle: list[Tensor], eps: float):
        numbers = [
            torch.cat([torch.where(some, torch.inf, score), own.factor, own.inverse, own.ends(eps, first.share)])
            for score, own, some in zip(first.numbers, sums, idle, strict=True)
        ]
        super().__init__(first.view, first.temperature, first.far, numbers, first.levels, [FOUND] * len(sums))

    def _terms(self, scores: Tensor, numbers: Tensor, levels: int) -> Iterator[tuple[int, Tensor]]:
        level, factor, inverse, ends = numbers.split([levels, levels, levels, 4])
        share = torch.zeros_like(scores)
        for k in range(levels):
            steep = slope(scores - level[k], self.temperature)
            share.addcmul_(steep, factor[k])
            steep *= inverse[k]
            yield from ((8 + end, steep > ends[end]) for end in range(2))
        yield from enumerate((share, torch.where(share > ends[1], share, 0), share.square(), share.xlogy(share)))
        yield from ((4 + end, share > ends[end]) for end in range(4))
        yield FOUND, share

    def done(self, state: Found) -> list[Tensor]:
        """Of each direction (`FOUND` + 1, n)."""
        return state.sums


class _Kernel(fused.Arguments):
    """Either pass in the kernel, which leaves out scores that are not above a floor; queries that follow have none."""

    name = "sigmoids"

    def __init__(self, reader: _Pass, view: View, chunk: int):
        super().__init__(reader, view, chunk)
        columns = reader.lines[1] + 1 if view.two else 0
        self.struct.set(scale=1 / reader.unit, weigh=isinstance(reader, Shares))
        self.struct.set(work=torch.empty(columns, structs.constant("width")))
        for k, numbers in enumerate(reader.numbers):
            floor, size = numbers[: reader.levels[k]].amin(dim=0) - reader.far * reader.unit, numbers.shape[1]
            side, known = self.struct.sides[k], {"floor": bounds.rounded(floor, -torch.inf), "number": numbers.float()}
            known = {name: pad(values, (0, fused.PAD), value=torch.inf) for name, values in known.items()}
            side.set(step=size + fused.PAD, line=size, levels=reader.levels[k], lines=reader.lines[k], **known)

    def aim(self, state: Found, part: Part) -> None:
        for side, sums in zip(self.struct.sides, state.sums, strict=False):
            side.set(sums=sums)


Sigmoids.kernel = Shares.kernel = _Kernel
