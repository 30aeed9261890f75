"""RS@k: recall at k with sigmoids for ranks and for the cut at k."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


@dataclass(frozen=True)
class RecallAtK(Loss):
    r"""One minus a smooth recall at k, averaged over several k.

    .. math::
        \ell(s) = 1 - \frac{1}{|K|} \sum_{k \in K}
        \frac{\min\left(\sum_{i \in P} \sigma\!\left(\tfrac{k - r_i}{\tau_k}\right), k\right)}{\min(k, |P|)}, \quad
        r_i = 1 + \sum_{j \in P \cup N \setminus i} \sigma\!\left(\tfrac{s_j - s_i}{\tau}\right)

    :math:`r_i` is the smooth rank of positive i. A sum that has reached k has no gradient. A perfect ranking is not
    free: a positive at rank k passes the cut at k by half. The query is not its own candidate; the published code
    leaves it in the ranking, so that no rank is below 2.

    Args:
        temperature: τ of the ranks, in units of score. Default of the published code.
        temperature_k: τ_k of the cut, in ranks; 1 as in the paper (secondary source). The published code has k itself.
        ks: the k of K, whole numbers. Default of the published code.

    Counts: negatives with a slope towards some positive; unit 1/τ.
    Net: push equals pull for every query.
    Source: Patel et al. 2022, Recall@k Surrogate Loss, arXiv:2108.11179; formula from its published code.

    Examples:
        A negative far above the positive makes its rank 2; the sigmoid of k - 2 at k = 2 is a half.

        >>> pairs = cocos.Pairs(torch.tensor([[0.3, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("recall_at_k", {"ks": 2})
        >>> loss(pairs)
        tensor([0.5000])
    """

    temperature: Positive = 0.01
    temperature_k: Positive = 1.0
    ks: tuple[int, ...] = (1, 2, 4, 8, 16)
    balanced = True
    sample = "groups"
    family = "ranking"
    aliases = {"RS@k": {}}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.ks and all(isinstance(k, int) and k >= 1 for k in self.ks)):
            raise ValueError(f"ks must be integers of at least 1, got {self.ks}")

    def _gaps_to_positive(self, pairs: Pairs, index: Tensor) -> Tensor:
        """Difference of every other score from a positive's score, in temperatures; -inf for itself."""
        logits = (pairs.scores - pairs.scores.gather(1, index)) / self.temperature
        return logits.masked_fill(~(pairs.positive | pairs.negative).scatter(1, index, False), -torch.inf)

    def _within_k(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """How far a positive is within k, in temperatures, (Q, P, K); how many are, smoothly, (Q, K); and the ks."""
        index, filled = pairs.slots()
        ranks = torch.cat(
            [1 + self._gaps_to_positive(pairs, i).sigmoid().sum(1, keepdim=True) for i in index.split(1, 1)], dim=1
        )
        ks = ranks.new_tensor(self.ks)
        within = (ks - ranks[:, :, None]) / self.temperature_k
        return within, torch.where(filled[:, :, None], within.sigmoid(), 0).sum(dim=1), ks

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), from 0 to 1; 0 for a query without a positive or without a negative."""
        _, hits, ks = self._within_k(pairs)
        number = pairs.positive.sum(dim=1, keepdim=True).clamp(min=1)
        recall = torch.where(hits < ks, hits, ks) / torch.minimum(ks, number)
        ranked = pairs.positive.any(dim=1) & pairs.negative.any(dim=1)
        return torch.where(ranked, 1 - recall.mean(dim=1), 0)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        With :math:`g_{ij} = \sigma' / \tau` and :math:`c_i = \frac{1}{|K|} \sum_k [\textstyle\sum < k]
        \frac{\sigma'((k - r_i) / \tau_k)}{\tau_k \min(k, |P|)}`, the loss of positive i per rank: negatives
        :math:`w_n = \sum_i c_i g_{in}`, positives :math:`w_i = \sum_{j \in P} c_j g_{ji} - c_i \sum_j g_{ij}`.
        """
        within, hits, ks = self._within_k(pairs)
        index, filled = pairs.slots()
        number = pairs.positive.sum(dim=1, keepdim=True).clamp(min=1)
        share = torch.where(hits < ks, 1 / (self.temperature_k * torch.minimum(ks, number)), 0) / len(self.ks)
        cost = (within.sigmoid() * (-within).sigmoid() * share[:, None]).sum(dim=2)
        cost = torch.where(filled & pairs.negative.any(dim=1, keepdim=True), cost, 0)
        weight = torch.zeros_like(pairs.scores)
        for place, cost_part in zip(index.split(1, dim=1), cost.split(1, dim=1), strict=True):
            above = self._gaps_to_positive(pairs, place)
            push = cost_part * above.sigmoid() * (-above).sigmoid() / self.temperature
            weight = weight + push.scatter_add(1, place, -push.sum(dim=1, keepdim=True))
        return weight

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a candidate that a positive meets with slope 1 in rank and in recall, (): 1/τ."""
        return pairs.scores.new_tensor(1 / self.temperature)
