"""Settings of a count, and statistics of the same batches as a function of one setting.

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

AS_IT_IS = "as it is"  # label of the unchanged setting
MINING_RULES = ("top_k", "skip_k", "semi_hard")  # they wrap the loss
OTHER_SETTINGS = ("loss", "batch_size", "eps")
MOST_SETTINGS = 60  # largest number of changed settings, each a row of a table
USUAL_KEPT = 16  # negatives that mining rules keep by default: a power of two well below the batch of 128
USUAL_FACTORS = (0.5, 2.0)  # of the sharpness and the batch size, by default
LOSSES_IN_A_PASS = 11  # each reader stores up to 16 MiB a thread
NO_EPS = 1e9  # a share above all others, so that the passes list no candidate
# Totals over all queries: their number, effective numbers, queries with any push, counts, idle queries, push, pull, and
# candidates too near eps to tell.
SUMS = ("queries", "effective", "pushed", "contributing", "idle", "push", "pull", "uncertain")
CACHED_SCORES = 2**24  # scores of both directions that stay in memory: 128 MiB in float64


@dataclass(frozen=True)
class Setting:
    """One setting of a count, and its difference from the unchanged setting."""

    loss: losses.Loss
    eps: float  # smallest share that contributes
    batch_size: int | str  # rows of a batch, or `all`
    changed: str = ""  # name of the difference; empty for none
    value: str = ""  # its value

    @property
    def label(self) -> str:
        """Label of a row of a table."""
        return f"{self.changed.replace('_size', ' size')} {self.value}".strip() or AS_IT_IS

    def all(self, what: Mapping[str, Sequence[Any]], load: Callable[[str], losses.Loss]) -> list["Setting"]:
        """Return this setting, and one for each value of `what`, as `read` returns it; `load` loads a loss by name."""
        settings = [self, *(self._with_change(name, value, load) for name, values in what.items() for value in values)]
        if len(settings) > MOST_SETTINGS + 1:
            raise InputError(f"what: {len(settings) - 1} variants, expected at most {MOST_SETTINGS}")
        labels = [setting.label for setting in settings]
        for label in labels:
            if labels.count(label) > 1:
                raise InputError(f"what: {label} is given {labels.count(label)} times, expected once")
        return settings

    def _with_change(self, name: str, value: Any, load: Callable[[str], losses.Loss]) -> "Setting":
        """Return the setting with one change."""
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
            text = "" if value is None else _as_text(value)
            return replace(self, loss=WRAPPERS[name](self.loss, value), changed=name, value=text)
        spelling = self.loss.name
        names = losses.parameter_names(spelling)
        words = {parameter.rpartition(".")[2] for parameter in names or ()}
        if names is not None and name not in names | words:
            raise InputError(nearest(f"thing to change of {spelling}", name, {*names, *OTHER_SETTINGS, *MINING_RULES}))
        loss = losses.load(spelling, self.loss.parameters | losses.qualify(spelling, {name: value}))
        return replace(self, loss=loss, changed=name, value=_as_text(value))


def read(what: str | Iterable[str] | Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Read changes: NAME=V1,V2 as text, several separated by spaces, or a mapping of names to values.

    Examples:
        >>> from cocos.measures.shared import settings
        >>> settings.read("temperature=0.05,0.1 semi_hard")
        {'temperature': ('0.05', '0.1'), 'semi_hard': (None,)}
        >>> settings.read({"batch_size": 64})
        {'batch_size': (64,)}
    """
    changes: dict[str, tuple[Any, ...]] = {}
    if isinstance(what, Mapping):
        for name, values in what.items():
            changes[str(name)] = tuple(values) if isinstance(values, list | tuple) else (values,)
            if not changes[str(name)]:
                raise InputError(f"what: {name} has no value; give one at least")
        return changes
    for text in " ".join([what] if isinstance(what, str) else what).split():
        name, sign, values = text.partition("=")
        name, parts = name.replace("-", "_"), tuple(values.split(","))
        if not name or (sign and not all(parts)) or (not sign and name != "semi_hard"):
            raise InputError(f"what {text!r}: write it as NAME=VALUE,VALUE, like temperature=0.05,0.1 or top_k=16")
        if name in changes:
            raise InputError(f"what: {name} is given twice; write its values together, separated by commas")
        changes[name] = parts if sign else (None,)
    return changes


def usual(base: losses.Loss, batch_size: int | str | None) -> tuple[dict[str, tuple[Any, ...]], list[str]]:
    """Default variants, in the form that `read` returns, and notes on those that this loss lacks."""
    changes: dict[str, tuple[Any, ...]] = {}
    notes = []
    try:
        name = sharpness.parameter_of(base)
    except InputError as error:
        notes.append(f"sharpness left as it is: {error}")
    else:
        if value := float(base.parameters[name]):
            changes[name] = tuple(factor * value for factor in USUAL_FACTORS)
        else:
            notes.append(f"sharpness left as it is: {name} is 0, and so are half and twice of it")
    if isinstance(batch_size, Integral) and batch_size >= 8:
        changes["batch_size"] = tuple(int(factor * batch_size) for factor in USUAL_FACTORS)
    try:
        losses.TopK(base, USUAL_KEPT)
        changes |= {"top_k": (USUAL_KEPT,), "semi_hard": (None,)}
    except InputError as error:
        notes.append(f"mining rules left out: {error}")
    changes["loss"] = tuple(name for name in ("ntxent", "triplet") if name != base.name)
    return changes, notes


