"""`cocos diff` and `cocos.measures.diff`: paired values, the queries that changed, what is refused."""

import json

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from scipy.stats import ttest_rel
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, InputError, measures, plots, results
from cocos.cli import app
from cocos.measures.diff import QueryTable
from cocos.reports import table
from finding_kinds import kinds

PLANTED = 7  # query that only the second model puts beside a foreign candidate


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def refused(*arguments):
    done = call(*arguments)
    assert done.exit_code == 2 and done.stdout == "" and "Traceback" not in done.stderr, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def sides():
    generator = torch.Generator().manual_seed(5)
    image = torch.randn(40, 12, generator=generator, dtype=torch.float64)
    group = torch.arange(40).repeat_interleave(2)
    caption = image[group] + 0.5 * torch.randn(80, 12, generator=generator, dtype=torch.float64)
    moved = image + 0.05 * torch.randn(40, 12, generator=generator, dtype=torch.float64)
    moved[PLANTED] = caption[60]  # belongs to image 30
    names = ([f"image {k}" for k in range(40)], [f"caption {k}" for k in range(80)])
    before = Embeddings(image, caption, torch.arange(40), group, directions=("i2t", "t2i"), names=names)
    after = Embeddings(moved, caption, torch.arange(40), group, directions=("i2t", "t2i"), names=names)
    return before, after


@pytest.fixture(scope="module")
def found(sides):
    return measures.diff(*sides, batch_size="all", changed=3)


