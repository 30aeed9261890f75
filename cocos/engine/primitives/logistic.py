r"""Sums of the sigmoids of the negatives of a query, their moments, and counts above one score for all queries.

In: a view, and λ and b of σ(λ score + b). Out: `LogisticSums`: Σ σ with its effective number and participation ratio;
the number of negatives with a share above eps, and their sum; and the few negatives whose part of the sum can exceed
eps.

A share σ(z) exceeds eps where the score exceeds (logit(eps) - b) / λ, whatever the query. So the count is one
comparison; float64 decides where the rounding of the score does not. A part of the sum that exceeds eps has :math:`z >
\mathrm{logit}(eps \sum \sigma) \ge \ln (eps \sum \sigma)`, and the sum only grows: so `logsumexp` gives the limits.
"""

import math

import torch
from torch import Tensor

from cocos.engine import bounds
from cocos.engine.parts import Tile, ones_above
from cocos.engine.primitives.exponentials import MAX_NOTED_PER_PART, Exponentials
from cocos.engine.primitives.logsumexp import (
    FLOAT32_ADDITIONS,
    LOG2E,
    LogSumExp,
    Question,
    Sums,
    sums_of,
)
from cocos.engine.view import View

# Lines of the sums after Σ σ, Σ σ ln σ and Σ σ²: number of shares above eps, their sum, and uncertain ones.
ABOVE, MASS, OPEN, LINES = 3, 4, 5, 6
# Binary exponent: where no negative of a query exceeds it, the sums are taken from a log-sum-exp, since a sigmoid is an
# exponential within 2^FAR of itself.
FAR = -40.0
# Error of a logit, in nats, beyond any that differs from 0 or 1 as a share.
UNDECIDED = 300.0
# Smallest binary exponent of a sigmoid: smaller ones count as this.
LOWEST_EXPONENT = -126.0


class Logistic(LogSumExp):
    """Sum the sigmoids of the negatives of every query, and count those above eps.

    Args:
        view: the scores.
        scale: λ of σ(λ score + b), in 1/score.
        bias: b.
        eps: smallest share that counts, above 0 and below 1; otherwise none is counted here.
        heavy: note the negatives whose part of the sum may exceed eps.
        moments: compute the effective number and the participation ratio.

    `done` returns `LogisticSums`.
    """

    kernel = None
    narrow = (math.inf, math.inf)

    def __init__(self, view: View, scale: float, bias: float, eps: float, *, heavy: bool, moments: bool = True):
        self.bias, self.shift = bias, bias * LOG2E
        counted = [torch.zeros(len(view.sides[k]), dtype=torch.float64, device=view.device) for k in view.directions]
        base = [each - torch.inf for each in counted] if heavy else None
        offset = [each + math.log2(eps) - self.shift for each in counted] if heavy else None
        super().__init__(view, scale, base=base, offset=offset, moments=moments)
        self.lines = LINES
        self.level, self.width = self._threshold(eps)
        wide = self.width + float(torch.as_tensor(view.bound(self.level)))
        low, high = bounds.outward(torch.tensor([self.level], dtype=torch.float64), wide, view.dtype)
        self.low, self.high = float(low), float(high)

    def _threshold(self, eps: float) -> tuple[float, float]:
        """Score above which a share exceeds eps, and how near to it float64 cannot tell; infinite for no count.

        A share is too near where it is at least eps / (1 + equal): logit(eps) - logit(eps / (1 + equal)) is
        ln(1 + equal / (1 - eps)). The logarithm of a share changes by at most λ with the score, so this covers the
        error of a score. The level itself errs by the roundings of a logarithm, a difference and a quotient.
        """
        if not 0 < eps < 1:
            return math.inf, 0.0
        logit = math.log(eps) - math.log1p(-eps)
        rounded = 8 * 2.0**-53 * (abs(logit) + abs(self.bias)) / self.nats
        equal = math.log1p(bounds.equal(self.view.exactness, self.nats, 1) / (1 - eps)) / self.nats
        return (logit - self.bias) / self.nats, equal + rounded

    def error(self, top: Tensor) -> Tensor:
        """Bound the logarithmic error, in nats, of sums over scores of the tiles that do not exceed `top`, (n,)."""
        view, number = self.view, max(len(side) for side in self.view.sides)
        bound = self.off + (view.bound(top.double()) if self.square else 0.0)
        if view.dtype == torch.float64:
            return torch.full_like(top, bounds.equal(self.nearest, self.nats, number), dtype=torch.float64)
        sigmoid = bounds.sigmoid(bound, self.nats, self.size + abs(self.shift))
        error = sigmoid + bounds.total(FLOAT32_ADDITIONS, number) + bounds.clamped(number, FAR)
        return torch.full_like(top, 1.0, dtype=torch.float64) * error

    def see(self, state: Exponentials, tile: Tile) -> None:
        """Add one tile."""
        scores = tile.lines(0)
        share = (scores * self.nats).add_(self.bias).clamp_(min=LOWEST_EXPONENT / LOG2E).sigmoid_()
        over = ones_above(scores, self.high)
        terms = {0: share, ABOVE: over, MASS: over * share}
        if self.moments:
            terms |= {1: -torch.special.entr(share), 2: share.square()}
        for k, where in enumerate((tile.rows, tile.columns)[: len(state.total)]):
            total, top = state.total[k][:, where], tile.lines(k).amax(dim=2).flatten()
            torch.maximum(state.top[k][where], top, out=state.top[k][where])
            for line, values in terms.items():
                total[line] += sums_of(values.mT if k else values)
            if self.known and state.noted[k] is not None:
                ends = (state.renew(k, where), None)
                found = tile.between(None if k else ends, ends if k else None)
                state.note(k, [(found.row.int(), found.column.int(), found.score)], MAX_NOTED_PER_PART)
        if self.level < math.inf:
            self._decide(state, tile)

    def _decide(self, state: Exponentials, tile: Tile) -> None:
        """Compare the scores between both ends of the threshold in float64."""
        queries = tile.rows.stop - tile.rows.start
        low, high = (tile.scores.new_full((queries,), end) for end in (self.low, self.high))
        found = tile.between((low, high))
        if not len(found.row):
            return
        excess = self.view.exact(*found.places) - self.level
        above, near = excess > 0, excess.abs() <= self.width
        share = (found.score.double() * self.nats + self.bias).sigmoid()
        for total, place in zip(state.total, found.places, strict=False):
            total[ABOVE].index_add_(0, place, above.double())
            total[MASS].index_add_(0, place, torch.where(above, share, 0))
            total[OPEN].index_add_(0, place, near.double())

    def done(self, state: Exponentials) -> "LogisticSums":
        """Return the sums of all parts."""
        return LogisticSums(self, state)


