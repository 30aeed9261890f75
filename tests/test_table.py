"""`python -m analysis table`: printed numbers, runs, formats, what is refused."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats
from typer.testing import CliRunner

from analysis import tables
from analysis.__main__ import app
from analysis.tables import PAPER_TABLES
from cocos import Embeddings, InputError, measures, reports, results

ROOT = Path(__file__).parent.parent
PRINTED = [  # by hand from the papers: table, row, column, mean, deviation
    ("1", "1.1 VSE++, Triplet", "rsum", 309.4, 0.9),
    ("1", "1.8 VSRN, SmoothAP", "i2t R@1", 63.1, 1.0),
    ("2", "2.8 VSRN, SmoothAP", "t2i R@10", 76.0, 0.2),
    ("3", "1.1 VSE++, Triplet", "i2t C^B", 768.92, 96.87),
    ("4", "1.3 VSE++, NT-Xent", "i2t C^qv-", 9.88, 0.51),
    ("5", "2.4 VSE++, SmoothAP", "t2i C^0", 637.10, 20.28),
    ("III", "warp, α = 7.75", "AvgDTP", 7.76, math.nan),
    ("IV", "defocus blur", "Warped Softmax", 47.6, math.nan),
    ("cross_example", "CE Negative Mining", "+ distractors R@100", 21.62, math.nan),
    ("cross_example_2", "ViLBERT", "R@5", 61.12, math.nan),
    ("I", "Warped-Softmax, ResNet50 512", "CARS R@1", 91.2, math.nan),
    ("I", "CE, ResNet50 2048", "SOP R@1000", 98.8, math.nan),
    ("II", "CARS", "NMI", 77.0, 0.32),
    ("V", "Warped-Softmax", "CPLFW", 93.25, math.nan),
    ("VI", "Warped-Softmax", "Ensemble MAP@R", 28.47, 0.29),
    ("VII", "CosFace", "Complete RP", 38.39, 0.75),
    ("VIII", "PrAnchor", "Complete P@1", 58.75, 16.08),
]
WITH_NUMBERS = [name for name in PAPER_TABLES if name != "ablations"]


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def cell(data, label, column, name="mean"):
    (row,) = np.flatnonzero(data["label"].values == label)
    return data[name].sel(column=column).values[row]


def runs(recalls, seeds=None, **more):
    """A table of runs: config -> R@1 of images of each run, with other recalls that are far above."""
    config = [name for name, values in recalls.items() for _ in values]
    first = np.concatenate(list(recalls.values())).astype(float)
    return xr.Dataset(
        {"R@1": (("run", "direction"), np.stack([first, first + 1], 1)), "rsum": ("run", 6 * first)},
        coords={
            "config": ("run", config),
            "family": ("run", config),
            "seed": ("run", seeds or [s for values in recalls.values() for s in range(len(values))]),
            "direction": ["i2t", "t2i"],
            **more,
        },
    )


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Results of a count of two seeds of NT-Xent and one of triplet, with metrics; and files of them."""
    folder, found = tmp_path_factory.mktemp("counts"), []
    for seed, loss in enumerate(("ntxent", "ntxent", "triplet")):
        generator = torch.Generator().manual_seed(seed)
        image = torch.randn(40, 8, generator=generator)
        group = torch.arange(40).repeat_interleave(5)
        caption = image[group] + torch.randn(200, 8, generator=generator)
        embeddings = Embeddings(image, caption, torch.arange(40), group, directions=("i2t", "t2i"))
        found.append(measures.count(embeddings, loss, batch_size=32, metrics=True))
        results.save(found[-1], folder / f"seed{seed}.nc")
    return found, folder


@pytest.mark.parametrize(("name", "row", "column", "mean", "std"), PRINTED)
def test_printed_numbers_are_those_of_the_papers(name, row, column, mean, std):
    table = tables.paper_table(name)
    assert cell(table, row, column) == mean
    np.testing.assert_equal(cell(table, row, column, "std"), std)


@pytest.mark.parametrize("name", ["1", "2"])
def test_printed_recalls_add_up(name):
    """Each average is the mean of its recalls and each rsum their sum, up to rounding, but for the misprint."""
    table = tables.paper_table(name)
    for row in range(8):
        one = table["mean"].isel(row=row)
        for way in ("i2t", "t2i"):
            mean = np.mean([float(one.sel(column=f"{way} R@{k}")) for k in (1, 5, 10)])
            right = abs(mean - float(one.sel(column=f"{way} average"))) < 0.11
            assert right == ((str(table["label"].values[row]), way) != ("2.7 VSRN, NT-Xent", "t2i"))
        total = sum(float(one.sel(column=f"{way} R@{k}")) for way in ("i2t", "t2i") for k in (1, 5, 10))
        assert abs(total - float(one.sel(column="rsum"))) < 0.31


