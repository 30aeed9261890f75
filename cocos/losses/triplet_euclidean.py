"""Triplet on Euclidean distances."""

from dataclasses import dataclass

from cocos.base.ranges import NonNegative
from cocos.losses.families.triplets import AllTriplets


@dataclass(frozen=True)
class TripletEuclidean(AllTriplets):
    r"""Hinge over all triplets of a query on Euclidean distances, summed over its positives and negatives.

    .. math:: \ell(d) = \sum_{p \in P} \sum_{n \in N} [\alpha + d_p - d_n]_+

    :math:`d` is the Euclidean distance, minus the score, of the positives P and the negatives N of a query. A negative
    weighs as many positives as it violates, a positive minus the number of its violators. The force on an embedding is
    the weight itself, however far the candidate.

    Args:
        margin: α, in units of distance: how much closer a positive must be; 0.05 is the default of PyTorch Metric
            Learning, arXiv:2008.09164.

    Counts: violating negatives, whole numbers; unit 1, one violated triplet. A tie (d_n - d_p = α) does not contribute.
    Net: push equals pull for every query.
    Source: Hermans et al. 2017, In Defense of the Triplet Loss, arXiv:1703.07737, batch all.

    Examples:
        The margin is 0.05: a negative 0.02 farther away than the positive violates it by 0.03.

        >>> pairs = cocos.Pairs(torch.tensor([[-0.5, -0.52, -1.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("triplet_euclidean")
        >>> loss(pairs)
        tensor([0.0300])
        >>> loss.weight(pairs)
        tensor([[-1.,  1.,  0.]])
    """

    margin: NonNegative = 0.05
    metric = "euclidean"
    family = "triplet"
    aliases = {"triplet margin loss": {}, "batch-all": {}, "batch-all triplet": {}}
