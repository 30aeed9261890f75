"""Weights of all negatives of a query, whole lines of scores at a time: for softmax losses, hinges and sigmoids.

A reader that uses `Lines` sets `whole_lines = True`, so that no part cuts a line, and is run with tiles of the size
that `Lines.tile` returns.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from cocos.engine.readers import hinge, sigmoid, softmax
from cocos.engine.thresholds import about_positives
from cocos.engine.tiles import Tile
from cocos.engine.view import View

# Maximum number of scores in a tile of whole lines: 32 MiB in float64.
LINES_TILE = 2**22
# Number of scores weighed at once: 1 MiB in float64, which stays in the second-level cache.
WEIGHED_AT_ONCE = 2**17


class Lines:
    """Gradient weights of whole lines of one view, of one direction if a block has more than `LINES_TILE` scores."""

    def __init__(self, view: View, loss):
        scale = loss.softmax_scale
        self.view, self.loss, self.scale = view, loss, scale or 0.0
        if scale is not None:  # the positives of all queries, and one negative whose score is filled in later
            pooled = [torch.where(view.negatives(k) > 0, 0.0, -torch.inf).double() for k in view.directions]
            self._weigh = self._softmax
            self.pairs = [softmax.with_pooled_negative(view, k, 0, len(score), score) for k, score in enumerate(pooled)]
        elif loss.logistic:
            self._weigh = self._sigmoid
        else:
            self._weigh, (self.levels, _) = self._hinge, about_positives(view, loss.margin)

    @staticmethod
    def reads(loss) -> bool:
        """Whether the weight of a negative depends on its own score and on a few numbers per query."""
        kinds = {softmax: softmax.SoftmaxReader, hinge: hinge.HingeReader, sigmoid: sigmoid.SigmoidReader}
        return any(type(file.reads(loss, 0.01, spread=False, relative=False)) is kind for file, kind in kinds.items())

    @staticmethod
    def tile(view: View) -> tuple[int, int]:
        """Rows and columns of tiles that contain whole lines; whole blocks if candidates are queries as well."""
        rows, columns = (int((edges[1:] - edges[:-1]).max()) for edges in (view.rows, view.columns))
        return (rows if view.two else max(1, min(rows, LINES_TILE // columns))), columns

    def weighed(self, tile: Tile) -> Iterator[tuple[int, slice, Tensor, Tensor]]:
        """Weigh the negatives of a tile, a few queries at a time.

        Yields:
            The direction; the places of the queries; (m, n) weights up to a factor per query, in the dtype of the tile,
            0 for non-negatives; and (m,) float64, the ratio of shares to these weights.
        """
        for k, where in enumerate(tile.places):
            lines = tile.lines(k).flatten(0, 1)
            step = max(1, WEIGHED_AT_ONCE // lines.shape[1])
            for a in range(where.start, where.stop, step):
                b = min(a + step, where.stop)
                yield k, slice(a, b), *self._weigh(k, a, b, lines[a - where.start : b - where.start])

    def _softmax(self, k: int, a: int, b: int, lines: Tensor) -> tuple[Tensor, Tensor]:
        whole = self.pairs[k]
        pairs = whole.unchecked(**{
            name: getattr(whole, name)[a:b] for name in ("scores", "positive", "negative", "query_norm")
        })
        present = pairs.negative[:, -1]
        top = lines.amax(dim=1).where(present, 0)
        power = (lines - top[:, None]).mul_(self.scale).exp_()
        total = power.sum(dim=1, dtype=torch.float64)
        pairs.scores[:, -1] = top.double() + total.log() / self.scale
        share = (self.loss.weight(pairs).abs() / self.loss.unit(pairs))[:, -1]  # of all negatives together
        return power, torch.where(present, share / total, 0)

    def _sigmoid(self, k: int, a: int, b: int, lines: Tensor) -> tuple[Tensor, Tensor]:
        scale, bias = self.loss.logistic or (1.0, 0.0)
        return (lines * scale).add_(bias).sigmoid_(), lines.new_ones(len(lines), dtype=torch.float64)

    def _hinge(self, k: int, a: int, b: int, lines: Tensor) -> tuple[Tensor, Tensor]:
        level, number = self.levels[k][a:b] + self.view.tie, torch.zeros_like(lines)
        if self.loss.hinge == "hardest":
            top, place = lines.max(dim=1, keepdim=True)
            number.scatter_(1, place, (top > level).sum(dim=1, keepdim=True).to(lines.dtype))
        else:
            for each in level.unbind(dim=1):
                number += lines > each[:, None]
        return number, torch.ones_like(level[:, 0])
