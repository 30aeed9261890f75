"""Seeded training batches, drawn from embeddings that were computed once.

A batch consists of row numbers of queries and candidates that are scored together. It is drawn by pairs, with each row
of the larger side once in a pass; by groups, queries with their candidates; by classes, in a labelled set; or as
samples against all class proxies. Hard negatives are drawn with their queries.
"""

import logging
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError, Unfit, rows
from cocos.base.ranges import Range, number, one_of, whole
from cocos.embeddings.embeddings import Embeddings

__all__ = ["Batch", "Plan", "draw", "plan"]

logger = logging.getLogger(__name__)
SAMPLINGS = ("pairs", "groups")
COPY_RULES = ("once", "keep")  # a row in several pairs of a batch is one candidate, or one for each pair
WHOLE_SET = "all"  # the batch size that puts the whole set into one batch
SAMPLES_PER_CLASS = 4  # in a batch of a labelled set, the m of m-per-class samplers
SAME_GROUP = ("ignore", "negative")  # other rows of a query's group in a batch of pairs
OPTION_RANGES = {
    "sample": one_of(SAMPLINGS),
    "copies": one_of(COPY_RULES),
    "same_group": one_of(SAME_GROUP),
    "dtype": one_of(("float32", "float64")),
    "batch_size": Range("an integer of at least 2, or all", whole(2).holds),  # a batch of one has no negative
    "batches": whole(1, 10**7),
    "per_group": whole(1),
    "seed": whole(0, 2**63 - 1),
    "eps": number("a share: finite and at least 0", lambda value: 0 <= value < math.inf),
}


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows that are scored together, in both directions.

    Args:
        query_index: (q,) rows of the queries.
        candidate_index: (c,) rows of the candidates.
        paired: row i of the batch is one positive pair, and the only positive of its query. Otherwise all candidates of
            the query's group are its positives.
        extra: number of hard negatives and rows of a queue at the end of the candidates. They are candidates of all
            queries, and not queries of the flipped batch.
        turned: the batch of the other direction. None: the rows exchanged, without `extra`.
        repeated: number of repeated queries, and of repeated candidates, removed from the sampled pairs.

    Examples:
        >>> batch = cocos.sampling.Batch(torch.tensor([2, 0]), torch.tensor([5, 1]), paired=True)
        >>> batch.sizes, batch.flip().query_index
        ((2, 2), tensor([5, 1]))
    """

    query_index: Tensor
    candidate_index: Tensor
    paired: bool
    extra: int = 0
    turned: "Batch | None" = None
    repeated: tuple[int, int] = (0, 0)

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of queries and candidates."""
        return len(self.query_index), len(self.candidate_index)

    @property
    def partners(self) -> Tensor:
        """Rows of the candidates without the extra ones."""
        return self.candidate_index[: len(self.candidate_index) - self.extra]

    @property
    def square(self) -> bool:
        """Whether both directions have the same rows, so that one visit of the scores serves both."""
        return self.extra == 0 and self.turned is None

    def flip(self) -> "Batch":
        """Return the batch of the other direction. Twice is the identity."""
        turned = self.turned or Batch(self.partners, self.query_index, self.paired, repeated=self.repeated[::-1])
        return turned if self.square else replace(turned, turned=replace(self, turned=None))

    def to(self, device: torch.device | str) -> "Batch":
        """Move the row numbers to another device."""
        if self.query_index.device == torch.device(device):
            return self
        query_index, candidate_index = self.query_index.to(device), self.candidate_index.to(device)
        turned = self.turned and self.turned.to(device)
        return replace(self, query_index=query_index, candidate_index=candidate_index, turned=turned)

    def with_candidates(self, candidates: Tensor, queries: Tensor) -> "Batch":
        """Add rows of the candidates, and rows of the queries as candidates of the other direction."""
        if not len(candidates) and not len(queries):
            return self
        batch, turned = (
            replace(way, candidate_index=torch.cat([way.candidate_index, index]), extra=way.extra + len(index))
            for way, index in ((self, candidates), (self.flip(), queries))
        )
        return replace(batch, turned=replace(turned, turned=None))


