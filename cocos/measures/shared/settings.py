"""A statistic as a function of one setting: the settings, and what the same batches of the same scores say at each.

A setting is a loss, an eps and a batch size. Losses that differ in a parameter read the same scores, which are computed
once for all of them (`Scored`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError, nearest
from cocos.counting import sharpness, statistics
from cocos.embeddings.sampling import WHOLE_SET, Batch
from cocos.embeddings.scores import Pairs
from cocos.engine import readers
from cocos.losses.combined import WRAPPERS
from cocos.measures.shared.prepared import OUT_OF_RANGE, Run, passes

# Label of the setting as it is.
AS_IT_IS = "as it is"
# Mining rules, which wrap the loss.
MINING_RULES = ("top_k", "skip_k", "semi_hard")
# Settings beside the parameters of the loss and the mining rules.
OTHER_SETTINGS = ("loss", "batch_size", "eps")
# Largest number of settings beside the one as it is, each a row of a table.
MOST_SETTINGS = 60
# Negatives that the mining rules keep unless others are asked for: a power of two well below the batch of 128.
USUAL_KEPT = 16  # negatives
# Factors of the sharpness and of the batch size unless others are asked for.
USUAL_FACTORS = (0.5, 2.0)  # times the value as it is
# Losses that one pass reads: each reader notes up to 16 MiB a thread.
LOSSES_IN_A_PASS = 11
# Share above every other, at which the passes note no candidate.
NO_EPS = 1e9
# Totals over all queries: their number, effective numbers, queries with any push, counts, idle queries, push, pull, and
# candidates too near eps to tell.
SUMS = ("queries", "effective", "pushed", "contributing", "idle", "push", "pull", "uncertain")
# Scores of both directions that stay in memory between two weighings: 128 MiB in float64.
HELD_SCORES = 2**24


@dataclass(frozen=True)
class Setting:
    """One setting of a count, and what of it differs from the setting as it is.

    Args:
        loss: the loss.
        eps: smallest share that contributes.
        batch_size: rows of a batch, or `all`.
        changed: name of what differs; empty: nothing.
        value: its value, as text.
    """

    loss: losses.Loss
    eps: float
    batch_size: int | str
    changed: str = ""
    value: str = ""

    @property
    def label(self) -> str:
        """Words for a row of a table."""
        return f"{self.changed.replace('_size', ' size')} {self.value}".strip() or AS_IT_IS

    def all(self, what: Mapping[str, Sequence[Any]], load: Callable[[str], losses.Loss]) -> list["Setting"]:
        """This setting, and one for each value of `what`, which is as `read` gives it; `load` makes a loss of its name.

        Raises:
            InputError: a name or a value that cannot be, one that is given twice, or too many.
        """
        found = [self, *(self._with_change(name, value, load) for name, values in what.items() for value in values)]
        if len(found) > MOST_SETTINGS + 1:
            raise InputError(f"what: {len(found) - 1} variants, expected at most {MOST_SETTINGS}")
        labels = [each.label for each in found]
        for label in labels:
            if labels.count(label) > 1:
                raise InputError(f"what: {label} is given {labels.count(label)} times, expected once")
        return found

    def _with_change(self, name: str, value: Any, load: Callable[[str], losses.Loss]) -> "Setting":
        """The setting with one change."""
        if name == "loss":
            loss = load(value) if isinstance(value, str) else losses.as_loss(value)
            return replace(self, loss=loss, changed=name, value=loss.name)
        if name == "batch_size":
            size = value if value == WHOLE_SET else int(_finite_number(name, value, whole=True))
            return replace(self, batch_size=size, changed=name, value=str(size))
        if name == "eps":
            eps = _finite_number(name, value)
            return replace(self, eps=eps, changed=name, value=_as_text(eps))
        if name in MINING_RULES and name not in self.loss.parameters:
            if name == "semi_hard":
                value = None if str(value).lower() == "none" else _finite_number(name, value)
            else:
                value = int(_finite_number(name, value, whole=True))
            wrapper: Callable[..., losses.Loss] = WRAPPERS[name]
            loss = wrapper(self.loss, value)
            return replace(self, loss=loss, changed=name, value="" if value is None else _as_text(value))
        return replace(self, loss=_with_parameter(self.loss, name, value), changed=name, value=_as_text(value))


def read(what: str | Iterable[str] | Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Read what is to be changed: NAME=V1,V2 as text, several separated by spaces, or a mapping of names to values.

    Raises:
        InputError: a text that is no NAME=VALUE,VALUE, a name without a value, or one that is given twice.

    Examples:
        >>> from cocos.measures.shared import settings
        >>> settings.read("temperature=0.05,0.1 semi_hard")
        {'temperature': ('0.05', '0.1'), 'semi_hard': (None,)}
        >>> settings.read({"batch_size": 64})
        {'batch_size': (64,)}
    """
    found: dict[str, tuple[Any, ...]] = {}
    if isinstance(what, Mapping):
        for name, values in what.items():
            found[str(name)] = tuple(values) if isinstance(values, list | tuple) else (values,)
            if not found[str(name)]:
                raise InputError(f"what: {name} has no value; give one at least")
        return found
    for text in " ".join([what] if isinstance(what, str) else what).split():
        name, sign, given = text.partition("=")
        name, parts = name.replace("-", "_"), tuple(given.split(","))
        if not name or (sign and not all(parts)) or (not sign and name != "semi_hard"):
            raise InputError(f"what {text!r}: write it as NAME=VALUE,VALUE, like temperature=0.05,0.1 or top_k=16")
        if name in found:
            raise InputError(f"what: {name} is given twice; write its values together, separated by commas")
        found[name] = parts if sign else (None,)
    return found


