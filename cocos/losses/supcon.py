"""SupCon: the positives of a query share its softmax."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class SupCon(Loss):
    r"""Cross-entropy of a softmax over all candidates, with the mean over the positives outside of the logarithm.

    .. math::
        \ell(s) = -\frac{1}{|P|} \sum_{p \in P} \log \frac{e^{s_p / \tau}}{\sum_{j \in P \cup N} e^{s_j / \tau}}

    P are the positives of the query, N its negatives and s their scores. Every positive is in the denominator, so
    the best are restrained: a positive with more than 1/|P| of the softmax is pushed away.

    Args:
        temperature: τ, in units of score; 0.1 as in the paper. A small τ puts the weight on the hardest negatives.

    Counts: negatives with a softmax probability above eps; unit 1/τ. With one positive it is NT-Xent.
    Net: push equals pull for every query.
    Source: Khosla et al. 2020, Supervised contrastive learning, arXiv:2004.11362, eq. 2 (L_out).
    """

    temperature: Positive = 0.1
    balanced = True
    sample = "groups"
    share = "probability"
    family = "softmax"
    aliases = {"L_out": {}, "supervised contrastive": {}}

    @property
    def softmax_scale(self) -> float:
        """λ of Σ exp(λ s), the only term of the loss in which the negatives of a query appear."""
        return 1 / self.temperature

    def _target(self, pairs: Pairs) -> Tensor:
        """Target of the softmax, (Q, C): 1/|P| on the positives; 0 for a query without a positive or a negative."""
        number = pairs.positive.sum(dim=1, keepdim=True).clamp(min=1).to(pairs.scores.dtype)
        return torch.where(pairs.positive & pairs.negative.any(dim=1, keepdim=True), 1 / number, 0)

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        logits, target = pairs.scores / self.temperature, self._target(pairs)
        terms = logsumexp(logits, pairs.positive | pairs.negative) - logits
        return torch.where(target > 0, target * terms, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        With π the softmax over positives and negatives: positives :math:`(\pi_p - 1 / |P|) / \tau`, negatives
        :math:`\pi_n / \tau`.
        """
        target = self._target(pairs)
        taking_part = (pairs.positive | pairs.negative) & (target > 0).any(dim=1, keepdim=True)
        return (softmax(pairs.scores / self.temperature, taking_part) - target) / self.temperature

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative with all of the softmax, (): 1/τ."""
        return pairs.scores.new_tensor(1 / self.temperature)
