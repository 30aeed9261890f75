r"""Cross-Example Softmax: one sum over all negative pairs of a batch.

Every positive pair of a batch pushes every negative pair. With Z the sum over these, a positive p leaves them the
total share :math:`m_p = Z / (e^{\lambda s_p} + Z)`, and each negative pair has its part of Z of the sum of all
:math:`m_p`.
"""

import math

import torch
from torch import Tensor

from cocos.engine import bounds
from cocos.engine.primitives.logsumexp import LOG2E, Counted, LogSumExp, Question, Sums, counts
from cocos.engine.readers.softmax import SoftmaxReader, Whole
from cocos.engine.sweep import Passes
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
        batches = _Batches(view)
        sums = yield LogSumExp(view, self.scale, moments=self.spread)
        sums.noted = [None for _ in view.directions]
        whole = batches.whole(sums.log2[0])
        wholes, found = yield from self._weigh_and_count(batches, sums, whole)
        if self._recompute_uncertain(batches, sums, found):
            whole = batches.whole(sums.log2[0])
            wholes, found = yield from self._weigh_and_count(batches, sums, whole)
        results = []
        for k in view.directions:
            result = self._statistics(sums, k, wholes[k], *(each[k] for each in found))
            results.append({name: view.sides[k].unsorted(values) for name, values in result.items()})
        return tuple(results)  # noqa: B901 - the value that `run` gives

    def _recompute_uncertain(self, batches: "_Batches", sums: Sums, found: list[list[Counted]]) -> bool:
        """Recompute the sums of batches with uncertain counts in float64; return whether there are any.

        The sums of the queries suffice for Z.
        """
        view, again = batches.view, torch.zeros_like(batches.number)
        for k, of in enumerate(batches.of):
            again.index_add_(0, of, torch.stack([each[k].uncertain for each in found]).sum(dim=0))
        if not bool((again > 0).any()):
            return False
        for k, of in enumerate(batches.of if self.relative else batches.of[:1]):
            places = (again > 0)[of].nonzero().flatten()
            sums.log2[k][places] = batches.exactly(k, places, self.scale)
            sums.error[k][places] = bounds.equal(view.exactness, self.scale, int(batches.number.max()))
        return True

    def _weigh_and_count(self, batches: "_Batches", sums: Sums, whole: Tensor) -> Passes:
        """Weigh all queries of each direction, and count for each question, given log2 Z of every batch."""
        view, wholes, asked = batches.view, [], [list[Question]() for _ in range(1 + self.relative)]
        error = torch.zeros_like(whole).scatter_reduce(0, batches.of[0], sums.error[0], "amax")
        for k, of in enumerate(batches.of):
            missing = torch.zeros(len(of), dtype=torch.float64, device=view.device)
            for a, b in view.chunks(k):
                query, _, score = view.scored(k, a, b)
                left = (whole[of[query + a]] * math.log(2) - self.scale * score).sigmoid()
                missing[a:b].index_add_(0, query, left)
            number, total = view.counted(k).clamp(min=1), torch.zeros_like(whole).index_add_(0, of, missing)
            part = torch.where(sums.log2[k] > -torch.inf, (sums.log2[k] - whole[of]).exp2(), 0)
            share, positive, unit = total[of] / number * part, missing / number, self.scale * number
            wholes.append(Whole(share, positive, unit * share, unit * positive, torch.zeros_like(number)))
            kinds = ((share, error[of]), ((share > 0).double(), sums.error[k]))
            for questions, (each, off) in zip(asked, kinds, strict=False):
                questions.append(Question(each, sums.log2[k], off, self.eps))
        found = yield from counts(sums, asked)
        return wholes, found  # noqa: B901 - the value of `yield from`


class _Batches:
    """The batches of a view, each sharing one sum Z."""

    def __init__(self, view: View):
        self.view = view
        self.of = [view.block_of(k, torch.arange(len(view.sides[k]), device=view.device)) for k in view.directions]
        number = torch.zeros(view.blocks, dtype=torch.int64, device=view.device)
        self.number = number.index_add_(0, self.of[0], view.negatives(0))  # (blocks,) negative pairs

    def whole(self, log2: Tensor) -> Tensor:
        """log2 of the sums over all queries of every batch, (blocks,)."""
        top = torch.full((self.view.blocks,), -torch.inf, dtype=log2.dtype, device=log2.device)
        top = top.scatter_reduce(0, self.of[0], log2, "amax")
        part = (log2 - top[self.of[0]]).exp2()
        return torch.zeros_like(top).index_add_(0, self.of[0], torch.where(log2 > -torch.inf, part, 0)).log2() + top

    def exactly(self, k: int, places: Tensor, nats: float) -> Tensor:
        """Compute log2 of the sums of some queries of a direction in float64, (places,)."""
        log2 = torch.full((len(self.of[k]),), -torch.inf, dtype=torch.float64, device=places.device)
        for mine, _, score in self.view.exact_rows(k, places):
            at = places[mine]
            log2[at] = torch.logaddexp2(log2[at], (score * nats).logsumexp(dim=1) * LOG2E)
        return log2[places]
