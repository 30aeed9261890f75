"""A user's callable that reads scores or Pairs, as a loss."""

import contextlib
import copy
import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocos.base.errors import InputError, Unfit
from cocos.embeddings.scores import Pairs
from cocos.losses._calls import takes_tensors
from cocos.losses.external import units
from cocos.losses.external.cut import seeded
from cocos.losses.external.guard import (
    DETACHED,
    checked,
    finite,
    gradient,
    guarded,
    measured,
    reduced,
    shown,
)
from cocos.losses.external.signature import named, signature_of


@dataclass(frozen=True, eq=False)
class Told:
    """A user's callable with its own parameters, and the values it receives: role -> name or place of a parameter."""

    spelling: str
    target: Any
    roles: dict[str, str]
    given: dict[str, Any]

    def __call__(self, told: dict[str, Any], like: Tensor) -> Any:
        """Its result for these values of the roles, one loss per query where it can be had.

        A module is moved to the device and the dtype of `like`, (Q, ...).
        """
        values = {name: told[role] for role, name in self.roles.items()}
        positional = [values[str(i)] for i in range(len(values)) if str(i) in values]
        keywords = {name: value for name, value in values.items() if not name.isdigit()} | self.given
        if self.reduction:
            none = {} if isinstance(self.target, torch.nn.Module) else {"reduction": "none"}
            with contextlib.suppress(Exception):  # an error shows below, in the call as it was given
                result = self._fresh(like, reduction="none")(*positional, **keywords, **none)
                if isinstance(result, Tensor) and tuple(result.shape) == (len(like),):
                    return result
        return self._fresh(like)(*positional, **keywords)

    @property
    def reduction(self) -> str | None:
        """Reduction that a module or function declares, "mean" or "sum"; None without one, or if the user chose it."""
        if isinstance(self.target, torch.nn.Module):
            found = getattr(self.target, "reduction", None)
        else:
            parameter = named(signature_of(self.target)).get("reduction")
            found = None if parameter is None or "reduction" in self.given else parameter.default
        return found if found in {"mean", "sum"} else None

    def _fresh(self, like: Tensor, reduction: str | None = None) -> Any:
        """A copy of a module, since it may keep state between calls; anything else is returned as it is."""
        if not isinstance(self.target, torch.nn.Module):
            return self.target
        module: Any = copy.deepcopy(self.target).to(device=like.device, dtype=like.dtype)
        if reduction:
            module.reduction = reduction
        return module


