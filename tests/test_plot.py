"""`cocos plot`: every picture of the shelf from the command line, its numbers, and what it refuses."""

import json
import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
import xarray as xr
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, losses, measures, plots, reports, results
from cocos.cli import app, plot
from cocos.data import emoji_captions
from cocos.plots import saving
from cocos.reports import drawing

TWINS = sorted(set(measures.__all__) & set(plots.__all__))
OWN = {"diff", "dtp", "landscape", "run"}  # with a command of their own


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def told(*arguments):
    done = call("plot", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def embeddings():
    generator = torch.Generator().manual_seed(3)
    image = torch.randn(24, 6, generator=generator, dtype=torch.float64)
    group = torch.arange(24).repeat_interleave(2)
    caption = image[group] + 0.8 * torch.randn(48, 6, generator=generator, dtype=torch.float64)
    return Embeddings(image, caption, torch.arange(24), group)


@pytest.fixture
def file(embeddings, tmp_path, monkeypatch):
    names = ("query", "candidate", "query_group", "candidate_group")
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", **{name: getattr(embeddings, name).numpy() for name in names})
    return Path("rows.npz")


@pytest.fixture
def undrawn(monkeypatch):
    """No picture is made; what would be drawn is kept: panels and the size of one."""
    seen = []
    monkeypatch.setattr(saving, "save_panels", lambda panels, path, **size: seen.append((panels, size["size"])) or path)
    return seen


def test_every_twin_of_the_shelf_is_a_kind_and_has_a_command():
    kinds = sorted({*TWINS} - {"diff", "run"})
    assert plot.KINDS == call("plot").stdout.split() == json.loads(call("plot", "--json").stdout) == kinds
    assert all(kind in call("plot", "--help").stdout for kind in kinds) and set(TWINS) >= OWN


@pytest.mark.parametrize(("kind", "typed"), [("count", ["rows.npz", "--batch-size", 12]), ("weight_curve", [])])
def test_a_kind_is_drawn_and_told(kind, typed, file, tmp_path):
    """tests/test_plot_widths.py draws every kind, tests/test_terminal.py prints its table."""
    done = call("plot", kind.replace("_", "-"), *typed, "--loss", "triplet")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / f"{kind}.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({f"{kind}.png", "rows.npz"})
    assert re.search(r"\d", done.stdout) and f"wrote {kind}.png" in done.stderr and "nan" not in done.stdout


def test_the_numbers_are_those_of_the_measures(file, embeddings, undrawn):
    spread = measures.score_distribution(embeddings, queries=9)
    found = told("score_distribution", file, "--queries", 9)["directions"]
    for name in ("q2c", "c2q"):
        one = spread.sel(direction=name)
        assert found[name]["spread"]["10"] == float(one["spread"].sel(k=10))
        assert found[name]["spread"]["100"] is None  # there are fewer candidates
        assert found[name]["kth_band"]["95"]["1"] == float(one["kth_band"].sel(percentile=95, k=1))
        deviation = one["deviation"].values
        assert found[name]["deviation"]["p5"] == pytest.approx(np.quantile(deviation, 0.05))
        assert found[name]["deviation"]["mean"] == pytest.approx(deviation.mean())
    curve = measures.precision_recall(embeddings)
    document = told("precision_recall", file)
    assert document["pr_auc"] == curve.attrs["pr_auc"] and document["seed"] == 0
    assert document["directions"]["c2q"]["mAP"] == float(curve["mAP"][1])
    assert document["directions"]["c2q"]["mean"]["0.4"] == float(curve["mean"].sel(direction="c2q", level=0.4))
    uneven = measures.lorenz(embeddings, losses.load("triplet", {"margin": 0.4}), batch_size=12)
    document = told("lorenz", file, "--batch-size", 12, "--loss", "triplet", "-p", "margin=0.4")
    assert document["loss"] == {"name": "triplet", "parameters": {"margin": 0.4}}
    assert document["directions"]["q2c"]["gini"] == float(uneven["gini"][0])
    cut = measures.thresholds(embeddings)
    document = told("thresholds", file)
    assert list(document["distance"].values()) == cut["distance"].values.tolist()
    weighed = measures.weight_map(embeddings, "ntxent", 0.1, batch_size=12)
    document = told("weight_map", file, "--batch-size", 12, "--eps", 0.1)
    above = ((weighed["share"] > 0.1) & weighed["negative"]).sum("candidate")
    assert document["directions"]["q2c"]["contributing"]["mean"] == pytest.approx(float(above.mean()))
    counted = measures.count(embeddings, "ntxent", batch_size=12)
    assert told("count", file, "--batch-size", 12)["directions"] == reports.document("count", counted)["directions"]
    assert told("decomposition", file, "--batch-size", 12)["directions"]["q2c"]["pull_norm"]["mean"] > 0
    listed = told("contributors", file, "--batch-size", 12, "--row", 3)["directions"]
    assert [entry["row"] for entry in listed.values()] == [3, 3] and list(listed) == ["q2c", "c2q"]


@pytest.mark.parametrize(
    ("arguments", "panels"),
    [
        (["score_distribution"], ["q2c", "c2q"]),
        (["score_distribution", "--direction", "c2q"], ["c2q"]),
        (["retrievals"], [None, None]),
        (["retrievals", "--direction", "c2q"], [None]),
        (["lorenz"], [None]),
    ],
)
def test_one_panel_a_direction_where_the_plot_draws_one(arguments, panels, file, undrawn):
    assert call("plot", arguments[0], file, *arguments[1:]).exit_code == 0
    ((drawn, (width, _)),) = undrawn
    assert [panel.keywords.get("direction") for panel in drawn] == panels
    assert width > 5


def test_json_alone_draws_nothing(file, tmp_path):
    before = sorted(tmp_path.iterdir())
    done = call("plot", "retrievals", file, "--queries", 3, "--json")
    assert done.exit_code == 0 and "directions" in json.loads(done.stdout) and "wrote" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_the_dataset_is_written_in_the_place_of_a_picture(file, embeddings, tmp_path):
    assert call("plot", "lorenz", file, "--batch-size", 12, "--out", "l.nc").exit_code == 0
    saved, expected = results.open(tmp_path / "l.nc"), measures.lorenz(embeddings, "ntxent", batch_size=12)
    xr.testing.assert_equal(saved, expected)
    assert saved.attrs["checkpoint_path"] == "rows.npz"
    done = call("plot", "weight_map", file, "--batch-size", 12, "--direction", "c2q", "--out", "w.nc")
    assert done.exit_code == 0 and results.open(tmp_path / "w.nc").attrs["direction"] == "c2q"


def test_an_option_of_retrievals_outlines_the_confident(file, tmp_path):
    assert call("plot", "retrievals", file, "--confident", 0.6, "--direction", "c2q", "--out", "r.png").exit_code == 0
    done = call("plot", "lorenz", file, "--confident", 0.6)
    assert done.exit_code == 2 and "lorenz does not take --confident" in done.stderr


def test_questions_of_their_own_are_drawn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ("--f1", "warp", "--k1", 0.5, "--alpha", "2", "--json", "--out", "landscape.png")
    assert json.loads(call("plot", "landscape", *given).stdout)["predicted"] == pytest.approx([-7, 0])
    assert Path("landscape.png").read_bytes().startswith(b"\x89PNG")
    rows, labels = np.eye(3, dtype=np.float32), np.arange(3)
    for step in (1, 2):
        np.savez(f"epoch_{step}.npz", embeddings=step * rows, labels=labels, proxies=rows, proxy_labels=labels)
    files = ("epoch_1.npz", "epoch_2.npz")
    told = json.loads(call("plot", "dtp", *files, "--alpha", 0.5, "--json").stdout)
    assert list(told["average"].values())[0] == {"1": pytest.approx(0), "2": pytest.approx(1)}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["lorentz", "rows.npz"], "did you mean 'lorenz'?"),
        (["diff", "rows.npz"], "unknown kind of plot 'diff'"),
        (["landscape", "--wide", "3"], "--wide"),
        (["landscape", "--eps", "0.1"], "landscape does not take --eps"),
        (["lorenz", "rows.npz", "b.npz"], "2 of FILE, expected 1"),
        (["landscape", "--k1", "a"], "--k1 'a'"),
        (["landscape", "--f1", "warp", "--alpha", "3,a"], "--alpha '3,a'"),
        (["dtp", "--alpha", "3"], "0 of FILE, expected 1"),
        (["weight_curve", "rows.npz"], "1 of FILE, expected 0"),
        (["score_distribution", "rows.npz", "--eps", "0.1"], "does not take --eps, only --loss"),
        (["eps_curve", "rows.npz", "--eps", "0.1"], "does not take --eps"),
        (["thresholds", "rows.npz", "--loss", "triplet"], "does not take --loss"),
        (["thresholds", "rows.npz", "-p", "margin=1"], "-p"),
        (["lorenz", "rows.npz", "--direction", "q2c"], "does not take --direction"),
        (["thresholds", "rows.npz", "--queries", "abc"], "--queries 'abc'"),
        (["thresholds", "rows.npz", "--queries", "0"], "queries: 0"),
        (["precision_recall", "rows.npz", "--direction", "cq2"], "did you mean 'q2c'?"),
        (["retrievals", "rows.npz", "--out", "r.nc"], "expected --direction"),
        (["lorenz", "rows.npz", "--out", "r" * 300 + ".png"], "r.png: the name is too long for a file"),
        (["lorenz", "r" * 300 + ".npz"], "the name is too long for a file"),
        (["lorenz", "rows.npz", "--out", "no/r.png"], "there is no folder no"),
        (["lorenz", "rows.npz", "--split", "test"], "'test'"),
        (["score_landscape", "--loss", "proxy_anchor"], "couples the embeddings of a batch"),
    ],
)
def test_what_cannot_be_drawn_gets_one_sentence_and_writes_nothing(arguments, sentence, file, tmp_path):
    done = call("plot", *arguments)
    assert (done.exit_code, done.stdout) == (2, ""), done.stdout
    assert sentence in done.stderr and done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]


