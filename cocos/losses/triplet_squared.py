"""Triplet on squared Euclidean distances: FaceNet."""

from dataclasses import dataclass

from cocos.base.ranges import NonNegative
from cocos.losses.families.triplets import AllTriplets


@dataclass(frozen=True)
class TripletSquared(AllTriplets):
    r"""Hinge over all triplets of a query on squared Euclidean distances, summed over its positives and negatives.

    .. math:: \ell(d) = \sum_{p \in P} \sum_{n \in N} [\alpha + d_p^2 - d_n^2]_+

    :math:`d^2` is the squared Euclidean distance, minus the score, of the positives P and the negatives N of a query. A
    negative weighs as many positives as it violates, a positive minus the number of its violators. The force on an
    embedding is the weight times twice the distance, so that near duplicates hardly act.

    Args:
        margin: α, in units of squared distance: how much closer a positive must be; 0.2 as in the paper.

    Counts: violating negatives, whole numbers; unit 1, one violated triplet. A tie (d_n² - d_p² = α) does not
    contribute.
    Net: push equals pull for every query.
    Source: Schroff et al. 2015, FaceNet, arXiv:1503.03832.

    Examples:
        The margin is 0.2: a negative with a squared distance 0.1 larger than the positive's violates it by 0.1.

        >>> pairs = cocos.Pairs(torch.tensor([[-0.5, -0.6, -1.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("triplet_squared")
        >>> loss(pairs)
        tensor([0.1000])
        >>> loss.weight(pairs)
        tensor([[-1.,  1.,  0.]])
    """

    margin: NonNegative = 0.2
    metric = "squared_euclidean"
    family = "triplet"
    aliases = {"FaceNet loss": {}}
