"""Some queries against all candidates of a side, which are read from a disk some at a time: memory stays that of these.

Every score is a float64 product. Of a softmax, the candidates that may count are kept, and all others act like one
negative whose logit is their log-sum-exp: so the loss's own closed form weighs positives, kept candidates and that one.
Of a hinge, candidates above the levels of the positives are counted. Candidates are taken in sections,
whose sums are put together in their order.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError
from cocos.counting import statistics
from cocos.embeddings.batches import Batch
from cocos.embeddings.scores import NORMALISED_SIDES, Pairs
from cocos.embeddings.similarities import length, unit
from cocos.embeddings.stored import Stored
from cocos.engine import bounds, devices, readers
from cocos.engine.readers.hinge import HingeReader
from cocos.engine.readers.ranks import PositiveRanks
from cocos.engine.readers.softmax import SoftmaxReader

__all__ = ["Asking", "against_all", "drawn_queries", "ranks", "refuse_unstreamed", "spread"]

# Metrics whose float64 product is exact enough for every decision; a distance of near rows is not.
STREAMED_METRICS = ("cosine", "cosine_dot", "dot")
SECTION = 2**20  # candidates of which one process makes the sums
NUMBERS_AT_ONCE = 2**20  # of candidates that are in float64 at once: 8 MiB
STREAMED_SCORES = 2**19  # scores of a tile: 4 MiB
# Rows of a side up to which all of their numbers are shuffled to draw queries.
MOST_SHUFFLED = 2**20
# Kept candidates beyond which those that cannot count any more are given up.
MOST_LISTED_CANDIDATES = 2**20
# A logit this far below the largest adds nothing to a sum of exponentials in float64.
NO_TERM = -800.0
# Lists of kept candidates beyond which they are put together.
MOST_LISTS = 64
# Nats by which a candidate may lie below the least logit that counts, and is kept: more than all rounding.
SLACK = 1e-6


def drawn_queries(number: int, queries: int, seed: int) -> Tensor:
    """Rows of queries, drawn without one twice, ascending.

    Examples:
        >>> from cocos.engine.streamed import drawn_queries
        >>> len(drawn_queries(10, 4, 0).unique()), drawn_queries(3, 4, 0).tolist()
        (4, [0, 1, 2])
    """
    if queries >= number:
        return torch.arange(number)
    generator = torch.Generator().manual_seed(seed)
    if number <= MOST_SHUFFLED:
        return torch.randperm(number, generator=generator)[:queries].sort().values
    found: dict[int, None] = {}
    while len(found) < queries:
        found |= dict.fromkeys(torch.randint(number, (queries,), generator=generator).tolist())
    return torch.tensor(list(found)[:queries]).sort().values


def refuse_unstreamed(loss: losses.Loss, eps: float) -> None:
    """Refuse a loss that needs more of the candidates than sums and counts."""
    reader = None if loss.wide else readers.of(loss, eps)
    known = type(reader) is SoftmaxReader or (isinstance(reader, HingeReader) and loss.metric == "cosine")
    if not known or loss.metric not in STREAMED_METRICS:
        raise InputError(
            f"{loss.name} is not counted against candidates on a disk: that takes a softmax over the "
            "negatives, or a hinge, of cosines or inner products"
        )
    if isinstance(reader, SoftmaxReader) and eps == 0:
        raise InputError("eps: 0, expected above 0 against candidates on a disk, since with 0 every negative is kept")


@dataclass(frozen=True, eq=False)
class Asking:
    """Some queries of a direction, and their positives.

    Args:
        stored: the set.
        side: of the queries: 0 or 1.
        index: (n,) their rows, ascending.
        metric: one of `STREAMED_METRICS`.
        rows: (n, D) as factors of the products, float64.
        norm: (n,) of the queries as they are, float64.
        group: (n,) numbers of their groups.
        query: (P,) places of the queries that have the positives, ascending.
        row: (P,) rows of the positives.
        score: (P,) float64.
    """

    stored: Stored
    side: int
    index: Tensor
    metric: str
    rows: Tensor
    norm: Tensor
    group: Tensor
    query: Tensor
    row: Tensor
    score: Tensor

    @classmethod
    def of(cls, stored: Stored, side: int, index: Tensor, metric: str) -> "Asking":
        """Read some queries and their positives."""
        sides = NORMALISED_SIDES.get(metric, ())
        given = stored.of(side, index, positive="query" in sides).double()
        rows, group = unit(given) if "query" in sides else given, stored.group(side, index)
        query, row = _positives(stored, side, index, group)
        score = torch.empty(len(row), dtype=torch.float64)
        for some in torch.arange(len(row)).split(max(1, NUMBERS_AT_ONCE // rows.shape[1])):
            distinct, place = row[some].unique(return_inverse=True)
            other = _factors(stored.of(1 - side, distinct, positive="candidate" in sides), metric)[place]
            score[some] = (rows[query[some]] * other).sum(dim=1)
        return cls(stored, side, index, metric, rows, length(given), group, query, row, score)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def number(self) -> Tensor:
        """Positives of each query, (n,)."""
        return torch.bincount(self.query, minlength=len(self))

    def beside(self, most: int) -> Batch:
        """A batch of some of the queries and their positives."""
        some = self.query < most
        sides = self.index[:most], self.row[some].unique()
        return Batch(*(sides[::-1] if self.side else sides), paired=False)

    def slots(self, values: Tensor, query: Tensor, number: Tensor, fill: float) -> tuple[Tensor, Tensor]:
        """Values of pairs, sorted by query, as one row a query, (n, K), and which of its places are filled."""
        place = torch.arange(len(query)) - (number.cumsum(0) - number)[query]
        made = torch.full((len(self), max(1, int(number.max()))), fill, dtype=torch.float64)
        filled = torch.zeros_like(made, dtype=torch.bool)
        made[query, place], filled[query, place] = values, True
        return made, filled

    def own(self, rows: Tensor) -> Tensor | None:
        """Which of some candidates are of the group of each query, (n, m); None if none is."""
        if self.stored.matched:
            there = (self.index >= rows[0]) & (self.index <= rows[-1])
            if not bool(there.any()):
                return None
            made = torch.zeros(len(self), len(rows), dtype=torch.bool)
            made[there.nonzero().flatten(), self.index[there] - rows[0]] = True
            return made
        group = self.stored.group(1 - self.side, rows)
        return self.group[:, None] == group if bool(torch.isin(group, self.group).any()) else None


def _factors(rows: Tensor, metric: str) -> Tensor:
    """Candidates as factors of the products, in float64."""
    if "candidate" not in NORMALISED_SIDES.get(metric, ()):
        return rows.double()
    if rows.dtype == torch.float64:  # squares may leave its range
        return unit(rows)
    rows = rows.double()
    return rows.div_(torch.linalg.vector_norm(rows, dim=1, keepdim=True))


def _positives(stored: Stored, side: int, index: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """Places of queries and rows of their positives, sorted by query."""
    if stored.matched:
        return torch.arange(len(index)), index
    groups = stored.numbered.groups
    every = (groups.candidate, groups.query)[side]
    some = torch.isin(every, group).nonzero().flatten()
    order = some[every[some].argsort(stable=True)]
    first, last = (torch.searchsorted(every[order], group, right=right) for right in (False, True))
    query = torch.repeat_interleave(torch.arange(len(index)), last - first)
    row = order[first[query] + torch.arange(len(query)) - ((last - first).cumsum(0) - (last - first))[query]]
    if stored.candidate is None:  # a sample is no candidate of its own
        other = row != index[query]
        query, row = query[other], row[other]
    return query, row


@dataclass(eq=False)
class Rest:
    """Negatives of each query that are not kept, (n,) each: sums of exp of their logits about the largest.

    Args:
        top: largest logit; -inf where there is none.
        sums: Σ e, Σ e g and Σ e² with e = exp(g) and g = logit - top, (3, n).
    """

    top: Tensor
    sums: Tensor

    @classmethod
    def none(cls, number: int) -> "Rest":
        """No negative."""
        return cls(torch.full((number,), -torch.inf, dtype=torch.float64), torch.zeros(3, number, dtype=torch.float64))

    def add(self, top: Tensor, sums: Tensor) -> None:
        """Add other negatives, with their own largest logits."""
        most = torch.maximum(self.top, top)
        made = torch.zeros_like(self.sums)
        for mine, own in ((self.top, self.sums), (top, sums)):
            gap = torch.where(mine > -torch.inf, mine - most, 0)
            part = torch.where(mine > -torch.inf, gap.exp(), 0)
            made += torch.stack([part * own[0], part * (own[1] + gap * own[0]), part.square() * own[2]])
        self.top, self.sums = most, made

    @property
    def log(self) -> Tensor:
        """Log-sum-exp."""
        return self.top + self.sums[0].log()

    @property
    def entropy(self) -> Tensor:
        """Entropy of the parts of the sum."""
        whole = torch.where(self.sums[0] > 0, self.sums[0], 1)
        return whole.log() - self.sums[1] / whole

    @property
    def squares(self) -> Tensor:
        """Sum of the squared parts of the sum."""
        whole = torch.where(self.sums[0] > 0, self.sums[0], 1)
        return self.sums[2] / whole.square()


@dataclass(eq=False)
class StreamedSums:
    """What some candidates are to each query."""

    negatives: Tensor
    longest: float = 0.0
    rest: Rest | None = None
    kept: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # queries and logits
    above: Tensor | None = None
    ties: Tensor | None = None

    def add(self, other: "StreamedSums") -> None:
        """Add the number of other candidates."""
        self.negatives += other.negatives
        self.longest = max(self.longest, other.longest)


class _Softmax:
    """Keeps the candidates that may count, and sums up the others."""

    def __init__(self, asking: Asking, loss: Any, reader: SoftmaxReader, eps: float):
        self.asking, self.loss, self.eps = asking, loss, eps
        self.scale, number = reader.scale, asking.number
        many = torch.zeros(len(asking)) if loss.per_positive else number.clamp(min=1).double().log()
        self.least = math.log(eps) - many.double() - SLACK

    def begin(self) -> StreamedSums:
        """No candidate."""
        number = len(self.asking)
        return StreamedSums(torch.zeros(number, dtype=torch.int64), rest=Rest.none(number))

    def see(self, made: StreamedSums, score: Tensor, some: slice) -> None:
        """Add scores of some queries, (m, C), -inf where a pair is no negative."""
        assert made.rest is not None
        gap, rest = score.mul_(self.scale), made.rest
        top = gap.amax(dim=1)
        safe = torch.where(top > -torch.inf, top, 0)
        gap.sub_(safe[:, None]).clamp_(min=NO_TERM)
        power = gap.exp()
        so_far = torch.logaddexp(safe + power.sum(dim=1).log(), rest.log[some])
        least = torch.where(top > -torch.inf, so_far + self.least[some] - safe, torch.inf)
        query, column = (gap > least[:, None]).nonzero(as_tuple=True)
        if len(query):  # an empty tensor of each tile would split the memory that tiles leave
            made.kept.append((query + some.start, gap[query, column] + safe[query]))
        power[query, column] = 0
        whole, none = torch.zeros(3, len(self.asking), dtype=torch.float64), Rest.none(len(self.asking)).top
        sums = power.sum(dim=1), torch.linalg.vecdot(power, gap), torch.linalg.vecdot(power, power)
        none[some], whole[:, some] = torch.where(sums[0] > 0, top, -torch.inf), torch.stack(sums)
        rest.add(none, whole)

    def prune(self, made: StreamedSums) -> None:
        """Give up kept candidates that cannot count beside those that were seen by now."""
        assert made.rest is not None
        none = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
        query, logit = (torch.cat(each) for each in zip(*made.kept, none, strict=True))
        top = made.rest.top.scatter_reduce(0, query, logit, "amax")
        safe = torch.where(top > -torch.inf, top, 0)
        total = torch.zeros_like(top).index_add(0, query, (logit - safe[query]).exp())
        total = torch.logaddexp(safe + total.log(), made.rest.log)
        keep = logit > (total + self.least)[query]
        out, low = query[~keep], logit[~keep]
        most = torch.full_like(top, -torch.inf).scatter_reduce(0, out, low, "amax")
        gap = low - most[out]
        power, zero = gap.exp(), torch.zeros_like(top)
        made.rest.add(most, torch.stack([zero.index_add(0, out, e) for e in (power, power * gap, power.square())]))
        made.kept = [(query[keep], logit[keep])]

    def join(self, whole: StreamedSums, other: StreamedSums) -> None:
        """Add the next candidates."""
        whole.add(other)
        assert whole.rest is not None
        assert other.rest is not None
        whole.rest.add(other.rest.top, other.rest.sums)
        whole.kept += other.kept

    def done(self, whole: StreamedSums) -> dict[str, Tensor]:
        """Statistics of every query."""
        self.prune(whole)
        assert whole.rest is not None
        asking, rest, ((query, logit),) = self.asking, whole.rest, whole.kept
        order = query.argsort(stable=True)
        query, logit = query[order], logit[order]
        positive, filled = asking.slots(asking.score, asking.query, asking.number, 0.0)
        kept, there = asking.slots(logit / self.scale, query, torch.bincount(query, minlength=len(asking)), 0.0)
        some = rest.sums[0] > 0
        last = torch.where(some, rest.log / self.scale, 0)[:, None]
        masks = torch.zeros_like(filled), torch.zeros_like(there), torch.zeros_like(last, dtype=torch.bool)
        scores = torch.cat([positive, kept, last], dim=1)
        pairs = Pairs(
            scores,
            torch.cat([filled, *masks[1:]], dim=1),
            torch.cat([masks[0], there, some[:, None]], dim=1),
            query_norm=asking.norm,
        )
        weights = self.loss.weight(pairs)
        share, part = weights.abs() / self.loss.unit(pairs), statistics.spread(weights, pairs)
        counted = pairs.unchecked(negative=torch.cat([masks[0], there, masks[2]], dim=1))
        bound = bounds.exact_dot(asking.rows.shape[1]) * float(asking.rows.norm(dim=1).max()) * whole.longest
        equal = bounds.equal(bound, self.scale, int(whole.negatives.max()) + positive.shape[1])
        heavy, others = part[:, :-1], part[:, -1]
        entropy = torch.special.entr(heavy).sum(dim=1) + torch.special.entr(others) + others * rest.entropy
        squares = heavy.square().sum(dim=1) + others.square() * rest.squares
        active = part.sum(dim=1) > 0
        found = {
            "contributing": statistics.contributing(share, counted, self.eps),
            "uncertain": statistics.uncertain(share, counted, self.eps, equal),
            "relative": statistics.relative(heavy, self.eps),
            "relative_uncertain": statistics.uncertain(part, counted, self.eps, equal),
            "weight_above": statistics.weight_above(share, counted, self.eps),
            "weight_below": statistics.weight_below(share, counted, self.eps) + torch.where(some, share[:, -1], 0),
            "weight_positive": statistics.weight_positive(share, pairs),
            "pushed_positives": statistics.pushed_positives(share, weights, pairs, self.eps),
            "push": statistics.push(weights),
            "pull": statistics.pull(weights),
            "negatives": whole.negatives,
        }
        top = torch.maximum(heavy.amax(dim=1), others * (1 / torch.where(some, rest.sums[0], 1)))
        spread = (torch.where(active, each, 0) for each in (entropy.exp(), 1 / torch.where(active, squares, 1)))
        return found | statistics.how_spread(top, *spread)


class _Levels:
    """Counts negatives above the scores of the positives of a query, less a margin, and within rounding of them."""

    def __init__(self, asking: Asking, margin: float, done: Callable[[StreamedSums], Any]):
        self.asking, self.done, score = asking, done, asking.score
        order = score.argsort(stable=True)
        self.order = order[asking.query[order].argsort(stable=True)]
        level, self.there = asking.slots(score[self.order], asking.query[self.order], asking.number, torch.inf)
        self.levels, self.tie = level - margin, bounds.ties(asking.rows.shape[1], 1.0)

    def begin(self) -> StreamedSums:
        """No candidate."""
        above, ties = (torch.zeros(self.levels.shape, dtype=torch.int64) for _ in range(2))
        return StreamedSums(torch.zeros(len(self.asking), dtype=torch.int64), above=above, ties=ties)

    def see(self, made: StreamedSums, score: Tensor, some: slice) -> None:
        """Add scores of some queries, (m, C), -inf where a pair is no negative."""
        assert made.above is not None
        assert made.ties is not None
        for k, level in enumerate(self.levels[some].T):
            over = (score > (level + self.tie)[:, None]).sum(dim=1)
            made.above[some, k] += over
            made.ties[some, k] += (score >= (level - self.tie)[:, None]).sum(dim=1) - over

    def prune(self, made: StreamedSums) -> None:
        """Nothing is kept."""

    def join(self, whole: StreamedSums, other: StreamedSums) -> None:
        """Add the next candidates."""
        whole.add(other)
        assert whole.above is not None
        assert whole.ties is not None
        whole.above += other.above
        whole.ties += other.ties


@dataclass(eq=False)
class SpreadSums(StreamedSums):
    """How the scores of all candidates of each query are spread: the nearest ones, bins of the negatives, moments."""

    top: Tensor | None = None  # (n, k), descending
    bins: Tensor | None = None  # (n, bins)
    moments: Tensor | None = None  # (2, n): sums of scores and of their squares


class _Spread:
    """Keeps the largest cosines of each query, and counts negatives in equal bins from -1 to 1."""

    def __init__(self, asking: Asking, keep: int, bins: int):
        self.asking, self.keep, self.bins = asking, keep, bins

    def begin(self) -> SpreadSums:
        """No candidate."""
        number = len(self.asking)
        top = torch.full((number, self.keep), -torch.inf, dtype=torch.float64)
        made = SpreadSums(torch.zeros(number, dtype=torch.int64), top=top)
        made.bins = torch.zeros(number, self.bins, dtype=torch.int64)
        made.moments = torch.zeros(2, number, dtype=torch.float64)
        return made

    def see(self, made: SpreadSums, score: Tensor, some: slice) -> None:
        """Add scores of some queries, (m, C), -inf where a pair is no negative."""
        there = score > -torch.inf
        best = score.topk(min(self.keep, score.shape[1]), dim=1).values
        self._nearer(made, some, best)
        self._sum(made, some, score, there)
        place = self.place(score)
        rows = torch.arange(len(score))[:, None] * self.bins
        number = torch.bincount((place + rows)[there], minlength=len(score) * self.bins)
        made.bins[some] += number.view(len(score), self.bins)

    def place(self, score: Tensor) -> Tensor:
        """The bin of each score; of none, any."""
        return ((score + 1) / (2 / self.bins)).floor().clamp(0, self.bins - 1).long()

    def _nearer(self, made: SpreadSums, some: slice, best: Tensor) -> None:
        both = torch.cat([made.top[some], best], dim=1)
        made.top[some] = both.topk(self.keep, dim=1).values

    def _sum(self, made: SpreadSums, some: slice, score: Tensor, there: Tensor) -> None:
        value = torch.where(there, score, 0)
        made.moments[0, some] += value.sum(dim=1)
        made.moments[1, some] += value.square().sum(dim=1)

    def prune(self, made: SpreadSums) -> None:
        """Nothing is kept."""

    def join(self, whole: SpreadSums, other: SpreadSums) -> None:
        """Add the next candidates."""
        whole.add(other)
        self._nearer(whole, slice(None), other.top)
        whole.bins += other.bins
        whole.moments += other.moments

    def done(self, whole: SpreadSums) -> SimpleNamespace:
        """Put the positives among the negatives."""
        asking = self.asking
        scored, there = asking.slots(asking.score, asking.query, asking.number, -torch.inf)
        self._nearer(whole, slice(None), scored)
        self._sum(whole, slice(None), scored, there)
        mean, square = whole.moments / (whole.negatives + asking.number).clamp(min=1)
        positives = torch.bincount(self.place(asking.score), minlength=self.bins)
        deviation = (square - mean.square()).clamp(min=0).sqrt()
        return SimpleNamespace(score=whole.top, deviation=deviation, bins=whole.bins, positives=positives)


def spread(asking: Asking, keep: int, bins: int, report: Callable[[int, int], None] | None = None) -> SimpleNamespace:
    """Spread of the cosines of some queries with all candidates.

    Args:
        asking: the queries.
        keep: nearest candidates of each.
        bins: equal ones from -1 to 1.
        report: called with candidates done, and in all.

    Returns:
        `score` (n, keep), descending, -inf beyond the last; `deviation` (n,) of the scores; `bins` (n, bins) of the
        negatives; `positives` (bins,) of all queries.
    """
    return _summed(asking, _Spread(asking, keep, bins), report)


def _of_hinge(reader: HingeReader, whole: StreamedSums) -> dict[str, Tensor]:
    """Statistics of every query of a hinge."""
    side = SimpleNamespace(unsorted=lambda values: values)
    view: Any = SimpleNamespace(negatives=lambda _: whole.negatives, sides=[side])
    counts: Any = SimpleNamespace(above=[whole.above], ties=[whole.ties])
    return reader._result(view, counts, 0)


def ranks(asking: Asking, report: Callable[[int, int], None] | None = None) -> PositiveRanks:
    """Rank the positives of some queries among all candidates, by cosines.

    Args:
        asking: the queries.
        report: called with candidates done, and in all.
    """
    how = _Levels(asking, 0.0, lambda whole: whole)
    whole = _summed(asking, how, report)
    assert whole.above is not None
    assert whole.ties is not None
    order, there = how.order, how.there
    return PositiveRanks(
        asking.query[order], asking.row[order], whole.above[there], whole.ties[there], asking.score[order]
    )


def against_all(
    asking: Asking, loss: losses.Loss, eps: float, report: Callable[[int, int], None] | None = None
) -> dict[str, Tensor]:
    """Statistics of some queries against all candidates, (n,) each: see `cocos.engine.readers`.

    Args:
        asking: the queries.
        loss: that `refuse_unstreamed` lets pass.
        eps: smallest share that contributes.
        report: called with candidates done, and in all.
    """
    reader = readers.of(loss, eps, relative=True)
    if isinstance(reader, SoftmaxReader):
        found = _summed(asking, _Softmax(asking, loss, reader, eps), report)
    else:
        found = _summed(asking, _Levels(asking, loss.parameters["margin"], partial(_of_hinge, reader)), report)
    return found | {"pulled_negatives": torch.zeros_like(found["contributing"])}


def _summed(asking: Asking, how: Any, report: Callable[[int, int], None] | None) -> Any:
    """What all candidates are to the queries, section by section."""
    number = asking.stored.sides[1 - asking.side].shape[0]
    sections = [slice(start, min(start + SECTION, number)) for start in range(0, number, SECTION)]
    sums = []
    with devices.threads(1):
        for done, some in enumerate(sections, start=1):
            sums.append(_section(asking, how, some))
            if report:
                report(done, len(sections))
        first, *others = sums
        for each in others:
            how.join(first, each)
        return how.done(first)


def _section(asking: Asking, how: Any, section: slice) -> StreamedSums:
    """Score the candidates of a section, some at a time, by several threads; add them up in their order."""
    step = max(1, NUMBERS_AT_ONCE // asking.rows.shape[1])
    made = how.begin()
    with ThreadPoolExecutor(devices.workers()) as pool:
        for some in pool.map(
            lambda start: _scored(asking, how, slice(start, min(start + step, section.stop))),
            range(section.start, section.stop, step),
        ):
            how.join(made, some)
            if len(made.kept) > MOST_LISTS or sum(len(query) for query, _ in made.kept) > MOST_LISTED_CANDIDATES:
                how.prune(made)
    if made.kept:
        how.prune(made)
    return made


def _scored(asking: Asking, how: Any, candidates: slice) -> StreamedSums:
    """Score some candidates, of which no more are in memory."""
    made, rows = how.begin(), torch.arange(candidates.start, candidates.stop)
    positive = "candidate" in NORMALISED_SIDES.get(asking.metric, ())
    other = _factors(asking.stored.of(1 - asking.side, rows, positive=positive), asking.metric)
    made.longest, own = float(other.norm(dim=1).max()), asking.own(rows)
    for some in torch.arange(len(asking)).split(max(1, STREAMED_SCORES // len(rows))):
        place = slice(int(some[0]), int(some[-1]) + 1)
        score = asking.rows[place] @ other.T
        if own is not None:
            score.masked_fill_(own[place], -torch.inf)
            made.negatives[place] -= own[place].sum(dim=1)
        made.negatives[place] += len(rows)
        how.see(made, score, place)
    return made
