"""`cocos diff` and `cocos.measures.diff`: paired values, the queries that changed, who pushes them, what is refused."""

import json

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch
import xarray as xr
from matplotlib import pyplot as plt
from scipy.stats import ttest_rel
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, InputError, measures, plots, results
from cocos.commands import app
from cocos.measures.diff import QueryTable
from cocos.reports import table

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


def test_the_intervals_are_those_of_the_queries_by_themselves(sides, found):
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


def test_captions_of_one_image_count_as_one_group(found):
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


def test_the_query_that_was_moved_is_found_with_who_pushes_it_now(sides, found):
    one = found.sel(direction="i2t").isel(changed=0)
    assert int(one["changed_index"]) == PLANTED and str(one["changed_name"].item()) == f"image {PLANTED}"
    before, after = one["best_rank"].values
    assert before == 1 < 10 < after
    assert one["pusher"].isel(version=1, place=0) == 60 == one["nearest"].isel(version=1, place=0)
    assert str(one["pusher_name"].isel(version=1, place=0).item()) == "caption 60"
    assert bool(one["nearest_positive"].isel(version=0, place=0))
    single = measures.contributors(sides[1], "ntxent", row=PLANTED, direction="i2t", batch_size="all", top=None)
    heaviest = single.isel(candidate=(~single["positive"] & (single["weight"] > 0)).values)
    np.testing.assert_allclose(one["pusher_part"].isel(version=1), heaviest["part"].values[:3])


def test_idle_queries_are_in_percent_and_a_negative_that_is_not_pushed_is_no_pusher(sides):
    data = measures.diff(*sides, "triplet", batch_size="all", changed=3, top=100)
    for version, each in enumerate(sides):
        idle = (measures.count(each, "triplet", batch_size="all")["contributing"] == 0).mean(("batch", "query"))
        assert (idle > 0).all()
        np.testing.assert_allclose(data["mean"].sel(metric="idle").isel(version=version), 100 * idle)
    assert ((data["pusher"] >= 0) == (data["pusher_part"] > 0)).all() and (data["pusher"] >= 0).any()


def test_a_row_that_no_batch_drew_is_a_group_of_its_own():
    counted = QueryTable(np.array([1, 3]), np.array([7, 7]), {}, np.array([1, 3]))
    group = counted.ranked(QueryTable(np.arange(5), None, {}, np.arange(5))).group
    assert group[1] == group[3] and len(np.unique(group)) == 4


def test_two_results_are_compared_by_the_command(files):
    done = call("diff", "before.nc", "after.nc", "--json", "--by", "weight_positive", "--out", "diff.nc")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["names"] == ["before", "after"] and told["by"] == "weight_positive"
    metrics = told["directions"]["q2c"]["metrics"]
    counted = [results.open(files / f"{name}.nc").sel(direction="q2c")["contributing"] for name in ("before", "after")]
    assert metrics["contributing"]["mean"]["before"] != metrics["contributing"]["mean"]["after"]
    assert metrics["contributing"]["pairs"] == 40 and "R@1" not in metrics
    assert metrics["contributing"]["mean"]["after"] == pytest.approx(_by_row(counted[1], files / "after.nc"))
    assert told["directions"]["q2c"]["changed"][0]["row"] == PLANTED
    saved = results.open(files / "diff.nc")
    assert saved["difference"].dims == ("direction", "metric") and saved.attrs["by"] == "weight_positive"
    text = call("diff", "before.nc", "after.nc").stdout
    assert "contributing goes from" in text and "over 40 groups" in text and "Holm's method for" in text


def _by_row(counted, path):
    index = results.open(path).sel(direction="q2c")["query_index"].values.ravel()
    values = counted.values.ravel()
    return np.mean([values[index == row].mean() for row in np.unique(index[np.isfinite(index)])])


def test_two_files_of_embeddings_are_counted_ranked_and_told(files):
    done = call("diff", "before.npz", "after.npz", "--batch-size", "all", "--changed", 1, "--top", 1)
    assert done.exit_code == 0, done.stderr
    assert f"{PLANTED}" in done.stdout and "pushed by" in done.stdout and "q2c R@1" in done.stdout


def test_a_value_that_changes_nowhere_has_no_interval_and_says_its_n(sides):
    still = Embeddings(sides[0].query.clone(), sides[0].candidate, sides[0].query_group, sides[0].candidate_group)
    data = measures.diff(
        Embeddings(sides[0].query, sides[0].candidate, sides[0].query_group, sides[0].candidate_group), still
    )
    assert np.isnan(data["p"]).all() and (data["changed_index"] == -1).all() and np.isnan(data["low"]).all()
    assert "no interval, for all n = 40 differences are 0: q2c R@1, q2c R@5" in data.attrs["notes"]
    assert "none of" not in table("diff", data).text(80) and "q2c R@5" in table("diff", data).text(200)


