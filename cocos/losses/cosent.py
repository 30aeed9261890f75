"""CoSENT: graded pairs, of which each better one is compared with each worse one."""

from dataclasses import dataclass

from cocos.base.ranges import Positive
from cocos.losses.families.comparisons import ComparedPairs


@dataclass(frozen=True)
class CoSENT(ComparedPairs):
    r"""Log of one sum over all comparisons of a graded pair with one of a lower grade in the batch.

    .. math:: \ell(s) = \log \Bigl(1 + \sum_{y_a < y_b} e^{\lambda (s_a - s_b)}\Bigr)

    y are the grades of the pairs a and b of the batch, and s the cosines of their two rows. In cocos a row is a pair b:
    its own score is the positive, and the scores of the pairs of a lower grade are the negatives. The weight of a pair
    is its column sum, and each row has the part of the loss that its comparisons have of the sum. Pairs of one grade
    are not compared. Without grades each query compares its positives with its own negatives.

    Args:
        scale: λ, in units of 1/score; 20 as in sentence-transformers.

    Counts: worse pairs with more than eps of all comparisons of the batch, so that a large batch has small shares, and
        `relative` is more informative; unit λ.
    Net: push equals pull for every row; a pair of a middle grade is pulled in its own row and pushed in others.
    Source: Huang et al. 2024, CoSENT, doi:10.1109/TASLP.2024.3402087; scale of sentence-transformers.

    Examples:
        Three pairs at one score, of grades 1, 0.5 and 0: three comparisons, and the loss is ln 4.

        >>> grades = torch.tensor([1.0, 0.5, 0.0])
        >>> pairs = cocos.Pairs(torch.zeros(3, 3), torch.eye(3, dtype=torch.bool), grades[None] < grades[:, None])
        >>> loss = cocos.losses.load("cosent")
        >>> loss(pairs).sum()
        tensor(1.3863)
        >>> loss.weight(pairs).sum(dim=0) / loss.unit(pairs)  # of each pair: the best is pulled, the worst pushed
        tensor([-0.5000,  0.0000,  0.5000])
    """

    scale: Positive = 20.0
    family = "pair"
    aliases = {"cosine sentence loss": {}}
