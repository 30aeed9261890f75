"""L2-Softmax: a classifier on queries of one fixed length."""

from dataclasses import dataclass

from cocos.base.ranges import Positive
from cocos.losses.base import SoftmaxLoss


@dataclass(frozen=True)
class L2Softmax(SoftmaxLoss):
    r"""Cross-entropy of each positive against the negatives, on queries scaled to one length, summed over positives.

    .. math::
        \ell(s) = -\sum_{p \in P} \log \frac{e^{\alpha s_p}}{e^{\alpha s_p} + \sum_{n \in N} e^{\alpha s_n}}, \quad
        s_j = \langle q / |q|,\, W_j \rangle

    P are the positives of the query (the weights of its class) and N its negatives. Only queries are normalised: a
    long :math:`W_j` has larger logits. The classifier's bias is not part of the scores.

    Args:
        scale: α, the length that queries are given, in units of 1/score; 28 as in common ports of the paper, which
            learns it, or fixes it above log(p(C - 2)/(1 - p)) for C classes and the probability p.

    Counts: negatives with a softmax probability above eps; unit α|P|.
    Net: push equals pull for every query.
    Source: Ranjan et al. 2017, L2-constrained Softmax Loss, arXiv:1703.09507; scale from third-party code.
    """

    scale: Positive = 28.0
    metric = "cosine_dot"
    balanced = True
    family = "proxy"
