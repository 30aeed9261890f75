"""What all commands do with their results: check the output file, show progress, print and save.

Every command has the options `out`, `json` and `quiet`, which are read from its context.
"""

import gc
import json
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cocos.base import terminal
from cocos.base.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

    from cocos.reports.tables import Step, Table

RESULTS, FIGURES = (".nc",), (".png", ".pdf", ".svg")
# Seconds of work before its progress is shown; off a terminal, each line waits twice as long as the one before.
DELAY_SECONDS = 2.0
# Options of a command that a suggested next command repeats.
REPEATED = (
    *("loss", "param", "eps", "batch_size", "batches", "sample", "per_group", "copies", "same_group", "seed", "dtype"),
    *("convention", "device", "split", "data", "model", "dims", "steps", "k", "evaluated"),
)


def check_output(out: Path | None, *inputs: Path | str | None, suffixes: Sequence[str] = RESULTS) -> None:
    """Refuse an output file that cannot be written, or that is an input, before anything is computed."""
    if out is None:
        return
    if out.suffix.lower() not in suffixes:
        raise InputError(f"--out {out}: suffix {out.suffix!r}, expected {' or '.join(suffixes)}")
    from cocos.base import writing

    writing.output(out, "--out")
    writing.apart(out, *inputs)


@contextmanager
def progress(quiet: bool) -> Generator[Callable[[str], Callable[[int, int], None]]]:
    """Show the progress of long work on one line of stderr: `start(name)` returns a callback of (done, total).

    Garbage collection, which `main` turned off for the imports, is turned on again.
    """
    gc.enable()
    begun, delay = time.monotonic(), DELAY_SECONDS
    bar: Any = None

    def start(name: str) -> Callable[[int, int], None]:
        label, first = terminal.one_line(name, 60).replace("[", "("), time.monotonic()  # `[` is markup to rich
        task: Any = None

        def report(done: int, total: int) -> None:
            nonlocal bar, delay, task
            now = time.monotonic()
            if quiet or now - begun < delay:
                return
            if not sys.stderr.isatty():
                delay *= 2
                left = timedelta(seconds=round((total - done) * (now - first) / max(done, 1)))
                terminal.say(f"{label}: {done} of {total}, {left} left")
                return
            from rich import progress as widgets
            from rich.console import Console

            if bar is None:
                columns = ("{task.description}", widgets.BarColumn(), "{task.completed} of {task.total}")
                remaining = widgets.TimeRemainingColumn()
                bar = widgets.Progress(*columns, remaining, console=Console(stderr=True), transient=True)
                bar.start()
            task = bar.add_task(label, total=total) if task is None else task
            bar.update(task, completed=done, total=total, visible=done < total)

        return report

    try:
        yield start
    finally:
        if bar is not None:
            bar.stop()


def complete(step: "Step | str", context: typer.Context) -> "Step | str":
    """Add the options of this command that a suggested command takes as well, so that its line runs as printed."""
    if isinstance(step, str) or not step.carry:
        return step
    name, *kind = step.command.split()
    accepted = {param.name for param in context.parent.command.commands[name].params}
    if kind:
        from cocos.cli import plot

        accepted &= {"data", "model", "dims", *plot.options_of(kind[0])}
    if step.options.keys() & {"settles", "effective"}:
        accepted.discard("eps")
    typed = {key: value for key, value in context.params.items() if is_typed(context, key)}
    if [*step.files] == [typed.get("model")]:
        step = replace(step, files=(str(typed["file"]),))
    shared = {key: typed[key] for key in REPEATED if key in accepted & typed.keys()}
    shared = {key: ",".join(map(str, value)) if isinstance(value, tuple) else value for key, value in shared.items()}
    if isinstance(shared.get("loss"), list) and len(shared["loss"]) > 1:  # the suggested command takes one
        del shared["loss"]
        shared.pop("param", None)
    return replace(step, options=shared | dict(step.options))


def is_typed(context: typer.Context, name: str) -> bool:
    """Return whether an option is on the command line."""
    return context.get_parameter_source(name).name == "COMMANDLINE"


def print_result(
    context: typer.Context,
    tables: "Callable[[], Iterable[Table | str]]",
    document: Callable[[], object],
    *,
    about: Iterable[str] = (),
    notes: Iterable[str] = (),
    wrote: Path | None = None,
) -> None:
    """Print lines about the input and notes to stderr, and the tables or the JSON document to stdout."""
    quiet = context.params["quiet"]
    for line in () if quiet else dict.fromkeys((*about, *(f"note: {note}" for note in notes))):
        terminal.say(line)
    if context.params["json"]:
        terminal.put(json.dumps(document(), allow_nan=False))
    else:
        texts = []
        for table in tables():
            if isinstance(table, str):
                texts.append(table)
            else:
                steps = tuple(complete(step, context) for step in table.typed)
                texts.append(replace(table, typed=steps).text(terminal.room()))
        terminal.put("\n\n".join(texts))
    if wrote is not None and not quiet:
        terminal.say(f"wrote {wrote}")


def read_notes(dataset: "xr.Dataset | dict[str, xr.Dataset]") -> list[str]:
    """Return the notes of a Dataset, or of several."""
    datasets = dataset.values() if isinstance(dataset, dict) else [dataset]
    return [line for dataset in datasets for line in str(dataset.attrs.get("notes") or "").splitlines()]


def save(dataset: "xr.Dataset", out: Path | None, draw: Callable[[Path], object] | None = None) -> None:
    """Write a Dataset (.nc), or its figure."""
    if out is None:
        return
    from cocos import results

    results.save(dataset, out) if draw is None or out.suffix == ".nc" else draw(out)


def show(
    context: typer.Context,
    dataset: "xr.Dataset",
    *,
    about: Iterable[str] = (),
    notes: Iterable[str] = (),
    draw: Callable[[Path], object] | None = None,
) -> None:
    """Save the Dataset of a measure or its figure, and print its tables or its document."""
    from cocos import reports

    out, measure = context.params["out"], dataset.attrs["measure"]
    save(dataset, out, draw)
    print_result(
        context,
        lambda: reports.tables(measure, dataset),
        lambda: reports.document(measure, dataset),
        about=about,
        notes=[*notes, *read_notes(dataset)],
        wrote=out,
    )
