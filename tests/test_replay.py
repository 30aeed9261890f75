"""`cocos whatif` and `cocos.measures.replay`: variants of one setting on the same queries and batches."""

import json
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from scipy.stats import ttest_rel
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, InputError, losses, measures, plots, reports, results
from cocos.cli import app
from cocos.counting import weights
from cocos.embeddings import sampling, scores
from cocos.measures.replay import REPLAYED, _same_queries
from cocos.measures.shared.settings import Setting
from cocos.plots.replay import title
from cocos.reports import table

SIZE = 16


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def embeddings():
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(48, 6, generator=generator, dtype=torch.float64)
    return Embeddings(query, query + 0.6 * torch.randn(48, 6, generator=generator, dtype=torch.float64))


@pytest.fixture
def file(embeddings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", query=embeddings.query.numpy(), candidate=embeddings.candidate.numpy())
    return "rows.npz"


def slow(embeddings, loss, eps, batch_size):
    """(count, effective number, push, part of the heaviest) of every query by row, from autograd and plain loops."""
    found = {}
    for batch in sampling.plan(embeddings, batch_size=batch_size, seed=0).batches:
        pairs = scores.pairs(embeddings, batch, metric=loss.metric)
        weight, unit = weights.autograd(loss, pairs), loss.unit(pairs).expand(pairs.scores.shape)
        for q, row in enumerate(batch.query_index.tolist()):
            places = [c for c in range(len(batch.candidate_index)) if pairs.negative[q, c]]
            count = sum(abs(float(weight[q, c])) / float(unit[q, c]) > eps for c in places)
            pushes = [max(float(weight[q, c]), 0.0) for c in places]
            total = sum(pushes)
            parts = [push / total for push in pushes if push > 0]
            effective = math.exp(-sum(part * math.log(part) for part in parts)) if parts else math.nan
            found[row] = (count, effective, total, max(parts, default=math.nan))
    return found


WHAT = {
    "temperature": [0.02, 0.3],
    "eps": [0.1],
    "batch_size": [8, 48],
    "top_k": [3],
    "skip_k": [2],
    "semi_hard": [None, 0.2],
    "loss": ["triplet", "siglip"],
}
OTHERS = {
    "temperature 0.02": (losses.load("ntxent", {"temperature": 0.02}), 0.01, SIZE),
    "temperature 0.3": (losses.load("ntxent", {"temperature": 0.3}), 0.01, SIZE),
    "eps 0.1": (losses.load("ntxent"), 0.1, SIZE),
    "batch size 8": (losses.load("ntxent"), 0.01, 8),
    "batch size 48": (losses.load("ntxent"), 0.01, 48),
    "top_k 3": (losses.TopK(losses.load("ntxent"), 3), 0.01, SIZE),
    "skip_k 2": (losses.SkipK(losses.load("ntxent"), 2), 0.01, SIZE),
    "semi_hard": (losses.SemiHard(losses.load("ntxent")), 0.01, SIZE),
    "semi_hard 0.2": (losses.SemiHard(losses.load("ntxent"), 0.2), 0.01, SIZE),
    "loss triplet": (losses.load("triplet"), 0.01, SIZE),
    "loss siglip": (losses.load("siglip"), 0.01, SIZE),
}


@pytest.fixture(scope="module")
def found(embeddings):
    return measures.replay(embeddings, "ntxent", WHAT, batch_size=SIZE, dtype="float64")


def test_every_variant_is_a_row_in_the_order_that_was_asked_for(found):
    assert found["variant"].values.tolist() == ["as it is", *OTHERS]
    assert found["changed"].values.tolist()[:4] == ["", "temperature", "temperature", "eps"]
    assert found["loss_repr"].values[1] == "NTXent(temperature=0.02)" and float(found["eps"][3]) == 0.1


@pytest.mark.parametrize("label", OTHERS)
def test_means_and_paired_differences_are_those_of_a_slow_loop(embeddings, found, label):
    base, other = slow(embeddings, losses.load("ntxent"), 0.01, SIZE), slow(embeddings, *OTHERS[label])
    one = found.sel(direction="q2c", variant=label)
    for place, name in enumerate(("contributing", "effective", "push", "hardest_share")):
        before, after = (np.array([each[row][place] for row in sorted(base)]) for each in (base, other))
        each = one.sel(metric=name)
        assert float(each["mean"]) == pytest.approx(np.nanmean(after), rel=1e-9)
        there = np.isfinite(before) & np.isfinite(after)
        away = (after - before)[there]
        assert int(each["pairs"]) == int(each["groups"]) == there.sum() > 9
        assert float(each["difference"]) == pytest.approx(away.mean(), abs=1e-9)
        assert float(each["base"]) == pytest.approx(before[there].mean(), rel=1e-9)
        if np.ptp(away) > 1e-9:
            theirs = ttest_rel(after[there], before[there])
            interval = theirs.confidence_interval(0.95)
            assert (float(each["low"]), float(each["high"])) == pytest.approx((interval.low, interval.high), rel=1e-6)
            assert float(each["p"]) == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12) and each["p_holm"] >= each["p"]
        else:
            assert np.isnan(float(each["low"]))
    idle = one["mean"].sel(metric="idle")
    assert float(idle) == pytest.approx(100 * np.mean([each[0] == 0 for each in other.values()]))


