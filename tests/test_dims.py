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
QUESTIONS = (
    ("count", "--loss", "ntxent", "--batch-size", "16"),
    ("evaluate",),
    ("evaluate", "--verification", "--trials", "all"),
    ("audit", "--loss", "ntxent", "--batch-size", "16"),
    ("whatif", "--loss", "ntxent", "--what", "temperature=0.2", "--batch-size", "16"),
    ("verify", "--loss", "ntxent"),
)


def arrays(rows=ROWS):
    generator = np.random.default_rng(3)
    query = generator.normal(size=(rows, WIDTH))
    return {"query": query, "candidate": query + generator.normal(size=(rows, WIDTH))}


def saved(folder, name, made):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **made)
    return path


def asked(command, path, *options):
    done = CliRunner().invoke(app, [command, str(path), *map(str, options), "--json", "-q"])
    assert done.exit_code == 0, done.output + done.stderr
    return json.loads(done.stdout)


def without_source(document):
    """The numbers of a document, without the file and its notes."""
    if isinstance(document, dict):
        left_out = {"checkpoint", "notes", "command", "next"}
        return {name: without_source(value) for name, value in document.items() if name not in left_out}
    if not isinstance(document, list):
        return document
    return [without_source(each) for each in document if not isinstance(each, dict) or each.get("kind") != "note"]


def test_truncated_rows_are_the_first_columns():
    made = {name: torch.from_numpy(values) for name, values in arrays().items()}
    embeddings = cocos.Embeddings(**made)
    short, expected = embeddings.truncate(DIMS), cocos.Embeddings(**{k: v[:, :DIMS] for k, v in made.items()})
    assert torch.equal(short.query, expected.query) and torch.equal(short.candidate, expected.candidate)
    assert short.notes == (f"the first {DIMS} of {WIDTH} dimensions of each row",)
    found, other = (measures.count(each, "ntxent", batch_size=16) for each in (short, expected))
    for name in found.data_vars:
        assert found[name].equals(other[name]), name


def test_a_labelled_set_and_class_proxies_are_truncated():
    rows, labels = torch.randn(20, WIDTH, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 4
    short = cocos.Embeddings.labelled(rows, labels).truncate(DIMS)
    assert short.shared and short.query is short.candidate
    proxies, variance = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1)), torch.ones(4, WIDTH)
    short = cocos.Embeddings.labelled(rows, labels, proxies=proxies, proxy_variance=variance).truncate(DIMS)
    assert torch.equal(short.candidate, proxies[:, :DIMS]) and short.candidate_variance.shape == (4, DIMS)


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_a_command_reads_the_first_dimensions(tmp_path, question):
    command, *options = question
    if "--trials" in options:
        labels = {"embeddings": arrays()["query"], "labels": np.arange(ROWS) % 8}
        options, made = options[:1], labels
    else:
        made = arrays()
    whole = saved(tmp_path / "whole", "e.npz", made)
    cut = saved(tmp_path / "cut", "e.npz", {k: v[:, :DIMS] if v.ndim > 1 else v for k, v in made.items()})
    found, expected = asked(command, whole, *options, "--dims", str(DIMS)), asked(command, cut, *options)
    assert without_source(found) == without_source(expected)
    if isinstance(found, dict):
        assert found["checkpoint"]["dims"] == DIMS and "dims" not in expected["checkpoint"]


def test_results_record_the_number_of_dimensions(tmp_path):
    path, out = saved(tmp_path, "e.npz", arrays()), tmp_path / "out.nc"
    done = CliRunner().invoke(app, ["count", str(path), "--loss", "ntxent", "--dims", "5", "--out", str(out)])
    assert done.exit_code == 0, done.output
    data = cocos.results.open(out)
    assert data.attrs["checkpoint_dims"] == DIMS
    assert f"the first {DIMS} of {WIDTH} dimensions" in data.attrs["notes"]