def _finite_number(name: str, value: Any, *, whole: bool = False) -> float:
    """Read a finite number, or an integer if `whole`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or (whole and number != int(number)):
        raise InputError(f"what {name}={value}: expected {'an integer' if math.isfinite(number) else 'a number'}")
    return number


def _as_text(value: Any) -> str:
    """Format a value, a number to six digits."""
    try:
        return f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


@dataclass(frozen=True, eq=False)
class Scored:
    """The batches of a run, weighed by several losses of the same scores; they stay in memory while they fit."""

    run: Run

    @cached_property
    def _cached(self) -> list[list[tuple[str, list[Pairs]]]] | None:
        total = sum(math.prod(batch.sizes) for batch in self.run.plan.batches) * len(self.run.sides)
        if total > CACHED_SCORES:
            return None
        return [[(name, list(blocks)) for name, blocks in self._score(batch)] for batch in self.run.plan.batches]

    def _score(self, batch: Batch) -> Iterator[tuple[str, Iterable[Pairs]]]:
        for (name, _, _), (_, blocks) in zip(self.run.sides, self.run.scored(batch, whole=False), strict=True):
            yield name, blocks

    def batches(self) -> Iterator[Iterable[tuple[str, Iterable[Pairs]]]]:
        """Yield the directions of each batch, with their Pairs in blocks of queries."""
        return map(self._score, self.run.plan.batches) if self._cached is None else iter(self._cached)

    def pairs(self) -> Iterator[tuple[str, Pairs]]:
        """Yield direction and Pairs of some queries."""
        return ((name, pairs) for sides in self.batches() for name, blocks in sides for pairs in blocks)

    def weighed(self, loss: losses.Loss) -> Iterator[tuple[str, Pairs, Tensor]]:
        """Yield direction, Pairs and weights of some queries."""
        run = replace(self.run, loss=loss)
        return ((name, pairs, run.weighed(pairs)[0]) for name, pairs in self.pairs())

    def means(
        self, variants: Sequence[losses.Loss], eps: float = NO_EPS, report: Callable[[int, int], None] | None = None
    ) -> dict[str, np.ndarray]:
        """Weigh the batches by several losses of these scores, such as one with several values of a parameter.

        Args:
            variants: the losses.
            eps: smallest share that contributes; by default none does.
            report: called with (done, in all).

        Returns:
            Each (directions, losses): `effective`, mean over the queries with any push, NaN without one;
            `contributing_all`, mean over all queries; `idle_fraction`; totals: `push`, `pull`, `queries`, and
            `uncertain`, candidates too near eps to tell.
        """
        totals: dict[str, Any] = {name: 0.0 for name, _, _ in self.run.sides}
        for name, part in (self._sums_of_stacks if self.run.visited else self._sums_of_batches)(variants, eps, report):
            totals[name] = totals[name] + part
        sums = dict(zip(SUMS, np.stack(list(totals.values())).transpose(2, 0, 1), strict=True))
        pushed = sums.pop("pushed")
        sums["effective"] = np.divide(sums["effective"], pushed, out=np.full(pushed.shape, np.nan), where=pushed > 0)
        counts = {"contributing_all": sums["contributing"], "idle_fraction": sums["idle"]}
        return sums | {name: numbers / sums["queries"] for name, numbers in counts.items()}

    def _sums_of_batches(
        self, variants: Sequence[losses.Loss], eps: float, report: Callable | None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield direction and `_sums`, (losses, sums), of each batch from its weights."""
        runs = [replace(self.run, loss=loss) for loss in variants]

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
        self, variants: Sequence[losses.Loss], eps: float, report: Callable | None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield direction and `_sums` of each stack of batches, from a reader for each loss, several in a pass."""
        all_readers = [readers.of(loss, eps) for loss in variants]
        starts = range(0, len(all_readers), LOSSES_IN_A_PASS)
        groups = [all_readers[start : start + LOSSES_IN_A_PASS] for start in starts]
        keys = ("effective", "contributing", "push", "pull", "uncertain")
        for names, _, counts in passes(self.run, lambda view: groups, report):
            for k, name in enumerate(names):
                for loss, sides in zip(variants, counts, strict=True):
                    if not sides[k]["push"].isfinite().all():
                        raise InputError(OUT_OF_RANGE.format(loss, "float64"))
                yield name, np.array([_sums(*(sides[k][key] for key in keys)) for sides in counts])


def _sums(effective: Tensor, above: Tensor, push: Tensor, pull: Tensor, uncertain: Tensor | None = None) -> list[float]:
    """Return the sums over queries: see `SUMS`."""
    idle = torch.where(above.isnan(), torch.nan, (above == 0).double())
    near = 0.0 if uncertain is None else float(uncertain.sum())
    wide = (effective, effective > 0, above, idle, push, pull)
    return [len(above), *(float(values.sum(dtype=torch.float64)) for values in wide), near]