def test_the_setting_as_it_is_is_what_cocos_count_says(embeddings, found):
    counted = reports.document("count", measures.count(embeddings, "ntxent", batch_size=SIZE))["directions"]
    for side in ("q2c", "c2q"):
        one = found.sel(direction=side, variant="as it is")["mean"]
        for metric, key in (("contributing", "contributing_all"), ("effective", "effective"), ("relative", "relative")):
            assert float(one.sel(metric=metric)) == pytest.approx(counted[side][key]["mean"])


def test_a_query_of_several_batches_is_paired_batch_by_batch_where_the_batches_are_alike():
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    group = torch.arange(12).repeat_interleave(3)
    caption = image[group] + 0.7 * torch.randn(36, 5, generator=generator, dtype=torch.float64)
    sides = Embeddings(caption, image, group, torch.arange(12))
    data = measures.replay(sides, "ntxent", "temperature=0.3 batch_size=18", batch_size=12, batches=4)
    one = data.sel(direction="c2q", metric="contributing")
    options = {"batch_size": 12, "batches": 4}  # an image asks for each of its captions, for some of them twice
    counts = [measures.count(sides, losses.load("ntxent", {"temperature": t}), **options) for t in (0.1, 0.3)]
    draws = int(counts[0]["contributing"].sel(direction="c2q").notnull().sum())
    assert int(one["pairs"].sel(variant="temperature 0.3")) == draws == 48
    assert int(one["groups"].sel(variant="temperature 0.3")) == 12
    away = (counts[1] - counts[0])["contributing"].sel(direction="c2q")
    assert float(one["difference"].sel(variant="temperature 0.3")) == pytest.approx(float(away.mean()))
    assert int(one["pairs"].sel(variant="batch size 18")) == 12  # other batches: each image by its mean
    other = measures.count(sides, "ntxent", batch_size=18, batches=4)
    means = []
    for each in (counts[0], other):
        flat = each.sel(direction="c2q")[["contributing", "query_index"]].to_dataframe().dropna()
        means.append(flat.groupby("query_index")["contributing"].mean().sort_index().to_numpy())
    assert float(one["difference"].sel(variant="batch size 18")) == pytest.approx((means[1] - means[0]).mean())


def test_a_loss_that_asks_from_the_queries_alone_has_one_direction(embeddings):
    wide = losses.load("mnrl", {"directions": ("query-candidate", "query-query"), "scale": 10})
    data = measures.replay(embeddings, "ntxent", {"loss": [wide, "triplet"]}, batch_size=SIZE)
    one = data.sel(variant="loss mnrl", metric="contributing")
    counted = measures.count(embeddings, wide, batch_size=SIZE)
    assert float(one["mean"].sel(direction="q2c")) == pytest.approx(float(counted["contributing"].mean()))
    assert (
        np.isnan(float(one["mean"].sel(direction="c2q"))) and "loss mnrl: this loss has no dir" in data.attrs["notes"]
    )
    assert reports.document("replay", data)["directions"]["c2q"]["mean"]["loss mnrl"]["push"] is None
    assert "nan" not in str(table("replay", data)) and plots.replay(data, direction="c2q").has_data()


