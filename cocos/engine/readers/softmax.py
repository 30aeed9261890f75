"""Losses whose negatives enter through a sum of exponentials: NT-Xent, SupCon, softmax and margin losses, proxies.

All negatives of a query act like one negative whose logit is their log-sum-exp. So the loss's own closed form, applied
to the positives and that one, gives the weights of the positives and the total weight of the negatives; each negative
has its part of the sum of that total. In: log-sum-exps from a pass. Out: the statistics of every query. Counts that
remain uncertain because of the sum's rounding are recomputed from float64 rows.
"""

import functools
import math

import numpy as np
import torch
from torch import Tensor

from cocos.counting import statistics
from cocos.embeddings.scores import Pairs
from cocos.engine.readers.rows import again
from cocos.engine.sums import ExponentialSums, Sums, sum_and_count
from cocos.engine.sweep import Passes
from cocos.engine.view import View


def reads(loss, eps: float, *, spread: bool, relative: bool) -> "SoftmaxReader | None":
    """Return the reader of a loss; None unless its negatives enter through Σ exp(λ score) of each query alone."""
    scale = loss.softmax_scale
    if loss.couples != "query" or scale is None or not math.isfinite(scale):
        return None
    if loss.adds_statistics:
        return None
    return SoftmaxReader(loss, scale, eps, spread=spread, relative=relative)


class SoftmaxReader:
    """Counts and sums of a loss that depends on its negatives through Σ exp(λ score)."""

    def __init__(self, loss, scale: float, eps: float, *, spread: bool, relative: bool = False):
        self.loss, self.scale, self.eps, self.spread, self.relative = loss, scale, eps, spread, relative

    def passes(self, view: View) -> Passes:
        """Yield passes; return the statistics of every query, one dict a direction: see `cocos.engine.readers`."""
        reader = self.sums(view)
        sums = yield from sum_and_count(reader)
        results = []
        for k in view.directions:
            result = self._statistics(sums, k)
            doubt = sums.doubt(k, relative=self.relative)
            again(view, k, result, doubt, self.loss, self.eps, self.scale)
            results.append({name: view.sides[k].unsorted(values) for name, values in result.items()})
        return tuple(results)  # noqa: B901 - the value that `run` gives

    def sums(self, view: View) -> ExponentialSums:
        """The pass that sums the exponentials of a view."""
        largest = [self._largest_share(view, k) for k in view.directions]
        return ExponentialSums(view, self.scale, self.eps, functools.partial(self._weigh, view), largest)

    def _largest_share(self, view: View, k: int) -> Tensor:
        """Largest total share of the negatives of each query, (n,)."""
        number = view.counted(k).clamp(min=1).double()
        return torch.ones_like(number) if self.loss.per_positive else number

    def _weigh(self, view: View, k: int, start: int, stop: int, log2: Tensor) -> Tensor:
        """Weigh the positives of some queries with all their negatives, see `cocos.engine.sums.Weigh`."""
        parts = []
        for a, b in view.chunks(k, start, stop):
            pairs = with_pooled_negative(view, k, a, b, log2[a - start : b - start] * (math.log(2) / self.scale))
            weights = self.loss.weight(pairs)
            share = weights.abs() / self.loss.unit(pairs)
            positive = torch.where(pairs.positive, share, 0).sum(dim=1)
            negative = torch.where(pairs.negative[:, -1], share[:, -1], 0)
            pushed = statistics.pushed_positives(share, weights, pairs, self.eps)
            parts.append(torch.stack([negative, positive, statistics.push(weights), statistics.pull(weights), pushed]))
        return torch.cat(parts, dim=1)

    def _hardest(self, sums: Sums, k: int) -> Tensor:
        """Share of the hardest negative in the push of its query, (n,)."""
        return (sums.top[k].double() * sums.reader.scale - sums.log2[k]).exp2()

    def _statistics(self, sums: Sums, k: int) -> dict[str, Tensor]:
        """Assemble the statistics of every query of a direction, (n,) each."""
        share, positive, push, pull, pushed = sums.weighed[k]
        negatives, active = sums.reader.view.negatives(k), share > 0
        number, relative = sums.number[k][0].long(), sums.number[k][2].long()
        above = sums.share_above(k)
        if self.eps == 0:
            number, relative, above = torch.where(active, negatives, 0), torch.where(active, negatives, 0), share
        top = torch.where(active, self._hardest(sums, k).clamp(max=1), 0)
        result = {
            "contributing": number,
            "uncertain": torch.zeros_like(number),
            "weight_above": above,
            "weight_below": torch.where(number < negatives, (share - above).clamp(min=0), 0),
            "weight_positive": positive,
            "push": push,
            "pull": pull,
            "negatives": negatives,
            "pushed_positives": pushed.long(),
        }
        if self.relative:
            result |= {"relative": relative, "relative_uncertain": torch.zeros_like(relative)}
        spread = (sums.effective(k), sums.participation(k)) if self.spread else ()
        spread = (torch.where(active, each, 0).clamp(max=negatives) for each in spread)
        return result | statistics.how_spread(top, *spread)


def with_pooled_negative(view: View, k: int, a: int, b: int, whole: Tensor) -> Pairs:
    """Pair the positives of some queries with one last column that stands for all negatives; columns are contiguous."""
    query, _, score = view.scored(k, a, b)
    count, present = view.counted(k)[a:b], (whole > -torch.inf)[None]
    slot = torch.arange(len(query), device=score.device) - (count.cumsum(0) - count)[query]
    most = int(np.diff(view.positive_edges(k)[a : b + 1]).max(initial=0))  # on the host: does not wait for a GPU
    slots = score.new_zeros(most, b - a)
    filled = torch.zeros_like(slots, dtype=torch.bool)
    slots[slot, query], filled[slot, query] = score, True
    return Pairs(
        torch.cat([slots, torch.where(present, whole, 0)]).T,
        torch.cat([filled, torch.zeros_like(present)]).T,
        torch.cat([torch.zeros_like(filled), present]).T,
        query_norm=view.sides[k].norm[a:b],
    )