def check_pairs(embeddings: Embeddings, batch: Batch) -> None:
    """Reject a batch of pairs if row i of its queries and row i of its candidates have different groups."""
    if not batch.paired:
        return
    query, candidate = batch.query_index, batch.partners
    if len(query) != len(candidate):
        raise InputError(f"batch: paired, with {len(query)} queries and {len(candidate)} candidates, expected as many")
    query_group, candidate_group = embeddings.query_group[query], embeddings.candidate_group[candidate]
    if not torch.equal(query_group, candidate_group):
        row = int((query_group != candidate_group).nonzero()[0])
        raise InputError(
            f"batch: row {row} pairs query {query[row]} of group {query_group[row]} with candidate {candidate[row]} of "
            f"group {candidate_group[row]}, expected one group"
        )


def select(embeddings: Embeddings, batch: Batch) -> tuple[Embeddings, Batch]:
    """Select the rows of one direction of a batch, in float64, and number the rows of the batch accordingly."""
    query, candidate = batch.query_index, batch.candidate_index
    if embeddings.shared:
        index = torch.cat([query, candidate]).unique()
        selected = embeddings.rows(index, index)
        query, candidate = torch.searchsorted(index, query), torch.searchsorted(index, candidate)
    else:
        selected = embeddings.rows(query, candidate)
        query, candidate = (torch.arange(number, device=query.device) for number in batch.sizes)
    return selected.to(dtype=torch.float64), replace(batch, query_index=query, candidate_index=candidate, turned=None)


@dataclass(frozen=True, eq=False)
class Plan:
    """The batches of one run, and notes on how they were drawn.

    Args:
        batches: in the order in which they are drawn.
        sample: `pairs` or `groups`.
        batch_size: rows of a full batch.
        notes: sentences, including `undrawn`.
        undrawn: the notes on rows that are in none of the batches of a pass.
        copies: one of `COPY_RULES`.
        coverage: the note on hard negatives that are in none of these batches; empty if all are drawn.

    Examples:
        >>> plan = cocos.sampling.plan(cocos.Embeddings(torch.eye(4), 2 * torch.eye(4)), batch_size=2)
        >>> plan.batch_size, len(plan.batches)
        (2, 2)
    """

    batches: Sequence[Batch]
    sample: str
    batch_size: int
    notes: tuple[str, ...] = ()
    undrawn: tuple[str, ...] = ()
    copies: str = "keep"
    coverage: str = ""

    def only(self, part: slice) -> "Plan":
        """Keep a slice of the batches, without the note on hard negatives, which describes all batches."""
        if part.start >= len(self.batches):
            raise InputError(
                f"batches: {part.start}:, expected less than {len(self.batches)}, the number of batches of one pass; "
                "give both ends for batches of further passes"
            )
        notes, undrawn = (
            tuple(note for note in lines if note != self.coverage) for lines in (self.notes, self.undrawn)
        )
        return replace(self, batches=self.batches[part], notes=notes, undrawn=undrawn)


def read_slice(batches: Any) -> slice | None:
    """Read a slice of the drawn batches, `A:B` or a Python slice; return None for anything else.

    Examples:
        >>> cocos.sampling.read_slice("40:80"), cocos.sampling.read_slice(slice(3)), cocos.sampling.read_slice(40)
        (slice(40, 80, None), slice(0, 3, None), None)
    """
    if not isinstance(batches, str | slice):
        return None
    error = InputError(f"batches: {str(batches)[:40]!r}, expected a number, or a slice A:B with 0 <= A < B, like 40:80")
    if isinstance(batches, str):
        match = re.fullmatch(r"(\d{0,15}):(\d{0,15})", batches.strip(), re.ASCII)
        if match is None:
            raise error
        batches = slice(*(int(text) if text else None for text in match.groups()))
    start, stop = batches.start or 0, batches.stop
    integers = all(isinstance(end, Integral) for end in (start, stop) if end is not None)
    if not integers or batches.step not in {None, 1} or start < 0 or (stop is not None and start >= stop):
        raise error
    return slice(start, stop)


