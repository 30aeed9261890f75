"""Losses of one loss on some negatives of each query, like `top_k(ntxent)`."""

import itertools
import math
import re
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Real
from typing import Annotated, Any, ClassVar, Self, cast

import torch
from torch import Tensor

from cocos import losses
from cocos.base import ranges
from cocos.base.errors import InputError
from cocos.embeddings.scores import Pairs
from cocos.losses.external.sum import terms_of
from cocos.losses.external.traits import StatesTraits, Traits, traits_of

# Numbers of the choice of negatives; text from the command line is read by them.
AtLeastOne = Annotated[int, ranges.whole(1)]
Margin = Annotated[
    float, ranges.Range("a number above 0", lambda value: isinstance(value, Real) and 0 < value < math.inf)
]


class Wrapped(StatesTraits):
    """A loss around one other, a dataclass whose first field is that loss, and the others its own parameters."""

    loss: losses.Loss
    word: ClassVar[str]

    @classmethod
    def own_names(cls) -> set[str]:
        """Names of the parameters that are not those of the loss."""
        return {field.name for field in fields(cast(Any, cls))[1:]}

    @property
    def own(self) -> dict[str, Any]:
        """Its own parameters, by name."""
        return {field.name: getattr(self, field.name) for field in fields(cast(Any, self))[1:]}

    @property
    def spelling(self) -> str:
        """Its name for `cocos.losses.load`."""
        return f"{self.word}({losses.name_of(self.loss)})"

    @cached_property
    def traits(self) -> Traits:  # type: ignore[override]
        """Traits of the loss, with another name, and without those by which a reader would count it."""
        prefix = _prefix(losses.name_of(self.loss))
        return replace(
            traits_of(self.loss),
            spelling=self.spelling,
            given=self.own | {f"{prefix}{key}": value for key, value in losses.parameters(self.loss).items()},
            softmax_scale=None,
            source_scales=None,
            logistic=None,
            hinge=None,
            bound=False,
            twin=None,
            counted_as=None,
        )


