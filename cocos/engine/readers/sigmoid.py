"""Losses in which each pair has a logistic term of its own: SigLIP, and UniFace with proxies.

The weight of a negative is λ σ(λ s + b) of its own score. So negatives above eps are those above one score, which is
the same for every query, and push, effective number and participation ratio follow from moments of the sigmoids.
"""

import math

import torch
from torch import Tensor

from cocos.counting import statistics
from cocos.engine.primitives.logistic import FAR, Logistic, LogisticSums
from cocos.engine.primitives.logsumexp import LOG2E, Counted, LogSumExp, Question, Sums, counts
from cocos.engine.readers.softmax import SoftmaxReader
from cocos.engine.sweep import Passes
from cocos.engine.view import View


def reads(loss, eps: float, *, spread: bool, relative: bool) -> "SigmoidReader | None":
    """Return the reader of a loss; None unless each pair has a logistic term of its own."""
    if loss.logistic is None or loss.couples != "query":
        return None
    if loss.adds_statistics:
        return None
    return SigmoidReader(loss, eps, spread=spread, relative=relative)


class SigmoidReader(SoftmaxReader):
    """Counts and sums of a loss whose share of a negative is σ(λ score + b).

    Far below all positives a sigmoid is an exponential. Queries whose sigmoids are all too small to be summed are
    therefore read from a log-sum-exp, in one more pass.
    """

    def __init__(self, loss, eps: float, *, spread: bool, relative: bool = False):
        (scale, self.bias) = loss.logistic or (1.0, 0.0)
        super().__init__(loss, scale, eps, spread=spread, relative=relative)

    def passes(self, view: View) -> Passes:
        """Yield passes; return the statistics of every query, one dict a direction: see `cocos.engine.readers`."""
        heavy = self.relative and self.eps > 0
        sums = yield Logistic(view, self.scale, self.bias, self.eps, heavy=heavy, moments=self.spread)
        far = [sums.far(k) for k in view.directions]
        soft = (yield self._softmax(view, heavy=heavy)) if any(bool(each.any()) for each in far) else None
        found = [self._sigmoids(sums, k, soft, far[k]) for k in view.directions]
        if self.relative:
            active = [(found[k]["push"] > 0) & ~far[k] for k in view.directions]
            yield from self._relative(sums, found, active)
            if soft:
                yield from self._relative(soft, found, far)
        results = []
        for k, result in zip(view.directions, found, strict=True):
            self._reweigh_uncertain(view, k, result)
            results.append({name: view.sides[k].unsorted(values) for name, values in result.items()})
        return tuple(results)  # noqa: B901 - the value that `run` gives

    def _softmax(self, view: View, *, heavy: bool) -> LogSumExp:
        """Log-sum-exp that describes the push of queries whose sigmoids are exponentials."""
        none = [torch.zeros(len(view.sides[k]), dtype=torch.float64, device=view.device) for k in view.directions]
        base = [each - torch.inf for each in none] if heavy else None
        offset = [each + math.log2(self.eps) for each in none] if heavy else None
        return LogSumExp(view, self.scale, base=base, offset=offset, moments=self.spread)

    def _sigmoids(self, sums: LogisticSums, k: int, soft: Sums | None, far: Tensor) -> dict[str, Tensor]:
        """Statistics of every query of a direction, (n,) each, except `relative`."""
        view = sums.of.view
        negatives, there = view.negatives(k), sums.top[k] > -torch.inf
        total = torch.where(there, sums.log2[k].exp2(), 0)
        top = (sums.top[k].double() * self.scale + self.bias).sigmoid() / torch.where(there, total, 1)
        spread = [sums.effective(k), sums.participation(k)] if self.spread else []
        if soft:
            total = torch.where(far, (soft.log2[k] + self.bias * LOG2E).exp2(), total)
            top = torch.where(far, (soft.top[k].double() * soft.of.scale - soft.log2[k]).exp2(), top)
            if self.spread:
                rest = soft.effective(k), soft.participation(k)
                spread = [torch.where(far, *each) for each in zip(rest, spread, strict=True)]
        number, uncertain, mass = sums.above(k)
        if self.eps == 0:
            number, mass = negatives, total
        positive = torch.zeros_like(total)
        for a, b in view.chunks(k):
            query, _, score = view.scored(k, a, b)
            positive[a:b].index_add_(0, query, (-(self.scale * score + self.bias)).sigmoid())
        return {
            "contributing": number,
            "uncertain": uncertain,
            "weight_above": mass,
            "weight_below": torch.where(number < negatives, (total - mass).clamp(min=0), 0),
            "weight_positive": positive,
            "pushed_positives": torch.zeros_like(number),
            "push": self.scale * total,
            "pull": self.scale * positive,
            "negatives": negatives,
        } | statistics.how_spread(
            torch.where(there, top.clamp(max=1), 0),
            *(torch.where(there, each, 0).clamp(max=negatives) for each in spread),
        )

    def _relative(self, sums: Sums, found: list[dict[str, Tensor]], some: list[Tensor]) -> Passes:
        """Count the negatives with more than eps of the push of their query, of the queries of a mask, (n,) each."""
        asked = [self._above_part_of_sum(sums, k, own) for k, own in enumerate(some)]
        if self.eps > 0:
            (counted,) = yield from counts(sums, [asked])
        else:
            none = [torch.zeros_like(each["negatives"]) for each in found]
            counted = [Counted(each["negatives"], zero, zero) for each, zero in zip(found, none, strict=True)]
        for each, own, count in zip(found, some, counted, strict=True):
            for name, values in (("relative", count.number), ("relative_uncertain", count.uncertain)):
                each[name] = torch.where(own, values, each.get(name, torch.zeros_like(values)))

    def _above_part_of_sum(self, sums: Sums, k: int, some: Tensor) -> Question:
        """Ask for the negatives with more than eps of the sum."""
        if isinstance(sums, LogisticSums):
            return sums.heavy(k, some, self.eps)
        return Question(some.double(), sums.log2[k], sums.error[k] + 2.0**FAR, self.eps, weighed=False)
