"""Stochastic negative mining: a softmax over the hardest negatives of each query."""

from collections.abc import Generator, Sequence

from torch import Tensor

from cocos.engine import fused
from cocos.engine.primitives.kept import joined, number_kept
from cocos.engine.primitives.kth import bracketed, room, settled
from cocos.engine.primitives.logsumexp import LogSumExp
from cocos.engine.primitives.threshold import Threshold
from cocos.engine.readers.softmax import Softmax
from cocos.engine.view import View
from cocos.losses.snm import StochasticNegativeMining

__all__ = ["Mining", "reads"]


def reads(loss, eps: float, *, spread: bool, relative: bool) -> Softmax | None:
    """The reader of stochastic negative mining; None for other losses."""
    if type(loss) is not StochasticNegativeMining:
        return None
    kind = Softmax if loss.fraction == 1 else Mining
    return kind(loss, loss.scale, eps, spread=spread, relative=relative)


class Mining(Softmax):
    """Counts and sums of stochastic negative mining with a fraction below 1.

    The sums of `Softmax` are taken over the negatives above a bracket about the k-th one, and those in it that are
    kept are added. A query whose k-th negative the bracket missed is weighed with all of its scores held.

    Args:
        loss: with its fraction.
        scale: as in `Softmax`.
        eps: smallest share that contributes.
        spread: as in `Softmax`.
        relative: as in `Softmax`.
    """

    def summed(self, view: View, base: Sequence[Tensor], offset: Sequence[Tensor]) -> Generator:
        """The sums over the negatives that are kept, and these, of each direction."""
        keeps = [number_kept(self.loss.fraction, view.negatives(k)) for k in view.directions]
        brackets = yield from bracketed(view, keeps)
        ends = [each.ends(view) for each in brackets]
        listing, floor = Threshold(view, listed=ends, most=room(view)), [high for _, high in ends]
        seen, sums = yield (
            listing,
            LogSumExp(view, self.scale, base=base, offset=offset, moments=self.spread, floor=floor),
        )
        deep = fused.deep(view, listing)
        kept = [settled(view, k, bracket, seen, deep=deep)[0] for k, bracket in enumerate(brackets)]
        for k, each in enumerate(kept):
            sums = joined(sums, k, each)
        return sums, kept  # noqa: B901 - the value of `yield from`
