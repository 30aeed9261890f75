"""Linear softmax: the cross-entropy of a classifier, with label smoothing."""

from dataclasses import dataclass
from typing import Annotated

from cocos.base.ranges import Range
from cocos.losses.families.smoothing import SmoothedLabels


@dataclass(frozen=True)
class LinearSoftmax(SmoothedLabels):
    r"""Cross-entropy of smoothed labels on inner products, of each positive with the negatives, summed over positives.

    .. math::
        \ell(s) = -\sum_{p \in P} \Bigl[ (1 - \varepsilon) \log \pi_p(p) +
        \frac{\varepsilon}{|N|} \sum_{n \in N} \log \pi_p(n) \Bigr], \quad
        \pi_p(j) = \frac{e^{s_j}}{e^{s_p} + \sum_{n \in N} e^{s_n}}

    P are the positives of the query (the weights of its class), N its negatives (the weights of the other classes) and
    s the inner products of raw embeddings. The classifier's bias is not part of the scores: append it to the candidates
    as one more column, and a 1 to each query.

    Args:
        smoothing: ε, the part of the label that the negatives share; 0.1 as in the paper's published code. (PyTorch
            spreads its `label_smoothing` over all K classes: there it is ε·K/(K-1).)

    Counts: negatives with a weight above eps in size, pulled ones too; unit |P|.
    Net: push equals pull for every query, but a negative with a probability below ε/|N| is pulled, and a positive with
        one above 1 - ε is pushed.
    Source: Boudiaf et al. 2020, A Unifying Mutual Information View of Metric Learning, arXiv:2003.08983.
    """

    smoothing: Annotated[float, Range("at least 0 and below 1", lambda value: 0 <= value < 1)] = 0.1
    metric = "dot"
    family = "proxy"
    aliases = {"softmax cross-entropy": {}, "cross-entropy": {}, "CE": {}}