def test_printed_counts_of_the_hardest_negative_add_up_to_a_batch():
    """One or none a query: C^B + C^0 is the mean batch size, 127.979 queries."""
    table = tables.paper_table("3")
    for row in np.flatnonzero(np.char.endswith(table["label"].values, "SH")):
        for way in ("i2t", "t2i"):
            total = sum(float(table["mean"].isel(row=row).sel(column=f"{way} {each}")) for each in ("C^B", "C^0"))
            assert abs(total - 127.979) < 0.02


def numbers(text):
    """The first number of a cell, without deviation; NaN for a dash."""
    found = re.search(r"-?\d+(\.\d+)?", text)
    return float(found[0]) if found else math.nan


def of_markdown(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[numbers(each) for each in line.strip("| ").split(" | ")] for line in lines[2:]]


def of_latex(text):
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    return [[numbers(each) for each in line.removesuffix(r"\\").split("&")] for line in body]


@pytest.mark.parametrize("name", WITH_NUMBERS)
@pytest.mark.parametrize(("format", "parsed"), [("markdown", of_markdown), ("latex", of_latex)])
def test_every_format_holds_the_numbers(name, format, parsed):
    done = call("table", name, "--format", format)
    assert done.exit_code == 0, done.stderr
    table = tables.paper_table(name)
    for found, wanted in zip(parsed(done.stdout), table["mean"].values, strict=True):
        np.testing.assert_allclose(found[len(found) - len(wanted) :], wanted)


def test_json_has_the_number_of_runs():
    found = json.loads(call("table", "5", "--json").stdout)
    assert found["rows"][0]["n"] == 1 and json.loads(call("table", "III", "--json").stdout)["rows"][0]["n"] is None


@pytest.mark.parametrize("arguments", [["6"], ["ablations"], ["1", "a=gone.nc"], ["4", "TRIPLET"], ["III", "TRIPLET"]])
def test_unusable_input_has_exit_code_2(arguments, counted):
    done = call("table", *(counted[1] / "seed2.nc" if each == "TRIPLET" else each for each in arguments))
    assert (done.exit_code, done.stdout) == (2, "") and "Traceback" not in done.stderr


def test_the_list_names_every_table():
    listed = json.loads(call("table", "--json").stdout)
    assert [each["table"] for each in listed] == list(PAPER_TABLES)
    page = (ROOT / "docs" / "howto" / "table.md").read_text("utf-8")
    assert all(f"`{name}`" in page for name in PAPER_TABLES)


def test_counts_become_rows_with_mean_and_sample_deviation(counted):
    found, folder = counted
    documents = [reports.document("count", each) for each in found]
    files = [f"NT={folder / 'seed0.nc'}", f"NT={folder / 'seed1.nc'}"]
    four = json.loads(call("table", "4", *files, "--json").stdout)["rows"]
    values = [each["directions"]["t2i"]["weight_above"]["mean"] for each in documents[:2]]
    assert [row["label"] for row in four] == ["NT"] and four[0]["n"] == 2 and four[0]["convention"] == "standard"
    assert four[0]["values"]["t2i W^qv-"] == pytest.approx({"mean": np.mean(values), "std": np.std(values, ddof=1)})
    two = json.loads(call("table", "2", *files, f"T={folder / 'seed2.nc'}", "--json").stdout)["rows"]
    metrics = documents[2]["metrics"]
    assert [row["label"] for row in two] == ["T", "NT"]  # the order of the paper
    assert two[0]["values"]["rsum"] == {"mean": metrics["rsum"], "std": None}
    assert two[0]["values"]["i2t mAP@5"]["mean"] == pytest.approx(metrics["directions"]["i2t"]["mAP@5"] / 100)


def test_a_single_count_has_the_deviation_over_its_batches(counted):
    found, folder = counted
    (row,) = json.loads(call("table", "3", folder / "seed2.nc", "--json").stdout)["rows"]
    entry = reports.document("count", found[2])["directions"]["i2t"]["contributing_sum"]
    assert row["values"]["i2t C^B"] == pytest.approx(entry) and row["label"].endswith("seed2.nc")


def test_evaluations_with_distractors_fill_table_1_of_cross_example_softmax(tmp_path):
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(120, 8, generator=generator)
    embeddings = Embeddings(image, image + torch.randn(120, 8, generator=generator), directions=("t2i", "i2t"))
    found = measures.evaluate(embeddings, ks=(1, 5, 10, 100), distractors=Embeddings(-image, -image))
    table = tables.paper_table("cross_example", [found], labels=["ours"])
    for condition, start in (("without", ""), ("with", "+ distractors ")):
        right = found["R@10"].sel(distractors=condition, direction="t2i").item()
        assert cell(table, "ours", f"{start}R@10") == right
    assert cell(table, "ours", "PR-AUC") == found["PR-AUC"].sel(distractors="without").item()