def check_options(**options: Any) -> None:
    """Reject options that are out of range, before anything is encoded; None is allowed."""
    for name, value in options.items():
        is_whole_set = name == "batch_size" and value == WHOLE_SET
        if value is not None and not is_whole_set and not OPTION_RANGES[name].holds(value):
            raise InputError(f"{name.replace('_', ' ')}: {value!r}, expected {OPTION_RANGES[name].words}")


def draw(source: Embeddings, **options: Any) -> tuple[Batch, ...]:
    """Return the batches of `plan` with the same options: row numbers, as every measure draws them.

    Examples:
        >>> batches = cocos.embeddings.draw(cocos.Embeddings(torch.eye(4), torch.eye(4) + 1), batch_size=2)
        >>> sorted(torch.cat([batch.query_index for batch in batches]).tolist())
        [0, 1, 2, 3]
    """
    return tuple(plan(source, **options).batches)


def plan(
    embeddings: Embeddings,
    *,
    sample: str = "pairs",
    batch_size: int | str = 128,
    batches: int | None = None,
    per_group: int | None = None,
    seed: int = 0,
    copies: str = "once",
    matched: bool = False,
    hard: bool = True,
) -> Plan:
    """Draw the batches of a run: row numbers, from a generator on the CPU, so that they are the same on every device.

    Args:
        embeddings: the frozen embeddings of the training set.
        sample: `pairs` draws each row of the larger side once, with a random row of the other side, each of which is
            drawn at least once (batch size = rows of the larger side). A seed draws the same pairs if the sides are
            exchanged. `groups` draws queries, each with its candidates (batch size = queries), or, in a labelled set,
            classes x samples (batch size = samples). Samples against proxies are drawn one by one in both cases.
        batch_size: at least 2; `all`, or a size above the whole set, makes one batch.
        batches: their number; None: one pass over the training set, including the last, partial batch. Further passes
            continue with the next shuffle.
        per_group: `groups`: candidates of a query (None: all), or samples of a class (None: 4, or as many as
            fill the batch if there are few classes).
        seed: of the generator.
        copies: of a row in several pairs of a batch, such as an image with two of its captions. It is a query for each
            pair. `once`: it is one candidate of the batch; `keep`: one for each pair, as in many loaders.
        matched: pair row i of the queries with row i of the candidates, for losses that read nothing else.
        hard: draw hard negatives with their queries.

    Raises:
        Unfit: a query without any positive, or no negatives at all.

    Examples:
        Three captions ask for two images, or for three, if an image occurs once for each of its captions:

        >>> images = cocos.Embeddings(torch.eye(3)[:2], torch.eye(3), [0, 1], [0, 0, 1])
        >>> [cocos.sampling.plan(images, copies=rule).batches[0].flip().sizes for rule in cocos.sampling.COPY_RULES]
        [(3, 2), (3, 3)]
    """
    check_options(sample=sample, batch_size=batch_size, batches=batches, per_group=per_group, seed=seed, copies=copies)
    queued, embeddings = embeddings, embeddings.without_queue()
    copies = "keep" if matched else copies
    _check_set(embeddings, sample, batch_size, per_group)
    groups, pairing = embeddings.groups, None
    if sample == "pairs" and not embeddings.proxies:
        pairing = Pairing.of(embeddings, copies=copies == "keep")
        number, unit = len(pairing.large), "pairs"
    else:
        # A sample is not a positive of itself.
        has_positive = groups.queries[groups.query] > 1 if embeddings.shared else groups.candidates[groups.query] > 0
        number, unit = int(has_positive.sum()), "samples" if embeddings.shared or embeddings.proxies else "queries"
    size = number if batch_size == WHOLE_SET else min(int(batch_size), number)
    negatives = (embeddings.negatives, embeddings.candidate_negatives) if hard else (None, None)
    negatives = tuple(None if index is None else index.cpu() for index in negatives)
    generator = torch.Generator().manual_seed(seed)

    def draw_pass() -> list[tuple[Batch, int]]:
        """Draw the batches in which a query has a negative, each with the rows that count towards its size."""
        if pairing is not None:
            sized = pairing.draw(size, generator)
        elif embeddings.proxies:
            proxies = torch.arange(len(embeddings.candidate))  # all of them are candidates of every batch
            parts = torch.randperm(number, generator=generator).split(size)
            sized = ((Batch(index, proxies, paired=False), len(index)) for index in parts)
        elif embeddings.shared:
            sized = _draw_classes(embeddings, size, number, per_group, generator)
        else:
            sized = _draw_groups(embeddings, size, per_group, generator)
        if any(index is not None for index in negatives):
            sized = ((_with_hard_negatives(batch, *negatives), rows_drawn) for batch, rows_drawn in sized)
        candidate_group = embeddings.candidate_group.cpu()
        return [pair for pair in sized if embeddings.proxies or _has_negatives(pair[0], candidate_group)]

    first_pass = draw_pass()
    if not first_pass:
        raise InputError(
            f"batch size: {batch_size}: no batch holds two groups, so no query has a negative; take a larger one"
        )
    drawn_batches = [batch for batch, _ in first_pass]
    while batches is not None and len(drawn_batches) < batches:
        drawn_batches += [batch for batch, _ in draw_pass()]
    drawn_batches = drawn_batches[:batches]

    notes, undrawn = [], []
    if batch_size != WHOLE_SET and int(batch_size) > number:
        notes.append(f"batch size {batch_size} is above the {number} {unit} there are: all of them make one batch")
    if embeddings.shared and number < len(embeddings.query):
        use = "drawn only as negatives" if size == number else "not drawn"
        undrawn.append(f"{len(embeddings.query) - number} samples are alone in their class: {use}")
    orphans = groups.queries[groups.candidate] == 0
    if negatives[0] is not None:
        orphans[negatives[0][negatives[0] >= 0]] = False
    if orphans.any() and not embeddings.proxies:
        undrawn.append(f"{int(orphans.sum())} candidates have no query and are not drawn")
    if rest := number - sum(rows_drawn for _, rows_drawn in first_pass):
        undrawn.append(f"not drawn in a pass, for want of a negative in their batch: {rest} {unit}")
    coverage = _describe_coverage(embeddings, drawn_batches, hard=hard)
    undrawn += [coverage] if coverage else []
    for note in (*notes, *undrawn):
        logger.info("note: %s", note)
    moved = [batch.to(embeddings.query.device) for batch in drawn_batches]
    if queued.is_queued:
        moved = [with_queues(batch, queued) for batch in moved]
    return Plan(tuple(moved), sample, size, (*notes, *undrawn), tuple(undrawn), copies, coverage)


