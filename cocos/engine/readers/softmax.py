"""Losses whose negatives enter through a sum of exponentials: NT-Xent, SupCon, softmax and margin losses, proxies.

All negatives of a query act like one negative whose logit is their log-sum-exp. So the loss's own closed form, applied
to the positives and that one, gives the weights of the positives and the total weight of the negatives; each negative
has its part of the sum of that total. In: log-sum-exps from a pass. Out: the statistics of every query. Counts that
remain uncertain because of the sum's rounding are recomputed from float64 rows.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cocos.counting import statistics
from cocos.embeddings.scores import Pairs
from cocos.engine import bounds
from cocos.engine.primitives.logsumexp import LOG2E, Counted, LogSumExp, Question, Sums, counts
from cocos.engine.readers.rows import again
from cocos.engine.sweep import Passes
from cocos.engine.view import View

# Noted negatives that are looked through in the time of one score of a reweighed query.
NOTED_PER_SCORE = 4


def reads(loss, eps: float, *, spread: bool, relative: bool) -> "SoftmaxReader | None":
    """Return the reader of a loss; None unless its negatives enter through Σ exp(λ score) of each query alone."""
    scale = loss.softmax_scale
    if loss.couples != "query" or scale is None or not math.isfinite(scale):
        return None
    if loss.adds_statistics:
        return None
    return SoftmaxReader(loss, scale, eps, spread=spread, relative=relative)


@dataclass(frozen=True, eq=False)
class Whole:
    """Weights of every query with its negatives taken together, (n,) each."""

    share: Tensor  # total share of the negatives
    positive: Tensor  # total share of the positives
    push: Tensor
    pull: Tensor
    pushed: Tensor  # positives that are pushed, with a share above eps


class SoftmaxReader:
    """Counts and sums of a loss that depends on its negatives through Σ exp(λ score)."""

    def __init__(self, loss, scale: float, eps: float, *, spread: bool, relative: bool = False):
        self.loss, self.scale, self.eps, self.spread, self.relative = loss, scale, eps, spread, relative

    def passes(self, view: View) -> Passes:
        """Yield passes; return the statistics of every query, one dict a direction: see `cocos.engine.readers`."""
        base, offset = zip(*(self._least_positive_terms(view, k) for k in view.directions), strict=True)
        sums = yield LogSumExp(view, self.scale, base=base, offset=offset, moments=self.spread, whole=True)
        wholes, asked = self._asked(sums)
        found = yield from counts(sums, asked)
        if self._refined(sums, found):
            wholes, asked = self._asked(sums)
            found = yield from counts(sums, asked)
        results = []
        for k in view.directions:
            result = self._statistics(sums, k, wholes[k], *(each[k] for each in found))
            self._reweigh_uncertain(view, k, result)
            results.append({name: view.sides[k].unsorted(values) for name, values in result.items()})
        return tuple(results)  # noqa: B901 - the value that `run` gives

    def _asked(self, sums: Sums) -> tuple[list[Whole], list[list[Question]]]:
        """Weigh all queries by their sums, and ask which of their negatives count."""
        view = sums.of.view
        wholes = [self._weigh_direction(view, k, sums.log2[k]) for k in view.directions]
        asked = [[Question(whole.share, sums.log2[k], sums.error[k], self.eps) for k, whole in enumerate(wholes)]]
        if self.relative:
            asked.append([replace(each, share=(each.share > 0).double(), weighed=False) for each in asked[0]])
        return wholes, asked

    def _refined(self, sums: Sums, found: list[list[Counted]]) -> bool:
        """Refine the sums of queries with uncertain counts, if that takes less time than to reweigh them.

        Their largest terms must have been noted. Returns whether sums were refined.
        """
        view = sums.of.view
        if any(noted is None for noted in sums.noted) or view.dtype == torch.float64:
            return False
        if sums.of.deep is None and view.blocks > 1:  # PyTorch goes through the lists of a stack too slowly
            return False
        doubts = [
            torch.stack([each[k].uncertain for each in found]).any(dim=0).nonzero().flatten() for k in view.directions
        ]
        widths = [int(np.diff((view.rows, view.columns)[1 - k]).max()) for k in view.directions]
        scores = sum(len(doubt) * width for doubt, width in zip(doubts, widths, strict=True))
        noted = sum(len(score) for lists in sums.noted for *_, score in lists or ())
        if scores * NOTED_PER_SCORE <= noted:
            return False
        for k, doubt in enumerate(doubts):
            sums.refine(k, doubt)
        return True

    def _least_positive_terms(self, view: View, k: int) -> tuple[Tensor, Tensor]:
        """Lower bounds of log2 of the positives' terms in the denominator, and offsets of shares that count, (n,) each.

        A share of the push has no positives in its denominator.
        """
        number = view.counted(k).clamp(min=1).double()
        many = torch.zeros_like(number) if self.loss.per_positive else number.log2()
        offset = (math.log2(self.eps) if self.eps else math.inf) - many
        least = torch.full_like(number, -torch.inf)
        for a, b in () if self.relative else view.chunks(k):
            query, _, score = view.scored(k, a, b)
            if len(query):
                least[a:b] = self._least_positive_term(view.sides[k].norm[a:b], query, score)
        return least, offset

    def _least_positive_term(self, norm: Tensor, query: Tensor, score: Tensor) -> Tensor:
        """Smallest log2 of a positive's term in the denominator, (n,), from its share beside an equal negative."""
        pairs = _Couples(score, score, torch.ones_like(score, dtype=torch.bool), norm[query])
        share = self.loss.weight(pairs).abs() / self.loss.unit(pairs)
        rest = (1 / share[:, 1] - 1 - bounds.equal(0.0, 0.0, 2)).clamp(min=0)
        exponent = score * (self.scale * LOG2E) + rest.log2()
        least = torch.full_like(norm, torch.inf).scatter_reduce(0, query, exponent, "amin")
        return torch.where(least < torch.inf, least, -torch.inf)

    def _weigh_direction(self, view: View, k: int, log2: Tensor) -> Whole:
        """Weigh all queries of a direction, given log2 of the sums over their negatives."""
        parts = []
        for a, b in view.chunks(k):
            pairs = beside(view, k, a, b, log2[a:b] * (math.log(2) / self.scale))
            weights = self.loss.weight(pairs)
            share = weights.abs() / self.loss.unit(pairs)
            positive = torch.where(pairs.positive, share, 0).sum(dim=1)
            whole = torch.where(pairs.negative[:, -1], share[:, -1], 0)
            pushed = statistics.pushed_positives(share, weights, pairs, self.eps)
            parts.append((whole, positive, statistics.push(weights), statistics.pull(weights), pushed))
        return Whole(*(torch.cat(each) for each in zip(*parts, strict=True)))

    def _statistics(self, sums: Sums, k: int, whole: Whole, counted: Counted, heavy: Counted | None = None) -> dict:
        """Assemble the statistics of every query of a direction, (n,) each."""
        active, negatives = whole.share > 0, sums.of.view.negatives(k)
        rest = torch.where(counted.number < negatives, (whole.share - counted.mass).clamp(min=0), 0)
        top = (sums.top[k].double() * sums.of.scale - sums.log2[k]).exp2().clamp(max=1)
        result = {
            "contributing": counted.number,
            "uncertain": counted.uncertain,
            "weight_above": counted.mass,
            "weight_below": rest,
            "weight_positive": whole.positive,
            "push": whole.push,
            "pull": whole.pull,
            "negatives": negatives,
            "pushed_positives": whole.pushed,
        }
        if heavy:
            result |= {"relative": heavy.number, "relative_uncertain": heavy.uncertain}
        numbers = (sums.effective(k), sums.participation(k)) if self.spread else ()
        spread = (torch.where(active, each, 0).clamp(max=negatives) for each in numbers)
        return result | statistics.how_spread(torch.where(active, top, 0), *spread)

    def _reweigh_uncertain(self, view: View, k: int, result: dict[str, Tensor]) -> None:
        """Recount the queries with uncertain counts from all of their scores in float64."""
        doubt = result["uncertain"] + result["relative_uncertain"] if self.relative else result["uncertain"]
        again(view, k, result, doubt.nonzero().flatten(), self.loss, self.eps, self.scale)


