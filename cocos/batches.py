"""Seeded training batches, drawn from embeddings that were computed once."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice, pairwise
from numbers import Integral

import torch
from torch import Tensor

from cocos.embeddings import Embeddings
from cocos.errors import InputError, rows

__all__ = ["SAMPLINGS", "Batch", "Plan", "check", "matches", "plan"]

SAMPLINGS = ("pairs", "groups")
ALL = "all"  # the batch size of the whole set
SAMPLES_PER_CLASS = 4  # samples of one class in a batch of a labelled set: the m of m-per-class samplers


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows that are seen together.

    Args:
        query_index: (q,) rows of the queries.
        candidate_index: (c,) rows of the candidates.
        paired: row i of the batch is one positive pair, and the only positive of its query. Otherwise all
            candidates of the query's group are its positives.
        extra: the last `extra` candidates are hard negatives of some query, drawn with it. They are candidates of all
            queries and ask for nothing, so that the flipped batch has none of them.
        beside: (b,) rows of the query side that the flipped batch has as `extra` candidates; None: no such rows.

    Examples:
        >>> import cocos, torch
        >>> batch = cocos.batches.Batch(torch.tensor([2, 0]), torch.tensor([5, 1]), paired=True)
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

    @property
    def sizes(self) -> tuple[int, int]:
        """Queries and candidates."""
        return self.query_index.shape[0], self.candidate_index.shape[0]

    @property
    def square(self) -> bool:
        """Both directions have the same rows, so that one visit of the scores serves both."""
        return self.extra == 0 and self.beside is None

    def to(self, device) -> "Batch":
        """The same rows, named on another device; itself where it is there."""
        if self.query_index.device == torch.device(device):
            return self
        beside = None if self.beside is None else self.beside.to(device)
        indices = self.query_index.to(device), self.candidate_index.to(device)
        return replace(self, query_index=indices[0], candidate_index=indices[1], beside=beside)

    def flip(self) -> "Batch":
        """The same rows, asked from the other side. Twice is the identity."""
        asking = len(self.candidate_index) - self.extra
        query_index, beside = self.candidate_index[:asking], self.candidate_index[asking:]
        if self.beside is None:
            return Batch(query_index, self.query_index, self.paired, 0, beside if self.extra else None)
        candidate_index = torch.cat([self.query_index, self.beside])
        return Batch(query_index, candidate_index, self.paired, len(self.beside), beside if self.extra else None)


def matches(embeddings: Embeddings, batch: Batch) -> None:
    """Refuse a batch of pairs whose rows are no pairs.

    Raises:
        InputError: sides of different length, or a query whose own candidate is of another group.

    Examples:
        >>> import cocos, torch
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))  # row i matches row i
        >>> index = torch.arange(3)
        >>> cocos.batches.matches(embeddings, cocos.batches.Batch(index, index, paired=True))
    """
    if not batch.paired:
        return
    asking, asked = len(batch.query_index), len(batch.candidate_index) - batch.extra
    if asking != asked:
        raise InputError(f"batch: paired, with {asking} queries and {asked} candidates; give as many of both")
    groups = embeddings.query_group[batch.query_index], embeddings.candidate_group[batch.candidate_index[:asked]]
    if torch.equal(*groups):
        return
    place = (groups[0] != groups[1]).nonzero().flatten().tolist()
    query, candidate = (int(index[place[0]]) for index in (batch.query_index, batch.candidate_index))
    apart = " and ".join(
        f"{name} of group {int(group[place[0]])}"
        for name, group in zip((f"query {query}", f"candidate {candidate}"), groups, strict=True)
    )
    raise InputError(f"batch: paired, with {apart} side by side in {rows(place)}; the two of a pair share a group")


@dataclass(frozen=True, eq=False)
class Plan:
    """The batches of one run, and what the caller should know of how they were drawn.

    Args:
        batches: in the order in which they are drawn.
        sample: `pairs` or `groups`.
        batch_size: rows of a full batch.
        notes: sentences.
        undrawn: sentences on the rows that are in no batch of a pass, with their number.

    Examples:
        >>> import cocos, torch
        >>> plan = cocos.batches.plan(cocos.Embeddings(torch.eye(4), 2 * torch.eye(4)), batch_size=2)
        >>> plan.batch_size, len(plan.batches)
        (2, 2)
    """

    batches: tuple[Batch, ...]
    sample: str
    batch_size: int
    notes: tuple[str, ...] = field(default=())
    undrawn: tuple[str, ...] = field(default=())


def _members(group: Tensor) -> dict[int, Tensor]:
    """Rows of every group, in ascending order."""
    order = group.argsort(stable=True)
    ids, sizes = group[order].unique_consecutive(return_counts=True)
    return dict(zip(ids.tolist(), order.split(sizes.tolist()), strict=True))


def _require_both(embeddings: Embeddings) -> None:
    """Every query must have a positive somewhere in the set, and there must be negatives.

    Raises:
        InputError: naming the queries that have no positive.
    """
    groups = embeddings.groups
    if embeddings.shared:
        lonely, reason = groups.queries[groups.query] < 2, "the only sample of its class"
    else:
        lonely, reason = groups.candidates[groups.query] == 0, "no candidate of its group"
        if embeddings.candidate_negatives is not None:  # these are drawn as candidates of the other direction
            lonely[embeddings.candidate_negatives[embeddings.candidate_negatives >= 0].cpu()] = False
    lonely = lonely.nonzero().flatten().tolist()
    if lonely:
        groups = embeddings.query_group[lonely[:5]].tolist()
        raise InputError(
            f"query without any positive: {rows(lonely)} (group {', '.join(map(str, groups))}) has {reason}; "
            "remove it or give it a positive"
        )
    if int((groups.candidates > 0).sum()) < 2:
        raise InputError(
            f"no query has any negative: all {len(embeddings.candidate)} candidates are of group "
            f"{embeddings.candidate_group[0].item()}"
        )


@dataclass(frozen=True, eq=False)
class _Pairing:
    """Rows that can be drawn as pairs: the larger side, the smaller one, and the groups of both.

    Args:
        turned: the queries are the larger side.
        large: (L,) rows of the larger side that have a partner.
        small: (S,) rows of the other side that have one.
        large_place: (L,) number of the group of each row of the larger side, 0 to G - 1.
        small_place: (S,) likewise.
        paired: every batch is one of pairs, a row of the smaller side once for each partner.
        single: no group has two rows of a side.
    """

    turned: bool
    large: Tensor
    small: Tensor
    large_place: Tensor
    small_place: Tensor
    paired: bool
    single: bool

    @classmethod
    def of(cls, embeddings: Embeddings, *, matched: bool) -> "_Pairing":
        """Find the sides; matched: rows must stand side by side, whatever is drawn twice."""
        groups = embeddings.groups
        both = (groups.queries > 0) & (groups.candidates > 0)
        rows_of, places = [], []
        for place in (groups.query, groups.candidate):
            own = both[place].nonzero().flatten()
            rows_of.append(own)
            places.append((both.cumsum(0) - 1)[place[own]])
        turned = len(rows_of[0]) > len(rows_of[1])
        queries, candidates = groups.queries[both], groups.candidates[both]
        paired = matched or not (turned or bool((queries > candidates).any()))
        if turned:
            rows_of, places = rows_of[::-1], places[::-1]
        return cls(turned, rows_of[1], rows_of[0], places[1], places[0], paired, groups.single)

    def drawn(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One pass: the larger side in random order, a partner for each, and the rows that are left with theirs.

        The rows of a group take turns: each of the smaller side is drawn before one of them is drawn again.

        Args:
            number: rows of the larger side, with those that have no partner.
            generator: of the draw.

        Returns:
            Rows of the larger side (L,) and their partners (L,); rows of the smaller side that a group has more of, and
            the place in (L,) of the partner of each.
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
        sizes, own = torch.bincount(self.small_place), torch.bincount(self.large_place)
        first, begin = sizes.cumsum(0) - sizes, own.cumsum(0) - own
        sorted_ = place.argsort(stable=True)
        turn = torch.empty_like(place).index_copy_(0, sorted_, torch.arange(len(place)) - begin[place[sorted_]])
        partner = members[first[place] + turn % sizes[place]]
        group = self.small_place[members]
        rank = torch.arange(len(members)) - first[group]
        more = rank >= own[group]
        beside = sorted_[begin[group[more]] + rank[more] % own[group[more]]]
        return self.large[at], self.small[partner], self.small[members[more]], beside


def _pairs(
    embeddings: Embeddings, pairing: _Pairing, size: int, generator: torch.Generator
) -> Iterator[tuple[Batch, int]]:
    """One pass: every row of the larger side once, each with a row of the other; and how many of them a batch has.

    Where queries share candidates, a candidate stands in a batch once, for all of its queries, and likewise a query.
    """
    number = len(embeddings.query if pairing.turned else embeddings.candidate)
    large, small, more, beside = pairing.drawn(number, generator)
    if pairing.paired and not len(more):
        for own, partners in zip(large.split(size), small.split(size), strict=True):
            yield Batch(*((own, partners) if pairing.turned else (partners, own)), paired=True), len(own)
        return
    by_batch = (beside // size).argsort(stable=True)
    ends = torch.bincount(beside // size, minlength=-(-len(large) // size)).tolist()
    parts = zip(large.split(size), small.split(size), by_batch.split(ends), strict=True)
    for own, partners, left in parts:
        sides = [own, torch.cat([partners, more[left]])]
        if pairing.paired:
            sides[0] = torch.cat([own, large[beside[left]]])
        else:
            sides[1] = _once(sides[1])
        yield Batch(*(sides if pairing.turned else sides[::-1]), paired=pairing.paired), len(own)


def _once(index: Tensor) -> Tensor:
    """Every row once, in the order in which they are first named."""
    return torch.tensor(list(dict.fromkeys(index.tolist())), dtype=torch.int64)


def _with_negatives(batch: Batch, negatives: Tensor | None, turned: Tensor | None) -> Batch:
    """The batch with the hard negatives of its queries, and of its candidates, as further rows of the other side."""
    candidate = _named(negatives, batch.query_index, batch.candidate_index)
    beside = _named(turned, batch.candidate_index, batch.query_index)
    together = torch.cat([batch.candidate_index, candidate])
    return Batch(batch.query_index, together, batch.paired, len(candidate), beside if len(beside) else None)


def _named(negatives: Tensor | None, asking: Tensor, there: Tensor) -> Tensor:
    """Rows that some rows name as their negatives and that are not there yet."""
    if negatives is None:
        return there[:0]
    found = _once(negatives[asking].flatten())
    return found[(found >= 0) & ~torch.isin(found, there)]


def _negatives_said(embeddings: Embeddings, drawn: tuple[Batch, ...], *, matched: bool) -> Iterator[tuple[str, bool]]:
    """How many of the hard negatives that rows name are drawn, and whether some are not."""
    negatives = embeddings.candidate_negatives if embeddings.negatives is None else embeddings.negatives
    if negatives is None:
        return
    asking = [(batch.flip() if embeddings.negatives is None else batch).query_index for batch in drawn]
    named, reached = (negatives >= 0).cpu(), torch.zeros(len(negatives), dtype=torch.bool)
    if not matched:
        reached[torch.cat(asking).cpu()] = True
    every, missing = int(named.sum()), int(named[~reached].sum())
    why = "the loss reads pairs, row by row" if matched else "the queries that name them are not"
    if missing:
        yield f"{missing} of the {every} hard negatives that are named are not drawn: {why}", True
    else:
        yield f"all {every} hard negatives that are named are drawn with the queries that name them", False


def _groups(embeddings: Embeddings, size: int, per_group: int | None, generator: torch.Generator) -> Iterator[Batch]:
    """One pass: every query once, each with `per_group` (or all) of its candidates."""
    groups = embeddings.groups
    members, ends = groups.candidate.argsort(stable=True), groups.candidates.cumsum(0)
    order = torch.randperm(len(groups.query), generator=generator)
    order = order[groups.candidates[groups.query[order]] > 0]
    for query_index in order.split(size):
        asked = torch.tensor(list(dict.fromkeys(groups.query[query_index].tolist())))
        number, first = groups.candidates[asked], ends[asked] - groups.candidates[asked]
        if per_group is None:
            before = torch.repeat_interleave(first - (number.cumsum(0) - number), number)
            yield Batch(query_index, members[before + torch.arange(len(before))], paired=False)
            continue
        chosen = []
        for start, many in zip(first.tolist(), number.tolist(), strict=True):
            own = members[start : start + many]
            if many > per_group:
                own = own[torch.randperm(many, generator=generator)[:per_group]].sort().values
            chosen.append(own)
        yield Batch(query_index, torch.cat(chosen), paired=False)


def _classes(embeddings: Embeddings, size: int, per_class: int, generator: torch.Generator) -> Iterator[Batch]:
    """One pass over a labelled set: in every round each class that is left gives up to `per_class` of its samples.

    A batch that would hold one class takes some samples of another from the batch before it, where that can spare them.
    What one large class then has left alone is not drawn: it would have no negative.
    """
    chunks = []
    for members in _members(embeddings.query_group.cpu()).values():
        own = members[torch.randperm(len(members), generator=generator)]
        n = min(-(-len(own) // per_class), len(own) // 2)  # no sample is alone in its batch
        chunks.append([own[i::n] for i in range(n)])
    made = [[]]
    for turn in range(max(len(c) for c in chunks)):
        left = [place for place, c in enumerate(chunks) if turn < len(c)]
        for i in torch.randperm(len(left), generator=generator).tolist():
            chunk = chunks[left[i]][turn]
            if made[-1] and sum(len(other) for _, other in made[-1]) + len(chunk) > size:
                made.append([])
            made[-1].append((left[i], chunk))
    for before, last in pairwise(made):
        names, name = {part[0] for part in before}, last[0][0]
        if len(names) > 2 and all(part[0] == name for part in last):
            place = max(i for i, part in enumerate(before) if part[0] != name)
            if sum(len(chunk) for _, chunk in (*last, before[place])) <= size:
                last.append(before.pop(place))
    for parts in made:
        if len({name for name, _ in parts}) > 1:
            index = torch.cat([chunk for _, chunk in parts])
            yield Batch(index, index, paired=False)


def _against_all(embeddings: Embeddings, size: int, generator: torch.Generator) -> Iterator[Batch]:
    """One pass over samples that ask for class proxies: all proxies are candidates of every batch."""
    everything = torch.arange(len(embeddings.candidate))
    for query_index in torch.randperm(len(embeddings.query), generator=generator).split(size):
        yield Batch(query_index, everything, paired=False)


def _has_negatives(batch: Batch, candidate_group: Tensor) -> bool:
    """Whether a query may have a negative: there are two pairs, or candidates of two groups."""
    if batch.paired:
        return batch.sizes[0] > 1 or batch.extra > 0
    group = candidate_group[batch.candidate_index]
    return bool((group != group[0]).any())


def _orphans(embeddings: Embeddings, *, negatives: bool) -> int:
    """Number of candidates that no batch can have: none of a query's group, and none that a query names."""
    alone = embeddings.groups.queries[embeddings.groups.candidate] == 0
    if embeddings.proxies:
        return 0
    if negatives and embeddings.negatives is not None:
        named = embeddings.negatives[embeddings.negatives >= 0]
        alone[named.cpu()] = False
    return int(alone.sum())


