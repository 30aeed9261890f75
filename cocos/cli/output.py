"""What all commands do with their results: check the output file, show progress, print and save.

Every command has the options `out`, `json` and `quiet`, which are read from its context.
"""

import gc
import json
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

import cocos
from cocos.base import terminal, writing
from cocos.base.errors import InputError
from cocos.cli import options

RESULTS, FIGURES = (".nc",), (".png", ".pdf", ".svg")
# Seconds of work before its progress is shown, and between its lines off a terminal.
DELAY_SECONDS, PAUSE_SECONDS = 2.0, 60.0


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
    """Show the progress of long work on stderr: `start(name)` returns a callback of (done, total).

    Garbage collection, which `main` turned off for the imports, is turned on again.
    """
    gc.enable()
    from rich.console import Console
    from rich.progress import Progress

    console, due = Console(stderr=True), time.monotonic() + DELAY_SECONDS
    bars = Progress(console=console, transient=True, disable=quiet or not console.is_terminal)

    def start(name: str) -> Callable[[int, int], None]:
        label = terminal.one_line(name, 60).replace("[", "(")  # `[` is markup to rich
        task = bars.add_task(label, visible=False)

        def report(done: int, total: int) -> None:
            nonlocal due
            if quiet or time.monotonic() < due:
                return
            bars.update(task, completed=done, total=total, visible=done < total)
            if not console.is_terminal:
                due = time.monotonic() + PAUSE_SECONDS
                terminal.say(f"{label}: {done} of {total}")

        return report

    with bars:
        yield start


def complete(step: Any, context: typer.Context) -> Any:
    """Add the options of this command that a suggested command takes as well, so that its line runs as printed."""
    if isinstance(step, str) or not step.carry:
        return step
    name, *kind = step.command.split()
    names = [param.name for param in context.parent.command.commands[name].params if param.param_type_name == "option"]
    if kind:
        from cocos.cli import plot

        names = [name for name in names if name in {"data", "model", *plot.options_of(kind[0])}]
    typed = options.chosen(context, *(name for name in names if name not in ("out", "json", "quiet")))
    file = context.params.get("file")
    return replace(step, files=step.files if file is None else (str(file),), options=typed | dict(step.options))


def print_result(context: typer.Context, tables: list, document: Any, notes: Sequence[str] = (), steps: tuple = ()):
    """Print the notes on the input and on the result to stderr, and the tables or the JSON document to stdout.

    `steps` are commands to type next, if the tables have none. An output file .json gets the document.
    """
    out, quiet = context.params["out"], context.params["quiet"]
    for line in () if quiet else dict.fromkeys([*(context.obj or ()), *(f"note: {note}" for note in notes)]):
        terminal.say(line)
    if out is not None and out.suffix == ".json":
        writing.write(out, json.dumps(document, allow_nan=False, indent=1).encode() + b"\n")
    if context.params["json"]:
        terminal.put(json.dumps(document, allow_nan=False))
    else:
        texts = []
        for table in tables:
            if isinstance(table, str):
                texts.append(table)
                continue
            typed, steps = tuple(complete(step, context) for step in steps or table.typed), ()
            texts.append(replace(table, typed=typed).text(terminal.room()))
        terminal.put("\n\n".join(texts))
    if out is not None and not quiet:
        terminal.say(f"wrote {out}")


def show(context: typer.Context, dataset: Any, steps: tuple = (), **texts: Any) -> None:
    """Save the Dataset of a measure or of several losses, or its figure, and print its tables or its document.

    `texts` are options of `reports.tables`.
    """
    out, datasets = context.params["out"], list(dataset.values()) if isinstance(dataset, dict) else [dataset]
    measure = datasets[0].attrs["measure"]
    if out is not None and out.suffix == ".nc":
        cocos.results.save(dataset, out)
    elif out is not None and out.suffix in FIGURES:
        from cocos.reports import drawing

        drawing.draw(measure, datasets, out, width=context.params.get("width"))
    tables, document = cocos.reports.tables(measure, dataset, **texts), cocos.reports.document(measure, dataset)
    # The tables begin with the urgent findings.
    urgent = () if context.params["json"] else cocos.counting.findings.first(datasets[0].attrs)
    notes = [note for one in datasets for note in cocos.results.lines(one.attrs) if note not in urgent]
    print_result(context, tables, document, notes, steps)
