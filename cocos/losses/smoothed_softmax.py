"""Label smoothing: an in-batch softmax with labels that leave a part to every candidate."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from cocos.base.ranges import Positive, Range
from cocos.losses.families.smoothing import SmoothedLabels


@dataclass(frozen=True)
class SmoothedSoftmax(SmoothedLabels):
    r"""Cross-entropy of each positive against the negatives, with an even part of its label on all of them.

    .. math::
        \ell(s) = -\sum_{p \in P} \Bigl[ (1 - \varepsilon) \log \pi_p(p) +
        \frac{\varepsilon}{|N| + 1} \sum_{j \in \{p\} \cup N} \log \pi_p(j) \Bigr], \quad
        \pi_p(j) = \frac{e^{s_j / \tau}}{e^{s_p / \tau} + \sum_{n \in N} e^{s_n / \tau}}

    P are the positives of the query, N its negatives and s their scores. It is `cross_entropy` of PyTorch with
    `label_smoothing`, on the scores of a batch. With ε the scores have a finite optimum, where
    :math:`(s_p - s_n) / \tau = \log(1 + (|N| + 1)(1 - \varepsilon) / \varepsilon)` for every negative.

    Args:
        temperature: τ, in units of score; 0.1 as for `ntxent`.
        smoothing: ε, the part of the label that is spread evenly over the positive and its negatives; 0.1 as in the
            paper. (`linear_softmax` spreads it over the negatives alone.)

    Counts: negatives with a weight above eps/τ in size, pulled ones too; unit |P|/τ.
    Net: push equals pull for every query, but a negative with a probability below ε/(|N| + 1) is pulled: most easy
        negatives are, with a weight of ε/(|N| + 1)/τ at the most, and their number makes it count.
    Source: Szegedy et al. 2016, Rethinking the Inception Architecture for Computer Vision, arXiv:1512.00567, sec. 7.

    Examples:
        Of equal scores nothing is smoothed; at the finite optimum, here log 19 with one negative, all weights are 0:

        >>> loss = cocos.losses.load("smoothed_softmax", {"temperature": 1})
        >>> positive = torch.tensor([[True, False]])
        >>> loss.weight(cocos.Pairs(torch.tensor([[0.0, 0.0]]), positive))
        tensor([[-0.4500,  0.4500]])
        >>> loss.weight(cocos.Pairs(torch.tensor([[19.0, 1.0]]).log(), positive)).abs().max() < 1e-6
        tensor(True)
    """

    temperature: Positive = 0.1
    smoothing: Annotated[float, Range("at least 0 and below 1", lambda value: 0 <= value < 1)] = 0.1
    family = "softmax"
    aliases = {"label smoothing": {}, "label-smoothed cross-entropy": {}, "label-smoothed InfoNCE": {}}

    @property
    def scale(self) -> float:
        """λ = 1/τ."""
        return 1 / self.temperature

    def part(self, negatives: Tensor) -> Tensor:
        """Part of the label of a positive that the negatives share, (Q, 1): ε |N| / (|N| + 1)."""
        return self.smoothing * negatives / (negatives + 1)
