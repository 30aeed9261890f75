"""What a partial batch weighs: means over queries, totals and deviations over full batches; and the published way."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cocos import Embeddings, measures, reports, results
from cocos.cli import app
from cocos.counting import averages
from cocos.counting.averages import of_records
from cocos.embeddings.sampling import Batch
from cocos.reports import table
from cocos.reports.layouts import latex

OF_QUERIES = {
    "contributing_mean": ("contributing", "contributing"),
    "contributing_all": ("contributing", None),
    "weight_above": ("weight_above_per_query", None),
    "weight_below": ("weight_below_per_query", None),
    "weight_positive": ("weight_positive_per_query", None),
    "effective": ("effective_per_query", "effective_per_query"),
    "participation": ("participation_per_query", "effective_per_query"),
    "n90": ("n90_per_query", "effective_per_query"),
    "hardest_share": ("hardest_share_per_query", "effective_per_query"),
}
OF_BATCHES = {"contributing_sum": lambda counted: counted.sum(), "idle": lambda counted: (counted == 0).sum()}


def pairs(rows=133, width=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(rows, width, generator=generator)
    return Embeddings(query, query + torch.randn(rows, width, generator=generator))


def batchwise(data, direction, name):
    """Values of a statistic, one array a batch, without what fills up the shorter ones."""
    return [row[np.isfinite(row)] for row in data[name].sel(direction=direction).values]


@pytest.mark.parametrize(("rows", "size", "full"), [(133, 128, 1), (133, 32, 4), (128, 32, 4), (40, 128, 1)])
@pytest.mark.parametrize("name", ["ntxent", "triplet"])
def test_a_batch_weighs_what_it_holds(name, rows, size, full):
    data = measures.count(pairs(rows), name, batch_size=size, n90=True)
    summary = reports.document("count", data)
    assert summary["full_batches"] == full
    for direction, entry in summary["directions"].items():
        assert (entry["queries"], entry["batch_queries"]) == (rows, min(rows, size))
        assert entry["active_queries"] == int((data["contributing"].sel(direction=direction) > 0).sum())
        for key, (values, where) in OF_QUERIES.items():
            parts = batchwise(data, direction, values)
            if where:
                kept = [part > 0 for part in batchwise(data, direction, where)]
                parts = [part[mask] for part, mask in zip(parts, kept, strict=True)]
            assert entry[key]["mean"] == pytest.approx(np.concatenate(parts).mean()), key
            means = [part.mean() for part in parts[:full] if len(part)]
            assert entry[key]["std"] == (pytest.approx(np.std(means)) if len(means) > 1 else None), key
        for key, of in OF_BATCHES.items():
            values = [of(part) for part in batchwise(data, direction, "contributing")][:full]
            assert entry[key]["mean"] == pytest.approx(np.mean(values)), key
            assert entry[key]["std"] == (pytest.approx(np.std(values)) if full > 1 else None), key


def test_stacked_batches_equal_single_batches():
    """Records of several batches at once, of two lengths, and missing values."""
    generator = torch.Generator().manual_seed(0)
    sizes = {"q2c": [4, 4, 2], "c2q": [5, 3, 3]}
    names = ("contributing", "relative", "effective", "weight_above")
    single = {
        direction: [{name: torch.rand(size, generator=generator).round(decimals=1) for name in names} for size in each]
        for direction, each in sizes.items()
    }
    stacked = {
        direction: [
            {name: torch.cat([each[name] for each in part]) for name in names} for part in (parts[:2], parts[2:])
        ]
        for direction, parts in single.items()
    }
    one = results.labelled(of_records(single, [0, 0, 0], zero_when_idle=False), {})
    several = of_records(stacked, [0, 0, 0], zero_when_idle=False, sizes=sizes)
    assert results.labelled(several, {}).identical(one)
    for direction, parts in single.items():
        for place, part in enumerate(parts):
            values = one["contributing"].sel(direction=direction).values[place]
            np.testing.assert_array_equal(values[: len(part["contributing"])], part["contributing"])
            assert np.isnan(values[len(part["contributing"]) :]).all()


def test_the_published_way_is_over_batches():
    data = measures.count(pairs(), "ntxent", convention="ecir2022", n90=True)
    entry = reports.document("count", data)["directions"]["q2c"]
    batches = data.sel(direction="q2c")
    for key in (*OF_QUERIES, *OF_BATCHES):
        values = batches[key].values
        assert entry[key] == {"mean": pytest.approx(values.mean()), "std": pytest.approx(values.std())}
    assert entry["batch_queries"] == (128 + 5) / 2


def test_eq7_follows_the_same_rule():
    data = measures.count(pairs(40), "smoothap", sample="groups", batch_size=16)
    entry = reports.document("count", data)["directions"]["c2q"]
    parts = batchwise(data, "c2q", "eq7_per_query")
    counted = np.concatenate(parts)
    assert entry["eq7_mean"]["mean"] == pytest.approx(counted[counted > 0].mean())
    assert entry["eq7_sum"]["mean"] == pytest.approx(np.mean([part.sum() for part in parts[:2]]))
    assert entry["eq7_idle"]["mean"] == pytest.approx(np.mean([(part == 0).sum() for part in parts[:2]]))


def test_a_partial_batch_alone_is_no_deviation():
    """21 batches of 128 in which no share exceeds eps, and one of 32 in which 28 negatives of each query do."""
    set_ = Embeddings.labelled(torch.ones(2720, 8), torch.arange(2720) // 4)
    data = measures.count(set_, "supcon")
    summary = reports.document("count", data)
    entry = summary["directions"]["s2s"]
    assert entry["contributing_mean"] == {"mean": 28.0, "std": None}
    assert entry["idle"] == {"mean": 128.0, "std": 0.0}
    assert (summary["batches"], summary["full_batches"], entry["active_queries"]) == (22, 21, 32)
    text = str(table("count", data))
    assert "full batch of 128: queries without any (C^0)" in text
    assert "of the queries with any (C^A)  " in text and " 28.00\n" in text
    assert " 28.00 ±" not in text


def test_partial_batches_are_all_averaged():
    """Classes of three in batches of up to 16: none holds 16."""
    set_ = Embeddings.labelled(torch.randn(33, 8, generator=torch.Generator().manual_seed(1)), torch.arange(33) // 3)
    data = measures.count(set_, "ntxent", batch_size=16)
    sizes = data["queries"].values[0]
    assert sizes.tolist() == [15, 15, 3] or max(sizes) < 16
    entry = reports.document("count", data)["directions"]["s2s"]
    assert entry["contributing_sum"]["mean"] == pytest.approx(data["contributing_sum"].values.mean())
    assert entry["batch_queries"] == pytest.approx(sizes.mean())


def test_candidates_do_not_fill_batch():
    """16 images with five captions each; the last batch has 8 images, and 40 captions."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(40, 8, generator=generator)
    captions, groups = images.repeat_interleave(5, 0), torch.arange(40)
    set_ = Embeddings(images, captions + 0.5, groups, groups.repeat_interleave(5))
    data = measures.count(set_, "ntxent", sample="groups", batch_size=16)
    summary = reports.document("count", data)
    assert summary["full_batches"] == 2
    assert [entry["batch_queries"] for entry in summary["directions"].values()] == [16, 80]
    assert any("16 and 80" in row[0] for row in table("count", data).rows)