class LogisticSums(Sums):
    """Results of a pass of `Logistic`, for each direction; `log2` and `error` belong to Σ σ."""

    of: Logistic

    def effective(self, k: int) -> Tensor:
        """Effective number of negatives: exp of the entropy of their parts of the sum, (n,); 0 without any."""
        total = self._total[k]
        return torch.where(self.top[k] > -torch.inf, (total[0].log() - total[1] / total[0]).exp(), 0)

    def above(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Number of negatives with a share above eps, (n,) int64; those that may be on either side; their sum."""
        return self._total[k][ABOVE].long(), self._total[k][OPEN].long(), self._total[k][MASS]

    def far(self, k: int) -> Tensor:
        """Queries whose sigmoids are all too small to be summed, though they have negatives, (n,) bool."""
        top = self.top[k].double()
        return (top > -torch.inf) & (top * self.of.scale + self.of.shift < FAR)

    def heavy(self, k: int, active: Tensor, eps: float) -> Question:
        """The question which negatives have more than eps of the sum, of the queries of a mask, (n,) bool.

        With T = Σ σ, σ(z) > eps T where z > ln(eps T) - ln(1 - eps T): never, where eps T reaches 1. Where the error
        of the sum leaves open whether it does, any z from the lowest possible one on is undecided.
        """
        total = self.log2[k].exp2()
        left, slack = 1 - eps * total, eps * total * torch.expm1(self.error[k].clamp(max=1))
        near = active & (left.abs() <= 2 * slack)
        left = torch.where(near, (left + slack).clamp(min=torch.finfo(left.dtype).tiny) * math.exp(-UNDECIDED), left)
        some = active & (left > 0)
        error = torch.where(near, UNDECIDED, self.error[k] / torch.where(some, left, 1))
        return Question(torch.where(some, left, 0), self.log2[k] - self.of.shift, error, eps, weighed=False)
