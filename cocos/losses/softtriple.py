"""SoftTriple: several proxies a class, of which the near ones speak for it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative, Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class SoftTriple(Loss):
    r"""Cross-entropy of classes, whose similarity is the softly largest one of their proxies.

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

    Counts: negatives whose weight is above eps in size, whatever its sign; unit λ.
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
        place, number = pairs.classes()
        taking_part = (pairs.positive | pairs.negative).to(place.dtype)
        return place, place.new_zeros(len(place), number).scatter_add(1, place, taking_part) > 0

    def _shares(self, pairs: Pairs, place: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Share q of each pair in its class, and its score minus that of the nearest one (at most 0), (Q, C) each."""
        taking_part = pairs.positive | pairs.negative
        masked = pairs.scores.detach().masked_fill(~taking_part, -torch.inf)
        nearest = torch.full_like(there, -torch.inf, dtype=masked.dtype).scatter_reduce(1, place, masked, "amax")
        below = pairs.scores - nearest.masked_fill(~there, 0).gather(1, place)
        mass = (below / self.gamma).masked_fill(~taking_part, -torch.inf).exp()
        whole = _by_class(mass, place, there)
        return mass / torch.where(there, whole, 1).gather(1, place), below

    def _logits(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the other classes, (Q, G), and of the own one, (Q, 1)."""
        return self.la * similarity[:, :-1], self.la * (similarity[:, -1:] - self.margin)

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        place, there = self._classes(pairs)
        share, _ = self._shares(pairs, place, there)
        others, own = self._logits(_by_class(share * pairs.scores, place, there))
        gap = logsumexp(others, there[:, :-1]) - own
        return torch.where(there[:, -1:], torch.logaddexp(gap, torch.zeros_like(gap)), 0)[:, 0]

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C): :math:`\lambda e_c q_k (1 + (s_k - S_c) / \gamma)`.

        :math:`e_c` is the softmax over the classes, minus 1 for the own one. Each row sums to zero.
        """
        place, there = self._classes(pairs)
        share, below = self._shares(pairs, place, there)
        others, own = self._logits(_by_class(share * pairs.scores, place, there))
        missing = torch.where(there[:, -1:], (logsumexp(others, there[:, :-1]) - own).sigmoid(), 0)
        error = torch.cat([missing * softmax(others, there[:, :-1]), -missing], dim=1).gather(1, place)
        mean = _by_class(share * below, place, there).gather(1, place)
        return self.la * error * share * (1 + (below - mean) / self.gamma)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a class with all of the probability, (): λ."""
        return pairs.scores.new_tensor(self.la)

    def peer(self) -> tuple[str, dict[str, Any], str]:
        """Name the same loss in pytorch-metric-learning: class, arguments, setting."""
        return "SoftTripleLoss", {"la": self.la, "gamma": self.gamma, "margin": self.margin}, "proxies"


def _by_class(values: Tensor, place: Tensor, there: Tensor) -> Tensor:
    """Sums of the values over each class, (Q, G + 1)."""
    return torch.zeros_like(there, dtype=values.dtype).scatter_add(1, place, values)
