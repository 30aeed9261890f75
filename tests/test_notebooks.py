"""Notebooks are tutorials: prose, calls and pictures, stripped of output, and their cells run."""

import ast
import json
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_the_cells_run_in_order(path, monkeypatch, tmp_path):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 3
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    scope = {}
    for cell in cells:
        assert cell["outputs"] == [] and cell["execution_count"] is None
        text = "".join(cell["source"])
        assert not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.walk(ast.parse(text)))
        exec(compile(text, f"{path.name}: {text.splitlines()[0]}", "exec"), scope)
