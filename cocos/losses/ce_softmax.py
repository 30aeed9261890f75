"""Cross-example softmax: each positive against the negatives of the whole batch."""

from dataclasses import dataclass

from cocos.base.ranges import Positive
from cocos.losses.families.cross_example import BatchSoftmax


@dataclass(frozen=True)
class CrossExampleSoftmax(BatchSoftmax):
    r"""Cross-entropy of each positive of a query against all negative pairs of the batch, summed over the positives.

    .. math::
        \ell_q(s) = -\sum_{p \in P_q} \log \frac{e^{\lambda s_{qp}}}{e^{\lambda s_{qp}} + Z}, \quad
        Z = \sum_k \sum_{n \in N_k} e^{\lambda s_{kn}}

    :math:`P_q` are the positives of query q, :math:`N_k` the negatives of query k, also of one that has no positive,
    and s their scores. One sum Z for all queries asks for scores that can be compared between queries.

    Args:
        scale: λ, in units of 1/score. The paper scales its logits by 20 in section 4.2, the default; the formula of
            its section 4.1, read literally, scales both embeddings and makes it 400.

    Counts: negatives with more than eps of λ; every query pushes every pair, so shares may exceed 1; unit λ|P|.
    Net: push equals pull over the batch, not for a query: one with hard negatives is pushed more than it pulls.
    Source: Veit & Wilber 2020, Cross-Example Softmax, arXiv:2011.08824, eqs. 4-5; scale of section 4.2.

    Examples:
        Each of two positives competes with the negatives of both queries, all at one score: the loss is ln 3.

        >>> scores, positive = torch.tensor([[0.5, 0.5], [0.5, 0.5]]), torch.tensor([[True, False], [False, True]])
        >>> pairs = cocos.Pairs(scores, positive)
        >>> loss = cocos.losses.load("ce_softmax")
        >>> loss(pairs)
        tensor([1.0986, 1.0986])
    """

    scale: Positive = 20.0
    family = "softmax"
