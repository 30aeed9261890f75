"""CurricularFace: an angular margin, and negatives that gain weight during training."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cocos.base.ranges import Positive, Range
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss
from cocos.losses.families.angular import Angle, added, shifted


@dataclass(frozen=True)
class CurricularFace(Loss):
    r"""ArcFace with re-scaled hard negatives, above the positive with its margin; summed over positives.

    .. math::
        \ell(s) = -\sum_{p \in P} \log
        \frac{e^{\lambda T(s_p)}}{e^{\lambda T(s_p)} + \sum_{n \in N} e^{\lambda N(s_n, s_p)}}, \quad
        N(s_n, s_p) = \begin{cases} s_n (t + s_n) & s_n > \cos(\theta_p + m) \\ s_n & \text{else} \end{cases}

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies), s their cosines and
    T ArcFace's :math:`\cos(\theta + m)`, with its straight line beyond π - m. t is the running mean of the cosines of
    the positives, about 0 as training begins, when hard negatives count for less, and near 1 at its end. A hard
    negative below -t/2 is *pulled*. The value jumps where a negative becomes hard; no gradient flows through the choice
    or through t.

    Args:
        scale: λ (s in the paper), in units of 1/score; 64 as in the paper.
        margin: m, in radians; 0.5 as in the paper.
        t: running mean of the cosines of the positives, from -1 to 1; 0, where training starts. A trained head keeps it
            as `t`.

    Counts: negatives with more than eps of λ|P|; a hard one may exceed 1, by up to t + 2; unit λ|P|.
    Net: a hard negative is pushed by its probability times t + 2s, an easy one by its probability alone.
    Source: Huang et al. 2020, CurricularFace, arXiv:2004.00288, eqs. 5-9; beyond π - m from its published code.
    """

    scale: Positive = 64.0
    margin: Angle = 0.5
    t: Annotated[float, Range("from -1 to 1", lambda value: -1 <= value <= 1)] = 0.0
    per_positive = True
    family = "margin"

    def _terms_by_positive(self, pairs: Pairs) -> list[tuple[Tensor, ...]]:
        """For each slot of positives: place, (Q, 1), whether it is filled, logit, slope; logits and slopes of all."""
        cosine = pairs.scores
        terms: list[tuple[Tensor, ...]] = []
        for index, filled in zip(*(part.split(1, dim=1) for part in pairs.slots()), strict=True):
            positive = cosine.gather(1, index)
            target, slope = added(positive, self.margin)
            hard = cosine > shifted(positive, math.cos(self.margin), math.sin(self.margin))[0]
            logits = self.scale * torch.where(hard, cosine * (self.t + cosine), cosine)
            steep = torch.where(hard, self.t + 2 * cosine, 1)
            terms.append((index, filled, self.scale * target, slope, logits, steep))
        return terms

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        total = torch.zeros_like(pairs.scores[:, :1])
        for _, filled, positive, _, logits, _ in self._terms_by_positive(pairs):
            gap = logsumexp(logits, pairs.negative) - positive
            total = total + torch.where(filled, torch.logaddexp(gap, torch.zeros_like(gap)), 0)
        return total[:, 0]

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form.

        With :math:`m_p` the probability that positive p leaves to the negatives: positives :math:`-\lambda T' m_p`,
        negatives :math:`\lambda \sum_p m_p \pi_{pn} N'(s_n)`, with :math:`\pi_p` the softmax over the negatives beside
        p and N' the slope :math:`t + 2 s_n` of a hard negative, 1 of an easy one.
        """
        result = torch.zeros_like(pairs.scores)
        for index, filled, positive, slope, logits, steep in self._terms_by_positive(pairs):
            missing = torch.where(filled, (logsumexp(logits, pairs.negative) - positive).sigmoid(), 0)
            result = result + missing * steep * softmax(logits, pairs.negative)
            result = result.scatter_add(1, index, -slope * missing)
        return self.scale * result

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of an easy negative with all of the probability for every positive, (Q, 1): λ|P|."""
        return self.scale * pairs.positives()
