"""L-Softmax: the angle of the positive is multiplied by a whole number, and norms count."""

from dataclasses import dataclass
from typing import Annotated

from cocos.base.ranges import NonNegative, whole
from cocos.losses.families.angular import MultipliedAngle


@dataclass(frozen=True)
class LSoftmax(MultipliedAngle):
    r"""Cross-entropy with a multiplied angle of the positive, on raw embeddings, summed over the positives of a query.

    .. math::
        \ell = -\sum_{p \in P} \log
        \frac{e^{|x| |W_p| t(s_p)}}{e^{|x| |W_p| t(s_p)} + \sum_{n \in N} e^{|x| |W_n| s_n}}, \quad
        t = \frac{\lambda \cos\theta + \psi(\theta)}{1 + \lambda}, \quad
        \psi(\theta) = (-1)^k \cos(m \theta) - 2k, \quad k = \lfloor m \theta / \pi \rfloor

    P are the positives of the query x (the weights W of its class), N its negatives (the weights of the other classes),
    s their cosines, and m and λ the margin and its annealing. ψ falls from 1 to 1 - 2m without a kink. Its slope is 0
    at every θ = kπ/m strictly between 0 and π: with an even m a positive at 90°, where random embeddings of many
    dimensions begin, is not pulled at all, however wrong it is. That, not the softmax, is why training anneals: read
    such a weight with its slope. Norms that are not given are 1. Scores beyond ±1 (rounding, inner products) continue ψ
    as a straight line of slope m².

    Args:
        margin: m, a whole number of at least 1; 4 as in much of the published code (the paper tries 2, 3 and 4).
        annealing: λ, 0 for none; the published code lowers it while training.

    Counts: negatives with a softmax probability above eps, margin included; unit |x| |W| |P|. The weight
        of a positive reaches m² times its unit.
    Net: weights count in units of |x| |W| |P|; the pull of a positive is its part of the push times t'. The length of
        the query gets a gradient too: see radial.
    Source: Liu et al. 2016, L-Softmax, arXiv:1612.02295, eqs. 4 and 6; annealing from its published code.

    Examples:
        A margin of 2 doubles the angle of the positive, 60 degrees, to 120 degrees, where two negatives are: the loss
        is ln 3.

        >>> scores, positive = torch.tensor([[0.5, -0.5, -0.5]]), torch.tensor([[True, False, False]])
        >>> pairs = cocos.Pairs(scores, positive, query_norm=torch.ones(1), candidate_norm=torch.ones(3))
        >>> loss = cocos.losses.load("l_softmax", {"margin": 2})
        >>> loss(pairs)
        tensor([1.0986])
    """

    margin: Annotated[int, whole(1)] = 4
    annealing: NonNegative = 0.0
    family = "margin"
    aliases = {"large-margin softmax": {}}