def usual(base: losses.Loss, batch_size: int | str | None) -> tuple[dict[str, tuple[Any, ...]], list[str]]:
    """Default variants, in the form that `read` returns, and notes on those that this loss lacks."""
    found: dict[str, tuple[Any, ...]] = {}
    notes = []
    try:
        name = sharpness.parameter_of(base)
    except InputError as error:
        notes.append(f"sharpness left as it is: {error}")
    else:
        if own := float(base.parameters[name]):
            found[name] = tuple(factor * own for factor in USUAL_FACTORS)
        else:
            notes.append(f"sharpness left as it is: {name} is 0, and so are half and twice of it")
    if isinstance(batch_size, Integral) and batch_size >= 8:
        found["batch_size"] = tuple(int(factor * batch_size) for factor in USUAL_FACTORS)
    try:
        losses.TopK(base, USUAL_KEPT)
        found |= {"top_k": (USUAL_KEPT,), "semi_hard": (None,)}
    except InputError as error:
        notes.append(f"mining rules left out: {error}")
    found["loss"] = tuple(other for other in ("ntxent", "triplet") if other != base.name)
    return found, notes


def _with_parameter(loss: losses.Loss, name: str, value: Any) -> losses.Loss:
    """The loss with another value of a parameter; a scale takes the place of a temperature."""
    spelling = loss.name
    known = losses.parameter_names(spelling)
    words = {each.rpartition(".")[2] for each in known or ()}
    if known is not None and name not in known | words:
        raise InputError(nearest(f"thing to change of {spelling}", name, {*known, *OTHER_SETTINGS, *MINING_RULES}))
    return losses.load(spelling, loss.parameters | losses.qualify(spelling, {name: value}))


