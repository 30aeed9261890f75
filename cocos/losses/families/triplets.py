"""Hinge over all triplets of a query, which losses read on different scores."""

from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


class AllTriplets(Loss):
    r"""Hinge over all triplets of a query, summed over its positives and negatives.

    .. math:: \ell(s) = \sum_{p \in P} \sum_{n \in N} [\alpha - s_p + s_n]_+, \quad
        w_n = \#\{p : s_p - s_n < \alpha\}, \quad w_p = -\#\{n : s_p - s_n < \alpha\}
    """

    hinge = "all"  # of margin - positive + negative
    balanced = True
    margin: float

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in units of score; 0 for a query without a positive or without a negative."""
        return pairs.hinge(self.margin)

    def weight(self, pairs: Pairs) -> Tensor:
        """Return ∂ Σ value / ∂ score, (Q, C), by closed form, whole numbers, see the class."""
        return pairs.violations(self.margin)
