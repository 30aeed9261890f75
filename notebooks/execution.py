"""Run the cells of a notebook in order, in this process, and collect the outputs that Jupyter would show."""

import ast
import base64
import contextlib
import importlib.util
import io
import json
import logging
import os
import shlex
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from PIL import Image
from typer.testing import CliRunner

from cocos.cli import app

__all__ = ["absent", "code_cells", "outputs", "read", "split", "text_of", "write"]

# Resolution of a kept picture, in dots per inch.
RESOLUTION = 80
# Colours of a kept picture; two hundred and fifty-six more than halve the compression.
COLOURS = 64
COMMAND = "!cocos "


def read(path: Path) -> dict:
    """Read a notebook (nbformat 4)."""
    return json.loads(path.read_text("utf-8"))


def write(notebook: dict, path: Path) -> None:
    """Write a notebook as Jupyter does, so that a change of one line is a change of one line."""
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


def text_of(cell: dict) -> str:
    """Source of a cell."""
    return "".join(cell["source"])


def code_cells(notebook: dict) -> list[dict]:
    """Cells that are executed."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def absent(cell: dict) -> list[str]:
    """Libraries that the metadata of a cell say it needs, and that are not installed."""
    return [name for name in cell["metadata"].get("needs", []) if importlib.util.find_spec(name) is None]


def split(text: str) -> list[str]:
    """Lines of a text with their ends, as notebooks store it."""
    return text.splitlines(keepends=True)


def _picture(figure: Figure) -> dict:
    """A figure as a small PNG without dates or versions, and with the titles and labels of its axes as text."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=RESOLUTION, bbox_inches="tight", facecolor="white")
    Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    said = [text for ax in figure.axes for text in (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) if text]
    words = [*([figure.get_suptitle()] if figure.get_suptitle() else []), *dict.fromkeys(said)]
    data = {"image/png": base64.b64encode(small.getvalue()).decode(), "text/plain": split("; ".join(words))}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def _value(value: object) -> dict:
    """The value of the last line of a cell."""
    data = {"text/plain": split(repr(value))}
    if hasattr(value, "_repr_html_"):
        data = {"text/html": split(value._repr_html_())} | data
    return {"output_type": "execute_result", "metadata": {}, "data": data, "execution_count": None}


class _Outputs(list):
    """Outputs of a cell in order; what is printed between two pictures is one output."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def flush(self) -> None:
        """Store what was printed since the last output."""
        if self.stream.getvalue():
            self.append({"output_type": "stream", "name": "stdout", "text": split(self.stream.getvalue())})
        self.stream.seek(0)
        self.stream.truncate()

    def show(self) -> None:
        """Store the open figures, in place of `plt.show`."""
        self.flush()
        self.extend(_picture(plt.figure(number)) for number in plt.get_fignums())
        plt.close("all")


def _commands(lines: list[str]) -> None:
    """Run lines `!cocos ...` in this process and print what they print.

    Raises:
        RuntimeError: one ends with an exit code above 1.
    """
    for line in lines:
        done = CliRunner().invoke(app, shlex.split(line.removeprefix(COMMAND), comments=True))
        print(done.output, end="")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        if done.exit_code > 1:
            raise RuntimeError(f"{line} ended with exit code {done.exit_code}")


def _execute(text: str, name: str, scope: dict, found: _Outputs) -> None:
    """Run the source of one cell."""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and all(line.startswith(COMMAND) for line in lines):
        _commands(lines)
        return
    tree = ast.parse(text)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), scope)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), name, "eval"), scope)
        if value is not None:
            found.flush()
            found.append(_value(value))


def outputs(notebook: dict, name: str) -> Iterator[tuple[dict, list[dict] | None]]:
    """Run a notebook in an empty folder, and yield each code cell with its outputs; None if a library is absent.

    The width is 80 columns, and `COCOS_FILE` is whatever the environment says. A warning is an error, except in cells
    that need a library.

    Raises:
        RuntimeError: a cell writes to stderr, or leaves a figure that it does not show.
    """
    scope: dict = {"__name__": "__main__"}
    before = os.environ.pop("COLUMNS", None), plt.show
    logger = logging.getLogger("cocos")
    level = logger.level
    plt.switch_backend("Agg")  # now, and not at the first figure: it sets attributes of `plt.show`
    plt.close("all")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), matplotlib.rc_context():
        try:
            for number, cell in enumerate(code_cells(notebook)):
                if absent(cell):
                    yield cell, None
                    continue
                found, complaints, needs = _Outputs(), io.StringIO(), cell["metadata"].get("needs")
                plt.show = found.show
                with (
                    contextlib.redirect_stdout(found.stream),
                    contextlib.redirect_stderr(complaints),
                    warnings.catch_warnings(),
                ):
                    warnings.simplefilter("ignore" if needs else "error")
                    _execute(text_of(cell), f"{name}, code cell {number}", scope, found)
                found.flush()
                if complaints.getvalue() and not needs:
                    raise RuntimeError(f"{name}, code cell {number} writes to stderr: {complaints.getvalue()}")
                if plt.get_fignums():
                    raise RuntimeError(f"{name}, code cell {number} leaves a figure open; end it with plt.show()")
                yield cell, list(found)
        finally:
            plt.close("all")
            plt.show = before[1]
            logger.setLevel(level)
            if before[0] is not None:
                os.environ["COLUMNS"] = before[0]
