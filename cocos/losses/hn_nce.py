"""HN-NCE: hard negatives weigh more in the denominator, and the positive by a factor of its own."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses._importance import log_sum, slopes
from cocos.losses._shelf import NonNegative, Positive, ShelfLoss


@dataclass(frozen=True)
class HNNCE(ShelfLoss):
    r"""Cross-entropy of each positive against its negatives, weighted by their hardness.

    .. math:: \ell(s) = -\sum_{p \in P} \log \frac{e_p}{\alpha e_p + |N| \sum_{n \in N} r_n e_n}, \quad
        r = \mathrm{softmax}_N(\beta s / \tau)

    P are the positives of a query, N its negatives, s their scores and :math:`e = e^{s / \tau}`. It is `hcl` without
    its prior and clamp, with a factor α on the positive: at α = 1 the two are equal on cosines. With α = 0 the positive
    is not in the denominator, as in `dcl`, and no query is ever idle.

    Args:
        temperature: τ, in units of score; learned in the paper, from CLIP's initial 0.07, the default.
        alpha: α, the part of the positive in the denominator; 1 as in InfoNCE.
        beta: β, how much the hard negatives weigh; 0 is InfoNCE. The paper tunes it for each data set; 0.25 as in
            common codes.

    Counts: negatives whose weight exceeds eps units; unit |P|/τ. With β > 0 a share may exceed one, by a factor of
        1 + β at the most.
    Net: push equals pull for every query. The gradient flows through the weights r, so that an easy negative is pulled.
    Source: Radenovic et al. 2023, Filtering, Distillation, and Hard Negatives for Vision-Language Pre-Training,
        arXiv:2301.02280, HN-NCE.
    Also called: hard-negative NCE, decoupled HN-NCE (alpha=0), DHN-NCE (alpha=0).
    Family: softmax.

    Examples:
        One negative has all of the importance, whatever β: the softmax of two equal scores. Without the positive in the
        denominator its pull is never less than 1/τ.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5]]), torch.tensor([[True, False]]))
        >>> cocos.losses.load("hn_nce", {"temperature": 1}).weight(pairs)
        tensor([[-0.5000,  0.5000]])
        >>> cocos.losses.load("hn_nce", {"temperature": 1, "alpha": 0}).weight(pairs)
        tensor([[-1.,  1.]])
    """

    temperature: Positive = 0.07
    alpha: NonNegative = 1.0
    beta: NonNegative = 0.25
    per_positive: ClassVar[bool] = True
    balanced: ClassVar[bool] = True

    def _odds(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, log of the negatives' sum over the positive's exponential, and which positives take part, (Q, C)."""
        logits = pairs.scores / self.temperature
        included = pairs.positive & pairs.negative.any(dim=1, keepdim=True)
        return logits, log_sum(logits, pairs.negative, self.beta) - logits, included

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        _, odds, included = self._odds(pairs)
        log_alpha = odds.new_tensor(self.alpha).log()  # -inf leaves the positive out
        return torch.where(included, torch.logaddexp(odds, log_alpha), 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C). Each row sums to zero.

        With :math:`m_p` the part of the negatives in the denominator: positives :math:`-m_p / \tau`, negatives
        :math:`(\sum_p m_p) \, ((1 + \beta) \, \mathrm{softmax}_N((1 + \beta) s / \tau)_n - \beta r_n) / \tau`.
        """
        logits, odds, included = self._odds(pairs)
        missing = torch.where(included, (odds - odds.new_tensor(self.alpha).log()).sigmoid(), 0)
        push = missing.sum(dim=1, keepdim=True) * slopes(logits, pairs.negative, self.beta)
        return (push - missing) / self.temperature

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative with all of the softmax, for every positive, (Q, 1): |P|/τ."""
        return pairs.positives() / self.temperature

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        given = {"temperature": self.temperature}
        found: list[tuple[str, dict[str, Any], str]] = []
        if self.alpha == 1:
            found += [("hcl", {**given, "beta": self.beta, "prior": 0.0}, "always")]
        if self.beta == 0 and self.alpha in {0, 1}:
            found += [("ntxent" if self.alpha else "dcl", given, "always")]
        return tuple(found)
