"""Where every positive stands among the negatives: the raw material of retrieval metrics."""

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos import scores
from cocos.engine.primitives.threshold import Threshold, about_positives, few
from cocos.engine.readers.held import pieces
from cocos.engine.view import View

__all__ = ["Ranked", "Ranks"]


@dataclass(frozen=True, eq=False)
class Ranked:
    """Positive pairs of one direction, sorted by query.

    Args:
        query: (P,) places in the batches.
        candidate: (P,) places in the batches.
        above: (P,) int64, negatives of the query with a higher score than this positive.
        ties: (P,) int64, negatives with the same score, to `view.tie`.
        score: (P,) float64.
    """

    query: Tensor
    candidate: Tensor
    above: Tensor
    ties: Tensor
    score: Tensor


class Ranks:
    """Ranks of all positives in every direction, decided in float64 where float32 cannot.

    Where a query has more positives than a pass can count above, the scores of some queries at a time are held instead.
    """

    def passes(self, view: View) -> Generator:
        """One `Ranked` a direction."""
        if not few(view):
            return tuple(_ranked(view, direction, _held(view, direction)) for direction in view.directions)
        levels, pairs = about_positives(view, 0.0)
        counts = yield Threshold(view, levels)
        found = []
        for direction, (query, other, place, score) in enumerate(pairs):
            above, ties = (each[direction][query, place] for each in (counts.above, counts.ties))
            found.append(_ranked(view, direction, (query, other, above, ties, score)))
        return tuple(found)


def _ranked(view: View, direction: int, found: tuple[Tensor, ...]) -> Ranked:
    """Positive pairs of places, their counts and scores, in the order of the batches."""
    query, other, *rest = found
    query, other = view.sides[direction].place[query], view.sides[1 - direction].place[other]
    order = other.argsort(stable=True)
    order = order[query[order].argsort(stable=True)]
    return Ranked(*(each[order] for each in (query, other, *rest)))


def _held(view: View, direction: int) -> tuple[Tensor, ...]:
    """Query, other, negatives above, negatives with the same score, and score of every positive pair."""
    parts, columns = [], (view.rows, view.columns)[1 - direction]
    for places in pieces(view, direction):
        pairs = view.dense(direction, places)
        begin = int(columns[int(view.block_of(direction, places[:1]))])
        query, other = pairs.positive.nonzero(as_tuple=True)
        above, ties = _counted(pairs, query, pairs.scores[query, other], view.tie)
        parts.append((places[query], other + begin, above, ties, pairs.scores[query, other]))
    return tuple(torch.cat(each) for each in zip(*parts, strict=True))


def _counted(pairs: scores.Pairs, query: Tensor, score: Tensor, tie: float) -> tuple[Tensor, Tensor]:
    """Negatives of some queries above some scores, and at them, (P,) int64 each, from scores that are held."""
    negative = pairs.scores.masked_fill(~pairs.negative, -torch.inf).sort(dim=1).values
    number = torch.bincount(query, minlength=len(negative))
    slot = torch.arange(len(query), device=query.device) - (number.cumsum(0) - number)[query]
    level = score.new_full((len(negative), max(1, int(number.max()))), torch.inf)
    level[query, slot] = score
    over = negative.shape[1] - torch.searchsorted(negative, (level + tie).contiguous(), right=True)
    reached = negative.shape[1] - torch.searchsorted(negative, (level - tie).contiguous())
    return over[query, slot], (reached - over)[query, slot]
