"""The rank of every positive among the negatives: the raw material of retrieval metrics."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cocos.engine import devices
from cocos.engine.readers.rows import pieces
from cocos.engine.sweep import Passes
from cocos.engine.thresholds import Threshold, about_positives, few
from cocos.engine.view import View


@dataclass(frozen=True, eq=False)
class PositiveRanks:
    """Positive pairs of one direction, sorted by query, and their ranks.

    Args:
        query: (P,) positions in the batches.
        candidate: (P,) positions in the batches.
        above: (P,) int64, negatives of the query with a higher score than this positive.
        ties: (P,) int64, negatives within `view.tie` of it.
        score: (P,) float64.
    """

    query: Tensor
    candidate: Tensor
    above: Tensor
    ties: Tensor
    score: Tensor


class Ranks:
    """Rank all positives in every direction, decided in float64 where float32 leaves the order open.

    If a query has more positives than a pass has levels, the scores of a few queries at a time are stored instead.
    """

    def passes(self, view: View) -> Passes:
        """Yield at most one pass; return one `PositiveRanks` a direction."""
        levels, pairs = about_positives(view, 0.0)
        if few(view):
            counted = yield Threshold(view, levels)
        else:
            counted = [_count_in_rows(view, direction, level) for direction, level in enumerate(levels)]
        return tuple(_ranked(view, k, *both) for k, both in enumerate(zip(pairs, counted, strict=True)))


def _ranked(view: View, direction: int, pairs: tuple[Tensor, ...], counted: tuple[Tensor, Tensor]) -> PositiveRanks:
    """Assemble positive pairs, counts and scores in the order of the batches."""
    query, other, place, score = pairs
    above, ties = (each[query, place] for each in counted)
    query, other = view.sides[direction].place[query], view.sides[1 - direction].place[other]
    order = other.argsort(stable=True)
    order = order[query[order].argsort(stable=True)]
    return PositiveRanks(*(each[order] for each in (query, other, above, ties, score)))


def _count_in_rows(view: View, direction: int, level: Tensor) -> tuple[Tensor, Tensor]:
    """Count negatives above and tied with each level, (n, K) int64 each, from rows of float64 scores."""
    above, ties = torch.zeros(2, *level.shape, dtype=torch.int64, device=view.device)
    side, edges = view.sides[direction], (view.rows, view.columns)[1 - direction]
    for places in pieces(view, direction):
        begin, end = edges[int(view.block_of(direction, places[:1])) :][:2].tolist()
        score = level.new_empty(len(places), end - begin)
        for queries, candidates, scores in view.exact_rows(direction, places):
            score[queries, candidates] = scores
        column = torch.arange(begin, end, device=view.device)
        score[(column >= side.first[places, None]) & (column < side.last[places, None])] = -torch.inf
        ahead = devices.ahead(view.device)
        score = score.sort().values if ahead else torch.from_numpy(np.sort(score.numpy()))  # faster on a CPU
        over, reached = (
            score.shape[1] - torch.searchsorted(score, level[places] + sign * view.tie, right=sign > 0)
            for sign in (1, -1)
        )
        above[places], ties[places] = over, reached - over
    return above, ties
