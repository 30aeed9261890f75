"""Seeded training batches, drawn from embeddings that were computed once.

A batch is row numbers of queries and candidates that are seen together. It is drawn by pairs, every row of the larger
side once in a pass; by groups, queries with their candidates; by classes, in a labelled set; or as samples against all
class proxies. Own hard negatives are added to it.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count, islice, pairwise
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError, Unfit, rows
from cocos.embeddings.embeddings import Embeddings

__all__ = ["Batch", "Plan", "draw", "plan"]

logger = logging.getLogger(__name__)
SAMPLINGS = ("pairs", "groups")
COPY_RULES = ("once", "keep")  # whether a row that several pairs of a batch have is one candidate, or one for each
WHOLE_SET = "all"  # the batch size that puts the whole set into one batch
# Samples of one class in a batch of a labelled set, the m of m-per-class samplers.
SAMPLES_PER_CLASS = 4
# Rows of a batch that is as large as any set.
UNLIMITED = 2**40


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows that are seen together.

    Args:
        query_index: (q,) rows of the queries.
        candidate_index: (c,) rows of the candidates.
        paired: row i of the batch is one positive pair, and the only positive of its query. Otherwise all
            candidates of the query's group are its positives.
        extra: the last `extra` candidates are hard negatives of some query, drawn with it. They are candidates of all
            queries and no queries themselves, so that the flipped batch has none of them.
        beside: (b,) rows of the query side that the flipped batch has as `extra` candidates; None: no such rows.
        dropped: number of repeated queries, and of repeated candidates, removed from the sampled pairs.
        turned: the batch of the other direction, if it is not these rows exchanged: a row sampled with several
            partners is a query for each of them, but one candidate. None: the rows exchanged.

    Examples:
        >>> batch = cocos.sampling.Batch(torch.tensor([2, 0]), torch.tensor([5, 1]), paired=True)
        >>> batch.sizes
        (2, 2)
        >>> batch.flip().query_index
        tensor([5, 1])
    """

    query_index: Tensor
    candidate_index: Tensor
    paired: bool
    extra: int = 0
    beside: Tensor | None = None
    dropped: tuple[int, int] = (0, 0)
    turned: "Batch | None" = None

    @property
    def sizes(self) -> tuple[int, int]:
        """Queries and candidates."""
        return self.query_index.shape[0], self.candidate_index.shape[0]

    @property
    def partners(self) -> Tensor:
        """Rows of the candidates without the hard negatives beside them."""
        return self.candidate_index[: len(self.candidate_index) - self.extra]

    @property
    def square(self) -> bool:
        """Whether both directions have the same rows, so that one visit of the scores serves both."""
        return self.extra == 0 and self.beside is None and self.turned is None

    def to(self, device: torch.device | str) -> "Batch":
        """Move the row numbers to another device; the same batch where they are there."""
        if self.query_index.device == torch.device(device):
            return self
        beside = None if self.beside is None else self.beside.to(device)
        indices = {name: getattr(self, name).to(device) for name in ("query_index", "candidate_index")}
        return replace(self, **indices, beside=beside, turned=self.turned and self.turned.to(device))

    def flip(self) -> "Batch":
        """Swap the sides. Twice is the identity."""
        if self.turned is not None:
            return replace(self.turned, turned=replace(self, turned=None))
        beside = self.candidate_index[len(self.partners) :]
        candidate_rows, extra = self.query_index, 0
        if self.beside is not None:
            candidate_rows, extra = torch.cat([candidate_rows, self.beside]), len(self.beside)
        return Batch(
            self.partners, candidate_rows, self.paired, extra, beside if self.extra else None, self.dropped[::-1]
        )


def matches(embeddings: Embeddings, batch: Batch) -> None:
    """Refuse a batch of pairs if row i of its queries and row i of its candidates have different groups."""
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


def alone(embeddings: Embeddings, batch: Batch) -> tuple[Embeddings, Batch]:
    """Select the rows of a batch, in float64, and return them with the same batch of the new row numbers."""
    query, candidate = batch.query_index, batch.candidate_index
    if embeddings.shared:
        rows = torch.cat([query, candidate]).unique()
        part, query, candidate = embeddings.rows(rows, rows), *(torch.searchsorted(rows, i) for i in (query, candidate))
    else:
        part = embeddings.rows(query, candidate)
        query, candidate = (torch.arange(len(index), device=index.device) for index in (query, candidate))
    return part.to(dtype=torch.float64), replace(batch, query_index=query, candidate_index=candidate, turned=None)


