"""Rows of float64 scores and the loss's own weights: for losses without a reader, and for undecided queries.

In: a view and the places of queries. Out: the statistics of these queries, as `cocos.statistics` defines them. Only a
few rows of scores are in memory at a time. All other readers must agree with this one.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.counting import statistics
from cocos.embeddings import similarities
from cocos.embeddings.scores import Pairs
from cocos.engine import bounds, devices
from cocos.engine.sweep import Passes
from cocos.engine.view import View

# Maximum number of scores in memory at once on a CPU: 4 MiB in float64.
SCORES_AT_ONCE = 2**19


def pieces(view: View, direction: int) -> Iterator[Tensor]:
    """Yield the places of a few queries of one block at a time, with at most `SCORES_AT_ONCE` scores."""
    rows, columns = (view.rows, view.columns)[:: 1 - 2 * direction]
    for k in range(view.blocks):
        size = max(1, devices.at_once(SCORES_AT_ONCE, view.device) // max(1, int(columns[k + 1] - columns[k])))
        yield from torch.arange(rows[k], rows[k + 1], device=view.device).split(size) if rows[k] < rows[k + 1] else ()


def dense_rows(view: View, direction: int, places: Tensor, *, embeddings: bool = False) -> Pairs:
    """Score queries against all candidates of their own blocks in float64, (places, largest block).

    Pairs beyond the end of a smaller block are in neither mask.

    Args:
        view: the scores.
        direction: of the queries.
        places: places of the queries.
        embeddings: include the embeddings, and the groups and norms of the candidates; all queries must then be of one
            block.
    """
    side, other = view.sides[direction], view.sides[1 - direction]
    edges, block = torch.from_numpy((view.rows, view.columns)[1 - direction]), view.block_of(direction, places)
    first, last = (edge.to(places.device)[block, None] for edge in (edges[:-1], edges[1:]))
    place = first + torch.arange(int((last - first).max()), device=places.device)
    inside = place < last
    same_group = (place >= side.first[places, None]) & (place < side.last[places, None])
    positive = same_group if side.partner is None else place == side.partner[places, None]
    if view.shared and side.partner is None:
        positive = positive & (other.order[place.clamp(max=len(other) - 1)] != side.order[places, None])
    score, wanted = torch.zeros(inside.shape, dtype=torch.float64, device=places.device), inside
    fields: dict[str, Any] = {"query_norm": side.norm[places]}
    pairwise = view.compiled or devices.ahead(view.device)  # is faster for a few queries of many blocks
    if not pairwise or bool((block == block[0]).all()):
        wanted = positive
        for queries, columns, scores in view.exact_rows(direction, places):
            score[queries, columns] = scores
        score.masked_fill_(same_group, 0)
    if embeddings:
        part = view.embeddings if direction == 0 else view.embeddings.flip()
        part = part.rows(side.order[places], other.order[place[0]]).to(dtype=torch.float64)
        norms = {"query_norm": similarities.length(part.query), "candidate_norm": similarities.length(part.candidate)}
        fields = norms | {"candidate_group": part.candidate_group, "embeddings": part}
    query, at = wanted.nonzero(as_tuple=True)
    pair = places[query], place[query, at]
    score[query, at] = view.exact(*pair[:: 1 - 2 * direction])
    return Pairs(score, positive, inside & ~same_group, **fields)


def _statistics(pairs: Pairs, loss, eps: float, equal: float) -> dict[str, Tensor]:
    """Statistics of the queries, (Q,) each, and `uncertain` and `negatives`; `equal` as in `bounds.equal`."""
    pair_weights = loss.weight(pairs)
    exact = loss.hinge is not None  # weights are integers
    part = statistics.per_query(pair_weights, loss.unit(pairs), pairs, eps, equal=0 if exact else equal)
    if exact:
        part |= {name: torch.zeros_like(part[name]) for name in ("uncertain", "relative_uncertain")}
    part["negatives"] = pairs.negative.sum(dim=1)
    if loss.adds_statistics:
        part |= loss.extra(pairs, eps)
    return part


def again(view: View, direction: int, result: dict, places: Tensor, loss, eps: float, nats: float) -> None:
    """Reweigh queries of any blocks from all of their scores in float64, and replace their statistics."""
    width = int(np.diff((view.rows, view.columns)[1 - direction]).max())
    for queries in places.split(max(1, devices.at_once(SCORES_AT_ONCE, view.device) // width)) if len(places) else ():
        pairs = dense_rows(view, direction, queries)
        values = _statistics(pairs, loss, eps, bounds.equal(view.exactness, nats, pairs.scores.shape[1]))
        for name in result.keys() & values.keys():
            result[name][queries] = values[name].to(result[name].dtype)


def weighed(view: View, loss, eps: float) -> tuple[dict[str, Tensor], ...]:
    """Weigh all queries from rows of float64 scores; one dict a direction, in the order of the batches."""
    results = []
    for direction in view.directions:
        pairs = (dense_rows(view, direction, queries, embeddings=True) for queries in pieces(view, direction))
        parts = [_statistics(part, loss, eps, bounds.equal(0.0, 0.0, part.scores.shape[1])) for part in pairs]
        side = view.sides[direction]
        results.append({name: side.unsorted(torch.cat([part[name] for part in parts])) for name in parts[0]})
    return tuple(results)


class RowsReader:
    """Any loss whose queries are independent; it asks for no pass, and weighs rows of float64 scores."""

    def __init__(self, loss, eps: float):
        self.loss, self.eps = loss, eps

    def passes(self, view: View) -> Passes:
        """Yield no pass; return the statistics of every query, one dict a direction: see `cocos.engine.readers`."""
        yield from ()
        return weighed(view, self.loss, self.eps)
