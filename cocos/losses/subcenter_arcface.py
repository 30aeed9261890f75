"""Sub-center ArcFace: several proxies a class, and the nearest one gives its similarity."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss
from cocos.losses.families.angular import Angle, added


@dataclass(frozen=True)
class SubCenterArcFace(Loss):
    r"""Cross-entropy of classes with a margin on the angle; the similarity of a class is its nearest proxy's.

    .. math::
        \ell(s) = -\log \frac{e^{\lambda t(S_y)}}{e^{\lambda t(S_y)} + \sum_{c \ne y} e^{\lambda S_c}}, \quad
        S_c = \max_{k \in c} s_k, \quad t(\cos\theta) = \cos(\theta + m)

    The positives of a query are its own class y, negatives of one group another class c each (without groups every
    negative is a class of its own), and s are cosines. A class with no candidate in either mask of a query takes no
    part. Beyond π - m, t goes on as a straight line, as in ArcFace. All of the gradient of a class goes to its nearest
    proxy, the first one of equals: the others of a class rest, however near they are.

    Args:
        scale: λ (s in the paper), in units of 1/score; 64 as in the paper.
        margin: m, in radians; 0.5 as in the paper.

    Counts: nearest proxies of other classes with a softmax probability above eps, margin included; unit λ.
    Net: the pull of the nearest own proxy is the push times t'.
    Source: Deng et al. 2020, Sub-center ArcFace, ECCV, doi:10.1007/978-3-030-58621-8_43, eqs. 3-4.
    """

    scale: Positive = 64.0
    margin: Angle = 0.5
    family = "proxy"
    share = "probability"
    aliases = {"AAM-Softmax with sub-centers": {}}

    @property
    def balanced(self) -> bool:
        """Whether the weights of each query sum to zero."""
        return self.margin == 0

    def _nearest(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Column of the nearest proxy of each class, (Q, G + 1), the own class last, and whether a class takes part."""
        place, number = pairs.classes()
        taking_part = pairs.positive | pairs.negative
        scores = pairs.scores.detach().masked_fill(~taking_part, -torch.inf)
        whole = torch.full_like(scores[:, :1], -torch.inf).expand(-1, number)
        best = whole.scatter_reduce(1, place, scores, "amax")
        columns = torch.arange(scores.shape[1], device=scores.device).expand_as(place)
        level = torch.where(taking_part & (scores == best.gather(1, place)), columns, scores.shape[1])
        first = (
            torch.full_like(place[:, :1], scores.shape[1]).expand(-1, number).scatter_reduce(1, place, level, "amin")
        )
        present = first < scores.shape[1]
        return torch.where(present, first, 0), present

    def _logits(self, pairs: Pairs, nearest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the other classes, (Q, G), and of the own one, (Q, 1), and the slope of the latter, (Q, 1)."""
        similarity = pairs.scores.gather(1, nearest)
        target, slope = added(similarity[:, -1:], self.margin)
        return self.scale * similarity[:, :-1], self.scale * target, slope

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        nearest, present = self._nearest(pairs)
        other_logits, class_logit, _ = self._logits(pairs, nearest)
        gap = logsumexp(other_logits, present[:, :-1]) - class_logit
        return torch.where(present[:, -1:], torch.logaddexp(gap, torch.zeros_like(gap)), 0)[:, 0]

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form, 0 for all proxies but the nearest one of each class.

        Others :math:`\lambda \pi_c`, the own one :math:`-\lambda t' (1 - \pi_y)`, with π the softmax over the classes.
        """
        nearest, present = self._nearest(pairs)
        other_logits, class_logit, slope = self._logits(pairs, nearest)
        missing = torch.where(present[:, -1:], (logsumexp(other_logits, present[:, :-1]) - class_logit).sigmoid(), 0)
        error = torch.cat([missing * softmax(other_logits, present[:, :-1]), -slope * missing], dim=1)
        return self.scale * torch.zeros_like(pairs.scores).scatter_add(1, nearest, torch.where(present, error, 0))

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a class with all of the probability, (): λ."""
        return pairs.scores.new_tensor(self.scale)
