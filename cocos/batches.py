"""Seeded training batches, drawn from embeddings that were computed once."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, islice

import torch
from torch import Tensor

from cocos.embeddings import Embeddings
from cocos.errors import InputError, rows

__all__ = ["SAMPLINGS", "Batch", "Plan", "check", "plan"]

SAMPLINGS = ("pairs", "groups")
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


def _require_positives(embeddings: Embeddings) -> None:
    """Every query must have a positive somewhere in the set.

    Raises:
        InputError: naming the queries that have none.
    """
    if embeddings.shared:
        _, inverse, sizes = embeddings.query_group.unique(return_inverse=True, return_counts=True)
        lonely, reason = sizes[inverse] < 2, "the only sample of its class"
    else:
        lonely, reason = (
            ~torch.isin(embeddings.query_group, embeddings.candidate_group),
            "no candidate of its group",
        )
    lonely = lonely.nonzero().flatten().tolist()
    if lonely:
        groups = embeddings.query_group[lonely[:5]].tolist()
        raise InputError(
            f"query without any positive: {rows(lonely)} (group {', '.join(map(str, groups))}) has {reason}; "
            "remove it or give it a positive"
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
    """One pass over a labelled set: in every round each class that is left gives `per_class` of its samples.

    The rest of a class joins its last samples, so that none is alone in its batch.
    """
    chunks = []
    for members in _members(embeddings.query_group.cpu()).values():
        own = members[torch.randperm(len(members), generator=generator)]
        n = max(1, len(own) // per_class)
        chunks.append([*own[: per_class * (n - 1)].split(per_class), own[per_class * (n - 1) :]])
    drawn, held = [], 0
    for turn in range(max(len(c) for c in chunks)):
        left = [c[turn] for c in chunks if turn < len(c) and len(c[turn])]
        for i in torch.randperm(len(left), generator=generator).tolist():
            if drawn and held + len(left[i]) > size:
                index = torch.cat(drawn)
                yield Batch(index, index, paired=False)
                drawn, held = [], 0
            drawn.append(left[i])
            held += len(left[i])
    index = torch.cat(drawn)
    yield Batch(index, index, paired=False)


def _against_all(embeddings: Embeddings, size: int, generator: torch.Generator) -> Iterator[Batch]:
    """One pass over samples that ask for class proxies: all proxies are candidates of every batch."""
    everything = torch.arange(len(embeddings.candidate))
    for query_index in torch.randperm(len(embeddings.query), generator=generator).split(size):
        yield Batch(query_index, everything, paired=False)


def check(sample: str | None, batch_size: int, batches: int | None, per_group: int | None) -> None:
    """Refuse options before anything is encoded.

    Raises:
        InputError: an option out of range.
    """
    if sample is not None and sample not in SAMPLINGS:
        raise InputError(f"sample: {sample!r}, expected one of {', '.join(SAMPLINGS)}")
    if batch_size < 2:
        raise InputError(f"batch size: {batch_size}, expected at least 2 (a batch of one has no negative)")
    if batches is not None and batches < 1:
        raise InputError(f"batches: {batches}, expected at least 1")
    if per_group is not None and per_group < 1:
        raise InputError(f"per group: {per_group}, expected at least 1")


def plan(
    embeddings: Embeddings,
    *,
    sample: str = "pairs",
    batch_size: int = 128,
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
        batch_size: at least 2. One that reaches the whole set puts everything into one batch.
        batches: how many; None is one pass over the training set, the last batch partial, as published. More
            than one pass goes on with the next shuffle.
        per_group: `groups`: candidates of a query (None: all), or samples of a class (None: 4, or as many as
            fill the batch where there are few classes).
        seed: of the generator.

    Raises:
        InputError: an option out of range, or a query without any positive.
    """
    check(sample, batch_size, batches, per_group)
    if per_group == 1 and embeddings.shared:
        raise InputError("per group: 1, expected at least 2 samples of a class")
    _require_positives(embeddings)
    if sample == "pairs" and embeddings.shared:
        raise InputError("sample: 'pairs' needs two sides; a labelled set is drawn by class, with 'groups'")
    by_candidate = sample == "pairs" and not embeddings.proxies
    whole, unit = (len(embeddings.candidate), "pairs") if by_candidate else (len(embeddings.query), "queries")
    notes = []
    if batch_size > whole:
        notes.append(f"batch size {batch_size} is above the {whole} {unit} there are: all of them make one batch")
    size = min(batch_size, whole)
    generator = torch.Generator().manual_seed(seed)

    def one_pass() -> Iterator[Batch]:
        if embeddings.shared:
            if size == whole:
                index = torch.randperm(whole, generator=generator)
                return iter([Batch(index, index, paired=False)])
            per_class = per_group or max(SAMPLES_PER_CLASS, size // len(embeddings.query_group.unique()))
            return _classes(embeddings, size, per_class, generator)
        if embeddings.proxies:
            return _against_all(embeddings, size, generator)
        if sample == "groups":
            return _groups(embeddings, size, per_group, generator)
        return _pairs(embeddings, size, generator)

    if by_candidate:
        left_out = int((~torch.isin(embeddings.candidate_group, embeddings.query_group)).sum())
        if left_out:
            notes.append(f"{left_out} candidates have no query and are not drawn")
    if batches is None:
        drawn = tuple(one_pass())
    else:
        drawn = tuple(islice((batch for _ in count() for batch in one_pass()), batches))
    device = embeddings.query.device
    drawn = tuple(Batch(b.query_index.to(device), b.candidate_index.to(device), b.paired) for b in drawn)
    return Plan(drawn, sample, size, tuple(notes))