def _finite_number(name: str, value: Any, *, whole: bool = False) -> float:
    """A finite number."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found) or (whole and found != int(found)):
        raise InputError(f"what {name}={value}: expected {'an integer' if math.isfinite(found) else 'a number'}")
    return found


def _as_text(value: Any) -> str:
    """A value as text, a number to six digits."""
    try:
        return f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


@dataclass(frozen=True, eq=False)
class Scored:
    """The batches of a run, weighed by several losses of the same scores; they stay in memory while they fit."""

    run: Run

    @cached_property
    def _held(self) -> list[list[tuple[str, list[Pairs]]]] | None:
        total = sum(math.prod(batch.sizes) for batch in self.run.plan.batches) * len(self.run.sides)
        if total > HELD_SCORES:
            return None
        return [[(name, list(blocks)) for name, blocks in self._of(batch)] for batch in self.run.plan.batches]

    def _of(self, batch: Batch) -> Iterator[tuple[str, Iterable[Pairs]]]:
        for (name, _, _), (_, blocks) in zip(self.run.sides, self.run.scored(batch, whole=False), strict=True):
            yield name, blocks

    def batches(self) -> Iterator[Iterable[tuple[str, Iterable[Pairs]]]]:
        """Directions of each batch, with their Pairs in blocks of queries."""
        return map(self._of, self.run.plan.batches) if self._held is None else iter(self._held)

    def pairs(self) -> Iterator[tuple[str, Pairs]]:
        """Yield direction and Pairs of some queries."""
        return ((name, pairs) for sides in self.batches() for name, blocks in sides for pairs in blocks)

    def weighed(self, loss: losses.Loss) -> Iterator[tuple[str, Pairs, Tensor]]:
        """Yield direction, Pairs and weights of some queries."""
        run = replace(self.run, loss=loss)
        return ((name, pairs, run.weighed(pairs)[0]) for name, pairs in self.pairs())

    def means(
        self, others: Sequence[losses.Loss], eps: float = NO_EPS, report: Callable[[int, int], None] | None = None
    ) -> dict[str, np.ndarray]:
        """Weigh the batches by several losses of these scores, such as one with several values of a parameter.

        Args:
            others: the losses.
            eps: smallest share that contributes; by default none does.
            report: called with (done, in all).

        Returns:
            Each (directions, losses): `effective`, mean over the queries with any push, NaN without one;
            `contributing_all`, mean over all queries; `idle_fraction`; totals: `push`, `pull`, `queries`, and
            `uncertain`, candidates too near eps to tell.
        """
        found: dict[str, Any] = {name: 0.0 for name, _, _ in self.run.sides}
        for name, each in (self._sums_of_stacks if self.run.visited else self._sums_of_batches)(others, eps, report):
            found[name] = found[name] + each
        sums = dict(zip(SUMS, np.stack(list(found.values())).transpose(2, 0, 1), strict=True))
        pushed = sums.pop("pushed")
        sums["effective"] = np.divide(sums["effective"], pushed, out=np.full(pushed.shape, np.nan), where=pushed > 0)
        counts = {"contributing_all": sums["contributing"], "idle_fraction": sums["idle"]}
        return sums | {name: each / sums["queries"] for name, each in counts.items()}

    def _sums_of_batches(
        self, others: Sequence, eps: float, report: Callable | None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield direction and `_sums`, (losses, sums), of each batch from its weights."""
        runs = [replace(self.run, loss=loss) for loss in others]

        def sums(run: Run, pairs: Pairs) -> list[float]:
            weights, unit = run.weighed(pairs)
            return _sums(
                statistics.effective(statistics.spread(weights, pairs)),
                statistics.contributing(weights.abs() / unit, pairs, eps),
                statistics.push(weights),
                statistics.pull(weights),
            )

        for done, sides in enumerate(self.batches()):
            for name, blocks in sides:
                yield name, np.array([[sums(run, pairs) for run in runs] for pairs in blocks]).sum(axis=0)
            if report:
                report(done + 1, len(self.run.plan.batches))

    def _sums_of_stacks(
        self, others: Sequence, eps: float, report: Callable | None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield direction and `_sums` of each stack of batches, from a reader for each loss, several in a pass."""
        every = [readers.of(loss, eps) for loss in others]
        groups = [every[a : a + LOSSES_IN_A_PASS] for a in range(0, len(every), LOSSES_IN_A_PASS)]
        for names, _, found in passes(self.run, lambda view: groups, report):
            for k, name in enumerate(names):
                for loss, sides in zip(others, found, strict=True):
                    if not sides[k]["push"].isfinite().all():
                        raise InputError(OUT_OF_RANGE.format(loss, "float64"))
                keys = ("effective", "contributing", "push", "pull", "uncertain")
                yield name, np.array([_sums(*(sides[k][key] for key in keys)) for sides in found])


def _sums(effective: Tensor, above: Tensor, push: Tensor, pull: Tensor, uncertain: Tensor | None = None) -> list[float]:
    """Sums over some queries: see `SUMS`."""
    idle = torch.where(above.isnan(), torch.nan, (above == 0).double())
    near = 0.0 if uncertain is None else float(uncertain.sum())
    wide = (effective, effective > 0, above, idle, push, pull)
    return [len(above), *(float(each.sum(dtype=torch.float64)) for each in wide), near]
