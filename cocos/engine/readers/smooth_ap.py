"""SmoothAP: sigmoids of all candidates around each positive; contributing negatives by gradient and by Eq. 7."""

import math

import torch
from torch import Tensor

from cocos.counting import statistics
from cocos.engine.primitives.logsumexp import LogSumExp, Question, counts
from cocos.engine.primitives.sigmoids import SHARE_SUMS, Positives, Shares, Sigmoids, SigmoidSums, widest
from cocos.engine.readers.rows import again
from cocos.engine.readers.rows import weighed as weighed_rows
from cocos.engine.sweep import Passes
from cocos.engine.view import View
from cocos.losses.smoothap import SmoothAP

# Smallest eps counted in float32: all shares that are not left out then stay well within its range.
SMALLEST_EPS = 1e-8
# Maximum number of positives per query; each costs one sigmoid per candidate. MOST in kernel/sigmoids.c.
MAX_POSITIVES = 64
# Binary exponent: if all negatives are this far below the positives of a query, a slope is an exponential within 2^(1 -
# FAR_EXPONENT) of itself.
FAR_EXPONENT = 14.0
# Binary exponent: sigmoids smaller by this much than those that matter are left out.
CUT_EXPONENT = 30.0
# Largest fraction of the push that may be left out; above it, the spread of a query is computed from float64 scores.
LOST_PUSH = 1e-4
# If at most one pair in this many belongs to a query whose negatives may count, these queries are weighed in float64
# right away.
REWEIGH_AT_ONCE = 64
# Largest number of scores recomputed in float64: one pair in this many, plus a constant.
REWEIGHED = (16, 2**20)


def reads(loss, eps: float, *, spread: bool, relative: bool) -> "SmoothAPReader | None":
    """Return the reader of SmoothAP; None for other losses."""
    return SmoothAPReader(loss, eps, spread=spread or relative) if type(loss) is SmoothAP else None


