"""Parts of the negatives and of the push that marked candidates have, beside those of as many random negatives."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import results
from cocos.counting import statistics
from cocos.embeddings import Embeddings
from cocos.embeddings.batches import Batch
from cocos.embeddings.scores import Pairs
from cocos.measures import _per_query

# Of every query and kind: long name and units.
MARKED_LABELS = {
    "marked_negatives": ("marked negatives", "candidates"),
    "marked_push_per_query": ("part of the query's push on the marked negatives", "1"),
    "placebo_push_per_query": ("part of the query's push on as many random negatives", "1"),
}
# Of every batch and kind; the entry of the JSON document is named in front.
MARKED_PARTS = {
    "marked_share": ("negatives", "part of the negatives that is marked", "1"),
    "marked_push": ("push", "part of the push on the marked negatives", "1"),
    "placebo_push": ("placebo", "part of the push on as many random negatives", "1"),
    "enrichment": ("enrichment", "part of the push over part of the negatives", "1"),
}


@dataclass(frozen=True, eq=False)
class MarkedBatch:
    """The marks of the pairs of one batch, in one direction, and the draw of as many random negatives.

    Args:
        embeddings: with marks, seen from the side that asks.
        batch: likewise.
        generator: of the random negatives.
    """

    embeddings: Embeddings
    batch: Batch
    generator: torch.Generator

    @classmethod
    def of(cls, embeddings: Embeddings, batch: Batch, seed: int, number: int) -> "MarkedBatch | None":
        """The marks of the batch of this number; None where the embeddings have none."""
        if not embeddings.marks:
            return None
        second = sum(map(ord, embeddings.directions[0]))  # each direction has draws of its own
        (state,) = np.random.SeedSequence([seed, number, second]).generate_state(1, np.uint64)
        return cls(embeddings, batch, torch.Generator().manual_seed(int(state >> np.uint64(1))))

    def masks(self, pairs: Pairs, start: int) -> Iterator[tuple[Tensor, Tensor] | None]:
        """Yield for each kind its negatives and as many random ones, (q, C) bool; None where nothing is known.

        Args:
            pairs: a block of the batch.
            start: its first query.
        """
        query = self.batch.query_index[start : start + len(pairs.scores)]
        for mark in (self.embeddings.marks or {}).values():
            kinds = mark.pairs(query, self.batch.candidate_index)
            for kind in range(len(mark.kinds)):
                mask = None if kinds is None else (kinds == kind) & pairs.negative
                yield None if mask is None else (mask, statistics.as_many(mask, pairs.negative, self.generator))


def of_block(push: Tensor, masks: Sequence[tuple[Tensor, Tensor] | None]) -> dict[str, Tensor]:
    """Statistics of the queries of a block, (q,) each, named by statistic and number of the kind; and their push.

    Args:
        push: (q, C), push of each negative.
        masks: of each kind.
    """
    made, unknown, total = {"negative_push": push.sum(dim=1)}, push.new_full((len(push),), torch.nan), push.sum(dim=1)
    for kind, both in enumerate(masks):
        held = (unknown,) * 3
        if both is not None:
            marked, placebo = both
            sums = (torch.where(mask, push, 0).sum(dim=1) for mask in (marked, placebo))
            held = (marked.sum(dim=1), *(each / torch.where(total > 0, total, 1) for each in sums))
        made |= {f"{name}/{kind}": values for name, values in zip(MARKED_LABELS, held, strict=True)}
    return made


def taken(values: Mapping[str, np.ndarray], number: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Split the arrays of a run in those of `of_block`, with the kinds in front, and the others, which come first."""
    if not number:
        return dict(values), {}
    marked = {name: np.stack([values[f"{name}/{kind}"] for kind in range(number)]) for name in MARKED_LABELS}
    return {name: array for name, array in values.items() if "/" not in name}, marked


def parts(
    values: Mapping[str, np.ndarray], negatives: np.ndarray, push: np.ndarray, axis: int | tuple[int, ...]
) -> dict[str, np.ndarray]:
    """The entries of `MARKED_PARTS` over some axes of queries: ratios of sums, NaN where there is nothing to divide by.

    Args:
        values: of `MARKED_LABELS`, each (kinds, ..., queries).
        negatives: (..., queries).
        push: (..., queries), of all negatives.
        axis: of the queries, counted from the last one.
    """
    names, found = list(MARKED_LABELS), []
    for name, whole in zip(names, (negatives, push, push), strict=True):
        own = values[name] if name == names[0] else values[name] * push
        there = np.broadcast_to(whole, own.shape)
        found.append(_over(np.nansum(own, axis=axis), np.where(np.isnan(own), 0, there).sum(axis=axis)))
    return dict(zip(MARKED_PARTS, [*found, _over(found[1], found[0])], strict=True))


def _over(values: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Quotients; NaN where the total is not above 0."""
    return np.divide(values, total, out=np.full(np.shape(values), np.nan), where=total > 0)


def variables(
    marked: Mapping[str, np.ndarray], values: Mapping[str, np.ndarray], labels: Sequence[str]
) -> dict[str, tuple]:
    """Label the statistics of marked candidates over mark, direction, batch and query; nothing without any."""
    if not marked:
        return {}
    dims = ("mark", "direction", "batch", "query")
    found = parts(marked, values["negatives"], values["negative_push"], -1)
    made: dict[str, tuple] = {"mark": ("mark", list(labels), "mark on candidates")}
    made |= {name: (dims, marked[name], *about) for name, about in MARKED_LABELS.items()}
    return made | {name: (dims[:3], found[name], *about) for name, (_, *about) in MARKED_PARTS.items()}


def entries(one: xr.Dataset, full: np.ndarray, *, standard: bool) -> dict:
    """Entries `marks` of one direction in the JSON document: label -> number -> mean and deviation; {} without marks.

    They are ratios of sums over all queries, or means over batches as published; deviations are those of full batches.
    """
    if "mark" not in one.dims:
        return {}
    values = {name: one[name].transpose("mark", "batch", "query").values for name in MARKED_LABELS}
    push = one["negative_push" if "negative_push" in one else "push"]  # which older files have
    over = parts(values, one["negatives"].values, push.values, (-2, -1))
    made = {}
    for place, label in enumerate(map(str, one["mark"].values)):
        made[label] = entry = {}
        for name, (key, *_) in MARKED_PARTS.items():
            batches = one[name].isel(mark=place)
            mean = float(over[name][place])
            whole = {"mean": mean if np.isfinite(mean) else None, "std": _per_query.deviation(batches.values[full])}
            entry[key] = whole if standard else results.mean_std(batches)
        entry["queries"] = int((values["marked_negatives"][place] > 0).sum())
    return {"marks": made}
