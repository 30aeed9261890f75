"""Where every positive stands among the negatives: what retrieval metrics are made of."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.readers._levels import OnLevels, ranked
from cocos.sweep import TIES

__all__ = ["Ranked", "Ranks"]


@dataclass(frozen=True, eq=False)
class Ranked:
    """Positive pairs of one direction, sorted by query.

    Args:
        query: (P,) places in the batch.
        candidate: (P,) places in the batch.
        above: (P,) int64, negatives of the query with a higher score than this positive.
        ties: (P,) int64, negatives with the same score, to 1e-12 of unit vectors.
        score: (P,) float64.
    """

    query: Tensor
    candidate: Tensor
    above: Tensor
    ties: Tensor
    score: Tensor


class Ranks(OnLevels):
    """Ranks of all positives in every direction, decided in float64 where float32 cannot.

    Where a query has more positives than a pass can count above, the scores of some queries at a time are held instead.
    """

    def finish(self) -> tuple[Ranked, ...]:
        """One `Ranked` a direction."""
        return tuple(self._result(direction) for direction in self.view.directions)

    def _result(self, direction: int) -> Ranked:
        if self.state:
            query, other, place, score = self.state.positive[direction]
            above, ties = (each[direction][query, place] for each in (self.state.above, self.state.ties))
        else:
            width = len(self.view.sides[1 - direction])
            parts = [self._held(direction, a, b) for a, b in self.view.chunks(direction, width)]
            query, other, above, ties, score = (torch.cat(each) for each in zip(*parts, strict=True))
        query, other = self.view.sides[direction].place[query], self.view.sides[1 - direction].place[other]
        order = other.argsort(stable=True)
        order = order[query[order].argsort(stable=True)]
        return Ranked(*(each[order] for each in (query, other, above, ties, score)))

    def _held(self, direction: int, start: int, stop: int) -> tuple[Tensor, ...]:
        places = torch.arange(start, stop, device=self.view.device)
        pairs = self.view.dense(direction, places)
        query, other = pairs.positive.nonzero(as_tuple=True)
        score = pairs.scores[query, other]
        number = torch.bincount(query, minlength=stop - start)
        slot = torch.arange(len(query), device=query.device) - (number.cumsum(0) - number)[query]
        level = torch.full(
            (stop - start, max(1, int(number.max()))), torch.inf, dtype=torch.float64, device=query.device
        )
        level[query, slot] = score
        above, ties = ranked(pairs, level, TIES * max(1.0, self.view.most))
        return query + start, other, above[query, slot], ties[query, slot], score