def check(sample: str | None, batch_size: int | str, batches: int | None, per_group: int | None, seed: int) -> None:
    """Refuse options before anything is encoded.

    Raises:
        InputError: an option out of range.

    Examples:
        >>> import cocos
        >>> cocos.batches.check("pairs", 128, None, None, 0)
    """
    if sample is not None and sample not in SAMPLINGS:
        raise InputError(f"sample: {sample!r}, expected one of {', '.join(SAMPLINGS)}")
    numbers = (
        ("batch size", 2 if batch_size == ALL else batch_size, 2, 2**40, " (a batch of one has no negative)"),
        ("batches", batches, 1, 10**7, ""),
        ("per group", per_group, 1, 2**40, ""),
        ("seed", seed, 0, 2**63 - 1, ""),
    )
    for name, value, least, most, why in numbers:
        if value is not None and not isinstance(value, Integral):
            raise InputError(
                f"{name}: {value!r}, expected a whole number" + (f", or {ALL}" if name == "batch size" else "")
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
    matched: bool = False,
) -> Plan:
    """Draw the batches of a run. Only row numbers are drawn: the embeddings stay where they are.

    The row numbers come from a generator on the CPU, so that a seed means the same batches on every device.

    Args:
        embeddings: the frozen embeddings of the training set.
        sample: `pairs` draws each row of the larger side once, with a random row of the other side, of which each
            is drawn at least once (batch size = rows of the larger side). Candidates without a query are not counted.
            Where queries share candidates, each stands in a batch once, and its positives are those of its group;
            `groups` draws queries, each with its candidates (batch size = queries), or, in a labelled set,
            classes x samples (batch size = samples). Samples against proxies are drawn one by one either way.
        batch_size: at least 2. One that reaches the whole set, or `all`, puts everything into one batch.
        batches: how many; None is one pass over the training set, the last batch partial, as published. More
            than one pass goes on with the next shuffle.
        per_group: `groups`: candidates of a query (None: all), or samples of a class (None: 4, or as many as
            fill the batch where there are few classes).
        seed: of the generator.
        matched: row i of the queries must stand beside row i of the candidates, for losses that read nothing else: a
            candidate that several queries of a batch share stands in it once for each, and hard negatives are left out.

    Raises:
        InputError: an option out of range, or a query without any positive.

    Examples:
        Every row is drawn once; a seed means the same batches on every device.

        >>> import cocos, torch
        >>> plan = cocos.batches.plan(cocos.Embeddings(torch.eye(4), 2 * torch.eye(4)), batch_size=2, seed=0)
        >>> [batch.sizes for batch in plan.batches]
        [(2, 2), (2, 2)]
        >>> sorted(row for batch in plan.batches for row in batch.query_index.tolist())
        [0, 1, 2, 3]
    """
    check(sample, batch_size, batches, per_group, seed)
    everything, batch_size = batch_size == ALL, 2**40 if batch_size == ALL else batch_size
    if embeddings.shared and per_group == 1:
        raise InputError("per group: 1, expected at least 2 samples of a class")
    if embeddings.shared and batch_size < 2 * (per_group or 2):
        raise InputError(f"batch size: {batch_size}, expected at least {2 * (per_group or 2)}: samples of two classes")
    if per_group is not None and (embeddings.proxies or sample == "pairs"):
        raise InputError(
            f"per group: {per_group}, but only batches of groups have it; add --sample groups or leave it out"
        )
    _require_both(embeddings)
    if sample == "pairs" and embeddings.shared:
        raise InputError("sample: 'pairs' needs two sides; a labelled set is drawn by class, with 'groups'")
    by_pairs = sample == "pairs" and not embeddings.proxies
    pairing = _Pairing.of(embeddings, matched=matched) if by_pairs else None
    asking = embeddings.groups.candidates[embeddings.groups.query] > 0
    whole, unit = (len(pairing.large), "pairs") if by_pairs else (int(asking.sum()), "queries")
    unit = "samples" if embeddings.shared or embeddings.proxies else unit
    notes, undrawn = [], []
    if batch_size > whole and not everything:
        notes.append(f"batch size {batch_size} is above the {whole} {unit} there are: all of them make one batch")
    size = min(batch_size, whole)
    generator = torch.Generator().manual_seed(seed)

    def one_pass() -> Iterator[tuple[Batch, int]]:
        if by_pairs:
            return _pairs(embeddings, pairing, size, generator)
        if embeddings.shared and size == whole:
            index = torch.randperm(whole, generator=generator)
            return iter([(Batch(index, index, paired=False), whole)])
        if embeddings.shared:
            filling = size // len(embeddings.query_group.unique())
            per_class = per_group or max(2, min(SAMPLES_PER_CLASS, size // 2), filling)
            made = _classes(embeddings, size, per_class, generator)
        elif embeddings.proxies:
            made = _against_all(embeddings, size, generator)
        else:
            made = _groups(embeddings, size, per_group, generator)
        return ((batch, len(batch.query_index)) for batch in made)

    candidate_group = embeddings.candidate_group.cpu()
    named = (embeddings.negatives, embeddings.candidate_negatives)
    named = tuple(None if matched or each is None else each.cpu() for each in named)

    def useful() -> Iterator[tuple[Batch, int]]:
        for batch, number in one_pass():
            full = batch if not any(each is not None for each in named) else _with_negatives(batch, *named)
            if embeddings.proxies or _has_negatives(full, candidate_group):
                yield full, number

    first = list(useful())
    if not first:
        raise InputError(
            f"batch size: {batch_size}: no batch holds two groups, so no query has a negative; take a larger one"
        )
    if orphans := _orphans(embeddings, negatives=not matched):
        undrawn.append(f"{orphans} candidates have no query and are not drawn")
    if rest := whole - sum(number for _, number in first):
        undrawn.append(f"not drawn in a pass, for want of a negative in their batch: {rest} {unit}")
    drawn = (batch for batch, _ in chain(first, (made for _ in count() for made in useful())))
    drawn = tuple(islice(drawn, len(first) if batches is None else batches))
    for sentence, missing in _negatives_said(embeddings, drawn, matched=matched):
        (undrawn if missing else notes).append(sentence)
    device = embeddings.query.device
    return Plan(tuple(batch.to(device) for batch in drawn), sample, size, (*notes, *undrawn), tuple(undrawn))
