"""Build the view of a stack of batches: sort each block by group, compute norms, reject rows that cannot be scored.

seen = view(embeddings, batches, metric="cosine")
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.embeddings import Embeddings, similarities
from cocos.embeddings.sampling import Batch, check_pairs
from cocos.embeddings.similarities import unit
from cocos.engine import devices, exact
from cocos.engine.view import PRODUCTS, View, ViewSide

# Metrics whose scores are one matrix product, up to a root and the norms.
PRODUCT_METRICS = ("cosine", "cosine_dot", "dot", "euclidean", "squared_chord", "squared_euclidean")
# Fields of `Embeddings` for the two sides.
SIDE_NAMES = ("query", "candidate")
# Largest score in float32: sums of scores and of their squares with the error terms stay below 3.4e38.
LARGEST_FLOAT32_SCORE = 1e36


def fits(embeddings: Embeddings, metric: str) -> bool:
    """Whether one matrix product gives the scores of both directions."""
    return metric in PRODUCT_METRICS and not (metric == "cosine_dot" and len(embeddings.directions) == 2)


@devices.threads(1)
def view(
    embeddings: Embeddings,
    batches: Batch | Sequence[Batch] | None = None,
    *,
    metric: str = "cosine",
    same_group: str = "ignore",
    product: str = "float32",
) -> View:
    """Build the score matrices of one batch, of each batch of a stack, or of the whole set.

    Args:
        embeddings: the whole set.
        batches: rows of one batch, or of several; None takes the whole set as one batch.
        metric: one of `PRODUCT_METRICS`.
        same_group: relation of two rows of one group that are not a pair, in a batch of pairs: `ignore` or `negative`.
        product: one of `PRODUCTS`.

    Raises:
        InputError: a metric that is not one product, an unknown product, a batch of pairs whose rows are not pairs,
            pairs and other batches in one stack, or hard negatives in a batch of two directions.
    """
    batches = _validated(embeddings, batches, metric, product)
    if metric == "squared_chord":
        embeddings, metric = _on_sphere(embeddings), "squared_euclidean"
    paired, matrices = batches[0].paired, (embeddings.query, embeddings.candidate)
    offsets = [np.cumsum([0, *each], dtype=np.int64) for each in zip(*(batch.sizes for batch in batches), strict=True)]
    index = [torch.cat([getattr(batch, f"{name}_index") for batch in batches]).long() for name in SIDE_NAMES]
    if paired and not _pairs(embeddings, batches, index):
        for batch in batches:
            check_pairs(embeddings, batch)
    own = _Own.of(embeddings, index, offsets, paired=paired, apart=paired and same_group == "negative")
    origin = None
    if metric in {"euclidean", "squared_euclidean"}:
        product = "float64"  # a distance of two near rows is a small difference of large squares
    if metric in {"euclidean", "squared_euclidean"}:
        wide = torch.promote_types(embeddings.candidate.dtype, torch.float32)
        origin = embeddings.candidate.mean(dim=0, dtype=wide)
    orders = [each[place] for each, place in zip(index, own.place, strict=True)]
    sides = []
    for k, (name, matrix) in enumerate(zip(SIDE_NAMES, matrices, strict=True)):
        order, unit = orders[k], name in similarities.NORMALISED_SIDES.get(metric, ())
        if origin is None and len(matrix) < 2 * len(order):  # rows are read faster in the order of the matrix
            places = torch.arange(len(matrix), device=matrix.device)
            norm = embeddings.kept("norms", (matrix,), lambda rows, places=places: exact.lengths(rows, places))[order]
        else:
            norm = exact.lengths(matrix, order, origin)
        if unit and not norm.min() > 0:
            similarities.check(embeddings, metric)
        partner = own.partner[k] if own.partner and not (k and batches[0].extra) else None
        sides.append(ViewSide(matrix, order, own.place[k], own.first[k], own.last[k], partner, norm, unit))
    two = len(embeddings.directions) == 2
    shared, rows, columns = embeddings.shared, *offsets
    made = View((sides[0], sides[1]), rows, columns, metric, two, shared, product, embeddings, origin)
    _refuse_out_of_range(made)
    return made


def _on_sphere(embeddings: Embeddings) -> Embeddings:
    """The rows divided by their lengths, in float64, kept with the embeddings."""
    similarities.check(embeddings, "squared_chord")
    query, candidate = (
        embeddings.kept("unit rows", (rows,), lambda rows: unit(rows.double()))
        for rows in (embeddings.query, embeddings.candidate)
    )
    return embeddings.with_rows(query, candidate)


def _validated(embeddings: Embeddings, batches, metric: str, product: str) -> list[Batch]:
    """Return the batches as a list, validated."""
    if metric not in PRODUCT_METRICS:
        raise InputError(f"metric: {metric!r}, expected one that a matrix product gives: {', '.join(PRODUCT_METRICS)}")
    if product not in PRODUCTS:
        raise InputError(f"product: {product!r}, expected one of {', '.join(PRODUCTS)}")
    two = len(embeddings.directions) == 2
    if metric == "cosine_dot" and two:
        raise InputError("metric: cosine_dot divides by the query norms, so each direction has its own product")
    if batches is None:
        rows, columns = (torch.arange(len(m), device=m.device) for m in (embeddings.query, embeddings.candidate))
        return [Batch(rows, columns, paired=False)]
    batches = [batches] if isinstance(batches, Batch) else list(batches)
    if not batches or len({batch.paired for batch in batches}) > 1:
        raise InputError(f"batches: {len(batches)}, expected at least one, either all of pairs or none")
    if two and not all(batch.square for batch in batches):
        raise InputError("batch: with hard negatives each direction has its own candidates and needs its own view")
    return batches


def _pairs(embeddings: Embeddings, batches: list[Batch], index: list[Tensor]) -> bool:
    """Whether all rows of all batches are pairs of one group; False where one comparison does not tell."""
    if any(batch.extra or batch.sizes[0] != batch.sizes[1] for batch in batches):
        return False
    return torch.equal(embeddings.query_group[index[0]], embeddings.candidate_group[index[1]])


@dataclass(frozen=True, eq=False)
class _Own:
    """Visiting order of both sides, and the range of each row's own group on the other side."""

    place: tuple[Tensor, Tensor]
    first: tuple[Tensor, Tensor]
    last: tuple[Tensor, Tensor]
    partner: tuple[Tensor, Tensor] | None

    @classmethod
    def of(cls, embeddings, index: list[Tensor], offsets: list[np.ndarray], *, paired: bool, apart: bool) -> "_Own":
        """Sort both sides by block and group; with `apart`, each pair is its own group."""
        device = index[0].device
        if (
            paired
            and len(offsets[0]) > 2
            and np.array_equal(offsets[0], offsets[1])
            and (apart or (embeddings.groups.single and int(torch.bincount(index[0]).max()) < 2))
        ):
            at = torch.arange(len(index[0]), device=device)  # each pair is its own group: places are rows
            return cls((at, at), (at, at), (at + 1, at + 1), (at, at))
        block = [torch.from_numpy(np.repeat(np.arange(len(o) - 1), np.diff(o))).to(device) for o in offsets]
        start = [torch.from_numpy(o).to(device)[b] for o, b in zip(offsets, block, strict=True)]
        within = [torch.arange(len(i), device=device) - s for i, s in zip(index, start, strict=True)]
        groups = within if apart else [embeddings.query_group[index[0]], embeddings.candidate_group[index[1]]]
        key = _sort_keys(block, groups)
        place = [_sorted(each) for each in key]
        key = [each[p] for each, p in zip(key, place, strict=True)]
        at = torch.arange(len(key[0]), device=device)
        if torch.equal(*key) and bool((key[0][1:] > key[0][:-1]).all()):
            return cls((place[0], place[1]), (at, at), (at + 1, at + 1), (at, at) if paired else None)
        first, last = (
            (torch.searchsorted(key[1], key[0], right=right), torch.searchsorted(key[0], key[1], right=right))
            for right in (False, True)
        )
        partner = None
        if paired:
            turned = [torch.empty_like(p).index_copy_(0, p, torch.arange(len(p), device=device)) for p in place]
            beside = torch.from_numpy(offsets[1]).to(device)[block[0]] + within[0]
            back = torch.from_numpy(offsets[0]).to(device)[block[1]] + within[1]
            inside = back.clamp(max=len(index[0]) - 1)  # hard negatives have no partner and are not queries
            partner = (turned[1][beside[place[0]]], turned[0][inside[place[1]]])
        return cls((place[0], place[1]), first, last, partner)


