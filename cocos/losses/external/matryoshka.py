"""Matryoshka losses: one loss of the first dimensions of the embeddings, for several numbers of them, added up.

The gradient of such a loss is not that of one matrix of scores: each number of dimensions has a matrix of its own, and
no negative has one weight. So nothing is counted of the sum. `cocos count` shows the dimensions side by side, and how
many negatives contribute at any and at all of them.

Source: Kusupati et al. 2022, Matryoshka Representation Learning, arXiv:2205.13147, eq. 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError
from cocos.embeddings.scores import METRICS, Pairs, length
from cocos.losses._calls import takes_tensors
from cocos.losses.external import sum as sums
from cocos.losses.external._wrapped import OfItsLoss, Spellings, head_of


def _cut(pairs: Pairs, loss: losses.Loss, dim: int) -> Pairs:
    """The pairs as the first dimensions of their rows score them; not checked, so that autograd follows the rows."""
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
    cut, rows = object.__new__(Pairs), object.__new__(type(part))
    rows.__dict__.update(part.__dict__ | own, query=query, candidate=candidate)
    norms = {"query_norm": length(query), "candidate_norm": length(candidate)}
    cut.__dict__.update(pairs.__dict__, scores=scores, embeddings=rows, **norms)
    return cut


def _checked(spelling: str, loss: losses.Loss, dims: Sequence[int], weights: Sequence[float] | None) -> None:
    """Refuse numbers that cannot be used."""
    whole = all(isinstance(dim, int) and not isinstance(dim, bool) and dim > 0 for dim in dims)
    if not dims or not whole or any(b <= a for a, b in zip(dims, dims[1:], strict=False)):
        given = ", ".join(map(str, dims)) or "none"
        raise InputError(f"{spelling}: dims must be whole numbers above 0, each above the one before, got {given}")
    if weights is not None and (
        len(weights) != len(dims) or not all(isinstance(w, int | float) and 0 < w < math.inf for w in weights)
    ):
        given = ", ".join(map(str, weights))
        raise InputError(f"{spelling}: weights must be {len(dims)} numbers above 0, one for each of dims, got {given}")
    traits = losses.traits(loss)
    if traits.reads == "embeddings" or len(traits.directions) > 1:
        reads = "embeddings" if traits.reads == "embeddings" else "scores of further directions"
        raise InputError(f"{spelling}: {losses.name_of(loss)} reads {reads}, so that it cannot read fewer dimensions")


@takes_tensors
@dataclass(frozen=True)
class Layers(OfItsLoss):
    """A loss of the first dimensions of the embeddings; the classes below say of how many.

    Args:
        loss: the loss of the scores.
        dims: numbers of dimensions, each above the one before.
        factors: of the loss of each, its parameter `weights`; None: 1.

    Raises:
        InputError: a number that cannot be used, or a loss that does not read scores of queries with candidates.
    """

    loss: losses.Loss
    dims: tuple[int, ...]
    factors: tuple[float, ...] | None = None
    word: ClassVar[str]
    reads: ClassVar[str] = "embeddings"
    own_scores: ClassVar[bool] = True
    gradient: ClassVar[str] = "autograd"

    def __post_init__(self) -> None:
        _checked(self.spelling, self.loss, self.dims, self.factors)

    def of_each(self) -> list[tuple[float, int]]:
        """Factor of each number of dimensions."""
        return list(zip(self.factors or (1.0,) * len(self.dims), self.dims, strict=True))

    @property
    def spelling(self) -> str:
        """Its name for `cocos.losses.load`."""
        return f"{self.word}({losses.name_of(self.loss)})"

    @property
    def given(self) -> dict[str, Any]:
        """Its parameters, and parameters of the loss with its name before each."""
        head = head_of(losses.name_of(self.loss))
        own: dict[str, Any] = {"dims": self.dims} | ({"weights": self.factors} if self.factors else {})
        return own | {f"{head}{key}": value for key, value in losses.parameters(self.loss).items()}

    @property
    def share(self) -> str | None:
        """Meaning of a share of the loss."""
        own = losses.traits(self.loss)
        return own.share or ("violations" if own.hinge else None)

    def bind(self, pairs: Pairs) -> "Layers":
        """The same for a loss that has seen a batch of all dimensions that it reads."""
        if not isinstance(self.loss, losses.Bindable):
            return self
        return replace(self, loss=self.loss.bind(_cut(pairs, self.loss, self.dims[-1])))

    def _each(self, pairs: Pairs) -> list[tuple[float, Pairs]]:
        """Factor and pairs of each number of dimensions."""
        return [(c, _cut(pairs, self.loss, dim)) for c, dim in self.of_each()]

    def __call__(self, pairs: Pairs) -> Tensor:
        """Sum of the losses of each query, (Q,)."""
        return torch.stack([c * self.loss(cut) for c, cut in self._each(pairs)]).sum(dim=0)

    def shares(self, pairs: Pairs) -> Tensor:
        """Signed share of each pair at each number of dimensions, (dims, Q, C): weight over unit.

        Raises:
            InputError: the unit of the loss is not known.
        """
        found = []
        for _, cut in self._each(pairs):
            weights = sums.weight_of(self.loss, cut)
            known = isinstance(self.loss, losses.UnitOfWeights)
            unit = self.loss.unit_of(weights, cut) if known else self.loss.unit(cut)  # type: ignore[attr-defined]
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
            f"{name}, {dim} dimensions": Truncated(self.loss, (dim,), (c,)) for c, dim in self.of_each()
        }
        made[f"{name}, at any"] = AnyOfDims(self.loss, self.dims, self.factors)
        made[f"{name}, at all"] = AllOfDims(self.loss, self.dims, self.factors)
        return made

    def weight(self, pairs: Pairs) -> Tensor:
        """Refuse: there are weights for each number of dimensions.

        Raises:
            InputError: always.
        """
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
        ((factor, cut),) = self._each(pairs)
        return factor * sums.weight_of(self.loss, cut)

    def unit(self, pairs: Pairs) -> Tensor:
        """Natural size of one weight of the loss, times the factor, broadcastable to (Q, C)."""
        ((factor, cut),) = self._each(pairs)
        known = isinstance(self.loss, losses.UnitOfWeights)
        unit = self.loss.unit_of(sums.weight_of(self.loss, cut), cut) if known else self.loss.unit(cut)  # type: ignore[attr-defined]
        return cast(Tensor, factor * unit)


@dataclass(frozen=True)
class AnyOfDims(Layers):
    """Each pair with its largest share over the numbers of dimensions: above eps where it contributes at any."""

    word: ClassVar[str] = "any_of_dims"

    def weight(self, pairs: Pairs) -> Tensor:
        """Share of the largest size, with its sign, (Q, C)."""
        shares = self.shares(pairs)
        return shares.gather(0, shares.abs().argmax(dim=0, keepdim=True))[0]


@dataclass(frozen=True)
class AllOfDims(Layers):
    """Each pair with its smallest share over the numbers of dimensions: above eps where it contributes at all."""

    word: ClassVar[str] = "all_of_dims"

    def weight(self, pairs: Pairs) -> Tensor:
        """Share of the smallest size, with its sign, (Q, C)."""
        shares = self.shares(pairs)
        return shares.gather(0, shares.abs().argmin(dim=0, keepdim=True))[0]


NESTED_LOSSES: dict[str, type[Layers]] = {kind.word: kind for kind in (Matryoshka, Truncated, AnyOfDims, AllOfDims)}


def matryoshka(loss: Any, dims: Sequence[int], weights: Sequence[float] | None = None) -> losses.TrainingLoss:
    """Add up a loss of the first dimensions of the embeddings, for several numbers of dimensions.

    It is `matryoshka(NAME)` for `load` and on the command line, with `-p dims=64,128,256`. It reads `pairs.embeddings`;
    `cocos.losses.sides(loss)` trains with it, and `cocos.measures.count` shows each number of dimensions, and which
    negatives contribute at any and at all of them.

    Args:
        loss: a loss of scores, its name, or a function of yours.
        dims: numbers of dimensions, each above the one before.
        weights: factor of each; None: 1, as in the paper.

    Raises:
        InputError: a loss or a number that cannot be used.

    Examples:
        In the first dimension both candidates agree with both queries; in two only their own do:

        >>> rows = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
        >>> loss = cocos.losses.matryoshka(cocos.losses.load("ntxent", {"temperature": 1}), dims=(1, 2))
        >>> cocos.losses.sides(loss)(rows, rows)  # ln 2 + ln(1 + 1/e)
        tensor(1.0064)
    """
    made = losses.load(loss) if isinstance(loss, str) else losses.of(loss)
    return cast(losses.TrainingLoss, Matryoshka(made, tuple(dims), None if weights is None else tuple(weights)))


SPELLINGS_OF_LAYERS = Spellings[Layers](NESTED_LOSSES, lambda _: {"dims", "weights"})
parted, canonical = SPELLINGS_OF_LAYERS.parted, SPELLINGS_OF_LAYERS.canonical
known, qualified = SPELLINGS_OF_LAYERS.known, SPELLINGS_OF_LAYERS.qualified


def _numbers(text: str, key: str, value: Any, kind: type) -> tuple[Any, ...]:
    """Numbers of a parameter, from numbers or from text with commas."""
    given = value if isinstance(value, list | tuple) else str(value).strip("()[] ").split(",")
    try:
        return tuple(kind(str(each)) for each in given if str(each).strip())
    except (TypeError, ValueError):
        said = "whole numbers" if kind is int else "numbers"
        raise InputError(f"{text}: {key} must be {said} separated by commas, got {value!r}") from None


def load(text: str, parameters: dict[str, Any]) -> Layers:
    """Build the loss: `dims` and `weights`; others are parameters of the loss.

    Raises:
        InputError: a loss or a parameter that cannot be used, or no `dims`.
    """
    kind, inner = SPELLINGS_OF_LAYERS.parts(text)
    given, head = qualified(text, parameters), head_of(inner)
    if "dims" not in given:
        raise InputError(f"{text}: give dims, the numbers of dimensions, like -p dims=64,128,256")
    dims = _numbers(text, "dims", given.pop("dims"), int)
    weights = given.pop("weights", None)
    factors = None if weights in {None, "none"} else _numbers(text, "weights", weights, float)
    return kind(losses.load(inner, {key.removeprefix(head): value for key, value in given.items()}), dims, factors)
