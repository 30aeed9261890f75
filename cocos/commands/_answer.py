"""What every command shares: check the output, open the input, show progress; save, say, print."""

import gc
import json
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cocos.base import terminal, writing
from cocos.commands._options import Opening

if TYPE_CHECKING:
    import xarray as xr

    from cocos.base.layout import Step, Table

# Arguments and options that a suggested command does not repeat: files, output options, and options of one command.
NOT_CARRIED = {
    *("file", "run", "files", "out", "as_json", "quiet", "format", "width", "explain", "what", "by", "against"),
    *("fail_on", "detector", "effective", "settles", "parameter", "top", "rows", "row", "kind", "given"),
}
# Seconds of work before its progress is shown.
SHOWN_AFTER_SECONDS = 2.0
# Seconds between two lines of progress where stderr is not a terminal.
LINE_SECONDS = 5.0
# Characters of the name of the work.
NAME_CHARACTERS = 60
# Name of the argument, or of the option, of a command -> its value: those that are not at their defaults.
typed: ContextVar[Mapping[str, object]] = ContextVar("typed", default=MappingProxyType({}))
# Whether the command runs with `--quiet`, or another process speaks: nothing is shown.
quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a command, for people and for programs.

    Args:
        text: makes the table or the text for stdout.
        document: makes the JSON document for stdout; None where `--json` is refused before.
        about: lines for stderr about the input, such as the loss and the origin of its parameters.
        notes: notes for stderr.
        wrote: files, or a description of them, that were written.
        code: exit code.
    """

    text: "Callable[[], Table | str]"
    document: Callable[[], object] | None = None
    about: Iterable[str] = ()
    notes: Iterable[str] = ()
    wrote: Iterable[Path | str] = ()
    code: int = 0


def takes(step: "Step") -> set[str]:
    """Names of the arguments and options that a suggested command takes, of `whatif` those of its question."""
    from cocos.commands import _program, _questions

    if step.command == "whatif":
        question = "temperature" if "settles" in step.options else "solve" if "effective" in step.options else "replay"
        return set(_questions.QUESTION_ROWS[question].options())
    return set(_program.find(step.command.split()[0]).options)


def complete(step: "Step | str") -> "Step | str":
    """Add the options of this command that another one takes as well, so that its line runs as it is printed.

    Where the data were FILE and the checkpoint was --model, they are so again.
    """
    if isinstance(step, str) or not step.carry:
        return step
    known, given = takes(step), typed.get()
    if "file" in given and [*step.files] == [given.get("model")]:
        step = replace(step, files=(str(given["file"]),))
    shared = {name: value for name, value in given.items() if name in known and name not in NOT_CARRIED}
    several = shared.get("loss")
    if isinstance(several, list) and len(several) > 1:
        shared = {name: value for name, value in shared.items() if name not in {"loss", "param"}}
    return replace(step, options=shared | dict(step.options))


def lines(table: "Table | str") -> str:
    """A table as text no wider than the terminal; text stays as it is."""
    if isinstance(table, str):
        return table
    return replace(table, typed=tuple(map(complete, table.typed))).text(terminal.room())


def finish(answer: Answer, *, as_json: bool, quiet: bool) -> None:
    """Say what a command read and wrote on stderr, unless quiet, and print its table or its JSON document on stdout."""
    for line in () if quiet else (*answer.about, *(f"note: {note}" for note in answer.notes)):
        terminal.say(line)
    terminal.put(json.dumps(answer.document(), allow_nan=False) if as_json else lines(answer.text()))
    for each in () if quiet else answer.wrote:
        terminal.say(f"wrote {each}")


def checked(out: Path | None, *inputs: Path | str | None, figures: bool = False) -> bool:
    """Refuse an output that cannot be written, before anything is computed; tell whether it is a figure."""
    if out is None:
        return False
    from cocos import results
    from cocos.reports import saving

    figure = figures and out.suffix != ".nc"
    saving.writable(out, ".nc") if figure else results.writable(out)
    writing.apart(out, *inputs)
    return figure


def opened(file: Path, loss: str | None, parameters: dict, source: Opening) -> tuple:
    """The checkpoint, the loss, and the origin of its parameters; a loss that cannot be is refused before."""
    from cocos import losses

    if loss is not None:
        losses.load(loss, parameters)
    frozen = source.open(file)
    return frozen, *frozen.loss(loss, parameters)


def saved(data: "xr.Dataset", out: Path | None, draw: Callable[[Path], object] | None = None) -> tuple[Path, ...]:
    """Save a Dataset (.nc), or draw its figure where there is one, and return the files written, none without `out`."""
    if out is None:
        return ()
    from cocos import results

    results.save(data, out) if draw is None or out.suffix == ".nc" else draw(out)
    return (out,)


def answer(
    measure: str,
    data: "xr.Dataset | dict[str, xr.Dataset]",
    out: Path | None,
    *,
    draw: Callable[[Path], object] | None = None,
    notes: Iterable[str] = (),
    tables: "Callable[[xr.Dataset], Iterable[Table]] | None" = None,
    **changed: Any,
) -> Answer:
    """The answer of a measure: its table, or several, its document and its notes.

    `out` gets its Dataset, or the figure that `draw` draws. `changed` are fields of the answer that differ.
    """
    from cocos import reports, results

    datasets = data.values() if isinstance(data, dict) else [data]
    own = {
        "text": lambda: "\n\n".join(map(lines, tables(data) if tables else reports.tables(measure, data))),
        "document": lambda: reports.document(measure, data),
        "notes": [*notes, *dict.fromkeys(line for each in datasets for line in results.lines(each.attrs))],
        "wrote": saved(data, out, draw),
    }
    return Answer(**own | changed)


def _pace(done: int, total: int, seconds: float) -> str:
    """Rate of the work, and the time that is left at this rate."""
    if done <= 0 or seconds <= 0:
        return ""
    left = round((total - done) * seconds / done)
    hours, minutes = left // 3600, left // 60 % 60
    shown = f"{hours} h {minutes} min" if hours else f"{minutes} min {left % 60} s" if minutes else f"{left} s"
    return f"{done / seconds:.3g} a second, {shown} left"


@contextmanager
def progress() -> Generator[Callable[[str], Callable[[int, int], None]]]:
    """Begin the work: give a maker of progress callbacks, `start(name) -> report(done, total)`.

    The garbage collector, which `main` turned off for the imports, is turned on again here.
    """
    gc.enable()
    bar, tasks, shown = None, {}, time.monotonic()

    def start(name: str) -> Callable[[int, int], None]:
        begun, first = time.monotonic(), None
        name = terminal.bounded(terminal.clean(name), NAME_CHARACTERS).replace("[", "(")  # `[` is markup to rich

        def report(done: int, total: int) -> None:
            nonlocal bar, shown, first
            now = time.monotonic()
            first = first or (done, now)
            pace = _pace(done - first[0], total - first[0], now - first[1])
            if quiet.get() or now - begun < SHOWN_AFTER_SECONDS:
                return
            if not sys.stderr.isatty():
                if now - shown > LINE_SECONDS:
                    shown = now
                    terminal.say(f"{name}: {done} of {total}{pace and ', '}{pace}")
                return
            if bar is None:
                from rich.console import Console
                from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

                columns = ("{task.description}", BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[pace]}"))
                bar = Progress(*columns, console=Console(stderr=True), transient=True)
                bar.start()
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total, pace=pace)
            bar.update(tasks[name], completed=done, visible=done < total, pace=pace)

        return report

    try:
        yield start
    finally:
        if bar:
            bar.stop()
