"""NT-Xent: each positive against the negatives."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from cocos.scores import Pairs

__all__ = ["NTXent"]


@dataclass(frozen=True)
class NTXent:
    r"""Cross-entropy of each positive of a query against all of its negatives, summed over the positives.

    .. math:: \ell(s) = -\sum_{p \in P} \log \frac{e^{s_p / \tau}}{e^{s_p / \tau} + \sum_{n \in N} e^{s_n / \tau}}

    With one positive this is InfoNCE, and the share of a candidate is its softmax probability over the positive and
    the negatives. Other positives are left out of the denominator (SupCon keeps them).

    Args:
        temperature: τ, in units of score. A small τ puts the weight on the hardest negatives.

    Raises:
        ValueError: if the temperature is not finite and above 0.

    Counts: negatives that hold more than eps of the softmax; unit |P|/τ.
    Net: push equals pull for every query.
    Source: Chen et al. 2020, SimCLR, arXiv:2002.05709, eq. 1; τ of Bleeker & de Rijke 2022, arXiv:2202.07474.
    Also called: InfoNCE (van den Oord et al. 2018), SimCLR, in-batch softmax, CLIP loss (temperature=0.07),
    multiple negatives ranking (temperature=0.05), MNRL (temperature=0.05).
    Family: softmax.

    Examples:
        Three candidates with one score have a third of the probability each; the positive is short of the other two
        thirds.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.5]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("ntxent")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.6667,  0.3333,  0.3333]])
    """

    temperature: float = 0.1
    metric: ClassVar[str] = "cosine"
    couples: ClassVar[str] = "query"
    gradient: ClassVar[str] = "exact"
    balanced: ClassVar[bool] = True
    sample: ClassVar[str] = "pairs"
    per_positive: ClassVar[bool] = True
    share: ClassVar[str] = "probability"

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be finite and above 0, got {self.temperature}")

    @property
    def softmax_scale(self) -> float:
        """λ of Σ exp(λ s), the only term of the loss in which the negatives of a query appear."""
        return 1 / self.temperature

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        return pairs.cross_entropy(pairs.scores / self.temperature)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C). Each row sums to zero.

        With :math:`m_p = 1 - \pi_p` the probability that positive p leaves to the negatives: positives
        :math:`-m_p / \tau`, negatives :math:`(\sum_p m_p)\, \mathrm{softmax}_N(s / \tau) / \tau`.
        """
        return pairs.residual(pairs.scores / self.temperature) / self.temperature

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a candidate with all of the probability for every positive, (Q, 1): |P|/τ."""
        return 1 / self.temperature * pairs.positives()

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        return (
            ("sampled_softmax", {"scale": 1 / self.temperature}, "always"),
            ("normalized_softmax", {"temperature": self.temperature}, "always"),
            ("proxynca_pp", {"scale": 1 / (2 * self.temperature)}, "unit vectors"),
            ("supcon", {"temperature": self.temperature}, "one positive"),
        )

    def peer(self) -> tuple[str, dict[str, Any], str]:
        """Name the same loss in pytorch-metric-learning: class, arguments, setting."""
        return "NTXentLoss", {"temperature": self.temperature}, "labelled"
