"""Tables of vectors open as the embeddings that they contain; other vectors get the line that converts them."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import cocos
from cocos.base.errors import InputError
from cocos.cli import app

ROWS = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
OTHER = np.random.default_rng(1).normal(size=(12, 4)).astype(np.float32)
LABELS = np.arange(12) // 3


def lines(rows, delimiter=","):
    return "\n".join(delimiter.join(map(str, row)) for row in rows) + "\n"


def listed(row):
    return json.dumps(row.tolist())


def pandas_lists(folder):
    rows = [(k, LABELS[k], f'"{listed(ROWS[k])}"') for k in range(12)]
    (folder / "a.csv").write_text(lines([("", "label", "embedding"), *rows]))
    return folder / "a.csv"


def pandas_arrays(folder):
    rows = [(k, LABELS[k], f'"[{" ".join(map(str, ROWS[k]))}]"') for k in range(12)]
    (folder / "a.csv").write_text(lines([("", "label", "embedding"), *rows]))
    return folder / "a.csv"


def wide(folder):
    names = ("", *(f"dim_{k}" for k in range(4)), "label")
    (folder / "a.csv").write_text(lines([names, *((k, *ROWS[k], LABELS[k]) for k in range(12))]))
    return folder / "a.csv"


def wide_numbers(folder):
    names = ("class", *range(4))
    (folder / "a.tsv").write_text(lines([names, *((f"c{LABELS[k]}", *ROWS[k]) for k in range(12))], "\t"))
    return folder / "a.tsv"


def json_lines(folder):
    rows = ({"text": "a", "vector": ROWS[k].tolist(), "label": int(LABELS[k])} for k in range(12))
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder / "a.jsonl"


def parquet(folder):
    arrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    writer.write_table(
        arrow.table({"label": LABELS, "embedding": list(map(np.ndarray.tolist, ROWS))}), folder / "a.parquet"
    )
    return folder / "a.parquet"


def projector(folder):
    (folder / "vectors.tsv").write_text(lines(ROWS, "\t"))
    return folder / "vectors.tsv"


def arrays(folder):
    np.save(folder / "embeddings.npy", ROWS)
    np.save(folder / "labels.npy", LABELS)
    return folder


@pytest.mark.parametrize(
    "write",
    [pandas_lists, pandas_arrays, wide, wide_numbers, json_lines, parquet, arrays],
)
def test_labelled_vectors_open_as_embeddings(tmp_path, write):
    embeddings = cocos.open(write(tmp_path)).embed(device="cpu")
    assert embeddings.directions == ("s2s",)
    np.testing.assert_allclose(embeddings.query.numpy(), ROWS, rtol=1e-6)
    groups = embeddings.query_group.numpy()
    assert ((groups[:, None] == groups) == (LABELS[:, None] == LABELS)).all()


@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_label_minus_one_has_no_positive(tmp_path, suffix):
    sets = {"embeddings": ROWS, "labels": np.where(LABELS == 0, -1, LABELS)}
    if suffix == "npz":
        np.savez(tmp_path / "a.npz", **sets)
    for name, values in sets.items() if suffix == "npy" else ():
        np.save(tmp_path / f"{name}.npy", values)
    groups = cocos.open(tmp_path / "a.npz" if suffix == "npz" else tmp_path).embed(device="cpu").query_group
    assert [(groups == group).sum() for group in groups] == [1] * 3 + [3] * 9


def pair_lists(folder):
    rows = [(f'"{listed(ROWS[k])}"', f'"{listed(OTHER[k])}"') for k in range(12)]
    (folder / "a.csv").write_text(lines([("query_embedding", "candidate_embedding"), *rows]))
    return folder / "a.csv"


def image_texts(folder):
    np.save(folder / "image_embeddings.npy", ROWS)
    np.save(folder / "text_embeddings.npy", OTHER)
    return folder


def two_sides(folder):
    np.save(folder / "query.npy", ROWS)
    np.save(folder / "candidate.npy", OTHER)
    return folder


@pytest.mark.parametrize(
    ("write", "directions"), [(pair_lists, ("q2c", "c2q")), (image_texts, ("i2t", "t2i")), (two_sides, ("q2c", "c2q"))]
)
def test_two_columns_of_vectors_open_as_sides(tmp_path, write, directions):
    embeddings = cocos.open(write(tmp_path)).embed(device="cpu")
    assert embeddings.directions == directions
    np.testing.assert_allclose(embeddings.query.numpy(), ROWS, rtol=1e-6)
    np.testing.assert_allclose(embeddings.candidate.numpy(), OTHER, rtol=1e-6)


def without_label(folder):
    (folder / "a.csv").write_text(lines([("id", "embedding"), *((k, f'"{listed(ROWS[k])}"') for k in range(12))]))
    return folder / "a.csv"


def ragged(folder):
    rows = [(LABELS[k], f'"{listed(ROWS[k][: 4 - (k == 7)])}"') for k in range(12)]
    (folder / "a.csv").write_text(lines([("label", "embedding"), *rows]))
    return folder / "a.csv"


def word2vec(folder):
    (folder / "a.txt").write_text("12 4\n" + lines([(f"w{k}", *ROWS[k]) for k in range(12)], " "))
    return folder / "a.txt"


def glove(folder):
    rows = np.random.default_rng(0).normal(size=(5, 25))
    (folder / "a.txt").write_text(lines([(f"w{k}", *row) for k, row in enumerate(rows)], " "))
    return folder / "a.txt"


def faiss(folder):
    (folder / "a.index").write_bytes(b"IxFI" + bytes(60))
    return folder / "a.index"


def hdf5(folder):
    (folder / "a.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(60))
    return folder / "a.hdf5"


def scores_without_label(folder):
    (folder / "a.csv").write_text("query,candidate,score\nq1,c1,0.5\nq1,c2,0.25\n")
    return folder / "a.csv"


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (without_label, ("label",)),
        (projector, ("numpy.savez", "loadtxt")),
        (ragged, ("line 9", "embedding")),
        (word2vec, ("numpy.savez", "loadtxt")),
        (glove, ("numpy.savez", "loadtxt")),
        (faiss, ("reconstruct_n", "savez")),
        (hdf5, ("h5py", "savez")),
        (scores_without_label, ("label",)),
    ],
)
def test_vectors_without_classes_get_the_next_step(tmp_path, write, words):
    path = write(tmp_path)
    with pytest.raises(InputError) as error:
        cocos.open(path)
    assert all(word in str(error.value) for word in (*words, path.name))
    for command in ("count", "inspect"):
        done = CliRunner().invoke(app, [command, str(path)])
        assert done.exit_code == 2 and done.stderr.count("\n") == 1


def test_texts_are_not_taken_for_vectors(tmp_path):
    (tmp_path / "a.csv").write_text("query,candidate\n[a],b\nc,d\n")
    (tmp_path / "b.csv").write_text("text,label,year_1,year_2\na,1,2001,2002\n")
    for name in ("a.csv", "b.csv"):
        assert cocos.checkpoints.inspect(tmp_path / name)["format"] == "pairs"


@pytest.mark.parametrize("loss", ["ranknet", "lambdaloss"])
def test_scores_without_grades_ask_for_the_column(tmp_path, loss):
    path = tmp_path / "a.csv"
    rows = [("q1", "c1", 0.5, 1, 2), ("q1", "c2", 0.75, 0, 0), ("q2", "c1", 0.5, 1, 1), ("q2", "c2", 0.25, 0, 0)]
    names = ("query", "candidate", "score", "label", "grade")
    for width, code in ((4, 2), (5, 0)):
        path.write_text(lines([names[:width], *(row[:width] for row in rows)]))
        done = CliRunner().invoke(app, ["count", str(path), "--loss", loss])
        assert done.exit_code == code and ("column grade" in done.stderr) == (code == 2)
