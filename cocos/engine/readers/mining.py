"""Stochastic negative mining: a softmax over the hardest negatives of each query."""

from collections.abc import Sequence

from torch import Tensor

from cocos.engine.primitives.kept import hardest, number_kept
from cocos.engine.readers.softmax import SoftmaxReader
from cocos.engine.sweep import Passes
from cocos.engine.view import View
from cocos.losses.snm import StochasticNegativeMining


def reads(loss, eps: float, *, spread: bool, relative: bool) -> SoftmaxReader | None:
    """Return the reader of stochastic negative mining; None for other losses."""
    if type(loss) is not StochasticNegativeMining:
        return None
    kind = SoftmaxReader if loss.fraction == 1 else Mining
    return kind(loss, loss.scale, eps, spread=spread, relative=relative)


class Mining(SoftmaxReader):
    """Counts and sums of stochastic negative mining with a fraction below 1.

    Sums run over the negatives above a bracket of the k-th score, plus the kept ones inside it. A query whose k-th
    negative the bracket missed is reweighed from all of its scores.
    """

    def summed(self, view: View, base: Sequence[Tensor], offset: Sequence[Tensor]) -> Passes:
        """Return the sums over the kept negatives, and these negatives, for each direction."""
        keeps = [number_kept(self.loss.fraction, view.negatives(k)) for k in view.directions]
        return (yield from hardest(view, self.scale, keeps, base=base, offset=offset, moments=self.spread))
