"""Progress of long work on stderr: a bar on a terminal, a line every few seconds elsewhere."""

import gc
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from cocos.reports import terminal

__all__ = ["progress", "quiet"]

# Seconds of work before its progress is shown.
SHOWN_AFTER_SECONDS = 2.0
# Seconds between two lines of progress where stderr is not a terminal.
LINE_SECONDS = 5.0
# Characters of the name of the work.
NAME_CHARACTERS = 60
# Whether the command runs with `--quiet`, or another process speaks: nothing is shown.
quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def progress() -> Generator[Callable[[str], Callable[[int, int], None]]]:
    """Begin the work: give a maker of progress callbacks, `start(name) -> report(done, total)`.

    The garbage collector, which `main` turned off for the imports, is turned on again here.
    """
    gc.enable()
    bar, tasks, shown = None, {}, time.monotonic()

    def start(name: str) -> Callable[[int, int], None]:
        begun = time.monotonic()
        name = terminal.bounded(terminal.clean(name), NAME_CHARACTERS).replace("[", "(")  # `[` is markup to rich

        def report(done: int, total: int) -> None:
            nonlocal bar, shown
            now = time.monotonic()
            if quiet.get() or now - begun < SHOWN_AFTER_SECONDS:
                return
            if not sys.stderr.isatty():
                if now - shown > LINE_SECONDS:
                    shown = now
                    terminal.say(f"{name}: {done} of {total}")
                return
            if bar is None:
                from rich.console import Console
                from rich.progress import Progress

                bar = Progress(console=Console(stderr=True), transient=True)
                bar.start()
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, visible=done < total)

        return report

    try:
        yield start
    finally:
        if bar:
            bar.stop()
