"""DCL: the positive leaves the denominator of the softmax, so that the pull never fades."""

from dataclasses import dataclass

from cocos.base.ranges import Positive
from cocos.losses.families.decoupled import Decoupled


@dataclass(frozen=True)
class DCL(Decoupled):
    r"""Decoupled contrastive loss: NT-Xent without the positive in its denominator, summed over the positives.

    .. math:: \ell(s) = \sum_{p \in P} \Bigl( -\frac{s_p}{\tau} + \log \sum_{n \in N} e^{s_n / \tau} \Bigr)

    P are the positives of a query, N its negatives and s their scores. A positive is pulled with 1/τ however well it is
    placed, and the negatives share the same push: NT-Xent's factor 1 - p(match), which fades in small batches, is gone.

    Args:
        temperature: τ, in units of score; 0.1 as in the paper. A small τ puts the weight on the hardest negatives.

    Counts: negatives with more than eps of the softmax over the negatives; unit |P|/τ. No query with a positive and a
        negative is idle, unless eps is above one part in the number of negatives.
    Net: push equals pull for every query, 1/τ for each positive.
    Source: Yeh et al. 2022, Decoupled Contrastive Learning, arXiv:2110.06848, eq. 6, where all negatives are in one
        sum. lightly's DCLLoss took the logarithm of each view's sum by itself until 2025 (its pull request 1827), and
        pushed twice as hard as it pulled.

    Examples:
        Two negatives with equal scores share the push of a positive, which has all of the pull:

        >>> pairs = cocos.Pairs(torch.tensor([[0.9, 0.3, 0.3]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("dcl")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-1.0000,  0.5000,  0.5000]])
    """

    temperature: Positive = 0.1
    family = "softmax"
    aliases = {"decoupled contrastive learning": {}, "decoupled contrastive": {}}

    @property
    def scale(self) -> float:
        """λ = 1/τ."""
        return 1 / self.temperature
