"""The reference: the scores of a few queries at a time, held in float64, and the loss's own weights."""

from collections.abc import Generator, Iterator

import numpy as np
import torch
from torch import Tensor

from cocos import losses, processes, statistics, weights
from cocos.engine import bounds, devices
from cocos.engine.view import View
from cocos.scores import Pairs

__all__ = ["Held", "again", "held", "pieces", "weighed"]

SCORES_AT_ONCE = 2**19  # scores that are held at once


def pieces(view: View, direction: int, places: Tensor | None = None) -> Iterator[Tensor]:
    """Queries of a direction, a few of one block at a time, such that not too many scores are held.

    Args:
        view: the scores.
        direction: of the queries.
        places: which of them, ascending; None: all.
    """
    own, other = (view.rows, view.columns)[:: 1 - 2 * direction]
    every = torch.arange(len(view.sides[direction]), device=view.device) if places is None else places
    edges = torch.searchsorted(every, torch.from_numpy(own).to(every.device)).tolist()
    for k, (a, b) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
        if a < b:
            yield from every[a:b].split(max(1, SCORES_AT_ONCE // max(1, int(other[k + 1] - other[k]))))


def held(view: View, direction: int, places: Tensor, loss, eps: float) -> dict[str, Tensor]:
    """Statistics of some queries, (places,) each, as `cocos.statistics` has them, and `uncertain` and `negatives`.

    Args:
        view: the scores.
        direction: of the queries.
        places: which of them, ascending.
        loss: as in `cocos.losses.load`.
        eps: smallest share that contributes.
    """
    chunks = list(pieces(view, direction, places))
    with devices.threads():
        mine = processes.mine(chunks) if view.together else chunks
        parts = [_weighed(view, direction, some, loss, eps) for some in mine]
    parts = processes.collect(parts, places.device) if view.together else parts
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _weighed(view: View, direction: int, places: Tensor, loss, eps: float) -> dict[str, Tensor]:
    pairs = view.dense(direction, places)
    found = weights.of(loss, pairs)
    unit = weights.unit(loss, found, pairs)
    exact = isinstance(loss, losses.Hinge)  # whole numbers, and their quotients, are above eps or not
    part = statistics.per_query(
        found, unit, pairs, eps, equal=0 if exact else bounds.equal(0.0, 0.0, pairs.scores.shape[1])
    )
    if exact:
        part |= {name: torch.zeros_like(part[name]) for name in ("uncertain", "relative_uncertain")}
    part["negatives"] = pairs.negative.sum(dim=1)
    if isinstance(loss, losses.ExtraStatistics):
        part |= loss.extra(pairs, eps)
    return part


def again(view: View, direction: int, result: dict, places: Tensor, loss, eps: float, nats: float) -> None:
    """Weigh some queries of any blocks with all of their scores in float64, and put their statistics in place.

    Args:
        view: the scores.
        direction: of the queries.
        result: statistics of all of them, (n,) each.
        places: which are weighed.
        loss: with a closed form of its weights.
        eps: smallest share that contributes.
        nats: as in `bounds.equal`.
    """
    width = int(np.diff((view.rows, view.columns)[1 - direction]).max())
    for some in places.split(max(1, SCORES_AT_ONCE // width)) if len(places) else ():
        pairs = _rows(view, direction, some)
        equal = bounds.equal(view.exactness, nats, pairs.scores.shape[1])
        found = statistics.per_query(loss.weight(pairs), loss.unit(pairs), pairs, eps, equal=equal)
        if isinstance(loss, losses.ExtraStatistics):
            found |= loss.extra(pairs, eps)
        for name in result.keys() & found.keys():
            result[name][some] = found[name].to(result[name].dtype)


def _rows(view: View, k: int, places: Tensor) -> Pairs:
    """Some queries against all candidates of their own block in float64, one after the other."""
    side, other = view.sides[k], (view.rows, view.columns)[1 - k]
    edges = torch.from_numpy(other).to(places.device)
    block = view.block_of(k, places)
    number = (edges[1:] - edges[:-1])[block]
    column = torch.arange(int(number.max()), device=places.device)
    inside = column < number[:, None]
    place = edges[block, None] + column
    own = (place >= side.first[places, None]) & (place < side.last[places, None]) & inside
    positive = own if side.partner is None else (place == side.partner[places, None]) & inside
    if view.shared and side.partner is None:
        order = view.sides[1 - k].order
        positive = positive & (order[place.clamp(max=len(order) - 1)] != side.order[places, None])
    scores, wanted = torch.zeros(inside.shape, dtype=torch.float64, device=places.device), inside
    if view.blocks == 1:  # one product, which leaves out what is no negative
        wanted = positive
        for mine, where, some in view.exact_rows(k, places):
            scores[mine, where] = some
        scores.masked_fill_(own, 0)
    query, at = wanted.nonzero(as_tuple=True)
    pair = (places[query], place[query, at])
    scores[query, at] = view.exact(*(pair if k == 0 else pair[::-1]))
    return Pairs(scores, positive, inside & ~own, query_norm=side.norm[places])


def weighed(view: View, loss, eps: float) -> tuple[dict[str, Tensor], ...]:
    """Statistics of all queries, one dict a direction, in the order of the batches."""
    found = []
    for direction in view.directions:
        side = view.sides[direction]
        result = held(view, direction, torch.arange(len(side), device=view.device), loss, eps)
        found.append({name: side.unsorted(values) for name, values in result.items()})
    return tuple(found)


class Held:
    """Any loss whose queries are independent: it asks for no pass, and weighs whole rows of scores.

    Args:
        loss: as in `cocos.losses.load`.
        eps: smallest share that contributes.
    """

    def __init__(self, loss, eps: float):
        self.loss, self.eps = loss, eps

    def passes(self, view: View) -> Generator:
        """The statistics of every query, one dict a direction: see `cocos.engine.readers`."""
        yield from ()
        return weighed(view, self.loss, self.eps)
