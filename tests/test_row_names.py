"""A table gives the rows of a file of embeddings their names and pictures."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import cocos
from cocos.base.errors import InputError
from cocos.commands import app

SAID = {"query": ("a cat", "a dog", ""), "candidate": ("it purrs", "it barks", "it hums", "it flies")}


@pytest.fixture
def inside(tmp_path, monkeypatch):
    """Embeddings of three queries and four candidates, a labelled set, and tables for both."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    groups = {"query_group": [0, 1, 2], "candidate_group": [0, 1, 0, 2]}
    np.savez("some.npz", query=rng.normal(size=(3, 5)), candidate=rng.normal(size=(4, 5)), **groups)
    np.savez("set.npz", embeddings=rng.normal(size=(4, 5)), labels=[0, 0, 1, 1])
    write("names.jsonl", query_name=SAID["query"], candidate_name=SAID["candidate"])
    for k in range(4):
        Image.new("RGB", (8, 8), (60 * k, 0, 0)).save(f"{k}.png")
    return tmp_path


def write(path, **columns):
    """Rows as long as the longest column, JSON lines or CSV."""
    rows = [
        {name: values[k] if k < len(values) else None for name, values in columns.items()}
        for k in range(max(map(len, columns.values())))
    ]
    lines = [json.dumps(row) for row in rows]
    if path.endswith(".csv"):
        lines = [",".join(columns), *(",".join(each or "" for each in row.values()) for row in rows)]
    Path(path).write_text("".join(line + "\n" for line in lines), "utf-8")


@pytest.mark.parametrize("table", ["names.jsonl", "names.csv"])
def test_both_sides_are_named(table, inside):
    write(table, query_name=SAID["query"], candidate_name=SAID["candidate"])
    found = cocos.open("some.npz", names=table)
    assert found.embed().names == (SAID["query"], SAID["candidate"])
    query, candidate = found.items().texts("c2q")
    assert query(2) == "it hums" and candidate(2) == "row 2, group 2"
    assert found.contents["names"] == table


def test_tables_and_pictures_use_them(inside):
    words = ["some.npz", "--names", "names.jsonl", "--batch-size", "all"]
    done = CliRunner().invoke(app, ["query", *words, "--row", "1"])
    assert done.exit_code == 0 and all(name in done.stdout for name in ("a dog", "it barks", "it flies"))
    for line in (
        ["count", *words],
        ["plot", "retrievals", "some.npz", "--direction", "q2c", "--names", "names.jsonl", "--out", "a.nc"],
    ):
        done = CliRunner().invoke(app, line)
        assert done.exit_code == 0, done.stderr


def test_samples_of_a_labelled_set_have_names_and_pictures(inside):
    write("more.csv", name=("one", "two", "three", "four"), image=[f"{k}.png" for k in range(4)])
    found = cocos.open("set.npz", names="more.csv")
    assert found.embed().names == (("one", "two", "three", "four"),) * 2
    assert found.items().pictures("s2s")[1](3)[0, 0].tolist() == [180, 0, 0]
    assert found.embed().shared


def test_one_side_alone_keeps_what_the_file_has(inside):
    arrays = dict(np.load("some.npz"))
    np.savez("named.npz", **arrays, query_name=np.array(["x", "y", "z"]))
    write("more.jsonl", candidate_name=SAID["candidate"])
    assert cocos.open("named.npz", names="more.jsonl").embed().names == (("x", "y", "z"), SAID["candidate"])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"query_name": ["a"] * 4}, "4 values of query_name, expected 3"),
        ({"query_name": ["a"] * 2}, "2 values of query_name, expected 3"),
        ({"query_nam": ["a"] * 3}, "'query_name'"),
        ({"query_name": [["a"]] * 3}, "line 1: query_name"),
        ({"query_image": ["../a.png"] * 3}, r"line 1: query_image.*\.\./a.png"),
        ({"query_image": ["/a.png"] * 3}, "line 1: query_image"),
        ({"query_image": [3] * 3}, "line 1: query_image"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(columns, said, inside):
    write("wrong.jsonl", **columns)
    with pytest.raises(InputError, match=said):
        cocos.open("some.npz", names="wrong.jsonl").embed()


def test_data_name_their_own_rows(inside):
    with pytest.raises(InputError, match="named by its data"):
        cocos.open(cocos.checkpoints.EXAMPLE_FILE, names="names.jsonl")
    with pytest.raises(InputError, match=r"gone.jsonl"):
        cocos.open("some.npz", names="gone.jsonl")
