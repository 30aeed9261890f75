"""SoftTriple: several proxies a class, of which the near ones speak for it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative, Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class SoftTriple(Loss):
    r"""Cross-entropy of classes; the similarity of a class is the soft maximum of its proxies'.

    .. math::
        \ell(s) = -\log \frac{e^{\lambda (S_y - \delta)}}{e^{\lambda (S_y - \delta)} + \sum_{c \ne y} e^{\lambda S_c}},
        \quad S_c = \sum_{k \in c} q_k s_k, \quad q_k = \frac{e^{s_k / \gamma}}{\sum_{l \in c} e^{s_l / \gamma}}

    The positives of a query are its own class y, negatives of one group another class c each (without groups every
    negative is a class of its own), and s are cosines. A class with no candidate in either mask of a query takes no
    part. A proxy more than γ below the similarity of its class has the opposite sign: far proxies of the own
    class are pushed, far ones of other classes pulled. The paper's penalty on the distances of proxies carries no
    query and is left out.

    Args:
        la: λ, in units of 1/score; 20 as in the paper.
        gamma: γ, temperature of the softmax in a class, in units of score; 0.1 as in the paper.
        margin: δ, in units of score; 0.01 as in the paper.

    Counts: negatives with a weight above eps in size, whatever its sign; unit λ.
    Net: push equals pull for every query; the weights of a class sum to λ times its softmax error.
    Source: Qian et al. 2019, SoftTriple Loss, arXiv:1909.05235.

    Examples:
        A positive at 0.51 less the margin of 0.01 is level with two negatives at 0.5: the loss is ln 3.

        >>> scores, positive = torch.tensor([[0.51, 0.5, 0.5]]), torch.tensor([[True, False, False]])
        >>> pairs = cocos.Pairs(scores, positive, candidate_group=torch.arange(3))
        >>> loss = cocos.losses.load("softtriple")
        >>> loss(pairs)
        tensor([1.0986])
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.6667,  0.3333,  0.3333]])
    """

    la: Positive = 20.0
    gamma: Positive = 0.1
    margin: NonNegative = 0.01
    balanced = True
    family = "proxy"

    def _classes(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Class of each pair, (Q, C), the query's own one last, and which classes each query has, (Q, G + 1)."""
        index, number = pairs.classes()
        taking_part = (pairs.positive | pairs.negative).to(index.dtype)
        return index, index.new_zeros(len(index), number).scatter_add(1, index, taking_part) > 0

    def _shares(self, pairs: Pairs, index: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """Share q of each pair in its class, and its score minus the nearest one's (at most 0), (Q, C) each."""
        taking_part = pairs.positive | pairs.negative
        masked = pairs.scores.detach().masked_fill(~taking_part, -torch.inf)
        nearest = torch.full_like(present, -torch.inf, dtype=masked.dtype).scatter_reduce(1, index, masked, "amax")
        below = pairs.scores - nearest.masked_fill(~present, 0).gather(1, index)
        mass = (below / self.gamma).masked_fill(~taking_part, -torch.inf).exp()
        whole = _by_class(mass, index, present)
        return mass / torch.where(present, whole, 1).gather(1, index), below

    def _logits(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the other classes, (Q, G), and of the own one, (Q, 1)."""
        return self.la * similarity[:, :-1], self.la * (similarity[:, -1:] - self.margin)

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        index, present = self._classes(pairs)
        share, _ = self._shares(pairs, index, present)
        other_logits, class_logit = self._logits(_by_class(share * pairs.scores, index, present))
        gap = logsumexp(other_logits, present[:, :-1]) - class_logit
        return torch.where(present[:, -1:], torch.logaddexp(gap, torch.zeros_like(gap)), 0)[:, 0]

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form: :math:`\lambda e_c q_k (1 + (s_k - S_c) / \gamma)`.

        :math:`e_c` is the softmax over the classes, minus 1 for the own one. Each row sums to zero.
        """
        index, present = self._classes(pairs)
        share, below = self._shares(pairs, index, present)
        other_logits, class_logit = self._logits(_by_class(share * pairs.scores, index, present))
        missing = torch.where(present[:, -1:], (logsumexp(other_logits, present[:, :-1]) - class_logit).sigmoid(), 0)
        error = torch.cat([missing * softmax(other_logits, present[:, :-1]), -missing], dim=1).gather(1, index)
        mean = _by_class(share * below, index, present).gather(1, index)
        return self.la * error * share * (1 + (below - mean) / self.gamma)

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a class with all of the probability, (): λ."""
        return pairs.scores.new_tensor(self.la)


def _by_class(values: Tensor, index: Tensor, present: Tensor) -> Tensor:
    """Sums of the values over each class, (Q, G + 1)."""
    return torch.zeros_like(present, dtype=values.dtype).scatter_add(1, index, values)
