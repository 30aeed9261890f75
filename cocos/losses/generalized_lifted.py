"""Generalized lifted structure: the farthest positives against the closest negatives, both softened."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class GeneralizedLifted(Loss):
    r"""Hinge of the soft farthest positive and the soft closest negative of a query.

    .. math:: \ell(d) = \Bigl[\log \sum_{p \in P} e^{d_p} + \log \sum_{n \in N} e^{m - d_n}\Bigr]_+

    :math:`d` is the Euclidean distance, minus the score, of the positives P and the negatives N of a query. With hard
    maxima in place of the two sums this would be the batch-hard triplet with margin m. While a query is active its pull
    is 1 in all, shared among the positives by a softmax of their distances, and its push is 1.

    Args:
        margin: m, in units of distance; 1 is the default of PyTorch Metric Learning, arXiv:2008.09164.

    Counts: negatives of active queries with a softmax probability above eps; unit 1.
    Net: push equals pull for every query: 1, or 0 where the hinge is closed.
    Source: Hermans et al. 2017, In Defense of the Triplet Loss, arXiv:1703.07737, generalized lifted embedding loss.

    Examples:
        Two negatives at one distance share the push; the positive pulls with all of it.

        >>> pairs = cocos.Pairs(torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("generalized_lifted")
        >>> loss.weight(pairs)
        tensor([[-1.0000,  0.5000,  0.5000]])
    """

    margin: NonNegative = 1.0
    metric = "euclidean"
    balanced = True
    sample = "groups"
    share = "probability"
    family = "pair"

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in units of distance; 0 for a query without a positive or without a negative."""
        closest = logsumexp(self.margin + pairs.scores, pairs.negative)
        return (logsumexp(-pairs.scores, pairs.positive) + closest).relu().squeeze(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        Of active queries: positives :math:`-\mathrm{softmax}_P(d)`, negatives :math:`\mathrm{softmax}_N(-d)`.
        """
        share = softmax(pairs.scores, pairs.negative) - softmax(-pairs.scores, pairs.positive)
        return torch.where((self(pairs) > 0)[:, None], share, 0)
