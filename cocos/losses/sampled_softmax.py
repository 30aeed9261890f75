"""Sampled softmax: the other candidates of the batch stand for all negatives."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from cocos.scores import Pairs

__all__ = ["SampledSoftmax"]


@dataclass(frozen=True)
class SampledSoftmax:
    r"""Cross-entropy of each positive of a query against all of its negatives, summed over the positives.

    .. math::
        \ell(s) = -\sum_{p \in P} \log \frac{e^{\lambda s_p}}{e^{\lambda s_p} + \sum_{n \in N} e^{\lambda s_n}}

    P are the positives of the query, N its negatives and s their scores. It is NT-Xent with the temperature 1/λ; the
    paper has one positive, a text's image.

    Args:
        scale: λ, in units of 1/score. The paper scales its logits by 20 in section 4.2, the default; the formula of
            its section 4.1, read literally, scales both embeddings and makes it 400.

    Raises:
        ValueError: if the scale is not finite and above 0.

    Counts: negatives that hold more than eps of the softmax; unit λ|P|.
    Net: push equals pull for every query.
    Source: Veit & Wilber 2020, Cross-Example Softmax, arXiv:2011.08824, eq. 2; scale of section 4.2.
    Also called: softmax with in-batch negatives.
    Family: softmax.

    Examples:
        Three candidates with one score have a third of the probability each; the positive is short of the other two
        thirds.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.5]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("sampled_softmax")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.6667,  0.3333,  0.3333]])
    """

    scale: float = 20.0
    metric: ClassVar[str] = "cosine"
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
        negatives :math:`\lambda (\sum_p m_p)\, \mathrm{softmax}_N(\lambda s)`.
        """
        return self.scale * pairs.residual(self.scale * pairs.scores)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a candidate with all of the probability for every positive, (Q, 1): λ|P|."""
        return self.scale * pairs.positives()

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        return (
            ("ntxent", {"temperature": 1 / self.scale}, "always"),
            ("snm", {"scale": self.scale, "fraction": 1.0}, "always"),
        )

    def peer(self) -> tuple[str, dict[str, Any], str]:
        """Name the same loss in pytorch-metric-learning: class, arguments, setting."""
        return "NTXentLoss", {"temperature": 1 / self.scale}, "labelled"
