"""SmoothAP: average precision with sigmoids for ranks."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


@dataclass(frozen=True)
class SmoothAP(Loss):
    r"""One minus a smooth average precision.

    .. math::
        \ell(s) = 1 - \frac{1}{|P|} \sum_{i \in P} \frac{A_i}{A_i + N_i}, \quad
        A_i = 1 + \sum_{j \in P \setminus i} \sigma\!\left(\tfrac{s_j - s_i}{\tau}\right), \quad
        N_i = \sum_{n \in N} \sigma\!\left(\tfrac{s_n - s_i}{\tau}\right)

    :math:`A_i` is the smooth rank of positive i among the positives, :math:`N_i` the negatives that stand above it.
    The query is not its own candidate.

    Args:
        temperature: τ of the sigmoid, in units of score.

    Counts: negatives with a slope towards some positive; unit 1/(τ|P|). The published Eq. 7 counts terms instead.
    Net: push equals pull for every query; a positive may be pushed below a worse-ranked one.
    Source: Brown et al. 2020, Smooth-AP, arXiv:2007.12163, eq. 8; Bleeker & de Rijke 2022, arXiv:2202.07474, eqs. 2-4.

    Examples:
        A negative that is level with the positive counts as half of one above it: AP is 1 / (1 + 0.5).

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.3]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("smoothap")
        >>> loss(pairs)
        tensor([0.3333])
    """

    temperature: Positive = 0.01
    balanced = True
    sample = "groups"
    family = "ranking"

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), from 0 to 1; 0 for a query without a positive."""
        scores, number = pairs.scores, pairs.positive.sum(dim=1).clamp(min=1)
        precision = scores.new_zeros(scores.shape[0])
        for index, filled in zip(*(part.split(1, dim=1) for part in pairs.slots()), strict=True):
            above = ((scores - scores.gather(1, index)) / self.temperature).sigmoid()
            positives = torch.where(pairs.positive, above, 0).sum(dim=1) + 0.5  # σ(0) = ½ of itself makes 1
            negatives = torch.where(pairs.negative, above, 0).sum(dim=1)
            precision = precision + torch.where(filled[:, 0], positives / (positives + negatives), 0)
        return torch.where(pairs.positive.any(dim=1), 1 - precision / number, 0)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        With :math:`B = A + N`, :math:`g_{ij} = \sigma' / \tau` and :math:`\nu_i = \sum_n g_{in}`: :math:`w_n =
        \frac{1}{|P|} \sum_i \frac{A_i}{B_i^2} g_{in}` and :math:`w_k = -\frac{1}{|P|} \left[\frac{A_k}{B_k^2} \nu_k +
        \sum_{i \ne k} g_{ik} \left(\frac{N_i}{B_i^2} - \frac{N_k}{B_k^2}\right)\right]`. The sums run over the
        positives one by one, so that no (positive, positive) or (positive, negative) pair is ever stored.
        """
        scores, number = pairs.scores, pairs.positive.sum(dim=1, keepdim=True).clamp(min=1)
        negative, weight = pairs.negative.to(scores.dtype), torch.zeros_like(scores)
        slots, filled = pairs.slots()
        pull, met, intruders = (torch.zeros_like(slots, dtype=scores.dtype) for _ in range(3))
        for k in range(slots.shape[1]):
            index, is_filled = slots[:, k : k + 1], filled[:, k : k + 1]
            logits = (scores - scores.gather(1, index)).div_(self.temperature)
            above = logits.sigmoid()
            slope = logits.neg_().sigmoid_().mul_(above).mul_(is_filled / self.temperature)
            rank = (above.gather(1, slots) * filled).sum(dim=1, keepdim=True) + 0.5
            negatives = above.mul_(negative).sum(dim=1, keepdim=True)
            among = slope.gather(1, slots) * filled
            pull, met = pull + among * negatives / (rank + negatives).square(), met + among
            intruders[:, k] = (negatives / (rank + negatives).square() * is_filled)[:, 0]
            push = slope.mul_(negative).mul_(rank / (rank + negatives).square())
            weight.add_(push).scatter_add_(1, index, -push.sum(dim=1, keepdim=True))
        return weight.scatter_add_(1, slots, (met * intruders - pull) * filled).div_(number)

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a candidate that all of a query's positives meet with slope 1, (Q, 1): 1/(τ|P|)."""
        return 1 / (self.temperature * pairs.positive.sum(dim=1, keepdim=True).clamp(min=1).to(pairs.scores.dtype))

    def extra(self, pairs: Pairs, eps: float) -> dict[str, Tensor]:
        """Count Eq. 7 in addition to the gradient, (Q,)."""
        return {"eq7": self.eq7(pairs, eps)}

    def eq7(self, pairs: Pairs, eps: float = 0.01, *, ranked: bool = True) -> Tensor:
        r"""Count the terms of Eq. 7 above eps, positives among them, averaged over the positives of each query, (Q,).

        A term is :math:`\sigma (1 - \sigma) / R_i^2` for a positive i and any other candidate j, with
        :math:`\sigma = \sigma((s_j - s_i) / \tau)` and :math:`R_i = 1 + \sum_{j \ne i} \sigma_{ij}` the smooth rank
        of i. It is not the gradient: it drops 1/τ and the rank of i among the positives, and it counts pairs of
        positives that no negative separates, with gradient 0.

        Args:
            pairs: scores and masks.
            eps: smallest term that counts; eps·τ counts the terms of the paper's appendix, which have a factor 1/τ.
            ranked: False leaves out the factor 1/R² (the published code's `use_rankings`).

        Source: Bleeker & de Rijke 2022, arXiv:2202.07474, eq. 7 (without the 1/τ of its appendix, as counted there).

        Examples:
            One positive, and a negative at the same score: σ(1 - σ) / R² is 0.25 / 1.5², above 0.01.

            >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5]]), torch.tensor([[True, False]]))
            >>> SmoothAP(temperature=0.01).eq7(pairs)
            tensor([1.])
        """
        scores, taking_part = pairs.scores, (pairs.positive | pairs.negative).to(pairs.scores.dtype)
        number = pairs.positive.sum(dim=1)
        terms = torch.zeros_like(number)
        for index, filled in zip(*(part.split(1, dim=1) for part in pairs.slots()), strict=True):
            mask = taking_part.scatter(1, index, 0)
            logits = (scores - scores.gather(1, index)).div_(self.temperature)
            above = logits.sigmoid().mul_(mask)
            rank = 1 + above.sum(dim=1, keepdim=True) if ranked else torch.ones_like(above[:, :1])
            slope = logits.neg_().sigmoid_().mul_(above)  # 1 - σ would round to 0 where σ rounds to 1
            terms = terms + ((slope.div_(rank.square()) > eps) & filled).sum(dim=1)
        return terms.to(scores.dtype) / number.clamp(min=1)
