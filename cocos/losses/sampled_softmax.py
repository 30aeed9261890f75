"""Sampled softmax: the other candidates of the batch stand for all negatives."""

from dataclasses import dataclass

from cocos.base.ranges import Positive
from cocos.losses.base import SoftmaxLoss


@dataclass(frozen=True)
class SampledSoftmax(SoftmaxLoss):
    r"""Cross-entropy of each positive of a query against all of its negatives, summed over the positives.

    .. math::
        \ell(s) = -\sum_{p \in P} \log \frac{e^{\lambda s_p}}{e^{\lambda s_p} + \sum_{n \in N} e^{\lambda s_n}}

    P are the positives of the query, N its negatives and s their scores. It is NT-Xent with the temperature 1/λ; the
    paper has one positive, a text's image. (The sampled softmax of recommenders subtracts the log of the probability
    with which a candidate is sampled, and is `logq_softmax`.)

    Args:
        scale: λ, in units of 1/score. The paper scales its logits by 20 in section 4.2, the default; the formula of
            its section 4.1, read literally, scales both embeddings and makes it 400.

    Counts: negatives with a softmax probability above eps; unit λ|P|.
    Net: push equals pull for every query.
    Source: Veit & Wilber 2020, Cross-Example Softmax, arXiv:2011.08824, eq. 2; scale of section 4.2.
    """

    scale: Positive = 20.0
    balanced = True
    family = "softmax"
    aliases = {"softmax with in-batch negatives": {}}
