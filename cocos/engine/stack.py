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
    origin = None
    if metric in {"euclidean", "squared_euclidean"}:
        product = "float64"  # a distance of two near rows is a small difference of large squares
        wide = torch.promote_types(embeddings.candidate.dtype, torch.float32)
        origin = embeddings.candidate.mean(dim=0, dtype=wide)
    sizes = zip(*(batch.sizes for batch in batches), strict=True)
    rows, columns = (np.cumsum([0, *side_sizes], dtype=np.int64) for side_sizes in sizes)
    index = [torch.cat([getattr(batch, f"{name}_index") for batch in batches]).long() for name in SIDE_NAMES]
    paired = batches[0].paired
    if paired and not _are_pairs(embeddings, batches, index):
        for batch in batches:
            check_pairs(embeddings, batch)
    layout = _sort_sides(embeddings, index, (rows, columns), paired=paired, separate=same_group == "negative")
    sides = []
    for k, (name, matrix) in enumerate(zip(SIDE_NAMES, (embeddings.query, embeddings.candidate), strict=True)):
        order, is_unit = index[k][layout.place[k]], name in similarities.NORMALISED_SIDES.get(metric, ())
        if origin is None and len(matrix) < 2 * len(order):  # rows are read faster in the order of the matrix
            numbers = torch.arange(len(matrix), device=matrix.device)
            norms = embeddings.kept("norms", (matrix,), lambda rows, numbers=numbers: exact.lengths(rows, numbers))
            norm = norms[order]
        else:
            norm = exact.lengths(matrix, order, origin)
        if is_unit and not norm.min() > 0:
            similarities.check(embeddings, metric)
        partner = layout.partner[k] if layout.partner and not (k and batches[0].extra) else None
        sides.append(ViewSide(matrix, order, layout.place[k], layout.first[k], layout.last[k], partner, norm, is_unit))
    two = len(embeddings.directions) == 2
    view = View((sides[0], sides[1]), rows, columns, metric, two, embeddings.shared, product, embeddings, origin)
    _refuse_out_of_range(view)
    return view


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


def _are_pairs(embeddings: Embeddings, batches: list[Batch], index: list[Tensor]) -> bool:
    """Whether all rows of all batches are pairs of one group, by one comparison; False if it cannot decide."""
    if any(batch.extra or batch.sizes[0] != batch.sizes[1] for batch in batches):
        return False
    return torch.equal(embeddings.query_group[index[0]], embeddings.candidate_group[index[1]])


@dataclass(frozen=True, eq=False)
class _Layout:
    """Visiting order of both sides, and the range of each row's group on the other side: see `ViewSide`."""

    place: tuple[Tensor, Tensor]
    first: tuple[Tensor, Tensor]
    last: tuple[Tensor, Tensor]
    partner: tuple[Tensor, Tensor] | None


def _sort_sides(embeddings, index: list[Tensor], edges: tuple, *, paired: bool, separate: bool) -> _Layout:
    """Sort the rows of both sides, `index`, by block and group; if pairs are `separate`, each is a group of its own."""
    device, separate = index[0].device, separate and paired
    number = torch.arange(len(index[0]), device=device)
    if (
        paired
        and len(edges[0]) > 2
        and np.array_equal(*edges)
        and (separate or (embeddings.groups.single and int(torch.bincount(index[0]).max()) < 2))
    ):  # each pair is its own group: places are rows
        return _Layout((number, number), (number, number), (number + 1, number + 1), (number, number))
    block = [torch.from_numpy(np.repeat(np.arange(len(e) - 1), np.diff(e))).to(device) for e in edges]
    start = [torch.from_numpy(e).to(device)[b] for e, b in zip(edges, block, strict=True)]
    within = [torch.arange(len(i), device=device) - s for i, s in zip(index, start, strict=True)]
    groups = within if separate else [embeddings.query_group[index[0]], embeddings.candidate_group[index[1]]]
    keys = _sort_keys(block, groups)
    place = [_ascending_order(key) for key in keys]
    keys = [key[order] for key, order in zip(keys, place, strict=True)]
    if torch.equal(*keys) and bool((keys[0][1:] > keys[0][:-1]).all()):
        partner = (number, number) if paired else None
        return _Layout((place[0], place[1]), (number, number), (number + 1, number + 1), partner)
    first, last = (
        (torch.searchsorted(keys[1], keys[0], right=right), torch.searchsorted(keys[0], keys[1], right=right))
        for right in (False, True)
    )
    partner = None
    if paired:
        inverse = [torch.empty_like(p).index_copy_(0, p, torch.arange(len(p), device=device)) for p in place]
        candidate = torch.from_numpy(edges[1]).to(device)[block[0]] + within[0]
        query = torch.from_numpy(edges[0]).to(device)[block[1]] + within[1]
        query = query.clamp(max=len(index[0]) - 1)  # hard negatives have no partner and are not queries
        partner = (inverse[1][candidate[place[0]]], inverse[0][query[place[1]]])
    return _Layout((place[0], place[1]), first, last, partner)


def _sort_keys(block: list[Tensor], groups: list[Tensor]) -> list[Tensor]:
    """Integer keys that sort both sides by block and, within a block, by group."""
    if int(block[0][-1]) == 0:
        return groups
    low = min(int(group.min()) for group in groups)
    span = max(int(group.max()) for group in groups) - low + 1
    if span > 2**62 // (int(block[0][-1]) + 1):
        inverse = torch.cat(groups).unique(return_inverse=True)[1]
        groups, low, span = list(inverse.split([len(each) for each in groups])), 0, len(inverse)
    return [b * span + (g - low) for b, g in zip(block, groups, strict=True)]


def _ascending_order(key: Tensor) -> Tensor:
    """Stable ascending order of a key."""
    if bool((key[1:] >= key[:-1]).all()):
        return torch.arange(len(key), device=key.device)
    return key.argsort(stable=True)


def _refuse_out_of_range(view: View) -> None:
    """Reject embeddings whose scores leave the range of the arithmetic."""
    longest = view.sides[0].longest + view.sides[1].longest
    if not longest < torch.finfo(torch.float64).max ** 0.5:
        raise InputError(
            f"{view.metric} scores of embeddings with lengths of up to {longest:.1e} leave the range of float64; "
            "divide all embeddings by one number"
        )
    if view.product != "float64" and not longest**2 < LARGEST_FLOAT32_SCORE:
        raise InputError(
            f"{view.metric} scores of these embeddings may reach {longest**2:.1e}, beyond the range of float32; choose "
            "the dtype float64"
        )