def test_a_count_of_losses_with_other_directions_is_one_sentence(embeddings):
    wide = losses.load("mnrl", {"directions": ("query-candidate", "query-query")})
    with pytest.raises(InputError, match="ntxent asks in q2c and c2q, mnrl in q2c; count them one by one"):
        measures.count(embeddings, ["ntxent", wide], batch_size=SIZE)


def test_a_scale_takes_the_place_of_a_temperature(embeddings):
    data = measures.replay(embeddings, "ntxent", "scale=20 temperature=0.05", batch_size=SIZE)
    assert data["loss_repr"].values.tolist()[1:] == ["NTXent(temperature=0.05)"] * 2
    assert (data["mean"].isel(variant=1) == data["mean"].isel(variant=2)).all()


def test_parameters_of_a_sum_and_of_a_wrapper_are_found_by_their_name(embeddings):
    both = measures.replay(embeddings, losses.load("triplet+ntxent"), "margin=0.4", batch_size=SIZE)
    assert "margin=0.4" in both["loss_repr"].values[1] and "temperature=0.1" in both["loss_repr"].values[1]
    hard = measures.replay(embeddings, losses.TopK(losses.load("ntxent"), 4), "k=2 temperature=0.2", batch_size=SIZE)
    assert hard["loss_repr"].values.tolist()[1:] == [
        "TopK(loss=NTXent(temperature=0.1), k=2)", "TopK(loss=NTXent(temperature=0.2), k=4)"]  # fmt: skip


def test_without_what_the_usual_settings_are_replayed(embeddings):
    data = measures.replay(embeddings, "triplet", batch_size=SIZE)
    assert data["variant"].values.tolist()[1:] == [
        *("margin 0.1", "margin 0.4", "batch size 8", "batch size 32", "top_k 16", "semi_hard"),
        "loss ntxent",
    ]
    anchors = measures.replay(embeddings, "proxy_anchor", batch_size=SIZE)
    assert "mining rules left out" in anchors.attrs["notes"]
    assert not {"top_k 16", "semi_hard"} & set(anchors["variant"].values.tolist())


def test_a_labelled_set_is_drawn_by_class(embeddings):
    rows = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(40) % 8
    shared = Embeddings(rows, rows, labels, labels, directions=("x2x",), shared=True)
    data = measures.replay(shared, "triplet", "margin=0.5 loss=ntxent", batch_size=16)
    assert data.attrs["sample"] == "groups" and data.sizes["direction"] == 1
    assert int(data["groups"].sel(metric="contributing").max()) == 8


def test_every_loss_has_the_batches_of_the_loss_as_it_is():
    generator = torch.Generator().manual_seed(0)
    image, group = torch.randn(12, 5, generator=generator), torch.arange(12).repeat_interleave(3)
    sides = Embeddings(image, image[group] + torch.randn(36, 5, generator=generator), torch.arange(12), group)
    assert losses.load("smoothap").sample == "groups" != losses.load("ntxent").sample
    data = measures.replay(sides, "ntxent", {"loss": [losses.load("smoothap")]}, batch_size=12)
    assert data.attrs["sample"] == "pairs" and "draws other batches" not in data.attrs["notes"]
    assert (data["pairs"].sel(metric="contributing") == 36).all()


def test_draws_are_paired_in_their_order_only_where_they_are_the_same():
    values = {name: np.array([1.0, 2.0, 4.0]) for name in REPLAYED}
    one = {"index": np.array([0, 1, 2]), "group": np.array([0, 1, 2]), **values}
    other = {"index": np.array([2, 0, 0]), "group": np.array([2, 0, 0]), **values}
    before, after = _same_queries(one, other)
    assert before["index"].tolist() == after["index"].tolist() == [0, 2]
    assert before["push"].tolist() == [1, 4] and after["push"].tolist() == [3, 1]


def test_the_table_states_the_change_and_what_it_cannot_say(file):
    done = call("whatif", file, "--what", "temperature=0.02", "--what", "loss=triplet", "--batch-size", SIZE)
    assert done.exit_code == 0, done.stderr
    flat = " ".join(done.stdout.split())
    data = measures.replay(cocos.open(file), "ntxent", "temperature=0.02 loss=triplet", batch_size=SIZE)
    one = data.sel(direction="q2c", metric="contributing")
    place = int(np.argmax(abs(one["difference"].values)))
    assert f"q2c {one['variant'].values[place]}" in flat and "The embeddings are frozen" in data.attrs["frozen"]
    change, low, high = (f"{float(one[key][place]):.4g}" for key in ("difference", "low", "high"))
    assert f"{change} {low} {high}" in flat