def test_the_rows_of_a_checkpoint_are_shown_as_what_they_are():
    items = emoji_captions.load("test")
    captions, images = (xr.Dataset(attrs={"direction": name, "row": 7}) for name in ("t2i", "i2t"))
    show = drawing.row_texts("retrievals", captions, items)["pictures"]
    assert show("query", 7) == items.candidate.items[7]
    np.testing.assert_array_equal(show("candidate", 1), items.query.items[1].permute(1, 2, 0))
    told = drawing.row_texts("contributors", captions, items)
    assert told["query"] == items.candidate.items[7] and told["labels"](1) == f"image of: {items.candidate.items[5]}"
    assert told["pictures"](1).shape == (*items.query.items.shape[2:], 3)
    assert set(drawing.row_texts("contributors", images, items)) == {"labels", "query", "image"}
    assert drawing.row_texts("lorenz", captions, items) == drawing.row_texts("contributors", captions, None) == {}


def test_names_and_pictures_of_a_file_are_shown(file, undrawn):
    arrays = dict(np.load(file))
    images = np.arange(24, dtype=np.uint8).repeat(2 * 2 * 3).reshape(24, 2, 2, 3)
    given = {"query_name": [f"picture {k}" for k in range(24)], "query_image": images}
    np.savez("named.npz", **arrays, **given)
    direction = str(measures.contributors(drawing.once(cocos.open("named.npz"))).attrs["direction"])
    assert call("plot", "contributors", "named.npz", "--row", 3).exit_code == 0
    first, second = (panel.keywords for panel in undrawn[-1][0])
    assert first["query"] == "picture 3" and first["image"][0, 0, 0] == 3
    assert second["labels"](5) == "picture 5" and second["pictures"](5)[0, 0, 0] == 5
    assert call("plot", "retrievals", "named.npz", "--direction", direction).exit_code == 0
    show = undrawn[-1][0][0].keywords["pictures"]
    assert show("query", 7)[0, 0, 0] == 7 and isinstance(show("candidate", 2), str)
    assert call("plot", "contributors", file).exit_code == 0 and "labels" not in undrawn[-1][0][0].keywords


