"""Views of the candidates of a stack of batches by their source: the batch, hard negatives, further directions.

In: embeddings with own hard negatives, batches, and the directions that a loss reads. Out: `ColumnViews`: for each
source a view in which every query has exactly its negatives of that source, and the own hard negatives, which are few,
as a list of pairs. A sum over all columns of a query is then the sum over the views and the list; no matrix is stored.
`cocos.sources` defines the sources, and `cocos.scores.pairs` makes the same columns as one matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cocos.embeddings import Embeddings
from cocos.embeddings.batches import Batch
from cocos.embeddings.similarities import SYMMETRIC
from cocos.embeddings.sources import (
    CANDIDATE_CANDIDATE,
    CANDIDATE_QUERY,
    DIRECTIONS,
    GTE_DIRECTIONS,
    IN_BATCH,
    OTHERS_HARD,
    QUERY_QUERY,
    SOURCES,
)
from cocos.engine import stack
from cocos.engine.skipped import Skipped
from cocos.engine.view import View


@dataclass(frozen=True, eq=False)
class OwnHard:
    """Own hard negatives: pairs of a query and a candidate that it names, (P,) each, sorted by query.

    Args:
        query: position in the order of the batches.
        score: float64.
    """

    query: Tensor
    score: Tensor


@dataclass(frozen=True, eq=False)
class ColumnViews:
    """The columns of the queries of a stack, by source; queries are in the order of the batches.

    Args:
        views: source -> view and its direction in which the queries ask.
        own: the own hard negatives.
        known: (n,) whether a query has a positive, without which it has no columns of its positive.
        back: (n, B) float64 scores of each query with its first positive, in the direction `candidate-query`, and
        again: (n, B) whether there is such a column; B = 0 without that direction.
    """

    views: dict[int, tuple[View, int]]
    own: OwnHard
    known: Tensor
    back: Tensor
    again: Tensor

    @property
    def first(self) -> View:
        """The view of the batch, which has the positives."""
        return self.views[IN_BATCH][0]


def fits(embeddings: Embeddings, batches: Sequence[Batch], metric: str, directions: Sequence[str]) -> bool:
    """Whether there are views of all columns: of two sets of rows, and positives that are no hard negatives' rows.

    A further direction is scored by `cocos.sources.others` alone until it has a view in `columns`, and is named here.
    """
    metrics = SYMMETRIC if len(directions) > 1 else stack.PRODUCT_METRICS
    matched = all(batch.paired or not batch.extra for batch in batches)
    plain = not (embeddings.shared or embeddings.proxies or embeddings.is_queued)
    return matched and metric in metrics and plain and set(directions) <= set(GTE_DIRECTIONS)


@dataclass(frozen=True, eq=False)
class Stacked:
    """Batches of one direction, as rows of one long matrix.

    With `ungrouped`, rows of one group are negatives of each other; the `options` are those of `cocos.engine.view`.
    """

    embeddings: Embeddings
    batches: tuple[Batch, ...]
    ungrouped: bool
    options: dict[str, Any]

    @cached_property
    def queries(self) -> Tensor:
        """Rows of the queries, (n,)."""
        return torch.cat([batch.query_index for batch in self.batches]).long()

    @cached_property
    def listed(self) -> list[Tensor]:
        """Query rows of each batch where queries are scored: those that the flipped batch has as candidates."""
        return [batch.flip().partners for batch in self.batches]

    @cached_property
    def candidates(self) -> Tensor:
        """Rows of all candidates, (c,)."""
        return torch.cat([batch.candidate_index for batch in self.batches]).long()

    @cached_property
    def sizes(self) -> Tensor:
        """Queries, candidates of the batch, and hard negatives beside them, of each batch, (batches, 3) on the host."""
        return torch.tensor([(b.sizes[0], b.sizes[1] - b.extra, b.extra) for b in self.batches])

    def block(self, number: Tensor) -> Tensor:
        """Batch number of each row of one kind, given how many of them each batch has."""
        return torch.repeat_interleave(torch.arange(len(number)), number).to(self.queries.device)

    @cached_property
    def named(self) -> tuple[Tensor, Tensor]:
        """Own hard negatives that were drawn: query, and position among all candidates, (P,) each, sorted by query."""
        negatives, rows = self.embeddings.negatives, len(self.embeddings.candidate)
        if negatives is None:
            return (self.queries[:0],) * 2
        of_query, of_candidate = self.block(self.sizes[:, 0]), self.block(self.sizes[:, 1:].sum(dim=1))
        key, order = (of_candidate * rows + self.candidates).sort(stable=True)
        wanted = negatives.to(key.device)[self.queries].long()
        asked = (of_query[:, None] * rows + wanted).flatten()
        first = torch.searchsorted(key, asked)
        number = torch.where(wanted.flatten() >= 0, torch.searchsorted(key, asked, right=True) - first, 0)
        every = torch.repeat_interleave(torch.arange(len(asked), device=key.device), number)
        at = first[every] + torch.arange(len(every), device=key.device) - (number.cumsum(0) - number)[every]
        both = (every // wanted.shape[1] * len(self.candidates) + order[at]).unique()  # a row may be named twice
        return both // len(self.candidates), both % len(self.candidates)

    def places(self, kind: int) -> tuple[Tensor, Tensor]:
        """Own hard negatives among the candidates of the batch (1), or beside them (2): query, and position there."""
        query, at = self.named
        sizes = self.sizes.to(at.device)
        every, mine = sizes[:, 1:].sum(dim=1), sizes[:, kind]
        block = self.block(self.sizes[:, 1:].sum(dim=1))[at]
        local = at - (every.cumsum(0) - every)[block] - (sizes[block, 1] if kind == 2 else 0)
        some = (local >= 0) & (local < mine[block])
        return query[some], (local + (mine.cumsum(0) - mine)[block])[some]

    def asked(self, embeddings: Embeddings, index: Sequence[tuple[Tensor, Tensor]]) -> View:
        """View of some rows of both sides; rows of one group are not negatives of each other."""
        return stack.view(embeddings, [Batch(*each, paired=False) for each in index], **self.options)

    def sides(self, query: Tensor, candidate: Tensor, groups: tuple[Tensor, Tensor]) -> Embeddings:
        """Embeddings of one direction with other rows and groups on both sides."""
        values = {"query": query, "candidate": candidate, "query_group": groups[0], "candidate_group": groups[1]}
        kept = {"_kept": {}} if self.ungrouped else {}  # values derived from the groups of one stack fit no other
        return self.embeddings.single("q2c").unchecked(**values | kept | {"negatives": None, "shared": False})

    def of_batch(self, *, two: bool) -> View:
        """View of the candidates of the batches; in two directions where candidates ask as well."""
        cut = [
            replace(b, candidate_index=b.candidate_index[: self.asks(b)], extra=0, beside=None, turned=None)
            for b in self.batches
        ]
        names = ("q2c", "c2q") if two else ("q2c",)
        same_group = "negative" if self.ungrouped else "ignore"
        return stack.view(self.embeddings.unchecked(directions=names), cut, same_group=same_group, **self.options)

    @staticmethod
    def asks(batch: Batch) -> int:
        """Number of candidates of a batch that are not hard negatives beside it."""
        return len(batch.candidate_index) - batch.extra

    def hard(self) -> View:
        """View of the hard negatives beside the batches."""
        e = self.embeddings
        groups = e.query_group, e.candidate_group
        if self.ungrouped:
            groups = torch.zeros_like(groups[0]), torch.ones_like(groups[1])
        rows = [(b.query_index, b.candidate_index[self.asks(b) :]) for b in self.batches]
        return self.asked(self.sides(e.query, e.candidate, groups), rows)

    def queries_for_queries(self) -> View:
        """View of the queries as candidates of each query."""
        query, group = self.embeddings.query, self.embeddings.query_group
        group = torch.arange(len(query), device=group.device) if self.ungrouped else group
        rows = [(b.query_index, asked) for b, asked in zip(self.batches, self.listed, strict=True)]
        return self.asked(self.sides(query, query, (group, group)), rows)

    def queries_for_positives(self, partner: Tensor) -> View:
        """View of the queries as candidates of the positive of each query, (n,) rows."""
        e, index = self.embeddings, partner.split(self.sizes[:, 0].tolist())
        if self.ungrouped:  # a positive leaves out the query that it belongs to: that query's row is its group
            places = torch.arange(len(partner), device=partner.device).split(self.sizes[:, 0].tolist())
            ids = torch.arange(len(e.query), device=partner.device)
            return self.asked(
                self.sides(e.candidate[partner], e.query, (self.queries, ids)),
                list(zip(places, self.listed, strict=True)),
            )
        groups = e.candidate_group, e.query_group
        return self.asked(self.sides(e.candidate, e.query, groups), list(zip(index, self.listed, strict=True)))

    def candidates_for_positives(self, partner: Tensor) -> View:
        """View of the candidates as candidates of the positive of each query, without its own hard negatives."""
        candidate, group = self.embeddings.candidate, self.embeddings.candidate_group
        group = torch.arange(len(candidate), device=group.device) if self.ungrouped else group
        index = partner.split(self.sizes[:, 0].tolist())
        rows = [b.candidate_index for b in self.batches]
        view = self.asked(self.sides(candidate, candidate, (group, group)), list(zip(index, rows, strict=True)))
        return without(view, *self.named)[0]

    def partners(self, first: View) -> tuple[Tensor, Tensor, Tensor]:
        """Row of the first positive of each query, 0 without any; whether there is one; and its float64 score."""
        side, other = first.sides
        query, place = first.positives(0, 0, len(side))
        none = len(other)
        at = torch.full((len(side),), none, device=query.device).scatter_reduce(0, query, other.place[place], "amin")
        at, known = side.unsorted(at), side.unsorted(at) < none
        positions = placed(first, 1)[torch.where(known, at, 0)]
        score = torch.where(known, first.exact(placed(first, 0), positions), 0)
        return torch.where(known, other.order[positions], 0), known, score

    def repeated(self, known: Tensor) -> Tensor:
        """How often each query is listed among the queries of its batch, 0 where it has no positive, (n,)."""
        rows, sizes = len(self.embeddings.query), torch.tensor([len(each) for each in self.listed])
        there = (self.block(sizes) * rows + torch.cat(self.listed)).sort().values
        key = self.block(self.sizes[:, 0]) * rows + self.queries
        number = torch.searchsorted(there, key, right=True) - torch.searchsorted(there, key)
        return torch.where(known, number, 0)


def placed(view: View, k: int) -> Tensor:
    """Place of each row of a side, by its position in the order of the batches, (n,)."""
    place = view.sides[k].place
    return torch.empty_like(place).index_copy_(0, place, torch.arange(len(place), device=place.device))


def without(view: View, query: Tensor, position: Tensor) -> tuple[View, OwnHard]:
    """Skip pairs of a view, by positions; return the negatives among them too, with their scores."""
    row, column = placed(view, 0)[query], placed(view, 1)[position]
    side = view.sides[0]
    some = (column < side.first[row]) | (column >= side.last[row])
    if not bool(some.any()):
        return view, OwnHard(query[:0], side.norm[:0])
    row, column = row[some], column[some]
    made = replace(view, skipped=Skipped.of(row, column, len(side)))
    return made, OwnHard(query[some], view.exact(row, column))


def columns(
    embeddings: Embeddings,
    batches: Sequence[Batch],
    *,
    directions: Sequence[str] = DIRECTIONS[:1],
    same_group: str = "ignore",
    once: bool = True,
    **options: Any,
) -> ColumnViews:
    """Make the views of a stack of batches, seen from its queries.

    Args:
        embeddings: the whole set, with the queries as its query side.
        batches: for which `fits` holds, of pairs or not.
        directions: some of `cocos.sources.DIRECTIONS`, the first one first.
        same_group: as in `cocos.engine.view`.
        once: whether one view may serve query-candidate and candidate-query, whose products are the same.
        **options: metric, product and together, as there.
    """
    paired = batches[0].paired
    made = Stacked(embeddings, tuple(batches), paired and same_group == "negative", options)
    back, near = SOURCES[CANDIDATE_QUERY] in directions, made.places(1)
    two = back and once and paired and not made.ungrouped and not len(near[0])
    two = two and all(batch.turned is None for batch in batches)
    first, own = without(made.of_batch(two=two), *near)
    views = {IN_BATCH: (first, 0)}
    if int(made.sizes[:, 2].sum()):
        behind, beside = without(made.hard(), *made.places(2))
        views[OTHERS_HARD] = behind, 0
        order = torch.cat([own.query, beside.query]).argsort(stable=True)
        own = OwnHard(*(torch.cat(each)[order] for each in ((own.query, beside.query), (own.score, beside.score))))
    partner, known, score = made.partners(first)
    if SOURCES[QUERY_QUERY] in directions:
        views[QUERY_QUERY] = made.queries_for_queries(), 0
    if back:
        views[CANDIDATE_QUERY] = (first, 1) if two else (made.queries_for_positives(partner), 0)
    if SOURCES[CANDIDATE_CANDIDATE] in directions:
        views[CANDIDATE_CANDIDATE] = made.candidates_for_positives(partner), 0
    number = made.repeated(known) if back else torch.zeros_like(partner)
    again = torch.arange(int(number.max()), device=number.device) < number[:, None]
    return ColumnViews(views, own, known, score[:, None].expand(again.shape), again)