def test_a_change_that_is_not_resolved_is_not_claimed(embeddings):
    data = measures.replay(embeddings, "ntxent", "eps=0.0100001", batch_size=SIZE)
    assert "no change is resolved" in title(data.sel(direction="q2c", metric="contributing"))


def test_the_document_has_every_number_and_no_nan(file):
    done = call("whatif", file, "--what", "top_k=3", "--what", "eps=0.02", "--json", "--batch-size", SIZE)
    found = json.loads(done.stdout)
    numbers = found["directions"]["q2c"]
    assert list(numbers["mean"]) == ["as it is", "top_k 3", "eps 0.02"]
    assert found["loss_repr"]["top_k 3"] == "TopK(loss=NTXent(temperature=0.1), k=3)"
    first = {name: numbers[name]["top_k 3"]["contributing"] for name in ("low", "difference", "high", "pairs")}
    assert first["low"] < first["difference"] < first["high"] and first["pairs"] == 48
    assert numbers["low"]["as it is"]["contributing"] is None and found["checkpoint"]["path"] == file


def test_it_is_drawn_and_saved(file, tmp_path, found):
    assert call("whatif", file, "--out", "a.png", "--batch-size", SIZE).exit_code == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert call("whatif", file, "--out", "a.nc", "--batch-size", SIZE, "--what", "top_k=2").exit_code == 0
    saved = results.open(tmp_path / "a.nc")
    assert saved["variant"].values.tolist() == ["as it is", "top_k 2"]
    one = found.sel(direction="c2q", metric="effective")
    figure, ax = plt.subplots()
    plots.replay(found, direction="c2q", metric="effective", ax=ax)
    assert [text.get_text().split(":")[0] for text in ax.get_yticklabels()] == list(OTHERS)
    middles = [line.get_xdata()[0] for line in ax.lines if line.get_markersize() == 7]
    assert np.allclose(middles, one["difference"].values[1:])
    plt.close(figure)
    with pytest.raises(InputError, match="unknown value of a replay 'rank'"):
        plots.replay(found, metric="rank")


WRONG = {
    "temprature=1": "unknown thing to change of ntxent 'temprature': did you mean 'temperature'?",
    "top_k": "write it as NAME=VALUE,VALUE",
    "temperature=": "write it as NAME=VALUE,VALUE",
    "temperature=0.1,,0.2": "write it as NAME=VALUE,VALUE",
    "temperature=0.2,0.2": "temperature 0.2 is given 2 times",
    "temperature=-1": "temperature must be finite and above 0, got -1",
    "top_k=x": "what top_k=x: expected a number",
    "top_k=2.5": "what top_k=2.5: expected an integer",
    "top_k=0": "k must be an integer of at least 1, got 0",
    "batch_size=1": "batch size: 1, expected an integer of at least 2",
    "eps=-1": "eps: -1.0, expected a share",
    "loss=nope": "unknown loss 'nope'",
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_replayed_is_one_sentence(file, what):
    done = call("whatif", file, "--what", what, "--out", "never.nc")
    assert done.exit_code == 2 and done.stdout == "" and "Traceback" not in done.stderr
    assert WRONG[what] in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not Path("never.nc").exists()


def test_further_wrong_options_are_one_sentence(file):
    twice = call("whatif", file, "--what", "eps=0.1", "--what", "eps=0.2")
    assert twice.exit_code == 2 and "eps is given twice" in twice.stderr
    for option, value, said in (
        ("--eps", -1, "eps: -1.0, expected"),
        ("--batch-size", 1, "batch size: 1, expected"),
    ):
        done = call("whatif", file, option, value)
        assert done.exit_code == 2 and said in done.stderr
    with pytest.raises(InputError, match="expected at most 60"):
        Setting(losses.load("ntxent"), 0.01, 8).all({"temperature": [k / 100 for k in range(1, 62)]}, losses.load)