def test_what_no_query_has_is_none_and_not_nan(embeddings):
    few = measures.score_distribution(embeddings, queries=4, ks=(1, 40))
    by_k, totals, _ = reports.tables("score_distribution", few)
    row = next(row for row in totals.rows if row[0].startswith("standard deviation"))
    assert re.fullmatch(r"0\.\d+", row[1])
    assert not [row for row in by_k.rows if row[0] == "c2q 40"]


def test_the_numbers_of_thresholds_are_kept_without_a_picture(file, embeddings, tmp_path):
    done = call("plot", "thresholds", file, "--queries", 10, "--out", "x.nc")
    assert done.exit_code == 0 and "wrote x.nc" in done.stderr, done.stderr
    xr.testing.assert_equal(results.open("x.nc"), measures.thresholds(embeddings, queries=10))
    assert {path.name for path in tmp_path.iterdir()} == {"x.nc", "rows.npz"}


def test_a_suffix_in_capitals_is_one(file, tmp_path):
    assert call("plot", "weight_curve", "--out", "a.PNG").exit_code == 0
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")


def test_bars_of_a_count_join_without_a_gap_or_an_overlap():
    rows = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    data = measures.count(Embeddings(rows, rows + 0.5 * rows.flip(0)), "ntxent", batch_size=60)
    with saving.styled():
        labels = [label.get_text() for label in plots.count(data, ax=plt.figure().subplots()).get_xticklabels()]
    plt.close("all")
    ends = [tuple(map(int, (label.partition("–")[0], label.rpartition("–")[2]))) for label in labels[1:]]
    assert labels[0] == "none" and ends[0][0] == 1 and len(ends) > 3
    assert [low for low, _ in ends[1:]] == [high + 1 for _, high in ends[:-1]]
