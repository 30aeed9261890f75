"""Seeded training batches, drawn from embeddings that were computed once."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice, pairwise
from numbers import Integral

import torch
from torch import Tensor

from cocos.embeddings import Embeddings
from cocos.errors import InputError, rows

__all__ = ["SAMPLINGS", "Batch", "Plan", "check", "plan"]

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
    """

    query_index: Tensor
    candidate_index: Tensor
    paired: bool

    def to(self, device) -> "Batch":
        """The same rows, named on another device."""
        return replace(self, query_index=self.query_index.to(device), candidate_index=self.candidate_index.to(device))

    def flip(self) -> "Batch":
        """The same rows, asked from the other side."""
        return replace(self, query_index=self.candidate_index, candidate_index=self.query_index)


@dataclass(frozen=True, eq=False)
class Plan:
    """The batches of one run, and what the caller should be told of how they were drawn."""

    batches: tuple[Batch, ...]
    sample: str
    batch_size: int
    notes: tuple[str, ...] = field(default=())


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
    if embeddings.shared:
        _, inverse, sizes = embeddings.query_group.unique(return_inverse=True, return_counts=True)
        lonely, reason = sizes[inverse] < 2, "the only sample of its class"
    else:
        lonely, reason = ~torch.isin(embeddings.query_group, embeddings.candidate_group), "no candidate of its group"
    lonely = lonely.nonzero().flatten().tolist()
    if lonely:
        groups = embeddings.query_group[lonely[:5]].tolist()
        raise InputError(
            f"query without any positive: {rows(lonely)} (group {', '.join(map(str, groups))}) has {reason}; "
            "remove it or give it a positive"
        )
    if len(embeddings.candidate_group.unique()) < 2:
        raise InputError(
            f"no query has any negative: all {len(embeddings.candidate)} candidates are of group "
            f"{embeddings.candidate_group[0].item()}"
        )


def _pairs(embeddings: Embeddings, size: int, generator: torch.Generator) -> Iterator[Batch]:
    """One pass: every candidate once, each with its query; queries that share a group are drawn at random."""
    query_group = embeddings.query_group.cpu()
    by_group = query_group.argsort(stable=True)
    ids, sizes = query_group[by_group].unique_consecutive(return_counts=True)
    order = torch.randperm(len(embeddings.candidate), generator=generator)
    group = embeddings.candidate_group.cpu()[order]
    kept = torch.isin(group, ids)
    place = torch.searchsorted(ids, group[kept])
    turn = torch.rand(len(place), generator=generator, dtype=torch.float64) * sizes[place]
    query = by_group[sizes.cumsum(0)[place] - sizes[place] + turn.to(torch.int64)]
    for query_index, candidate_index in zip(query.split(size), order[kept].split(size), strict=True):
        yield Batch(query_index, candidate_index, paired=True)


def _groups(embeddings: Embeddings, size: int, per_group: int | None, generator: torch.Generator) -> Iterator[Batch]:
    """One pass: every query once, each with `per_group` (or all) of its candidates."""
    candidates = _members(embeddings.candidate_group.cpu())
    query_group = embeddings.query_group.cpu()
    for query_index in torch.randperm(len(query_group), generator=generator).split(size):
        chosen = []
        for g in dict.fromkeys(query_group[query_index].tolist()):
            own = candidates[g]
            if per_group is not None and len(own) > per_group:
                own = own[torch.randperm(len(own), generator=generator)[:per_group]].sort().values
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


def check(sample: str | None, batch_size: int | str, batches: int | None, per_group: int | None, seed: int) -> None:
    """Refuse options before anything is encoded.

    Raises:
        InputError: an option out of range.
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
) -> Plan:
    """Draw the batches of a run. Only row numbers are drawn: the embeddings stay where they are.

    The row numbers come from a generator on the CPU, so that a seed means the same batches on every device.

    Args:
        embeddings: the frozen embeddings of the training set.
        sample: `pairs` draws candidates without replacement, each with its query (batch size = pairs);
            `groups` draws queries, each with its candidates (batch size = queries), or, in a labelled set,
            classes x samples (batch size = samples). Samples against proxies are drawn one by one either way.
        batch_size: at least 2. One that reaches the whole set, or `all`, puts everything into one batch.
        batches: how many; None is one pass over the training set, the last batch partial, as published. More
            than one pass goes on with the next shuffle.
        per_group: `groups`: candidates of a query (None: all), or samples of a class (None: 4, or as many as
            fill the batch where there are few classes).
        seed: of the generator.

    Raises:
        InputError: an option out of range, or a query without any positive.
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
    by_candidate = sample == "pairs" and not embeddings.proxies
    whole, unit = (len(embeddings.candidate), "pairs") if by_candidate else (len(embeddings.query), "queries")
    unit = "samples" if embeddings.shared or embeddings.proxies else unit
    notes = []
    if batch_size > whole and not everything:
        notes.append(f"batch size {batch_size} is above the {whole} {unit} there are: all of them make one batch")
    size = min(batch_size, whole)
    generator = torch.Generator().manual_seed(seed)

    def one_pass() -> Iterator[Batch]:
        if embeddings.shared:
            if size == whole:
                index = torch.randperm(whole, generator=generator)
                return iter([Batch(index, index, paired=False)])
            filling = size // len(embeddings.query_group.unique())
            per_class = per_group or max(2, min(SAMPLES_PER_CLASS, size // 2), filling)
            return _classes(embeddings, size, per_class, generator)
        if embeddings.proxies:
            return _against_all(embeddings, size, generator)
        if sample == "groups":
            return _groups(embeddings, size, per_group, generator)
        return _pairs(embeddings, size, generator)

    orphans = ~torch.isin(embeddings.candidate_group, embeddings.query_group)
    left_out = int(orphans.sum()) if by_candidate else 0
    if left_out:
        notes.append(f"{left_out} candidates have no query and are not drawn")

    def useful() -> list[Batch]:
        return [batch for batch in one_pass() if len(batch.query_index) > 1 or embeddings.proxies]

    first = useful()
    if not first:
        raise InputError(
            f"batch size: {batch_size}: no batch holds two groups, so no query has a negative; take a larger one"
        )
    rest = whole - left_out - sum(len(batch.candidate_index if by_candidate else batch.query_index) for batch in first)
    if rest:
        notes.append(f"not drawn in a pass, for want of a negative in their batch: {rest} {unit}")
    drawn = first if batches is None else islice(chain(first, (b for _ in count() for b in useful())), batches)
    device = embeddings.query.device
    return Plan(tuple(batch.to(device) for batch in drawn), sample, size, tuple(notes))
