"""Losses made of other losses: weighted sums, and losses of some negatives of each query."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Self

import torch
from torch import Tensor

from cocos.base import ranges
from cocos.base.errors import InputError, Unfit
from cocos.embeddings.scores import Pairs
from cocos.embeddings.sources import OWN_HARD
from cocos.losses.base import Loss

GRADIENTS = ("exact", "stop_gradient", "autograd", "pseudo")  # a sum has the last one among its terms
# Attributes that a loss of some negatives shares with the loss of all of them.
SHARED = (
    "metric couples gradient balanced sample per_positive share directions requires graded reads_norms bound reads "
    "matching unit_from notes"
).split()
AtLeastOne = Annotated[int, ranges.whole(1)]
Margin = Annotated[float, ranges.number("a number above 0", lambda value: 0 < value < math.inf)]
UNKNOWN_UNIT = (
    "the natural unit of this loss is unknown (-p unit= sets it), so fractions of the query's own push are counted "
    "instead of shares"
)


@dataclass(frozen=True)
class Sum(Loss):
    r"""Weighted sum of losses of the same scores.

    .. math:: \ell = \sum_t c_t \, \ell_t

    Weights and unit are weighted sums over the terms. If the unit of a term is unknown, a share is a part of
    the query's own push.

    Args:
        terms: coefficients, above 0, and losses.

    Raises:
        InputError: two terms read different scores or directions, or match queries and candidates in different ways.

    Examples:
        >>> cocos.losses.load("triplet+0.5*ntxent")
        Triplet(margin=0.2) + 0.5 * NTXent(temperature=0.1)
    """

    terms: tuple[tuple[float, Loss], ...] = ()

    def __post_init__(self) -> None:
        coefficients, losses = zip(*self.terms, strict=True)
        # The scores of a loss of embeddings are known when it is bound.
        certain = [loss for loss in losses if loss.reads != "embeddings" or loss.bound]
        for attribute, terms in (("metric", certain), ("directions", certain), ("matching", losses)):
            names = {getattr(loss, attribute): loss.name for loss in terms if getattr(loss, attribute) is not None}
            if len(names) > 1:
                values = " and ".join(f"{value} of {name}" for value, name in names.items())
                raise InputError(f"sum of losses: {attribute} {values}, expected the same for all terms")
        first = next((loss for loss in losses if loss.reads != "embeddings"), losses[0])
        unit_sources = {loss.unit_from for loss in losses}
        unit_from = "unknown" if "unknown" in unit_sources else "natural" if unit_sources == {"natural"} else "sum"
        notes = [f"{loss.name}: {note}" for loss in losses for note in loss.notes if note != UNKNOWN_UNIT]
        self.set_attributes(
            metric=first.metric,
            couples=next((loss.couples for loss in losses if loss.couples != "query"), "query"),
            gradient=max((loss.gradient for loss in losses), key=GRADIENTS.index),
            balanced=all(loss.balanced for loss in losses),
            sample=losses[0].sample,
            reads="embeddings" if any(loss.reads == "embeddings" for loss in losses) else "scores",
            directions=losses[0].directions,
            requires=tuple(dict.fromkeys(name for loss in losses for name in loss.requires)),
            graded=losses[0].graded,
            matching=next((loss.matching for loss in losses if loss.matching), None),
            unit_from=unit_from,
            notes=(*notes, *([UNKNOWN_UNIT] if unit_from == "unknown" else [])),
            reads_norms=any(loss.reads_norms for loss in losses),
            bound=all(loss.bound for loss in losses),
            spelling=self.spell(coefficients, [loss.name for loss in losses]),
        )

    @staticmethod
    def spell(coefficients: Iterable[float], names: Iterable[str]) -> str:
        """Return the name of a sum, such as `triplet+0.5*ntxent`."""
        terms = zip(coefficients, names, strict=True)
        return "+".join(("" if c == 1 else f"{c:.15g}*") + name for c, name in terms)

    def __repr__(self) -> str:
        return " + ".join(("" if c == 1 else f"{c:.15g} * ") + repr(loss) for c, loss in self.terms)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of all terms, prefixed by the names of their terms."""
        return {f"{loss.name}.{name}": value for _, loss in self.terms for name, value in loss.parameters.items()}

    def bind(self, pairs: Pairs) -> "Sum":
        """Return the sum of the bound terms."""
        return replace(self, terms=tuple((c, loss.bind(pairs)) for c, loss in self.terms))

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,)."""
        return sum(c * loss(pairs) for c, loss in self.terms)

    def weight(self, pairs: Pairs) -> Tensor:
        """Return ∂ Σ value / ∂ score, (Q, C), the weighted sum over the terms."""
        return sum(c * loss.weight(pairs) for c, loss in self.bind(pairs).terms)

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a candidate with one unit of every term, broadcastable to (Q, C); NaN if unknown."""
        bound = self.bind(pairs)
        if bound.unit_from == "unknown":
            return pairs.scores.new_tensor(torch.nan)
        return sum(c * loss.unit(pairs) for c, loss in bound.terms)

    def radial(self, pairs: Pairs) -> Tensor:
        """Return ∂ Σ value / ∂ norm of the query, (Q,)."""
        return sum(c * loss.radial(pairs) for c, loss in self.terms)