def test_batch_size_is_larger_side():
    """A candidate that several queries share stands in the batch once."""
    set_ = pairs(24)
    groups = torch.arange(24) // 2
    set_ = Embeddings(set_.query, set_.candidate[:12], groups, torch.arange(12))
    rows = torch.arange(24).split(10)
    batches = [Batch(part, groups[part].unique(), paired=False) for part in rows]
    data = measures.count(set_, "ntxent", batches=batches, sample="pairs")
    summary = reports.document("count", data)
    assert (data.attrs["batch_size"], summary["full_batches"]) == (10, 2)
    assert summary["directions"]["c2q"]["batch_queries"] == 5


def test_overflowing_pull_has_fraction():
    counted = {"contributing": np.array([[0.0, 1.0]]), "pull": np.array([[1.5e308, 0.5e308]])}
    assert averages.of_batches(counted, 1)["idle_pull"].tolist() == [0.75]


def test_decomposition_mean_is_over_queries():
    data = measures.decomposition(pairs(), "ntxent", batch_size=32)
    entry = reports.document("decomposition", data)["directions"]["q2c"]["cancellation"]
    assert entry["mean"] == pytest.approx(np.concatenate(batchwise(data, "q2c", "cancellation")).mean())


def test_one_batch_has_no_deviation(tmp_path):
    file = tmp_path / "one.npz"
    np.savez(file, query=np.eye(8, dtype=np.float32), candidate=np.eye(8, dtype=np.float32)[::-1].copy())
    runner = CliRunner()
    found = json.loads(runner.invoke(app, ["count", str(file), "--json", "-q"]).stdout)
    assert all(entry["contributing_all"]["std"] is None for entry in found["directions"].values())
    for options in ([], ["--format", "latex"]):
        shown = runner.invoke(app, ["count", str(file), "-q", *options]).stdout
        assert "±" not in shown and "\\pm" not in shown


