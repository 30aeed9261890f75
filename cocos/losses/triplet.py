"""Triplet: every negative that comes within the margin of a positive."""

from dataclasses import dataclass

from cocos.base.ranges import NonNegative
from cocos.losses.families.triplets import AllTriplets


@dataclass(frozen=True)
class Triplet(AllTriplets):
    r"""Hinge over all triplets of a query, summed over its positives and negatives.

    .. math:: \ell(s) = \sum_{p \in P} \sum_{n \in N} [\alpha - s_p + s_n]_+

    A negative weighs as many positives as it violates, a positive minus the number of its violators. With one
    positive the number of contributing negatives is exact and needs no threshold.

    Args:
        margin: α, in units of score: how much a positive must win by.

    Counts: violating negatives, whole numbers; unit 1, one violated triplet. A tie (s_p - s_n = α) does not contribute.
    Net: push equals pull for every query.
    Source: Faghri et al. 2018, VSE++, arXiv:1707.05612, eq. 5; α of Bleeker & de Rijke 2022, arXiv:2202.07474.

    Examples:
        The margin is 0.2: a negative 0.1 below the positive violates it by 0.1, one that is 0.5 below does not.

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("triplet")
        >>> loss(pairs)
        tensor([0.1000])
        >>> loss.weight(pairs)
        tensor([[-1.,  1.,  0.]])
    """

    margin: NonNegative = 0.2
    family = "triplet"
    aliases = {"sum of hinges": {}, "VSE0": {}, "N-triplets": {}}
