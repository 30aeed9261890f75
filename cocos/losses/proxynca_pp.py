"""ProxyNCA++: a softmax over all proxies, on squared distances."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from cocos.scores import Pairs

__all__ = ["ProxyNCApp"]


@dataclass(frozen=True)
class ProxyNCApp:
    r"""Cross-entropy of each positive of a query against its negatives, on squared distances, summed over positives.

    .. math::
        \ell(d) = -\sum_{p \in P} \log
        \frac{e^{-\lambda d_p^2}}{e^{-\lambda d_p^2} + \sum_{n \in N} e^{-\lambda d_n^2}}

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies), and d² the squared
    distances, minus the score; the paper has embeddings and proxies of unit length, where :math:`d^2 = 2 - 2 \cos` and
    this is a softmax of cosines with the temperature 1/(2λ). Unlike in ProxyNCA the pull fades as the positive wins.

    Args:
        scale: λ, one over the temperature of the paper, in units of 1/score; 9 is its temperature of 1/9.

    Raises:
        ValueError: if the scale is not finite and above 0.

    Counts: negatives that hold more than eps of the softmax; unit λ|P|.
    Net: push equals pull for every query.
    Source: Teh et al. 2020, ProxyNCA++, arXiv:2004.01113; scale from its published code.
    Family: proxy.

    Examples:
        Three candidates at one distance have a third of the probability each; the positive is short of the other two
        thirds.

        >>> pairs = cocos.Pairs(torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("proxynca_pp")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.6667,  0.3333,  0.3333]])
    """

    scale: float = 9.0
    metric: ClassVar[str] = "squared_euclidean"
    couples: ClassVar[str] = "query"
    gradient: ClassVar[str] = "exact"
    balanced: ClassVar[bool] = True
    sample: ClassVar[str] = "pairs"
    per_positive: ClassVar[bool] = True
    share: ClassVar[str] = "probability"

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale must be finite and above 0, got {self.scale}")

    @property
    def softmax_scale(self) -> float:
        """λ of Σ exp(λ s), the only term of the loss in which the negatives of a query appear."""
        return self.scale

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        return pairs.cross_entropy(self.scale * pairs.scores)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C). Each row sums to zero.

        With :math:`m_p` the probability that positive p leaves to the negatives: positives :math:`-\lambda m_p`,
        negatives :math:`\lambda (\sum_p m_p)\, \mathrm{softmax}_N(-\lambda d^2)`.
        """
        return self.scale * pairs.residual(self.scale * pairs.scores)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a candidate with all of the probability for every positive, (Q, 1): λ|P|."""
        return self.scale * pairs.positives()

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        return (
            ("euclidean_softmax", {"f1": "t^2", "f2": "t^2", "scale": self.scale}, "always"),
            ("ntxent", {"temperature": 1 / (2 * self.scale)}, "unit vectors"),
        )

    def peer(self) -> tuple[str, dict[str, Any], str]:
        """Name the same loss in pytorch-metric-learning: class, arguments, setting."""
        return "ProxyNCALoss", {"softmax_scale": self.scale}, "proxies"