class _Couples(Pairs):
    """Pairs of one positive and one negative per query, (n, 2), whose closed forms need neither masks nor sums.

    Args:
        positive: (n,) score.
        negative: (n,) score.
        there: (n,) whether there is a negative.
        norm: (n,) of the query.
    """

    def __init__(self, positive: Tensor, negative: Tensor, there: Tensor, norm: Tensor):
        self.__dict__.update(dict.fromkeys(("candidate_group", "candidate_norm", "embeddings")), query_norm=norm)
        mask = torch.stack([torch.ones_like(there), torch.zeros_like(there)]).T
        self.__dict__.update(scores=torch.stack([positive, negative]).T, positive=mask)
        self.__dict__.update(negative=torch.stack([mask[:, 1], there]).T)

    def positives(self) -> Tensor:
        """Number of positives, one for each query, (n, 1)."""
        return torch.ones_like(self.scores[:, :1])

    def residual(self, logits: Tensor, negative: Tensor | None = None) -> Tensor:
        """As in `Pairs`."""
        there = (self.negative if negative is None else negative)[:, 1]
        missing = torch.where(there, (logits[:, 1] - logits[:, 0]).sigmoid(), 0)
        return torch.stack([-missing, missing]).T


def beside(view: View, k: int, a: int, b: int, whole: Tensor) -> Pairs:
    """Pair the positives of some queries with one last column that stands for all negatives; columns are contiguous."""
    query, _, score = view.scored(k, a, b)
    count, there, norm = view.counted(k)[a:b], whole > -torch.inf, view.sides[k].norm[a:b]
    whole = torch.where(there, whole, 0)
    if len(query) == b - a and bool((count == 1).all()):
        return _Couples(score, whole, there, norm)
    slot = torch.arange(len(query), device=score.device) - (count.cumsum(0) - count)[query]
    slots = score.new_zeros(int(count.max()), b - a)
    filled = torch.zeros_like(slots, dtype=torch.bool)
    slots[slot, query], filled[slot, query] = score, True
    there = there[None]
    return Pairs(
        torch.cat([slots, whole[None]]).T,
        torch.cat([filled, torch.zeros_like(there)]).T,
        torch.cat([torch.zeros_like(filled), there]).T,
        query_norm=norm,
    )
