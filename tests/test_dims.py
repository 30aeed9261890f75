"""The first dimensions of embeddings: `--dims N` is a file that contains the truncated arrays."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import InputError, measures
from cocos.cli import app

ROWS, WIDTH, DIMS = 40, 12, 5
COUNT = ("--loss", "ntxent", "--batch-size", "16")


def arrays(rows=ROWS, noise=1):
    generator = np.random.default_rng(3)
    query = generator.normal(size=(rows, WIDTH))
    return {"query": query, "candidate": query + noise * generator.normal(size=(rows, WIDTH))}


SAMPLES = {"embeddings": arrays()["query"], "labels": np.arange(ROWS) % 8}
CASES = {  # command, files by name (the first is the argument), options; `FILE` is replaced by the path of a file
    "count": ("count", {"a.npz": arrays()}, COUNT),
    "evaluate": ("evaluate", {"a.npz": arrays()}, ()),
    "verification": ("evaluate", {"a.npz": SAMPLES}, ("--verification",)),
    "distractors": ("evaluate", {"a.npz": arrays(), "b.npz": arrays(60)}, ("--distractors", "b.npz")),
    "shards": ("count", {"query_00000.npy": arrays()["query"], "candidate_00000.npy": arrays()["candidate"]}, COUNT),
}


def save(folder, files, dims=None):
    """Save arrays, truncated to the first dimensions; return the folder."""
    folder.mkdir()
    for name, content in files.items():
        if isinstance(content, dict):
            short = {key: values[:, :dims] if values.ndim > 1 else values for key, values in content.items()}
            np.savez(folder / name, **short)
        else:
            np.save(folder / name, content[:, :dims].astype(np.float32))
    return folder


def read(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments), "--json", "-q"])
    assert done.exit_code == 0, done.output + done.stderr
    return json.loads(done.stdout)


def without_source(document):
    """Return the numbers of a document, without the file and its notes."""
    if isinstance(document, dict):
        left_out = {"checkpoint", "notes", "command", "next", "dims"}
        return {name: without_source(value) for name, value in document.items() if name not in left_out}
    if not isinstance(document, list):
        return document
    return [without_source(item) for item in document if not isinstance(item, dict) or item.get("kind") != "note"]


@pytest.mark.parametrize("name", CASES)
def test_command_reads_the_first_dimensions(tmp_path, name):
    command, files, options = CASES[name]
    documents = []
    for folder, dims in (("whole", None), ("cut", DIMS)):
        path = save(tmp_path / folder, files, dims)
        words = [path / word if word in files else word for word in options]
        more = () if dims else ("--dims", DIMS)
        documents.append(read(command, path if name == "shards" else path / "a.npz", *words, *more))
    assert without_source(documents[0]) == without_source(documents[1])
    if name in {"count", "evaluate"}:
        assert documents[0]["checkpoint"]["dims"] == DIMS and "dims" not in documents[1]["checkpoint"]


def test_truncated_rows_are_the_first_columns():
    rows = {name: torch.from_numpy(values) for name, values in arrays().items()}
    short = cocos.Embeddings(**rows).truncate(DIMS)
    expected = cocos.Embeddings(**{name: values[:, :DIMS] for name, values in rows.items()})
    assert torch.equal(short.query, expected.query) and torch.equal(short.candidate, expected.candidate)
    assert short.notes == (f"the first {DIMS} of {WIDTH} dimensions of each row",)
    first, second = (measures.count(embeddings, "ntxent", batch_size=16) for embeddings in (short, expected))
    for name in first.data_vars:
        assert first[name].equals(second[name]), name
    labels = torch.arange(ROWS) % 4
    short = cocos.Embeddings.labelled(rows["query"], labels).truncate(DIMS)
    assert short.shared and short.query is short.candidate
    proxies, variance = rows["candidate"][:4], torch.ones(4, WIDTH).double()
    short = cocos.Embeddings.labelled(rows["query"], labels, proxies=proxies, proxy_variance=variance).truncate(DIMS)
    assert torch.equal(short.candidate, proxies[:, :DIMS]) and short.candidate_variance.shape == (4, DIMS)


def test_results_record_their_dimensions(tmp_path):
    path = save(tmp_path / "files", {"e.npz": arrays()}) / "e.npz"
    for dims in (4, 8):
        read("count", path, *COUNT, "--dims", dims, "--out", tmp_path / f"{dims}.nc")
    data = cocos.results.open(tmp_path / "4.nc")
    assert data.attrs["checkpoint_dims"] == 4 and f"the first 4 of {WIDTH} dimensions" in data.attrs["notes"]
    assert "dims" not in read("diff", tmp_path / "4.nc", tmp_path / "8.nc")


@pytest.mark.parametrize("dims", [0, -1, WIDTH + 1])
def test_dims_out_of_range_are_refused(tmp_path, dims):
    path = save(tmp_path / "files", {"e.npz": arrays()}) / "e.npz"
    done = CliRunner().invoke(app, ["count", str(path), "--loss", "ntxent", "--dims", str(dims)])
    assert done.exit_code == 2 and f"dims: {dims}, expected 1 to {WIDTH}" in done.stderr
    with pytest.raises(InputError, match=f"dims: {dims}, expected 1 to {WIDTH}"):
        cocos.open(path).truncate(dims).embed()


def test_dims_of_scores_are_refused(tmp_path):
    np.savez(tmp_path / "s.npz", scores=np.eye(4), positive=np.eye(4))
    done = CliRunner().invoke(app, ["count", str(tmp_path / "s.npz"), "--loss", "ntxent", "--dims", "2"])
    assert done.exit_code == 2 and "scores, which have no dimensions" in done.stderr.replace("\n", " ")