def other_arrays():
    made = arrays()
    return made | {"candidate": made["query"] + made["candidate"]}


def two_steps(folder, width):
    """Two files, which are the steps of a run."""
    made = enumerate((arrays(), other_arrays()), 1)
    return [saved(folder, f"step_{n}.npz", {k: v[:, :width] for k, v in each.items()}) for n, each in made]


def test_runs_and_differences_are_of_the_first_dimensions(tmp_path):
    whole, cut = two_steps(tmp_path / "whole", WIDTH), two_steps(tmp_path / "cut", DIMS)
    options = ("--loss", "ntxent", "--batch-size", "16")
    found, expected = (
        asked("diff", paths[0], paths[1], *options, *more)
        for paths, more in ((whole, ("--dims", str(DIMS))), (cut, ()))
    )
    assert found.pop("dims") == DIMS and without_source(found) == without_source(expected)
    found = asked("run", whole[0].parent, *options, "--evaluated", whole[0].parent, "--dims", str(DIMS))
    expected = asked("run", cut[0].parent, *options, "--evaluated", cut[0].parent)
    assert found.pop("dims") == DIMS
    for name in ("values", "directions"):
        assert found[name] == expected[name]


def test_results_of_two_widths_of_one_file_can_be_compared(tmp_path):
    path = saved(tmp_path, "e.npz", arrays())
    for dims in (4, 8):
        words = [
            "count",
            path,
            "--loss",
            "ntxent",
            "--batch-size",
            16,
            "--dims",
            dims,
            "--out",
            tmp_path / f"{dims}.nc",
        ]
        assert CliRunner().invoke(app, [*map(str, words), "-q"]).exit_code == 0
    assert "dims" not in asked("diff", tmp_path / "4.nc", tmp_path / "8.nc")


def test_distractors_and_ensembles_are_truncated(tmp_path):
    made, more = arrays(), arrays(60)
    paths = [saved(tmp_path, name, each) for name, each in (("a.npz", made), ("more.npz", more))]
    cut = [
        saved(tmp_path / "cut", path.name, {k: v[:, :DIMS] for k, v in each.items()})
        for path, each in zip(paths, (made, more), strict=True)
    ]
    found = asked("evaluate", paths[0], "--distractors", str(paths[1]), "--dims", str(DIMS))
    expected = asked("evaluate", cut[0], "--distractors", str(cut[1]))
    assert without_source(found) == without_source(expected)


def test_shards_are_truncated(tmp_path):
    for folder, width in (("whole", WIDTH), ("cut", DIMS)):
        (tmp_path / folder).mkdir()
        for name, values in arrays().items():
            np.save(tmp_path / folder / f"{name}_00000.npy", values[:, :width].astype(np.float32))
    options = ("--loss", "ntxent", "--batch-size", "16")
    found = asked("count", tmp_path / "whole", *options, "--dims", str(DIMS))
    assert without_source(found) == without_source(asked("count", tmp_path / "cut", *options))


@pytest.mark.parametrize("dims", [0, -1, WIDTH + 1])
def test_dims_out_of_range_are_refused(tmp_path, dims):
    path = saved(tmp_path, "e.npz", arrays())
    done = CliRunner().invoke(app, ["count", str(path), "--loss", "ntxent", "--dims", str(dims)])
    assert done.exit_code == 2 and f"dims: {dims}, expected 1 to {WIDTH}, the dimensions of the rows" in done.stderr
    with pytest.raises(InputError, match=f"dims: {dims}, expected 1 to {WIDTH}"):
        cocos.open(path).truncate(dims).embed()


def test_dims_of_scores_are_refused(tmp_path):
    path = saved(tmp_path, "s.npz", {"scores": np.eye(4), "positive": np.eye(4)})
    done = CliRunner().invoke(app, ["count", str(path), "--loss", "ntxent", "--dims", "2"])
    assert done.exit_code == 2 and "scores, which have no dimensions" in done.stderr.replace("\n", " ")
