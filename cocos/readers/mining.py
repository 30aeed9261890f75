"""Stochastic negative mining: a softmax over the hardest negatives of each query, the last of which counting finds."""

import math

import torch
from torch import Tensor

from cocos import shards, sweep, tiles
from cocos.losses.snm import StochasticNegativeMining
from cocos.readers._brackets import Bracket, Counts, ascending, doubt, guessed
from cocos.readers._exponentials import Exponentials, powers
from cocos.readers._held import held
from cocos.readers._later import Later
from cocos.readers._shares import EQUAL, Counted, counts_of
from cocos.readers.softmax import RECHECKED, Softmax
from cocos.sweep import View

__all__ = ["Mining", "reads"]

NOTED = (2**21, 32)  # negatives in the brackets: in all, and for each query besides
SETTLED = 2**16  # that are put in order at once
SPARE = 64  # of a query besides, where rounding may bring more into its bracket
WIDER = 3  # roundings of a score by which the brackets are made wider before the last pass
SURE = 2  # roundings by which scores of one order in the tiles may have the other one
NARROW = 16  # roundings: a bracket is not made narrower than this
PASSES = 4  # that may go into the brackets
HELD = 2**18  # scores in float64 that are held at once
MAGNITUDE = 2**31 - 1  # all bits of a float32 number save its sign


def reads(loss, eps: float, *, spread: bool, relative: bool) -> "Softmax | None":
    """The reader of stochastic negative mining; None for other losses."""
    if type(loss) is not StochasticNegativeMining:
        return None
    kind = Softmax if loss.fraction == 1 else Mining
    return kind(loss, loss.scale, eps, spread=spread, relative=relative)


def _room(view: View) -> int:
    """How many negatives in the brackets may be noted."""
    return NOTED[0] + NOTED[1] * sum(len(side) for side in view.sides)


def _flipped(bits: Tensor) -> Tensor:
    """Whole numbers in the order of the float32 numbers with these bits, and back."""
    return bits ^ ((bits >> 31) & MAGNITUDE)


