"""Sums of exponentials of the negatives of every query, from tiles, and the few negatives that can matter."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from cocos import shards, tiles
from cocos.sweep import View

__all__ = ["Exponentials", "Sums", "Survivors", "powers"]

NARROW = (90.0, 60.0)  # exponents (base 2) up to which 2^z, and 4^z, need no reference
EMPTY = 2.0**-94  # a sum below it is of none: -inf counts as 2^-126, and no narrow exponent is below -90
EXPONENTIAL = 2e-6  # relative error of a float32 exponential and of float32 sums of 64 of them
MARGIN = 2e-3  # of the exponent: survivors are a little more than those that count
RARELY = 16  # tiles between two looks at what was found, for which the host waits for a GPU
LISTED = 2**16  # found in between, at most
SOME = 2**14  # survivors that are counted at once: so few that torch uses one thread, and rounds as with one
ALIGNED = 64  # numbers: no vector of any processor is longer
FIRST = 2**16  # survivors before they are pruned, and eight a query
SPARE = 464_000  # survivors before they are given up, and eight a query
OFTEN = 4  # tiles between two looks at the limits, once they have grown


def powers(exponents: Tensor) -> Tensor:
    """2 to each of some exponents, (n,), with the same bits wherever it stands among the others.

    torch rounds what is left at the end of an array, and of a thread's part of it, in another way.
    """
    padded = torch.nn.functional.pad(exponents, (0, -len(exponents) % ALIGNED))
    return torch.cat([part.exp2() for part in padded.split(SOME)])[: len(exponents)]


@dataclass(eq=False)
class Sums:
    """Σ 2^z, Σ z 2^z and Σ 4^z with z = scale · score - reference, and the largest score, of each query."""

    total: Tensor  # (3, n) float64
    top: Tensor  # (n,)
    reference: Tensor | None  # (n,), None: 0

    @classmethod
    def empty(cls, number: int, view: View, *, wide: bool) -> "Sums":
        """No negative yet."""
        number += tiles.PAD  # the last tile may be wider than what is left of the columns
        top = torch.full((number,), -torch.inf, dtype=view.dtype, device=view.device)
        total = torch.zeros(3, number, dtype=torch.float64, device=view.device)
        return cls(total, top, torch.full_like(top, -torch.inf) if wide else None)

    def some(self, where: slice) -> "Sums":
        """Those of some queries, not copied."""
        return Sums(self.total[:, where], self.top[where], None if self.reference is None else self.reference[where])

    def parts(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The three fields."""
        return self.total, self.top, self.reference

    def clear(self) -> None:
        """No negative any more."""
        self.total.zero_()
        for each in self.parts()[1:]:
            if each is not None:
                each.fill_(-torch.inf)

    def copy(self) -> "Sums":
        """The same numbers."""
        return Sums(*(None if each is None else each.clone() for each in self.parts()))

    def to(self, device: torch.device) -> "Sums":
        """The same numbers on a device."""
        return Sums(*(None if each is None else each.to(device) for each in self.parts()))

    def raised(self, where: slice, reference: Tensor) -> None:
        """Express the sums by a reference that is at least the old one."""
        old, total = self.reference[where], self.total[:, where]
        down = torch.where(old > -torch.inf, old - reference, 0).double()
        part = down.exp2()
        total[1] = part * (total[1] + down * total[0])
        total[0] *= part
        total[2] *= part.square()
        self.reference[where] = reference

    def fold(self, other: "Sums") -> None:
        """Take in the sums of other negatives, whatever their reference."""
        every = slice(0, len(self.top))
        if self.reference is not None:
            both = torch.maximum(self.reference, other.reference)
            self.raised(every, both)
            other.raised(every, both)
        self.total += other.total
        torch.maximum(self.top, other.top, out=self.top)

    def logarithm(self) -> Tensor:
        """Binary logarithm of Σ 2^(scale · score), (n,) float64; -inf without a negative."""
        found = self.total[0].log2()
        found = found if self.reference is None else found + self.reference
        return torch.where(self.total[0] > EMPTY, found, -torch.inf)

    def numbers(self) -> tuple[Tensor, Tensor]:
        """Effective number (exp of the entropy) and participation ratio of the exponentials, (n,) each, or 0."""
        some = self.total[0] > EMPTY
        first, second, third = (torch.where(some, each, 1) for each in self.total)
        effective = (first.log2() - second / first).exp2()
        return tuple(torch.where(some, each, 0) for each in (effective, first.square() / third))


