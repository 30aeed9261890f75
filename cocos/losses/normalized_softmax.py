"""Normalized softmax: cosines of queries and class proxies, divided by a temperature."""

from dataclasses import dataclass

from cocos.base.ranges import Positive
from cocos.losses.base import SoftmaxLoss


@dataclass(frozen=True)
class NormalizedSoftmax(SoftmaxLoss):
    r"""Cross-entropy of each positive of a query against all of its negatives, on cosines, summed over the positives.

    .. math:: \ell(s) = -\sum_{p \in P} \log \frac{e^{s_p / \tau}}{e^{s_p / \tau} + \sum_{n \in N} e^{s_n / \tau}}

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies) and s their cosines.
    The formula is NT-Xent's, with a learned proxy of each class in place of the other samples.

    Args:
        temperature: τ, in units of score; 0.05 as in the paper.

    Counts: negatives with a softmax probability above eps; unit |P|/τ.
    Net: push equals pull for every query.
    Source: Zhai & Wu 2018, Classification is a Strong Baseline for Deep Metric Learning, arXiv:1811.12649.
    """

    temperature: Positive = 0.05
    balanced = True
    family = "proxy"
    aliases = {
        "N-Softmax": {},
        "Softmax": {},
        "NormFace": {},
        "cluster contrast": {"temperature": 0.05},  # centroids of clusters as proxies: arXiv:2103.11568
        "ClusterNCE": {"temperature": 0.05},  # likewise
    }

    @property
    def scale(self) -> float:
        """λ = 1/τ."""
        return 1 / self.temperature