def _check_set(embeddings: Embeddings, sample: str, batch_size: int | str, per_group: int | None) -> None:
    """Reject options that do not fit the embeddings, and embeddings from which nothing can be drawn."""
    if embeddings.shared and per_group == 1:
        raise InputError("per group: 1, expected at least 2 samples of a class")
    if embeddings.shared and batch_size != WHOLE_SET and int(batch_size) < 2 * (per_group or 2):
        raise InputError(f"batch size: {batch_size}, expected at least {2 * (per_group or 2)}: samples of two classes")
    if per_group is not None and (embeddings.proxies or sample == "pairs"):
        raise InputError(
            f"per group: {per_group}, but only batches of groups have it; add --sample groups or leave it out"
        )
    if sample == "pairs" and embeddings.shared:
        raise InputError("sample: 'pairs' needs two sides; a labelled set is drawn by class, with 'groups'")
    groups = embeddings.groups
    if embeddings.shared:
        classes = int((groups.queries > 1).sum())
        if classes < 2 and len(groups.queries) > 1:
            raise Unfit(
                f"{classes} of {len(groups.queries)} classes have two samples, expected at least 2 such classes"
            )
    else:
        lonely = groups.candidates[groups.query] == 0
        if embeddings.candidate_negatives is not None:  # these are drawn as candidates of the other direction
            lonely[embeddings.candidate_negatives[embeddings.candidate_negatives >= 0].cpu()] = False
        if lonely_rows := lonely.nonzero().flatten().tolist():
            ids = ", ".join(map(str, embeddings.query_group[lonely_rows[:5]].tolist()))
            raise Unfit(
                f"query {rows(lonely_rows)}: no positive (no candidate of group {ids}). Remove them or add positives"
            )
    if int((groups.candidates > 0).sum()) < 2:
        number = len(embeddings.candidate)
        raise Unfit(f"no query has any negative: {number} candidates of one group, expected at least two groups")


