"""What reaches a terminal: no wider than it, clean, and of a bounded length."""

import json
import os
import re

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from typer.testing import CliRunner

import cocos
from cocos import measures
from cocos.base import terminal
from cocos.cli import app, plot
from cocos.plots import saving
from cocos.reports import table
from cocos.reports.text import Table

EVIL = "\x1b[2J\x1b]0;owned\x07a\rb\x9b31m\u202egnp\u2066\nformat  verified\x00"


@pytest.fixture(autouse=True)
def eighty(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    draw = np.random.default_rng(3)
    image, group = draw.normal(size=(20, 8)), np.repeat(np.arange(20), 5)
    caption = image[group] + 0.8 * draw.normal(size=(100, 8))
    sides = {"query": image, "candidate": caption, "query_group": np.arange(20), "candidate_group": group}
    np.savez(folder / "e.npz", **sides)
    np.savez(folder / "pairs.npz", query=image, candidate=image + 0.5 * draw.normal(size=(20, 8)))
    labels, proxies = np.repeat(np.arange(6), 5), draw.normal(size=(6, 8))
    for step in (1, 2):
        samples = proxies[labels] + draw.normal(size=(30, 8)) / step
        np.savez(
            folder / f"epoch_{step}.npz", embeddings=samples, labels=labels, proxies=proxies, proxy_labels=range(6)
        )
    np.savez(folder / "labelled.npz", embeddings=samples, labels=labels)
    return folder


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


FROM_A_FILE = sorted({*plot.KINDS} - {*plot.WITHOUT_FILE, "dtp"})
TABLES = [
    *("count e.npz --batch-size all --metrics", "count e.npz --loss smoothap --convention ecir2022"),
    *("count labelled.npz --loss triplet_sh+0.5*contrastive_cosine", "plot decomposition labelled.npz --loss supcon"),
    *("evaluate e.npz --folds 4 --distractors pairs.npz", "evaluate labelled.npz", "inspect e.npz", "losses"),
    *("losses ntxent", "verify circle", "verify e.npz --loss lifted_structure --batches 1 --batch-size 16", "plot"),
    *("plot landscape --f1 warp", "plot landscape --loss ntxent", "plot dtp epoch_1.npz epoch_2.npz"),
    *("plot weight_curve --loss circle", "plot contributors e.npz --row 3"),
    *(f"plot {kind} e.npz" for kind in FROM_A_FILE if kind not in {"contributors", "score_landscape", "sources"}),
    "plot sources e.npz --loss mnrl --param directions=query-candidate,query-query",
]


@pytest.mark.parametrize("line", TABLES)
def test_lines_fit_the_terminal(line, folder, monkeypatch, tmp_path):
    for file in folder.glob("*.npz"):
        os.link(file, tmp_path / file.name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(saving, "save_panels", lambda *_, **__: None)  # only the text is looked at
    done = call(*line.split())
    assert done.exit_code == 0, done.output
    assert done.stdout.strip()
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert not re.search(r"\bnan\b", done.stdout)


def test_columns_is_the_width(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    for arguments in (["losses"], ["plot", "decomposition", folder / "e.npz"]):
        assert max(map(len, call(*arguments).stdout.splitlines())) <= 60
    monkeypatch.setenv("COLUMNS", "300")
    data = measures.count(cocos.open(folder / "e.npz"), "ntxent", batch_size=32)
    wide = table("count", {"ntxent": data, "again": data}).text(terminal.room())
    assert max(map(len, wide.splitlines())) > 80
    narrow = table("count", {"ntxent": data}).text(70).splitlines()
    assert max(len(line) for line in narrow if not line.startswith("next: ")) <= 70  # commands are copied whole
    monkeypatch.delenv("COLUMNS")
    assert terminal.room() == 80


def test_cell_cannot_forge_row():
    table = Table((EVIL, "b"), ((EVIL, EVIL),), (EVIL,), (EVIL,), typed=(EVIL,))
    for width in (None, 80, 40):
        text = table.text(width)
        assert all(character.isprintable() or character == "\n" for character in text)
        assert not any(line.startswith("format") for line in text.splitlines())


def test_file_names_are_printable(tmp_path, folder):
    name = tmp_path / "a\x1b[31m\u202e\r\x9b.npz"
    arrays = dict(np.load(folder / "e.npz"))
    np.savez(name, **arrays)
    turned = tmp_path / "turned.npz"
    np.savez(turned, **arrays, directions=np.array(["\u202ea", "b"]))
    strange = tmp_path / "strange.safetensors"
    save_file(arrays | {f"q\x1b[2J{'uery' * 25_000}": arrays["query"]}, strange)
    nowhere = tmp_path / "no\x1b]0;x\x07\n.pt"
    for arguments in (
        *([command, path] for command in ("inspect", "count") for path in (name, turned, strange, nowhere)),
        ["evaluate", name],
        ["plot", "lorenz", name, "--out", tmp_path / "a.png"],
        ["count", folder / "e.npz", "--loss", EVIL],
        ["count", folder / "e.npz", "--loss", "x" * 100_000],
        ["count", folder / "e.npz", "-p", f"{EVIL}=1"],
    ):
        done = call(*arguments)
        assert done.exit_code in {0, 2}, done.output
        assert not [c for c in done.stdout + done.stderr if not (c.isprintable() or c == "\n")], arguments
        assert all(len(line) <= 2010 for line in (done.stdout + done.stderr).splitlines()), arguments
        assert not (done.exit_code and done.stdout)
    assert json.loads(call("inspect", name, "--json").stdout)["path"] == str(name)


@pytest.mark.parametrize("kind", ["count", "retrievals", "eps_curve", "contributors"])
def test_formula_in_name_is_text(kind, folder, tmp_path):
    file = tmp_path / "formula.npz"
    np.savez(file, **dict(np.load(folder / "e.npz")), directions=np.array([r"$\frac{$", "$x$ and $y"]))
    row = ["--queries", "1"] if kind == "retrievals" else ["--row", "1"] if kind == "contributors" else []
    done = call("plot", kind, file, *row, "--out", tmp_path / "a.svg")
    assert done.exit_code == 0, done.output
    assert r"$\frac{$" in (tmp_path / "a.svg").read_text()


def test_unsafe_hostile_name_is_printable(tmp_path):
    class Runs:
        def __reduce__(self):
            return (__import__("os").system, ("true\x1b[31m",))

    path = tmp_path / "a\x1b[2J\u202eb.pt"
    torch.save({"state_dict": Runs()}, path)
    with pytest.raises(cocos.UnsafeFile) as refused:
        cocos.open(path)
    assert str(refused.value).isprintable() and "?[2J?b.pt" in str(refused.value)
