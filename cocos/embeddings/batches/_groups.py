"""Batches by group: queries with their candidates, samples by class, samples against all class proxies."""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from cocos.embeddings import Embeddings
from cocos.embeddings.batches._batch import Batch

# Samples of one class in a batch of a labelled set, the m of m-per-class samplers.
SAMPLES_PER_CLASS = 4


def queries(embeddings: Embeddings, size: int, per_group: int | None, generator: torch.Generator) -> Iterator[Batch]:
    """Yield the batches of one pass: every query once, each with `per_group` (None: all) of its candidates."""
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


def classes(embeddings: Embeddings, size: int, per_class: int, generator: torch.Generator) -> Iterator[Batch]:
    """Yield the batches of one pass over a labelled set, up to `per_class` samples of a class at a time.

    In every round each class that has samples left gives some of them. A batch that would contain one class takes
    samples of another from the batch before it, where that can spare them. Samples of one large class that are then
    left alone are not drawn: they would have no negative.
    """
    chunks = []
    for members in _members(embeddings.query_group.cpu()).values():
        own = members[torch.randperm(len(members), generator=generator)]
        n = min(-(-len(own) // per_class), len(own) // 2)  # no sample is alone in its batch
        chunks.append([own[i::n] for i in range(n)])
    made: list[list[tuple[int, Tensor]]] = [[]]
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


def _members(group: Tensor) -> dict[int, Tensor]:
    """Rows of every group, in ascending order."""
    order = group.argsort(stable=True)
    ids, sizes = group[order].unique_consecutive(return_counts=True)
    return dict(zip(ids.tolist(), order.split(sizes.tolist()), strict=True))


def against_proxies(embeddings: Embeddings, size: int, generator: torch.Generator) -> Iterator[Batch]:
    """Yield the batches of one pass over samples: all class proxies are candidates of every batch."""
    everything = torch.arange(len(embeddings.candidate))
    for query_index in torch.randperm(len(embeddings.query), generator=generator).split(size):
        yield Batch(query_index, everything, paired=False)
