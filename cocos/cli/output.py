"""What all commands do with their results: check the output file, show progress, print and save."""

import gc
import json
import shlex
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cocos.base import terminal, writing
from cocos.base.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

    from cocos.reports.tables import Step, Table

RESULTS, FIGURES = (".nc",), (".png", ".pdf", ".svg")
# Seconds of work before its progress is shown, and between two lines of it where stderr is not a terminal.
DELAY_SECONDS, LINE_SECONDS = 2.0, 5.0
# Options of a command that a suggested next command repeats.
REPEATED = (
    *("loss", "param", "eps", "batch_size", "batches", "sample", "per_group", "copies", "same_group", "seed", "dtype"),
    *("convention", "device", "split", "data", "model", "dims", "steps", "k", "evaluated", "level"),
)


def check_output(out: Path | None, *inputs: Path | str | None, suffixes: Sequence[str] = RESULTS) -> None:
    """Refuse an output file that cannot be written, or that is an input, before anything is computed."""
    if out is None:
        return
    if out.suffix.lower() not in suffixes:
        raise InputError(f"--out {out}: suffix {out.suffix!r}, expected {' or '.join(suffixes)}")
    writing.output(out, "--out")
    writing.apart(out, *inputs)


@contextmanager
def progress(quiet: bool) -> Generator[Callable[[str], Callable[[int, int], None]]]:
    """Show the progress of long work on one line of stderr: `start(name)` returns a callback of (done, total).

    Garbage collection, which `main` turned off for the imports, is turned on again.
    """
    gc.enable()
    begun = printed = time.monotonic()
    bar: Any = None
    tasks: dict[str, Any] = {}

    def start(name: str) -> Callable[[int, int], None]:
        label, first = terminal.one_line(name, 60).replace("[", "("), time.monotonic()  # `[` is markup to rich

        def report(done: int, total: int) -> None:
            nonlocal bar, printed
            now = time.monotonic()
            if quiet or now - begun < DELAY_SECONDS:
                return
            if not sys.stderr.isatty():
                if now - printed > LINE_SECONDS:
                    printed = now
                    left = f", {format_seconds((total - done) * (now - first) / done)} left" if done else ""
                    terminal.say(f"{label}: {done} of {total}{left}")
                return
            if bar is None:
                from rich.console import Console
                from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

                columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
                bar = Progress(*columns, console=Console(stderr=True), transient=True)
                bar.start()
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=total)
            bar.update(tasks[label], completed=done, total=total, visible=done < total)

        return report

    try:
        yield start
    finally:
        if bar is not None:
            bar.stop()


def format_seconds(seconds: float) -> str:
    """Format a duration by its two largest units."""
    hours, minutes, rest = int(seconds) // 3600, int(seconds) // 60 % 60, round(seconds) % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def complete(step: "Step | str", context: typer.Context) -> "Step | str":
    """Add the options of this command that a suggested command takes as well, so that its line runs as printed."""
    if isinstance(step, str) or not step.carry:
        return step
    name, *kind = step.command.split()
    known = {param.name for param in context.parent.command.commands[name].params} & set(REPEATED)
    if kind:
        from cocos.reports import plot_kinds

        known &= {"param", "data", "model", "dims", *plot_kinds.find(kind[0]).options}
    if step.options.keys() & {"settles", "effective"}:
        known -= {"eps", "level"}
    typed = {
        key: getattr(value, "value", value)
        for key, value in context.params.items()
        if context.get_parameter_source(key).name == "COMMANDLINE"
    }
    if "file" in typed and [*step.files] == [typed.get("model")]:
        step = replace(step, files=(str(typed["file"]),))
    shared = {key: typed[key] for key in REPEATED if key in known & typed.keys()}
    if isinstance(shared.get("loss"), list) and len(shared["loss"]) > 1:
        shared = {key: value for key, value in shared.items() if key not in {"loss", "param"}}
    return replace(step, options=shared | dict(step.options))


def render(table: "Table | str", context: typer.Context) -> str:
    """Return a table as text no wider than the terminal, with its next commands completed."""
    if isinstance(table, str):
        return table
    return replace(table, typed=tuple(complete(step, context) for step in table.typed)).text(terminal.room())


def print_result(
    text: Callable[[], str],
    document: Callable[[], object],
    *,
    as_json: bool,
    quiet: bool,
    about: Iterable[str] = (),
    notes: Iterable[str] = (),
    wrote: Path | None = None,
) -> None:
    """Print lines about the input and notes to stderr, and the text or the JSON document to stdout."""
    for line in () if quiet else (*about, *(f"note: {note}" for note in notes)):
        terminal.say(line)
    terminal.put(json.dumps(document(), allow_nan=False) if as_json else text())
    if wrote is not None and not quiet:
        terminal.say(f"wrote {wrote}")


def read_notes(dataset: "xr.Dataset | dict[str, xr.Dataset]") -> list[str]:
    """Return the notes of a Dataset, or of several without repetitions."""
    datasets = dataset.values() if isinstance(dataset, dict) else [dataset]
    return list(dict.fromkeys(line for each in datasets for line in str(each.attrs.get("notes") or "").splitlines()))


def save(dataset: "xr.Dataset", out: Path | None, draw: Callable[[Path], object] | None = None) -> None:
    """Write a Dataset (.nc), or its figure."""
    if out is None:
        return
    from cocos import results

    results.save(dataset, out) if draw is None or out.suffix == ".nc" else draw(out)


def show(
    context: typer.Context,
    measure: str,
    dataset: "xr.Dataset",
    *,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    about: Iterable[str] = (),
    notes: Iterable[str] = (),
    draw: Callable[[Path], object] | None = None,
) -> None:
    """Save the Dataset of a measure or its figure, and print its tables or its document."""
    from cocos import reports

    save(dataset, out, draw)
    print_result(
        lambda: "\n\n".join(render(table, context) for table in reports.tables(measure, dataset)),
        lambda: reports.document(measure, dataset),
        as_json=as_json,
        quiet=quiet,
        about=about,
        notes=[*notes, *read_notes(dataset)],
        wrote=out,
    )


def draw_kind(kind: str, dataset: "xr.Dataset", width: str | None) -> Callable[[Path], object]:
    """Return a function that draws a Dataset into a file, as `cocos plot` does."""

    def draw(path: Path) -> object:
        from cocos.reports import plot_kinds

        return plot_kinds.find(kind).draw([dataset], {}, path, [{}], width=width)

    return draw


def command_line(*words: object) -> str:
    """Return words as they are typed in a shell."""
    return " ".join(shlex.quote(str(word)) for word in words)
