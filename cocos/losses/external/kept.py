"""Losses of some of a query's negatives: `top_k(ntxent)` keeps the k hardest, `random_k(ntxent)` k random ones."""

import re
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor

from cocos import losses
from cocos.errors import InputError
from cocos.losses._calls import takes_tensors
from cocos.losses.external import sum as sums
from cocos.scores import Pairs

# Odd multipliers of seed, step, row and column, whose sum modulo 2^64 is the counter of a pair.
COUNTERS = (0xD1B54A32D192ED03, 0xAEF17502108EF2D9, 0x9E3779B97F4A7C15, 0xF1357AEA2E62A9C5)
# Shifts (bits) and multipliers of the finaliser of splitmix64 (Steele et al. 2014), which makes a counter random.
FINALISER = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
# Largest int64, above every key of a negative.
LARGEST_KEY = 2**63 - 1


@takes_tensors
@dataclass(frozen=True)
class KeptNegatives:
    """A loss of pairs of which only k negatives of each query take part; the two below choose them.

    Args:
        loss: the loss of the kept pairs.
        k: negatives of a query that are kept, at least 1; all, where it has fewer.

    Raises:
        InputError: a number out of range, or a loss in which queries have no negatives of their own.
    """

    loss: losses.Loss
    k: int
    word: ClassVar[str]
    draws: ClassVar[bool] = False

    def __post_init__(self) -> None:
        name = losses.name_of(self.loss)
        for key, value in self.own.items():
            least = int(key == "k")
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise InputError(f"{self.spelling}: {key} must be a whole number of at least {least}, got {value!r}")
        if losses.traits(self.loss).reads == "embeddings":
            raise InputError(f"{self.spelling}: {name} reads embeddings, so no negative can be kept from it")
        if self.loss.couples == "candidate":
            raise InputError(
                f"{self.spelling}: the candidates are the anchors of {name}, so its queries have no negatives of their "
                "own to choose from"
            )

    def negatives(self, pairs: Pairs) -> Tensor:
        """Negatives that take part, (Q, C) bool."""
        raise NotImplementedError

    def kept(self, pairs: Pairs) -> Pairs:
        """The same pairs, in which the negatives that were not chosen take no part."""
        return pairs.with_negative(self.negatives(pairs))

    @property
    def own(self) -> dict[str, Any]:
        """Parameters of the choice."""
        return {field.name: getattr(self, field.name) for field in fields(self)[1:]}

    @property
    def spelling(self) -> str:
        """Its name for `cocos.losses.load`."""
        return f"{self.word}({losses.name_of(self.loss)})"

    @property
    def given(self) -> dict[str, Any]:
        """Parameters of the choice, and parameters of the loss with its name before each."""
        head = _head(losses.name_of(self.loss))
        return self.own | {f"{head}{key}": value for key, value in losses.parameters(self.loss).items()}

    @property
    def wrapped(self) -> losses.Loss:
        """The loss of the kept pairs."""
        return self.loss

    @property
    def metric(self) -> str:
        """Scores that the loss reads."""
        return self.loss.metric

    @property
    def couples(self) -> str:
        """`query`, or `batch` where the loss couples queries."""
        return self.loss.couples

    @property
    def gradient(self) -> str:
        """That of the loss; none flows through the choice."""
        return self.loss.gradient

    @property
    def balanced(self) -> bool:
        """Whether the loss is."""
        return self.loss.balanced

    @property
    def sample(self) -> str:
        """How the loss draws its batches."""
        return self.loss.sample

    @property
    def matching(self) -> str | None:
        """Source of the positives of the loss."""
        return losses.traits(self.loss).matching

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the loss."""
        return losses.traits(self.loss).notes

    @property
    def share(self) -> str | None:
        """Meaning of a share of the loss."""
        return losses.traits(self.loss).share

    @property
    def per_positive(self) -> bool:
        """Whether the unit of the loss grows with the number of positives."""
        return losses.traits(self.loss).per_positive

    @property
    def unit_from(self) -> str:
        """Where the unit of the loss comes from."""
        return losses.traits(self.loss).unit_from

    @property
    def terms(self) -> tuple[tuple[float, losses.Loss], ...]:
        """Terms of a sum, each with the same choice."""
        return tuple((c, replace(self, loss=term)) for c, term in losses.traits(self.loss).terms)

    def bind(self, pairs: Pairs) -> Self:
        """The same choice for a loss that has seen a batch."""
        return replace(self, loss=self.loss.bind(self.kept(pairs))) if isinstance(self.loss, losses.Bindable) else self

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), for its positives and the chosen negatives."""
        return self.loss(self.kept(pairs))

    def weight(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ score, (Q, C): the weights of the loss for the kept pairs, 0 for other negatives."""
        return sums.weight_of(self.loss, self.kept(pairs))

    def unit_of(self, weights: Tensor, pairs: Pairs) -> Tensor:
        """The unit of weights that are known already: that of the loss for the kept pairs, broadcastable to (Q, C)."""
        kept = self.kept(pairs)
        return self.loss.unit_of(weights, kept) if isinstance(self.loss, losses.UnitOfWeights) else self.loss.unit(kept)

    def unit(self, pairs: Pairs) -> Tensor:
        """Natural size of one weight of the loss for the kept pairs, broadcastable to (Q, C)."""
        return self.loss.unit(self.kept(pairs))

    def radial(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ norm of the query, (Q,), for the kept pairs; 0 where the loss reads no norms."""
        kept = self.kept(pairs)
        return (
            self.loss.radial(kept) if isinstance(self.loss, losses.ReadsNorms) else torch.zeros_like(kept.scores[:, 0])
        )


@dataclass(frozen=True)
class TopK(KeptNegatives):
    """A loss of the k hardest negatives of each query: those with the highest scores, of equal ones the first.

    No gradient flows through the choice. With k = 1 the triplet loss is Triplet-SH.
    """

    word: ClassVar[str] = "top_k"

    def negatives(self, pairs: Pairs) -> Tensor:
        """The k hardest negatives of each query, (Q, C) bool."""
        scores = pairs.scores.detach().masked_fill(~pairs.negative, -torch.inf)
        if self.k >= scores.shape[1]:
            return pairs.negative
        bar = scores.topk(self.k, dim=1, sorted=False).values.amin(dim=1, keepdim=True)
        above, level = scores > bar, (scores == bar) & pairs.negative
        return above | (level & (level.cumsum(dim=1) <= self.k - above.sum(dim=1, keepdim=True)))


@dataclass(frozen=True)
class RandomK(KeptNegatives):
    """A loss of k random negatives of each query, all subsets being equally likely.

    The choice depends on the seed, on the step, and on the rows and columns of the pairs, and on nothing else: the same
    on every device and in every dtype. In a training each step takes its own: `loss.at(step)(scores, positive)`.

    Args:
        seed: of the choice.
        step: number of the draw.
    """

    seed: int = 0
    step: int = 0
    word: ClassVar[str] = "random_k"
    draws: ClassVar[bool] = True

    def at(self, step: int) -> losses.TrainingLoss:
        """The same loss with the draw of another step."""
        return cast(losses.TrainingLoss, replace(self, step=step))

    def negatives(self, pairs: Pairs) -> Tensor:
        """The k random negatives of each query, (Q, C) bool."""
        if self.k >= pairs.scores.shape[1]:
            return pairs.negative
        row, column = (torch.arange(number, device=pairs.scores.device) for number in pairs.scores.shape)
        of_seed, of_step, of_row, of_column = map(_signed, COUNTERS)
        start = _signed(int(self.seed) * of_seed + int(self.step) * of_step)
        key = (start + row * of_row)[:, None] + column * of_column
        for shift, factor in FINALISER:
            key = (key ^ ((key >> shift) & (2 ** (64 - shift) - 1))) * _signed(factor)  # int64 shifts keep the sign
        key = key.masked_fill(~pairs.negative, LARGEST_KEY)
        return pairs.negative & (key <= key.topk(self.k, dim=1, largest=False).values[:, -1:])


def top_k(loss: Any, k: int) -> losses.TrainingLoss:
    """Keep the k hardest negatives of each query: those with the highest scores, of equal ones the first.

    The others get no weight, so that the loss has the weights and the unit of the reduced pairs. It is `top_k(NAME)`
    for `load` and on the command line.

    Args:
        loss: a loss, its name, or a function of yours. One that couples the queries of a batch takes the k hardest of
            each of them; one whose anchors are the candidates, or that reads embeddings, is refused.
        k: at least 1; a query with fewer negatives keeps all.

    Raises:
        InputError: a loss or a number that cannot be used.

    Examples:
        The hardest negative of the triplet loss is that of Triplet-SH:

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.65]]), torch.tensor([[True, False, False]]))
        >>> cocos.losses.top_k("triplet", 1).weight(pairs)
        tensor([[-1.,  1.,  0.]])
        >>> cocos.losses.name_of(cocos.losses.top_k("ntxent", 16))
        'top_k(ntxent)'
    """
    return cast(losses.TrainingLoss, TopK(_loss(loss), k))


def random_k(loss: Any, k: int, seed: int = 0) -> RandomK:
    """Keep k random negatives of each query, beside `top_k`.

    The choice depends on the seed, the step, and the rows and columns of the pairs: the same Pairs get the same choice,
    and each step of a training its own by `loss.at(step)`.

    Args:
        loss: as for `top_k`.
        k: at least 1; a query with fewer negatives keeps all.
        seed: of the choice.

    Raises:
        InputError: a loss or a number that cannot be used.

    Examples:
        >>> pairs = cocos.Pairs(torch.zeros(4, 9), torch.eye(4, 9, dtype=torch.bool))
        >>> loss = cocos.losses.random_k("triplet", 3, seed=1)
        >>> [int((loss.at(step).weight(pairs) > 0).sum()) for step in (0, 1)]  # 3 for each of 4 queries
        [12, 12]
        >>> bool((loss.at(0).weight(pairs) == loss.at(1).weight(pairs)).all())
        False
    """
    return RandomK(_loss(loss), k, seed)


def _loss(loss: Any) -> losses.Loss:
    return losses.load(loss) if isinstance(loss, str) else losses.of(loss)


def _signed(number: int) -> int:
    """The int64 with the lowest 64 bits of a whole number."""
    return (number + 2**63) % 2**64 - 2**63


CHOICES_OF_NEGATIVES = {wrapper.word: wrapper for wrapper in (TopK, RandomK)}


def parted(text: str) -> tuple[type[KeptNegatives], str] | None:
    """The wrapper and the text of the loss in it, `top_k(LOSS)`; None for any other text."""
    found = re.fullmatch(r"([a-z]+[-_]k)\s*\((.*)\)", text.strip(), re.IGNORECASE)
    wrapper = CHOICES_OF_NEGATIVES.get(found[1].lower().replace("-", "_")) if found else None
    if not (found and wrapper):
        return None
    depths = [found[2][: end + 1].count("(") - found[2][: end + 1].count(")") for end in range(len(found[2]))]
    return (wrapper, found[2].strip()) if min(depths, default=0) >= 0 else None


def _parts(text: str) -> tuple[type[KeptNegatives], str]:
    """The wrapper and the canonical name of the loss in it.

    Raises:
        InputError: there is no such loss, or its name implies parameters, which a name in parentheses cannot.
    """
    wrapper, name = cast(tuple[type[KeptNegatives], str], parted(text))
    inner = losses.canonical(name)
    if own := losses.brought(name):
        key = next(iter(own))
        raise InputError(
            f"loss {text!r}: {name} is {inner} with a {key} of its own; write {wrapper.word}({inner}) and "
            f"-p {key}={own[key]}"
        )
    return wrapper, inner


def _head(name: str) -> str:
    """Words before each parameter of a loss; the parameters of a sum have the names of its terms already."""
    return "" if sums.terms_of(name) else f"{name}."


def _chosen(wrapper: type[KeptNegatives]) -> set[str]:
    return {field.name for field in fields(wrapper)} - {"loss"}


def canonical(text: str) -> str:
    """The spelling as `KeptNegatives.spelling` writes it."""
    wrapper, inner = _parts(text)
    return f"{wrapper.word}({inner})"


def known(text: str) -> set[str] | None:
    """Names of the parameters of the choice, and of the loss with its name before each; None: any."""
    wrapper, inner = _parts(text)
    found = losses.known(inner)
    return None if found is None else _chosen(wrapper) | {f"{_head(inner)}{key}" for key in found}


def qualified(text: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters as `KeptNegatives.given` names them.

    Raises:
        InputError: a parameter is given twice.
    """
    wrapper, inner = _parts(text)
    head, found = _head(inner), {}
    for key, value in parameters.items():
        own = key in _chosen(wrapper)
        settled = {key: value} if own else losses.qualified(inner, {key.removeprefix(head): value})
        for name, number in settled.items():
            place = name if own else f"{head}{name}"
            if place in found:
                raise InputError(f"parameter {place} of {text} is given twice")
            found[place] = number
    return found


def _whole(text: str, key: str, value: Any) -> int:
    """A parameter of the choice, from a number or from text.

    Raises:
        InputError: it is no whole number.
    """
    try:
        return int(str(value))
    except ValueError:
        raise InputError(f"{text}: {key} must be a whole number, got {value!r}") from None


def load(text: str, parameters: dict[str, Any]) -> KeptNegatives:
    """Build the loss and its choice: `k` and, for `random_k`, `seed` and `step`; others are parameters of the loss.

    Raises:
        InputError: a loss or a parameter that cannot be used, or no `k`.
    """
    wrapper, inner = _parts(text)
    given = qualified(text, parameters)
    own = {key: _whole(text, key, given.pop(key)) for key in _chosen(wrapper) & given.keys()}
    if "k" not in own:
        raise InputError(f"{text}: give k, the number of negatives that a query keeps, like -p k=16")
    head = _head(inner)
    return wrapper(losses.load(inner, {key.removeprefix(head): value for key, value in given.items()}), **own)