@dataclass(frozen=True, eq=False)
class Plan:
    """The batches of one run, and notes on how they were drawn.

    Args:
        batches: in the order in which they are drawn.
        sample: `pairs` or `groups`.
        batch_size: rows of a full batch.
        notes: sentences.
        undrawn: the notes on rows that are in no batch of a pass, with their number.
        copies: `once`, a row of several pairs is one candidate of a batch, or `keep`, one for each of its pairs.
        coverage: the note on hard negatives that are in none of these batches; empty if all are drawn.

    Examples:
        >>> plan = cocos.sampling.plan(cocos.Embeddings(torch.eye(4), 2 * torch.eye(4)), batch_size=2)
        >>> plan.batch_size, len(plan.batches)
        (2, 2)
    """

    batches: Sequence[Batch]
    sample: str
    batch_size: int
    notes: tuple[str, ...] = field(default=())
    undrawn: tuple[str, ...] = field(default=())
    copies: str = "keep"
    coverage: str = ""

    def only(self, chosen: slice) -> "Plan":
        """Keep a slice of the batches, without the note on hard negatives, which is on all batches.

        Raises:
            InputError: there are no such batches.
        """
        if chosen.start >= len(self.batches):
            raise InputError(
                f"batches: {chosen.start}:, expected less than {len(self.batches)}, the number of batches of one pass; "
                "give both ends for batches of further passes"
            )
        notes, undrawn = (tuple(note for note in part if note != self.coverage) for part in (self.notes, self.undrawn))
        return replace(self, batches=self.batches[chosen], notes=notes, undrawn=undrawn)


def read_slice(batches: Any) -> slice | None:
    """Read a slice of the drawn batches, `A:B` or a Python slice; None for their number, and for batches.

    Raises:
        InputError: a text or a slice that means no batches.

    Examples:
        >>> cocos.sampling.read_slice("40:80"), cocos.sampling.read_slice(slice(3)), cocos.sampling.read_slice(40)
        (slice(40, 80, None), slice(0, 3, None), None)
    """
    if not isinstance(batches, str | slice):
        return None
    message = f"batches: {str(batches)[:40]!r}, expected a number, or a slice A:B with 0 <= A < B, like 40:80"
    if isinstance(batches, str):
        match = re.fullmatch(r"(\d{0,15}):(\d{0,15})", batches.strip(), re.ASCII)
        if match is None:
            raise InputError(message)
        batches = slice(*(int(text) if text else None for text in match.groups()))
    start, stop = 0 if batches.start is None else batches.start, batches.stop
    integers = all(isinstance(end, Integral) and not isinstance(end, bool) for end in (start, stop) if end is not None)
    if not integers or batches.step not in {None, 1} or start < 0 or (stop is not None and start >= stop):
        raise InputError(message)
    return slice(int(start), None if stop is None else int(stop))


