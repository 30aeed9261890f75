r"""Sigmoids of the negatives about the positives of their query: their sums, and then what each negative weighs.

With :math:`\sigma_{jk} = \sigma((s_j - s_k) / \tau)` for negative j and positive k, and
:math:`g_{jk} = \sigma_{jk} (1 - \sigma_{jk})`, a first pass (`Sigmoids`) adds up both over the negatives. Then the rank
of every positive among all, B = A + Σ σ, is known, and a second pass (`Shares`) weighs each negative:
:math:`\sum_k A_k / B_k^2\, g_{jk}`. Where only few negatives can count, the first pass notes them, and no second one is
needed: B only grows while it is being summed up, so the weights can only get smaller.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from cocos.engine import bounds, fused
from cocos.engine.kernel import structs
from cocos.engine.parts import Part, Tile, zeros
from cocos.engine.view import View

__all__ = ["Arguments", "Factors", "Found", "Positives", "Sigmoids", "Sums", "beside", "slope", "widest"]

# Negatives that a part may note; a second pass is cheaper than more.
NOTED = 2**19
# Terms of a sum that may be added up in float32 before float64 takes over.
SHORT = 128
# Pairs of positives whose sigmoids are computed side by side.
ALIKE = 2**18


def widest(view: View, direction: int) -> int:
    """Candidates of a query at most."""
    return int(np.diff((view.rows, view.columns)[1 - direction]).max())


def sigmoid(difference: Tensor, temperature: float) -> Tensor:
    """σ(difference / temperature), elementwise; 0 at -inf."""
    return (difference / temperature).sigmoid()


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
        number: (n,) int64, how many a query has.
    """

    score: Tensor
    rank: Tensor
    number: Tensor

    @classmethod
    def of(cls, view: View, direction: int, temperature: float) -> "Positives":
        """Those of a view."""
        number = view.counted(direction)
        score = torch.full((max(1, int(number.max())), len(number)), torch.inf, dtype=torch.float64, device=view.device)
        for start, stop in view.chunks(direction):
            query, _, found = view.scored(direction, start, stop)
            some = number[start:stop]
            slot = torch.arange(len(query), device=view.device) - (some.cumsum(0) - some)[query]
            score[slot, query + start] = found
        rank = torch.where(score < torch.inf, 0.5, 0.0).double()
        for some in cls.split(score):
            above = sigmoid(_apart(score[:, None, some], score[None, :, some]), temperature)
            rank[:, some] += above.sum(dim=1)
        return cls(score, rank, number)

    @staticmethod
    def split(score: Tensor) -> list[slice]:
        """Queries, in stretches whose pairs of positives fit in memory side by side."""
        step = max(1, ALIKE // len(score) ** 2)
        return [slice(a, a + step) for a in range(0, score.shape[1], step if len(score) > 1 else score.shape[1])]

    def met(self, some: slice, temperature: float) -> Tensor:
        """Slopes of the positives of some queries about each other, (K, K, n): the second about the first."""
        found = slope(_apart(self.score[:, None, some], self.score[None, :, some]), temperature)
        found.diagonal().zero_()
        return found

    def some(self, places: Tensor) -> "Positives":
        """Those of some queries."""
        return Positives(self.score[:, places], self.rank[:, places], self.number[places])


def _apart(own: Tensor, other: Tensor) -> Tensor:
    """Scores of others less one's own, -inf where either is missing."""
    return torch.where((own < torch.inf) & (other < torch.inf), other - own, -torch.inf)


@dataclass(eq=False)
class Found:
    """The state of a pass, by direction; places are the last axis.

    Args:
        sums: (…, n) float64.
        counts: (…, n) int64.
        most: (n,) float64, largest share.
        lists: rows, columns, scores and directions of what the kernel has noted.
        full: the kernel had no room to note more.
    """

    sums: list[Tensor]
    counts: list[Tensor] = field(default_factory=list)
    most: list[Tensor] = field(default_factory=list)
    lists: list[tuple[Tensor, ...]] = field(default_factory=list)
    full: bool = False

    def merge(self, other: "Found", part: Part) -> None:
        """Add the sums of a part, and append its lists."""
        for k, where in enumerate((part.rows, part.columns)[: len(self.sums)]):
            for mine, its in zip((self.sums, self.counts), (other.sums, other.counts), strict=True):
                if mine:
                    mine[k][..., where] += its[k][..., where].to(mine[k].device)
            if self.most:
                torch.maximum(
                    self.most[k][where], other.most[k][where].to(self.most[k].device), out=self.most[k][where]
                )
        self.lists, self.full = self.lists + other.lists, self.full or other.full


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the negatives of one direction, for every positive, (K, n) float64.

    Args:
        above: Σ σ.
        slope: Σ σ (1 - σ).
        loose: how far `above` may be from that of the true scores.
        lost: what the sigmoids that were left out may come to.
        listed: places of queries, of other sides, and the scores of all negatives that may count; None: not noted.
    """

    above: Tensor
    slope: Tensor
    loose: Tensor
    lost: Tensor
    listed: tuple[Tensor, Tensor, Tensor] | None

    def factors(self, positives: Positives, errors: tuple[float, float]) -> "Factors":
        """What the slopes are multiplied by, and how far the shares may be off.

        Args:
            positives: of the same direction.
            errors: logarithmic errors of a share with exact ranks, from scores of the tiles and in float64.
        """
        there = positives.score < torch.inf
        whole = torch.where(there, positives.rank + self.above, 1)
        inverse = torch.where(there, whole.square().reciprocal(), 0)
        off = torch.where(there, self.loose / whole, 0).amax(dim=0)
        ranks = -2 * torch.log1p(-off.clamp(max=0.9999))
        return Factors(positives.score, positives.rank * inverse, inverse, *(ranks + each for each in errors))

    def replaced(self, far: Tensor, exponent: Tensor) -> "Sums":
        """The same with 2^exponent, (K, n), for both sums of some queries: there sigmoids are exponentials."""
        power = torch.where(far, exponent.exp2(), 0)
        above, slope = (torch.where(far, power, each) for each in (self.above, self.slope))
        return replace(self, above=above, slope=slope, loose=self.loose + power)

    def heavy(self, factors: "Factors", eps: float, share: float) -> tuple[Tensor, Tensor]:
        """The share above which a negative has more than eps of the push, (n,), and its logarithmic error.

        The share and the sum of all err as their slopes do, by `share`. Errors of the ranks concern both, and cancel
        where there is one positive; else the quotient errs by them once up and once down.
        """
        total, lost = (factors.factor * self.slope).sum(dim=0), (self.lost * factors.factor).sum(dim=0)
        error = 2 * (factors.error if len(factors.level) > 1 else torch.full_like(total, share))
        return eps * total, error + torch.log1p(lost / total.clamp(min=1e-300))


@dataclass(frozen=True, eq=False)
class Factors:
    """What the shares of the negatives of one direction are computed with, float64.

    Args:
        level: (K, n) scores of the positives, +inf where there is none.
        factor: (K, n) A / B², 0 where there is none.
        inverse: (K, n) 1 / B², 0 where there is none.
        error: (n,) logarithmic error of a share.
        settled: (n,) the same where the score is that of float64.
    """

    level: Tensor
    factor: Tensor
    inverse: Tensor
    error: Tensor
    settled: Tensor

    def without(self, some: Tensor) -> "Factors":
        """The same without the positives of some queries, (n,) bool: none of their negatives is weighed."""
        return replace(self, level=torch.where(some, torch.inf, self.level))


def beside(tile: Tile, direction: int, values: Tensor) -> Tensor:
    """Values of queries, (..., n), as they stand beside the scores of a tile, in its dtype."""
    where = (tile.rows, tile.columns)[direction]
    return values[..., where].to(tile.scores.dtype).unsqueeze(-1 - direction)


def queries_of(tile: Tile, direction: int) -> tuple[slice, int]:
    """Queries of a tile, and the dimension of their candidates."""
    return (tile.rows, tile.columns)[direction], 1 - direction


class Sigmoids:
    """The first pass: sums over the negatives of every positive.

    Args:
        view: the scores.
        temperature: τ, in units of score.
        positives: of each direction.
        far: binary exponent: scores this far below all positives of a query are left out, sigmoids below 2^-far each.
        eps: the kernel notes the negatives whose share, or whose term of Eq. 7, may be above it; None: none.
        exact: the scores are those of float64.
    """

    def __init__(
        self,
        view: View,
        temperature: float,
        positives: list[Positives],
        far: float,
        *,
        eps: float | None = None,
        exact: bool = False,
    ):
        self.view, self.temperature, self.positives, self.eps = view, temperature, positives, eps
        self.far, self.unit = far, temperature * math.log(2)
        nats, most = 1 / temperature, max(len(each.score) for each in positives)
        deep = fused.deep(view, self)
        bound, self.short = view.bound(deep=deep), SHORT if deep and not exact else 0
        size, dot = nats / math.log(2) * view.most * 2, bounds.exact_dot(view.sides[0].matrix.shape[1]) * view.most
        settled = bounds.equal(dot, nats, widest(view, 0))
        if exact or view.product == "float64":
            self.error = settled if exact else bounds.equal(bound, nats, widest(view, 0))
            share = self.error
        else:
            self.error = bounds.sigmoid(bound, nats, size)
            share = bounds.slope(bound, nats, size) + bounds.total(most + 4, 0)
        self.errors = (share, settled)

    def start(self, view: View) -> Found:
        """Sums of zero."""
        return Found([zeros(2, *each.score.shape, dtype=torch.float64, device=view.device) for each in self.positives])

    def see(self, state: Found, tile: Tile) -> None:
        """Add the sigmoids of a tile, one positive of every query at a time."""
        for direction, positives in enumerate(self.positives):
            where, dim = queries_of(tile, direction)
            for k, level in enumerate(beside(tile, direction, positives.score)):
                z = (tile.scores - level) / self.temperature
                above = z.sigmoid()
                state.sums[direction][0, k, where] += above.sum(dim=dim, dtype=torch.float64)
                above *= z.neg_().sigmoid_()
                state.sums[direction][1, k, where] += above.sum(dim=dim, dtype=torch.float64)

    def done(self, state: Found) -> list[Sums]:
        """The sums of each direction."""
        return [self._sums(state, direction) for direction in range(len(self.positives))]

    def _sums(self, state: Found, direction: int) -> Sums:
        above, slope = state.sums[direction]
        number, moved = widest(self.view, direction), min(self.error, 50.0)
        loose = above * math.expm1(bounds.total(self.short, number)) + slope * math.expm1(moved) * math.exp(moved)
        listed = None
        if self.eps is not None and not state.full and state.lists:
            row, column, score, side = (torch.cat(each) for each in zip(*state.lists, strict=True))
            mine = side == direction
            listed = (row[mine].long(), column[mine].long())[:: 1 - 2 * direction] + (score[mine],)
        score = self.positives[direction].score
        lost = bounds.cut(number, self.far) * ((score.amin(dim=0) - score).nan_to_num(-torch.inf) / self.unit).exp2()
        return Sums(above, slope, loose + lost, lost, listed)


class Arguments(fused.Arguments):
    """What the kernel needs for either pass: of every direction the positives, and some numbers of its queries."""

    def __init__(self, reader, view: View, chunk: int):
        super().__init__(reader, view, chunk)
        self._sides = [self.struct.sides[k] for k in view.directions]
        self.struct.set(scale=1 / (reader.temperature * math.log(2)))

    def _set(self, direction: int, level: Tensor, far: float, **fields: Tensor) -> None:
        """Numbers of the queries of a direction, (..., n); more follow that ask nothing."""
        low = level.amin(dim=0) - far * math.log(2) * self.reader.temperature
        padded = {"level": (level.float(), torch.inf), "floor": (bounds.down(low), torch.inf)}
        padded |= {name: (values, 0.0) for name, values in fields.items()}
        for name, (values, beyond) in padded.items():
            more = values.new_full((*values.shape[:-1], fused.PAD), beyond)
            padded[name] = torch.cat([values, more], dim=-1)
        number = level.shape[1]
        self._sides[direction].set(step=number + fused.PAD, line=number, levels=len(level), **padded)


class _First(Arguments):
    name = "sigmoids"

    def __init__(self, reader: Sigmoids, view: View, chunk: int):
        super().__init__(reader, view, chunk)
        for k, each in enumerate(reader.positives):
            self._set(k, each.score, reader.far, rank=each.rank, bar=torch.zeros_like(each.score, dtype=torch.float32))
        columns = len(reader.positives[1].score) if view.two else 0
        listing = reader.eps is not None
        self.struct.set(
            work=torch.zeros(2 * columns, structs.constant("width")),
            give=math.exp(min(reader.error, 50.0) + bounds.total(SHORT, widest(view, 0) + widest(view, 1))),
            least=(reader.eps or 0.0) * math.exp(-reader.errors[0]),
            listing=listing,
        )
        self._lists = fused.Lists(self.struct.list, level=False, room=fused.ROOM if listing else 0)

    def aim(self, state: Found, part: Part) -> None:
        self._state = state
        self.struct.listing = self.reader.eps is not None
        for side, sums in zip(self._sides, state.sums, strict=True):
            side.set(above=sums[0], slope=sums[1])

    def full(self) -> None:
        """Take out what was noted; with too much of it nothing more is."""
        self._state.lists.append(tuple(self._lists.taken().values()))
        if sum(len(rows) for rows, *_ in self._state.lists) > NOTED:
            self._state.full, self._state.lists, self.struct.listing = True, [], False

    def end(self) -> None:
        if self.struct.listing:
            self.full()


Sigmoids.kernel = _First
