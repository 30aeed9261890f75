"""SmoothAP: the block of positives by candidates alone, and a sigmoid for each pair that is near enough to matter."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from cocos import shards, sweep, tiles
from cocos.losses.smoothap import SmoothAP
from cocos.readers._held import held, weighed
from cocos.readers._later import Later
from cocos.readers._levels import Levels
from cocos.readers._shares import EQUAL
from cocos.sweep import View

__all__ = ["Sigmoids", "reads"]

FAR = 30.0  # binary exponent below which a sigmoid is left out
LEAST = 1e-9  # with an eps below it (2^-FAR) a pair that is left out may count: rows of scores are held instead
ROUNDED = 1e-6  # relative error of a float32 sigmoid and of float32 sums of 64 of them
SLACK = 0.99  # survivors are a little more than those that count
OFTEN = 4  # strips between two looks at the bands of the candidates, after so many
ALIKE = 2**17  # pairs of positives that are looked at side by side
RECHECKED = 64  # one query in so many, and some more, may be weighed again in float64


def reads(loss, eps: float, *, spread: bool, relative: bool) -> "Sigmoids | None":
    """The reader of SmoothAP; None for other losses."""
    return Sigmoids(loss, eps) if type(loss) is SmoothAP else None


class Sigmoids:
    """Counts of SmoothAP by its gradient and by Eq. 7.

    With g = σ (1 - σ), a negative's share is Σ_k A_k / B_k² g_k, where A is the smooth rank of positive k among the
    positives, and B its rank among all. B only grows, so the scores that can still count lie in a band about the
    positive that only shrinks. What describes how the push is spread needs B first, and so is not known from one pass.

    Args:
        loss: with its temperature.
        eps: smallest share, and smallest term of Eq. 7, that counts.
    """

    def __init__(self, loss: SmoothAP, eps: float):
        self.loss, self.eps, self.temperature = loss, eps, loss.temperature

    def begin(self, view: View) -> None:
        """Look at the positives, and make the state."""
        self.view, self.scale = view, math.log2(math.e) / self.temperature
        self.give = math.exp(min(50.0, view.slack() / self.temperature))  # by which rounding may change a sigmoid
        self.fits = Levels.fits(view) and self.eps > LEAST
        if not self.fits:
            return
        self.score, self.there, self.rank = [], [], []
        for direction in view.directions:
            number = view.counted(direction)
            most = max(1, int(number.max()))
            score = torch.full((len(number), most), torch.inf, dtype=torch.float64, device=view.device)
            for start, stop in view.chunks(direction):
                query, _, found = view.scored(direction, start, stop)
                some = number[start:stop]
                slot = torch.arange(len(query), device=view.device) - (some.cumsum(0) - some)[query]
                score[query + start, slot] = found
            there = score < torch.inf
            rank = torch.where(there, 0.5, 0).double()
            for some in self._some(score):
                above = self._sigmoid(score[:, some, None] - score[:, None])
                rank += torch.where(there[:, some, None] & there[:, None], above, 0).sum(dim=1)
            self.score.append(score)
            self.there.append(there)
            self.rank.append(rank)
        self._start(patient=False)

    def _start(self, *, patient: bool) -> None:
        self.later, self.lists = Later(self.view.device, patient=patient), [[] for _ in self.score]
        self.above = [torch.zeros_like(score) for score in self.score]
        self.slope = [torch.zeros_like(score) for score in self.score]
        self.part = [torch.zeros_like(self.score[-1]) for _ in range(2)]  # of the columns, in this part of the rows
        self.parts: list[list[Tensor]] = []

    @staticmethod
    def _some(score: Tensor) -> Iterator[slice]:
        """Positives of all queries, (n, K), so many at once that they fit in memory with all others beside them."""
        step = max(1, ALIKE // score.numel())
        return (slice(k, k + step) for k in range(0, score.shape[1], step))

    def _sigmoid(self, difference: Tensor) -> Tensor:
        return (difference.nan_to_num(0.0, 0.0, 0.0) / self.temperature).sigmoid()

    def _slope(self, difference: Tensor) -> Tensor:
        """σ (1 - σ), right for a σ that rounds to 1 too."""
        return self._sigmoid(difference) * self._sigmoid(-difference)

    def _padded(self, values: Tensor, columns: slice, width: int) -> Tensor:
        found = values.new_full((values.shape[1], width), torch.inf)
        found[:, : columns.stop - columns.start] = values[columns].T
        return found

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile."""
        if not self.fits:
            return
        two, width, dtype = self.view.two, tile.shape[1], self.view.dtype
        level = self.score[0][rows].to(dtype).contiguous()
        other = self._padded(self.score[1].to(dtype), columns, width) if two else None
        row, column = tiles.sigmoids(tile, self.scale, FAR / self.scale, level, other)
        states = [(0, rows, row, columns.stop)]
        if two:
            there = columns.stop - columns.start
            states.append((1, columns, tuple(part[:, :there].T for part in column), there))
        bands, flagged = [], False
        for direction, where, (above, slope, steepest), _ in states:
            totals = (self.above[0], self.slope[0]) if direction == 0 else self.part
            totals[0][where] += above
            totals[1][where] += slope
            band = self._band(direction, where, steepest)
            bands.append(band)
            flagged = flagged or self.later.fixed or bool((band > 0).any())
        if not flagged:
            return
        ends = []
        for direction, where, _, _ in states:
            score, band = self.score[direction][where], bands[direction]
            width_ = torch.where(band > 0, band + self.view.slack() + 2e-7 * score.abs(), 0)
            ends.append([torch.where(band > 0, score + sign * width_, torch.inf).to(dtype) for sign in (-1, 1)])
        row_top, column_top = tiles.tops(tile, two)
        sides = [None, None, None]
        if two:
            every = slice(0, columns.stop - columns.start)
            sides = [*(self._padded(end, every, width) for end in ends[1]), column_top]
        self.later.levels(tile, rows, columns, (*ends[0], row_top, *sides))
        self._look(every=False)

    def _look(self, *, every: bool) -> None:
        found = self.later.taken(every=every)
        if found is not None:
            self._found([found])

    def watch(self, block: int, width: int) -> "list[_Watch] | None":
        """What sees the scores inside the kernel; None where nothing is to be seen."""
        return [_Watch(self, block)] if self.fits else None

    def _found(self, found: list[tuple[Tensor, ...]]) -> None:
        """Note what lies in the bands: rows, columns, levels, sides and scores."""
        for row, column, level, side, score in found:
            for direction in self.view.directions:
                mine = (side == direction).nonzero().flatten()
                query, candidate = (row, column) if direction == 0 else (column, row)
                if len(mine):
                    self.lists[direction].append((
                        query[mine].long(),
                        candidate[mine].long(),
                        level[mine].long(),
                        score[mine],
                    ))

    def _least(self, direction: int, where: slice, whole: Tensor) -> Tensor:
        """Slopes above which a negative may count, from the ranks as far as they are known, (n, K)."""
        return self._cost(direction, where) * whole.square()

    def _cost(self, direction: int, where: slice) -> Tensor:
        """What the square of a rank is multiplied by, (n, K)."""
        number = self.there[direction][where].sum(dim=1, keepdim=True)
        return SLACK * self.eps / (number * self.rank[direction][where]).clamp(min=1e-300)

    def _band(self, direction: int, where: slice, steepest: Tensor) -> Tensor:
        """Half the width of the band of scores about each positive that may count, 0 for none in this tile."""
        rank = self.rank[direction][where]
        whole = rank + (self.above[direction][where] + (self.part[0][where] if direction else 0)) / self.give
        least = self._least(direction, where, whole)
        root = (1 - 4 * least).clamp(min=0).sqrt()
        band = self.temperature * torch.log((1 + root) / (1 - root).clamp(min=1e-15))
        return torch.where(
            self.there[direction][where] & (least < 0.25) & (self.give * steepest > SLACK * least), band, 0
        )

    def fold(self) -> None:
        """A part of the rows is done."""
        if self.fits:
            self._look(every=True)
        if self.fits and self.view.two:
            if self.view.together:
                self.parts.append([part.clone() for part in self.part])
            for total, part in zip((self.above[1], self.slope[1]), self.part, strict=True):
                total.add_(part)
                part.zero_()

    def merge(self) -> None:
        """Put together what all processes know: the sums in the order of one process, so that they are the same."""
        if not self.fits:
            return
        self.later.merge()
        device = self.view.device
        rows = shards.gather([self.above[0], self.slope[0]])
        self.above[0], self.slope[0] = (sum(each.to(device) for each in parts) for parts in zip(*rows, strict=True))
        if self.view.two:
            columns = shards.collect(self.parts)
            found = (sum(each.to(device) for each in parts) for parts in zip(*columns, strict=True))
            self.above[1], self.slope[1] = found
        for direction in self.view.directions:
            every = shards.gather(tuple(each.cpu() for each in self._survivors(direction)))
            query, other, level, score = (torch.cat(each).to(device) for each in zip(*every, strict=True))
            order = level.argsort(stable=True)
            for key in (other, query):
                order = order[key[order].argsort(stable=True)]
            self.lists[direction] = [tuple(each[order] for each in (query, other, level, score))]

    def finish(self) -> tuple[dict[str, Tensor], ...]:
        """The statistics of every query, one dict a direction, with `eq7`: see `cocos.readers`."""
        if not self.fits:
            return weighed(self.view, self.loss, self.eps)
        if self.later.short:
            self._start(patient=True)
            sweep.visit(self.view, [self])
        return tuple(self._result(direction) for direction in self.view.directions)

    def _survivors(self, direction: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if not self.lists[direction]:
            none = torch.empty(0, dtype=torch.int64, device=self.view.device)
            return none, none, none, torch.empty(0, dtype=self.view.dtype, device=self.view.device)
        return tuple(torch.cat(each) for each in zip(*self.lists[direction], strict=True))

    def _result(self, direction: int) -> dict[str, Tensor]:
        view, side, eps = self.view, self.view.sides[direction], self.eps
        number = len(side)
        score, there, rank = self.score[direction], self.there[direction], self.rank[direction]
        query, candidate, level, rounded = self._survivors(direction)
        steepness = self._slope(rounded.double() - score[query, level])
        least = self._least(direction, slice(None), rank + self.above[direction] / self.give)
        kept = self.give * steepness > least[query, level]  # so that it is the same whatever was known when
        query, candidate, level, rounded = (each[kept] for each in (query, candidate, level, rounded))
        exact = view.exact(*((query, candidate) if direction == 0 else (candidate, query)))
        above, slope = self.above[direction], self.slope[direction]
        own = score[query, level]
        new, old = self._sigmoid(exact - own), self._sigmoid(rounded.double() - own)
        steep, before = self._slope(exact - own), self._slope(rounded.double() - own)
        place = (query, level)
        above.index_put_(place, new - old, accumulate=True)
        slope.index_put_(place, steep - before, accumulate=True)
        known = torch.zeros_like(slope).index_put_(place, steep, accumulate=True)
        whole = torch.where(there, rank + above, 1)
        loose = view.slack() / self.temperature * (slope - known).clamp(min=0) + ROUNDED * above
        loose = loose + len(view.sides[1 - direction]) * 2.0**-FAR
        error = torch.where(there, 2 * loose / whole, 0).amax(dim=1) + EQUAL
        factor = torch.where(there, rank / whole.square(), 0)

        pair, inverse = torch.unique(query * len(view.sides[1 - direction]) + candidate, return_inverse=True)
        at = torch.empty_like(pair).index_copy_(0, inverse, query)
        its = torch.empty(len(pair), dtype=torch.float64, device=view.device).index_copy_(0, inverse, exact)
        share = (factor[at] * self._slope(its[:, None] - score[at])).sum(dim=1)
        counts, unsure = share > eps, (share - eps).abs() <= eps * error[at]
        term = steep / whole[place].square()
        also = (term - eps).abs() <= eps * error[query]

        among = torch.zeros(number, dtype=torch.int64, device=view.device)
        pulled = factor * slope
        beside = torch.where(there, above / whole.square(), 0)
        for some in self._some(score) if score.shape[1] > 1 else ():
            other = self._slope(score[:, None] - score[:, some, None])
            met = torch.where(there[:, None] & there[:, some, None], other, 0)
            met[:, :, some].diagonal(dim1=1, dim2=2).zero_()
            among += (met / whole[:, some, None].square() > eps).sum(dim=(1, 2))
            pulled += (met * (beside[:, some, None] - beside[:, None])).sum(dim=1)
        many = there.sum(dim=1)
        unit = 1 / (self.temperature * many.clamp(min=1))
        total = (factor * slope).sum(dim=1)
        mass = torch.zeros_like(total).index_add_(0, at, torch.where(counts, share, 0))
        terms = among + torch.bincount(query[term > eps], minlength=number)
        result = {
            "contributing": torch.bincount(at[counts], minlength=number),
            "uncertain": torch.bincount(at[unsure], minlength=number),
            "weight_above": mass,
            "weight_below": (total - mass).clamp(min=0),
            "weight_positive": pulled.abs().sum(dim=1),
            "push": unit * (total + (-pulled).clamp(min=0).sum(dim=1)),
            "pull": unit * pulled.clamp(min=0).sum(dim=1),
            "negatives": view.negatives(direction),
            "eq7": terms.double() / many.clamp(min=1),
        }
        doubtful = torch.unique(torch.cat([at[unsure], query[also]]))[: number // RECHECKED + 256]
        if len(doubtful):
            again = held(view, direction, doubtful, self.loss, eps)
            for name, values in result.items():
                values[doubtful] = again[name].to(values.dtype)
        return {name: side.unsorted(values) for name, values in result.items()}


class _Watch:
    """See `cocos.tiles.fused.Watch`."""

    kind = tiles.fused.Sigmoids.kind

    def __init__(self, of: Sigmoids, block: int):
        self.of, view = of, of.view
        levels, costs = [], []
        for direction in view.directions:
            level = of.score[direction]
            cost = torch.where(of.there[direction], of._cost(direction, slice(None)), torch.inf)
            for values, to in ((level.float(), levels), (cost.float(), costs)):
                beyond = values.new_full((tiles.PAD * direction, values.shape[1]), torch.inf)
                padded = torch.cat([values, beyond])
                to.append((padded.T if direction else padded).contiguous())
        self._seen = tiles.fused.Sigmoids(
            block,
            (levels[0], levels[1] if view.two else None),
            (costs[0], costs[1] if view.two else None),
            of.rank[0],
            scale=of.scale,
            reach=FAR / of.scale,
            slack=view.slack(),
            give=of.give,
        )
        self.address, self.drain = self._seen.address, self._seen.drain

    def aim(self, rows: slice, columns: slice) -> None:
        of, base, strip = self.of, None, rows.start // tiles.fused.strip()
        self.columns = columns
        if of.view.two:
            base = (of.rank[1][columns] + (of.above[1][columns] + of.part[0][columns]) / of.give).T
        sums = (of.above[0], of.slope[0])
        self._seen.aim(rows, columns, sums, base, fresh=strip < OFTEN or strip % OFTEN == 0)

    def settle(self) -> None:
        of, number = self.of, self.columns.stop - self.columns.start
        if of.view.two:
            for total, seen in zip(of.part, (self._seen.above, self._seen.slope), strict=True):
                total[self.columns] += seen[:, :number].T
        of._found(self._seen.settle())

    def close(self) -> None:
        self.of._found(self._seen.close())