class SmoothAPReader:
    """Counts of SmoothAP by its gradient and by Eq. 7, and how the push is spread.

    The share of a negative is Σ_k A_k / B_k² g_k, with g = σ (1 - σ) of its score around positive k, A the smooth rank
    of positive k among the positives, and B its smooth rank among all. Far below all positives, g is an exponential,
    and the push is spread as in a softmax.

    Args:
        loss: with its temperature.
        eps: smallest share, and smallest term of Eq. 7, that counts.
        spread: compute how the push is spread over the negatives, and count those with more than eps of it.
    """

    def __init__(self, loss: SmoothAP, eps: float, *, spread: bool):
        self.loss, self.eps, self.temperature, self.spread = loss, eps, loss.temperature, spread

    def passes(self, view: View) -> Passes:
        """Yield one pass, and a second one if negatives of more than a few queries may count; return the statistics."""
        positives = Positives.of(view, self.temperature)
        most = max(len(each.score) for each in positives)
        if self.eps <= SMALLEST_EPS or most > MAX_POSITIVES:
            return weighed_rows(view, self.loss, self.eps)
        gap = max(FAR_EXPONENT, math.log2(2 * most / self.eps))
        first = Sigmoids(view, self.temperature, positives, CUT_EXPONENT + gap)
        if self.spread:
            sums, soft = yield first, self._softmax(view)
            far = [
                (top.double() - each.score.amin(dim=0) + first.error * self.temperature) / first.unit <= -gap
                for top, each in zip(soft.top, positives, strict=True)
            ]
            exponents = [soft.log2[k] - each.score / first.unit for k, each in enumerate(positives)]
            sums = [each.replaced(*tail) for each, *tail in zip(sums, far, exponents, strict=True)]
        else:
            sums = yield first
        if not self.spread:  # no share exceeds their total
            far = [(each.total + each.lost) * (each.error + first.share).exp() < self.eps / 2 for each in sums]
        pairs = len(view.sides[0]) * len(view.sides[1]) // view.blocks
        few = [int((~each).sum()) * widest(view, k) * REWEIGH_AT_ONCE <= pairs for k, each in enumerate(far)]
        if all(few):
            weighed = [torch.zeros(SHARE_SUMS + 1, len(each), dtype=torch.float64, device=view.device) for each in far]
        else:
            weighed = yield Shares(first, sums, far, self.eps)
        found = [self._statistics(view, k, first, *each) for k, each in enumerate(zip(sums, weighed, far, strict=True))]
        for each, some in zip(found, far, strict=True):
            each["open"] += ~some if all(few) else 0
        if self.spread:
            yield from self._exponential(view, found, far, soft)
        for k, each in enumerate(found):
            self._reweigh_undecided(view, k, each)
        return tuple({name: view.sides[k].unsorted(part[name]) for name in part} for k, part in enumerate(found))

    def _softmax(self, view: View) -> LogSumExp:
        """Log-sum-exp that describes the push of queries whose negatives are all far below their positives."""
        none = [torch.zeros(len(view.sides[k]), dtype=torch.float64, device=view.device) for k in view.directions]
        base, offset = [each - torch.inf for each in none], [each + math.log2(self.eps) for each in none]
        return LogSumExp(view, 1 / self.temperature, base=base, offset=offset, moments=True)

    def _exponential(self, view: View, found: list[dict[str, Tensor]], far: list[Tensor], soft) -> Passes:
        """Fill in how the push is spread where it is exponential: (n,) queries of each direction, `far`."""
        asked = []
        for k, (each, own) in enumerate(zip(found, far, strict=True)):
            active = own & (each["weight_above"] + each["weight_below"] > 0)
            asked.append(Question(active.double(), soft.log2[k], soft.error[k] + 2.0 ** (1 - FAR_EXPONENT), self.eps))
            top = (soft.top[k].double() * soft.of.scale - soft.log2[k]).exp2()
            spread = statistics.how_spread(top, soft.effective(k), soft.participation(k))
            for name, values in spread.items():
                each[name][own] = torch.where(active, values, 0)[own]
        (heavy,) = yield from counts(soft, [asked])
        for each, own, count in zip(found, far, heavy, strict=True):
            each["relative"][own], each["relative_uncertain"][own] = count.number[own], count.uncertain[own]
            each["open"][own] += count.uncertain[own]

    def _reweigh_undecided(self, view: View, direction: int, result: dict[str, Tensor]) -> None:
        """Reweigh the undecided queries from all of their scores in float64, up to a maximum number."""
        pairs = len(view.sides[0]) * len(view.sides[1]) // view.blocks
        most = (pairs // REWEIGHED[0] + REWEIGHED[1]) // widest(view, direction)
        places = (result.pop("open") > 0).nonzero().flatten()[:most]
        again(view, direction, result, places, self.loss, self.eps, 2 / self.temperature)  # B errs like g

    def _statistics(
        self, view: View, k: int, first: Sigmoids, sums: SigmoidSums, weighed: Tensor, far: Tensor
    ) -> dict[str, Tensor]:
        """Statistics of every query; `open` is above 0 where the scores at hand leave something undecided."""
        negatives, number = view.negatives(k), view.counted(k).clamp(min=1)
        unit, (pulled, among, near) = 1 / (self.temperature * number), self._pull_of_positives(first, k, sums)
        share, mass, square, entropy, *numbers, most = weighed
        possible, certain, heavy_possible, heavy, terms_possible, terms = (each.long() for each in numbers)
        result = {
            "contributing": certain,
            "uncertain": possible - certain,
            "weight_above": mass,
            "weight_below": torch.where(certain < negatives, (sums.total - mass).clamp(min=0), 0),
            "weight_positive": pulled.abs().sum(dim=0),
            "pushed_positives": (-pulled > self.eps).sum(dim=0),
            "push": unit * (sums.total + (-pulled).clamp(min=0).sum(dim=0)),
            "pull": unit * pulled.clamp(min=0).sum(dim=0),
            "eq7": (among + terms).double() / number,
            "negatives": negatives,
            "open": possible - certain + terms_possible - terms + near,
        }
        if self.spread:
            active, doubt = share > 0, heavy_possible - heavy
            whole = torch.where(active, share, 1)
            result["open"] += doubt + ((sums.lost > LOST_PUSH * share) & ~far)
            result |= {"relative": heavy, "relative_uncertain": doubt} | statistics.how_spread(
                most / whole,
                torch.where(active, (whole.log() - entropy / whole).exp(), 0),
                torch.where(active, whole.square() / square, 0),
            )
        return result

    def _pull_of_positives(self, first: Sigmoids, direction: int, sums: SigmoidSums) -> tuple[Tensor, ...]:
        """Pull share of every positive, (K, n); terms of Eq. 7 among positives, and undecided ones, (n,) each."""
        beside, pulled, error = sums.above * sums.inverse, sums.factor * sums.slope, sums.error + first.settled
        among = near = torch.zeros_like(error, dtype=torch.int64)
        for k, inverse in enumerate(sums.inverse if len(pulled) > 1 else ()):
            met = first.positives[direction].met(k, self.temperature)
            term = met * inverse
            among = among + (term > self.eps).sum(dim=0)
            near = near + ((term / self.eps).log().abs() <= error).sum(dim=0)
            pulled += met * (beside[k] - beside)
        return pulled, among, near
