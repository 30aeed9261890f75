"""Some queries against all candidates of a side, which are read from a disk some at a time: memory stays that of these.

Every score is a float64 product. A softmax takes two visits: one for the log-sum-exp of the negatives, from which the
loss's own closed form gives their total weight, and one that counts shares above eps. A hinge takes one, which counts
candidates above the levels of the positives. Candidates are taken in sections; states are merged in their order.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError
from cocos.counting import statistics
from cocos.embeddings.sampling import Batch
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
# A logit this far below the largest adds nothing to a sum of exponentials in float64.
NO_TERM = -800.0


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


class _Visit:
    """Statistics that one visit of all candidates collects: a state of tensors by name, whose last axis is the queries.

    Args:
        asking: the queries.
    """

    def __init__(self, asking: Asking):
        self.asking = asking

    def begin(self) -> dict[str, Tensor]:
        """Return the state without any candidate."""
        return {"negatives": torch.zeros(len(self.asking), dtype=torch.int64), "longest": torch.zeros(1)}

    def see(self, state: dict[str, Tensor], score: Tensor, some: slice) -> None:
        """Add scores of some queries, (m, C), -inf where a pair is no negative."""
        raise NotImplementedError

    def join(self, state: dict[str, Tensor], other: dict[str, Tensor]) -> None:
        """Add the state of the next candidates: sums, and the largest norm of a candidate."""
        for name, values in state.items():
            if name == "longest":
                torch.maximum(values, other[name], out=values)
            else:
                values.add_(other[name])


class _LogSums(_Visit):
    """Sums of e, e g and e^2 with e = exp(g) and g = logit - top, (3, n), and top, the largest logit."""

    def __init__(self, asking: Asking, scale: float):
        super().__init__(asking)
        self.scale = scale

    def begin(self) -> dict[str, Tensor]:
        """Return the state without any candidate."""
        number = len(self.asking)
        top = torch.full((number,), -torch.inf, dtype=torch.float64)
        return super().begin() | {"top": top, "sums": torch.zeros(3, number, dtype=torch.float64)}

    def see(self, state: dict[str, Tensor], score: Tensor, some: slice) -> None:
        """Add scores."""
        logit = score.mul_(self.scale)
        top = logit.amax(dim=1)
        gap = logit.sub_(torch.where(top > -torch.inf, top, 0)[:, None]).clamp_(min=NO_TERM)
        power = gap.exp()
        sums = power.sum(dim=1), torch.linalg.vecdot(power, gap), torch.linalg.vecdot(power, power)
        self._add(state, some, top, torch.stack(sums))

    def join(self, state: dict[str, Tensor], other: dict[str, Tensor]) -> None:
        """Add the state of the next candidates."""
        self._add(state, slice(None), other["top"], other["sums"])
        super().join({k: state[k] for k in ("negatives", "longest")}, other)

    def _add(self, state: dict[str, Tensor], some: slice, top: Tensor, sums: Tensor) -> None:
        most, total = torch.maximum(state["top"][some], top), torch.zeros_like(sums)
        for largest, values in ((state["top"][some], state["sums"][:, some]), (top, sums)):
            gap = torch.where(largest > -torch.inf, largest - most, 0)
            part = torch.where(largest > -torch.inf, gap.exp(), 0)
            total += torch.stack([part * values[0], part * (values[1] + gap * values[0]), part.square() * values[2]])
        state["top"][some], state["sums"][:, some] = most, total


class _Shares(_Visit):
    """Numbers of negatives with a share, or a part of the push, above eps; of those too near to it; and their mass.

    Args:
        asking: the queries.
        scale: factor of a score in its logit.
        log: (n,) log-sum-exp of the negatives.
        share: (n,) total share of the negatives.
        active: (n,) whether they are pushed.
        eps: smallest share that counts.
        equal: relative difference of a share and eps below which float64 cannot tell them apart.
    """

    def __init__(
        self, asking: Asking, scale: float, log: Tensor, share: Tensor, active: Tensor, eps: float, equal: float
    ):
        super().__init__(asking)
        self.scale, self.log, self.share, self.active = scale, log, share, active
        self.eps, self.near = eps, eps * equal

    def begin(self) -> dict[str, Tensor]:
        """Return the state without any candidate."""
        names, number = ("contributing", "uncertain", "relative", "relative_uncertain"), len(self.asking)
        counts = {name: torch.zeros(number, dtype=torch.int64) for name in names}
        return super().begin() | counts | {"weight_above": torch.zeros(number, dtype=torch.float64)}

    def see(self, state: dict[str, Tensor], score: Tensor, some: slice) -> None:
        """Add scores."""
        part = score.mul_(self.scale).sub_(self.log[some, None]).exp_()
        heavy, near = part > self.eps, (part - self.eps).abs() <= self.near
        state["relative"][some] += torch.where(self.active[some], heavy.sum(dim=1), 0)
        state["relative_uncertain"][some] += torch.where(self.active[some], near.sum(dim=1), 0)
        share = part.mul_(self.share[some, None])
        above = share > self.eps
        state["contributing"][some] += above.sum(dim=1)
        state["uncertain"][some] += ((share - self.eps).abs() <= self.near).sum(dim=1)
        state["weight_above"][some] += share.mul_(above).sum(dim=1)


class _Levels(_Visit):
    """Counts negatives above the scores of the positives of a query, less a margin, and within rounding of them."""

    def __init__(self, asking: Asking, margin: float):
        super().__init__(asking)
        score = asking.score
        order = score.argsort(stable=True)
        self.order = order[asking.query[order].argsort(stable=True)]
        level, self.there = asking.slots(score[self.order], asking.query[self.order], asking.number, torch.inf)
        self.levels, self.tie = level - margin, bounds.ties(asking.rows.shape[1], 1.0)

    def begin(self) -> dict[str, Tensor]:
        """Return the state without any candidate."""
        return super().begin() | {name: torch.zeros_like(self.levels, dtype=torch.int64) for name in ("above", "ties")}

    def see(self, state: dict[str, Tensor], score: Tensor, some: slice) -> None:
        """Add scores."""
        for k, level in enumerate(self.levels[some].T):
            over = (score > (level + self.tie)[:, None]).sum(dim=1)
            state["above"][some, k] += over
            state["ties"][some, k] += (score >= (level - self.tie)[:, None]).sum(dim=1) - over


class _Spread(_Visit):
    """The largest cosines of each query, negatives in equal bins from -1 to 1, and sums of scores and their squares."""

    def __init__(self, asking: Asking, keep: int, bins: int):
        super().__init__(asking)
        self.keep, self.bins = keep, bins

    def begin(self) -> dict[str, Tensor]:
        """Return the state without any candidate."""
        number = len(self.asking)
        return super().begin() | {
            "top": torch.full((number, self.keep), -torch.inf, dtype=torch.float64),
            "bins": torch.zeros(number, self.bins, dtype=torch.int64),
            "moments": torch.zeros(2, number, dtype=torch.float64),
        }

    def see(self, state: dict[str, Tensor], score: Tensor, some: slice) -> None:
        """Add scores."""
        there = score > -torch.inf
        self._nearer(state, some, score.topk(min(self.keep, score.shape[1]), dim=1).values)
        self._sum(state, some, score, there)
        place = self.place(score)
        rows = torch.arange(len(score))[:, None] * self.bins
        number = torch.bincount((place + rows)[there], minlength=len(score) * self.bins)
        state["bins"][some] += number.view(len(score), self.bins)

    def place(self, score: Tensor) -> Tensor:
        """Return the bin of each score; any for -inf."""
        return ((score + 1) / (2 / self.bins)).floor().clamp(0, self.bins - 1).long()

    def _nearer(self, state: dict[str, Tensor], some: slice, best: Tensor) -> None:
        both = torch.cat([state["top"][some], best], dim=1)
        state["top"][some] = both.topk(self.keep, dim=1).values

    def _sum(self, state: dict[str, Tensor], some: slice, score: Tensor, there: Tensor) -> None:
        value = torch.where(there, score, 0)
        state["moments"][0, some] += value.sum(dim=1)
        state["moments"][1, some] += value.square().sum(dim=1)

    def join(self, state: dict[str, Tensor], other: dict[str, Tensor]) -> None:
        """Add the state of the next candidates."""
        self._nearer(state, slice(None), other["top"])
        super().join({name: values for name, values in state.items() if name != "top"}, other)

    def result(self, state: dict[str, Tensor]) -> SimpleNamespace:
        """Put the positives among the negatives."""
        asking = self.asking
        scored, there = asking.slots(asking.score, asking.query, asking.number, -torch.inf)
        self._nearer(state, slice(None), scored)
        self._sum(state, slice(None), scored, there)
        mean, square = state["moments"] / (state["negatives"] + asking.number).clamp(min=1)
        positives = torch.bincount(self.place(asking.score), minlength=self.bins)
        deviation = (square - mean.square()).clamp(min=0).sqrt()
        return SimpleNamespace(score=state["top"], deviation=deviation, bins=state["bins"], positives=positives)


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
    visit = _Spread(asking, keep, bins)
    return visit.result(_visited(visit, report))


def ranks(asking: Asking, report: Callable[[int, int], None] | None = None) -> PositiveRanks:
    """Rank the positives of some queries among all candidates, by cosines.

    Args:
        asking: the queries.
        report: called with candidates done, and in all.
    """
    visit = _Levels(asking, 0.0)
    state, order, there = _visited(visit, report), visit.order, visit.there
    return PositiveRanks(
        asking.query[order], asking.row[order], state["above"][there], state["ties"][there], asking.score[order]
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
        found = _softmax(asking, loss, reader.scale, eps, report)
    else:
        state = _visited(_Levels(asking, loss.parameters["margin"]), report)
        side = SimpleNamespace(unsorted=lambda values: values)
        view: Any = SimpleNamespace(negatives=lambda _: state["negatives"], sides=[side])
        found = reader._result(view, SimpleNamespace(above=[state["above"]], ties=[state["ties"]]), 0)
    return found | {"pulled_negatives": torch.zeros_like(found["contributing"])}


def _softmax(
    asking: Asking, loss: Any, scale: float, eps: float, report: Callable[[int, int], None] | None
) -> dict[str, Tensor]:
    """Statistics of every query of a softmax, (n,) each."""
    progress = report and [lambda done, number, k=k: report(done + k * number, 2 * number) for k in (0, 1)]
    state = _visited(_LogSums(asking, scale), progress and progress[0])
    some, total = state["sums"][0] > 0, torch.where(state["sums"][0] > 0, state["sums"][0], 1)
    log = torch.where(some, state["top"] + total.log(), 0)
    positive, filled = asking.slots(asking.score, asking.query, asking.number, 0.0)
    none, last = torch.zeros_like(filled), some[:, None]
    pairs = Pairs(
        torch.cat([positive, log[:, None] / scale], dim=1),
        torch.cat([filled, torch.zeros_like(last)], dim=1),
        torch.cat([none, last], dim=1),
        query_norm=asking.norm,
    )
    weights = loss.weight(pairs)
    share = weights.abs() / loss.unit(pairs)
    whole, active = torch.where(some, share[:, -1], 0), some & (weights[:, -1] > 0)
    bound = bounds.exact_dot(asking.rows.shape[1]) * float(asking.rows.norm(dim=1).max()) * float(state["longest"])
    equal = bounds.equal(bound, scale, int(state["negatives"].max()) + positive.shape[1])
    counts = _visited(_Shares(asking, scale, log, whole, active, eps, equal), progress and progress[1])
    rest = torch.where(counts["contributing"] < counts["negatives"], (whole - counts["weight_above"]).clamp(min=0), 0)
    names = ("contributing", "uncertain", "relative", "relative_uncertain", "weight_above", "negatives")
    found = {name: counts[name] for name in names} | {
        "weight_below": rest,
        "weight_positive": statistics.weight_positive(share, pairs),
        "pushed_positives": statistics.pushed_positives(share, weights, pairs, eps),
        "push": statistics.push(weights),
        "pull": statistics.pull(weights),
    }
    effective = (total.log() - state["sums"][1] / total).exp()
    participation = total.square() / torch.where(some, state["sums"][2], 1)
    spread = (torch.where(active, values, 0) for values in (1 / total, effective, participation))
    return found | statistics.how_spread(*spread)


def _visited(visit: _Visit, report: Callable[[int, int], None] | None) -> dict[str, Tensor]:
    """Visit all candidates section by section, and merge the states in their order."""
    asking = visit.asking
    number = asking.stored.sides[1 - asking.side].shape[0]
    step = max(1, NUMBERS_AT_ONCE // asking.rows.shape[1])
    sections = [slice(start, min(start + SECTION, number)) for start in range(0, number, SECTION)]
    state = visit.begin()
    with devices.threads(1), ThreadPoolExecutor(devices.workers()) as pool:
        for done, section in enumerate(sections, start=1):
            parts = [
                slice(start, min(start + step, section.stop)) for start in range(section.start, section.stop, step)
            ]
            total = visit.begin()
            for part in pool.map(partial(_scored, visit), parts):
                visit.join(total, part)
            visit.join(state, total)
            if report:
                report(done, len(sections))
    return state


def _scored(visit: _Visit, candidates: slice) -> dict[str, Tensor]:
    """Score some candidates, of which no more are in memory."""
    asking, state, rows = visit.asking, visit.begin(), torch.arange(candidates.start, candidates.stop)
    positive = "candidate" in NORMALISED_SIDES.get(asking.metric, ())
    other = _factors(asking.stored.of(1 - asking.side, rows, positive=positive), asking.metric)
    state["longest"][0] = float(other.norm(dim=1).max())
    own = asking.own(rows)
    for places in torch.arange(len(asking)).split(max(1, STREAMED_SCORES // len(rows))):
        some = slice(int(places[0]), int(places[-1]) + 1)
        score = asking.rows[some] @ other.T
        if own is not None:
            score.masked_fill_(own[some], -torch.inf)
            state["negatives"][some] -= own[some].sum(dim=1)
        state["negatives"][some] += len(rows)
        visit.see(state, score, some)
    return state
