"""N-pair: softmax over inner products, without a temperature."""

from dataclasses import dataclass

from cocos.losses.base import SoftmaxLoss


@dataclass(frozen=True)
class NPair(SoftmaxLoss):
    r"""Cross-entropy of each positive against the negatives on inner products, summed over the positives of a query.

    .. math:: \ell(s) = \sum_{p \in P} \log \Bigl(1 + \sum_{n \in N} e^{s_n - s_p}\Bigr)

    :math:`s` is the inner product of raw embeddings, with the positives P and the negatives N of a query: their lengths
    take the place of a temperature. The paper has one positive a query, and adds a penalty on the norms, which belongs
    to no pair and is left out.

    Counts: negatives with a softmax probability above eps; unit |P|.
    Net: push equals pull for every query.
    Source: Sohn 2016, N-pair Loss,
    https://papers.nips.cc/paper/2016/hash/6b180037abbebea991d8b1232f8a8ca9-Abstract.html
    """

    metric = "dot"
    balanced = True
    family = "softmax"
    aliases = {"N-pairs": {}, "N-pair-mc": {}, "multi-class N-pair loss": {}}
