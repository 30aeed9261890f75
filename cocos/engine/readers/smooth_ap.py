"""SmoothAP: sigmoids of all candidates about each positive, and what its gradient and Eq. 7 count of them."""

import math
from collections.abc import Generator

import torch
from torch import Tensor

from cocos.engine.primitives.logsumexp import LogSumExp, Question, counts
from cocos.engine.primitives.shares import Shares, Weighed, again, listed
from cocos.engine.primitives.sigmoids import Factors, Positives, Sigmoids, Sums, widest
from cocos.engine.readers.held import weighed as weighed_rows
from cocos.engine.view import View
from cocos.losses.smoothap import SmoothAP

__all__ = ["SmoothAPReader", "reads"]

# Smallest eps that is counted in float32: all that is not left out stays well within its range.
LEAST = 1e-8
# Most positives of a query; each costs a sigmoid for every candidate.
MOST = 64
# Binary exponents. Where all negatives are this far below the positives of a query, a slope is an exponential, within
# 2^(1 - FAR) of itself; sigmoids so much smaller than those that matter are left out.
FAR, CUT = 14.0, 30.0
# Part of the push that may be left out before the spread of a query is described from scores in float64.
LOST = 1e-4
# One pair in so many, and some more, may be scored again in float64.
AGAIN = (16, 2**20)


def reads(loss, eps: float, *, spread: bool, relative: bool) -> "SmoothAPReader | None":
    """The reader of SmoothAP; None for other losses."""
    return SmoothAPReader(loss, eps, spread=spread, relative=relative) if type(loss) is SmoothAP else None


