r"""Sums of exponentials of the negatives of each query, and counts of the negatives with a share above eps.

A share above eps is a score above a threshold of its query, which is known once the sum over its negatives is. So a
tile that has all scores of its queries is read twice: for the sums, and for the numbers above the thresholds. In a
larger batch, a sum of exponentials only grows: a negative with a share of the whole sum above eps has such a share of
the partial sum. Only scores above the threshold of the partial sum are therefore listed, and compared in the end; if
they are too many, a second pass counts. Queries with a negative so close to its threshold that rounding leaves the side
open are in doubt, and are to be recounted in float64 (`rows`).
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.engine import bounds
from cocos.engine.tiles import Part, Tally, Tile, zeros
from cocos.engine.view import View

# log2(e), which turns nats into exponents of two.
LOG2E = math.log2(math.e)
# Largest |exponent| for which powers and their squares are summed in float32 without a reference.
NARROW_EXPONENTS = 60.0
# Float32 additions before float64 takes over: 256 columns in vectors of at least four, or 64 rows (tile.c).
FLOAT32_ADDITIONS = 80
# Maximum number of listed negatives: 26 MiB.
MAX_LISTED = 2**21
# Factor by which exponents stay below the largest number of their dtype, so that sums of a few of them do too.
EXPONENT_ROOM = 2.0**24

# Weighs the queries start to stop of a direction, given log2 of the sums over their negatives, (n,): (5, n) float64,
# the total shares of negatives and positives, push, pull, and number of pushed positives.
Weigh = Callable[[int, int, int, Tensor], Tensor]


@dataclass(eq=False)
class _State:
    """Sums of a part.

    Args:
        tally: of each direction.
        reference: of each direction, (n,) integer exponents.
        listed: row, column, score and side of listed negatives, see `counted`; None: there were too many.
        cut: whether a batch was larger than a tile.
    """

    tally: Tally
    reference: list[Tensor]
    listed: list[tuple[Tensor, ...]] | None
    cut: bool = False

    def merge(self, other: "_State", part: Part) -> None:
        """Add the sums of another part, relative to the larger references."""
        for k, where in enumerate((part.rows, part.columns)[: len(self.reference)]):
            both = torch.maximum(self.reference[k][where], other.reference[k][where])
            for state in (self, other):
                state.raise_reference(k, where, both)
        self.tally.merge(other.tally, part)
        self.cut |= other.cut
        self.listed = None if self.listed is None or other.listed is None else self.listed + other.listed
        if self.listed and sum(len(score) for _, _, score, _ in self.listed) > MAX_LISTED:
            self.listed = None

    def raise_reference(self, k: int, where: slice, reference: Tensor) -> None:
        """Express the sums of some queries relative to larger references."""
        away = (self.reference[k][where] - reference).double()
        total = self.tally.sums[k]["total"][:, where]
        power = away.exp2()
        total[1].add_(away * total[0]).mul_(power)
        total[0].mul_(power)
        total[2].mul_(power.square())
        self.reference[k][where] = reference


class ExponentialSums:
    """Sum the exponentials of the negatives of every query, and count the negatives whose share exceeds eps.

    Args:
        view: the scores.
        scale: λ of Σ exp(λ score).
        eps: smallest share that counts.
        weigh: total shares, given the sums; None: only sum.
        largest: for each direction, (n,) largest possible total share of the negatives.

    `done` returns `Sums`.

    Attributes:
        wide: whether powers are summed relative to powers of two, of which `lowest` is the first exponent.
        lists: whether the scores of large batches are listed.

    Raises:
        InputError: λ times the largest score leaves the range of the dtype of the tiles.
    """

    def __init__(
        self, view: View, scale: float, eps: float = 0.0, weigh: Weigh | None = None, largest: Sequence[Tensor] = ()
    ):
        self.view, self.nats, self.scale, self.eps, self.weigh = view, scale, scale * LOG2E, eps, weigh
        self.size, self.lists = self.scale * view.most, True
        if not self.size < torch.finfo(view.dtype).max / EXPONENT_ROOM:
            dtype = str(view.dtype).removeprefix("torch.")
            raise InputError(
                f"exponents leave the range of {dtype}: a scale of {scale:.3g} times scores of up to {view.most:.3g}; "
                "take a scale or temperature nearer to 1"
            )
        self.wide = self.size > NARROW_EXPONENTS
        self.lowest = -float(math.ceil(self.size)) if self.wide else 0.0
        number = max(len(side) for side in view.sides)
        # Logarithmic error of a sum over exact scores, in nats.
        self.added = bounds.equal(0.0, scale, number)
        if view.dtype == torch.float32:
            masked = bounds.clamped(number, -1.0 if self.wide else -self.size)
            self.added = bounds.log_sum(0.0, scale, self.size, FLOAT32_ADDITIONS, number) + masked
        self.offset = [(math.log2(eps) if eps else math.inf) - share.log2() for share in largest]
        # Amount by which thresholds of partial sums are lowered, so that none exceeds the final one, in units of score:
        # the errors of both sums, and of a score.
        nearest = torch.zeros(1, dtype=view.dtype, device=view.device)
        bound = torch.as_tensor(view.bound(nearest.double()))
        self.slack = 4 * float(self.error(nearest)) / self.nats + 2 * float(bound)

    def error(self, top: Tensor) -> Tensor:
        """Bound the logarithmic error, in nats, of sums over scores of the tiles that do not exceed `top`, (n,)."""
        bound = self.nats * self.view.bound(top.double()) + torch.zeros_like(top, dtype=torch.float64)
        if self.view.dtype == torch.float64:
            bound = (2 * bound).clamp(max=700.0).expm1()
        return bound + self.added

    def start(self, view: View) -> _State:
        """Return an empty state."""
        sums, largest, reference = [], [], []
        for k in view.directions:
            n, options = len(view.sides[k]), {"dtype": torch.float64, "device": view.device}
            sums.append({"total": zeros(3, n, **options), "weighed": zeros(5, n, **options)})
            sums[k] |= _zero_counts(n, view.device)
            largest.append({"top": torch.full((n,), -torch.inf, dtype=view.dtype, device=view.device)})
            reference.append(torch.full_like(largest[k]["top"], self.lowest))
        return _State(Tally(sums, largest), reference, [] if self.lists else None)

    def see(self, state: _State, tile: Tile) -> None:
        """Add one tile, and count in it, or list the scores that may count."""
        tops = [largest["top"][where] for largest, where in zip(state.tally.largest, tile.places, strict=True)]
        tile.functions.tops(tile.scores, tops)
        if self.wide:
            for k, where in enumerate(tile.places):
                state.raise_reference(k, where, torch.maximum(state.reference[k][where], self.exponent(tops[k])))
        reference = [values[where] for values, where in zip(state.reference, tile.places, strict=True)]
        total = [sums["total"][:, where] for sums, where in zip(state.tally.sums, tile.places, strict=True)]
        self.add(tile, reference, total)
        if self.weigh is None or self.eps == 0:
            return
        if not tile.whole:
            state.cut = True
            return self._list(state, tile)
        ends, number, mass = [], [], []
        for k, where in enumerate(tile.places):
            sums, log2 = state.tally.sums[k], _log2(total[k], reference[k], tops[k])
            sums["weighed"][:, where] = self.weigh(k, where.start, where.stop, log2)
            ends.append(self.ends(sums["weighed"][0, where], log2, self.error(tops[k])))
            number.append(sums["number"][:, where])
            mass.append(sums["mass"][where])
        self.count(tile, reference, ends, number, mass)

    def exponent(self, top: Tensor) -> Tensor:
        """Exponents of two relative to which powers are summed, given the largest scores."""
        return (top * self.scale).ceil()

    def add(self, tile: Tile, reference: list[Tensor], total: list[Tensor]) -> None:
        """Add a tile to the sums of its lines."""
        tile.functions.sums(tile.scores, self.scale, reference, total, apart=self.wide)

    def count(self, tile: Tile, reference: list[Tensor], ends: list[Tensor], number: list[Tensor], mass: list[Tensor]):
        """Count the scores of a tile above the ends of its lines."""
        tile.functions.shares(tile.scores, self.scale, reference, ends, number, mass, apart=self.wide)

    def ends(self, share: Tensor, log2: Tensor, error: Tensor) -> Tensor:
        """Scores above which a share is certainly, or perhaps, above eps; likewise for a part of the push: (4, n).

        Args:
            share: (n,) total share of the negatives of each query.
            log2: (n,) log2 of the sums over the negatives.
            error: (n,) logarithmic error of the sums, in nats.
        """
        ends = []
        for all_negatives in (share, (share > 0).double()):
            level = (log2 + math.log2(self.eps) - all_negatives.log2()) / self.scale
            level = torch.where(all_negatives > 0, level, torch.inf)
            ends += bounds.outward(level, error / self.nats + self.view.bound(level), self.view.dtype)[::-1]
        return torch.stack(ends)

    def _list(self, state: _State, tile: Tile) -> None:
        """List the scores of a tile above the thresholds of the partial sums."""
        if state.listed is None:
            return
        limits = []
        for k, where in enumerate(tile.places):
            log2 = state.tally.sums[k]["total"][0, where].log2() + state.reference[k][where]
            limits.append(bounds.lowered((log2 + self.offset[k][where]) / self.scale - self.slack, self.view.dtype))
        none = [torch.full_like(limit, torch.inf) for limit in limits]
        number = [torch.zeros_like(limit, dtype=torch.int64) for limit in limits]
        listed = tile.functions.counted(tile.scores, limits, none, number, 2 * tile.scores.numel())
        if listed is not None and len(listed[0]):
            row, column, score, side = listed
            state.listed.append((row + tile.rows.start, column + tile.columns.start, score, side))
            if sum(len(score) for _, _, score, _ in state.listed) > MAX_LISTED:
                state.listed = None

    def done(self, state: _State) -> "Sums":
        """Return the sums and counts of all parts."""
        return Sums(self, state)


class ShareCounts:
    """Count the negatives above known thresholds, in a pass of its own.

    Args:
        sums: of the negatives.
        ends: for each direction, see `ExponentialSums.ends`.

    `done` puts `number` and `mass` into the sums.
    """

    def __init__(self, sums: "Sums", ends: Sequence[Tensor]):
        self.sums, self.all_ends = sums, ends

    def start(self, view: View) -> Tally:
        """Return zero counts."""
        sizes = [len(view.sides[k]) for k in view.directions]
        return Tally([_zero_counts(n, view.device) for n in sizes])

    def see(self, state: Tally, tile: Tile) -> None:
        """Add one tile."""
        reader, places = self.sums.reader, tile.places
        reference = [values[where] for values, where in zip(self.sums.reference, places, strict=True)]
        ends = [values[:, where] for values, where in zip(self.all_ends, places, strict=True)]
        number = [sums["number"][:, where] for sums, where in zip(state.sums, places, strict=True)]
        mass = [sums["mass"][where] for sums, where in zip(state.sums, places, strict=True)]
        reader.count(tile, reference, ends, number, mass)

    def done(self, state: Tally) -> "Sums":
        """Return the sums, with the counts."""
        self.sums.number = [sums["number"] for sums in state.sums]
        self.sums.mass = [sums["mass"] for sums in state.sums]
        return self.sums


def _log2(total: Tensor, reference: Tensor, top: Tensor) -> Tensor:
    """log2 of the sums of some queries, (n,) float64; -inf without a negative."""
    return torch.where(top > -torch.inf, total[0].log2() + reference, -torch.inf)


def _zero_counts(number: int, device: torch.device) -> dict[str, Tensor]:
    return {
        "number": zeros(4, number, dtype=torch.int32, device=device),
        "mass": zeros(number, dtype=torch.float64, device=device),
    }


class Sums:
    """Sums and counts of every query; the attributes are lists over the directions, in visiting order."""

    def __init__(self, reader: ExponentialSums, state: _State):
        self.reader, tally = reader, state.tally
        self.total = [sums["total"] for sums in tally.sums]
        self.top = [largest["top"] for largest in tally.largest]  # (n,) largest score
        self.error = [reader.error(top) for top in self.top]  # (n,) logarithmic error of the sum, in nats
        self.reference = state.reference
        self.log2 = [_log2(*values) for values in zip(self.total, self.reference, self.top, strict=True)]
        self.weighed = [sums["weighed"] for sums in tally.sums]
        self.number = [sums["number"] for sums in tally.sums]  # (4, n) above `ends`
        self.mass = [sums["mass"] for sums in tally.sums]  # (n,) Σ 2^(exponent - reference) above the first end
        self.listed, self.cut = state.listed, state.cut

    def share_above(self, k: int) -> Tensor:
        """Total share of the counted negatives of each query, (n,)."""
        share = self.weighed[k][0]
        return torch.where(share > 0, share * (self.mass[k] / self.total[k][0]), 0)

    def doubt(self, k: int, *, relative: bool) -> Tensor:
        """Places of the queries with a score between two ends, (P,)."""
        number = self.number[k]
        return ((number[1] > number[0]) | (relative & (number[3] > number[2]))).nonzero().flatten()

    def effective(self, k: int) -> Tensor:
        """Effective number of negatives: exp of the entropy of their shares of the sum, (n,); 0 without any."""
        total = self.total[k]
        return torch.where(self.top[k] > -torch.inf, (total[0].log2() - total[1] / total[0]).exp2(), 0)

    def participation(self, k: int) -> Tensor:
        """Participation ratio of the negatives, 1 / Σ share², (n,); 0 without any."""
        return torch.where(self.top[k] > -torch.inf, self.total[k][0].square() / self.total[k][2], 0)


def sum_and_count(reader: ExponentialSums) -> Generator[Any, Any, Sums]:
    """Sum, weigh and count; with a second pass if the negatives of large batches were too many to list."""
    view, eps = reader.view, reader.eps
    sums: Sums = yield reader
    if eps and not sums.cut:
        return sums
    ends = []
    for k in view.directions:
        sums.weighed[k] = reader.weigh(k, 0, len(view.sides[k]), sums.log2[k])
        if eps:
            ends.append(reader.ends(sums.weighed[k][0], sums.log2[k], sums.error[k]))
    if ends and sums.listed is None:
        return (yield ShareCounts(sums, ends))
    for *pair, score, side in sums.listed if ends else ():
        for k, end in enumerate(ends):
            listing = (side >> k & 1).nonzero().flatten()
            query, scores = pair[k][listing].long(), score[listing]
            for number, limit in zip(sums.number[k], end, strict=True):
                number.index_add_(0, query, (scores > limit[query]).int())
            power = (scores.double() * reader.scale - sums.reference[k][query]).exp2()
            sums.mass[k].index_add_(0, query, torch.where(scores > end[0, query], power, 0))
    return sums  # noqa: B901 - the value of `yield from`
