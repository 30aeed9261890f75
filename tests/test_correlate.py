"""`cocos correlate` and `cocos.measures.correlate`: levels side by side, files put together, and what is refused."""

import json
import math
import shutil

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch
import xarray as xr
from matplotlib import pyplot as plt
from typer.testing import CliRunner

import cocos
from cocos import InputError, measures, plots, results
from cocos.commands import app
from cocos.measures.correlate import ASSOCIATION_LABELS, tables
from cocos.plots.correlate import title
from cocos.reports import table as report
from cocos.results import correlation

FEW = {"permutations": 500, "resamples": 300}
FEW_TYPED = ("--permutations", 500, "--resamples", 300)


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def refused(*arguments):
    done = call(*arguments)
    assert done.exit_code == 2 and done.stdout == "" and "Traceback" not in done.stderr, (done.stdout, done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1
    return done.stderr


def numbers(data, x="contributing", level="settings"):
    one = data.sel(x=x, level=level)
    return {key: one[key].item() for key in ASSOCIATION_LABELS}


@pytest.fixture
def runs():
    """Three families of eight settings with two seeds: along a run the count falls, between settings it rises."""
    rng = np.random.default_rng(1)
    names = ("ntxent", "smoothap", "triplet")
    setting = np.tile(np.repeat(np.arange(8.0), 2), 3)
    family = np.repeat(names, 16)
    config = np.array([f"{f} {k:g}" for f, k in zip(family, setting, strict=True)])
    shift = np.repeat([0.0, 30.0, 60.0], 16)
    steps = np.arange(4.0)
    count = 10 + setting[:, None] + shift[:, None] - 2 * steps + rng.normal(0, 0.1, (48, 4))
    score = 300 + 5 * setting[:, None] - shift[:, None] + 20 * steps + rng.normal(0, 1, (48, 4))
    effective = np.exp(1 + setting / 4)[:, None] * np.ones(4)
    hump = 400 - 3 * (setting[:, None] - 3) ** 2 + rng.normal(0, 1, (48, 4))
    return xr.Dataset(
        {
            "contributing": (("run", "step"), count, {"long_name": "contributing negatives", "units": "candidates"}),
            "effective": (("run", "step"), effective),
            "rsum": (("run", "step"), score),
            "hump": (("run", "step"), hump),
            "rsum_val": (("run", "step"), score + rng.normal(0, 3, (48, 4))),
            "constant": ("run", np.full(48, 1.0)),
            "missing": ("run", np.full(48, np.nan)),
            "R@1": (("run", "direction"), np.stack([score[:, -1] / 8, score[:, -1] / 9], axis=1)),
            "ruler_idle": (("run", "ruler"), np.stack([score[:, -1], -score[:, -1]], axis=1)),
        },
        {
            "family": ("run", family),
            "config": ("run", config),
            "seed": ("run", np.arange(48) % 2),
            "batch_size": ("run", np.where(np.arange(48) % 2, 128, 32)),
            "step": [1, 3, 10, 30],
            "direction": ["i2t", "t2i"],
            "ruler": ["ntxent", "triplet_sh"],
        },
    )


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Three settings of two losses, two seeds each, as results of count with metrics: more noise, lower recall."""
    folder = tmp_path_factory.mktemp("counted")
    rng = np.random.default_rng(0)
    for loss in ("ntxent", "triplet"):
        for k in range(3):
            for seed in range(2):
                image = rng.normal(size=(40, 12))
                np.savez(
                    folder / "e.npz", query=image, candidate=image + (0.7 + 0.3 * k) * rng.normal(size=image.shape)
                )
                data = measures.count(cocos.open(folder / "e.npz"), loss, batch_size=16, metrics=True)
                results.save(data, folder / f"{loss}-{k}-seed{seed}.nc")
    return folder


@pytest.fixture
def files(counted, tmp_path, monkeypatch):
    """Names of those results, in a folder that is the current one."""
    shutil.copytree(counted, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return sorted(path.name for path in tmp_path.glob("*.nc"))


def test_settings_on_a_grid_are_tested_against_smooth_curves(runs):
    """Each family has an arch: the exchange of its settings makes more of its sides than curves do."""
    runs = runs.assign_coords(value=("run", np.tile(np.repeat(np.arange(8.0), 2), 3)))
    data = measures.correlate(runs, ["contributing", "effective"], "hump", **FEW)
    assert data.attrs["order"] == "value" and data["ordered_number"].values.tolist() == [24, 24]
    columns, owners = correlation.means(
        np.stack([runs["contributing"].values[:, -1], runs["hump"].values[:, -1], runs["value"].values]),
        runs["config"].values,
        runs["family"].values,
    )
    alone = correlation.ordered(*columns, owners, permutations=FEW["permutations"])
    assert data["ordered_p"].values[0] == alone.p > 0.05
    assert alone.p > 1.5 * numbers(data)["p"]
    assert data["ordered_p_holm"].values == pytest.approx(cocos.statistics.holm(data["ordered_p"].values))
    text = report("correlate", data).text(200)
    assert "no evidence that it goes with hump" in text and "against smooth curves along value" in text
    assert "    along value" in text and "14 to 31 % of" in " ".join(text.split())
    assert f"p = {data['ordered_p_holm'].values[0]:.2g} against smooth curves along value" in title(data)
    document = measures.document("correlate", data)
    assert document["order"] == "value" and document["x"]["contributing"]["ordered"]["p"] == alone.p
    plain = measures.correlate(runs.drop_vars("value"), **FEW)
    assert plain.attrs["order"] == "" and "ordered_p" not in plain
    assert "name their coordinate with --order" in " ".join(report("correlate", plain).text(200).split())
    assert "ordered" not in measures.document("correlate", plain)["x"]["contributing"]


def test_a_grid_is_a_coordinate_of_numbers_that_differ(runs):
    other = runs.assign_coords(step_of=("run", np.tile(np.repeat(np.arange(8.0), 2), 3)), same=("run", np.ones(48)))
    assert measures.correlate(other, "contributing", order="step_of", **FEW).attrs["order"] == "step_of"
    for order, sentence in (
        ("family", "coordinate of the runs with numbers"),
        ("same", "it is the same for all runs of each family"),
        ("seed", "has the values 0, 1; expected one"),
    ):
        with pytest.raises(InputError, match=sentence):
            measures.correlate(other, "contributing", order=order, **FEW)


def test_the_levels_are_those_of_the_room(runs):
    data = measures.correlate(runs, ["contributing", "effective"], **FEW)
    columns = [runs[name].values for name in ("contributing", "rsum")]
    found = correlation.levels(*columns, family=runs["family"].values, config=runs["config"].values, **FEW)
    for level, each in found.items():
        assert numbers(data, level=level)["rho"] == pytest.approx(each.rho, nan_ok=True)
        assert numbers(data, level=level)["number"] == each.number
    assert numbers(data, level="within_run")["rho"] == pytest.approx(-1)
    assert numbers(data)["rho"] > 0.9 and numbers(data)["number"] == 24
    assert numbers(data, level="pooled")["rho"] < -0.3 and math.isnan(numbers(data, level="pooled")["p"])
    p = [numbers(data, x)["p"] for x in ("contributing", "effective")]
    assert data["p_holm"].values == pytest.approx(cocos.statistics.holm(p))
    assert data.identical(measures.correlate(runs, ["contributing", "effective"], **FEW))
    plain = measures.correlate(runs, ["contributing", "effective"], holm=False, **FEW)
    assert plain["p_holm"].values == pytest.approx(p)


def test_the_json_has_every_level_and_no_headline_of_the_pooled(runs, tmp_path):
    results.save(runs, tmp_path / "runs.nc")
    done = call("correlate", tmp_path / "runs.nc", "--json", "--baseline", "rsum_val", *FEW_TYPED)
    document = json.loads(done.stdout)
    assert document["runs"] == 48 and document["settings"] == 24
    assert document["families"] == {"ntxent": 16, "smoothap": 16, "triplet": 16}
    assert document["y"] == "rsum" and list(document["x"]) == ["contributing", "effective"]
    levels = document["x"]["contributing"]["levels"]
    assert list(levels) == ["within_run", "seeds", "settings", "families", "pooled"]
    assert levels["pooled"]["varies"] == "pooled: not a finding" and levels["pooled"]["p"] is None
    assert levels["families"]["rho"] is None and "n = 3" in levels["families"]["undefined"]
    beyond = document["x"]["contributing"]["beyond"]["rsum_val"]
    assert beyond["number"] == 24 and beyond["difference_low"] < beyond["difference"] < beyond["difference_high"]
    text = call("correlate", tmp_path / "runs.nc", *FEW_TYPED).stdout
    assert "settings of a family with more of it have higher rsum" in text
    assert "pooled: not a finding" in text and "have lower" not in text


def test_a_hump_has_its_optimum_in_the_log(runs):
    data = measures.correlate(runs, "effective", "hump", **FEW)
    assert bool(data["quadratic_log"].item()) and bool(data["quadratic_inside"].item())
    # e^(1 + 3/4) is the effective number of the third setting, where rsum was put highest
    assert math.exp(float(data["quadratic_optimum"].item())) == pytest.approx(math.exp(1.75), rel=0.1)
    assert float(data["quadratic_bent_down"].item()) == 1
    assert "5.7" in tables(data)[1].text(200) or "5.8" in tables(data)[1].text(200)
    below = measures.correlate(runs.assign(effective=runs["effective"] - 10), "effective", "hump", **FEW)
    assert not bool(below["quadratic_log"].item())


def test_constant_and_missing_numbers_are_refused_with_n(runs):
    with pytest.raises(InputError, match="no correlation of constant with rsum: constant constant, n = 48"):
        measures.correlate(runs, "constant", **FEW)
    with pytest.raises(InputError, match="no correlation of missing with rsum: n = 0 points"):
        measures.correlate(runs, "missing", **FEW)
    data = measures.correlate(runs, ["contributing", "constant"], **FEW)
    found = numbers(data, "constant")
    assert math.isnan(found["p"]) and math.isnan(found["rho"]) and "constant constant, n = 8" in found["undefined"]
    assert float(data["p_holm"].sel(x="contributing")) == numbers(data)["p"]  # one test alone
    text = report("correlate", data).text(200)
    assert "constant: no correlation between the settings of a family is defined." in text
    partly = runs.assign(effective=runs["effective"].where(runs["family"] != "triplet", 1.0 + 1e-9))
    without = numbers(measures.correlate(partly, "effective", **FEW), "effective")["without"]
    assert without == "triplet: effective constant, n = 8"


def test_parts_families_and_runs_can_be_chosen(runs):
    data = measures.correlate(runs, "ruler_idle", "R@1", **FEW)
    assert data["x"].values.tolist() == ["ruler_idle:ntxent", "ruler_idle:triplet_sh"]
    assert float(data["rho"].sel(level="settings")[0]) == pytest.approx(1)  # R@1 is rsum divided by about 8.5
    assert float(data["rho"].sel(level="settings")[1]) == pytest.approx(-1)
    one = measures.correlate(runs, "ruler_idle:ntxent", "R@1:t2i", where=["batch_size=128"], **FEW)
    assert one.sizes["run"] == 24 and set(np.unique(one["seed"])) == {1}
    both = measures.correlate(
        runs, "contributing", family="family,batch_size", config="family,config,batch_size", **FEW
    )
    assert set(both["family"].values) == {f"{n}, {b}" for n in ("ntxent", "smoothap", "triplet") for b in (32, 128)}
    for options, said in (
        ({"x": "contributin"}, "--x: unknown number of the runs 'contributin': did you mean 'contributing'"),
        ({"y": "ruler_idle"}, "write ruler_idle: and one of ntxent, triplet_sh"),
        ({"x": "ruler_idle:supcon"}, "unknown part of ruler_idle 'supcon'"),
        ({"x": "rsum"}, "it is y as well"),
        ({"family": "loss"}, "unknown coordinate of the runs 'loss'"),
        ({"where": ["batch_size"]}, "write it as NAME=VALUE"),
        ({"where": ["batch_size=64"]}, "no run has it; batch_size is one of 32, 128"),
        ({"where": ["batch_size=many"]}, "batch_size is a number"),
        ({"baseline": "rsum_test"}, "--baseline: unknown number"),
        ({"level": 95}, "level: 95, expected a number between 0 and 1"),
        ({"config": "seed"}, "belongs to the families"),
    ):
        with pytest.raises(InputError, match=said):
            measures.correlate(runs, **options)
    with pytest.raises(InputError, match="without the coordinate 'config'"):
        measures.correlate(runs.drop_vars("config"))


def test_counts_with_metrics_become_runs(files, tmp_path):
    done = call("correlate", *files, "--json", *FEW_TYPED, "--out", "found.nc", "--figure", "found.png")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["runs"] == 12 and document["settings"] == 6
    assert document["families"] == {"ntxent": 6, "triplet": 6}
    settings = document["x"]["contributing"]["levels"]["settings"]
    assert settings["number"] == 6 and settings["rho"] < -0.9  # noise raises the count, and lowers recall
    assert document["notes"] == ["6 settings have several seeds, by the names of their files"]
    data = results.open("found.nc")
    assert data["config"].values[:3].tolist() == ["ntxent-0", "ntxent-0", "ntxent-1"]
    assert data["seed"].values[:3].tolist() == [0, 1, 0]
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


def test_an_evaluation_joins_the_count_of_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng, names = np.random.default_rng(0), []
    for k in range(5):
        image = rng.normal(size=(30, 8))
        np.savez(f"e{k}.npz", query=image, candidate=image + (0.5 + 0.3 * k) * rng.normal(size=image.shape))
        checkpoint = cocos.open(f"e{k}.npz")
        results.save(measures.count(checkpoint, "ntxent", batch_size=16), tmp_path / f"count{k}.nc")
        results.save(measures.evaluate(checkpoint), tmp_path / f"recall{k}.nc")
        names += [f"count{k}.nc", f"recall{k}.nc"]
    data = measures.correlate(names, "contributing", **FEW)
    assert data.sizes["run"] == 5 and np.isfinite(data["y_value"]).all()
    assert "5 evaluations belong to the counts" in data.attrs["notes"]
    assert "none of the 5 runs has recall: count with --metrics" in refused("correlate", *names[::2])
    assert "recall alone" in refused("correlate", *names[1::2])
    assert "recall3.nc" not in refused("correlate", names[0], names[2], names[5])
    assert "recall2: no count of the same checkpoint" in refused("correlate", names[0], names[2], names[5])


def test_checkpoints_of_runs_and_stores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng, names = np.random.default_rng(0), []
    for k in range(4):
        image = rng.normal(size=(30, 8))
        noise = rng.normal(size=image.shape)
        sides = [cocos.Embeddings(*map(torch.tensor, (image, image + noise * (2 - step)))) for step in (0, 0.5, 1, 1.5)]
        results.save(measures.run(sides, "ntxent", batch_size=16), tmp_path / f"run{k}.nc")
        monitor = cocos.Monitor("ntxent", store=f"watched{k}.jsonl")
        with monitor:
            for step, each in enumerate(sides):
                monitor(each.query, each.candidate, step=step)
        names.append(f"run{k}.nc")
    data = measures.correlate(names, "contributing", **FEW)
    assert numbers(data, level="within_run")["rho"] < -0.9 and numbers(data, level="within_run")["blocks"] == 4
    stores = [f"watched{k}.jsonl" for k in range(4)]
    assert "none of the 4 runs has recall" in refused("correlate", *stores)
    found = json.loads(call("correlate", *stores, "--y", "value", "--x", "contributing", "--json", *FEW_TYPED).stdout)
    assert found["x"]["contributing"]["levels"]["within_run"]["rho"] > 0.9  # loss and count fall together


def test_files_of_checkpoints_are_no_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng, names = np.random.default_rng(0), []
    for k in range(4):
        image = rng.normal(size=(30, 8))
        noise = rng.normal(size=image.shape)
        for epoch, size in ((1, 2.0), (2, 1.5), (10, 1.0)):
            np.savez("e.npz", query=image, candidate=image + size * noise)
            data = measures.count(cocos.open("e.npz"), "ntxent", batch_size=16, metrics=True)
            results.save(data, tmp_path / f"lr{k}_epoch_{epoch}.nc")
            names.append(f"lr{k}_epoch_{epoch}.nc")
    data = measures.correlate(names, "contributing", **FEW)
    assert data["config"].values.tolist() == ["lr0", "lr1", "lr2", "lr3"] and data["step"].values.tolist() == [1, 2, 10]
    assert numbers(data, level="within_run")["rho"] < -0.9 and numbers(data)["number"] == 4
    assert "12 files are checkpoints of the same runs" in data.attrs["notes"]
    alone = measures.correlate(names[2::3], "contributing", **FEW)  # one of each run: the numbers mean nothing here
    assert alone.sizes["run"] == 4 and alone.sizes["step"] == 1 and not alone.attrs["notes"]


def test_several_losses_of_one_count_are_rulers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng, names = np.random.default_rng(0), []
    for k in range(4):
        image = rng.normal(size=(30, 8))
        np.savez(f"e{k}.npz", query=image, candidate=image + (0.5 + 0.3 * k) * rng.normal(size=image.shape))
        data = measures.count(cocos.open(f"e{k}.npz"), ["ntxent", "triplet"], batch_size=16, metrics=True)
        results.save(data, tmp_path / f"e{k}.nc")
        names.append(f"e{k}.nc")
    data = measures.correlate(names, **FEW)
    assert data.sizes["run"] == 4 and data.sizes["x"] == 4
    assert str(data["x"].values[0]).startswith("ruler_contributing:NTXent")
    assert np.isfinite(data["rho"].sel(level="settings")).all()
    for name in ("ntxent", "triplet"):
        results.save(measures.count(cocos.open("e0.npz"), name, batch_size=16), tmp_path / f"again-{name}.nc")
    assert "count the same checkpoint: one model is one unit" in refused(
        "correlate", "again-ntxent.nc", "again-triplet.nc"
    )


def test_bad_files_are_one_sentence(files, tmp_path):
    assert "1 run, expected several" in refused("correlate", files[0])
    assert "is named 2 times" in refused("correlate", files[0], files[0])
    (tmp_path / "text.nc").write_text("no result")
    assert "no result of cocos" in refused("correlate", files[0], "text.nc")
    assert "is a folder, expected a result of cocos" in refused("correlate", files[0], tmp_path)
    results.save(measures.weight_curve("triplet", points=5), tmp_path / "curve.nc")
    assert "curve.nc: row:" in refused("correlate", files[0], "curve.nc")
    assert "suffix '.txt'" in refused("correlate", *files[:2], "--figure", "a.txt")
    assert "which it would destroy" in refused("correlate", *files[:2], "--out", files[0])
    assert not (tmp_path / "a.txt").exists()


def test_every_run_is_a_point(runs):
    data = measures.correlate(runs, "contributing", **FEW)
    axes = plots.correlate(data)
    points = [line for line in axes.lines if line.get_linestyle() == "None"]
    assert sum(len(line.get_xdata()) for line in points) == 48 and len(points) == 3
    ends = np.concatenate([line.get_xdata() for line in points])
    np.testing.assert_array_equal(np.sort(ends), np.sort(runs["contributing"].values[:, -1]))
    assert "settings: +" in axes.get_title() and "pooled" not in axes.get_title()
    plt.close("all")
    axes = plots.correlate(data, show="checkpoints")
    assert sum(len(line.get_xdata()) == 4 for line in axes.lines) == 48
    assert "checkpoints: -1.00" in axes.get_title()
    plt.close("all")
    for options, said in (({"x": "idle"}, "unknown x"), ({"show": "all"}, "unknown show")):
        with pytest.raises(InputError, match=said):
            plots.correlate(data, **options)


@pytest.mark.parametrize(
    ("numbers", "scale"),
    [
        (np.linspace(5, 45, 48), "linear"),
        (np.geomspace(1, 100, 48), "log"),
        (np.r_[0.0, np.geomspace(1, 400, 47)], "symlog"),
        (np.linspace(0, 100, 48), "linear"),
    ],
)
def test_the_axis_fits_the_orders_of_magnitude(runs, numbers, scale):
    data = runs.isel(step=-1, drop=True).assign(contributing=("run", numbers))
    assert plots.correlate(measures.correlate(data, "contributing", **FEW)).get_xscale() == scale
    plt.close("all")
