"""L2-Softmax: a classifier on queries of one fixed length."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from cocos.scores import Pairs

__all__ = ["L2Softmax"]


@dataclass(frozen=True)
class L2Softmax:
    r"""Cross-entropy of each positive against the negatives, on queries scaled to one length, summed over positives.

    .. math::
        \ell(s) = -\sum_{p \in P} \log \frac{e^{\alpha s_p}}{e^{\alpha s_p} + \sum_{n \in N} e^{\alpha s_n}}, \quad
        s_j = \langle q / |q|,\, W_j \rangle

    P are the positives of the query (the weights of its class) and N its negatives. Only queries are normalised: a
    long :math:`W_j` has larger logits. The classifier's bias is not part of the scores.

    Args:
        scale: α, the length that queries are given, in units of 1/score; 28 as in common ports of the paper, which
            learns it, or fixes it above log(p(C - 2)/(1 - p)) for C classes and the probability p.

    Raises:
        ValueError: if the scale is not finite and above 0.

    Counts: negatives that hold more than eps of the softmax; unit α|P|.
    Net: push equals pull for every query.
    Source: Ranjan et al. 2017, L2-constrained Softmax Loss, arXiv:1703.09507; scale from third-party code.
    Family: proxy.

    Examples:
        Three candidates with one score have a third of the probability each; the positive is short of the other two
        thirds.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.5]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("l2_softmax")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.6667,  0.3333,  0.3333]])
    """

    scale: float = 28.0
    metric: ClassVar[str] = "cosine_dot"
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

        With :math:`m_p` the probability that positive p leaves to the negatives: positives :math:`-\alpha m_p`,
        negatives :math:`\alpha (\sum_p m_p)\, \mathrm{softmax}_N(\alpha s)`.
        """
        return self.scale * pairs.residual(self.scale * pairs.scores)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a candidate with all of the probability for every positive, (Q, 1): α|P|."""
        return self.scale * pairs.positives()

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        return (("normalized_softmax", {"temperature": 1 / self.scale}, "unit vectors"),)
