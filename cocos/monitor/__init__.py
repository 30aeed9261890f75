"""Counts beside the loss curve: what the gradient of a loss does, read in the user's own training loop."""

import inspect
import logging
import math
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import torch
import xarray as xr

from cocos import detectors as shelf
from cocos import losses, records, results
from cocos.errors import InputError
from cocos.monitor import _readings
from cocos.monitor._named import Named, embeddings_of
from cocos.monitor._seen import Seen

__all__ = ["Monitor"]

logger = logging.getLogger("cocos")
# Seed of the samples of candidates; their generator is the monitor's own.
SEED = 0


class Monitor:
    """Record, step by step, how many negatives contribute to the gradient of a loss in training.

    A module is read through its own forward and backward pass, which stay as they are. A name, or a loss of the shelf,
    is computed on the embeddings that are given to the monitor. Nothing is skipped unless `every` or `budget` says so.
    An error of the monitor or of `log` is one warning, and the training goes on.

    Args:
        loss: the module of the training loop, a name like `ntxent`, or a loss of the shelf.
        every: record every n-th call.
        log: called with the numbers by name and the step, like `wandb.log`; the step is given by keyword where it has a
            parameter of this name.
        store: file to which every record is appended, `.jsonl`; `cocos.results.open` reads it.
        eps: smallest share that contributes.
        budget: percent of the time since the first call that the monitor may take; None: it takes what it needs.
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
    """

    def __init__(
        self,
        loss: Any,
        every: int = 1,
        log: Callable[[dict[str, float], int], object] | None = None,
        store: Path | str | None = None,
        eps: float = 0.01,
        budget: float | None = None,
        *,
        detectors: Mapping[str, Mapping[str, Any] | bool] | None = None,
        groups: Callable[[], Any] | None = None,
        due: Callable[[], bool] | None = None,
    ):
        _check(every, eps, budget, log)
        self.records: list[dict[str, Any]] = []
        self.step: int | None = None
        self._every, self._eps, self._budget, self._groups = int(every), float(eps), budget, groups
        self._log = _caller(log) if log is not None else None
        self._detectors = shelf.chosen(detectors)
        self._due = due
        self._generator = torch.Generator().manual_seed(SEED)
        self._calls, self._asked = 0, 0
        self._began: float | None = None
        self._spent, self._last = 0.0, 0.0
        self._said: set[str] = set()
        self._histories: dict[int | None, list[dict[str, Any]]] = {}
        self._firing: set[tuple[str, int | None]] = set()
        self._named, self._handle, self._closed = self._read(loss), None, False
        self._header = self._about(loss)
        self._store: records.Store | None = None
        if store is not None and self._first():
            self._store = records.Store(store, self._header)

    def _read(self, loss: Any) -> Named | None:
        """The loss that is computed on embeddings; None for a module, which is tapped.

        Raises:
            InputError: an unknown name, or no loss.
        """
        if isinstance(loss, str):
            return Named(losses.load(loss))
        if isinstance(loss, torch.nn.Module):
            raise InputError("loss: a module; modules are not read yet")
        if isinstance(loss, type) or not all(hasattr(loss, name) for name in losses.CONTRACT):
            raise InputError(
                f"loss: {loss if isinstance(loss, type) else type(loss).__name__}, expected a torch.nn.Module, a name "
                "like 'ntxent', or a loss of the shelf"
            )
        return Named(loss)

    def _about(self, loss: Any) -> dict[str, Any]:
        if self._named is not None:
            return results.provenance(self._named.loss, eps=self._eps, title="Training run")
        name = type(loss).__name__
        known = {"loss": name, "loss_parameters": "{}", "loss_repr": name, "eps": self._eps, "share": "push"}
        return results.versions() | known | {"title": "Training run"}

    @property
    def alarms(self) -> list[dict[str, Any]]:
        """Every alarm so far, with its step."""
        return [alarm for record in self.records for alarm in record.get("alarms", ())]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the loss as it was, and close the store; a second time nothing happens."""
        self._closed = True
        if self._store is not None:
            self._store.close()

    def dataset(self) -> xr.Dataset:
        """The records as a Dataset with the dimensions step and direction, as `cocos.results.open` reads a store."""
        return results.of_history(records.History(self._header, tuple(self.records)))

    def __call__(self, query: Any, candidate: Any = None, groups: Any = None, step: int | None = None) -> None:
        """Read a batch, where the loss was given by its name.

        A batch that cannot be used is an error until a first one was read; after that it is one warning, so that a
        training does not end over it.

        Args:
            query: (Q, D) embeddings; their graph is not touched.
            candidate: (C, D); None, or the same object: a labelled batch.
            groups: (Q,) ids for both sides, or a tuple of both; None: row i matches row i.
            step: of the record; None: the number of the call, from 0.

        Raises:
            InputError: embeddings, groups or a step that cannot be used.
        """
        if self._named is None:
            raise InputError("this monitor reads its module by itself; call the module, and give the monitor nothing")
        if step is not None and (isinstance(step, bool) or not isinstance(step, Integral) or step < 0):
            raise InputError(f"step: {step!r}, expected a whole number, at least 0")
        if step is not None:
            self.step = int(step)
        if not self._wanted():
            return
        with self._measured(), torch.no_grad():
            embeddings = embeddings_of(query, candidate, groups)
            seen = self._named.seen(embeddings) if embeddings is not None else None
            self._record([seen] if seen else [], finite=embeddings is not None)

    def _wanted(self) -> bool:
        """Count a call, and decide whether it is recorded."""
        now = time.perf_counter()
        if self._closed or not self._first():
            return False
        if self._began is None:
            self._began = now
        number, self._calls = self._calls, self._calls + 1
        self._asked = number if self.step is None else int(self.step)
        if number % self._every if self._due is None else not self._due():
            return False
        passed = now - self._began
        return self._budget is None or self._spent + self._last <= passed * self._budget / 100 or not self.records

    @contextmanager
    def _measured(self) -> Generator[None]:
        """Add up the time that the monitor takes, and turn an error of it into one warning.

        Raises:
            InputError: of the user's input.
        """
        start = time.perf_counter()
        try:
            yield
        except Exception as error:
            if isinstance(error, InputError) and not self.records:
                raise
            self._warn(f"the monitor could not read step {self._asked} ({type(error).__name__}: {error})")
        finally:
            self._last = time.perf_counter() - start
            self._spent += self._last

    def _warn(self, sentence: str) -> None:
        """Log a warning once for each kind of sentence."""
        kind = sentence.partition("(")[0].rstrip("0123456789 ")
        if kind not in self._said:
            self._said.add(kind)
            logger.warning("%s; the training goes on", sentence)

    def _record(self, by_width: list[list[Seen]], *, finite: bool = True) -> None:
        """Read what was seen, one record for each width, check it, keep it, store it and log it."""
        passed = time.perf_counter() - (self._began or 0.0)
        run: dict[str, Any] = {"step": self._asked, "call": self._calls - 1}
        run |= {"overhead": 100 * min(1.0, self._spent / passed)} if passed > 0 else {}
        run |= {"world": _world()}
        read = [_readings.of(seen, self._eps, self._generator) for seen in by_width]
        for numbers in read or [{"finite": finite}]:
            self._keep(run | numbers)

    def _keep(self, record: dict[str, Any]) -> None:
        """Add a record to the history of its width, ask the detectors, store it and log it."""
        width = record.get("width", next(iter(self._histories), None))  # a batch that is not finite has none
        if width is not None and None in self._histories:
            self._histories[width] = self._histories.pop(None)
        history = self._histories.setdefault(width, [])
        history.append(record)
        self.records.append(record)
        found = shelf.check(history, self._detectors)
        record["alarms"] = [_plain(asdict(each)) for each in found]
        for each in found:
            if (each.detector, width) not in self._firing:
                logger.warning("step %d: %s", record["step"], each.sentence)
        self._firing = {(name, of) for name, of in self._firing if of != width}
        self._firing |= {(each.detector, width) for each in found}
        if "directions" in record:
            self._header.setdefault("directions", list(record["directions"]))
        self._append(record)
        if self._log is not None:
            widest = max((each for each in self._histories if each is not None), default=None)
            named = records.log_names(record, tuple(self._header.get("directions", ())), widest)
            try:
                self._log(named, record["step"])
            except Exception as error:
                self._warn(f"the function log failed ({type(error).__name__}: {error})")

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

    @staticmethod
    def _first() -> bool:
        """Whether this process writes and logs: rank 0."""
        return _rank() == 0


def _rank() -> int:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    text = os.environ.get("RANK", "0")
    return int(text) if text.isdecimal() else 0


def _world() -> int:
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _check(every: Any, eps: Any, budget: Any, log: Any) -> None:
    """Refuse options that cannot be used.

    Raises:
        InputError: naming the option.
    """
    if isinstance(every, bool) or not isinstance(every, Integral) or every < 1:
        raise InputError(f"every: {every!r}, expected a whole number of calls, at least 1")
    if not isinstance(eps, Real) or not 0 <= float(eps) < math.inf:
        raise InputError(f"eps: {eps!r}, expected a share: finite and at least 0")
    if budget is not None and (not isinstance(budget, Real) or not 0 < float(budget) <= 100):
        raise InputError(f"budget: {budget!r}, expected percent of the time, above 0 and at most 100")
    if log is not None and not callable(log):
        raise InputError(f"log: {type(log).__name__}, expected a function of (dict, step), like wandb.log")


def _plain(alarm: dict[str, Any]) -> dict[str, Any]:
    """An alarm whose numbers JSON has."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in alarm.items()
    }


def _caller(log: Callable[..., object]) -> Callable[[dict[str, float], int], object]:
    """Call `log` with the step as it takes it: by keyword where it has a parameter `step`, else as the second one."""
    try:
        parameters = inspect.signature(log).parameters
    except (TypeError, ValueError):  # a function of C may have no signature
        return log
    named = "step" in parameters and parameters["step"].kind is not inspect.Parameter.POSITIONAL_ONLY
    return (lambda numbers, step: log(numbers, step=step)) if named else log
