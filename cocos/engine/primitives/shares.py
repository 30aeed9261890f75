"""The second pass of SmoothAP: what every negative weighs, once the ranks of the positives are known."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.engine.kernel import structs
from cocos.engine.parts import Part, Tile, zeros
from cocos.engine.primitives.sigmoids import (
    Arguments,
    Factors,
    Found,
    Positives,
    Sigmoids,
    Sums,
    beside,
    queries_of,
    slope,
    widest,
)
from cocos.engine.view import View

__all__ = ["Shares", "Weighed", "again", "listed"]

# Pairs whose scores are taken again in float64 side by side.
EXACTLY = 2**20


@dataclass(frozen=True, eq=False)
class Weighed:
    """What the negatives of every query of one direction weigh.

    Args:
        sums: (4, n) shares of all negatives, and of those above eps; Σ share², Σ share ln share.
        counts: (6, n) negatives that may be, and that certainly are, above eps; terms of Eq. 7 that may be, and that
            are; negatives that may have, and that have, more than eps of the push.
        most: (n,) largest share.
    """

    sums: Tensor
    counts: Tensor
    most: Tensor | None

    @classmethod
    def nothing(cls, queries: Tensor) -> "Weighed":
        """No negative weighs anything, for as many queries, (n,)."""
        sums = torch.zeros(4, len(queries), dtype=torch.float64, device=queries.device)
        return cls(sums, torch.zeros(6, len(queries), dtype=torch.int64, device=queries.device), sums[0].clone())


class Shares:
    """The second pass: what every negative weighs, and how the push of a query is spread over its negatives.

    Args:
        view: the scores.
        temperature: τ, in units of score.
        factors: of each direction.
        far: as in `Sigmoids`.
        eps: smallest share, and smallest term of Eq. 7, that counts.
        heavy: of each direction, the share above which a negative has more than eps of the push, and its logarithmic
            error, (n,) each; None: that was not asked.
    """

    def __init__(
        self,
        view: View,
        temperature: float,
        factors: list[Factors],
        far: float,
        eps: float,
        heavy: list[tuple[Tensor, Tensor]] | None = None,
    ):
        self.view, self.temperature, self.factors, self.far, self.eps = view, temperature, factors, far, eps
        self.limits = []  # (6, n) of each direction: ends of what is undecided about eps and about `heavy`; eps; 0
        for k, each in enumerate(factors):
            level = torch.full_like(each.error, eps)
            ends = [level * sign.exp() for sign in (-each.error, each.error)]
            if heavy is None:
                ends += [torch.full_like(level, torch.inf)] * 2
            else:
                ends += [heavy[k][0] * sign.exp() for sign in (-heavy[k][1], heavy[k][1])]
            self.limits.append(torch.stack([*ends, level]))  # the last one is eps itself

    def start(self, view: View) -> Found:
        """Nothing yet."""
        sizes = [each.level.shape[1] for each in self.factors]
        return Found(
            [zeros(4, n, dtype=torch.float64, device=view.device) for n in sizes],
            [zeros(6, n, dtype=torch.int64, device=view.device) for n in sizes],
            [zeros(n, dtype=torch.float64, device=view.device) for n in sizes],
        )

    def see(self, state: Found, tile: Tile) -> None:
        """Weigh the negatives of a tile."""
        for direction, factors in enumerate(self.factors):
            where, dim = queries_of(tile, direction)
            ends = beside(tile, direction, self.limits[direction])
            counts, sums = state.counts[direction][:, where], state.sums[direction][:, where]
            share = torch.zeros_like(tile.scores)
            own = (beside(tile, direction, each) for each in (factors.level, factors.factor, factors.inverse))
            for level, factor, inverse in zip(*own, strict=True):
                steep = slope(tile.scores - level, self.temperature)
                share.addcmul_(steep, factor)
                steep *= inverse
                for k in range(2):
                    counts[2 + k] += (steep > ends[k]).sum(dim=dim)
            for k, row in enumerate((0, 1, 4, 5)):
                counts[row] += (share > ends[k]).sum(dim=dim)
            some = (share, torch.where(share > ends[4], share, 0), share.square(), share.xlogy(share))
            for k, values in enumerate(some):
                sums[k] += values.sum(dim=dim, dtype=torch.float64)
            most = state.most[direction][where]
            torch.maximum(most, share.amax(dim=dim).to(most.dtype), out=most)

    def done(self, state: Found) -> list[Weighed]:
        """What each direction weighs."""
        return [Weighed(*each) for each in zip(state.sums, state.counts, state.most, strict=True)]


def listed(first: Sigmoids, direction: int, sums: Sums, factors: Factors) -> Weighed:
    """What the noted negatives weigh, whose scores are taken again in float64 where they must be.

    Args:
        first: the first pass.
        direction: 0 or 1.
        sums: what it found.
        factors: of the same direction.
    """
    (query, other, score), eps, view = sums.listed, first.eps, first.view
    level, factor, inverse = (each[:, query] for each in (factors.level, factors.factor, factors.inverse))
    room, exact = factors.error[query], score.double()

    def weighed() -> Tensor:
        steep = slope(exact - level, first.temperature)
        return torch.cat([(steep * factor).sum(dim=0)[None], steep * inverse])

    near = ((weighed() / eps).log().abs() <= room).any(dim=0).nonzero().flatten()
    places = (query[near], other[near])
    exact[near] = view.exact(*places[:: 1 - 2 * direction])
    room[near] = factors.settled[query[near]]
    values, counts = weighed(), []
    ends = [eps * (sign * room).exp() for sign in (-1, 1)]
    for some in (values[:1], values[1:]):
        counts += [torch.bincount(query, (some > end).sum(dim=0), minlength=len(factors.error)) for end in ends]
    share = torch.where(values[0] > eps, values[0], 0)
    sums = torch.zeros(2, len(factors.error), dtype=torch.float64, device=view.device)
    sums[1].index_add_(0, query, share)
    return Weighed(sums, torch.stack(counts).long(), None)


def again(
    view: View, direction: int, places: Tensor, positives: Positives, temperature: float, eps: float, *, heavy: bool
) -> tuple[Sums, Factors, Weighed]:
    """The same for some queries, (places,), from scores in float64.

    Args:
        view: the scores.
        direction: 0 or 1.
        places: of the queries.
        positives: of all queries of the direction.
        temperature: τ, in units of score.
        eps: smallest share, and smallest term of Eq. 7, that counts.
        heavy: count the negatives with more than eps of the push as well.
    """
    width, parts = widest(view, direction), []
    for some in places.split(max(1, EXACTLY // width)):
        own = positives.some(some)
        tile = Tile(view, _exactly(view, direction, some, width), slice(0, len(some)), slice(0, width))
        first = Sigmoids(view, temperature, [own], math.inf, exact=True)
        state = first.start(view)
        first.see(state, tile)
        (sums,) = first.done(state)
        factors = sums.factors(own, first.errors)
        second = Shares(
            view, temperature, [factors], math.inf, eps, [sums.heavy(factors, eps, first.errors[0])] if heavy else None
        )
        state = second.start(view)
        second.see(state, tile)
        parts.append((sums, factors, *second.done(state)))
    return tuple(_joined(each) for each in zip(*parts, strict=True))


def _exactly(view: View, direction: int, places: Tensor, width: int) -> Tensor:
    """Scores of some queries in float64, (places, width), -inf where a pair is no negative."""
    score = torch.full((len(places), width), -torch.inf, dtype=torch.float64, device=view.device)
    if view.blocks == 1:  # one product for all
        for some, columns, found in view.exact_rows(direction, places):
            score[some, columns] = found
        return score
    side, edges = view.sides[direction], torch.from_numpy((view.rows, view.columns)[1 - direction]).to(view.device)
    block = view.block_of(direction, places)
    other = edges[block, None] + torch.arange(width, device=view.device)
    there = (other < edges[block + 1, None]) & ((other < side.first[places, None]) | (other >= side.last[places, None]))
    query, slot = there.nonzero(as_tuple=True)
    score[query, slot] = view.exact(*(places[query], other[query, slot])[:: 1 - 2 * direction])
    return score


def _joined(parts: tuple):
    """Values of one kind for all queries."""
    fields = zip(*(vars(part).values() for part in parts), strict=True)
    return type(parts[0])(*(torch.cat(each, dim=-1) if isinstance(each[0], Tensor) else each[0] for each in fields))


class _Second(Arguments):
    name = "weighing"

    def __init__(self, reader: Shares, view: View, chunk: int):
        super().__init__(reader, view, chunk)
        for k, (each, limits) in enumerate(zip(reader.factors, reader.limits, strict=True)):
            ends = zip(("low", "high", "some", "many"), limits, strict=False)
            own = {name: values.float() for name, values in ends}
            own |= {"factor": each.factor.float(), "inverse": each.inverse.float()}
            self._set(k, each.level, reader.far, **own)
        width = structs.constant("width")
        self.struct.set(sums=torch.empty(5, width), count=torch.empty(6, width, dtype=torch.int32), eps=reader.eps)

    def aim(self, state: Found, part: Part) -> None:
        for k, side in enumerate(self._sides):
            side.set(sums=state.sums[k], counts=state.counts[k], most=state.most[k])


Shares.kernel = _Second
