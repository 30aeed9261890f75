r"""Cross-Example Softmax: one sum over all negative pairs of a batch.

Every positive pair of a batch pushes every negative pair. With Z the sum over these, a positive p leaves them the
total share :math:`m_p = Z / (e^{\lambda s_p} + Z)`, and each negative pair has its part of Z of the sum of all
:math:`m_p`. The tiles are float64, since one doubtful pair would put all queries of its batch in doubt.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from cocos.engine.readers.softmax import SoftmaxReader
from cocos.engine.sums import ExponentialSums, ShareCounts, Sums
from cocos.engine.sweep import Passes, run
from cocos.engine.view import View
from cocos.losses.ce_softmax import CrossExampleSoftmax


def reads(loss, eps: float, *, spread: bool, relative: bool) -> "CrossExample | None":
    """Return the reader of Cross-Example Softmax; None for other losses."""
    if type(loss) is not CrossExampleSoftmax:
        return None
    return CrossExample(loss, loss.scale, eps, spread=spread, relative=relative)


class CrossExample(SoftmaxReader):
    """Counts and sums of Cross-Example Softmax, for every query.

    The denominator of a share is known only after all pairs have been visited, so a second pass counts.
    """

    def passes(self, view: View) -> Passes:
        """Yield passes; return the statistics of every query, one dict a direction: see `cocos.engine.readers`."""
        if view.product != "float64":
            return run(replace(view, product="float64"), [self])[0]
        sums: Sums = yield ExponentialSums(view, self.scale, self.eps)
        error = max(float(values.max()) for values in sums.error)
        ends, whole = [], self._batch_sums(view, sums.log2[0])
        for k in view.directions:
            sums.weighed[k] = self._weigh_batches(view, k, sums.log2[k], whole)
            if self.eps:
                ends.append(sums.reader.ends(sums.weighed[k][0], sums.log2[k], torch.full_like(sums.log2[k], error)))
        if ends:
            sums = yield ShareCounts(sums, ends)
        results = []
        for k in view.directions:
            result, number = self._statistics(sums, k), sums.number[k].long()
            result["uncertain"] = number[1] - number[0]
            if self.relative:
                result["relative_uncertain"] = number[3] - number[2]
            results.append({name: view.sides[k].unsorted(values) for name, values in result.items()})
        return tuple(results)

    def _batch_sums(self, view: View, log2: Tensor) -> Tensor:
        """log2 Z of every batch, (blocks,), given log2 of the sums of its queries."""
        block = view.block_of(0, torch.arange(len(log2), device=log2.device))
        top = torch.full((view.blocks,), -torch.inf, dtype=log2.dtype, device=log2.device)
        top = top.scatter_reduce(0, block, log2, "amax")
        part = torch.where(log2 > -torch.inf, (log2 - top[block]).exp2(), 0)
        return torch.zeros_like(top).index_add_(0, block, part).log2() + top

    def _weigh_batches(self, view: View, k: int, log2: Tensor, whole: Tensor) -> Tensor:
        """Weigh the queries of a direction, see `cocos.engine.sums.Weigh`, given log2 Z of every batch."""
        block = view.block_of(k, torch.arange(len(log2), device=log2.device))
        missing = torch.zeros_like(log2)
        for a, b in view.chunks(k):
            query, _, score = view.scored(k, a, b)
            left = (whole[block[query + a]] * math.log(2) - self.scale * score).sigmoid()
            missing[a:b].index_add_(0, query, left)
        number, total = view.counted(k).clamp(min=1), torch.zeros_like(whole).index_add_(0, block, missing)
        part = torch.where(log2 > -torch.inf, (log2 - whole[block]).exp2(), 0)
        share, positive, unit = total[block] / number * part, missing / number, self.scale * number
        return torch.stack([share, positive, unit * share, unit * positive, torch.zeros_like(share)])