def test_labelled_samples_have_one_direction_for_table_iii():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(8).repeat_interleave(5)
    rows = torch.eye(8)[labels] + 0.4 * torch.randn(40, 8, generator=generator)
    found = measures.evaluate(Embeddings.labelled(rows, labels))
    table = tables.paper_table("III", [found], labels=["mine"])
    assert cell(table, "mine", "R@1") == found["R@1"].item() and cell(table, "mine", "NMI") == found["NMI"].item()


def test_published_rows_stand_below_ours_of_the_same_loss():
    table = tables.paper_table("1", [runs({"smoothap": [40.0], "triplet": [30.0]})], published=True)
    said = list(zip(table["source"].values, table["label"].values, strict=True))
    assert said[0] == ("runs", "triplet") and said[1] == ("published", "1.1 VSE++, Triplet")
    assert said.index(("runs", "smoothap")) == said.index(("published", "1.4 VSE++, SmoothAP")) - 1


def test_corruptions_make_rows_and_settings_columns():
    kinds = ["cutout"] * 4 + ["jigsaw"] * 4
    data = runs({"Regular Softmax": [1.0, 2.0], "mine": [3.0, 5.0]})
    data = xr.concat([data, data + 10], "run").drop_vars(["rsum", "direction"]).isel(direction=0)
    data = data.assign_coords(corruption=("run", kinds))
    table = tables.paper_table("IV", [data], published=True)
    assert cell(table.isel(row=table["source"].values == "runs"), "jigsaw", "mine") == 14
    assert table["column"].values.tolist()[-1] == "mine"
    assert "'corruption'" in str(pytest.raises(InputError, tables.paper_table, "IV", [data.drop_vars("corruption")]))


def test_kept_runs_fill_their_tables():
    """n of every row, and no table without its columns."""
    folder = ROOT / "analysis" / "runs"
    expected = {
        "towers": {"1": {1, 3}, "2": {1, 3}, "3": {1, 3}, "4": {3}, "5": {3}},
        "proxies": {"III": {5}, "IV": {8}, "ablations": {8, 20}},
        "cross_example": {"cross_example": {5}},
    }
    for name, numbers in expected.items():
        data = results.open(folder / f"{name}.nc")
        for table, number in numbers.items():
            made = tables.paper_table(table, [data])
            assert set(made["number"].values.tolist()) == number, (name, table)
            assert np.isfinite(made["mean"].values).mean() > 0.9
    three = tables.paper_table("3", [results.open(folder / "towers.nc")])
    assert set(three["counted"].values.tolist()) == {"standard", "ecir2022"}


