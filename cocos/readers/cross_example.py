"""Cross-Example Softmax and its negative mining: one sum over all negative pairs of the batch, or the hardest ones."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from cocos import shards, sweep, tiles
from cocos.errors import InputError
from cocos.losses.ce_nm import CrossExampleNegativeMining
from cocos.losses.ce_softmax import CrossExampleSoftmax
from cocos.readers._brackets import largest
from cocos.readers._exponentials import MARGIN, Exponentials, powers
from cocos.readers._later import Later
from cocos.readers._shares import EQUAL, Counted, counts_of, rows_exactly, statistics_of
from cocos.readers.histogram import Histogram
from cocos.scores import Pairs
from cocos.sweep import View

__all__ = ["CrossExample", "reads"]

SAMPLED = 192  # queries, and candidates, that the sum is guessed from
BLOCKED = (768, 1024)  # queries, and candidates, that the last pair kept is guessed from, at least and at most
AT_ONCE = 128  # of them that are scored at once
SURELY = 1.0  # exponent by which the sum is taken to be at most smaller than its guess
LEAST = 1e-300  # an eps of 0 counts what is kept, not what is not
KEPT = 2**20  # pairs about the last one kept that are noted
NOTED = 2**16  # of them that are taken in at once
DEVIATIONS = 4  # how sure the guess is of where the last one kept lies
CUTS = 256  # parts that a bracket with too many pairs in it is cut into
TRIES = 8
DENSE = 2**24  # scores up to which an uncertain sum is taken again in float64


def reads(loss, eps: float, *, spread: bool, relative: bool) -> "CrossExample | None":
    """The reader of both losses; None for others."""
    if type(loss) is CrossExampleSoftmax:
        return CrossExample(loss, 1.0, eps, spread=spread, relative=relative)
    if type(loss) is CrossExampleNegativeMining:
        return CrossExample(loss, loss.fraction, eps, spread=spread, relative=relative)
    return None


class _Everywhere(Exponentials):
    """Exponentials whose denominator is one for all queries: the sum over all of them.

    Args:
        view: the scores.
        scale: of the exponent, in nats.
        spread: entropy and participation are wanted.
        offset: exponent by which a negative may be below the denominator and still count.
        floor: scores at or below are left out.
        guess: exponent of the denominator that is taken for granted until it is known; to be checked in the end.
    """

    fixed = True

    def __init__(self, view: View, scale: float, *, spread: bool, offset: float, floor: float | None, guess: float):
        zeros = [torch.zeros(len(view.sides[k]), dtype=torch.float64, device=view.device) for k in view.directions]
        nothing, offsets = [each - torch.inf for each in zeros], [each + offset for each in zeros]
        super().__init__(view, scale, spread=spread, base=nothing, offset=offsets, floor=floor)
        self.guess, self._seen_so_far = guess, 0

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile."""
        self.renew()
        super().tile(tile, rows, columns)

    def renew(self) -> None:
        """Raise the limits to what the sum so far gives: after 1, 2, 4, ... strips or tiles, as it grows ever less."""
        self._seen_so_far += 1
        if self._seen_so_far & (self._seen_so_far - 1):
            return
        for direction in self.view.directions:
            self.limits(direction)

    def _due(self, direction: int, start: int) -> bool:
        return False

    def limits(self, direction: int) -> Tensor:
        """Scores above which a negative may count: one for all queries."""
        limits = self._limits[direction]
        if self._survivors[direction].spilled:
            return limits
        total = self.sums[0]
        known = total.total[0].sum().log2() if total.reference is None else _logsum(total.logarithm())
        score = (known.clamp(min=self.guess) + self.offset[direction][0] - MARGIN) / self.scale
        return limits.copy_(score - (self.view.slack(score) + 1e-6 * score.abs()))


def _logsum(exponents: Tensor) -> Tensor:
    return (exponents * math.log(2)).logsumexp(dim=0) * math.log2(math.e)


def _rounded(low: float, high: float) -> tuple[float, float]:
    """A bracket that is a little wider, and the same whatever the last bits of the scores of a sample were."""
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return low, high
    unit = 2.0 ** math.floor(math.log2(high - low)) / 64
    return math.floor(low / unit) * unit, math.ceil(high / unit) * unit