def check_options(
    sample: str | None,
    batch_size: int | str,
    batches: int | None,
    per_group: int | None,
    seed: int,
    copies: str | None = None,
) -> None:
    """Refuse options that are out of range, before anything is encoded."""
    if sample is not None and sample not in SAMPLINGS:
        raise InputError(f"sample: {sample!r}, expected one of {', '.join(SAMPLINGS)}")
    if copies is not None and copies not in COPY_RULES:
        raise InputError(f"copies: {copies!r}, expected one of {', '.join(COPY_RULES)}")
    numbers = (
        ("batch size", 2 if batch_size == WHOLE_SET else batch_size, 2, UNLIMITED, " (a batch of one has no negative)"),
        ("batches", batches, 1, 10**7, ""),
        ("per group", per_group, 1, UNLIMITED, ""),
        ("seed", seed, 0, 2**63 - 1, ""),
    )
    for name, value, least, most, why in numbers:
        if value is not None and not isinstance(value, Integral):
            raise InputError(
                f"{name}: {value!r}, expected an integer" + (f", or {WHOLE_SET}" if name == "batch size" else "")
            )
        if value is not None and not least <= value <= most:
            expected = f"at least {least}{why}" if value < least else f"at most {most}"
            raise InputError(f"{name}: {value}, expected {expected}")


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
    hard: bool | None = None,
) -> Plan:
    """Draw the batches of a run: row numbers, from a generator on the CPU, so that they are the same on every device.

    Args:
        embeddings: the frozen embeddings of the training set.
        sample: `pairs` draws each row of the larger side once, with a random row of the other side, of which each
            is drawn at least once (batch size = rows of the larger side). A seed draws the same pairs if the sides are
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
        hard: draw hard negatives with their queries; None: unless rows are matched.

    Raises:
        InputError: an option out of range, or a query without any positive.

    Examples:
        Three captions ask for two images, or for three, if an image occurs once for each of its captions:

        >>> images = cocos.Embeddings(torch.eye(3)[:2], torch.eye(3), [0, 1], [0, 0, 1])
        >>> [cocos.sampling.plan(images, copies=rule).batches[0].flip().sizes for rule in cocos.sampling.COPY_RULES]
        [(3, 2), (3, 3)]
    """
    check_options(sample, batch_size, batches, per_group, seed, copies)
    queued, embeddings = embeddings, embeddings.without_queue()
    hard, copies = not matched if hard is None else hard, "keep" if matched else copies
    everything = batch_size == WHOLE_SET
    batch_size = UNLIMITED if isinstance(batch_size, str) else batch_size
    _refuse_options(embeddings, sample, batch_size, per_group)
    by_pairs = sample == "pairs" and not embeddings.proxies
    pairing = Pairing.of(embeddings, copies=copies == "keep") if by_pairs else None
    groups = embeddings.groups
    # A sample is no positive of itself.
    asking = groups.queries[groups.query] > 1 if embeddings.shared else groups.candidates[groups.query] > 0
    whole, unit = (int(asking.sum()), "queries") if pairing is None else (len(pairing.large), "pairs")
    unit = "samples" if embeddings.shared or embeddings.proxies else unit
    notes, undrawn = [], []
    if batch_size > whole and not everything:
        notes.append(f"batch size {batch_size} is above the {whole} {unit} there are: all of them make one batch")
    size = min(batch_size, whole)
    generator = torch.Generator().manual_seed(seed)
    one_pass = partial(_one_pass, embeddings, pairing, size, whole, per_group, generator, hard=hard)
    first = list(one_pass())
    if not first:
        raise InputError(
            f"batch size: {batch_size}: no batch holds two groups, so no query has a negative; take a larger one"
        )
    if embeddings.shared and whole < len(embeddings.query):
        use = "drawn only as negatives" if size == whole else "not drawn"
        undrawn.append(f"{len(embeddings.query) - whole} samples are alone in their class: {use}")
    orphans = groups.queries[groups.candidate] == 0
    if hard and embeddings.negatives is not None:
        orphans[embeddings.negatives[embeddings.negatives >= 0].cpu()] = False
    if orphans.any() and not embeddings.proxies:
        undrawn.append(f"{int(orphans.sum())} candidates have no query and are not drawn")
    if rest := whole - sum(number for _, number in first):
        undrawn.append(f"not drawn in a pass, for want of a negative in their batch: {rest} {unit}")
    more = chain(first, (batch_and_number for _ in count() for batch_and_number in one_pass()))
    batches_of_run = tuple(batch for batch, _ in islice(more, len(first) if batches is None else batches))
    coverage = _coverage(embeddings, batches_of_run, matched=not hard)
    if coverage:
        undrawn.append(coverage)
    for note in (*notes, *undrawn):
        logger.info("note: %s", note)
    device = embeddings.query.device
    moved = [batch.to(device) for batch in batches_of_run]
    if queued.is_queued:
        moved = [with_queues(batch, queued) for batch in moved]
    return Plan(tuple(moved), sample, size, (*notes, *undrawn), tuple(undrawn), copies, coverage)