def _sorted(query: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and their scores in float32, both ascending.

    One sort of whole numbers, the query above the score, is many times faster than one by two keys.
    """
    key = _flipped(score.view(torch.int32)).long().add_(query.long() << 32)
    key = ascending(key.add_(2**31))
    return key >> 32, _flipped(((key & (2**32 - 1)) - 2**31).int()).view(torch.float32)


class _Kept(Exponentials):
    """Exponentials of the kept negatives: of those above the brackets at once, of those inside when all have been seen.

    Args:
        view: the scores.
        scale: as in `Exponentials`.
        spread: as in `Exponentials`.
        base: as in `Exponentials`.
        offset: as in `Exponentials`.
        brackets: of each direction.
        lost: of each direction, (n,) bool: queries that are left out, as their brackets hold too many.
        patient: as for `Later`.
    """

    def __init__(
        self,
        view: View,
        scale: float,
        *,
        spread: bool,
        base: list[Tensor],
        offset: list[Tensor],
        brackets: list[Bracket],
        lost: list[Tensor],
        patient: bool,
    ):
        super().__init__(view, scale, spread=spread, base=base, offset=offset)
        self.brackets, self.lost = brackets, lost
        self.low, self.high = [], []
        for bracket, out in zip(brackets, lost, strict=True):
            for ends, end, sign in ((self.low, bracket.low, -1), (self.high, bracket.high, 1)):
                wider = torch.where(out, torch.inf, end.double() + sign * doubt(view, end, WIDER)).to(view.dtype)
                ends.append(torch.cat([wider, wider.new_full((tiles.PAD,), torch.inf)]))
        self.over = [torch.zeros(len(end), dtype=torch.int64, device=view.device) for end in self.low]
        self.last = [torch.full_like(bracket.low, -torch.inf).double() for bracket in brackets]  # -inf: all are kept
        self.later = Later(view.device, patient=patient)
        self._notes = [self._none()]  # of each part of the rows
        self._size = 0

    def _none(self) -> list[list[tuple[Tensor, ...]]]:
        """Of each direction, what was noted in a tile: query, other, score."""
        return [[] for _ in self.brackets]

    def _floors(self, tile: Tensor, where: tuple[slice, slice]) -> tuple[Tensor, Tensor | None]:
        return self.high[0][where[0]], self.high[1][where[1]] if self.view.two else None

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile."""
        two, wide = self.view.two, slice(columns.start, columns.start + tile.shape[1])
        row_ends = [ends[0][rows, None] for ends in (self.low, self.high)]
        column_ends = [ends[1][None, wide] if two else None for ends in (self.low, self.high)]
        row_over, column_over = self.later.levels(tile, rows, columns, (*row_ends, None, *column_ends, None))
        self.over[0][rows] += row_over[:, 0]
        if two:
            self.over[1][wide] += column_over[0]
        self._look(every=False)
        super().tile(tile, rows, columns)

    def _look(self, *, every: bool) -> None:
        """Note what the tiles have shown."""
        found = self.later.taken(every=every)
        if found is None:
            return
        row, column, _, side, score = found
        places, score = (row.int(), column.int()), score.float()
        for direction, notes in enumerate(self._notes[-1]):
            mine = (side == direction).nonzero().flatten()
            notes.append((places[direction][mine], places[1 - direction][mine], score[mine]))
        self._size += len(row)
        if self._size > 2 * _room(self.view) + SPARE * sum(len(side) for side in self.view.sides):
            self._drop()

    def _drop(self) -> None:
        """Leave out the queries with far more noted than was counted: many more score just outside their brackets."""
        self._size = 0
        for direction, bracket in enumerate(self.brackets):
            number = torch.zeros_like(bracket.keep)
            for query, _, _ in (chunk for part in self._notes for chunk in part[direction]):
                number += torch.bincount(query, minlength=len(number))
            out = self.lost[direction].logical_or_(number > 2 * bracket.inside + SPARE)
            for ends in (self.low, self.high):
                ends[direction][: len(out)][out] = torch.inf
            for part in self._notes:
                kept = ((~out[chunk[0].long()], chunk) for chunk in part[direction])
                part[direction] = [tuple(each[some] for each in chunk) for some, chunk in kept]
                self._size += sum(len(query) for query, _, _ in part[direction])

    def fold(self) -> None:
        """A part of the rows is done."""
        self._look(every=True)
        super().fold()
        self._notes.append(self._none())

    def merge(self) -> None:
        """Put together what all processes know."""
        super().merge()
        self.later.merge()
        every = shards.gather([*self.over, *self.lost])
        summed = [torch.stack(each).sum(dim=0).to(self.view.device) for each in zip(*every, strict=True)]
        self.over, lost = summed[: len(self.over)], summed[len(self.over) :]
        self.lost = [each > 0 for each in lost]
        self._notes = shards.collect(self._notes[:-1])

    def settle(self, direction: int) -> None:
        """Find the last kept negative of every query, and take in those that were noted and are kept."""
        number = torch.zeros_like(self.brackets[direction].keep)
        for query, _, _ in (chunk for part in self._notes for chunk in part[direction]):
            number += torch.bincount(query.to(number.device), minlength=len(number))
        up_to, start = number.cumsum(0).cpu(), 0
        while start < len(up_to):
            before = up_to[start - 1] if start else 0
            stop = max(start + 1, int(torch.searchsorted(up_to, before + SETTLED, right=True)))
            self._settle(direction, slice(start, stop))
            start = stop
        for part in self._notes:
            part[direction] = []

    def _inside(self, direction: int, where: slice) -> tuple[Tensor, Tensor, Tensor]:
        """The negatives in the brackets of some queries: query, other, score, (P,) each."""
        device, lost, found = self.view.device, self.lost[direction], []
        for chunk in (chunk for part in self._notes for chunk in part[direction]):
            query, other, score = (each.to(device) for each in chunk)
            mine = ((query >= where.start) & (query < where.stop)).nonzero().flatten()
            mine = mine[~lost[query[mine].long()]]
            found.append((query[mine], other[mine], score[mine]))
        return tuple(torch.cat(each) for each in zip(*found, strict=True))

    def _settle(self, direction: int, where: slice) -> None:
        """The same for some queries, so that what is noted of all is not held in order as well."""
        view, bracket, lost = self.view, self.brackets[direction], self.lost[direction]
        query, other, score = self._inside(direction, where)
        of, rising = _sorted(query, score)
        number = torch.bincount(of, minlength=len(lost))
        needed = bracket.keep - self.over[direction][: len(lost)]
        sought = torch.zeros_like(lost)
        sought[where] = (bracket.inside[where] > 0) & ~lost[where]
        found = sought & (needed >= 1) & (needed <= number)
        last = torch.full_like(number, torch.inf, dtype=torch.float32)
        last[found] = rising[(number.cumsum(0) - needed)[found]]
        sure = doubt(view, last, SURE)
        low, high = (ends[direction][: len(lost)] for ends in (self.low, self.high))
        found &= (last - sure >= low) & (last + sure <= high)
        lost |= sought & ~found
        last = torch.where(found, last, torch.inf)
        lower, upper = ((last + sign * sure).float() for sign in (-1, 1))

        above = (rising > upper[of]).nonzero().flatten()
        of, rising = of[above], rising[above].double()
        near = ((score - last[query]).abs() <= 2 * sure.max()).nonzero().flatten()
        its = query[near].long()
        some = (score[near] >= lower[its]) & (score[near] <= upper[its])
        near, its = near[some], its[some]
        exact = self._exact(direction, its, other[near])
        order = exact.argsort(descending=True)
        order = order[its[order].argsort(stable=True)]
        near, its, exact = near[order], its[order], exact[order]
        count = torch.bincount(its, minlength=len(lost))
        turn = torch.arange(len(near), device=view.device) - (count.cumsum(0) - count)[its]
        kept = turn < (needed - torch.bincount(of, minlength=len(lost)))[its]
        near, its, exact = near[kept], its[kept], exact[kept]
        least = torch.full_like(self.last[direction], torch.inf).scatter_reduce(0, its, exact, "amin")
        self.last[direction] = torch.where(found, least, self.last[direction])
        for some, values in ((of, rising), (its, exact)):
            self._add(direction, some, values)

        limit = self.limits(direction)
        beyond = torch.maximum(limit[: len(high)], upper)
        above = (score > beyond[query]).nonzero().flatten() if bool((beyond < high).any()) else near[:0]
        some = torch.cat([above, near[exact > limit[its]]])
        self.survivors[direction].add(query[some], other[some], score[some].to(view.dtype), lambda: limit)

    def _exact(self, direction: int, query: Tensor, other: Tensor) -> Tensor:
        return self.view.exact(*((query, other) if direction == 0 else (other, query)))

    def _add(self, direction: int, query: Tensor, score: Tensor) -> None:
        """Take in some scores, in float64, none of which is above what the tiles have shown."""
        sums = self.sums[direction]
        z = score * self.scale
        if sums.reference is not None:
            z -= sums.reference[query].double()
        mass = powers(z)
        for line, values in enumerate((mass, mass * z, mass.square())[: 3 if self.spread else 1]):
            sums.total[line].index_add_(0, query, values)


class Mining(Softmax):
    """Counts and sums of stochastic negative mining with a fraction below 1.

    A sample of the candidates tells about where the last kept negative of each query scores. Negatives above a few
    scores there are counted, which brackets it, again if need be; then comes the pass of `Softmax`, on the negatives
    above each bracket, which notes those inside. The last one kept is found among them in float64.

    Args:
        loss: with its fraction.
        scale: as in `Softmax`.
        eps: smallest share that contributes.
        spread: the effective number and the participation ratio are wanted.
        relative: as in `Softmax`.
    """

    def begin(self, view: View) -> None:
        """Look at the positives, guess where the last kept negatives are, and make the state."""
        super().begin(view)
        self._known = [[each[: -tiles.PAD] for each in known] for known in (self.state.base, self.state.offset)]
        self.brackets = [Bracket.of(view.negatives(k), self.loss.fraction, view.dtype) for k in view.directions]
        self.passes, self.patient = 0, False
        self._next()

    def _next(self) -> None:
        """Count above some scores if the brackets hold too many negatives, and else take in those above them."""
        view, inside = self.view, [bracket.inside for bracket in self.brackets]
        wide = [bracket.high.double() - bracket.low > doubt(view, bracket.low, NARROW) for bracket in self.brackets]
        self.counts = None
        if self.passes < PASSES and sum(int(n[w].sum()) for n, w in zip(inside, wide, strict=True)) > _room(view):
            self.counts = Counts(view, self._levels())
            self.passes += 1
            return
        every = torch.cat(inside)
        fewest = every.argsort(stable=True)
        lost = torch.empty_like(every, dtype=torch.bool)
        lost[fewest] = every[fewest].cumsum(0) > _room(view)
        self.state = _Kept(
            view,
            self.scale,
            spread=self.spread,
            base=self._known[0],
            offset=self._known[1],
            brackets=self.brackets,
            lost=list(lost.split([len(each) for each in inside])),
            patient=self.patient,
        )

    def _levels(self) -> list[Tensor]:
        """Scores to count above, (n, K) of each direction."""
        view = self.view
        found = [
            bracket.levels(view) if self.passes else guessed(view, direction, bracket)
            for direction, bracket in enumerate(self.brackets)
        ]
        if not view.together:
            return found
        return [each.to(view.device) for each in shards.gather(found)[0]]  # elsewhere the product may round otherwise

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile."""
        (self.counts or self.state).tile(tile, rows, columns)

    def watch(self, block: int, width: int) -> None:
        """Scores are noted, and left out by query: it sees whole tiles."""

    def fold(self) -> None:
        """A part of the rows is done."""
        (self.counts or self.state).fold()

    def merge(self) -> None:
        """Put together what all processes know."""
        (self.counts or self.state).merge()

    def finish(self) -> tuple[dict[str, Tensor], ...]:
        """The statistics of every query, one dict a direction: see `cocos.readers`."""
        while self.counts is not None:
            counted = zip(self.brackets, self.counts.levels, self.counts.count, strict=True)
            self.brackets = [bracket.narrowed(level, count) for bracket, level, count in counted]
            self._next()
            sweep.visit(self.view, [self])
        if self.state.later.short:
            self.patient = True
            self._next()
            sweep.visit(self.view, [self])
        view, state = self.view, self.state
        for direction in view.directions:
            state.settle(direction)
        logarithms = [state.result(k).logarithm() for k in view.directions]
        errors = [state.error(k) for k in view.directions]
        wholes, found = self._weighed(logarithms, errors)
        doubtful = {
            k: places[: len(view.sides[k]) // RECHECKED + 256]
            for k in view.directions
            if len(places := sum(counts[k].uncertain for counts in found).nonzero().flatten())
        }
        if doubtful:
            for k, places in doubtful.items():
                logarithms[k] = logarithms[k].index_copy(0, places, self._exactly(k, places))
                errors[k] = errors[k].index_fill(0, places, EQUAL)
            wholes, found = self._weighed(logarithms, errors)
        return tuple(
            self._whole_result(k, wholes[k], logarithms[k], [counts[k] for counts in found]) for k in view.directions
        )

    def _whole_result(self, direction: int, whole, logarithm: Tensor, found: list[Counted]) -> dict[str, Tensor]:
        """The statistics of every query, of which a few are weighed with all of their scores held."""
        result = self._result(direction, whole, logarithm, found)
        lost = self.state.lost[direction].nonzero().flatten()
        if len(lost):
            again = held(self.view, direction, lost, self.loss, self.eps)
            places = self.view.sides[direction].place[lost]
            for name, values in result.items():
                values[places] = again[name].to(values.dtype)
        return result

    def _weighed(self, logarithms: list[Tensor], errors: list[Tensor]) -> tuple[list, list[list[Counted]]]:
        """Weights and counts of all queries. Where the last kept negative counts for certain, all kept ones do."""
        state, wholes, every, left = self.state, self._wholes(logarithms), [], []
        asked = self._asked(wholes, logarithms, errors)
        for shares in asked:
            certain = []
            for k, (share, logarithm, error) in enumerate(shares):
                excess = (share / self.eps if self.eps else share * torch.inf).log2() - logarithm
                sure = excess + state.last[k] * state.scale > torch.log1p(error) * math.log2(math.e)
                certain.append(sure & (share > 0))
            every.append(certain)
            left.append([(torch.where(c, 0, each[0]), *each[1:]) for c, each in zip(certain, shares, strict=True)])
        found = counts_of(state, left, self.eps, noted=len(left))
        for counts, certain, shares in zip(found, every, asked, strict=True):
            for k, part in enumerate(counts):
                keep, share = self.brackets[k].keep, shares[k][0]
                number = torch.where(certain[k], keep, torch.minimum(part.number, keep))
                mass = torch.where(certain[k], share, torch.minimum(part.mass, share))
                counts[k] = Counted(number, torch.minimum(part.uncertain, keep), mass)
        return wholes, found

    def _exactly(self, direction: int, places: Tensor) -> Tensor:
        """log2 Σ 2^(scale · score) over the kept negatives of some queries, in float64, (places,)."""
        view, state, parts = self.view, self.state, []
        tie = sweep.TIES * max(1.0, view.most)
        for some in places.split(max(1, HELD // len(view.sides[1 - direction]))):
            pairs = view.dense(direction, some)
            last = state.last[direction][some, None]
            above = pairs.negative & (pairs.scores > last + tie)
            ties = (self.brackets[direction].keep[some] - above.sum(dim=1)).clamp(min=0).double()[:, None]
            z = torch.where(above, pairs.scores, -torch.inf)
            z = torch.cat([z * state.scale, last * state.scale + ties.log2()], dim=1) * math.log(2)
            parts.append(z.logsumexp(dim=1) * math.log2(math.e))
        return torch.cat(parts)
