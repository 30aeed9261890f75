"""The loop of passes: each pass computes every score of a view once and shows it to every reader that asked for a pass.

    results = run(view(embeddings, batches), [reader, ...])

In: a view and readers. Out: one result per reader. The matrix is cut into parts that depend on its shape alone; each
part is visited with fresh states, by whichever thread is free, and states are merged in the order of the
parts. Hence every result is bit-identical for any number of threads.
"""

import contextlib
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cocos.base.errors import InputError
from cocos.engine import devices
from cocos.engine.devices import workers
from cocos.engine.tiles import Part, Product
from cocos.engine.view import View

StepProgress = Callable[[int, int], None]
# Of a reader with `passes(view)`: yields a reader for each pass, receives its result, and returns its own. Other
# readers have `start(view)`, an empty state for one part; `see(state, tile)`; and `done(state)`.
Passes = Generator[Any, Any, Any]


def run(
    view: View,
    readers: Sequence,
    *,
    tile: tuple[int, int] | None = None,
    progress: StepProgress | None = None,
) -> list:
    """Make as many passes over the scores as the readers need; readers that want a pass at the same time share it.

    Args:
        view: the scores.
        readers: of `cocos.engine.readers`.
        tile: rows and columns of a tile; None fits the device. No count depends on it.
        progress: called with (steps done, steps of all passes known to be needed).

    Returns:
        The result of each reader.

    Raises:
        InputError: the reader of a loss with another metric than the view's.
    """
    for reader in readers:
        loss = getattr(reader, "loss", None)
        if loss is not None and loss.metric != view.metric:
            raise InputError(f"{loss!r} reads {loss.metric} scores; this view has {view.metric}, make one for it")
    generators, counter = [_passes(reader, view) for reader in readers], _Counter(progress)
    results: list[Any] = [None] * len(readers)
    answers: dict[int, Any] = dict.fromkeys(range(len(readers)))
    with devices.rounding(), devices.threads(1):
        while answers:
            requests = {}
            for k, answer in answers.items():
                try:
                    requests[k] = generators[k].send(answer)
                except StopIteration as end:
                    results[k] = end.value
            visited = _visit(view, list(requests.values()), tile, counter) if requests else []
            answers = dict(zip(requests, visited, strict=True))
    return results


def _passes(reader, view: View) -> Passes:
    """Yield the readers of the passes that a reader requests, or the reader itself."""
    if hasattr(reader, "passes"):
        return (yield from reader.passes(view))
    return (yield reader)  # noqa: B901 - the value of a generator that `run` takes from StopIteration


class _Counter:
    """Number of steps done and of steps known to be needed, over all passes."""

    def __init__(self, progress: StepProgress | None):
        self._progress, self._done, self._every, self._lock = progress, 0, 0, threading.Lock()

    def begin(self, steps: int) -> None:
        """Start a pass of `steps` steps."""
        self._every = self._done + steps

    def __call__(self) -> None:
        if self._progress:
            with self._lock:
                self._done += 1
                self._progress(self._done, max(self._done, self._every))


def _visit(view: View, readers: list, tile: tuple[int, int] | None, counter: _Counter) -> list:
    """Make one pass for the given readers; return the result of each."""
    whole_rows = any(getattr(reader, "whole_lines", False) for reader in readers)
    product = Product(view, tile)
    parts = product.parts(whole_rows=whole_rows)
    counter.begin(len(parts))

    def show_tiles(part: Part) -> list:
        states = [reader.start(view) for reader in readers]
        for shown in product.tiles(part):
            for reader, state in zip(readers, states, strict=True):
                reader.see(state, shown)
        counter()
        return states

    threads = 1 if devices.ahead(view.device) else min(workers(), len(parts))
    with ThreadPoolExecutor(threads) if threads > 1 else contextlib.nullcontext() as pool:
        results = pool.map(show_tiles, parts) if pool else map(show_tiles, parts)
        total = next(results)
        for part, states in zip(parts[1:], results, strict=True):
            for state, addition in zip(total, states, strict=True):
                state.merge(addition, part)
    return [reader.done(state) for reader, state in zip(readers, total, strict=True)]
