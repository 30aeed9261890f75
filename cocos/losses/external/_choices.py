"""Wrappers of a loss that choose which negatives of a query take part: the hardest, random ones and others."""

import math
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError
from cocos.embeddings.scores import Pairs
from cocos.losses._calls import takes_tensors
from cocos.losses.external import sum as sums
from cocos.losses.external._wrapped import OfItsLoss, head_of

# Odd multipliers of seed, step, row and column, whose sum modulo 2^64 is the counter of a pair.
COUNTERS = (0xD1B54A32D192ED03, 0xAEF17502108EF2D9, 0x9E3779B97F4A7C15, 0xF1357AEA2E62A9C5)
# Shifts (bits) and multipliers of the finaliser of splitmix64 (Steele et al. 2014), which makes a counter random.
FINALISER = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
# Largest int64, above every key of a negative.
LARGEST_KEY = 2**63 - 1


@takes_tensors
@dataclass(frozen=True)
class KeptNegatives(OfItsLoss):
    """A loss of pairs of which only some negatives of each query take part; the classes below choose them.

    Args:
        loss: the loss of the kept pairs.
    """

    loss: losses.Loss
    word: ClassVar[str]
    draws: ClassVar[bool] = False

    def __post_init__(self) -> None:
        name = losses.name_of(self.loss)
        for key, value in self.own.items():
            if key == "margin":
                if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                    raise InputError(f"{self.spelling}: margin must be a number above 0, or None, got {value!r}")
                continue
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
        head = head_of(losses.name_of(self.loss))
        return self.own | {f"{head}{key}": value for key, value in losses.parameters(self.loss).items()}

    @property
    def gradient(self) -> str:
        """That of the loss; none flows through the choice."""
        return self.loss.gradient

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

    Args:
        k: negatives of a query that are kept, at least 1; all, where it has fewer.
    """

    k: int
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
        k: negatives of a query that are kept, at least 1; all, where it has fewer.
        seed: of the choice.
        step: number of the draw.
    """

    k: int
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


@dataclass(frozen=True)
class SkipK(KeptNegatives):
    """A loss of all negatives of each query but the k hardest, which may be false negatives.

    Args:
        k: negatives of a query that are left out, at least 1: those with the highest scores, of equal ones the first.
    """

    k: int
    word: ClassVar[str] = "skip_k"

    def negatives(self, pairs: Pairs) -> Tensor:
        """All negatives of each query but the k hardest, (Q, C) bool."""
        return pairs.negative & ~TopK(self.loss, self.k).negatives(pairs)


@dataclass(frozen=True)
class SemiHard(KeptNegatives):
    r"""A loss of the negatives that score below a positive p of their query, :math:`s_p - m < s_n < s_p`.

    A negative of a query with several positives is kept where this is true of any of them. No gradient flows through
    the choice.

    Args:
        margin: m, in units of score, above 0; None: no lower bound, for losses that have a margin of their own.

    Source: Schroff et al. 2015, arXiv:1503.03832, eq. 4; the loss decides what the kept negatives weigh.
    """

    margin: float | None = None
    word: ClassVar[str] = "semi_hard"

    def negatives(self, pairs: Pairs) -> Tensor:
        """The negatives between a positive less the margin and this positive, both excluded, (Q, C) bool."""
        scores, kept = pairs.scores.detach(), torch.zeros_like(pairs.negative)
        reach = torch.inf if self.margin is None else self.margin
        for index, filled in zip(*(part.split(1, dim=1) for part in pairs.slots()), strict=True):
            positive = scores.gather(1, index)
            kept |= filled & (scores < positive) & (scores > positive - reach)
        return kept & pairs.negative


def _signed(number: int) -> int:
    """The int64 with the lowest 64 bits of a whole number."""
    return (number + 2**63) % 2**64 - 2**63
