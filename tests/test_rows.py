"""Results become runs of a table, with the numbers of their JSON documents."""

import numpy as np
import pytest
import torch
import xarray as xr

import cocos
from cocos import measures, results
from cocos.base.errors import InputError


@pytest.fixture
def embeddings():
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(40, 8, generator=generator)
    return cocos.Embeddings(query, query + 0.7 * torch.randn(40, 8, generator=generator))


def other(embeddings):
    return cocos.Embeddings(embeddings.query, embeddings.query.roll(1, 0) + embeddings.candidate)


@pytest.fixture
def counted(embeddings):
    return measures.count(embeddings, "ntxent", batch_size=16, metrics=True)  # batches of 16, 16 and 8


@pytest.mark.parametrize(
    ("loss", "convention"), [("ntxent", "standard"), ("smoothap", "standard"), ("triplet", "ecir2022")]
)
def test_the_numbers_are_those_of_the_document(embeddings, loss, convention):
    data = measures.count(embeddings, loss, batch_size=16, convention=convention, metrics=True)
    one, document = results.row(data), measures.document("count", data)
    compared = 0
    for name, entries in document["directions"].items():
        for key, entry in entries.items():
            if isinstance(entry, dict):
                assert float(one[key].sel(direction=name)) == pytest.approx(entry["mean"], abs=1e-12), key
                compared += 1
        for key, value in document["metrics"]["directions"][name].items():
            assert float(one[key].sel(direction=name)) == value
    assert compared >= 20
    means = [document["directions"][name]["contributing_all"]["mean"] for name in document["directions"]]
    assert float(one["contributing"]) == pytest.approx(np.mean(means))
    assert float(one["rsum"]) == document["metrics"]["rsum"]
    assert one["contributing"].attrs["units"] == "candidates"


def test_a_row_names_its_loss_and_setting(counted):
    one = results.row(counted)
    assert str(one["family"].values) == "ntxent"
    assert str(one["config"].values) == "ntxent temperature=0.1 batch=16"
    assert int(one["batch_size"]) == 16 and "seed" not in one.coords  # the seed of the batches is none of the training


@pytest.mark.parametrize(
    ("split", "format", "names"),
    [
        ("train", "embeddings", {"contributing", "rsum"}),
        ("train", "cocos", {"contributing", "rsum_train", "r1_train"}),
        ("val", "cocos", {"contributing_val", "idle_val", "rsum_val"}),
        ("test", "cocos", {"contributing_test", "rsum", "r1"}),
    ],
)
def test_names_say_the_split_where_there_are_several(counted, split, format, names):
    one = results.row(counted.assign_attrs(split=split, checkpoint_format=format))
    assert names <= set(one.data_vars)
    assert ("rsum" in one) == ("rsum" in names)


def test_an_evaluation_is_its_mean_over_folds(embeddings):
    data = measures.evaluate(embeddings, folds=2)
    one = results.row(data)
    found = measures.document("evaluate", data)["directions"]["q2c"]["R@1"]["mean"]
    assert float(one["R@1"].sel(direction="q2c")) == found
    assert float(one["r1"]) == pytest.approx(float(data["R@1"].mean()))
    assert "family" not in one.coords and "queries" not in one
    assert "rsum_val" in results.row(data.assign_attrs(split="val"))


def test_a_run_has_steps(embeddings):
    data = measures.run([embeddings, other(embeddings)], steps=[10, 30], batch_size=16)
    one = results.row(data)
    assert one["step"].values.tolist() == [10, 30] and one["rsum"].dims == ("step",)
    np.testing.assert_allclose(one["contributing"], data["contributing"].mean("direction"))
    assert "row" not in one.dims and "query" not in one.dims


def test_a_store_has_its_last_record_of_each_step(tmp_path, embeddings):
    monitor = cocos.Monitor("ntxent", store=tmp_path / "run.jsonl")
    with monitor:
        for step, rows in ((1, 20), (1, 30), (2, 40)):
            monitor(embeddings.query[:rows], embeddings.candidate[:rows], step=step)
    one = results.row(results.open(tmp_path / "run.jsonl"))
    assert one["step"].values.tolist() == [1, 2]
    assert one["queries"].sel(step=1).values.tolist() == [30, 30]
    assert one["contributing"].dims == ("step",) and "rsum" not in one


def test_runs_become_a_table(tmp_path, embeddings, counted):
    several = measures.run([embeddings, other(embeddings)], steps=[10, 30], batch_size=16)
    rows = [results.row(each) for each in (counted, several, measures.evaluate(embeddings))]
    table = results.concat(rows, seed=[0, 1, 2], data="random")
    assert table["contributing"].dims == ("run", "step") and table["rsum"].dims == ("run", "step")
    assert np.isnan(table["contributing"].values).tolist() == [[True, False], [False, False], [True, True]]
    assert table["family"].values.tolist() == ["ntxent", "ntxent", ""]
    assert table["seed"].values.tolist() == [0, 1, 2] and set(table["data"].values) == {"random"}
    assert float(table["contributing"][0, 1]) == float(rows[0]["contributing"])
    assert table["contributing_mean"].dims == ("run", "direction")  # no run has it at steps
    path = results.save(table, tmp_path / "table.nc")
    assert results.open(path).identical(table)
    again = results.concat([table, results.row(counted)])
    assert again.sizes["run"] == 4 and np.isnan(again["seed"].values).tolist() == [False, False, False, True]


def test_wrong_rows_are_refused_in_a_sentence(counted):
    table = results.concat([results.row(counted)])
    with pytest.raises(InputError, match="a table of 1 runs already"):
        results.row(table)
    with pytest.raises(InputError, match="expected a Dataset of count, evaluate or run"):
        results.row(measures.weight_curve("triplet", points=5))
    with pytest.raises(InputError, match="a count of 2 losses, expected one"):
        results.row(xr.concat([counted, counted], "loss"))
    with pytest.raises(InputError, match="no runs"):
        results.concat([])
    with pytest.raises(InputError, match="seed has 3 values, expected one for each of 1 runs"):
        results.concat([table], seed=[1, 2, 3])


def test_a_measured_number_is_not_replaced(embeddings):
    runs = [results.row(measures.count(embeddings, "triplet", batch_size="all")) for _ in range(2)]
    for name in ("contributing", "direction", "run"):
        with pytest.raises(InputError, match=f"concat: {name} is a number or a dimension of the runs"):
            results.concat(runs, **{name: [0, 1]})


def test_recall_of_samples_with_class_proxies_is_that_among_samples():
    rows, classes = torch.eye(3).repeat_interleave(2, 0) + 0.1, torch.arange(6) // 2
    held = cocos.Embeddings.labelled(rows, classes, rows[::2].roll(1, 0), torch.arange(3))
    data = measures.evaluate(held)
    assert data["R@1"].squeeze().sel(direction=["s2s", "s2p"]).values.tolist() == [100, 0]
    assert results.row(data)["r1"] == 100