def draw(
    source: Embeddings,
    *,
    sample: str = "pairs",
    batch_size: int | str = 128,
    batches: int | None = None,
    per_group: int | None = None,
    seed: int = 0,
    copies: str = "once",
) -> tuple[Batch, ...]:
    """Return the batches of `plan`: row numbers, as every measure draws them with these options.

    Examples:
        >>> batches = cocos.embeddings.draw(cocos.Embeddings(torch.eye(4), torch.eye(4) + 1), batch_size=2)
        >>> sorted(torch.cat([batch.query_index for batch in batches]).tolist())
        [0, 1, 2, 3]
    """
    options: dict[str, Any] = {"sample": sample, "batch_size": batch_size, "batches": batches, "per_group": per_group}
    return tuple(plan(source, **options, seed=seed, copies=copies).batches)


def _refuse_options(embeddings: Embeddings, sample: str, batch_size: int, per_group: int | None) -> None:
    """Refuse options that do not fit the embeddings, and embeddings from which nothing can be drawn."""
    if embeddings.shared and per_group == 1:
        raise InputError("per group: 1, expected at least 2 samples of a class")
    if embeddings.shared and batch_size < 2 * (per_group or 2):
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
                f"query without any positive: {rows(lonely_rows)} (group {ids}) has no candidate of its group; remove "
                "it or give it a positive"
            )
    if int((groups.candidates > 0).sum()) < 2:
        number = len(embeddings.candidate)
        what = "there is one candidate" if number == 1 else f"all {number} candidates are of one group"
        raise Unfit(f"no query has any negative: {what}; rows of another group are its negatives")


