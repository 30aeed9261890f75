"""Losses with a softmax over candidates of several sources: own and others' hard negatives, and further directions.

All negatives of a source act like one negative whose logit is their log-sum-exp. So the loss's own closed form, applied
to the positives and one negative for each source, gives the total weight of each source, and each negative has its part
of it. In: the views of the sources (`cocos.engine.columns`). Out: the statistics of every query, whole and by source.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.counting import statistics
from cocos.embeddings import Embeddings, scores
from cocos.embeddings.batches import Batch
from cocos.embeddings.scores import Pairs
from cocos.embeddings.sources import CANDIDATE_QUERY, IN_BATCH, OWN_HARD, SOURCES
from cocos.engine import bounds
from cocos.engine.columns import ColumnViews, fits, placed
from cocos.engine.primitives.logsumexp import LOG2E, Counted, LogSumExp, Question, Sums, counts
from cocos.engine.readers import softmax
from cocos.engine.readers.rows import SCORES_AT_ONCE, dense_rows
from cocos.engine.readers.softmax import EXACT_SCORE_COST, RECHECKED_QUERIES, SoftmaxReader
from cocos.engine.sweep import StepProgress, run
from cocos.engine.view import View

Found = dict[str, Tensor]


def scales(loss) -> tuple[float, ...] | None:
    """λ of Σ exp(λ score) of the negatives of each source; None for a loss that reads more than these sums."""
    if loss.couples != "query" or loss.requires or loss.graded:
        return None
    if loss.source_scales is not None:
        return loss.source_scales
    own = softmax.reads(loss, 0.01, spread=True, relative=True)
    plain = type(own) is SoftmaxReader and len(loss.directions) == 1
    return (loss.softmax_scale,) * len(SOURCES) if plain and loss.softmax_scale else None


def serves(loss, embeddings: Embeddings, batches: Sequence[Batch], same_group: str) -> bool:
    """Whether the columns of a loss, in all of its directions, are counted without storing their scores."""
    directions, sides = loss.directions, [(embeddings, batches)]
    if len(embeddings.directions) == 2 and not loss.one_way(embeddings):
        sides.append((embeddings.flip(), [batch.flip() for batch in batches]))
    known = same_group in scores.SAME_GROUP and scales(loss) is not None
    return known and all(fits(side, own, loss.metric, directions) for side, own in sides)


@dataclass(frozen=True, eq=False)
class SourceSums:
    """Sums over the negatives of one source of every query, in the order of the batches, (n,) each.

    Args:
        log2: log2 Σ exp(λ score); -inf without a negative.
        error: its logarithmic error, in nats.
        top: log2 of the largest term.
        effective: exp of the entropy of the parts of the sum; 0 without a negative.
        participation: 1 / Σ part²; 0 without a negative.
        negatives: int64, their number.
    """

    log2: Tensor
    error: Tensor
    top: Tensor
    effective: Tensor
    participation: Tensor
    negatives: Tensor


def _sums_of_view(sums: Sums, k: int) -> SourceSums:
    view = sums.of.view
    top = sums.top[k].double() * sums.of.scale
    spread = sums.effective(k), sums.participation(k)
    return SourceSums(*map(view.sides[k].unsorted, (sums.log2[k], sums.error[k], top, *spread, view.negatives(k))))


def _sums_of_own(columns: ColumnViews, scale: float) -> SourceSums:
    """Sums over the own hard negatives, in float64."""
    own, number = columns.own, len(columns.known)
    z, none = own.score * scale * LOG2E, own.score.new_full((number,), -torch.inf)
    top = none.scatter_reduce(0, own.query, z, "amax")
    power = (z - top[own.query]).exp2()
    zero, count = torch.zeros_like(none), torch.bincount(own.query, minlength=number)
    first, moment, second = (zero.index_add(0, own.query, each) for each in (power, power * z, power.square()))
    some, whole = count > 0, torch.where(count > 0, first, 1)
    log2 = torch.where(some, top + whole.log2(), -torch.inf)
    effective = torch.where(some, (log2 - moment / whole).exp2(), 0)
    participation = torch.where(some, first.square() / torch.where(some, second, 1), 0)
    error = torch.full_like(none, bounds.equal(columns.first.exactness, scale, int(count.max()) if number else 0))
    return SourceSums(log2, error, top, effective, participation, count)


class _Counts:
    """Asks for the passes that answer questions about sums which are known."""

    def __init__(self, sums: Sums, asked: list[list[Question]]):
        self.sums, self.asked = sums, asked

    def passes(self, view: View) -> Generator[Any, Any, list[list[Counted]]]:
        """Yield the passes of `counts`; return the counts for each question and direction."""
        return (yield from counts(self.sums, self.asked))


class ColumnsReader:
    """Counts and sums of a softmax over the columns of all sources.

    Args:
        loss: for which `scales` holds.
        eps: smallest share that contributes.
    """

    def __init__(self, loss, eps: float):
        self.loss, self.eps = loss, eps
        self.scale = scales(loss) or ()

    def read(self, columns: ColumnViews, progress: StepProgress | None = None) -> Found:
        """Make the passes; return the statistics of every query in the order of the batches, by name.

        Those that begin with `source_` are (n, sources), the others (n,): see `cocos.statistics`.

        Args:
            columns: the views of the sources, made with `once` only where `alike` holds.
            progress: as in `cocos.engine.run`.
        """
        sums = self._sums(columns, progress)
        sources = {source: _sums_of_view(*each) for source, each in sums.items()} | {
            OWN_HARD: _sums_of_own(columns, self.scale[OWN_HARD])
        }
        sources = dict(sorted(sources.items()))
        result, weight, share = self._weigh(columns, sources)
        result |= self._spread_of_push(sources, weight)
        self._count(columns, sums, sources, weight, share, result)
        self._reweigh_uncertain(columns, result)
        return result

    @property
    def alike(self) -> bool:
        """Whether one view may serve the batch and the direction `candidate-query`."""
        return self.scale[IN_BATCH] == self.scale[CANDIDATE_QUERY]

    def _sums(self, columns: ColumnViews, progress: StepProgress | None) -> dict[int, tuple[Sums, int]]:
        """Log-sum-exp of each view, with the direction that asks."""
        found, made = {}, dict[int, Sums]()
        many = 0.0 if self.loss.per_positive else math.log2(max(1, int(columns.first.counted(0).max())))
        limit = math.log2(self.eps) - many if self.eps else math.inf
        for done, (source, (view, k)) in enumerate(columns.views.items()):
            if id(view) not in made:
                shown = progress and (
                    lambda now, every, done=done: progress(done * every + now, len(columns.views) * every)
                )  # views count as equally large
                zero = [
                    torch.zeros(len(view.sides[j]), dtype=torch.float64, device=view.device) for j in view.directions
                ]
                known = {"base": [each - torch.inf for each in zero], "offset": [each + limit for each in zero]}
                (made[id(view)],) = run(view, [LogSumExp(view, self.scale[source], **known)], progress=shown)
            found[source] = made[id(view)], k
        return found

    def _weigh(self, columns: ColumnViews, sources: dict[int, SourceSums]) -> tuple[Found, Tensor, Tensor]:
        """Weigh the positives and one negative for each source.

        Returns:
            Sums of the weights; and weight and share of each source, (n, sources) in the order of `sources`.
        """
        parts, side = [], columns.first.sides[0]
        for a, b in columns.first.chunks(0, len(sources) + columns.back.shape[1]):
            pairs = self._pairs(columns, sources, a, b)
            weight = self.loss.weight(pairs)
            share, last = weight.abs() / self.loss.unit(pairs), -len(sources)
            parts.append((
                statistics.push(weight),
                statistics.pull(weight),
                statistics.weight_positive(share, pairs),
                statistics.pushed_positives(share, weight, pairs, self.eps),
                weight[:, last:],
                share[:, last:],
            ))
        push, pull, positive, pushed, weight, share = (
            side.unsorted(torch.cat(each)) for each in zip(*parts, strict=True)
        )
        sums = {"push": push, "pull": pull, "weight_positive": positive, "pushed_positives": pushed}
        return sums, weight.clamp(min=0), share

    def _pairs(self, columns: ColumnViews, sources: dict[int, SourceSums], a: int, b: int) -> Pairs:
        """Positives of the queries at some places, and one negative for each source as the last columns."""
        view = columns.first
        query, _, score = view.scored(0, a, b)
        at, count = view.sides[0].place[a:b], torch.bincount(query, minlength=b - a)
        slot = torch.arange(len(query), device=score.device) - (count.cumsum(0) - count)[query]
        slots = score.new_zeros(b - a, max(1, int(count.max())))
        filled = torch.zeros_like(slots, dtype=torch.bool)
        slots[query, slot], filled[query, slot] = score, True
        nats = torch.stack([each.log2[at] / self.scale[source] / LOG2E for source, each in sources.items()], dim=1)
        there, again = nats > -torch.inf, columns.again[at]
        kinds = [IN_BATCH] * slots.shape[1] + [CANDIDATE_QUERY] * again.shape[1] + list(sources)
        no, none = torch.zeros_like(there), torch.zeros_like(torch.cat([filled, again], dim=1))
        return Pairs(
            torch.cat([slots, columns.back[at], torch.where(there, nats, 0)], dim=1),
            torch.cat([filled, again, no], dim=1),
            torch.cat([none, there], dim=1),
            query_norm=view.sides[0].norm[a:b],
            source=torch.tensor(kinds, dtype=torch.int8, device=score.device).expand(b - a, -1),
        )

    def _spread_of_push(self, sources: dict[int, SourceSums], weight: Tensor) -> Found:
        """How the push is spread over the negatives: a mixture of what each source has."""
        whole = weight.sum(dim=1, keepdim=True)
        part = weight / torch.where(whole > 0, whole, 1)
        each = list(sources.values())
        entropy = torch.stack([own.effective.clamp(min=1).log() for own in each], dim=1)
        squares = torch.stack([1 / own.participation.clamp(min=1) for own in each], dim=1)
        top = torch.stack([(own.top - own.log2).exp2().nan_to_num(0).clamp(max=1) for own in each], dim=1)
        active = whole[:, 0] > 0
        square = torch.where(active, (part.square() * squares).sum(dim=1), 1)
        return statistics.how_spread(
            torch.where(active, (part * top).amax(dim=1), 0),
            torch.where(active, (part * entropy + torch.special.entr(part)).sum(dim=1).exp(), 0),
            torch.where(active, 1 / square, 0),
        )

    def _count(
        self,
        columns: ColumnViews,
        sums: dict[int, tuple[Sums, int]],
        sources: dict[int, SourceSums],
        weight: Tensor,
        share: Tensor,
        result: Found,
    ) -> None:
        """Count the negatives above eps, of a probability and of the push, and enter all that follows from these."""
        error = torch.stack([each.error.where(each.log2 > -torch.inf, 0) for each in sources.values()]).amax(dim=0)
        whole = weight.sum(dim=1, keepdim=True)
        part = weight / torch.where(whole > 0, whole, 1)
        names = "negatives", "contributing", "pulled", "push"
        sourced = {f"source_{name}": share.new_zeros(len(share), len(SOURCES)) for name in names}
        number, heavy = (self._count_by_source(columns, sums, sources, each, error) for each in (share, part))
        for place, (source, own) in enumerate(sources.items()):
            sourced["source_negatives"][:, source] = own.negatives.double()
            sourced["source_contributing"][:, source] = number[source].number.double()
            sourced["source_push"][:, source] = weight[:, place]
        result |= {name: each if name == "source_push" else each.long() for name, each in sourced.items()}
        mass, total = sum(each.mass for each in number.values()), share.sum(dim=1)
        result |= {
            "negatives": result["source_negatives"].sum(dim=1),
            "contributing": result["source_contributing"].sum(dim=1),
            "uncertain": torch.stack([each.uncertain for each in number.values()]).sum(dim=0),
            "relative": torch.stack([each.number for each in heavy.values()]).sum(dim=0),
            "relative_uncertain": torch.stack([each.uncertain for each in heavy.values()]).sum(dim=0),
            "pulled_negatives": torch.zeros_like(number[IN_BATCH].number),
            "weight_above": mass,
        }
        rest = (total - mass).clamp(min=0)
        result["weight_below"] = torch.where(result["contributing"] < result["negatives"], rest, 0)

    def _count_by_source(
        self,
        columns: ColumnViews,
        sums: dict[int, tuple[Sums, int]],
        sources: dict[int, SourceSums],
        share: Tensor,
        error: Tensor,
    ) -> dict[int, Counted]:
        """Count the negatives of each source whose part of its share, (n, sources), exceeds eps."""
        asked, found = dict[int, Question](), dict[int, Counted]()
        for place, (source, own) in enumerate(sources.items()):
            asked[source] = Question(share[:, place], own.log2, error, self.eps)
        for view in {id(of.of.view): of for of, _ in sums.values()}.values():
            mine = {k: source for source, (of, k) in sums.items() if of is view}
            questions = []
            for k in view.of.view.directions:
                at = view.of.view.sides[k].place
                each = asked[mine[k]]
                questions.append(Question(each.share[at], each.log2[at], each.error[at], self.eps))
            (answers,) = run(view.of.view, [_Counts(view, [questions])])
            for k, source in mine.items():
                unsorted, answer = view.of.view.sides[k].unsorted, answers[0][k]
                found[source] = Counted(unsorted(answer.number), unsorted(answer.uncertain), unsorted(answer.mass))
        found[OWN_HARD] = self._count_own(columns, asked[OWN_HARD])
        return found

    def _count_own(self, columns: ColumnViews, asked: Question) -> Counted:
        """Count the own hard negatives, whose scores are known in float64."""
        own, number = columns.own, len(columns.known)
        exponent = own.score * (self.scale[OWN_HARD] * LOG2E) - asked.log2[own.query]
        share = asked.share[own.query] * exponent.exp2()
        above = share > self.eps
        near = (share - self.eps).abs() <= self.eps * torch.expm1(asked.error[own.query])
        certain, doubtful = (torch.bincount(own.query[some], minlength=number) for some in (above, near & (share > 0)))
        mass = torch.zeros_like(asked.share).index_add(0, own.query, torch.where(above, share, 0))
        return Counted(certain, doubtful, mass)

    def _reweigh_uncertain(self, columns: ColumnViews, result: Found) -> None:
        """Reweigh the queries with uncertain counts from all of their scores in float64, unless they are many."""
        places = ((result["uncertain"] + result["relative_uncertain"]) > 0).nonzero().flatten()
        width = sum(int(np.diff((view.rows, view.columns)[1 - k]).max()) for view, k in columns.views.values())
        most = len(columns.known) // RECHECKED_QUERIES + 256
        if columns.first.blocks > 1:
            scored = len(columns.known) * width
            most = min(most, (scored // EXACT_SCORE_COST + 2**13) // width)
        for some in places[: most if len(places) > most else None].split(max(1, SCORES_AT_ONCE // width)):
            if not len(some):
                continue
            pairs = wide(columns, some)
            found, unit = self.loss.weight(pairs), self.loss.unit(pairs)
            equal = bounds.equal(columns.first.exactness, max(self.scale), pairs.scores.shape[1])
            part = statistics.per_query(found, unit, pairs, self.eps, equal=equal)
            part |= statistics.by_source(found, unit, pairs, self.eps)
            for name in result.keys() & part.keys():
                result[name][some] = part[name].to(result[name].dtype)


def wide(columns: ColumnViews, some: Tensor) -> Pairs:
    """All columns of some queries, by their positions, in float64, each with its source."""
    values, positive, negative, source = [], [], [], []

    def add(score: Tensor, is_positive: Tensor, is_negative: Tensor, kind: int) -> None:
        values.append(score)
        positive.append(is_positive)
        negative.append(is_negative)
        source.append(torch.full_like(is_positive, kind, dtype=torch.int8))

    norm = columns.first.sides[0].norm[placed(columns.first, 0)[some]]
    for kind, (view, k) in columns.views.items():
        found = dense_rows(view, k, placed(view, k)[some])
        add(
            found.scores, found.positive if kind == IN_BATCH else torch.zeros_like(found.positive), found.negative, kind
        )
    add(columns.back[some], columns.again[some], torch.zeros_like(columns.again[some]), CANDIDATE_QUERY)
    own, number = columns.own, torch.bincount(columns.own.query, minlength=len(columns.known))
    at = (number.cumsum(0) - number)[some, None] + torch.arange(int(number.max()), device=some.device)
    there = torch.arange(int(number.max()), device=some.device) < number[some, None]
    score = own.score[at.clamp(max=max(0, len(own.score) - 1))] if len(own.score) else there.double()
    add(torch.where(there, score, 0), torch.zeros_like(there), there, OWN_HARD)
    parts = (torch.cat(each, dim=1) for each in (values, positive, negative))
    return Pairs(*parts, query_norm=norm, source=torch.cat(source, dim=1))
