"""N-pair: softmax over inner products, without a temperature."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from cocos.scores import Pairs

__all__ = ["NPair"]


@dataclass(frozen=True)
class NPair:
    r"""Cross-entropy of each positive against the negatives on inner products, summed over the positives of a query.

    .. math:: \ell(s) = \sum_{p \in P} \log \Bigl(1 + \sum_{n \in N} e^{s_n - s_p}\Bigr)

    :math:`s` is the inner product of raw embeddings, with the positives P and the negatives N of a query: their lengths
    take the place of a temperature. The paper has one positive a query, and adds a penalty on the norms, which belongs
    to no pair and is left out.

    Counts: negatives that hold more than eps of the softmax; unit |P|.
    Net: push equals pull for every query.
    Source: Sohn 2016, N-pair Loss, https://papers.nips.cc/paper/2016/hash/6b180037abbebea991d8b1232f8a8ca9-Abstract.html
    Also called: N-pairs, N-pair-mc, multi-class N-pair loss.
    Family: softmax.

    Examples:
        Three candidates with one score have a third of the probability each; the positive is short of the other two
        thirds.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.5]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("n_pair")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.6667,  0.3333,  0.3333]])
    """

    metric: ClassVar[str] = "dot"
    couples: ClassVar[str] = "query"
    gradient: ClassVar[str] = "exact"
    balanced: ClassVar[bool] = True
    sample: ClassVar[str] = "pairs"
    per_positive: ClassVar[bool] = True
    share: ClassVar[str] = "probability"

    @property
    def softmax_scale(self) -> float:
        """λ of Σ exp(λ s), the only term of the loss in which the negatives of a query appear."""
        return 1.0

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        return pairs.cross_entropy(pairs.scores)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C). Each row sums to zero.

        With :math:`m_p` the probability that positive p leaves to the negatives: positives :math:`-m_p`, negatives
        :math:`(\sum_p m_p) \, \mathrm{softmax}_N(s)`.
        """
        return pairs.residual(pairs.scores)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a candidate with all of the probability for every positive, (Q, 1): |P|."""
        return pairs.positives()

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        return (
            ("linear_softmax", {"smoothing": 0.0}, "always"),
            ("ntxent", {"temperature": 1.0}, "unit vectors"),
        )
