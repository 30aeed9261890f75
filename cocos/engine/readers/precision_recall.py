"""Precision and recall over all pairs of queries and candidates, at thresholds shared by all queries."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.engine.primitives.histogram import Ladder
from cocos.engine.sweep import Passes
from cocos.engine.view import View


@dataclass(frozen=True, eq=False)
class PrecisionRecallCurve:
    """Number of negative pairs accepted by a threshold at the score of each positive pair.

    Args:
        score: (P,) float64 scores of the positive pairs, descending.
        negatives: (P,) int64, negative pairs with a score at or above it.
    """

    score: Tensor
    negatives: Tensor


class PrecisionRecall:
    """Count the negative pairs at or above every positive pair, for the first direction, decided in float64.

    Args:
        levels: scores to count at, instead of those of the positive pairs.
    """

    def __init__(self, levels: Tensor | None = None):
        self.levels = levels

    def passes(self, view: View) -> Passes:
        """Yield one pass, unless there is no positive pair; return the `PrecisionRecallCurve`."""
        levels = self.levels
        if levels is None:
            levels = torch.cat([view.scored(0, a, b)[2] for a, b in view.chunks(0)])
        steps = levels.to(view.device, torch.float64).sort().values
        reached = (yield Ladder(view, steps)) if len(steps) else steps.long()
        return PrecisionRecallCurve(steps.flip(0), reached.flip(0))
