"""NT-Xent: each positive against the negatives."""

from dataclasses import dataclass

from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import SoftmaxLoss


@dataclass(frozen=True)
class NTXent(SoftmaxLoss):
    r"""Cross-entropy of each positive of a query against all of its negatives, summed over the positives.

    .. math:: \ell(s) = -\sum_{p \in P} \log \frac{e^{s_p / \tau}}{e^{s_p / \tau} + \sum_{n \in N} e^{s_n / \tau}}

    With one positive this is InfoNCE, and the share of a candidate is its softmax probability over the positive and
    the negatives. Other positives are left out of the denominator (SupCon keeps them).

    Args:
        temperature: τ, in units of score. A small τ puts the weight on the hardest negatives.

    Counts: negatives with a softmax probability above eps; unit |P|/τ.
    Net: push equals pull for every query.
    Source: Chen et al. 2020, SimCLR, arXiv:2002.05709, eq. 1; τ of Bleeker & de Rijke 2022, arXiv:2202.07474.

    Examples:
        Three equal scores have a third of the probability each; the positive lacks the other two thirds.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.5]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("ntxent")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.6667,  0.3333,  0.3333]])
    """

    temperature: Positive = 0.1
    balanced = True
    family = "softmax"
    aliases = {
        "InfoNCE": {},  # van den Oord et al. 2018, arXiv:1807.03748
        "SimCLR": {},
        "in-batch softmax": {},
        "CLIP loss": {"temperature": 0.07},
        "multiple negatives ranking": {"temperature": 0.05},
        "symmetric multiple negatives ranking": {"temperature": 0.05},  # mean of both directions
        "multiple negatives symmetric ranking": {"temperature": 0.05},  # likewise
        "angular prototypical": {"temperature": 0.1},  # initial value; candidates are class means: arXiv:2003.11982
        "GE2E softmax": {"temperature": 0.1},  # likewise, the mean without the query: arXiv:1710.10467
    }

    @property
    def scale(self) -> float:
        """λ = 1/τ."""
        return 1 / self.temperature

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        return pairs.cross_entropy(pairs.scores / self.temperature)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        With :math:`m_p` the probability that positive p leaves to the negatives: positives :math:`-m_p / \tau`,
        negatives :math:`(\sum_p m_p)\, \mathrm{softmax}_N(s / \tau) / \tau`.
        """
        return pairs.residual(pairs.scores / self.temperature) / self.temperature

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative with all of the probability for every positive, (Q, 1): |P|/τ."""
        return self.scale * pairs.positives()