def _has_negatives(batch: Batch, candidate_group: Tensor) -> bool:
    """Return whether a query may have a negative: a hard one, another pair, or a candidate of another group."""
    if batch.paired and batch.square:
        return len(batch.query_index) > 1
    if batch.extra or batch.flip().extra:
        return True
    group = candidate_group[batch.candidate_index]
    return bool((group != group[0]).any())


def _distinct(index: Tensor) -> Tensor:
    """Remove repeated rows, (n,), in order of first appearance."""
    return torch.tensor(list(dict.fromkeys(index.tolist())), dtype=torch.int64)


def _with_hard_negatives(batch: Batch, negatives: Tensor | None, candidate_negatives: Tensor | None) -> Batch:
    """Add the hard negatives of the queries, (Q, K), and of the candidates, (C, K), that the batch lacks."""
    missing = []
    for index, queries, candidates in (
        (negatives, batch.query_index, batch.candidate_index),
        (candidate_negatives, batch.candidate_index, batch.query_index),
    ):
        listed = queries[:0] if index is None else _distinct(index[queries].flatten())
        missing.append(listed[(listed >= 0) & ~torch.isin(listed, candidates)])
    return batch.with_candidates(*missing)


def with_queues(batch: Batch, embeddings: Embeddings) -> Batch:
    """Add the rows of queues as further candidates of both directions."""
    masks = embeddings.queue, embeddings.query_queue
    return batch.with_candidates(
        *(batch.query_index[:0] if mask is None else mask.nonzero().flatten() for mask in masks)
    )


def _describe_coverage(embeddings: Embeddings, batches: Sequence[Batch], *, hard: bool) -> str:
    """Return a note on the hard negatives that are in no batch; empty if all are drawn."""
    negatives = embeddings.candidate_negatives if embeddings.negatives is None else embeddings.negatives
    if negatives is None:
        return ""
    is_drawn, named = torch.zeros(len(negatives), dtype=torch.bool), (negatives >= 0).cpu()
    if hard:
        ways = (batch.flip() if embeddings.negatives is None else batch for batch in batches)
        is_drawn[torch.cat([way.query_index for way in ways])] = True
    reason = "the queries that name them are not" if hard else "the loss reads pairs, row by row"
    missing = int(named[~is_drawn].sum())
    return f"{missing} of {int(named.sum())} named hard negatives are not drawn: {reason}" if missing else ""


