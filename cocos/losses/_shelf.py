"""Common ground of the losses of the shelf: their defaults, parameters with a range, and the softmax family."""

import dataclasses
import typing
from typing import Any, ClassVar

from torch import Tensor

from cocos.base import ranges
from cocos.base.errors import InputError
from cocos.base.ranges import Finite, Fraction, NonNegative, Positive, Range, one_of, whole
from cocos.embeddings import sources
from cocos.embeddings.scores import Pairs
from cocos.losses._calls import takes_tensors


def taught(pairs: Pairs, name: str) -> Tensor:
    """Scores of the teacher or guide, (Q, C), NaN where it gave none."""
    if pairs.teacher is None:
        raise InputError(
            f"{name} reads scores of a teacher or guide, and there are none: give teacher, (queries, candidates) or "
            "(queries, 1 + hard negatives), or guide_query and guide_candidate"
        )
    return pairs.teacher


def sources_of(pairs: Pairs, name: str) -> Tensor:
    """Source of each column, (Q, C), places in `cocos.sources.SOURCES`."""
    if pairs.source is None:
        raise InputError(
            f"{name} reads columns of further directions, and there are none: give pairs of "
            "cocos.scores.pairs(embeddings, batch, metric=loss.metric, directions=loss.directions)"
        )
    return pairs.source


__all__ = [
    "Finite",
    "Fraction",
    "NonNegative",
    "Positive",
    "Range",
    "ShelfLoss",
    "SoftmaxLoss",
    "one_of",
    "sources",
    "sources_of",
    "taught",
    "whole",
]


class ShelfLoss:
    """Defaults of a loss; a file of the shelf states those in which it differs. See `Loss` and `Traits`."""

    metric: ClassVar[str] = "cosine"
    couples: ClassVar[str] = "query"
    sample: ClassVar[str] = "pairs"

    def __init_subclass__(cls) -> None:
        if "__call__" in vars(cls):
            takes_tensors(cls)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(typing.cast(Any, self)):
            value, (allowed, optional) = getattr(self, field.name), ranges.of(field.type)
            if allowed and not (optional and value is None) and not allowed.holds(value):
                words = f"None, or {allowed.words}" if optional else allowed.words
                raise ValueError(f"{field.name.rstrip('_')} must be {words}, got {value}")

    @property
    def gradient(self) -> str:
        """The weights are the derivative of the loss."""
        return "exact"

    @property
    def balanced(self) -> bool:
        """Whether the weights of a query sum to zero."""
        return False

    def unit(self, pairs: Pairs) -> Tensor:
        """Natural size of one weight, (): 1."""
        return pairs.scores.new_ones(())


class SoftmaxLoss(ShelfLoss):
    r"""Cross-entropy of each positive of a query against its negatives, on logits z(s), summed over the positives.

    .. math:: \ell(s) = -\sum_{p \in P} \log \frac{e^{z_p}}{e^{z_p} + \sum_{n \in N} e^{z_n}}, \quad
        w_p = -z'_p m_p, \quad w_n = z'_n \Bigl(\sum_{p \in P} m_p\Bigr) \mathrm{softmax}_N(z)_n

    :math:`m_p` is the probability that positive p leaves to the negatives, :math:`z' = \partial z / \partial s`. Equal
    slopes z' balance each query. A loss of the family states its `scale`, or its `logits` and `unit`.
    """

    per_positive: ClassVar[bool] = True
    share: ClassVar[str | None] = "probability"

    @property
    def scale(self) -> float:
        """λ of the logits z = λ s, in units of 1/score; 1 unless a loss has one."""
        return 1.0

    @property
    def softmax_scale(self) -> float | None:
        """λ of Σ exp(λ s), the only term in which the negatives of a query appear; None for other terms."""
        return self.scale

    def logits(self, pairs: Pairs) -> tuple[Tensor, Tensor | float]:
        """Logits z, (Q, C), and their slopes z', broadcastable to (Q, C)."""
        return self.scale * pairs.scores, self.scale

    def negatives(self, pairs: Pairs) -> Tensor:
        """Negatives that take part, (Q, C) bool."""
        return pairs.negative

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        return pairs.cross_entropy(self.logits(pairs)[0], self.negatives(pairs))

    def weight(self, pairs: Pairs) -> Tensor:
        """Closed form of ∂ Σ loss / ∂ score, (Q, C): the slopes times softmax minus target, see the class."""
        logits, slope = self.logits(pairs)
        return slope * pairs.residual(logits, self.negatives(pairs))

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative with all of the probability for every positive, (Q, 1): λ|P|."""
        return self.scale * pairs.positives()