@pytest.fixture
def files(sides, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, each in zip(("before", "after"), sides, strict=True):
        arrays = {key: getattr(each, key).numpy() for key in ("query", "candidate", "query_group", "candidate_group")}
        np.savez(f"{name}.npz", **arrays)
        results.save(measures.count(cocos.open(f"{name}.npz"), "ntxent", batch_size=16), tmp_path / f"{name}.nc")
    return tmp_path


def test_intervals_equal_those_of_queries(sides, found):
    counts = [measures.count(each, "ntxent", batch_size="all").sel(direction="i2t", batch=0) for each in sides]
    order = [np.argsort(data["query_index"].values) for data in counts]  # two captions, so that each image asks twice
    values = [
        data["contributing"].values[each].reshape(40, 2).mean(1) for data, each in zip(counts, order, strict=True)
    ]
    one = found.sel(direction="i2t", metric="contributing")
    theirs = ttest_rel(values[1], values[0])
    interval = theirs.confidence_interval(0.95)
    expected = (np.mean(values[1] - values[0]), interval.low, interval.high, theirs.pvalue)
    assert tuple(map(float, (one["difference"], one["low"], one["high"], one["p"]))) == pytest.approx(expected)
    assert int(one["pairs"]) == int(one["groups"]) == 40 and float(one["p_holm"]) >= float(one["p"])
    assert int(one["increased"]) == (values[1] > values[0]).sum()


def test_captions_of_image_are_one_group(found):
    assert (found["groups"].sel(direction="t2i", metric="R@1"), found["pairs"].sel(direction="t2i", metric="R@1")) == (
        40,
        80,
    )


def test_recall_is_that_of_evaluate(sides, found):
    for version, each in zip(found["version"].values, sides, strict=True):
        theirs = measures.evaluate(each).isel(fold=0, distractors=0)
        for metric in ("R@1", "R@5", "R@10", "MRR"):
            ours = found["mean"].sel(version=version, metric=metric)
            np.testing.assert_allclose(ours, theirs[metric], rtol=1e-12)


def test_the_query_that_was_moved_is_found(found):
    one = found.sel(direction="i2t").isel(changed=0)
    assert int(one["changed_index"]) == PLANTED and str(one["changed_name"].item()) == f"image {PLANTED}"
    before, after = one["best_rank"].values
    assert before == 1 < 10 < after


def test_idle_queries_are_in_percent(sides):
    data = measures.diff(*sides, "triplet", batch_size="all")
    for version, each in enumerate(sides):
        idle = (measures.count(each, "triplet", batch_size="all")["contributing"] == 0).mean(("batch", "query"))
        assert (idle > 0).all()
        np.testing.assert_allclose(data["mean"].sel(metric="idle").isel(version=version), 100 * idle)


def test_undrawn_row_is_own_group():
    counted = QueryTable(np.array([1, 3]), np.array([7, 7]), {}, np.array([1, 3]))
    group = counted.ranked(QueryTable(np.arange(5), None, {}, np.arange(5))).group
    assert group[1] == group[3] and len(np.unique(group)) == 4


def test_two_results_are_compared_by_the_command(files):
    done = call("diff", "before.nc", "after.nc", "--json", "--out", "diff.nc")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["by"] == "contributing"
    numbers = told["directions"]["q2c"]
    counted = [results.open(files / f"{name}.nc").sel(direction="q2c")["contributing"] for name in ("before", "after")]
    means = numbers["mean"]["contributing"]
    assert list(means) == ["before", "after"] and means["before"] != means["after"]
    assert numbers["pairs"]["contributing"] == 40 and not numbers["pairs"].get("R@1")
    assert means["after"] == pytest.approx(_by_row(counted[1], files / "after.nc"))
    assert numbers["changed_index"]["1"] == PLANTED
    saved = results.open(files / "diff.nc")
    assert saved["difference"].dims == ("direction", "metric") and saved.attrs["by"] == "contributing"
    text = call("diff", "before.nc", "after.nc").stdout
    assert "q2c contributing" in text and "(Holm)" in " ".join(text.split())


def _by_row(counted, path):
    index = results.open(path).sel(direction="q2c")["query_index"].values.ravel()
    values = counted.values.ravel()
    return np.mean([values[index == row].mean() for row in np.unique(index[np.isfinite(index)])])


def test_two_embedding_files_are_compared(files):
    done = call("diff", "before.npz", "after.npz", "--batch-size", "all")
    assert done.exit_code == 0, done.stderr
    assert f"{PLANTED}" in done.stdout and "q2c R@1" in done.stdout


def test_equal_values_have_no_interval(sides):
    still = Embeddings(sides[0].query.clone(), sides[0].candidate, sides[0].query_group, sides[0].candidate_group)
    data = measures.diff(
        Embeddings(sides[0].query, sides[0].candidate, sides[0].query_group, sides[0].candidate_group), still
    )
    assert np.isnan(data["p"]).all() and (data["changed_index"] == -1).all() and np.isnan(data["low"]).all()
    assert "equal" in kinds(data) and "q2c R@5" in [row[0] for row in table("diff", data).rows]


def test_incomparable_results_are_refused(files, sides):
    assert "expected two different ones" in refused("diff", "before.nc", "before.nc")
    (files / "copy.npz").write_bytes((files / "before.npz").read_bytes())
    assert "are of the same file (sha256" in refused("diff", "before.npz", "copy.npz")
    before = cocos.open("before.npz")
    data = results.open("before.nc")
    with pytest.raises(InputError, match="measured alike"):
        measures.diff(data, data)
    assert measures.diff(data, data.assign_attrs(split="val"))["pairs"].max() == 80  # another split is another set
    results.save(measures.count(before, "triplet", batch_size=16), files / "triplet.nc")
    assert "a share means something else for each loss" in refused("diff", "before.nc", "triplet.nc")
    results.save(measures.count(before, "ntxent", 0.1, batch_size=16), files / "eps.nc")
    assert "before has eps 0.01 and eps has eps 0.1" in refused("diff", "before.nc", "eps.nc")
    results.save(measures.lorenz(before), files / "lorenz.nc")
    assert "has no values of single queries" in refused("diff", "before.nc", "lorenz.nc")
    assert "expected two models, or two results" in refused("diff", "before.nc", "after.npz")
    assert "expected two models, or two results" in refused("diff", "before.nc", "after.nc", "--loss", "triplet")
    with pytest.raises(InputError, match="unknown value to compare by 'R@1'"):
        measures.diff(data, results.open("after.nc"), by="R@1")
    rows = np.load("before.npz")
    np.savez("few.npz", **{key: rows[key][: 20 * len(rows[key]) // 40] for key in rows})
    assert "compare results of the same data" in refused("diff", "before.npz", "few.npz")
    np.savez(
        "other.npz",
        **{**rows, "query_group": rows["query_group"] // 2, "candidate_group": rows["candidate_group"] // 2},
    )
    assert "belong to different groups" in refused("diff", "before.npz", "other.npz")
    other = Embeddings(*(getattr(sides[1], key) for key in ("query", "candidate", "query_group", "candidate_group")),
                       directions=("i2t", "t2i"), names=(["x"] * 40, sides[1].names[1]))  # fmt: skip
    with pytest.raises(InputError, match="query row 0 is 'image 0' in A and 'x' in B"):
        measures.diff(sides[0], other)
    with pytest.raises(InputError, match="are the same: no query can differ"):
        measures.diff(sides[0], sides[0])


def test_evaluate_results_are_compared(files):
    for name in ("before", "after"):
        data = measures.evaluate(cocos.open(f"{name}.npz"), folds=2)
        whole = 100 * (data["best_rank"].sel(direction="c2q") <= 5).mean()
        assert float(whole) == pytest.approx(float(data["R@5"].sel(direction="c2q", distractors="without").mean()))
        results.save(data, files / f"{name}-ranks.nc")
    done = call("diff", "before-ranks.nc", "after-ranks.nc", "--json")
    told = json.loads(done.stdout)["directions"]["q2c"]
    assert told["pairs"]["R@1"] == told["groups"]["R@1"] == 40
    assert told["changed_index"]["1"] == PLANTED and told["best_rank"]["1"]["before-ranks"] == 1
    with pytest.raises(InputError, match="no value of queries in common"):
        measures.diff(results.open("before.nc").assign_attrs(loss="", share="", unit="", eps=0), data.assign_attrs(
            loss="", share="", unit="", eps=0))  # fmt: skip


def test_plot_sorts_queries_by_change(found, files):
    ax = plots.diff(found, ax=plt.figure().subplots())
    for line, side in zip(ax.lines, ("i2t", "t2i"), strict=False):
        change = found["value"].sel(direction=side, metric="MRR").diff("version").values.ravel()
        np.testing.assert_array_equal(line.get_ydata(), np.sort(change[np.isfinite(change)]))
    fell = int(found["decreased"].sel(direction="i2t", metric="MRR"))
    assert f"{fell} of 40 i2t queries fall" in ax.get_title() and ax.get_ylabel() == "change of MRR (%)"
    with pytest.raises(InputError, match="unknown value of a comparison 'R@2': did you mean"):
        plots.diff(found, metric="R@2")
    assert call("diff", "before.nc", "after.nc", "--out", "diff.png").exit_code == 0
    assert (files / "diff.png").read_bytes().startswith(b"\x89PNG")
    plt.close("all")


def test_unresolved_change_is_not_reported():
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(30, 6, generator=generator)
    sides = [Embeddings(rows, rows + torch.randn(30, 6, generator=generator)) for _ in range(2)]
    shown = table("diff", measures.diff(*sides))
    (row,) = (row for row in shown.rows if row[0] == "q2c MRR")
    (holm,) = (place for place, column in enumerate(shown.columns) if "Holm" in column)
    assert float(row[holm]) > 0.05
    still = [Embeddings(torch.ones(8, 4), k * torch.ones(8, 4)) for k in (2, 3)]
    data = measures.diff(*still)
    assert {"collapsed", "equal"} <= kinds(data)


def test_settings_that_differ_are_noted(sides):
    data = measures.diff(*(measures.count(each, "ntxent", batch_size=16, seed=k) for k, each in enumerate(sides)))
    assert {"differs", "other batches"} <= kinds(data)