@dataclass(frozen=True, eq=False)
class Pairing:
    """Rows that can be drawn as pairs. Which of the two sides is called the query changes nothing.

    Args:
        flipped: the queries are the larger side.
        total: rows of the larger side, with and without a partner.
        large: (L,) rows of the larger side that have a partner.
        small: (S,) rows of the smaller side that have one.
        large_group: (L,) group of each row of the larger side, 0 to G - 1.
        small_group: (S,) likewise.
        paired: of both directions, whether the rows of a pair have the same place in a batch, because copies are kept
            or no candidate has several queries. Otherwise a batch has a candidate once, and its group as positives.
    """

    flipped: bool
    total: int
    large: Tensor
    small: Tensor
    large_group: Tensor
    small_group: Tensor
    paired: tuple[bool, bool]

    @classmethod
    def of(cls, embeddings: Embeddings, *, copies: bool) -> "Pairing":
        """Find the larger side; `copies` repeats a candidate for each of its pairs."""
        groups = embeddings.groups
        is_paired = (groups.queries > 0) & (groups.candidates > 0)
        number = is_paired.cumsum(0) - 1
        sides = []
        for group in (groups.query, groups.candidate):
            index = is_paired[group].nonzero().flatten()
            sides.append((index, number[group[index]]))
        queries, candidates = groups.queries[is_paired], groups.candidates[is_paired]
        paired = copies or bool((queries <= candidates).all()), copies or bool((candidates <= queries).all())
        flipped = _queries_are_larger(embeddings, len(sides[0][0]), len(sides[1][0]))
        (large, large_group), (small, small_group) = sides if flipped else sides[::-1]
        total = len(embeddings.query if flipped else embeddings.candidate)
        return cls(flipped, total, large, small, large_group, small_group, paired)

    def draw(self, size: int, generator: torch.Generator) -> Iterator[tuple[Batch, int]]:
        """Yield the batches of one pass over the larger side in random order, each with its rows of this side."""
        place = torch.full((self.total,), -1).index_copy_(0, self.large, torch.arange(len(self.large)))
        place = place[torch.randperm(self.total, generator=generator)]
        place = place[place >= 0]
        large, group = self.large[place], self.large_group[place]
        small, left_over, host = self._draw_partners(group, generator)
        counts = torch.bincount(host // size, minlength=-(-len(large) // size)).tolist()
        joins = (host // size).argsort(stable=True).split(counts)
        for rows_large, rows_small, ids, join in zip(
            large.split(size), small.split(size), group.split(size), joins, strict=True
        ):
            pairs = rows_large, rows_small
            if len(join):
                pairs = torch.cat([rows_large, large[host[join]]]), torch.cat([rows_small, left_over[join]])
            yield self._batch(*(pairs if self.flipped else pairs[::-1]), ids), len(rows_large)

    def _draw_partners(self, group: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Draw a partner for each row of the larger side, in the order of their groups, (L,).

        The partners in a group take turns: each is drawn before one of them is drawn again. Rows of the smaller side
        that are left over, in groups with more rows there, join the batch of a row of their group.

        Returns:
            The partners, (L,); the rows left over, (n,), and the place in (L,) of the row that each of them joins.
        """
        chance = torch.rand(len(group), generator=generator, dtype=torch.float64)[: len(self.small)]
        sizes, large_sizes = torch.bincount(self.small_group), torch.bincount(self.large_group)
        if len(group) == len(sizes):  # one partner to choose
            small = torch.empty_like(self.small).index_copy_(0, self.small_group, self.small)
            return small[group], small[:0], group[:0]
        order = chance.argsort()
        members = order[self.small_group[order].argsort(stable=True)]
        first, begin = sizes.cumsum(0) - sizes, large_sizes.cumsum(0) - large_sizes
        by_group = group.argsort(stable=True)
        turn = torch.empty_like(group).index_copy_(0, by_group, torch.arange(len(group)) - begin[group[by_group]])
        small = self.small[members[first[group] + turn % sizes[group]]]
        member_group = self.small_group[members]
        rank = torch.arange(len(members)) - first[member_group]
        extra = rank >= large_sizes[member_group]
        host = by_group[begin[member_group[extra]] + rank[extra] % large_sizes[member_group[extra]]]
        return small, self.small[members[extra]], host

    def _batch(self, query: Tensor, candidate: Tensor, group: Tensor) -> Batch:
        """Make a batch of pairs, (n,) rows of both sides; `group` has the groups of the rows of the larger side."""
        if all(self.paired):
            return Batch(query, candidate, paired=True)
        if any(self.paired) and len(group.unique()) == len(query):  # both directions have the same rows
            return Batch(query, candidate, paired=self.paired[0])
        queries, candidates = _distinct(query), _distinct(candidate)
        repeated = len(query) - len(queries), len(candidate) - len(candidates)
        if not any(self.paired):
            return Batch(queries, candidates, paired=False, repeated=repeated)
        first = candidate if self.paired[0] else candidates
        second = query if self.paired[1] else queries
        turned = Batch(candidate, second, self.paired[1], repeated=(0, len(query) - len(second)))
        return Batch(query, first, self.paired[0], turned=turned, repeated=(0, len(candidate) - len(first)))


def _queries_are_larger(embeddings: Embeddings, queries: int, candidates: int) -> bool:
    """Return whether each query is drawn once, rather than each candidate: the larger side, else the later in order.

    Sides of one size are ordered by their groups, then by their vectors, so that a seed draws the same pairs if the
    sides are exchanged. `queries` and `candidates` are the numbers of rows that have a partner.
    """
    sizes = (queries, len(embeddings.query)), (candidates, len(embeddings.candidate))
    if sizes[0] != sizes[1]:
        return sizes[0] > sizes[1]
    query_key, candidate_key = embeddings.query_group, embeddings.candidate_group
    if torch.equal(query_key, candidate_key):
        if embeddings.groups.single:  # row i is the partner of row i in both cases
            return False
        pairs = zip(embeddings.query, embeddings.candidate, strict=True)
        query_key, candidate_key = next((pair for pair in pairs if not torch.equal(*pair)), (query_key, candidate_key))
    differ = (query_key != candidate_key).nonzero().flatten()
    return len(differ) > 0 and bool(query_key[differ[0]] > candidate_key[differ[0]])


def _draw_groups(
    embeddings: Embeddings, size: int, per_group: int | None, generator: torch.Generator
) -> Iterator[tuple[Batch, int]]:
    """Yield the batches of one pass: every query once, each with `per_group` (None: all) of its candidates."""
    groups = embeddings.groups
    members = groups.candidate.argsort(stable=True).split(groups.candidates.tolist())
    order = torch.randperm(len(groups.query), generator=generator)
    order = order[groups.candidates[groups.query[order]] > 0]
    for query_index in order.split(size):
        candidates = []
        for group in dict.fromkeys(groups.query[query_index].tolist()):
            index = members[group]
            if per_group is not None and len(index) > per_group:
                index = index[torch.randperm(len(index), generator=generator)[:per_group]].sort().values
            candidates.append(index)
        yield Batch(query_index, torch.cat(candidates), paired=False), len(query_index)


def _draw_classes(
    embeddings: Embeddings, size: int, number: int, per_class: int | None, generator: torch.Generator
) -> Iterator[tuple[Batch, int]]:
    """Yield the batches of one pass over a labelled set, up to `per_class` samples of a class at a time.

    In every round each class that has samples left gives some of them. A batch that would contain one class takes
    samples of another from the batch before it, if that can spare them. Samples of one large class that are then left
    alone are not drawn: they would have no negative. If a batch has the size of the set, `number`, samples that are
    alone in their class are added to it as candidates.
    """
    groups = embeddings.groups
    if size == number:
        has_positive = groups.queries[groups.query] > 1
        index = has_positive.nonzero().flatten()[torch.randperm(number, generator=generator)]
        yield Batch(index, torch.cat([index, (~has_positive).nonzero().flatten()]), paired=False), number
        return
    per_class = per_class or max(2, min(SAMPLES_PER_CLASS, size // 2), size // len(groups.queries))
    chunks = []
    for members in groups.query.argsort(stable=True).split(groups.queries.tolist()):
        shuffled = members[torch.randperm(len(members), generator=generator)]
        n = min(-(-len(shuffled) // per_class), len(shuffled) // 2)  # no sample is alone in its batch
        chunks.append([shuffled[i::n] for i in range(n)])
    batches: list[list[tuple[int, Tensor]]] = [[]]
    for turn in range(max(len(parts) for parts in chunks)):
        classes = [label for label, parts in enumerate(chunks) if turn < len(parts)]
        for i in torch.randperm(len(classes), generator=generator).tolist():
            chunk = chunks[classes[i]][turn]
            if batches[-1] and sum(len(samples) for _, samples in batches[-1]) + len(chunk) > size:
                batches.append([])
            batches[-1].append((classes[i], chunk))
    for before, last in pairwise(batches):
        label = last[0][0]
        if len({part[0] for part in before}) > 2 and all(part[0] == label for part in last):
            place = max(i for i, part in enumerate(before) if part[0] != label)
            if sum(len(chunk) for _, chunk in (*last, before[place])) <= size:
                last.append(before.pop(place))
    for parts in batches:
        if len({label for label, _ in parts}) > 1:
            index = torch.cat([chunk for _, chunk in parts])
            yield Batch(index, index, paired=False), len(index)
