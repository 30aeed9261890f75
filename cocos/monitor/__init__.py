"""Counts beside the loss curve: what the gradient of a loss does, read in the user's own training loop."""

import inspect
import logging
import math
import os
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
import xarray as xr

from cocos import losses, results
from cocos.base.errors import InputError
from cocos.monitor import calls, queues, readings, records, tap
from cocos.monitor import detectors as shelf
from cocos.monitor.callbacks import Unreached
from cocos.monitor.calls import Named, Seen, embeddings_of
from cocos.monitor.recognised import Reading, inner, recogniser
from cocos.monitor.tap import Hook, brief, joined, rank, world

__all__ = ["Monitor"]

logger = logging.getLogger("cocos")
# Seed of the samples of candidates; their generator is the monitor's own.
SEED = 0
# Time that a reading takes over that by its own clock, since hooks run and caches are emptied outside of it: measured
# at 1.2 to 2, as a ratio, by `benchmarks/monitor.py`.
UNSEEN_COST = 1.5
# Largest number of different warnings of one monitor.
MOST_WARNINGS = 20
# Options of a monitor that are functions, in words.
FUNCTIONS = {
    "log": "of (dict, step), like wandb.log",
    "groups": "that returns the ids of the rows of a batch",
    "due": "that returns whether the next call is recorded",
}
# Largest step that a store can hold.
MOST_STEPS = 2**62


def first() -> bool:
    """Whether this process writes and logs: rank 0, also by the environment before the processes have joined."""
    text = os.environ.get("RANK", "0")
    return rank() == 0 if joined() or not text.isdecimal() else int(text) == 0


def check(every: Any, eps: Any, **functions: Any) -> None:
    """Refuse options that cannot be used."""
    if isinstance(every, bool) or not isinstance(every, Integral) or every < 1:
        raise InputError(f"every: {every!r}, expected an integer of at least 1")
    if not isinstance(eps, Real) or not 0 <= float(eps) < math.inf:
        raise InputError(f"eps: {eps!r}, expected a share: finite and at least 0")
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise InputError(f"{name}: {type(function).__name__}, expected a function {FUNCTIONS[name]}")


def _of_shelf(loss: Any) -> losses.Loss:
    """The loss of a name, or a loss of the shelf."""
    if isinstance(loss, str):
        return losses.load(loss)
    if not isinstance(loss, losses.Loss):
        raise InputError(
            f"loss: {loss if isinstance(loss, type) else type(loss).__name__}, expected a torch.nn.Module, a "
            "built-in loss or its name, such as 'ntxent'"
        )
    return loss


def caller(log: Callable[..., object]) -> Callable[[dict[str, float], int], object]:
    """Call `log` with the step as it takes it: by keyword where it has a parameter `step`, else as the second one."""
    try:
        parameters = inspect.signature(log).parameters
    except (TypeError, ValueError):  # a function of C may have no signature
        return log
    named = "step" in parameters and parameters["step"].kind is not inspect.Parameter.POSITIONAL_ONLY
    return (lambda numbers, step: log(numbers, step=step)) if named else log


class _Turn(NamedTuple):
    """A call that is read: the step of its record, and its number from 0."""

    step: int
    number: int


