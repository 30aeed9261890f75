"""HIST, the part that is a softmax: squared Mahalanobis distances to the normal distributions of classes."""

from dataclasses import dataclass

from cocos.base.ranges import Positive
from cocos.losses.base import SoftmaxLoss


@dataclass(frozen=True)
class HIST(SoftmaxLoss):
    r"""Cross-entropy of each positive against the negatives, on squared Mahalanobis distances, summed over positives.

    .. math::
        \ell(M) = -\sum_{p \in P} \log \frac{e^{-\tau M_p}}{e^{-\tau M_p} + \sum_{n \in N} e^{-\tau M_n}}, \quad
        M_j = \sum_d (q_d - \mu_{jd})^2 / \sigma^2_{jd} = -s_j

    P are the positives of the query (the distribution of its class) and N its negatives (the weights of the other
    classes). The candidates are the means μ; the variances σ² come with the embeddings, and are 1 where they do not.
    The paper has queries and means of unit length, and variances between 1 and e⁶. Its other term, the cross-entropy of
    a hypergraph network over the batch, has no weight for a pair and is left out.

    Args:
        scale: τ, in units of 1/score; 32 as in the paper's published code (16 for one of its data sets).

    Counts: negatives with a softmax probability above eps; unit τ|P|.
    Net: push equals pull for every query.
    Source: Lim et al. 2022,
    https://openaccess.thecvf.com/content/CVPR2022/papers/Lim_Hypergraph-Induced_Semantic_Tuplet_Loss_for_Deep_Metric_Learning_CVPR_2022_paper.pdf
    """

    scale: Positive = 32.0
    metric = "mahalanobis"
    balanced = True
    softmax_scale = None  # its scores are not one product
    family = "proxy"
    aliases = {"the distribution loss of hypergraph-induced semantic tuplets": {}}