@dataclass(frozen=True)
class KeptNegatives(Wrapped):
    """A loss of pairs of which only some negatives of each query take part; the classes below choose them."""

    loss: losses.Loss

    def __post_init__(self) -> None:
        name = losses.name_of(self.loss)
        for field in fields(self)[1:]:
            value, (allowed, optional) = getattr(self, field.name), ranges.of(field.type)
            if allowed and not (value is None and optional) and not allowed.holds(value):
                words = f"{allowed.words}, or None" if optional else allowed.words
                raise InputError(f"{self.spelling}: {field.name} must be {words}, got {value!r}")
        if traits_of(self.loss).reads == "embeddings":
            raise InputError(f"{self.spelling}: {name} reads embeddings, so no negative can be kept from it")
        if self.loss.couples == "candidate":
            raise InputError(
                f"{self.spelling}: the candidates are the anchors of {name}, so its queries have no negatives of their "
                "own to choose from"
            )

    @cached_property
    def traits(self) -> Traits:  # type: ignore[override]
        """Traits of the loss; the terms of a sum have the same choice each."""
        own = super().traits
        terms = tuple((c, cast(losses.Loss, replace(self, loss=term))) for c, term in own.terms)
        return replace(own, terms=terms)

    def negatives(self, pairs: Pairs) -> Tensor:
        """Choose the negatives that take part, (Q, C) bool."""
        raise NotImplementedError

    def reduced(self, pairs: Pairs) -> Pairs:
        """Leave the negatives that were not chosen out of the pairs."""
        return pairs.with_negative(self.negatives(pairs))

    def bind(self, pairs: Pairs) -> Self:
        """Settle the loss by a batch of its kept negatives."""
        return replace(self, loss=self.loss.bind(self.reduced(pairs)))

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), for its positives and the chosen negatives."""
        return self.loss(self.reduced(pairs))

    def weight(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ score, (Q, C): the weights of the loss for the kept pairs, 0 for other negatives."""
        return self.loss.weight(self.reduced(pairs))

    def unit_of(self, weights: Tensor, pairs: Pairs) -> Tensor:
        """The unit of weights that are known already: that of the loss for the kept pairs, broadcastable to (Q, C)."""
        return self.loss.unit_of(weights, self.reduced(pairs))

    def unit(self, pairs: Pairs) -> Tensor:
        """Natural size of one weight of the loss for the kept pairs, broadcastable to (Q, C)."""
        return self.loss.unit(self.reduced(pairs))

    def radial(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ norm of the query, (Q,), for the kept pairs; 0 where the loss reads no norms."""
        return self.loss.radial(self.reduced(pairs))


@dataclass(frozen=True)
class TopK(KeptNegatives):
    """A loss of the k hardest negatives of each query, made by `top_k`; no gradient flows through the choice."""

    k: AtLeastOne
    word: ClassVar[str] = "top_k"

    def negatives(self, pairs: Pairs) -> Tensor:
        """Choose the k hardest negatives of each query, (Q, C) bool."""
        scores = pairs.scores.detach().masked_fill(~pairs.negative, -torch.inf)
        if self.k >= scores.shape[1]:
            return pairs.negative
        bar = scores.topk(self.k, dim=1, sorted=False).values.amin(dim=1, keepdim=True)
        above, level = scores > bar, (scores == bar) & pairs.negative
        return above | (level & (level.cumsum(dim=1) <= self.k - above.sum(dim=1, keepdim=True)))


@dataclass(frozen=True)
class SkipK(KeptNegatives):
    """A loss of all negatives of each query but the k hardest, made by `skip_k`."""

    k: AtLeastOne
    word: ClassVar[str] = "skip_k"

    def negatives(self, pairs: Pairs) -> Tensor:
        """Choose all negatives of each query but the k hardest, (Q, C) bool."""
        return pairs.negative & ~TopK(self.loss, self.k).negatives(pairs)


@dataclass(frozen=True)
class SemiHard(KeptNegatives):
    """A loss of the semi-hard negatives of each query, made by `semi_hard`; no gradient flows through the choice."""

    margin: Margin | None = None
    word: ClassVar[str] = "semi_hard"

    def negatives(self, pairs: Pairs) -> Tensor:
        """Choose the negatives between a positive less the margin and this positive, both excluded, (Q, C) bool."""
        scores, chosen = pairs.scores.detach(), torch.zeros_like(pairs.negative)
        reach = torch.inf if self.margin is None else self.margin
        for index, filled in zip(*(part.split(1, dim=1) for part in pairs.slots()), strict=True):
            positive = scores.gather(1, index)
            chosen |= filled & (scores < positive) & (scores > positive - reach)
        return chosen & pairs.negative


def top_k(loss: Any, k: int) -> losses.Loss:
    """Keep the k hardest negatives of each query: those with the highest scores, of equal ones the first.

    The others get no weight, so that the loss has the weights and the unit of the reduced pairs. No gradient flows
    through the choice. With k = 1 the triplet loss is Triplet-SH. It is `top_k(NAME)` for `load` and on the command
    line.

    Args:
        loss: a loss, its name, or a function of yours. One that couples the queries of a batch takes the k hardest of
            each of them; one whose anchors are the candidates, or that reads embeddings, is refused.
        k: at least 1; a query with fewer negatives keeps all.

    Examples:
        The hardest negative of the triplet loss is that of Triplet-SH:

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.65]]), torch.tensor([[True, False, False]]))
        >>> cocos.losses.top_k("triplet", 1).weight(pairs)
        tensor([[-1.,  1.,  0.]])
        >>> cocos.losses.name_of(cocos.losses.top_k("ntxent", 16))
        'top_k(ntxent)'
    """
    return cast(losses.Loss, TopK(_loss(loss), k))


def skip_k(loss: Any, k: int) -> losses.Loss:
    """Leave out the k hardest negatives of each query, which may be false negatives, beside `top_k`.

    Args:
        loss: as for `top_k`.
        k: number of negatives that are left out, at least 1; a query with at most k negatives has none left.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.65]]), torch.tensor([[True, False, False]]))
        >>> cocos.losses.skip_k("triplet", 1).weight(pairs)
        tensor([[-1.,  0.,  1.]])
    """
    return cast(losses.Loss, SkipK(_loss(loss), k))


def semi_hard(loss: Any, margin: float | None = None) -> losses.Loss:
    r"""Keep the semi-hard negatives of each query, :math:`s_p - m < s_n < s_p` for any positive p of it.

    Args:
        loss: as for `top_k`.
        margin: m, in units of score, above 0; None: no lower bound, for losses with a margin of their own.

    Source: Schroff et al. 2015, arXiv:1503.03832, eq. 4; the loss decides what the kept negatives weigh.

    Examples:
        Of three negatives, the first scores above the positive, and the last is too far away:

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.9, 0.7, 0.1]]), torch.tensor([[True, False, False, False]]))
        >>> cocos.losses.semi_hard("triplet", margin=0.2).weight(pairs)
        tensor([[-1.,  0.,  1.,  0.]])
    """
    return cast(losses.Loss, SemiHard(_loss(loss), margin))


def _loss(loss: Any) -> losses.Loss:
    return losses.load(loss) if isinstance(loss, str) else losses.of(loss)


LOSSES_OF_ONE_LOSS: dict[str, type[Wrapped]] = {kind.word: kind for kind in (TopK, SkipK, SemiHard)}


def _prefix(name: str) -> str:
    """Write what stands before each parameter of a loss; those of a sum have the names of its terms already."""
    return "" if terms_of(name) else f"{name}."


def parted(text: str) -> tuple[type[Wrapped], str] | None:
    """Split a spelling `WORD(LOSS)` into its class and the text of the loss in it; None for any other text."""
    found = re.fullmatch(r"([a-z_-]+)\s*\((.*)\)", text.strip(), re.IGNORECASE)
    kind = LOSSES_OF_ONE_LOSS.get(found[1].lower().replace("-", "_")) if found else None
    if not (found and kind):
        return None
    depths = itertools.accumulate((letter == "(") - (letter == ")") for letter in found[2])
    return (kind, found[2].strip()) if min(depths, default=0) >= 0 else None


def _class_and_inner(text: str) -> tuple[type[Wrapped], str]:
    """Find the class of a spelling and the canonical name of the loss in it."""
    found = parted(text)
    if found is None:
        raise InputError(f"loss {text!r}: expected one of {', '.join(LOSSES_OF_ONE_LOSS)} with a loss in parentheses")
    kind, name = found
    inner = losses.canonical(name)
    if own := losses.brought(name):
        key, value = next(iter(own.items()))
        raise InputError(
            f"loss {text!r}: {name} is {inner} with a {key} of its own; write {kind.word}({inner}) and -p {key}={value}"
        )
    return kind, inner


def canonical(text: str) -> str:
    """Write the one spelling of the loss."""
    kind, inner = _class_and_inner(text)
    return f"{kind.word}({inner})"


def known(text: str) -> set[str] | None:
    """List the parameters of the wrapper, and those of the loss with its name before each; None: any."""
    kind, inner = _class_and_inner(text)
    found = losses.known(inner)
    return None if found is None else kind.own_names() | {f"{_prefix(inner)}{key}" for key in found}


def qualified(text: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Rename the parameters as `known` lists them."""
    kind, inner = _class_and_inner(text)
    prefix, found = _prefix(inner), dict[str, Any]()
    for key, value in parameters.items():
        own = key in kind.own_names()
        settled = {key: value} if own else losses.qualified(inner, {key.removeprefix(prefix): value})
        for name, number in settled.items():
            place = name if own else f"{prefix}{name}"
            if place in found:
                raise InputError(f"parameter {place} of {text} is given twice")
            found[place] = number
    return found


def _number(text: str, key: str, value: Any) -> int | float | None:
    """Read a parameter of a choice from a number or from text: a margin, or None for no margin; else a whole number."""
    whole = key != "margin"
    if not whole and str(value).lower() == "none":
        return None
    try:
        return int(str(value)) if whole else float(value)
    except (TypeError, ValueError):
        kind = "a whole number" if whole else "a number, or none"
        raise InputError(f"{text}: {key} must be {kind}, got {value!r}") from None


def load(text: str, parameters: dict[str, Any]) -> Wrapped:
    """Build the loss: its own parameters are those of the word; others belong to the loss in it."""
    kind, inner = _class_and_inner(text)
    given, prefix = qualified(text, parameters), _prefix(inner)
    own = {key: given.pop(key) for key in kind.own_names() & given.keys()}
    if "k" in kind.own_names() - own.keys():
        raise InputError(f"{text}: give k, the number of negatives that a query keeps or skips, like -p k=16")
    own = {key: _number(text, key, value) for key, value in own.items()}
    make: Any = kind
    return cast(Wrapped, make(losses.load(inner, {k.removeprefix(prefix): v for k, v in given.items()}), **own))