@dataclass(eq=False)
class Survivors:
    """Negatives above a limit of their query that only grows: (query, other, score) in chunks, pruned in between."""

    number: int
    chunks: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    size: int = 0
    pruned: int = 0  # their number after the last look at the limits
    spilled: bool = False  # there are too many: they are counted in a second pass

    def add(self, query: Tensor, other: Tensor, score: Tensor, limit: Callable[[], Tensor]) -> None:
        """Take in some of them.

        Args:
            query: (found,) places of queries.
            other: (found,) places of candidates.
            score: (found,).
            limit: gives the limits of all queries as they are now.
        """
        if self.spilled or not len(query):
            return
        self.chunks.append((query, other, score))
        self.size += len(query)
        most = 8 * self.number + SPARE
        if self.size > min(most, max(8 * self.number + FIRST, 2 * self.pruned)):
            limits = limit()
            self._keep(lambda query, score: score > limits[query.long()])
            self.pruned = self.size
            if self.size > most - most // 32:
                self.spill()

    def spill(self) -> None:
        """Drop them all."""
        self.spilled, self.chunks, self.size = True, [], 0

    def merge(self) -> None:
        """Put together those of all processes, in the order in which one would have met them."""
        query, other, score = self.all()
        every = shards.gather((self.spilled, query.cpu(), other.cpu(), score.cpu()))
        self.spilled = any(each[0] for each in every)
        parts = (torch.cat(each).to(score.device) for each in zip(*(each[1:] for each in every), strict=True))
        query, other, score = (part[:0] if self.spilled else part for part in parts)
        order = other.argsort(stable=True)
        order = order[query[order].argsort(stable=True)]
        self.chunks, self.size = [(query[order], other[order], score[order])], len(order)

    def above(self, floor: float) -> None:
        """Keep those with a score above a floor."""
        self._keep(lambda query, score: score > floor)

    def _keep(self, kept: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Drop the others, chunk by chunk, so that they are never held twice."""
        for k, (query, other, score) in enumerate(self.chunks):
            some = kept(query, score).nonzero().flatten()
            self.chunks[k] = (query[some], other[some], score[some])
        self.size = sum(len(query) for query, _, _ in self.chunks)

    def some(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """All of them, in their order, (at most `SOME`,) each at a time."""
        few, size = [], 0
        for chunk in self.chunks:
            few.append(chunk)
            size += len(chunk[0])
            if size >= SOME:
                yield from zip(*(torch.cat(each).split(SOME) for each in zip(*few, strict=True)), strict=True)
                few, size = [], 0
        if size:
            yield tuple(torch.cat(each) for each in zip(*few, strict=True))

    def all(self) -> tuple[Tensor, Tensor, Tensor]:
        """All of them, (found,) each."""
        if not self.chunks:
            none = torch.empty(0, dtype=torch.int32)
            return none, none, torch.empty(0)
        return tuple(torch.cat(each) for each in zip(*self.chunks, strict=True))


class Exponentials:
    """State of a reader that sums exponentials: one `Sums` for each direction, and the survivors of each.

    Args:
        view: the scores.
        scale: of the exponent, in nats: Σ exp(scale · score).
        spread: entropy and participation are wanted.
        base: of each direction, an exponent (base 2), (n,): what stands in the denominator besides the negatives.
        offset: of each direction, an exponent, (n,): a negative may count whose exponent is above that of the
            denominator by more. For sums of part of the negatives it must not be too high.
        floor: scores at or below are left out, one number for all.
    """

    fixed = False  # limits do not follow from the sums of each query

    def __init__(
        self,
        view: View,
        scale: float,
        *,
        spread: bool,
        base: list[Tensor],
        offset: list[Tensor],
        floor: float | None = None,
    ):
        self.view, self.scale, self.spread = view, scale * math.log2(math.e), spread
        self.wide = abs(self.scale) * view.most > NARROW[spread]
        self.floor = floor
        self.inside: dict[int, tuple[Tensor, Tensor]] = {}  # of spilled directions, kept at or below the floor
        self.sums = [Sums.empty(len(view.sides[k]), view, wide=self.wide) for k in view.directions]
        self._survivors = [Survivors(len(view.sides[k])) for k in view.directions]
        unused = torch.zeros(tiles.PAD, dtype=torch.float64, device=view.device)
        self.base, self.offset = ([torch.cat([each, unused]) for each in known] for known in (base, offset))
        self._limits = [sums.top.clone() for sums in self.sums]
        self._room = 0.0 if view.distances else view.slack() + MARGIN / self.scale
        self._others = [each.exp2() for each in self.base]
        self._part = self._new_part()
        self._parts: list[Sums] = []
        self._seen, self._listed = [], 0
        self._visits: dict[tuple[int, int], int] = {}

    def _new_part(self) -> Sums | None:
        part = Sums.empty(len(self.view.sides[1]), self.view, wide=self.wide) if self.view.two else None
        states = [(self.sums[0], None), (part, self.sums[-1].total[0])][: len(self.sums)]
        owners = [
            tiles.Owners(sums.total, sums.top, self._others[k], self.offset[k], self._limits[k], known)
            for k, (sums, known) in enumerate(states)
        ]
        self._owners = (owners[0], owners[1] if self.view.two else None)
        return part

    def result(self, direction: int) -> Sums:
        """What was found, (n,) each."""
        return self.sums[direction].some(slice(0, len(self.view.sides[direction])))

    def error(self, direction: int) -> Tensor:
        """Relative error that the sum of each query may have, from the rounding of scores and sums, (n,)."""
        top, nats = self.result(direction).top.double(), self.scale / math.log2(math.e)
        if not self.view.distances:
            return torch.full_like(top, math.expm1(min(700.0, self.view.slack() * nats)) + EXPONENTIAL)
        slack = self.view.slack(torch.where(top > -torch.inf, top, 1.0)) + torch.zeros_like(top)
        return torch.expm1(slack * nats) + EXPONENTIAL

    @cached_property
    def worst(self) -> float:
        """No exponential of a score of the tiles has a larger relative error."""
        view = self.view
        slack = view.square**0.5 if view.metric == "euclidean" else view.slack()
        return math.expm1(min(700.0, slack * self.scale / math.log2(math.e))) + EXPONENTIAL

    def score_error(self, score: Tensor) -> Tensor:
        """Relative error of the exponential of one score of the tiles."""
        slack = self.view.slack(score) + torch.zeros_like(score, dtype=torch.float64)
        return torch.expm1(slack * self.scale / math.log2(math.e)) + EXPONENTIAL

    def watch(self, block: int, width: int) -> list["_Watch"] | None:
        """What sees the scores inside the kernel; None where the exponents need references."""
        return None if self.wide else [_Watch(self, block)]

    def renew(self) -> None:
        """Between two strips: what they hang on may be looked at again."""

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile."""
        wide = slice(columns.start, columns.start + tile.shape[1])
        where = (rows, wide)
        fresh = tuple(self._due(k, where[k].start) for k in self.view.directions)
        floors = self._floors(tile, where)
        if self.wide or self.view.distances:
            tops = self._shifted(tile, where, floors)
            for k in self.view.directions:
                if fresh[k]:
                    self._limits[k][where[k]] = self._scores(k, where[k])
        else:
            tops = self._narrow(tile, where, fresh, floors)
        limits = [self._limits[k][where[k]] for k in self.view.directions]
        if floors is not None:
            limits = [torch.maximum(*each) for each in zip(limits, floors, strict=False)]
        second = limits[1] if self.view.two else None
        found = tiles.above(tile, limits[0], tops[0], second, tops[1], (rows.start, columns.start), fixed=True)
        self._take([found])

    def _take(self, found: list[tuple[Tensor, ...]]) -> None:
        """Some more that may count."""
        if all(survivors.spilled for survivors in self._survivors):
            return
        self._seen += found
        self._listed += sum(len(each[0]) for each in found)
        if len(self._seen) >= RARELY or (self._listed > LISTED and not tiles.ahead(self.view.device)):
            self._note()

    def _floors(self, tile: Tensor, where: tuple[slice, slice]) -> tuple[Tensor, Tensor | None] | None:
        """Scores of the rows and columns of a tile at or below which they are left out; None: none is."""
        if self.floor is None:
            return None
        return tuple(torch.full((n,), self.floor, dtype=tile.dtype, device=tile.device) for n in tile.shape)

    def _due(self, direction: int, start: int) -> bool:
        """Whether some queries get new limits with this tile."""
        visit = self._visits.get((direction, start), 0)
        self._visits[direction, start] = visit + 1
        return not self._survivors[direction].spilled and (visit < OFTEN or visit % OFTEN == 0)

    def _narrow(self, tile: Tensor, where: tuple[slice, slice], fresh: tuple[bool, ...], floors) -> tuple:
        """Sums without references, and limits, where they go."""
        first, second = self._owners
        both = (fresh[0], fresh[-1] and self.view.two)
        start = (where[0].start, second, where[1].start)
        return tiles.exponentials(tile, first, *start, self.scale, self._room, both, floors, spread=self.spread)

    def _shifted(self, tile: Tensor, where: tuple[slice, slice], floors) -> tuple:
        """Sums with references that rise with the largest score; for distances, whose error hangs on them, as well."""
        states = [(self.sums[0], where[0]), (self._part, where[1])][: len(self.sums)]
        references = None
        if self.wide:
            for (sums, place), top in zip(states, tiles.tops(tile, self.view.two), strict=False):
                sums.raised(place, torch.maximum(sums.reference[place], (top * self.scale).ceil()))
            found = [torch.where(ref > -torch.inf, ref, 0) for ref in (sums.reference[place] for sums, place in states)]
            references = (found[0], found[1] if self.view.two else None)
        totals = [sums.total[:, place] for sums, place in states]
        both = totals if self.view.two else (*totals, None)
        tops = tiles.sums(tile, self.scale, *both, references, floors, spread=self.spread)
        for (sums, place), top in zip(states, tops, strict=False):
            torch.maximum(sums.top[place], top, out=sums.top[place])
        return tops

    @property
    def survivors(self) -> list[Survivors]:
        """Of each direction, what may count."""
        self._note()
        return self._survivors

    def _note(self) -> None:
        """Keep what may count of the last tiles, for the direction that it may count in."""
        seen = self._seen
        self._seen, self._listed = [], 0
        if not seen:
            return
        if tiles.ahead(self.view.device) and bool(torch.stack([found[3][-1] for found in seen]).any()):
            for survivors in self._survivors:  # a list of fixed length was too short
                survivors.spill()
        whole = [torch.cat(each) if len(each) > 1 else each[0] for each in zip(*seen, strict=True)]
        for row, column, score, sign in zip(*(each.split(LISTED) for each in whole), strict=True):
            for direction, (query, other) in enumerate(((row, column), (column, row))[: len(self.sums)]):
                if self._survivors[direction].spilled:
                    continue
                mine = (sign & (1 << direction)).nonzero().flatten()
                if len(mine):
                    self._survivors[direction].add(
                        query[mine], other[mine], score[mine], lambda k=direction: self.limits(k)
                    )
        for survivors, limits in zip(self._survivors, self._limits, strict=True):
            if survivors.spilled:
                limits.fill_(torch.inf)

    def _scores(self, direction: int, where: slice) -> Tensor:
        """Scores above which a negative may count, of some queries, from what is known of the sums."""
        score = (self._denominator(direction, where) + self.offset[direction][where] - MARGIN) / self.scale
        return (score - (self.view.slack(score) + 1e-6 * score.abs())).to(self.view.dtype)

    def _denominator(self, direction: int, where: slice) -> Tensor:
        """Exponent of the denominators of some queries, as far as it is known."""
        known = [self.sums[direction], self._part][: 1 + direction]
        if not self.wide:
            return sum((each.total[0, where] for each in known), self._others[direction][where]).log2()
        total = self.base[direction][where]
        for each in known:
            total = torch.logaddexp2(total, each.some(where).logarithm())
        return total

    def limits(self, direction: int) -> Tensor:
        """Scores above which a negative may count, of all queries, as they are known now."""
        every = slice(0, self.sums[direction].total.shape[1])
        self._limits[direction].copy_(self._scores(direction, every))
        return self._limits[direction]

    def fold(self) -> None:
        """A part of the rows is done."""
        if self._part is not None:
            if self.view.together:
                self._parts.append(self._part.copy())
            self.sums[1].fold(self._part)
            self._part.clear()

    def merge(self) -> None:
        """Put together what all processes know: the sums in the order of one process, so that they are the same."""
        number = [len(sums.top) - tiles.PAD for sums in self.sums]
        found = [[Sums(*each) for each in shards.gather(self.sums[0].parts())]]
        if self.view.two:
            found.append([Sums(*each) for each in shards.collect([part.parts() for part in self._parts])])
        for direction, parts in enumerate(found):
            self.sums[direction] = Sums.empty(number[direction], self.view, wide=self.wide)
            for part in parts:
                self.sums[direction].fold(part.to(self.view.device))
        for survivors in self.survivors:
            survivors.merge()
        self._part = self._new_part()


class _Watch:
    """See `cocos.tiles.fused.Watch`."""

    kind = tiles.fused.Exponentials.kind

    def __init__(self, state: Exponentials, block: int):
        view, self.state = state.view, state
        slack = (0.0 if view.metric == "euclidean" else view.slack()) + MARGIN / state.scale
        self._seen = tiles.fused.Exponentials(
            block,
            two=view.two,
            scale=state.scale,
            slack=slack,
            square=view.square if view.metric == "euclidean" else 0.0,
            floors=state.floor,
            spread=state.spread,
        )
        self.address, self._alone = self._seen.address, torch.get_num_threads() == 1
        state.renew()

    def drain(self) -> None:
        if self._alone:  # at once, as a strip may hold more than there is memory for
            self.state._take([self._seen.taken()])
            self.state._note()
        else:
            self._seen.drain()

    def aim(self, rows: slice, columns: slice) -> None:
        state, strip = self.state, rows.start // tiles.fused.strip()
        free = [not state.fixed and not survivors.spilled for survivors in state._survivors]
        fresh = free[0], free[-1] and self._seen.two and (strip < OFTEN or strip % OFTEN == 0)
        self._seen.aim(rows, columns, state._owners, fresh, given=not free[-1])

    def settle(self) -> None:
        self.state._take(self._seen.settle())
        self.state.renew()

    def close(self) -> None:
        self.state._take(self._seen.close())