class Monitor:
    """Record, step by step, how many negatives contribute to the gradient of a loss in training.

    A module is read through its own forward and backward pass, which stay as they are. A name, or a loss of the shelf,
    is computed on the embeddings that are given to the monitor. Nothing is skipped unless `every` says so.
    An error of the monitor or of `log` is one warning, and the training goes on.

    Where `inputs` is set to a batch as the network gets it, before the loss is called, rows that repeat are found in
    it; among embeddings dropout hides them. The arguments of the loss and the callbacks of trainers show inputs by
    themselves.

    Args:
        loss: the module of the training loop, a name like `ntxent`, or a loss of the shelf.
        every: record every n-th call.
        log: called with the numbers by name and the step, like `wandb.log`; the step is given by keyword where it has a
            parameter of this name.
        store: file to which every record is appended, `.jsonl`; `cocos.results.open` reads it.
        eps: smallest share that contributes.
        detectors: by name: False for off, or thresholds; None: all of `cocos.detectors`.
        groups: called for the groups of the rows of the next batch, where a module is not given them; None: row i
            matches row i.
        due: called once for each call, whether it is recorded; None: as `every` says. Trainers, which count updates of
            the weights, give it.

    Raises:
        InputError: an option that cannot be used, or a store of another loss or eps.

    Examples:
        >>> query, candidate = torch.eye(3), 2 * torch.eye(3)
        >>> with cocos.Monitor("ntxent") as monitor:
        ...     monitor(query, candidate, step=7)
        >>> float(monitor.dataset()["contributing"].sel(step=7, direction="q2c"))
        0.0

        A module is read where the training loop calls it:

        >>> class Contrastive(torch.nn.Module):
        ...     def forward(self, query, candidate):
        ...         scores = 20 * query @ candidate.T
        ...         return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)))
        >>> loss, rows = Contrastive(), torch.eye(3, requires_grad=True)
        >>> monitor = cocos.Monitor(loss)
        >>> loss(rows, torch.ones(3, 3)).backward()
        >>> float(monitor.dataset()["relative"].sel(step=0, direction="q2c"))
        2.0
        >>> monitor.close()
    """

    def __init__(
        self,
        loss: Any,
        every: int = 1,
        log: Callable[[dict[str, float], int], object] | None = None,
        store: Path | str | None = None,
        eps: float = 0.01,
        *,
        detectors: Mapping[str, Mapping[str, Any] | bool] | None = None,
        groups: Callable[[], Any] | None = None,
        due: Callable[[], bool] | None = None,
    ):
        check(every, eps, log=log, groups=groups, due=due)
        self.records: list[dict[str, Any]] = []
        self.step: int | None = None
        self.inputs: Any = None
        self._unreached: Unreached | None = None
        self._every, self._eps = int(every), float(eps)
        self._log = caller(log) if log is not None else None
        self._detectors = shelf.chosen(detectors)
        self._due = due
        self._generator = torch.Generator().manual_seed(SEED)
        self._calls = 0
        self._began: float | None = None
        self._spent = 0.0
        self._said: set[str] = set()
        self._histories: dict[int | None, shelf.Growing] = {}
        self._fired: dict[tuple[str, int | None], int] = {}  # number of records at the last alarm
        self._closed, self._named = False, None
        if not isinstance(loss, torch.nn.Module):
            self._named = Named(_of_shelf(loss))
            self._header = results.provenance(self._named.loss, eps=self._eps, title="Training run")
        else:
            name = type(inner(loss)).__name__
            known = {"loss": name, "loss_parameters": "{}", "loss_repr": name, "eps": self._eps}
            self._header = results.versions() | known | {"title": "Training run"}
        self._store = records.Store(store, self._header) if store is not None and first() else None
        self._hooks: list[Any] = []  # with a method `remove`
        self._reading: tuple[_Turn, Reading] | None = None
        self._readable = False
        if self._named is None:
            self._attach(loss, groups)
        elif groups is not None:
            raise InputError("groups: of a module only; a loss by its name is given them with each batch")

    def _attach(self, module: torch.nn.Module, groups: Callable[[], Any] | None) -> None:
        """Read the calls of a module: by their arguments where the module is recognised and no groups are given."""
        self._queue = queues.of_module(module)
        self._module, self._recogniser = module, recogniser(module) if groups is None else None
        if self._recogniser is not None:
            self._hooks.append(module.register_forward_pre_hook(Hook(self._enter), with_kwargs=True))
            self._hooks.append(module.register_forward_hook(Hook(self._exit), with_kwargs=True))
        self._hooks.append(tap.Tap(module, self._tapped, self._deliver, groups=groups, failed=self._unread))

    @property
    def overhead(self) -> float:
        """Percent of the time since the first call that the monitor has taken, estimated by its own clock."""
        passed = time.perf_counter() - (self._began or math.inf)
        return 100 * min(1.0, self._spent / passed) if passed > 0 else 0.0

    @property
    def alarms(self) -> list[dict[str, Any]]:
        """The episodes in which detectors fired, in the order of their first steps; see `cocos.detectors.episodes`.

        Each has its `kind`, the last `sentence`, and its `first` and `last` step; of several widths, the `width`.
        """
        found = [
            each if len(self._histories) == 1 else each | {"width": width}
            for width, own in self._histories.items()
            for each in shelf.episodes(own)
        ]
        return sorted(found, key=lambda each: each["first"])

    def look(self, model: torch.nn.Module) -> None:
        """Look which parameters in training a gradient has reached; call it after a backward pass, with its gradients.

        Args:
            model: whose parameters are trained.
        """
        with self._measured(None):
            if self._unreached is None:
                self._unreached = Unreached(model)
            self._unreached.look()

    def watching(self) -> dict[str, str | None]:
        """Tell which detectors would fire at the last record if the training had their fault.

        Returns:
            By the name of the detector: None, or why it cannot fire yet, or never will here.

        Examples:
            >>> monitor = cocos.Monitor("ntxent")
            >>> for step in range(3):
            ...     monitor(torch.eye(12), torch.eye(12).roll(step, 0), step=10 * step)
            >>> [monitor.watching()[name] for name in ("collapse", "stuck", "underflow")]
            [None, 'begins at step 200', 'does not apply: the scores are float32, not float16']
        """
        return shelf.watching(self._histories.values(), self._detectors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the loss as it was, and close the store; a second time nothing happens."""
        self._closed = True
        for each in self._hooks:
            each.remove()
        if self._store is not None:
            self._store.close()

    def dataset(self) -> xr.Dataset:
        """The records as a Dataset with the dimensions step and direction, as `cocos.results.open` reads a store."""
        return records.dataset(records.History(self._header, tuple(self.records)))

    def __call__(
        self,
        query: Any,
        candidate: Any = None,
        groups: Any = None,
        step: int | None = None,
        *,
        negatives: Any = None,
        queue: Any = None,
    ) -> None:
        """Read a batch, where the loss was given by its name.

        A batch that cannot be used is an error until a first one was read; after that it is one warning, so that a
        training does not end over it.

        Args:
            query: (Q, D) embeddings; their graph is not touched.
            candidate: (C, D); None, or the same object: a labelled batch.
            groups: (Q,) ids for both sides, or a tuple of both; None: row i matches row i.
            step: of the record; None: the number of the call, from 0.
            negatives: own hard negatives of the queries, (Q, K, D); None: there are none.
            queue: rows of earlier steps that are candidates too, (K, D), or (rows, groups (K,)); None: there are none.

        Raises:
            InputError: embeddings, groups or a step that cannot be used.
        """
        if self._named is None:
            raise InputError("this monitor reads its module by itself; call the module, and give the monitor nothing")
        whole = isinstance(step, Integral) and not isinstance(step, bool)
        if step is not None and not (whole and 0 <= step <= MOST_STEPS):
            raise InputError(f"step: {step!r}, expected an integer of at least 0")
        if step is not None:
            self.step = int(step)
        if (call := self._begin()) is None:
            return
        with self._measured(call, raising=not self.records), torch.no_grad():
            embeddings = embeddings_of(query, candidate, groups, negatives, queue)
            seen = self._named.seen(embeddings) if embeddings is not None else None
            self._record(call, [seen] if seen else [])

    def _begin(self) -> _Turn | None:
        """Count a call; the call where it is recorded."""
        now = time.perf_counter()
        if self._closed or not first():
            return None
        if self._began is None:
            self._began = now
        number, self._calls = self._calls, self._calls + 1
        if self._due is None and number % self._every:
            return None
        if self._due is not None and not self._due():
            return None
        step = number if self.step is None else int(self.step)
        return _Turn(step if abs(step) <= MOST_STEPS else number, number)

    def _enter(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before a forward pass: find out whether it is read through its arguments; else the tap reads it."""
        self._reading, self._readable = None, False
        if torch.compiler.is_compiling() or module is not self._module or self._recogniser is None:
            return
        if module.training and torch.is_grad_enabled():
            with self._measured(None), torch.no_grad():
                reading = self._recogniser(args, kwargs)
                self._readable = reading is not None
                call = self._begin() if reading is not None else None
                self._reading = (call, reading) if call is not None and reading is not None else None

    def _exit(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """After a forward pass that is read through its arguments."""
        if self._reading is None or module is not self._module:
            return
        (call, reading), self._reading = self._reading, None
        with self._measured(call), torch.no_grad():
            seen = reading()
            if seen is not None and isinstance(output, torch.Tensor) and output.numel() == 1:
                seen[0] = replace(seen[0], value=output.detach())
            self._record(call, [seen] if seen else [])

    def _tapped(self) -> _Turn | None:
        """The call that the tap reads, if it does."""
        return None if self._readable else self._begin()

    def _deliver(self, call: _Turn, tapped: tap.Tapped) -> None:
        """Record what the backward pass of a call showed."""
        if not self._closed:
            with self._measured(call, before=tapped.seconds), torch.no_grad():
                self._record(call, tapped.by_width, lost=tapped.lost, repeated=tapped.repeated)

    def _unread(self, reason: str) -> None:
        self._warn(f"the monitor could not read a call of {self._header['loss']} ({reason})")

    @contextmanager
    def _measured(self, call: _Turn | None, *, before: float = 0.0, raising: bool = False) -> Generator[None]:
        """Add up the time that the monitor takes, after some seconds before, and turn an error of it into one warning.

        An error of the user's input is raised where `raising`.
        """
        start = time.perf_counter()
        try:
            yield
        except Exception as error:
            if isinstance(error, InputError) and raising:
                raise
            step = "a call" if call is None else f"step {call.step}"
            self._warn(f"the monitor could not read {step} ({type(error).__name__}: {brief(error)})")
        finally:
            self._spent += UNSEEN_COST * (time.perf_counter() - start + before)

    def _warn(self, sentence: str) -> None:
        """Log a warning once, whatever the numbers in it."""
        kind = re.sub(r"\d+", "", sentence)
        if kind not in self._said and len(self._said) < MOST_WARNINGS:
            self._said.add(kind)
            logger.warning("%s; the training goes on", sentence)

    def _record(
        self,
        call: _Turn,
        by_width: list[list[Seen]],
        *,
        lost: float | None = None,
        repeated: torch.Tensor | None = None,
    ) -> None:
        """Keep a record of what was seen for each width; of none, where a row is not finite, one that says so."""
        run: dict[str, Any] = {"step": call.step, "call": call.number, "overhead": self.overhead, "world": world()}
        run |= {} if lost is None else {"lost": lost}
        inputs, self.inputs = self.inputs, None
        repeated = calls.repeated(inputs) if repeated is None else repeated
        run |= {} if repeated is None else {"repeated_inputs": int(repeated)}
        run |= self._unreached.numbers() if self._unreached is not None else {}
        if self._named is None and self._queue is not None:
            by_width = [[queues.marked(each, self._queue()) for each in seen] for seen in by_width]
        with torch.inference_mode():  # an operation takes less time than without gradients alone
            read = [readings.of(seen, self._eps, self._generator) for seen in by_width]
        for numbers in read or [{"finite": False}]:
            for note in numbers.get("notes", ()):
                self._warn(f"{self._header['loss']}: {note}")
            self._keep(run | numbers)

    def _keep(self, record: dict[str, Any]) -> None:
        """Add a record to the history of its width, ask the detectors, store it and log it."""
        width = record.get("width", next(iter(self._histories), None))  # a batch that is not finite has none
        if width is not None and None in self._histories:
            self._histories[width] = self._histories.pop(None)
            self._fired = {(name, width if of is None else of): place for (name, of), place in self._fired.items()}
        history = self._histories.setdefault(width, shelf.Growing())
        history.append(record)
        self.records.append(record)
        found = shelf.check(history, self._detectors)
        record["alarms"] = [  # with the numbers that JSON has
            {name: None if isinstance(n, float) and not math.isfinite(n) else n for name, n in asdict(each).items()}
            for each in found
        ]
        for each in found:
            key = each.detector, width
            if len(history) - self._fired.get(key, -math.inf) > shelf.SILENCE + 1:
                logger.warning("step %d: %s", record["step"], each.sentence)
            self._fired[key] = len(history)
        if "directions" in record:
            self._header.setdefault("directions", list(record["directions"]))
        self._append(record)
        if self._log is not None:
            widest = max((each for each in self._histories if each is not None), default=None)
            named = records.log_names(record, tuple(self._header.get("directions", ())), widest)
            try:
                self._log(named, record["step"])
            except Exception as error:
                self._warn(f"the function log failed ({type(error).__name__}: {brief(error)})")

    def _append(self, record: dict[str, Any]) -> None:
        """Store a record; one that cannot be written is missing in the store, and the next one is tried again."""
        if self._store is None:
            return
        self._store.header |= self._header
        earlier, self._store.earlier = self._store.earlier, None
        if earlier is not None and record["step"] <= earlier:
            logger.warning(
                "store %s has records up to step %d, and this run begins at step %d: it supersedes those from there on "
                "(give the step where a run goes on)",
                self._store.path,
                earlier,
                record["step"],
            )
        try:
            self._store.append(record)
        except OSError as error:
            self._warn(f"store {self._store.path} cannot be written ({error})")
