"""Softmax with logQ correction: candidates that are sampled often are not pushed for that."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cocos.base.ranges import Positive, one_of
from cocos.embeddings.scores import Pairs
from cocos.losses.base import SoftmaxLoss

CORRECTIONS = ("all", "negatives", "repaired")


@dataclass(frozen=True)
class LogQSoftmax(SoftmaxLoss):
    r"""Cross-entropy of each positive against sampled negatives, less the log of their sampling probabilities.

    .. math:: \ell(s) = -\sum_{p \in P} \log \frac{e^{z_p}}{e^{z_p} + \sum_{n \in N} e^{z_n}}, \quad
        z_j = s_j / \tau - \log Q_j

    P are the positives of the query, N its negatives, s their scores and Q the probability with which a candidate is
    sampled (`logq` of the pairs, one for each candidate). In a batch popular items are negatives most often: dividing
    by Q makes the sum an estimate of that over the whole catalogue. The correction `negatives` leaves the positive as
    it is, since it is not sampled: :math:`z_p = s_p / \tau`. The one of 2025, `repaired`, samples from the other items
    and takes the mean over the negatives: :math:`z_p = s_p / \tau - \log(1 - Q_p)`, :math:`z_n = s_n / \tau -
    \log(|N| Q_n)`. Its paper writes it as :math:`\mathrm{sg}(1 - \pi_p) (\log \sum_n e^{z_n} - z_p)`, with the
    probability of misclassification as a weight without a gradient: the weights are the same.

    Without `logq` all candidates are sampled alike, and each form is `ntxent` at τ.

    Args:
        temperature: τ, in units of score.
        correction: which logits are corrected: `all`, `negatives` or `repaired`.

    Counts: negatives with a corrected softmax probability above eps; unit |P|/τ.
    Net: push equals pull for every query.
    Source: Yi et al. 2019, Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations,
        doi:10.1145/3298689.3346996, section 3; before it Bengio & Senécal 2008, doi:10.1109/TNN.2007.912312; repaired
        by Khrylchenko et al. 2025, Correcting the LogQ Correction, arXiv:2507.09331, and its published code.

    Examples:
        Of two equal negatives one is sampled nine times as often, and has a ninth of the other's push:

        >>> logq = torch.tensor([0.1, 0.1, 0.9]).log()
        >>> pairs = cocos.Pairs(torch.zeros(1, 3), torch.tensor([[True, False, False]]), logq=logq)
        >>> cocos.losses.load("logq_softmax").weight(pairs)
        tensor([[-0.5263,  0.4737,  0.0526]])
    """

    temperature: Positive = 1.0
    correction: Annotated[str, one_of(CORRECTIONS)] = "all"
    metric = "dot"
    balanced = True
    softmax_scale = None  # each negative has its own factor
    family = "softmax"
    aliases = {
        "logQ": {},
        "sampled softmax of recommenders": {},
        "sampling-bias-corrected softmax": {},
        "logq_softmax_repaired": {"correction": "repaired"},
    }

    @property
    def scale(self) -> float:
        """λ = 1/τ."""
        return 1 / self.temperature

    def logits(self, pairs: Pairs) -> tuple[Tensor, Tensor | float]:
        """Corrected logits, (Q, C), and their slope 1/τ."""
        plain = pairs.scores / self.temperature
        if pairs.logq is None:
            return plain, self.scale
        logq = pairs.logq.to(plain.dtype)
        if self.correction == "all":
            return plain - logq, self.scale
        if self.correction == "negatives":
            return torch.where(pairs.positive, plain, plain - logq), self.scale
        number = pairs.negative.sum(dim=1, keepdim=True).clamp(min=1).to(plain.dtype)
        complement = (-torch.expm1(logq)).clamp(min=torch.finfo(plain.dtype).tiny).log()
        return plain - torch.where(pairs.positive, complement, logq + number.log()), self.scale