@dataclass(frozen=True)
class SomeNegatives(Loss):
    """A loss of pairs in which only some negatives of each query take part; no gradient flows through the choice.

    Raises:
        InputError: a parameter is out of range, or the loss has no negatives of a query to choose from.
    """

    loss: Loss
    word: ClassVar[str]

    def __post_init__(self) -> None:
        terms = tuple((c, replace(self, loss=term)) for c, term in self.loss.terms)
        shared = {name: getattr(self.loss, name) for name in SHARED}
        self.set_attributes(spelling=f"{self.word}({self.loss.name})", terms=terms, **shared)
        super().__post_init__()
        if self.reads == "embeddings":
            raise InputError(f"{self.name}: {self.loss.name} reads embeddings, so it has no negatives to choose from")
        if self.couples == "candidate":
            raise InputError(f"{self.name}: the candidates are the anchors of {self.loss.name}, expected the queries")

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the choice, and of the loss with its name as prefix; the terms of a sum have theirs."""
        choice = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        prefix = "" if self.loss.terms else f"{self.loss.name}."
        return choice | {f"{prefix}{name}": value for name, value in self.loss.parameters.items()}

    def choose(self, pairs: Pairs) -> Tensor:
        """Return the negatives that take part, (Q, C) bool."""
        raise NotImplementedError

    def reduce(self, pairs: Pairs) -> Pairs:
        """Return the pairs without the other negatives."""
        return pairs.unchecked(negative=self.choose(pairs))

    def bind(self, pairs: Pairs) -> Self:
        """Return the loss bound to a batch of its chosen negatives."""
        return replace(self, loss=self.loss.bind(self.reduce(pairs)))

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), for its positives and the chosen negatives."""
        return self.loss(self.reduce(pairs))

    def weight(self, pairs: Pairs) -> Tensor:
        """Return ∂ Σ value / ∂ score, (Q, C), 0 for the other negatives."""
        return self.loss.weight(self.reduce(pairs))

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the unit of the loss for the chosen negatives, broadcastable to (Q, C)."""
        return self.loss.unit(self.reduce(pairs))

    def radial(self, pairs: Pairs) -> Tensor:
        """Return ∂ Σ value / ∂ norm of the query, (Q,)."""
        return self.loss.radial(self.reduce(pairs))


@dataclass(frozen=True)
class TopK(SomeNegatives):
    """A loss of the k hardest negatives of each query: those with the highest scores, of equal ones the first.

    With k = 1 the triplet loss is Triplet-SH. A query with fewer negatives has all of them.

    Args:
        loss: a loss. If it couples the queries of a batch, it takes the k hardest negatives of each of them.
        k: at least 1.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.65]]), torch.tensor([[True, False, False]]))
        >>> cocos.losses.load("top_k(triplet)", k=1).weight(pairs)
        tensor([[-1.,  1.,  0.]])
    """

    k: AtLeastOne
    word = "top_k"

    def choose(self, pairs: Pairs) -> Tensor:
        """Return the k hardest negatives of each query, (Q, C) bool."""
        scores = pairs.scores.detach().masked_fill(~pairs.negative, -torch.inf)
        if self.k >= scores.shape[1]:
            return pairs.negative
        lowest = scores.topk(self.k, dim=1, sorted=False).values.amin(dim=1, keepdim=True)
        above, level = scores > lowest, (scores == lowest) & pairs.negative
        return above | (level & (level.cumsum(dim=1) <= self.k - above.sum(dim=1, keepdim=True)))


@dataclass(frozen=True)
class SkipK(SomeNegatives):
    """A loss of all negatives of each query but the k hardest, which may be false negatives.

    Args:
        loss: as for `TopK`.
        k: at least 1; a query with at most k negatives has none left.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.65]]), torch.tensor([[True, False, False]]))
        >>> cocos.losses.load("skip_k(triplet)", k=1).weight(pairs)
        tensor([[-1.,  0.,  1.]])
    """

    k: AtLeastOne
    word = "skip_k"

    def choose(self, pairs: Pairs) -> Tensor:
        """Return all negatives of each query but the k hardest, (Q, C) bool."""
        return pairs.negative & ~TopK(self.loss, self.k).choose(pairs)


@dataclass(frozen=True)
class SemiHard(SomeNegatives):
    r"""A loss of the semi-hard negatives of each query, :math:`s_p - m < s_n < s_p` for any positive p of it.

    Args:
        loss: as for `TopK`.
        margin: m, in units of score, above 0; None: no lower bound, for losses with their own margin.

    Source: Schroff et al. 2015, arXiv:1503.03832, eq. 4; the loss decides the weights of the chosen negatives.

    Examples:
        Of three negatives, the first scores above the positive, and the last is too far away:

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.9, 0.7, 0.1]]), torch.tensor([[True, False, False, False]]))
        >>> cocos.losses.load("semi_hard(triplet)", margin=0.2).weight(pairs)
        tensor([[-1.,  0.,  1.,  0.]])
    """

    margin: Margin | None = None
    word = "semi_hard"

    def choose(self, pairs: Pairs) -> Tensor:
        """Return the negatives between a positive less the margin and this positive, both excluded, (Q, C) bool."""
        scores, chosen = pairs.scores.detach(), torch.zeros_like(pairs.negative)
        lowest = torch.inf if self.margin is None else self.margin
        for index, filled in zip(*(part.split(1, dim=1) for part in pairs.slots()), strict=True):
            positive = scores.gather(1, index)
            chosen |= filled & (scores < positive) & (scores > positive - lowest)
        return chosen & pairs.negative


@dataclass(frozen=True)
class OwnHard(SomeNegatives):
    """A loss of the hard negatives that are given with each query, as in a triplet file.

    Args:
        loss: as for `TopK`.
    """

    word = "own_hard"

    def choose(self, pairs: Pairs) -> Tensor:
        """Return the hard negatives of each query, (Q, C) bool.

        Raises:
            Unfit: the pairs have no hard negatives.
        """
        if pairs.source is None:
            raise Unfit(f"{self.name}: no hard negatives, expected the array negatives in the file")
        return pairs.negative & (pairs.source == OWN_HARD)


@dataclass(frozen=True)
class HardestPositive(SomeNegatives):
    """A loss of the positive with the lowest score of each query, and of all its negatives.

    Args:
        loss: as for `TopK`.

    Source: Hermans et al. 2017, arXiv:1703.07737, eq. 5, with `triplet_sh`: the batch-hard triplet loss.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.6, 0.65]]), torch.tensor([[True, True, False]]))
        >>> cocos.losses.load("hardest_positive(triplet_sh)").weight(pairs) + 0.0
        tensor([[ 0., -1.,  1.]])
    """

    word = "hardest_positive"

    def reduce(self, pairs: Pairs) -> Pairs:
        """Return the pairs with one positive per query."""
        scores = pairs.scores.detach().masked_fill(~pairs.positive, torch.inf)
        hardest = torch.zeros_like(pairs.positive).scatter(1, scores.argmin(dim=1, keepdim=True), True)
        return pairs.unchecked(positive=pairs.positive & hardest)


WRAPPERS: dict[str, Any] = {wrapper.word: wrapper for wrapper in (TopK, SkipK, SemiHard, OwnHard, HardestPositive)}
