"""The one loop of passes: every score of a view is seen once a pass, by every reader that wants one.

    found = run(view(embeddings, batches), [reader, ...])

A matrix is cut into parts that depend on its shape alone. Each part is seen with a state of its own, by whatever thread
or process takes it, and states are merged in the order of the parts: every number has the same bits for any number of
threads and processes.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import torch

from cocos import processes
from cocos.engine import devices, fused
from cocos.engine.devices import workers
from cocos.engine.parts import STRIP, Part, Tile, parts_of, tiles_of
from cocos.engine.stack import view as view  # beside `run`, which needs one
from cocos.engine.view import View
from cocos.errors import InputError

__all__ = ["Next", "Progress", "Reader", "State", "run", "view"]

Progress = Callable[[int, int], None]


class State(Protocol):
    """Everything that a reader has found in one part, or in several."""

    def merge(self, other: "State", part: Part) -> None:
        """Take in the state of a part. Parts come in their order."""


class Reader(Protocol):
    """Looks at every tile once, and says in the end what it has found or that it needs one more pass.

    The reader of a loss may combine several of these: it then has one method `passes(view)`, a generator that yields
    readers, together if they share a pass, is sent what they found, and returns its result. With `whole_lines = True`
    no part cuts the scores of a query.
    """

    def start(self, view: View) -> State:
        """An empty state for one part."""

    def see(self, state: State, tile: Tile) -> None:
        """Take in one tile."""

    def done(self, state: State):
        """The result, from the merged state of all parts; or `Next`."""


@dataclass(frozen=True)
class Next:
    """One more pass is needed, for this reader."""

    reader: Reader


def run(
    view: View,
    readers: Sequence,
    *,
    tile: tuple[int, int] | None = None,
    progress: Progress | None = None,
) -> list:
    """Make as many passes over the scores as the readers need, each shared by all that want one.

    Args:
        view: the scores.
        readers: see `Reader`.
        tile: rows and columns of a tile that PyTorch sees; None: as fits the device. No count depends on it.
        progress: called with (steps done, steps of all passes that are known to be needed).

    Returns:
        What each reader found.

    Raises:
        InputError: a reader of a loss that reads other scores.
    """
    for reader in readers:
        loss = getattr(reader, "loss", None)
        if loss is not None and loss.metric != view.metric:
            raise InputError(f"{loss!r} reads {loss.metric} scores; this view has {view.metric}, make one for it")
    steps, found, counter = [_passes(reader, view) for reader in readers], [None] * len(readers), _Counter(progress)
    sent = dict.fromkeys(range(len(readers)))
    with (
        devices.rounding(tf32=view.product in {"tf32", "bfloat16"}),  # TF32 rounds no factor of bfloat16
        devices.threads(1),
    ):
        while sent:
            wanted = {}
            for k, value in sent.items():
                try:
                    asked = steps[k].send(value)
                    wanted[k] = asked if isinstance(asked, tuple) else (asked,)
                except StopIteration as end:
                    found[k] = end.value
            results = iter(_visit(view, sum(wanted.values(), ()), tile, counter) if wanted else ())
            sent = {k: tuple(next(results) for _ in some) for k, some in wanted.items()}
            sent = {k: some if len(some) > 1 else some[0] for k, some in sent.items()}
    return found


def _passes(reader, view: View) -> Generator:
    """The readers that a reader asks for, one `yield` a pass: itself, and one more for each `Next` that it gives."""
    if hasattr(reader, "passes"):
        return (yield from reader.passes(view))
    found = Next(reader)
    while isinstance(found, Next):
        found = yield found.reader
    return found  # noqa: B901 - the value of a generator that `run` takes from StopIteration


class _Counter:
    """Steps that are done and known to be needed, over all passes."""

    def __init__(self, progress: Progress | None):
        self._progress, self._done, self._every, self._lock = progress, 0, 0, threading.Lock()

    def begin(self, steps: int, more: int) -> None:
        """A pass of so many steps begins, and so many like it are sure to follow."""
        self._every = self._done + steps * (1 + more)

    def __call__(self, steps: int = 1) -> None:
        if self._progress:
            with self._lock:
                self._done += steps
                self._progress(self._done, max(self._done, self._every))


def _visit(view: View, readers: list, tile: tuple[int, int] | None, counter: _Counter) -> list:
    """One pass for some readers; gives what each has found, or asks for."""
    parts = parts_of(view, whole_lines=any(getattr(reader, "whole_lines", False) for reader in readers))
    together = view.together and processes.world().size > 1
    inside = [reader for reader in readers if fused.serves(view, reader)]
    rest = [reader for reader in readers if reader not in inside]
    kernel, free = fused.Pass(view, inside) if inside else None, []
    more = max(getattr(reader, "more", 0) for reader in readers)
    counter.begin(sum(map(_steps, parts)) * (bool(inside) + bool(rest)), more)

    def seen(part: Part) -> list:
        states = [reader.start(view) for reader in inside]
        if kernel:
            worker = free.pop() if free else kernel.worker()
            worker.see(part, states, counter)
            free.append(worker)
        return states + (_shown(view, rest, tile, part, counter) if rest else [])

    found = _each(seen, processes.mine(parts) if together else parts, 1 if devices.ahead(view.device) else workers())
    found = iter(processes.collect(list(found), view.device) if together else found)
    whole = next(found)
    for part, states in zip(parts[1:], found, strict=True):
        for state, other in zip(whole, states, strict=True):
            state.merge(other, part)
    results = {id(reader): reader.done(state) for reader, state in zip(inside + rest, whole, strict=True)}
    return [results[id(reader)] for reader in readers]


def _steps(part: Part | Tile) -> int:
    return -(-(part.rows.stop - part.rows.start) // STRIP)


def _each(work: Callable, items: Sequence, threads: int) -> Iterator:
    """What some work gives for each item, in their order; a thread takes the next one when it is free."""
    if min(threads, len(items)) < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, items)


def _shown(view: View, readers: list, tile: tuple[int, int] | None, part: Part, counter: _Counter) -> list:
    """States of readers that PyTorch serves, which have seen every tile of a part; twice where a list was too short."""
    for patient in (False, True):
        states, row, short = [reader.start(view) for reader in readers], None, []
        for seen in tiles_of(view, tile or devices.tile(view.device), part, patient=patient):
            if seen.rows != row and not patient:
                counter(_steps(seen))
            row = seen.rows
            for reader, state in zip(readers, states, strict=True):
                reader.see(state, seen)
            short += seen.short
        if not short or not torch.stack(short).any():  # the only wait for a device in a part
            break
    return states