class SmoothAPReader:
    """Counts of SmoothAP by its gradient and by Eq. 7, and how the push is spread.

    A negative's share is Σ_k A_k / B_k² g_k, with g = σ (1 - σ) of its score about positive k, where A is the smooth
    rank of positive k among the positives, and B its rank among all. Far below all positives g is an exponential: there
    the push is spread like that of a softmax.

    Args:
        loss: with its temperature.
        eps: smallest share, and smallest term of Eq. 7, that counts.
        spread: describe how the push is spread over the negatives.
        relative: count the negatives with more than eps of the push.
    """

    def __init__(self, loss: SmoothAP, eps: float, *, spread: bool, relative: bool):
        self.loss, self.eps, self.temperature = loss, eps, loss.temperature
        self.spread, self.relative = spread, relative

    def passes(self, view: View) -> Generator:
        """One pass, and a second one where it is asked how the push is spread over negatives near the positives."""
        positives = [Positives.of(view, k, self.temperature) for k in view.directions]
        most, spread = max(len(each.score) for each in positives), self.spread or self.relative
        if self.eps <= LEAST or most > MOST:
            return weighed_rows(view, self.loss, self.eps)
        gap = max(FAR, math.log2(2 * most / self.eps))
        left_out = CUT + gap if spread else max(CUT, gap)
        first = Sigmoids(view, self.temperature, positives, left_out, eps=None if spread else self.eps)
        if spread:
            sums, soft = yield first, self._softmax(view)
            exponents = [soft.log2[k] - each.score / first.unit for k, each in enumerate(positives)]
            far = [
                (top.double() - each.score.amin(dim=0) + first.error * self.temperature) / first.unit <= -gap
                for top, each in zip(soft.top, positives, strict=True)
            ]
            sums = [each.replaced(*tail) for each, *tail in zip(sums, far, exponents, strict=True)]
        else:
            sums = yield first
        factors = [each.factors(own, first.errors) for each, own in zip(sums, positives, strict=True)]
        near = [own.without(some) for own, some in zip(factors, far, strict=True)] if spread else factors
        if all(each.listed is not None for each in sums):
            weighed = [listed(first, k, sums[k], factors[k]) for k in view.directions]
        elif spread and all(bool(each.all()) for each in far):
            weighed = [Weighed.nothing(each) for each in far]
        else:
            heavy = [each.heavy(own, self.eps, first.errors[0]) for each, own in zip(sums, factors, strict=True)]
            weighed = yield Shares(view, self.temperature, near, CUT + gap, self.eps, heavy if self.relative else None)
        found = [self._found(view, k, *each) for k, each in enumerate(zip(positives, sums, near, weighed, strict=True))]
        if spread:
            yield from self._exponential(view, positives, found, far, soft)
        return tuple(
            {name: view.sides[k].unsorted(values) for name, values in each.items()} for k, each in enumerate(found)
        )

    def _softmax(self, view: View) -> LogSumExp:
        """What describes the push of queries whose negatives are all far below their positives."""
        kept = {}
        if self.relative:
            none = [torch.zeros(len(view.sides[k]), dtype=torch.float64, device=view.device) for k in view.directions]
            kept = {
                "base": [each - torch.inf for each in none],
                "offset": [each + math.log2(self.eps) for each in none],
            }
        return LogSumExp(view, 1 / self.temperature, **kept, moments=self.spread)

    def _exponential(
        self, view: View, positives: list[Positives], found: list[dict[str, Tensor]], far: list[Tensor], soft
    ) -> Generator:
        """Put in how the push is spread where it is so exponentially, (n,) queries of each direction."""
        asked = []
        for k, (each, own) in enumerate(zip(found, far, strict=True)):
            active = own & (each["weight_above"] + each["weight_below"] > 0)
            asked.append(Question(active.double(), soft.log2[k], soft.error[k] + 2.0 ** (1 - FAR), self.eps))
            spread = {"hardest_share": (soft.top[k].double() * soft.of.scale - soft.log2[k]).exp2()}
            if self.spread:
                spread |= {"effective": soft.effective(k), "participation": soft.participation(k)}
            for name, values in spread.items():
                each[name][own] = torch.where(active, values, 0)[own]
        if self.relative:
            (heavy,) = yield from counts(soft, [asked])
            for k, (each, own, count) in enumerate(zip(found, far, heavy, strict=True)):
                unsure = (own & (count.uncertain > 0)).nonzero().flatten()[: self._most(view, k)]
                each["relative"][own], each["relative_uncertain"][own] = count.number[own], count.uncertain[own]
                if len(unsure):
                    _, _, exact = again(view, k, unsure, positives[k], self.temperature, self.eps, heavy=True)
                    each["relative"][unsure] = exact.counts[5]
                    each["relative_uncertain"][unsure] = exact.counts[4] - exact.counts[5]

    @staticmethod
    def _most(view: View, direction: int) -> int:
        """Queries that may be scored again in float64."""
        pairs = len(view.sides[0]) * len(view.sides[1]) // view.blocks
        return (pairs // AGAIN[0] + AGAIN[1]) // widest(view, direction)

    def _found(
        self, view: View, direction: int, positives: Positives, sums: Sums, factors: Factors, weighed: Weighed
    ) -> dict[str, Tensor]:
        """The statistics of every query of one direction, by place, with float64 scores where float32 does not tell."""
        negatives = view.negatives(direction)
        result = self._statistics(negatives, positives, sums, factors, weighed)
        unsure = (result.pop("open") > 0).nonzero().flatten()[: self._most(view, direction)]
        if len(unsure):
            exact = again(view, direction, unsure, positives, self.temperature, self.eps, heavy=self.relative)
            right = self._statistics(negatives[unsure], positives.some(unsure), *exact)
            for name, values in result.items():
                values[unsure] = right[name]
        return result

    def _statistics(
        self, negatives: Tensor, positives: Positives, sums: Sums, factors: Factors, weighed: Weighed
    ) -> dict[str, Tensor]:
        """The statistics of some queries, and in how many ways they are `open`: not decided by the scores at hand."""
        number, unit = positives.number, 1 / (self.temperature * positives.number.clamp(min=1))
        total = (factors.factor * sums.slope).sum(dim=0)
        pulled, among, near = self._drawn(positives, sums, factors)
        (possible, certain, *terms), mass = weighed.counts, weighed.sums[1]
        result = {
            "contributing": certain,
            "uncertain": possible - certain,
            "weight_above": mass,
            "weight_below": torch.where(certain < negatives, (total - mass).clamp(min=0), 0),
            "weight_positive": pulled.abs().sum(dim=0),
            "push": unit * (total + (-pulled).clamp(min=0).sum(dim=0)),
            "pull": unit * pulled.clamp(min=0).sum(dim=0),
            "eq7": (among + terms[1]).double() / number.clamp(min=1),
            "negatives": negatives,
            "open": possible - certain + terms[0] - terms[1] + near,
        }
        if self.relative:
            result |= {"relative": terms[3], "relative_uncertain": terms[2] - terms[3]}
            result["open"] = result["open"] + terms[2] - terms[3]
        if self.spread or self.relative:
            whole, _, square, entropy = torch.where(weighed.sums[0] > 0, weighed.sums, 1)
            result["hardest_share"] = weighed.most / whole
            lost = torch.where(factors.level < torch.inf, sums.lost * factors.factor, 0).sum(dim=0)
            result["open"] = result["open"] + (lost > LOST * weighed.sums[0])
        if self.spread:
            active = weighed.sums[0] > 0
            result["effective"] = torch.where(active, (whole.log() - entropy / whole).exp(), 0)
            result["participation"] = torch.where(active, whole.square() / square, 0)
        return result

    def _drawn(self, positives: Positives, sums: Sums, factors: Factors) -> tuple[Tensor, Tensor, Tensor]:
        """Share of the pull of every positive, (K, n); terms of Eq. 7 among positives, (n,); those near eps, (n,)."""
        beside, pulled = sums.above * factors.inverse, factors.factor * sums.slope
        among, near = torch.zeros_like(positives.number), torch.zeros_like(positives.number)
        for some in Positives.split(positives.score) if len(pulled) > 1 else ():
            met = positives.met(some, self.temperature)
            term = met * factors.inverse[:, None, some]
            among[some] = (term > self.eps).sum(dim=(0, 1))
            near[some] = ((term / self.eps).log().abs() <= factors.settled[some]).sum(dim=(0, 1))
            pulled[:, some] += (met * (beside[:, None, some] - beside[None, :, some])).sum(dim=0)
        return pulled, among, near