class CrossExample:
    """Counts and sums of Cross-Example Softmax. Every positive pair pushes every negative pair of the batch.

    With mining, the pairs that are kept are those above a score that a sample of pairs brackets: pairs above the
    bracket are summed at once, those inside it noted, and the last one kept is found among them when all have been
    seen. Where the bracket missed it, the pass is made again with another.

    Args:
        loss: Cross-Example Softmax, or its negative mining.
        fraction: of the negative pairs that is kept.
        eps: smallest share that contributes.
        spread: the effective number and the participation ratio are wanted.
        relative: the negatives whose part of the query's own push is above eps are wanted: one more pass, since what
            the first one notes is what counts against the sum of the batch.
    """

    def __init__(self, loss, fraction: float, eps: float, *, spread: bool, relative: bool = False):
        self.loss, self.fraction, self.eps, self.spread, self.relative = loss, fraction, eps, spread, relative

    def begin(self, view: View) -> None:
        """Look at the positives, guess where the last kept pair lies, and make the state."""
        self.view, number = view, view.negatives(0).sum()
        self.negatives = int(number)
        self.keep = max(1, math.floor(self.fraction * self.negatives + 1e-9))
        self.bracket, self.whole, self.patient = None, -math.inf, False
        if self.keep < self.negatives:
            self.eps = max(self.eps, LEAST)
        if self.keep < self.negatives or self.negatives > SAMPLED**2:
            self._guess()
        self._start()

    def _start(self) -> None:
        view = self.view
        positives = max(1, int(view.counted(0).sum()))
        fewest = min(max(1, int(view.counted(k).min())) for k in view.directions)
        offset = (math.log2(self.eps) if self.eps else math.inf) + math.log2(fewest) - math.log2(positives)
        self.state = _Everywhere(
            view,
            self.loss.scale,
            spread=self.spread,
            offset=offset,
            floor=None if self.bracket is None else self.bracket[1],
            guess=self.whole,
        )
        none = torch.empty(0, dtype=torch.int32, device=view.device)
        self.over, self.inside, self.listed = 0, [(none, none, none.to(view.dtype))], 0
        self.later = Later(view.device, patient=self.patient)

    def _guess(self) -> None:
        """From pairs drawn at random: what the sum surely exceeds, and scores that the last kept pair lies between."""
        view, device, part = self.view, self.view.device, self.keep / self.negatives
        generator = torch.Generator().manual_seed(0)

        def places(number: int) -> list[Tensor]:
            return [torch.randint(len(side), (number,), generator=generator).to(device) for side in view.sides]

        if part == 1:
            score, width = view.exact_some(*places(SAMPLED)).flatten(), 0.0
        else:
            score, width = self._blocked(part, places)
            if 2 * width * self.negatives > KEPT:  # queries or candidates differ much: pairs of their own tell more
                row, column = places(self._drawn())
                side = view.sides[0]
                negative = (column < side.first[row]) | (column >= side.last[row])
                score = view.exact(row[negative], column[negative])
                width = DEVIATIONS * math.sqrt(part * (1 - part) / max(1, len(score)))
            self.bracket = (-math.inf, math.inf)
        score = score[score > -torch.inf].float().cpu().numpy()
        score.sort()  # in place, and without the order that torch gives beside
        score = torch.from_numpy(score).flip(0)
        if not len(score):
            return
        kept = score[: max(1, math.floor(part * len(score)))] * (self.loss.scale * math.log2(math.e))
        self.whole = float(_logsum(kept)) - math.log2(len(kept)) + math.log2(self.keep) - SURELY
        if part == 1:
            return
        width += 2 / len(score)
        high, low = (math.floor(len(score) * (part + sign * width)) for sign in (-1, 1))
        ends = -math.inf if low >= len(score) else float(score[low]), math.inf if high < 0 else float(score[high])
        self.bracket = _rounded(*ends)

    def _drawn(self) -> int:
        """Pairs of a sample that leaves no more than `KEPT` pairs in the bracket."""
        return int(min(2**24, max(2**16, (DEVIATIONS * self.negatives / KEPT) ** 2)))

    def _blocked(self, part: float, places: Callable[[int], list[Tensor]]) -> tuple[Tensor, float]:
        """Scores of some queries with some candidates, each with each, and how far `part` of them may be off."""
        size = BLOCKED[0] * math.isqrt(self._drawn()) // 256
        row, column = places(size if size <= BLOCKED[1] else 0)
        parts = [[self.view.exact_some(a, b).float() for b in column.split(AT_ONCE)] for a in row.split(AT_ONCE)]
        score = torch.cat([torch.cat(each, dim=1) for each in parts])
        there = score > -torch.inf
        number = int(there.sum())
        if not number:
            return score, math.inf
        place = number - 1 - min(number - 1, math.floor(part * number))
        level = float(np.partition(score[there].cpu().numpy(), place)[place])
        above, variance = (score >= level) & there, 0.0
        for dim in (0, 1):
            share = above.sum(dim=dim) / there.sum(dim=dim).clamp(min=1)
            variance += float(share.var()) / len(share)
        return score.flatten(), DEVIATIONS * math.sqrt(variance)

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile."""
        if self.bracket is not None:
            low, high = self.bracket
            low = max(low, torch.finfo(tile.dtype).min)  # what is no pair is below it
            low, high = (tile.new_full((len(tile), 1), end) for end in (low, high))
            over, _ = self.later.levels(tile, rows, columns, (low, high, None, None, None, None))
            self.over += over.sum()
            self._look(every=False)
        self.state.tile(tile, rows, columns)

    def _look(self, *, every: bool) -> None:
        """Note what the tiles have shown."""
        found = self.later.taken(every=every)
        if found is not None:
            row, column, _, _, score = found
            self._note(row.int(), column.int(), score)

    def watch(self, block: int, width: int):
        """What sees the scores inside the kernel; None where the exponents need references."""
        watches = self.state.watch(block, width)
        if watches is None or self.bracket is None:
            return watches
        return [_Watch(self, block), *watches]

    def _note(self, row: Tensor, column: Tensor, score: Tensor) -> None:
        """Pairs in the bracket."""
        self.listed += len(row)
        if self.listed <= 2 * KEPT:
            self.inside.append((row, column, score))

    def fold(self) -> None:
        """A part of the rows is done."""
        self._look(every=True)
        self.state.fold()

    def _narrower(self) -> None:
        """Too many pairs lie in the bracket: find the part of it that holds the last one kept.

        Raises:
            InputError: float32 cannot tell them apart.
        """
        low, high = self.bracket
        low, high = max(low, -self.view.most), min(high, self.view.most)
        if high - low <= 8 * float(self.view.slack(high)):
            raise InputError(
                f"{self.loss!r}: more than {2 * KEPT:,} pairs have the score of the last one that it keeps, "
                f"{high:.6g}, to within rounding; take a smaller batch size"
            )
        width, sure = (high - low) / CUTS, 4 * float(self.view.slack(high))
        outside = Histogram(CUTS + 2, low - width, high + width)  # the first and the last bin hold all that is outside
        bins = sweep.run(self.view, [outside])[0][0].sum(dim=0).flip(0).cumsum(0)
        place = int((bins < self.keep).sum())  # bins from the top, the last one kept in this one
        self.bracket = (
            -math.inf if place > CUTS else high - place * width - sure,
            math.inf if place == 0 else high - (place - 1) * width + sure,
        )

    def _mined(self) -> bool:
        """Take in the noted pairs that are kept; False if the last one kept is not among them, with a new bracket.

        Raises:
            InputError: too many pairs have its score.
        """
        view, (low, high) = self.view, self.bracket
        if self.later.short:
            self.patient = True
            return False
        if self.listed > 2 * KEPT:
            self._narrower()
            return False
        needed = self.keep - int(self.over)
        last = largest(torch.cat([score for _, _, score in self.inside]), needed)
        sure = 0.0 if last is None else float(2 * self.view.slack(last) + 1e-6 * abs(last))
        widest = max(high - low, 1e-3) if math.isfinite(high - low) else 1.0
        if needed <= 0 or (last is not None and last + sure > high):
            self.bracket = (max(low, high - widest / 4 - sure), high + 4 * widest + sure)
            return False
        if last is None or last - sure < low:
            self.bracket = (low - 4 * widest - sure, min(high, low + widest / 4 + sure))
            return False
        above = sum(int((score > last + sure).sum()) for _, _, score in self.inside)
        parts = ([each[(part[2] - last).abs() <= sure] for each in part[:2]] for part in self.inside)
        row, column = (torch.cat(each) for each in zip(*parts, strict=True))
        exact = view.exact(row, column)
        least = largest(exact.clone(), needed - above)
        order, equal = ((exact > least).nonzero().flatten(), (exact == least).nonzero().flatten())
        places = [side.place[each[equal].long()] for side, each in zip(view.sides, (row, column), strict=True)]
        for direction in view.directions:
            first, second = (0, 1) if direction == 0 else (1, 0)  # of equal pairs the first ones, query by query
            turn = (places[first] * len(view.sides[second]) + places[second]).argsort()
            mine = torch.cat([order, equal[turn][: needed - above - len(order)]])
            self._take_in(
                direction, last + sure, ((row, column)[first][mine], (row, column)[second][mine], exact[mine])
            )
        self.inside = []
        return True

    def _take_in(self, direction: int, over: Tensor, near: tuple[Tensor, Tensor, Tensor]) -> None:
        """Pairs that were noted and are kept: those above a score, and those near it, of one direction."""
        view, state = self.view, self.state
        sums, survivors = state.sums[direction], state.survivors[direction]

        def kept() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
            for part in self.inside:
                for row, column, score in zip(*(each.split(NOTED) for each in part), strict=True):
                    some = (score > over).nonzero().flatten()
                    places = (row, column) if direction == 0 else (column, row)
                    yield places[0][some], places[1][some], score[some].double()
            yield near

        top = sums.top.new_full(sums.top.shape, -torch.inf)
        for query, _, score in kept():
            top.scatter_reduce_(0, query.long(), score.to(top.dtype), "amax")
        if sums.reference is not None:
            sums.raised(slice(0, len(top)), torch.maximum(sums.reference, (top * state.scale).ceil()))
        torch.maximum(sums.top, top, out=sums.top)
        for query, _, score in kept():
            at, z = query.long(), score * state.scale
            if sums.reference is not None:
                z -= sums.reference[at].double()
            mass = powers(z)
            for line, values in enumerate((mass, mass * z, mass.square())):
                sums.total[line].index_add_(0, at, values)
        survivors.above(self.bracket[1])
        limit = state.limits(direction)
        for query, other, score in kept():
            rounded = score.to(view.dtype)
            some = (rounded > limit[query.long()]).nonzero().flatten()
            survivors.add(query[some], other[some], rounded[some], lambda: state.limits(direction))
        if survivors.spilled or self.relative:
            state.inside[direction] = tuple(
                torch.cat(each) for each in zip(*((q, s) for q, _, s in kept()), strict=True)
            )

    def merge(self) -> None:
        """Put together what all processes know."""
        self.state.merge()
        self.later.merge()
        if self.bracket is not None:
            mine = [tuple(each.cpu() for each in part) for part in self.inside]
            overs, listed, every = zip(*shards.gather((int(self.over), self.listed, mine)), strict=True)
            self.over, self.listed = sum(overs), max(listed)
            parts = zip(*(part for inside in every for part in inside), strict=True)
            row, column, score = (torch.cat(part).to(self.view.device) for part in parts)
            order = (row.long() * len(self.view.sides[1]) + column).argsort()
            self.inside = [(row[order], column[order], score[order])]  # each query meets them as it would alone

    def finish(self) -> tuple[dict[str, Tensor], ...]:
        """The statistics of every query, one dict a direction: see `cocos.readers`.

        Raises:
            InputError: the last pair that is kept was not found, or too many have its score.
        """
        for _ in range(TRIES):
            if self.bracket is None or self._mined():
                if float(_logsum(self.state.result(0).logarithm())) >= self.whole or self.whole == -math.inf:
                    break
                self.whole = -math.inf
            self._start()
            sweep.visit(self.view, [self])
        else:
            raise InputError(f"{self.loss!r}: the pairs that it keeps were not found in {TRIES} passes")
        view, state = self.view, self.state
        logarithms = [state.result(k).logarithm() for k in view.directions]
        whole, error = _logsum(logarithms[0]), state.error(0).max()
        found = self._counted(logarithms, whole, error)
        size = len(view.sides[0]) * len(view.sides[1])
        doubtful = any(bool(each.uncertain.any()) for counts in found for each in counts)
        if self.bracket is None and size <= DENSE and doubtful:
            logarithms = [
                rows_exactly(view, k, torch.arange(len(view.sides[k]), device=view.device), state.scale)
                for k in view.directions
            ]
            whole, error = _logsum(logarithms[0]), torch.zeros_like(error) + EQUAL
            found = self._counted(logarithms, whole, error)
        return tuple(self._result(k, [counts[k] for counts in found], logarithms[k]) for k in view.directions)

    def _missing(self, whole: Tensor, direction: int) -> tuple[Tensor, Tensor]:
        """What the positives of each query leave to the negatives, (n,), and the weight of all negatives, (1,)."""
        view, scale = self.view, self.loss.scale
        missing, total = [], torch.zeros((), dtype=torch.float64, device=view.device)
        for start, stop in view.chunks(direction):
            query, _, score = view.scored(direction, start, stop)
            scored = torch.cat([score, (whole * math.log(2) / scale).reshape(1)])[None]
            positive = torch.ones_like(scored, dtype=torch.bool)
            positive[0, -1] = False
            if not len(query):
                missing.append(torch.zeros(stop - start, dtype=torch.float64, device=view.device))
                continue
            share = self.loss.weight(Pairs(scored, positive))[0] / scale
            total = total + share[-1]
            missing.append(
                torch.zeros(stop - start, dtype=torch.float64, device=view.device).index_add_(0, query, -share[:-1])
            )
        return torch.cat(missing), total

    def _counted(self, logarithms: list[Tensor], whole: Tensor, error: Tensor) -> list[list[Counted]]:
        self.missing, shares = [], []
        for direction, logarithm in enumerate(logarithms):
            if not bool(whole > -torch.inf):
                self.missing.append(torch.zeros_like(logarithm))
                shares.append((torch.zeros_like(logarithm), logarithm, torch.zeros_like(logarithm)))
                continue
            missing, total = self._missing(whole, direction)
            number = self.view.counted(direction).clamp(min=1)
            self.missing.append(missing / number)
            shares.append((total / number * (logarithm - whole).exp2(), logarithm, error.expand(len(logarithm))))
        self.shares = [share for share, _, _ in shares]
        asked = [shares]
        if self.relative:
            asked.append([((share > 0).double(), *rest) for share, *rest in shares])
        return counts_of(self.state, asked, self.eps, noted=1)

    def _result(self, direction: int, found: list[Counted], logarithm: Tensor) -> dict[str, Tensor]:
        share, missing = self.shares[direction], self.missing[direction]
        unit = self.loss.scale * self.view.counted(direction).clamp(min=1)
        weights = (share, missing, unit * share, unit * missing)
        return statistics_of(self.state, direction, *(*found, None)[:2], logarithm, *weights)


class _Watch:
    """See `cocos.tiles.fused.Watch`: notes the pairs in the bracket, and counts those above it."""

    kind = tiles.fused.Above.kind

    def __init__(self, of: CrossExample, block: int):
        low, high = of.bracket
        ends = max(low, torch.finfo(torch.float32).min), high  # what is no pair is below it
        rows = len(of.view.sides[0])
        self.of, self._over = of, torch.zeros(rows, 1, dtype=torch.int64)
        levels = tuple(torch.full((rows, 1), end) for end in ends)
        self._seen = tiles.fused.Above(block, (levels, None), 0, scored=True)
        self.address, self.drain = self._seen.address, self._seen.drain

    def aim(self, rows: slice, columns: slice) -> None:
        self._seen.aim(rows, columns, self._over)

    def settle(self) -> None:
        self._take(self._seen.settle()[0])

    def close(self) -> None:
        self._take(self._seen.close()[1])
        self.of.over += self._over.sum()
        self._over.zero_()

    def _take(self, found: list[tuple[Tensor, ...]]) -> None:
        for row, column, _, _, score in found:
            self.of._note(row, column, score)