def _one_pass(
    embeddings: Embeddings,
    pairing: "Pairing | None",
    size: int,
    whole: int,
    per_group: int | None,
    generator: torch.Generator,
    *,
    hard: bool,
) -> Iterator[tuple[Batch, int]]:
    """Draw a pass: batches in which a query has a negative, each with the rows that count towards its size."""
    drawn_batches: Iterator[Batch] = iter(())
    if embeddings.shared and size == whole:
        asking = embeddings.groups.queries[embeddings.groups.query] > 1
        index = asking.nonzero().flatten().cpu()[torch.randperm(whole, generator=generator)]
        candidates = torch.cat([index, (~asking).nonzero().flatten().cpu()])
        drawn_batches = iter([Batch(index, candidates, paired=False)])
    elif embeddings.shared:
        filling = size // len(embeddings.groups.queries)
        per_class = per_group or max(2, min(SAMPLES_PER_CLASS, size // 2), filling)
        drawn_batches = _batches_of_classes(embeddings, size, per_class, generator)
    elif embeddings.proxies:
        proxies = torch.arange(len(embeddings.candidate))  # all of them are candidates of every batch
        parts = torch.randperm(len(embeddings.query), generator=generator).split(size)
        drawn_batches = (Batch(query_index, proxies, paired=False) for query_index in parts)
    elif pairing is None:
        drawn_batches = _batches_of_queries(embeddings, size, per_group, generator)
    sized = ((batch, len(batch.query_index)) for batch in drawn_batches)
    candidate_group = embeddings.candidate_group.cpu()
    negatives = [embeddings.negatives, embeddings.candidate_negatives] if hard else [None, None]
    negatives = [None if rows_of_side is None else rows_of_side.cpu() for rows_of_side in negatives]
    for batch, number in sized if pairing is None else _pairs(embeddings, pairing, size, generator):
        full = batch if all(rows_of_side is None for rows_of_side in negatives) else _with_negatives(batch, *negatives)
        if embeddings.proxies or _has_negatives(full, candidate_group):
            yield full, number


def _has_negatives(batch: Batch, candidate_group: Tensor) -> bool:
    """Whether a query may have a negative: hard ones, two pairs side by side, or candidates of two groups."""
    if batch.extra > 0 or batch.beside is not None:
        return True
    if batch.paired and batch.turned is None:
        return batch.sizes[0] > 1
    group = candidate_group[batch.candidate_index]
    return bool((group != group[0]).any())


def _distinct(index: Tensor) -> Tensor:
    """Remove repeated rows, (n,), in order of first appearance."""
    return torch.tensor(list(dict.fromkeys(index.tolist())), dtype=torch.int64)


def _with_negatives(batch: Batch, negatives: Tensor | None, turned: Tensor | None) -> Batch:
    """Add the hard negatives of the queries, and of the candidates, as further rows of the other side.

    Args:
        batch: rows that are drawn.
        negatives: (Q, K) rows of the candidates that each query names, -1 for none; or None.
        turned: (C, K), likewise, of the candidates where they ask.
    """
    candidate = _missing_negatives(negatives, batch.query_index, batch.candidate_index)
    beside = _missing_negatives(turned, batch.candidate_index, batch.query_index)
    return _with_rows(batch, candidate, beside)


def _with_rows(batch: Batch, candidate: Tensor, query: Tensor) -> Batch:
    """Add rows of the candidates as further candidates, and rows of the queries as candidates of the flipped batch."""

    def extend(side: Batch, extra: Tensor, beside: Tensor) -> Batch:
        if side.beside is not None:
            beside = torch.cat([side.beside, beside])
        return replace(
            side,
            candidate_index=torch.cat([side.candidate_index, extra]),
            extra=side.extra + len(extra),
            beside=beside if len(beside) else None,
        )

    turned = batch.turned and extend(batch.turned, query, candidate)
    return replace(extend(batch, candidate, query), turned=turned)


def with_queues(batch: Batch, embeddings: Embeddings) -> Batch:
    """Add the rows of queues as further candidates of both directions, which are no queries."""
    index = batch.query_index
    candidate, query = (
        index[:0] if mask is None else mask.nonzero().flatten().to(index)
        for mask in (embeddings.queue, embeddings.query_queue)
    )
    return _with_rows(batch, candidate, query)


def _missing_negatives(negatives: Tensor | None, queries: Tensor, present: Tensor) -> Tensor:
    """Rows that some rows name as their negatives and that the batch does not have yet."""
    if negatives is None:
        return present[:0]
    named = _distinct(negatives[queries].flatten())
    return named[(named >= 0) & ~torch.isin(named, present)]


def _coverage(embeddings: Embeddings, batches: tuple[Batch, ...], *, matched: bool) -> str:
    """Describe how many hard negatives are in no batch; empty if all are drawn."""
    negatives = embeddings.candidate_negatives if embeddings.negatives is None else embeddings.negatives
    if negatives is None:
        return ""
    drawn, named = torch.zeros(len(negatives), dtype=torch.bool), (negatives >= 0).cpu()
    if not matched:
        asking = [(batch.flip() if embeddings.negatives is None else batch).query_index for batch in batches]
        drawn[torch.cat(asking).cpu()] = True
    reason = "the loss reads pairs, row by row" if matched else "the queries that name them are not"
    missing = int(named[~drawn].sum())
    return f"{missing} of {int(named.sum())} named hard negatives are not drawn: {reason}" if missing else ""


@dataclass(frozen=True, eq=False)
class Pairing:
    """Rows that can be drawn as pairs: the larger side, the smaller one, and the groups of both.

    Args:
        turned: the queries are the larger side.
        large: (L,) rows of the larger side that have a partner.
        small: (S,) rows of the other side that have one.
        large_place: (L,) number of the group of each row of the larger side, 0 to G - 1.
        small_place: (S,) likewise.
        paired: of batches in which the queries ask, and of those in which the candidates do, whether the two rows of a
            pair stand side by side, because no row that is asked for has several partners in any group. Otherwise a
            row that is asked for stands in a batch once, and all rows of its group are positives.
        single: no group has two rows of a side.
    """

    turned: bool
    large: Tensor
    small: Tensor
    large_place: Tensor
    small_place: Tensor
    paired: tuple[bool, bool]
    single: bool

    @classmethod
    def of(cls, embeddings: Embeddings, *, copies: bool) -> "Pairing":
        """Find the larger side; `copies` puts the rows of a pair side by side, one that is asked for twice if need be.

        Which of the two sides is called the query changes nothing.
        """
        groups = embeddings.groups
        both = (groups.queries > 0) & (groups.candidates > 0)
        rows_of, places = [], []
        for place in (groups.query, groups.candidate):
            members = both[place].nonzero().flatten()
            rows_of.append(members)
            places.append((both.cumsum(0) - 1)[place[members]])
        turned = _queries_are_larger(embeddings, len(rows_of[0]), len(rows_of[1]))
        queries, candidates = groups.queries[both], groups.candidates[both]
        paired = copies or bool((queries <= candidates).all()), copies or bool((candidates <= queries).all())
        if turned:
            rows_of, places = rows_of[::-1], places[::-1]
        return cls(turned, rows_of[1], rows_of[0], places[1], places[0], paired, groups.single)

    def drawn(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw one pass: the larger side in random order, a partner for each row, and the rows left over with partners.

        The rows of a group take turns: each of the smaller side is drawn before one of them is drawn again.

        Args:
            number: rows of the larger side, with and without a partner.
            generator: of the draw.

        Returns:
            Rows of the larger side (L,) and their partners (L,); the rows left over, of groups with more rows on the
            smaller side, and the place in (L,) of the partner of each.
        """
        at = torch.randperm(number, generator=generator)
        if len(self.large) < number:
            at = torch.full((number,), -1).index_copy_(0, self.large, torch.arange(len(self.large)))[at]
            at = at[at >= 0]
        place = self.large_place[at]
        chance = torch.rand(len(place), generator=generator, dtype=torch.float64)[: len(self.small)]
        if self.single:  # there is one partner to choose
            partner = torch.empty_like(self.small).index_copy_(0, self.small_place, self.small)
            return self.large[at], partner[place], self.small[:0], at[:0]
        chance = chance.argsort()
        members = chance[self.small_place[chance].argsort(stable=True)]
        sizes, large_sizes = torch.bincount(self.small_place), torch.bincount(self.large_place)
        first, begin = sizes.cumsum(0) - sizes, large_sizes.cumsum(0) - large_sizes
        sorted_ = place.argsort(stable=True)
        turn = torch.empty_like(place).index_copy_(0, sorted_, torch.arange(len(place)) - begin[place[sorted_]])
        partner = members[first[place] + turn % sizes[place]]
        group = self.small_place[members]
        rank = torch.arange(len(members)) - first[group]
        more = rank >= large_sizes[group]
        beside = sorted_[begin[group[more]] + rank[more] % large_sizes[group[more]]]
        return self.large[at], self.small[partner], self.small[members[more]], beside

    def batch(self, large: Tensor, small: Tensor, *, all_distinct: bool) -> Batch:
        """Make a batch of pairs, (n,) rows of the larger side and (n,) of the smaller one.

        Args:
            large: rows of the larger side.
            small: their partners.
            all_distinct: no two pairs are of one group, so that both directions have the same rows.
        """
        sides = (large, small) if self.turned else (small, large)
        if all(self.paired) or (all_distinct and any(self.paired)):
            return Batch(*sides, self.paired[0])
        if not any(self.paired):
            distinct = _distinct(sides[0]), _distinct(sides[1])
            return Batch(
                *distinct, paired=False, dropped=(len(large) - len(distinct[0]), len(large) - len(distinct[1]))
            )
        asking = []
        for paired, query, candidate in zip(self.paired, sides, sides[::-1], strict=True):
            rows = candidate if paired else _distinct(candidate)
            asking.append(Batch(query, rows, paired, dropped=(0, len(candidate) - len(rows))))
        return replace(asking[0], turned=asking[1])


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
        if embeddings.groups.single:  # row i is the partner of row i, whichever is drawn
            return False
        rows = zip(embeddings.query, embeddings.candidate, strict=True)
        query_key, candidate_key = next((pair for pair in rows if not torch.equal(*pair)), (query_key, candidate_key))
    differ = (query_key != candidate_key).nonzero().flatten()
    return len(differ) > 0 and bool(query_key[differ[0]] > candidate_key[differ[0]])


def _pairs(
    embeddings: Embeddings,
    pairing: Pairing,
    size: int,
    generator: torch.Generator,
) -> Iterator[tuple[Batch, int]]:
    """Yield the batches of one pass over the larger side, each with its number of rows of this side."""
    number = len(embeddings.query if pairing.turned else embeddings.candidate)
    large, small, left_over_rows, beside = pairing.drawn(number, generator)
    numbered = torch.arange(len(large)) // size
    batches = int(numbered[-1]) + 1
    left_over, distinct = [left_over_rows] * batches, [True] * batches
    if len(left_over_rows):
        of = beside // size
        left_over = list(of.argsort(stable=True).split(torch.bincount(of, minlength=batches).tolist()))
    if not all(pairing.paired):
        groups = embeddings.groups.query if pairing.turned else embeddings.groups.candidate
        key = (numbered * (int(groups.max()) + 1) + groups[large]).sort()
        again = numbered[key.indices[1:][key.values.diff() == 0]]
        distinct = (torch.bincount(again, minlength=batches) == 0).tolist()
    for large_part, partners, left, alone in zip(
        large.split(size), small.split(size), left_over, distinct, strict=True
    ):
        large_rows, small_rows = large_part, partners
        if len(left):
            large_rows = torch.cat([large_part, large[beside[left]]])
            small_rows = torch.cat([partners, left_over_rows[left]])
        yield pairing.batch(large_rows, small_rows, all_distinct=alone and not len(left)), len(large_part)


def _batches_of_queries(
    embeddings: Embeddings,
    size: int,
    per_group: int | None,
    generator: torch.Generator,
) -> Iterator[Batch]:
    """Yield the batches of one pass: every query once, each with `per_group` (None: all) of its candidates."""
    groups = embeddings.groups
    members, ends = groups.candidate.argsort(stable=True), groups.candidates.cumsum(0)
    order = torch.randperm(len(groups.query), generator=generator)
    order = order[groups.candidates[groups.query[order]] > 0]
    for query_index in order.split(size):
        group_ids = torch.tensor(list(dict.fromkeys(groups.query[query_index].tolist())))
        number, first = groups.candidates[group_ids], ends[group_ids] - groups.candidates[group_ids]
        if per_group is None:
            before = torch.repeat_interleave(first - (number.cumsum(0) - number), number)
            yield Batch(query_index, members[before + torch.arange(len(before))], paired=False)
            continue
        chosen_rows = []
        for start, many in zip(first.tolist(), number.tolist(), strict=True):
            candidates_of_group = members[start : start + many]
            if many > per_group:
                candidates_of_group = (
                    candidates_of_group[torch.randperm(many, generator=generator)[:per_group]].sort().values
                )
            chosen_rows.append(candidates_of_group)
        yield Batch(query_index, torch.cat(chosen_rows), paired=False)


def _batches_of_classes(
    embeddings: Embeddings, size: int, per_class: int, generator: torch.Generator
) -> Iterator[Batch]:
    """Yield the batches of one pass over a labelled set, up to `per_class` samples of a class at a time.

    In every round each class that has samples left gives some of them. A batch that would contain one class takes
    samples of another from the batch before it, where that can spare them. Samples of one large class that are then
    left alone are not drawn: they would have no negative.
    """
    chunks = []
    group = embeddings.query_group.cpu()
    sizes = group.unique(return_counts=True)[1]
    for members in group.argsort(stable=True).split(sizes.tolist()):
        shuffled_members = members[torch.randperm(len(members), generator=generator)]
        n = min(-(-len(shuffled_members) // per_class), len(shuffled_members) // 2)  # no sample is alone in its batch
        chunks.append([shuffled_members[i::n] for i in range(n)])
    batches: list[list[tuple[int, Tensor]]] = [[]]
    for turn in range(max(len(c) for c in chunks)):
        left = [place for place, c in enumerate(chunks) if turn < len(c)]
        for i in torch.randperm(len(left), generator=generator).tolist():
            chunk = chunks[left[i]][turn]
            if batches[-1] and sum(len(samples) for _, samples in batches[-1]) + len(chunk) > size:
                batches.append([])
            batches[-1].append((left[i], chunk))
    for before, last in pairwise(batches):
        names, name = {part[0] for part in before}, last[0][0]
        if len(names) > 2 and all(part[0] == name for part in last):
            place = max(i for i, part in enumerate(before) if part[0] != name)
            if sum(len(chunk) for _, chunk in (*last, before[place])) <= size:
                last.append(before.pop(place))
    for parts in batches:
        if len({name for name, _ in parts}) > 1:
            index = torch.cat([chunk for _, chunk in parts])
            yield Batch(index, index, paired=False)
