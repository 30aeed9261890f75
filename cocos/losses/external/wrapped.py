"""Losses of one loss: of some negatives of a query, `top_k(ntxent)`, or of fewer dimensions, `matryoshka(ntxent)`.

The gradient of a Matryoshka loss is not that of one matrix of scores: each number of dimensions has a matrix of its
own, and no negative has one weight. So nothing is counted of the sum. `cocos count` shows the dimensions side by side,
and how many negatives contribute at any and at all of them.

Source: Kusupati et al. 2022, Matryoshka Representation Learning, arXiv:2205.13147, eq. 1.
"""

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Real
from typing import Annotated, Any, ClassVar, Self, cast

import torch
from torch import Tensor

from cocos import losses
from cocos.base import ranges
from cocos.base.errors import InputError
from cocos.embeddings.scores import METRICS, Pairs, length
from cocos.losses.external.sum import terms_of, unit_of, weight_of

# Numbers of the choice of negatives; text from the command line is read by them.
AtLeastOne = Annotated[int, ranges.whole(1)]
Margin = Annotated[
    float, ranges.Range("a number above 0", lambda value: isinstance(value, Real) and 0 < value < math.inf)
]


class Wrapped(losses.StatesTraits):
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
    def traits(self) -> losses.Traits:  # type: ignore[override]
        """Traits of the loss, with another name, and without those by which a reader would count it."""
        prefix = _prefix(losses.name_of(self.loss))
        return replace(
            losses.traits(self.loss),
            spelling=self.spelling,
            given=self.own | {f"{prefix}{key}": value for key, value in losses.parameters(self.loss).items()},
            wrapped=self.loss,
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
        if losses.traits(self.loss).reads == "embeddings":
            raise InputError(f"{self.spelling}: {name} reads embeddings, so no negative can be kept from it")
        if self.loss.couples == "candidate":
            raise InputError(
                f"{self.spelling}: the candidates are the anchors of {name}, so its queries have no negatives of their "
                "own to choose from"
            )

    @cached_property
    def traits(self) -> losses.Traits:  # type: ignore[override]
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
        if not isinstance(self.loss, losses.Bindable):
            return self
        return replace(self, loss=self.loss.bind(self.reduced(pairs)))

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), for its positives and the chosen negatives."""
        return self.loss(self.reduced(pairs))

    def weight(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ score, (Q, C): the weights of the loss for the kept pairs, 0 for other negatives."""
        return weight_of(self.loss, self.reduced(pairs))

    def unit_of(self, weights: Tensor, pairs: Pairs) -> Tensor:
        """The unit of weights that are known already: that of the loss for the kept pairs, broadcastable to (Q, C)."""
        return unit_of(self.loss, weights, self.reduced(pairs))

    def unit(self, pairs: Pairs) -> Tensor:
        """Natural size of one weight of the loss for the kept pairs, broadcastable to (Q, C)."""
        return self.loss.unit(self.reduced(pairs))

    def radial(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ norm of the query, (Q,), for the kept pairs; 0 where the loss reads no norms."""
        reduced, reads = self.reduced(pairs), isinstance(self.loss, losses.ReadsNorms)
        return self.loss.radial(reduced) if reads else torch.zeros_like(reduced.scores[:, 0])  # type: ignore[attr-defined]


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


def _truncated_pairs(pairs: Pairs, loss: losses.Loss, dim: int) -> Pairs:
    """Score pairs by the first dimensions of their rows; not checked, so that autograd follows the rows."""
    part = pairs.embeddings
    if part is None:
        raise InputError(
            "matryoshka: the pairs have no embeddings, whose first dimensions it reads; train with "
            "cocos.losses.sides(loss)(query, candidate), or give embeddings="
        )
    if dim > part.query.shape[1]:
        raise InputError(f"matryoshka: dims up to {dim}, and the embeddings have {part.query.shape[1]} dimensions")
    query, candidate = part.query[:, :dim], part.candidate[:, :dim]
    variance = part.candidate_variance
    own = {} if variance is None else {"candidate_variance": variance[:, :dim]}
    score = METRICS[loss.metric]
    more = (own["candidate_variance"],) if loss.metric == "mahalanobis" and own else ()
    if losses.traits(loss).graded and part.grades is not None:  # a pair has one score, which stands in every row
        each = torch.cat([score(a[None], b[None])[0] for a, b in zip(query, candidate, strict=True)])
        scores = each.expand(len(pairs.scores), -1)
    else:
        scores = score(query, candidate, *more)
    rows, norms = part.unchecked(query=query, candidate=candidate, **own), (length(query), length(candidate))
    return pairs.unchecked(scores=scores, query_norm=norms[0], candidate_norm=norms[1], embeddings=rows)


@dataclass(frozen=True)
class Layers(Wrapped):
    """A loss of the first dimensions of the embeddings; the classes below say of how many.

    Args:
        loss: the loss of the scores.
        dims: numbers of dimensions, each above the one before.
        factors: of the loss of each, its parameter `weights`; None: 1.
    """

    loss: losses.Loss
    dims: tuple[int, ...]
    factors: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        dims, factors, traits = self.dims, self.factors, losses.traits(self.loss)
        whole = all(isinstance(dim, int) and not isinstance(dim, bool) and dim > 0 for dim in dims)
        if not dims or not whole or any(b <= a for a, b in itertools.pairwise(dims)):
            given = ", ".join(map(str, dims)) or "none"
            raise InputError(
                f"{self.spelling}: dims must be whole numbers above 0, each above the one before, got {given}"
            )
        if factors is not None and (
            len(factors) != len(dims) or not all(isinstance(w, int | float) and 0 < w < math.inf for w in factors)
        ):
            raise InputError(
                f"{self.spelling}: weights must be {len(dims)} numbers above 0, one for each of dims, got "
                f"{', '.join(map(str, factors))}"
            )
        if traits.reads == "embeddings" or len(traits.directions) > 1:
            reads = "embeddings" if traits.reads == "embeddings" else "scores of further directions"
            raise InputError(
                f"{self.spelling}: {losses.name_of(self.loss)} reads {reads}, so that it cannot read fewer dimensions"
            )

    def factors_and_dims(self) -> list[tuple[float, int]]:
        """List each number of dimensions with its factor."""
        return list(zip(self.factors or (1.0,) * len(self.dims), self.dims, strict=True))

    @classmethod
    def own_names(cls) -> set[str]:
        """Names of its parameters that are not those of the loss."""
        return {"dims", "weights"}

    @property
    def own(self) -> dict[str, Any]:
        """Its numbers of dimensions, and their factors if there are any."""
        return {"dims": self.dims} | ({"weights": self.factors} if self.factors else {})

    @cached_property
    def traits(self) -> losses.Traits:  # type: ignore[override]
        """Traits of the loss; it reads embeddings, and adds up several matrices of scores."""
        of_loss = losses.traits(self.loss)
        return replace(
            super().traits,
            gradient="autograd",
            reads="embeddings",
            own_scores=True,
            share=of_loss.share or ("violations" if of_loss.hinge else None),
            per_positive=False,
            unit_from="natural",
            terms=(),
            notes=(),
        )

    def bind(self, pairs: Pairs) -> "Layers":
        """Settle the loss by a batch of all dimensions that it reads."""
        if not isinstance(self.loss, losses.Bindable):
            return self
        return replace(self, loss=self.loss.bind(_truncated_pairs(pairs, self.loss, self.dims[-1])))

    def _truncations(self, pairs: Pairs) -> list[tuple[float, Pairs]]:
        """List the pairs of each number of dimensions with their factor."""
        return [(c, _truncated_pairs(pairs, self.loss, dim)) for c, dim in self.factors_and_dims()]

    def __call__(self, pairs: Pairs) -> Tensor:
        """Sum of the losses of each query, (Q,)."""
        return torch.stack([c * self.loss(cut) for c, cut in self._truncations(pairs)]).sum(dim=0)

    def shares(self, pairs: Pairs) -> Tensor:
        """Signed share of each pair at each number of dimensions, (dims, Q, C): weight over unit."""
        found = []
        for _, cut in self._truncations(pairs):
            weights = weight_of(self.loss, cut)
            unit = unit_of(self.loss, weights, cut)
            if unit.isnan().any():
                raise InputError(
                    f"{self.spelling}: the natural unit of {losses.name_of(self.loss)} is not known, so that it has no "
                    "shares to compare; give it, -p unit="
                )
            found.append(weights / unit)
        return torch.stack(found)

    def weight(self, pairs: Pairs) -> Tensor:
        """Weights that are counted, (Q, C)."""
        raise NotImplementedError

    def unit(self, pairs: Pairs) -> Tensor:
        """Natural size of one weight, (): 1, for a share."""
        return pairs.scores.new_ones(())


@dataclass(frozen=True)
class Matryoshka(Layers):
    r"""Sum of one loss over the first dimensions of the embeddings, :math:`\sum_d c_d \, \ell(s^{(d)})`."""

    word: ClassVar[str] = "matryoshka"

    def layers(self) -> dict[str, losses.Loss]:
        """List the losses that are counted in its place, by a label for each."""
        name = losses.name_of(self.loss)
        made: dict[str, losses.Loss] = {
            f"{name}, {dim} dimensions": Truncated(self.loss, (dim,), (c,)) for c, dim in self.factors_and_dims()
        }
        made[f"{name}, at any"] = AnyOfDims(self.loss, self.dims, self.factors)
        made[f"{name}, at all"] = AllOfDims(self.loss, self.dims, self.factors)
        return made

    def weight(self, pairs: Pairs) -> Tensor:
        """Refuse: there are weights for each number of dimensions."""
        first = f'"{Truncated.word}({losses.name_of(self.loss)})" -p dims={self.dims[0]}'
        raise InputError(
            f"{self.spelling}: it has a matrix of scores for each of {len(self.dims)} numbers of dimensions, so no "
            f"negative has one weight; cocos count shows them side by side, and --loss {first} is one of them"
        )


@dataclass(frozen=True)
class Truncated(Layers):
    """A loss of the first dimensions of the embeddings, of one number of them."""

    word: ClassVar[str] = "truncated"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.dims) > 1:
            raise InputError(f"{self.spelling}: dims must be one number, got {', '.join(map(str, self.dims))}")

    def weight(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ score of the first dimensions, (Q, C), times the factor."""
        ((factor, cut),) = self._truncations(pairs)
        return factor * weight_of(self.loss, cut)

    def unit(self, pairs: Pairs) -> Tensor:
        """Natural size of one weight of the loss, times the factor, broadcastable to (Q, C)."""
        ((factor, cut),) = self._truncations(pairs)
        return factor * unit_of(self.loss, weight_of(self.loss, cut), cut)


@dataclass(frozen=True)
class AnyOfDims(Layers):
    """Each pair with its largest share over the numbers of dimensions: above eps where it contributes at any."""

    word: ClassVar[str] = "any_of_dims"
    chosen: ClassVar[Callable[..., Tensor]] = torch.argmax

    def weight(self, pairs: Pairs) -> Tensor:
        """Share of the chosen size, with its sign, (Q, C)."""
        shares = self.shares(pairs)
        return shares.gather(0, type(self).chosen(shares.abs(), dim=0, keepdim=True))[0]


@dataclass(frozen=True)
class AllOfDims(AnyOfDims):
    """Each pair with its smallest share over the numbers of dimensions: above eps where it contributes at all."""

    word: ClassVar[str] = "all_of_dims"
    chosen: ClassVar[Callable[..., Tensor]] = torch.argmin


def top_k(loss: Any, k: int) -> losses.TrainingLoss:
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
    return cast(losses.TrainingLoss, TopK(_loss(loss), k))


def skip_k(loss: Any, k: int) -> losses.TrainingLoss:
    """Leave out the k hardest negatives of each query, which may be false negatives, beside `top_k`.

    Args:
        loss: as for `top_k`.
        k: number of negatives that are left out, at least 1; a query with at most k negatives has none left.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.65]]), torch.tensor([[True, False, False]]))
        >>> cocos.losses.skip_k("triplet", 1).weight(pairs)
        tensor([[-1.,  0.,  1.]])
    """
    return cast(losses.TrainingLoss, SkipK(_loss(loss), k))


def semi_hard(loss: Any, margin: float | None = None) -> losses.TrainingLoss:
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
    return cast(losses.TrainingLoss, SemiHard(_loss(loss), margin))


def matryoshka(loss: Any, dims: Sequence[int], weights: Sequence[float] | None = None) -> losses.TrainingLoss:
    """Add up a loss of the first dimensions of the embeddings, for several numbers of dimensions.

    It is `matryoshka(NAME)` for `load` and on the command line, with `-p dims=64,128,256`. It reads `pairs.embeddings`;
    `cocos.losses.sides(loss)` trains with it, and `cocos.measures.count` shows each number of dimensions, and which
    negatives contribute at any and at all of them.

    Args:
        loss: a loss of scores, its name, or a function of yours.
        dims: numbers of dimensions, each above the one before.
        weights: factor of each; None: 1, as in the paper.

    Examples:
        In the first dimension both candidates agree with both queries; in two only their own do:

        >>> rows = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
        >>> loss = cocos.losses.matryoshka(cocos.losses.load("ntxent", {"temperature": 1}), dims=(1, 2))
        >>> cocos.losses.sides(loss)(rows, rows)  # ln 2 + ln(1 + 1/e)
        tensor(1.0064)
    """
    factors = None if weights is None else tuple(weights)
    return cast(losses.TrainingLoss, Matryoshka(_loss(loss), tuple(dims), factors))


def _loss(loss: Any) -> losses.Loss:
    return losses.load(loss) if isinstance(loss, str) else losses.of(loss)


LOSSES_OF_ONE_LOSS: dict[str, type[Wrapped]] = {
    kind.word: kind for kind in (TopK, SkipK, SemiHard, Matryoshka, Truncated, AnyOfDims, AllOfDims)
}


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


def _numbers(text: str, key: str, value: Any, kind: type) -> tuple[Any, ...]:
    """Read numbers of dimensions or factors, from numbers or from text with commas."""
    given = value if isinstance(value, list | tuple) else str(value).strip("()[] ").split(",")
    try:
        return tuple(kind(str(each)) for each in given if str(each).strip())
    except (TypeError, ValueError):
        said = "whole numbers" if kind is int else "numbers"
        raise InputError(f"{text}: {key} must be {said} separated by commas, got {value!r}") from None


def load(text: str, parameters: dict[str, Any]) -> Wrapped:
    """Build the loss: its own parameters are those of the word; others belong to the loss in it."""
    kind, inner = _class_and_inner(text)
    given, prefix = qualified(text, parameters), _prefix(inner)
    own = {key: given.pop(key) for key in kind.own_names() & given.keys()}
    if "k" in kind.own_names() - own.keys():
        raise InputError(f"{text}: give k, the number of negatives that a query keeps or skips, like -p k=16")
    if "dims" in kind.own_names() - own.keys():
        raise InputError(f"{text}: give dims, the numbers of dimensions, like -p dims=64,128,256")
    if issubclass(kind, Layers):
        dims, factors = _numbers(text, "dims", own["dims"], int), own.get("weights")
        own = {"dims": dims}
        own["factors"] = None if factors in {None, "none"} else _numbers(text, "weights", factors, float)
    else:
        own = {key: _number(text, key, value) for key, value in own.items()}
    make: Any = kind
    return cast(Wrapped, make(losses.load(inner, {k.removeprefix(prefix): v for k, v in given.items()}), **own))