@takes_tensors
@dataclass(frozen=True, eq=False)
class OfScores:
    """A loss of the user's that reads scores or Pairs.

    Args:
        spelling: its name for `cocos.losses.load`.
        given: the parameters that were given.
        call: the callable and the values it receives.
        target: where `metric`, `couples`, `weight`, `unit` and the like are looked for: an object of the protocol
            `cocos.losses.Loss` has them, a function may have some.
        metric_: of the scores; None: that of the target, or cosine.
        unit_: natural size of one weight; None: that of the target, or measured.
        notes: remarks for the user, one sentence each.
        form: of `cocos.units`, that its weights have on the first batch; None: none.
    """

    spelling: str
    given: dict[str, Any]
    call: Told
    target: Any
    metric_: str | None = None
    unit_: float | None = None
    notes: tuple[str, ...] = ()
    form: str | None = None
    weights: ClassVar[str] = "score"

    def __repr__(self) -> str:
        return shown(self.spelling, self.given)

    @property
    def metric(self) -> str:
        """Of the scores that it reads."""
        return str(self.metric_ or getattr(self.target, "metric", "cosine"))

    @property
    def couples(self) -> str:
        """Whether queries share terms: as the target says, else they may."""
        return str(getattr(self.target, "couples", "batch"))

    @property
    def gradient(self) -> str:
        """As the target says; "autograd" for one without a closed form."""
        return str(getattr(self.target, "gradient", "exact" if self._closed else "autograd"))

    @property
    def balanced(self) -> bool:
        """As the target says."""
        return bool(getattr(self.target, "balanced", False))

    @property
    def sample(self) -> str:
        """As the target says, else pairs."""
        return str(getattr(self.target, "sample", "pairs"))

    @property
    def matching(self) -> str | None:
        """By rows if it receives no negatives: it then takes every other pair for a negative."""
        roles = self.call.roles
        return "rows" if "scores" in roles and "negative" not in roles else None

    @property
    def unit_from(self) -> str:
        """Where the unit comes from: `given`, `own`, the form of the weights, or `unknown`."""
        if self.unit_ is not None:
            return "given"
        return "own" if callable(getattr(self.target, "unit", None)) else self.form or "unknown"

    @property
    def share(self) -> str | None:
        """Meaning of a share, as the target declares, or as the form of its weights has it."""
        return getattr(self.target, "share", None) if self.unit_from == "own" else units.SHARES.get(self.unit_from)

    @property
    def per_positive(self) -> bool:
        """As the target says: its unit has the number of positives in it."""
        return self.unit_from == "own" and bool(getattr(self.target, "per_positive", False))

    @property
    def _closed(self) -> bool:
        return callable(getattr(self.target, "weight", None))

    def bind(self, pairs: Pairs) -> "OfScores":
        """Return the same loss with notes from a first batch; other faults show when it is weighed.

        Raises:
            InputError: it has no gradient.
        """
        notes = []
        try:
            # In another order, so that hinges are unlikely to be inactive.
            value = self._value(pairs.with_scores(pairs.scores.detach().flip(1).requires_grad_()))
        except InputError:
            return self
        if not value.requires_grad and not self._closed:
            raise InputError(f"{self.spelling}: {DETACHED}")
        if self.gradient == "autograd":
            notes.append(f"its weights are of {self.metric.replace('_', ' ')} scores, by autograd")
        notes += reduced(value, self.call.reduction)
        form = None
        if self.unit_from not in {"given", "own"}:
            with contextlib.suppress(InputError):  # said where it is weighed
                form, note = measured(self.weight(pairs), pairs)
                notes.append(note)
        return dataclasses.replace(self, notes=tuple(notes), form=form)

    def _told(self, pairs: Pairs) -> dict[str, Any]:
        """Values of its roles; pairs that take no part are removed if it receives no negatives."""
        roles = self.call.roles
        if "pairs" in roles:
            return {"pairs": pairs}
        if "negative" in roles:
            masks = {"positive": pairs.positive.clone(), "negative": pairs.negative.clone()}  # it may write into them
            return {"scores": pairs.scores, **masks}
        scores, positive, known = pairs.scores, pairs.positive.clone(), pairs.positive | pairs.negative
        if "positive" not in roles:
            square = scores.shape[0] == scores.shape[1]
            if not square or not torch.equal(positive, torch.eye(len(scores), dtype=torch.bool, device=scores.device)):
                raise Unfit(
                    f"{self.spelling}: it receives scores alone, so query i must match candidate i and no other, and "
                    "here it does not; draw pairs of two sides (--sample pairs), or let it take (scores, positive)"
                )
        counts = known.sum(dim=1)
        if not (counts == counts[0]).all():
            raise Unfit(
                f"{self.spelling}: it receives no negatives, and some pairs are neither positive nor negative; "
                "let it take (scores, positive, negative)"
            )
        if not known.all():  # as a sample and itself in a labelled set
            place = known.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(counts[0])]
            scores, positive = scores.gather(1, place), positive.gather(1, place)
        return {"scores": scores, "positive": positive}

    def _value(self, pairs: Pairs) -> Tensor:
        """The loss, (Q,) or (), a known mean as a sum."""
        told, queries = self._told(pairs), len(pairs.scores)
        with guarded(self.spelling), seeded(pairs.scores.device):
            value = self.call(told, pairs.scores)
        value = checked(self.spelling, value, queries)
        return value * queries if self.call.reduction == "mean" and not value.ndim else value

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,); an equal part of it for each where it returns one number."""
        value = self._value(pairs)
        return value if value.ndim else (value / len(pairs.scores)).expand(len(pairs.scores))

    def weight(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ score, (Q, C): the target's closed form, else by autograd; 0 for a pair in neither mask.

        Raises:
            InputError: the loss or its gradient is NaN or infinite, or the closed form has the wrong shape.
        """
        if self._closed:
            with guarded(self.spelling):
                found = self.target.weight(pairs)
            if not isinstance(found, Tensor) or found.shape != pairs.scores.shape:
                shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
                raise InputError(f"{self.spelling}: its weights are {shape}, expected {tuple(pairs.scores.shape)}")
            return found
        with torch.enable_grad():
            scores = pairs.scores.detach().clone().requires_grad_()
            value = self._value(pairs.with_scores(scores))
            finite(self.spelling, value)
            found = gradient(value, scores)
        finite(self.spelling, found, "its gradient is")
        return torch.where(pairs.positive | pairs.negative, found, 0)

    def unit_of(self, weights: Tensor, pairs: Pairs) -> Tensor:
        """The unit of weights that are known already."""
        if self.unit_ is not None:
            return weights.new_tensor(self.unit_)
        if self.unit_from == "own":
            with guarded(self.spelling):
                return torch.as_tensor(self.target.unit(pairs)).to(weights)
        return units.of(weights, pairs, self.form)

    def unit(self, pairs: Pairs) -> Tensor:
        """The unit that was given, the target's own, or measured, broadcastable to (Q, C); NaN where it is unknown."""
        if self.unit_from in {"given", "own"}:
            return self.unit_of(pairs.scores, pairs)
        loss = self if self.form else self.bind(pairs)
        return loss.unit_of(loss.weight(pairs), pairs)