def _sort_keys(block: list[Tensor], groups: list[Tensor]) -> list[Tensor]:
    """Integer keys that sort both sides by block and, within a block, by group."""
    if int(block[0][-1]) == 0:
        return groups
    low = min(int(each.min()) for each in groups)
    span = max(int(each.max()) for each in groups) - low + 1
    if span > 2**62 // (int(block[0][-1]) + 1):
        inverse = torch.cat(groups).unique(return_inverse=True)[1]
        groups, low, span = list(inverse.split([len(each) for each in groups])), 0, len(inverse)
    return [b * span + (g - low) for b, g in zip(block, groups, strict=True)]


def _sorted(key: Tensor) -> Tensor:
    """Stable ascending order of a key."""
    if bool((key[1:] >= key[:-1]).all()):
        return torch.arange(len(key), device=key.device)
    return key.argsort(stable=True)


def _refuse_out_of_range(made: View) -> None:
    """Reject embeddings whose scores leave the range of the arithmetic."""
    longest = made.sides[0].longest + made.sides[1].longest
    if not longest < torch.finfo(torch.float64).max ** 0.5:
        raise InputError(
            f"{made.metric} scores of embeddings with lengths of up to {longest:.1e} leave the range of float64; "
            "divide all embeddings by one number"
        )
    if made.product != "float64" and not longest**2 < LARGEST_FLOAT32_SCORE:
        raise InputError(
            f"{made.metric} scores of these embeddings may reach {longest**2:.1e}, beyond the range of float32; choose "
            "the dtype float64"
        )
