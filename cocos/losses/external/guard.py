"""Foreign code as a loss: its exceptions become sentences, its results are checked, its unit is measured."""

import contextlib
import random
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError, Unfit
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import Pairs
from cocos.losses.combined import UNKNOWN_UNIT
from cocos.losses.external import units
from cocos.losses.external.traits import StatesTraits, Traits, traits_of

MEASURED_UNIT = "its unit is measured: on the first batch, its weights are those of a {} of its scores"
# What is not weighed of a loss that reads more of its embeddings than their scores.
UNWEIGHED = {
    "lengths": "it reads the lengths too, and that part of its gradient is not weighed",
    "rows": "it reads its embeddings in other ways too, and that part of its gradient is not weighed",
}
MEAN_AS_SUM = "it returns a mean over the queries, counted as a sum"
DETACHED = "its result has no gradient; it is detached somewhere, or computed without PyTorch"
LIBRARY_FOLDERS = tuple(str(Path(path).parent) for path in (torch.__file__, Path(__file__).parent))


def on_one_line(spelling: str, given: dict[str, Any]) -> str:
    """Write a loss and its parameters on one line; a file without its folder."""
    return f"{spelling.rpartition('/')[-1]}({', '.join(f'{name}={value!r}' for name, value in given.items())})"


@contextmanager
def guarded(name: str, *, while_: str = "", dtypes: bool = True) -> Generator[None]:
    """Turn an exception of foreign code into one sentence, and send its prints to stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SyntaxError):
            where = f" ({error.filename}:{error.lineno})"
            text = error.msg
        else:
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if not frame.filename.startswith((*LIBRARY_FOLDERS, "<"))]
            where = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
            text = " ".join(str(error).split())[:300]
        hint = (
            "; with --dtype float32 it sees the dtype of training"
            if dtypes and ("Double" in text or "Float" in text)
            else ""
        )
        raise InputError(f"{name}{while_}: {type(error).__name__}: {text}{where}{hint}") from error


@contextmanager
def seeded(device: torch.device) -> Generator[None]:
    """Seed the generators of Python, NumPy and PyTorch, so that a loss draws the same in every call."""
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    module = torch.get_device_module(device)
    on_device = [device] if hasattr(module, "get_rng_state") else []  # the generator of the host is kept in any case
    with torch.random.fork_rng(devices=on_device, device_type=device.type):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        torch.random.default_generator.manual_seed(0)
        for each in on_device:
            with module.device(each):
                module.manual_seed(0)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002


def checked(name: str, value: Any, queries: int) -> Tensor:
    """Check the value of a loss, (Q,) or ()."""
    if not isinstance(value, Tensor):
        raise InputError(
            f"{name}: returned {type(value).__name__}, expected one loss per query, ({queries},), or one number"
        )
    if tuple(value.shape) not in {(), (queries,)}:
        raise InputError(
            f"{name}: returned shape {tuple(value.shape)}, expected one loss per query, ({queries},), or one number"
        )
    return value


def require_finite(name: str, value: Tensor, what: str = "returned") -> None:
    """Refuse a loss or a gradient that is not a number."""
    wrong = ~value.isfinite()
    bad = (wrong.any(dim=1) if wrong.ndim == 2 else wrong.reshape(-1)).nonzero().flatten().tolist()
    if bad:
        some = ", ".join(map(str, bad[:5])) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
        where = f" for {'queries' if len(bad) > 1 else 'query'} {some}" if value.ndim else ""
        raise InputError(f"{name}: {what} NaN or infinity{where} of the batch")


def gradient(value: Tensor, leaf: Tensor, *, keep: bool = False) -> Tensor:
    """∂ Σ value / ∂ leaf, zero if the value does not depend on it; torch.func would refuse some foreign code."""
    if not value.requires_grad:
        return torch.zeros_like(leaf)
    (found,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True, retain_graph=keep)
    return torch.zeros_like(leaf) if found is None else found


def derivative(name: str, run: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """∂ Σ run(at) / ∂ at of the loss of this name, which `run` returns, (Q,) or (); refused where it is not finite."""
    leaf = at.detach().clone().requires_grad_()
    with torch.enable_grad():
        value = run(leaf)
        require_finite(name, value)
        found = gradient(value, leaf)
    require_finite(name, found, "its gradient is")
    return found


def per_query(value: Tensor, queries: int) -> Tensor:
    """Loss of each query, (Q,); an equal part of it for each where it is one number."""
    return value if value.ndim else (value / queries).expand(queries)


def rows_of(name: str, pairs: Pairs) -> Embeddings:
    """The rows of pairs; refused where these are scores alone."""
    if pairs.embeddings is None:
        raise Unfit(f"{name}: it reads embeddings, and these pairs are scores alone")
    return pairs.embeddings


def reduction_notes(value: Tensor, reduction: str | None) -> list[str]:
    """Describe the reduction of a loss that returns one number."""
    if value.ndim:
        return []
    if reduction == "mean":
        return [MEAN_AS_SUM]
    return [] if reduction == "sum" else ["it returns one number: its weights are of the loss as reduced by it"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Foreign(StatesTraits):
    """A loss whose code is that of others; what its weights and their unit are is settled by a first batch: see `bind`.

    Args:
        traits: what it can do.
        unit_: natural size of one weight; None: that of its twin, or measured.
        form: of `cocos.losses.external.units`, that its weights have on the first batch; None: none.
        weights_of: scores of which its weights are, in words.
        weights_note: the note on them.
        closed: it is weighed by the closed form of its twin: see `by_closed_form`.
    """

    traits: Traits
    unit_: float | None = None
    form: str | None = None
    weights_of: str = ""
    weights_note: str = ""
    closed: bool = False

    def __repr__(self) -> str:
        return on_one_line(self.spelling, self.traits.given or {})

    @property
    def spelling(self) -> str:
        """Its name for `cocos.losses.load`."""
        return str(self.traits.spelling)

    @property
    def recognised(self) -> bool:
        """Whether its class and its settings are those of a loss of the shelf."""
        return False

    def bind(self, pairs: Pairs) -> Self:
        """Return the same loss, settled by one batch."""
        raise NotImplementedError

    def weight(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ score, (Q, C), of its own code or by the closed form of its twin; 0 outside of both masks."""
        if self.closed:
            return torch.where(pairs.positive | pairs.negative, self.twin_weight(pairs), 0)
        return self.own_weight(pairs)

    def own_weight(self, pairs: Pairs) -> Tensor:
        """Weights of its own code, (Q, C)."""
        raise NotImplementedError

    def twin_weight(self, pairs: Pairs) -> Tensor:
        """Weights by the closed form of the loss of the shelf with the same weights, (Q, C)."""
        raise NotImplementedError

    def unit_of_twin(self, pairs: Pairs) -> Tensor:
        """Unit of the loss of the shelf with the same weights, broadcastable to (Q, C)."""
        raise NotImplementedError

    def read_by_twin(self, pairs: Pairs) -> bool:
        """Whether the loss of the shelf with the same weights reads the scores of these pairs as they are."""
        raise NotImplementedError

    def by_closed_form(self, pairs: Pairs) -> Self:
        """The same loss, weighed by its twin; itself where a batch shows that it has none.

        Its value is that of its own code. Its twin is counted in its place where it reads the scores of the same pairs.
        """
        bound = self.bind(pairs)
        own = bound.traits
        if own.twin is None:
            return self
        note = f"its weights are of {bound.weights_of}, by the closed form of {own.unit_from}, the same loss"
        traits = replace(
            own,
            couples=own.twin.couples,
            gradient=traits_of(own.twin).gradient,
            notes=tuple(note if each == bound.weights_note else each for each in own.notes),
            counted_as=own.twin if bound.read_by_twin(pairs) else None,
        )
        return replace(bound, traits=traits, closed=True)

    def with_unit(
        self, unit_note: str = "", *, twin: losses.Loss | None = None, named: str = "", form: str | None = None
    ) -> Self:
        """The same loss with the unit of a twin, which is named, or of the form of its weights, and a note on it."""
        own = traits_of(twin)
        traits = replace(
            self.traits,
            notes=(*self.traits.notes, *filter(None, [unit_note])),
            twin=twin,
            unit_from="given" if self.unit_ is not None else named or form or "unknown",
            share=own.share if twin else units.SHARES.get(str(form)),
            per_positive=own.per_positive,
        )
        return replace(self, traits=traits, form=form)

    def with_measured_unit(self, weights: Tensor, pairs: Pairs) -> Self:
        """The same loss with the unit that its weights have on a first batch, where it can be measured."""
        unit = units.found(pairs.scores, weights, pairs.positive, pairs.negative)
        if unit is None:
            return self.with_unit(UNKNOWN_UNIT)
        return self.with_unit(MEASURED_UNIT.format(unit.form), form=unit.form)

    def unit_of(self, weights: Tensor, pairs: Pairs) -> Tensor:
        """The unit of weights that are known already, broadcastable to (Q, C)."""
        if self.unit_ is not None:
            return weights.new_tensor(self.unit_)
        return units.of(weights, pairs, self.form) if self.traits.twin is None else self.unit_of_twin(pairs)

    def unit(self, pairs: Pairs) -> Tensor:
        """The unit that was given, that of its twin, or measured, broadcastable to (Q, C); NaN where it is unknown."""
        loss = self.bind(pairs)
        known = loss.unit_ is not None or loss.traits.twin
        return loss.unit_of(pairs.scores if known else loss.weight(pairs), pairs)
