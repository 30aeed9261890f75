"""ProxyNCA++: a softmax over all proxies, on squared distances."""

from dataclasses import dataclass

from cocos.base.ranges import Positive
from cocos.losses.base import SoftmaxLoss


@dataclass(frozen=True)
class ProxyNCApp(SoftmaxLoss):
    r"""Cross-entropy of each positive of a query against its negatives, on squared distances, summed over positives.

    .. math::
        \ell(d) = -\sum_{p \in P} \log
        \frac{e^{-\lambda d_p^2}}{e^{-\lambda d_p^2} + \sum_{n \in N} e^{-\lambda d_n^2}}

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies), and d² the squared
    distances, minus the score; the paper has embeddings and proxies of unit length, where :math:`d^2 = 2 - 2 \cos` and
    this is a softmax of cosines with the temperature 1/(2λ). Unlike in ProxyNCA the pull fades as the positive wins.

    Args:
        scale: λ, one over the temperature of the paper, in units of 1/score; 9 is its temperature of 1/9.

    Counts: negatives with a softmax probability above eps; unit λ|P|.
    Net: push equals pull for every query.
    Source: Teh et al. 2020, ProxyNCA++, arXiv:2004.01113; scale from its published code.
    """

    scale: Positive = 9.0
    metric = "squared_euclidean"
    balanced = True
    family = "proxy"