def test_what_cannot_be_compared_is_refused_in_a_sentence(files, sides):
    assert "are the same file" in refused("diff", "before.nc", "before.nc")
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
    assert "is no result of cocos as the other file is" in refused("diff", "before.nc", "after.npz")
    assert "whose loss is fixed" in refused("diff", "before.nc", "after.nc", "--loss", "triplet")
    assert "unknown value to compare by 'R@1'" in refused("diff", "before.nc", "after.nc", "--by", "R@1")
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


def test_results_of_evaluate_have_the_ranks_of_their_queries(files):
    for name in ("before", "after"):
        data = measures.evaluate(cocos.open(f"{name}.npz"), folds=2)
        whole = 100 * (data["best_rank"].sel(direction="c2q") <= 5).mean()
        assert float(whole) == pytest.approx(float(data["R@5"].sel(direction="c2q", distractors="without").mean()))
        results.save(data, files / f"{name}-ranks.nc")
    done = call("diff", "before-ranks.nc", "after-ranks.nc", "--changed", 1, "--json")
    told = json.loads(done.stdout)["directions"]["q2c"]
    assert told["metrics"]["R@1"]["pairs"] == told["metrics"]["R@1"]["groups"] == 40
    assert told["changed"][0]["row"] == PLANTED and told["changed"][0]["before-ranks"]["best_rank"] == 1
    with pytest.raises(InputError, match="no value of queries in common"):
        measures.diff(results.open("before.nc").assign_attrs(loss="", share="", unit="", eps=0), data.assign_attrs(
            loss="", share="", unit="", eps=0))  # fmt: skip


def run_of(values, alarms="[]", **attrs):
    steps = np.arange(len(values)) * 10
    said = {"loss": "ntxent", "eps": 0.01, "alarms": alarms} | attrs
    data = xr.Dataset({"contributing": (("step", "direction"), values), "alignment": ("step", values[:, 0] / 2)})
    return data.assign_coords(step=steps, direction=["q2c", "c2q"]).assign_attrs(said)


