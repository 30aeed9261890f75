"""L-Softmax: the angle of the positive is multiplied by a whole number, and norms count."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocos.losses._angular import multiplied
from cocos.scores import Pairs

__all__ = ["LSoftmax"]


@dataclass(frozen=True)
class LSoftmax:
    r"""Cross-entropy with a multiplied angle of the positive, on raw embeddings, summed over the positives of a query.

    .. math::
        \ell = -\sum_{p \in P} \log
        \frac{e^{|x| |W_p| t(s_p)}}{e^{|x| |W_p| t(s_p)} + \sum_{n \in N} e^{|x| |W_n| s_n}}, \quad
        t = \frac{\lambda \cos\theta + \psi(\theta)}{1 + \lambda}, \quad
        \psi(\theta) = (-1)^k \cos(m \theta) - 2k, \quad k = \lfloor m \theta / \pi \rfloor

    P are the positives of the query x (the weights W of its class), N its negatives (those of the other classes), s
    their cosines, and m and λ the margin and its annealing. ψ falls from 1 to 1 - 2m without a kink. Its slope is 0 at
    every θ = kπ/m strictly between 0 and π: with an even m a positive at 90°, where random embeddings of many
    dimensions begin, is not pulled at all, however wrong it is. That, not the softmax, is why training anneals: read
    such a weight with its slope. Norms that are not given are 1. Scores beyond ±1 (rounding, inner products) continue ψ
    as a straight line of slope m².

    Args:
        margin: m, a whole number of at least 1; 4 as in much of the published code (the paper tries 2, 3 and 4).
        annealing: λ, 0 for none; the published code lowers it while training.

    Raises:
        ValueError: if the margin is not a whole number of at least 1, or the annealing not finite and at least 0.

    Counts: negatives that hold more than eps of the softmax with the margin in it; unit |x| |W| |P|. A positive holds
        up to m² times its unit.
    Net: weights count in units of |x| |W| |P|; the pull of a positive is its part of the push times t'. The length of
        the query gets a gradient too: see radial.
    Source: Liu et al. 2016, L-Softmax, arXiv:1612.02295, eqs. 4 and 6; annealing from its published code.
    Also called: large-margin softmax.
    Family: margin.

    Examples:
        A margin of 2 doubles the angle of the positive, 60 degrees, to 120 degrees, where two negatives are: the loss
        is ln 3.

        >>> scores, positive = torch.tensor([[0.5, -0.5, -0.5]]), torch.tensor([[True, False, False]])
        >>> pairs = cocos.Pairs(scores, positive, query_norm=torch.ones(1), candidate_norm=torch.ones(3))
        >>> loss = cocos.losses.load("l_softmax", {"margin": 2})
        >>> loss(pairs)
        tensor([1.0986])
    """

    margin: int = 4
    annealing: float = 0.0
    metric: ClassVar[str] = "cosine"
    couples: ClassVar[str] = "query"
    gradient: ClassVar[str] = "exact"
    balanced: ClassVar[bool] = False
    sample: ClassVar[str] = "pairs"
    per_positive: ClassVar[bool] = True
    share: ClassVar[str] = "probability"

    def __post_init__(self) -> None:
        if not isinstance(self.margin, int) or self.margin < 1:
            raise ValueError(f"margin must be a whole number of at least 1, got {self.margin}")
        if not 0 <= self.annealing < math.inf:
            raise ValueError(f"annealing must be finite and at least 0, got {self.annealing}")

    def _turned(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Cosines with the margin on the positives, and their slopes, (Q, C) each."""
        target, slope = multiplied(pairs.scores, self.margin, self.annealing)
        return torch.where(pairs.positive, target, pairs.scores), torch.where(pairs.positive, slope, 1)

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        query, candidate = pairs.norms()
        return pairs.cross_entropy(query * candidate * self._turned(pairs)[0])

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C), the norms held.

        With :math:`m_p` the probability that positive p, margin included, leaves to the negatives: positives
        :math:`-|x| |W_p| t'_p m_p` with :math:`\psi' = (-1)^k m \, U_{m-1}(\cos\theta)`, negatives
        :math:`|x| |W_n| (\sum_p m_p)\, \mathrm{softmax}_N(|x| |W| s)`.
        """
        query, candidate = pairs.norms()
        cosine, slope = self._turned(pairs)
        return query * candidate * slope * pairs.residual(query * candidate * cosine)

    def radial(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ norm of the query, (Q,): :math:`\sum_j e_j |W_j| t_j`, e the residuals."""
        query, candidate = pairs.norms()
        cosine, _ = self._turned(pairs)
        return (pairs.residual(query * candidate * cosine) * candidate * cosine).sum(dim=1)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative with all of the probability for every positive, (Q, C): |x| |W| |P|."""
        query, candidate = pairs.norms()
        return (query * candidate).clamp(min=torch.finfo(pairs.scores.dtype).tiny) * pairs.positives()

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        same = ("a_softmax", {"margin": self.margin, "annealing": self.annealing}, "unit norms")
        plain = ("normalized_softmax", {"temperature": 1.0}, "unit norms")
        return (same, plain) if self.margin == 1 else (same,)

    def peer(self) -> tuple[str, dict[str, Any], str] | None:
        """The same loss in pytorch-metric-learning: class, arguments, setting; None with annealing."""
        if self.annealing > 0:
            return None
        return "LargeMarginSoftmaxLoss", {"margin": self.margin, "scale": 1}, "proxies"
