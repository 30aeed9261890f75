"""What every command begins and ends with: check the output, open the input; save, say, print."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cocos import writing
from cocos.reports import terminal

if TYPE_CHECKING:
    import xarray as xr

    from cocos.reports.layout import Table

__all__ = ["Answer", "finish", "lines", "notes_of", "opened", "picture_asked", "saved"]


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


def picture_asked(out: Path, *inputs: Path | str | None) -> bool:
    """Whether `out` names a picture rather than a Dataset, after refusing what cannot be written.

    Args:
        out: the output.
        inputs: files that are read; None is no input.

    Raises:
        InputError: it cannot be written, or it is one of the inputs.
    """
    from cocos import results
    from cocos.reports import saving

    picture = out.suffix != ".nc"
    saving.writable(out, ".nc") if picture else results.writable(out)
    writing.apart(out, *inputs)
    return picture


def opened(
    file: Path,
    loss: str | None,
    parameters: dict,
    out: Path | None,
    data: Path | None,
    model: list[str] | None,
    trust: bool,
) -> tuple:
    """The checkpoint, the loss, and the origin of its parameters; checks that cost little come first."""
    from cocos import checkpoints, losses, results

    if loss is not None:
        losses.load(loss, parameters)
    if out is not None:
        results.writable(out)
    writing.apart(out, file, data)
    frozen = checkpoints.open(file, data=data, model=model or None, trust=trust)
    return frozen, *frozen.loss(loss, parameters)


def saved(data: "xr.Dataset", out: Path | None, draw: Callable[[Path], object] | None = None) -> tuple[Path, ...]:
    """Write a result to a file, and return the files written.

    Args:
        data: the result.
        out: where to write it; None: nowhere.
        draw: draws the picture; None: the Dataset is saved.
    """
    if out is None:
        return ()
    if draw is not None:
        draw(out)
    else:
        from cocos import results

        results.save(data, out)
    return (out,)
