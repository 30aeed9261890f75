"""What every command begins and ends with: check the output, open the input; save, say, print."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cocos import writing
from cocos.commands._options import Source
from cocos.reports import terminal

if TYPE_CHECKING:
    import xarray as xr

    from cocos.reports.layout import Table

__all__ = ["Answer", "checked", "finish", "lines", "notes_of", "opened", "saved"]


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


def lines(table: "Table | str") -> str:
    """A table as text no wider than the terminal; text stays as it is."""
    if isinstance(table, str):
        return table
    return table.text(terminal.room())


def finish(answer: Answer, *, as_json: bool, quiet: bool) -> None:
    """Say what a command read and wrote on stderr, and print its result on stdout.

    Args:
        answer: of the command.
        as_json: print the JSON document instead of the text.
        quiet: say nothing on stderr.
    """
    for line in () if quiet else (*answer.about, *(f"note: {note}" for note in answer.notes)):
        terminal.say(line)
    terminal.put(json.dumps(answer.document(), allow_nan=False) if as_json else lines(answer.text()))
    for each in () if quiet else answer.wrote:
        terminal.say(f"wrote {each}")


def notes_of(data: "xr.Dataset") -> list[str]:
    """Notes that a measure left in its Dataset."""
    return [line for line in data.attrs.get("notes", "").splitlines() if line]


def checked(out: Path | None, *inputs: Path | str | None, figures: bool = False) -> bool:
    """Refuse an output that cannot be written, before anything is computed; whether it is a figure.

    Args:
        out: the output; None: nothing is written.
        inputs: files that are read; None is no input.
        figures: whether the output may be a figure; otherwise it is a Dataset.

    Raises:
        InputError: it cannot be written, or it is one of the inputs.
    """
    if out is None:
        return False
    from cocos import results
    from cocos.reports import saving

    figure = figures and out.suffix != ".nc"
    saving.writable(out, ".nc") if figure else results.writable(out)
    writing.apart(out, *inputs)
    return figure


def opened(file: Path, loss: str | None, parameters: dict, source: Source) -> tuple:
    """The checkpoint, the loss, and the origin of its parameters; a loss that cannot be is refused before."""
    from cocos import losses

    if loss is not None:
        losses.load(loss, parameters)
    frozen = source.open(file)
    return frozen, *frozen.loss(loss, parameters)


def saved(data: "xr.Dataset", out: Path | None, draw: Callable[[Path], object] | None = None) -> tuple[Path, ...]:
    """Write a result to a file, and return the files written.

    Args:
        data: the result.
        out: where to write it; None: nowhere.
        draw: draws the figure; None: the Dataset is saved.
    """
    if out is None:
        return ()
    if draw is not None:
        draw(out)
    else:
        from cocos import results

        results.save(data, out)
    return (out,)