def test_idle_count_differs_from_fraction():
    counted = measures.count(pairs(), "triplet")
    whole = counted["idle"].sum("batch") / counted["queries"].sum("batch")
    at_eps = measures.eps_curve(pairs(), "triplet", [0.01])
    np.testing.assert_allclose(at_eps["idle_fraction"][:, 0], whole)
    other = measures.temperature_curve(pairs(), "ntxent", [0.1])
    soft = measures.count(pairs(), "ntxent")
    np.testing.assert_allclose(other["idle_fraction"][:, 0], soft["idle"].sum("batch") / soft["queries"].sum("batch"))
    names = {}
    for data in (counted, at_eps, other, measures.lorenz(pairs(), "triplet")):
        for name, values in data.data_vars.items():
            said = (values.attrs["long_name"], values.attrs["units"])
            assert "queries without" not in said[0] or names.setdefault(name, said) == said, name
            assert name != "idle" or values.attrs["units"] == "queries"


def test_published_ntxent_column_averages_all_queries():
    rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    data = measures.count(Embeddings(rows, rows + 0.4 * rows.flip(0)), "ntxent", 0.05, batch_size=64)
    entry = reports.document("count", data)["directions"]["q2c"]
    every, active = (f"{entry[name]['mean']:.2f}" for name in ("contributing_all", "contributing_mean"))
    assert every != active
    assert f"${every}$" in latex(data, "x") and f"${active}$" not in latex(data, "x")


def test_any_statistics_become_arrays_and_labelled_variables():
    """No statistic of a count needs to be among them."""
    records = {"q2c": [{"lead": torch.tensor([1.0, 2.0, 3.0])}, {"lead": torch.tensor([4.0])}]}
    values = averages.arrays(records)
    assert np.array_equal(values["lead"], [[[1, 2, 3], [4, np.nan, np.nan]]], equal_nan=True)
    made = averages.variables(values, ["q2c"], {"lead": ("lead of the positive", "score")})
    assert made["lead"][0] == averages.QUERY_DIMS and made["lead"][2:] == ("lead of the positive", "score")
    assert [len(made[name][1]) for name in ("direction", "batch", "query")] == [1, 2, 3]
    assert averages.present(values).sum() == 4 and averages.known(values).keys() == {"lead"}
    effective = averages.of_batches({"effective_per_query": values["lead"]}, 2)
    assert effective["effective"].tolist() == [[2.0, 4.0]]
