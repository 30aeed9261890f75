"""A-Softmax: the angle of the positive is multiplied by a whole number, on proxies of unit length."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from cocos.base.ranges import NonNegative, whole
from cocos.embeddings.scores import Pairs
from cocos.losses.families.angular import MultipliedAngle


@dataclass(frozen=True)
class ASoftmax(MultipliedAngle):
    r"""Cross-entropy with a multiplied angle of the positive, on unit proxies, summed over the positives of a query.

    .. math::
        \ell = -\sum_{p \in P} \log \frac{e^{|x| t(s_p)}}{e^{|x| t(s_p)} + \sum_{n \in N} e^{|x| s_n}}, \quad
        t = \frac{\lambda \cos\theta + \psi(\theta)}{1 + \lambda}, \quad
        \psi(\theta) = (-1)^k \cos(m \theta) - 2k, \quad k = \lfloor m \theta / \pi \rfloor

    P are the positives of the query x (the proxy of its class), N its negatives (the other proxies), s their cosines,
    and m and λ the margin and its annealing. This is L-Softmax with proxies of length 1: the norms of the candidates
    are not read, and there is no bias. ψ falls from 1 to 1 - 2m without a kink, and its slope is 0 at every θ = kπ/m
    strictly between 0 and π: with an even m a positive at 90°, where random embeddings of many dimensions begin, is not
    pulled at all, however wrong it is. That, not the softmax, is why training anneals: read such a weight with its
    slope. A query norm that is not given is 1. Scores beyond ±1 (rounding, inner products) continue ψ as a straight
    line of slope m².

    Args:
        margin: m, a whole number of at least 1; 4 as in the paper.
        annealing: λ, 0 for none; the published code lowers it from 1500 to 5 while training.

    Counts: negatives with a softmax probability above eps, margin included; unit |x| |P|. The weight of a
        positive reaches m² times its unit.
    Net: the pull of a positive is its part of the push times t'. The length of the query gets a gradient too: see
        radial.
    Source: Liu et al. 2017, SphereFace, arXiv:1704.08063, eq. 7; annealing from its published code.

    Examples:
        A margin of 2 doubles the angle of the positive, 60 degrees, to 120 degrees, where two negatives are: the loss
        is ln 3.

        >>> scores, positive = torch.tensor([[0.5, -0.5, -0.5]]), torch.tensor([[True, False, False]])
        >>> pairs = cocos.Pairs(scores, positive, query_norm=torch.ones(1))
        >>> loss = cocos.losses.load("a_softmax", {"margin": 2})
        >>> loss(pairs)
        tensor([1.0986])
    """

    margin: Annotated[int, whole(1)] = 4
    annealing: NonNegative = 0.0
    family = "margin"
    aliases = {"SphereFace": {}, "angular softmax": {}}

    @property
    def balanced(self) -> bool:
        """Whether the weights of each query sum to zero."""
        return self.margin == 1

    def lengths(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Lengths of the queries, (Q, 1), and 1 for proxies, (1, 1)."""
        return pairs.norms()[0], pairs.scores.new_ones(1, 1)
