"""Notebooks are tutorials: prose, calls and pictures that are kept; their cells print what the kept outputs say."""

import ast
import contextlib
import io
import json
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
BY_PATH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def cells(path, kind="code"):
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


def printed(path, monkeypatch, folder):
    """What each code cell prints, run in order in an empty folder, as at a width of 80."""
    matplotlib.use("Agg")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    scope = {}
    for cell in cells(path):
        text = "".join(cell["source"])
        with contextlib.redirect_stdout(io.StringIO()) as stream:
            exec(compile(text, f"{path.name}: {text.splitlines()[0]}", "exec"), scope)
        yield stream.getvalue()


@BY_PATH
def test_the_cells_print_what_their_kept_outputs_say(path, monkeypatch, tmp_path):
    monkeypatch.delenv("COCOS_FILE", raising=False)
    kept = [
        "".join(line for each in cell["outputs"] if each["output_type"] == "stream" for line in each["text"])
        for cell in cells(path)
    ]
    assert list(printed(path, monkeypatch, tmp_path)) == kept


@BY_PATH
def test_outputs_are_kept_and_the_last_words_are_how_to_read_them(path):
    every = cells(path)
    assert len(every) > 3
    for cell in every:
        text = "".join(cell["source"])
        assert not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.walk(ast.parse(text)))
        kinds = [kind for each in cell["outputs"] for kind in each.get("data", ())]
        assert ("image/png" in kinds) == ("plt.show()" in text), text
        assert all(each["output_type"] != "error" for each in cell["outputs"])
    last = json.loads(path.read_text("utf-8"))["cells"][-1]
    assert last["cell_type"] == "markdown" and "".join(last["source"]).startswith("## Reading it\n")


@pytest.mark.parametrize("sides", ["labelled", "pairs"])
@pytest.mark.parametrize("name", ["count", "query"])
def test_a_file_of_ones_own_goes_through(name, sides, monkeypatch, tmp_path):
    """Both notebooks invite one; `count` failed on a labelled set."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(48, 8)).astype(np.float32)
    if sides == "labelled":
        arrays = {"embeddings": rows, "labels": np.arange(48) // 4}
    else:
        arrays = {"query": rows, "candidate": rows + 0.1 * rng.normal(size=rows.shape).astype(np.float32)}
    np.savez(tmp_path / "mine.npz", **arrays)
    monkeypatch.setenv("COCOS_FILE", str(tmp_path / "mine.npz"))
    (path,) = (each for each in NOTEBOOKS if each.stem == name)
    assert len(list(printed(path, monkeypatch, tmp_path))) == len(cells(path))