def with_proxies(seed, classes=4):
    """16 samples of 4 classes and their proxies."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(4)
    proxies = 2 * torch.randn(classes, 5, generator=generator)
    return Embeddings.labelled(proxies[labels] + torch.randn(16, 5, generator=generator), labels, proxies)


def test_table_iii_of_samples_with_proxies_has_recall_among_samples_and_their_distance(tmp_path):
    """From an evaluation, from a run over checkpoints, and from dtp; never the accuracy of the proxies."""
    sets = [with_proxies(seed) for seed in range(2)]
    files = {name: tmp_path / f"{name}.nc" for name in ("evaluated", "run", "dtp")}
    evaluated = measures.evaluate(sets[1], loss="warped_softmax")
    results.save(evaluated, files["evaluated"])
    results.save(measures.run(sets, "warped_softmax", batch_size="all"), files["run"])
    results.save(measures.dtp({"warp": sets, "other": sets[::-1]}), files["dtp"])
    among, accuracy = (evaluated["R@1"].sel(direction=side).item() for side in ("s2s", "s2p"))
    assert among != accuracy
    away = evaluated["AvgDTP"].item()
    wanted = {
        "evaluated": {"warp": {"R@1": among, "NMI": evaluated["NMI"].item(), "AvgDTP": away}},
        "run": {"warp": {"R@1": among, "AvgDTP": away}},
        "dtp": {
            "warp, warp": {"AvgDTP": away},
            "warp, other": {"AvgDTP": measures.evaluate(sets[0])["AvgDTP"].item()},
        },
    }
    for name, rows in wanted.items():
        found = json.loads(call("table", "III", f"warp={files[name]}", "--json").stdout)
        for row in found["rows"]:
            assert {key: each["mean"] for key, each in row["values"].items()} == pytest.approx(rows[row["label"]])
        assert len(found["rows"]) == len(rows)
    told = {name: " ".join(call("table", "III", path).stdout.split()) for name, path in files.items()}
    assert "no value of the runs for NMI: cocos evaluate FILE --out FOUND.nc has it" in told["run"]
    assert "no value of the runs for R@1, NMI: cocos evaluate" in told["dtp"] and "no value" not in told["evaluated"]


def test_a_run_over_checkpoints_fills_the_tables_of_its_kind(tmp_path):
    sets = []
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        image = torch.randn(40, 8, generator=generator)
        sets.append(Embeddings(image, image + torch.randn(40, 8, generator=generator), directions=("i2t", "t2i")))
    results.save(measures.run(sets, "triplet", batch_size=20), tmp_path / "run.nc")
    last = measures.count(sets[1], "triplet", batch_size=20, metrics=True)
    for name in ("1", "3"):
        (row,) = json.loads(call("table", name, tmp_path / "run.nc", "--json").stdout)["rows"]
        (right,) = json.loads(call_of(tmp_path, last, name).stdout)["rows"]
        for key, each in row["values"].items():
            assert each["mean"] == pytest.approx(right["values"][key]["mean"]), (name, key)
        assert "rsum" in row["values"] if name == "1" else "i2t C^0" in row["values"]


def call_of(folder, data, name):
    results.save(data, folder / "count.nc")
    return call("table", name, folder / "count.nc", "--json")


def test_a_result_stands_under_the_data_set_that_is_named_or_under_own_data(tmp_path):
    for seed in range(2):
        samples = with_proxies(seed)
        data = measures.evaluate(Embeddings.labelled(samples.query, samples.query_group), ks=(1, 2, 4))
        results.save(data, tmp_path / f"{seed}.nc")
    given = [f"CUB={tmp_path / '0.nc'}", f"ours={tmp_path / '1.nc'}"]
    (row,) = json.loads(call("table", "I", *given, "--json").stdout)["rows"]
    first, second = (results.open(tmp_path / f"{seed}.nc") for seed in range(2))
    assert row["label"] == "ours" and row["n"] == 1
    assert row["values"]["CUB R@2"]["mean"] == first["R@2"].item()
    assert row["values"]["own data R@2"]["mean"] == second["R@2"].item()
    assert not any(key.startswith(("CARS", "SOP")) for key in row["values"])


def test_ensembles_fill_the_tables_of_the_reality_check_with_intervals(tmp_path):
    sets = [with_proxies(seed) for seed in range(6)]
    sets = [Embeddings.labelled(each.query, each.query_group) for each in sets]
    alone = [measures.evaluate(each) for each in sets[:2]]
    whole = [measures.evaluate(sets[place], ensemble=sets[place + 1 : place + 2]) for place in (2, 4)]
    table = tables.paper_table("VI", [*alone, *whole], labels=["mine"] * 4)
    assert table["label"].values.tolist() == ["mine"] and table["number"].values.tolist() == [2]
    values = [each["mAP@R"].item() for each in alone]
    assert cell(table, "mine", "Complete MAP@R") == pytest.approx(np.mean(values))
    half = stats.t.ppf(0.975, 1) * np.std(values, ddof=1) / math.sqrt(2)
    assert cell(table, "mine", "Complete MAP@R", "std") == pytest.approx(half)
    joined = [each["mAP@R"].item() for each in whole]
    assert cell(table, "mine", "Ensemble MAP@R") == pytest.approx(np.mean(joined))
    members = [each["R@1_of_members"].mean().item() for each in whole]
    assert cell(table, "mine", "Aggregate P@1") == pytest.approx(np.mean(members))
    assert "half of its 95 % interval" in table.attrs["notes"]
    third = tables.paper_table("III", alone, labels=["mine"] * 2)
    assert cell(third, "mine", "NMI", "std") == pytest.approx(np.std([each["NMI"].item() for each in alone], ddof=1))
    assert cell(third, "mine", "NMI", "half") > 0


def test_verification_accuracy_fills_table_v():
    """A result of verification has its metrics along one dimension."""
    made = xr.Dataset(
        {"value": ("metric", [4.0, 97.5]), "deviation": ("metric", [0.5, 0.4])},
        {"metric": ["EER", "accuracy"]},
        {"measure": "verification"},
    )
    table = tables.paper_table("V", [made], labels=["LFW"], published=True)
    assert cell(table, "ours", "LFW") == 97.5 and cell(table, "ours", "LFW", "std") == 0.4
    assert math.isnan(cell(table, "ours", "CALFW"))
