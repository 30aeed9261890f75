"""AnglE: graded pairs, compared by the angle between their rows as complex numbers."""

from dataclasses import dataclass

from cocos.base.ranges import Positive
from cocos.losses.families.comparisons import ComparedPairs


@dataclass(frozen=True)
class AnglE(ComparedPairs):
    r"""Log of one sum over all comparisons of a graded pair with one of a lower grade, on angles in complex space.

    .. math:: \ell(s) = \log \Bigl(1 + \sum_{y_a < y_b} e^{\lambda (s_a - s_b)}\Bigr), \quad
        s = \Bigl| \sum_k (\mathrm{Re} + \mathrm{Im}) \frac{z_k \bar w_k}{|z| |w|} \Bigr|

    y are the grades of the pairs a and b of the batch; z and w are the two rows of a pair, as complex vectors whose
    real parts are the first half of the dimensions. Pairs are compared as in CoSENT. The score is at most √2, and no
    gradient passes at 0. The paper calls it a difference of angles, which would be lower for closer pairs; its
    published code has it higher, as have sentence-transformers and cocos. The paper's whole loss adds CoSENT and an
    in-batch softmax.

    Args:
        scale: λ (1/τ in the paper), in units of 1/score; 20 as in sentence-transformers.

    Counts: worse pairs with more than eps of all comparisons of the batch; unit λ.
    Net: push equals pull for every row; a pair of a middle grade is pulled in its own row and pushed in others.
    Source: Li & Li 2023, AnglE, arXiv:2309.12871, eqs. 4-7; orientation and scale of the published code.

    Examples:
        (1, 1) is 1 + i and scores 1 with itself. Of two graded pairs of one score there is one comparison: ln 2.

        >>> rows, grades = torch.ones(2, 2), torch.tensor([1.0, 0.0])
        >>> score = cocos.similarities.angle(rows, rows)
        >>> pairs = cocos.Pairs(score, torch.eye(2, dtype=torch.bool), grades[None] < grades[:, None])
        >>> cocos.losses.load("angle")(pairs).sum()
        tensor(0.6931)
    """

    scale: Positive = 20.0
    metric = "angle"
    family = "pair"