def test_runs_are_paired_at_their_common_steps_in_blocks():
    generator = np.random.default_rng(2)
    first = generator.normal(size=(64, 2))
    second = np.concatenate([first + 0.5 + 0.1 * generator.normal(size=(64, 2)), generator.normal(size=(4, 2))])
    second[:3] = first[:3] - 1
    alarm = '[{"detector": "idle", "step": 30, "sentence": "idle: no query is pushed", "width": null}]'
    data = measures.diff(run_of(first), run_of(second, alarm))
    one = data.sel(direction="c2q", metric="contributing")
    away = (second[:64] - first)[:, 1]
    blocks = cocos.statistics.paired(second[:64, 1], first[:, 1], groups=np.arange(64) // 8)
    assert float(one["difference"]) == pytest.approx(away.mean()) and int(one["groups"]) == 8
    assert (float(one["low"]), float(one["high"])) == pytest.approx((blocks.low, blocks.high))
    assert int(one["since"]) == 30 and int(one["pairs"]) == 64 and float(one["last"][1]) == second[63, 1]
    assert float(data["difference"].sel(direction="run", metric="alignment")) == pytest.approx(
        away_of(first, second) / 2
    )
    assert "4 of the 68 steps of B are not in the other run" in data.attrs["notes"]
    assert "A: no detector fires\nB, step 30: idle: no query is pushed" in data.attrs["notes"]
    few = measures.diff(run_of(first[:7]), run_of(second[:7]))
    assert np.isnan(few["low"]).all() and "no intervals: 7 common steps" in few.attrs["notes"]
    shown = table("diff", data).text(80)
    assert "over 8 blocks of steps" in shown and "since" in shown
    with pytest.raises(
        InputError, match="no step is in both runs: A has 3 steps from 0 to 20 and B has 3 steps from 5"
    ):
        measures.diff(run_of(first[:3]), run_of(second[:3]).assign_coords(step=[5, 15, 25]))
    with pytest.raises(InputError, match="A is a run and B is none"):
        measures.diff(run_of(first), measures.lorenz(Embeddings(torch.eye(3), 2 * torch.eye(3))))


def away_of(first, second):
    return (second[:64] - first)[:, 0].mean()


def test_runs_and_stores_are_compared_by_the_command(files, sides):
    for name, each in zip(("plain", "moved"), sides, strict=True):
        (files / name).mkdir()
        for step, noise in ((10, 1.0), (20, 0.0)):
            rows = each.query + noise * torch.randn(each.query.shape, generator=torch.Generator().manual_seed(1))
            np.savez(files / name / f"step_{step}.npz", query=rows, candidate=each.candidate,
                     query_group=each.query_group, candidate_group=each.candidate_group)  # fmt: skip
        assert call("run", name, "--out", f"{name}.nc", "--batch-size", 16).exit_code == 0
    over = json.loads(call("diff", "plain", "moved", "--batch-size", 16, "--json").stdout)
    saved = json.loads(call("diff", "plain.nc", "moved.nc", "--json").stdout)
    assert over["steps"] == [10, 20] and over["directions"] == saved["directions"]
    ranked = saved["directions"]["q2c"]["metrics"]["R@1"]["last"]
    both = json.loads(call("diff", "plain.nc", "moved.nc", "--step", 20, "--json").stdout)["directions"]
    assert (both["c2q"]["metrics"]["R@1"]["pairs"], both["c2q"]["metrics"]["R@1"]["groups"]) == (80, 40)
    at = both["q2c"]
    assert at["metrics"]["R@1"]["mean"] == ranked and at["changed"][0]["row"] == PLANTED
    opened = json.loads(call("diff", "plain", "moved", "--step", 20, "--json").stdout)["directions"]["q2c"]
    assert opened["changed"][0]["row"] == PLANTED and opened["changed"][0]["moved"]["pusher"]
    assert "--step 15: plain has checkpoints at the steps 10, 20" in refused("diff", "plain", "moved", "--step", 15)
    assert "--step 15: plain has checkpoints at" in refused("diff", "plain.nc", "moved.nc", "--step", 15)
    assert "is of no run; leave it out" in refused("diff", "before.nc", "after.nc", "--step", 20)
    (files / "copy.nc").write_bytes((files / "plain.nc").read_bytes())
    assert "are of the same file" in refused("diff", "plain.nc", "copy.nc")


def test_the_picture_has_every_query_in_order_of_its_change(found, files):
    ax = plots.diff(found, ax=plt.figure().subplots())
    for line, side in zip(ax.lines, ("i2t", "t2i"), strict=False):
        change = found["value"].sel(direction=side, metric="MRR").diff("version").values.ravel()
        np.testing.assert_array_equal(line.get_ydata(), np.sort(change[np.isfinite(change)]))
    fell = int(found["decreased"].sel(direction="i2t", metric="MRR"))
    assert f"{fell} of 40 i2t queries fall" in ax.get_title() and ax.get_ylabel() == "change of MRR (%)"
    generator = np.random.default_rng(4)
    runs = measures.diff(run_of(generator.normal(size=(5, 2))), run_of(generator.normal(size=(5, 2))), names=("x", "y"))
    ax = plots.diff(runs, metric="alignment", ax=plt.figure().subplots())
    for k, line in enumerate(ax.lines):
        np.testing.assert_array_equal(line.get_ydata(), runs["value"].sel(direction="run", metric="alignment")[k])
    assert [line.get_label() for line in ax.lines] == ["x", "y"] and "at step 40" in ax.get_title()
    with pytest.raises(InputError, match="queries and steps have no common axis"):
        plots.diff([found, runs])
    with pytest.raises(InputError, match="unknown value of a comparison 'R@2': did you mean"):
        plots.diff(found, metric="R@2")
    assert call("diff", "before.nc", "after.nc", "--out", "diff.png").exit_code == 0
    assert (files / "diff.png").read_bytes().startswith(b"\x89PNG")
    plt.close("all")


def test_no_change_is_claimed_that_is_not_resolved_and_a_collapse_is_named():
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(30, 6, generator=generator)
    sides = [Embeddings(rows, rows + torch.randn(30, 6, generator=generator)) for _ in range(2)]
    text = table("diff", measures.diff(*sides)).text(400)
    assert "q2c: MRR goes from" in text and "a change that is not resolved" in text
    still = [Embeddings(torch.ones(8, 4), k * torch.ones(8, 4)) for k in (2, 3)]
    data = measures.diff(*still)
    assert data.attrs["notes"].startswith("A: ") and "one point" in data.attrs["notes"]
    assert "no interval, for all n = 8 differences are 0" in table("diff", data).text(80)


def test_settings_that_differ_are_noted(sides):
    data = measures.diff(*(measures.count(each, "ntxent", batch_size=16, seed=k) for k, each in enumerate(sides)))
    assert "the seed differs, 0 in A and 1 in B" in data.attrs["notes"]
    assert "i2t: the batches differ, so that a query has other negatives" in data.attrs["notes"]
