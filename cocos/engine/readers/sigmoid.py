r"""Losses in which each pair has a logistic term of its own: SigLIP, and UniFace with proxies.

The weight of a negative is λ σ(λ s + b) of its own score. So negatives above eps are those above one score, which is
the same for every query, and push, effective number and participation ratio follow from moments of the sigmoids. Far
below 0 a sigmoid is an exponential, :math:`\sigma(z) = 2^e / (1 + 2^e)` with :math:`e = z \log_2 \mathrm e`, so it is
summed like one, relative to a power of two.
"""

import functools
import math

import torch
from torch import Tensor

from cocos.engine import bounds, plain
from cocos.engine.readers.softmax import SoftmaxReader
from cocos.engine.sums import FLOAT32_ADDITIONS, LOG2E, ExponentialSums, Sums
from cocos.engine.tiles import Tile
from cocos.engine.view import View

# Largest exponent of a query at which its sigmoids are summed relative to a power of two; above, their sum is in range.
FAR = -40.0
# Smallest exponent of two of a sigmoid relative to that; smaller ones count as this.
SMALLEST_EXPONENT = -126.0


def reads(loss, eps: float, *, spread: bool, relative: bool) -> "SigmoidReader | None":
    """Return the reader of a loss; None unless each pair has a logistic term of its own."""
    if loss.logistic is None or loss.couples != "query" or loss.adds_statistics:
        return None
    return SigmoidReader(loss, loss.logistic[0], eps, spread=spread, relative=relative)


class SigmoidSums(ExponentialSums):
    """Sum the sigmoids of λ score + b over the negatives of every query, and count those above eps."""

    def __init__(self, view: View, scale: float, bias: float, eps: float, weigh):
        one = [torch.ones(len(view.sides[k]), dtype=torch.float64, device=view.device) for k in view.directions]
        super().__init__(view, scale, eps, weigh, one)
        self.bias, self.shift, self.wide, self.lists = bias, bias * LOG2E, True, False
        self.lowest = -float(math.ceil(self.size + abs(self.shift)))
        if view.dtype == torch.float32:
            number = max(len(side) for side in view.sides)
            power = bounds.sigmoid(self.size + abs(self.shift))
            self.added = power + bounds.total(FLOAT32_ADDITIONS, number) + bounds.clamped(number, FAR)

    def exponent(self, top: Tensor) -> Tensor:
        """Exponents of two relative to which sigmoids are summed, given the largest scores; 0 unless all are tiny."""
        exponent = (top * self.scale + self.shift).ceil()
        return torch.where(exponent < FAR, exponent, 0)

    def _powers(self, scores: Tensor, nats: float, reference: Tensor) -> tuple[Tensor, Tensor]:
        """Binary logarithms of the sigmoids of scores, relative to the references, and their powers."""
        logarithm = torch.nn.functional.logsigmoid((scores * nats).add_(self.bias))
        log2 = logarithm.mul_(LOG2E).sub_(reference).clamp_(min=SMALLEST_EXPONENT)
        return log2, log2.exp2()

    def add(self, tile: Tile, reference: list[Tensor], total: list[Tensor]) -> None:
        """Add a tile to the sums of its lines."""
        plain.sums(tile.scores, self.nats, reference, total, apart=True, powers=self._powers)

    def count(self, tile: Tile, reference: list[Tensor], ends: list[Tensor], number: list[Tensor], mass: list[Tensor]):
        """Count the scores of a tile above the ends of its lines."""
        limits = reference, ends, number, mass
        plain.shares(tile.scores, self.nats, *limits, apart=True, powers=self._powers)

    def ends(self, share: Tensor, log2: Tensor, error: Tensor) -> Tensor:
        """Scores above which a sigmoid is certainly, or perhaps, above eps, or above eps of the sum; (4, n)."""
        equal = bounds.equal(self.view.exactness, self.nats, 1)
        least = torch.full_like(share, self.eps)
        ends = [*self._levels(least, share > 0, torch.full_like(error, equal))]
        least = self.eps * log2.exp2()
        high, low = self._levels(least, share > 0, error + equal)
        # In doubt is whether any sigmoid can exceed eps of the sum.
        doubt = (share > 0) & ((1 - least).abs() <= 2 * least * (error + equal))
        ends += [torch.where(doubt, torch.inf, high), torch.where(doubt, -torch.inf, low)]
        return torch.stack(ends)

    def _levels(self, least: Tensor, active: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """Scores above which a sigmoid certainly, or perhaps, exceeds `least`, with a relative error; (n,) each."""
        rest = 1 - least  # d logit(p) = d ln p / (1 - p); a sigmoid never exceeds 1
        level = torch.where(active & (rest > 0), (least.log() - rest.log() - self.bias) / self.nats, torch.inf)
        rounded = 2.0**-50 * (level.abs() + abs(self.bias / self.nats))
        width = error / rest.abs().clamp(min=1e-300) / self.nats + self.view.bound(level) + rounded
        return bounds.outward(level, torch.where(level < torch.inf, width, 0), self.view.dtype)[::-1]


class SigmoidReader(SoftmaxReader):
    """Counts and sums of a loss whose share of a negative is σ(λ score + b)."""

    def sums(self, view: View) -> SigmoidSums:
        """The pass that sums the sigmoids of a view."""
        return SigmoidSums(view, self.scale, self.loss.logistic[1], self.eps, functools.partial(self._weigh, view))

    def _weigh(self, view: View, k: int, start: int, stop: int, log2: Tensor) -> Tensor:
        """Weigh the positives and all negatives of some queries, see `cocos.engine.sums.Weigh`."""
        total, positive = log2.exp2(), torch.zeros_like(log2)
        for a, b in view.chunks(k, start, stop):
            query, _, score = view.scored(k, a, b)
            share = (-(self.scale * score + self.loss.logistic[1])).sigmoid()
            positive[a - start : b - start].index_add_(0, query, share)
        return torch.stack([total, positive, self.scale * total, self.scale * positive, torch.zeros_like(total)])

    def _hardest(self, sums: Sums, k: int) -> Tensor:
        """Share of the hardest negative in the push of its query, (n,)."""
        hardest = torch.nn.functional.logsigmoid(sums.top[k].double() * self.scale + self.loss.logistic[1])
        return (hardest * LOG2E - sums.log2[k]).exp2()
