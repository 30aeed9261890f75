"""A set on a disk is read for its batches alone."""

import json
from itertools import pairwise

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import cocos
from cocos import measures, results
from cocos.base.errors import InputError
from cocos.checkpoints.formats import shards
from cocos.checkpoints.formats.shards import ShardRows
from cocos.cli import app
from cocos.measures.shared import prepared, retrieval

ROWS, WIDTH = 500, 8
# What two sets differ in that have the same rows.
OF_A_FILE = ("checkpoint_path", "checkpoint_format", "checkpoint_sha256", "notes", "health")


def sides(dtype=np.float16):
    """Two sides, row i of which belong together."""
    generator = np.random.default_rng(4)
    query = generator.normal(size=(ROWS, WIDTH)).astype(dtype)
    return {"query": query, "candidate": (query + generator.normal(size=query.shape) / 2).astype(dtype)}


def write(folder, arrays, cuts, kind="npy"):
    """Write arrays as shards, cut at some rows."""
    folder.mkdir()
    rows = len(next(iter(arrays.values())))
    for number, (start, stop) in enumerate(pairwise([0, *sorted(cuts), rows])):
        part = {name: values[start:stop] for name, values in arrays.items()}
        if kind == "npy":
            for name, values in part.items():
                np.save(folder / f"{name}_{number}.npy", values)
        elif kind == "safetensors":
            tensors = {name: torch.as_tensor(values).clone() for name, values in part.items()}
            safetensors.torch.save_file(tensors, folder / f"{number:04d}.safetensors")
        elif kind == "parquet":
            arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            columns = {
                name: arrow.array(values)
                if values.ndim == 1
                else arrow.FixedSizeListArray.from_arrays(arrow.array(values.reshape(-1)), values.shape[1])
                for name, values in part.items()
            }
            parquet.write_table(arrow.table(columns), folder / f"{number:04d}.parquet", row_group_size=23)
        else:
            np.savez(folder / f"{number:04d}.npz", **part)
    return folder


def single(folder, arrays):
    np.savez(folder / "one.npz", **arrays)
    return cocos.open(folder / "one.npz")


def counted(checkpoint, **options):
    return measures.count(checkpoint, **{"batch_size": 16, "seed": 3} | options)


def alike(one, other):
    """Whether two results have the same bits, wherever their rows came from."""
    drop = [{name: value for name, value in each.attrs.items() if name not in OF_A_FILE} for each in (one, other)]
    return one.drop_attrs().identical(other.drop_attrs()) and str(drop[0]) == str(drop[1])


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors", "parquet"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cuts=st.sets(st.integers(1, ROWS - 1), min_size=1, max_size=9),
    index=st.sets(st.integers(0, ROWS - 1), min_size=1, max_size=80),
)
def test_rows_are_read_by_their_numbers_from_every_kind_of_shard(tmp_path_factory, kind, cuts, index):
    folder, arrays = tmp_path_factory.mktemp("rows"), sides()
    stored = cocos.open(write(folder / "set", arrays, cuts, kind)).stored
    rows = torch.tensor(sorted(index))
    assert torch.equal(stored.candidate.read(rows), torch.as_tensor(arrays["candidate"])[rows])


def test_big_endian_rows_are_read_as_they_are_meant(tmp_path):
    arrays = {name: values.astype(">f4") for name, values in sides().items()}
    rows = torch.tensor([3, 4, 5, 90, 499])
    found = cocos.open(write(tmp_path / "set", arrays, [77])).stored.query.read(rows)
    assert torch.equal(found, torch.as_tensor(arrays["query"].astype("<f4"))[rows])


@pytest.mark.parametrize("loss", ["ntxent", "triplet", "multi_similarity", "circle"])
@pytest.mark.parametrize("batches", [None, 40])
def test_the_cut_into_shards_and_the_disk_change_no_bit(tmp_path, monkeypatch, loss, batches):
    arrays, options = sides(), {"loss": loss, "batches": batches}
    held = counted(single(tmp_path, arrays), **options)
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)  # on the disk, since it is large
    every = [
        write(tmp_path / "two", arrays, [123]),
        write(tmp_path / "many", arrays, range(9, ROWS, 9), "safetensors"),
        write(tmp_path / "groups", arrays, [33, 99], "parquet"),
    ]
    for folder in every:
        assert alike(counted(cocos.open(folder), **options), held)


def groups():
    generator = np.random.default_rng(6)
    query = generator.normal(size=(120, WIDTH)).astype(np.float32)
    group = np.repeat(np.arange(120), 3)
    candidate = (query[group] + generator.normal(size=(360, WIDTH)) / 2).astype(np.float32)
    return {"query": query, "candidate": candidate, "query_group": 5 * np.arange(120), "candidate_group": 5 * group}


def write_sides(folder, arrays, shards_of=4):
    """Write arrays whose sides are not equally long."""
    folder.mkdir()
    for name, values in arrays.items():
        for number, some in enumerate(np.array_split(values, shards_of)):
            np.save(folder / f"{name}_{number}.npy", some)
    return folder


@pytest.mark.parametrize("options", [{"loss": "ntxent"}, {"loss": "smoothap", "sample": "groups"}])
def test_groups_on_a_disk_are_those_in_memory(tmp_path, monkeypatch, options):
    arrays = groups()
    held, folder = single(tmp_path, arrays), write_sides(tmp_path / "set", arrays)
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)
    expected, found = (counted(each, **options) for each in (held, cocos.open(folder)))
    for name in ("query_index", "query_group", "contributing", "relative"):
        assert np.array_equal(found[name], expected[name], equal_nan=True), name
    for name in set(found.data_vars) - {"pull"}:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-12)


def test_labelled_rows_and_logq_on_a_disk_are_those_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)
    generator = np.random.default_rng(7)
    labelled = {"embeddings": sides(np.float32)["query"], "labels": np.arange(ROWS) % 60}
    logq = sides(np.float32) | {"logq": np.log(generator.uniform(0.001, 0.1, ROWS)).astype(np.float32)}
    for name, arrays, loss in (("a", labelled, "multi_similarity"), ("b", logq, "logq_softmax")):
        (tmp_path / name).mkdir()
        held, folder = single(tmp_path / name, arrays), write(tmp_path / name / "set", arrays, [60, 400])
        expected, found = (counted(each, loss=loss, batch_size=40) for each in (held, cocos.open(folder)))
        assert found["contributing"].equals(expected["contributing"])
        assert found["query_index"].equals(expected["query_index"])


OF_BATCHES = {
    "count of two losses": lambda rows: measures.count(rows, ["ntxent", "triplet"], batch_size=16, batches=5)[
        "Triplet(margin=0.2)"
    ],
    "replay": lambda rows: measures.replay(rows, batch_size=16, batches=5),
    "temperature": lambda rows: measures.temperature(rows, batch_sizes=[16, 32]),
    "verify": lambda rows: measures.verify("ntxent", rows, batch_size=16, batches=2),
    "contributors": lambda rows: measures.contributors(rows, row=207, direction="c2q", batch_size=16),
    "weight_map": lambda rows: measures.weight_map(rows, direction="c2q", batch_size=16),
    "decomposition": lambda rows: measures.decomposition(rows, batch_size=16, batches=5),
}


@pytest.mark.parametrize("name", OF_BATCHES)
@pytest.mark.parametrize(("module", "limit"), [(shards, "MIN_MAPPED"), (prepared, "MIN_DRAWN")])
def test_a_question_of_batches_reads_their_rows_alone(tmp_path, monkeypatch, name, module, limit):
    if limit == "MIN_DRAWN" and name in {"temperature", "contributors", "weight_map"}:
        pytest.skip("asks for no number of batches, so that a set in memory is read whole")
    arrays = groups()
    held, folder = single(tmp_path, arrays), write_sides(tmp_path / "set", arrays)
    monkeypatch.setattr(module, limit, 1)
    monkeypatch.setattr(ShardRows, "read_all", lambda *_: pytest.fail("all rows were read"))
    expected, found = (OF_BATCHES[name](each) for each in (held, cocos.open(folder)))
    for key in expected.variables:
        one, other = expected[key].values, found[key].values
        if one.dtype.kind == "f":
            np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12, err_msg=key)
        else:
            assert np.array_equal(other, one), key


SETS = {
    "pairs": (sides, lambda folder, arrays: write(folder, arrays, [123, 300])),
    "groups": (groups, write_sides),
    "labelled": (
        lambda: {"embeddings": sides(np.float32)["query"], "labels": np.arange(ROWS) % 60},
        lambda folder, arrays: write(folder, arrays, [123, 300]),
    ),
}


@pytest.mark.parametrize("name", ["replay", "solve", "temperature"])
def test_few_batches_are_weighed_where_no_number_is_given(tmp_path, monkeypatch, name):
    folder = write(tmp_path / "set", sides(np.float32), [123])
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)
    monkeypatch.setattr(ShardRows, "read_all", lambda *_: pytest.fail("all rows were read"))
    monkeypatch.setattr(prepared, "FEW_QUERIES", 48)
    ask = {
        "replay": lambda more: measures.replay(cocos.open(folder), batch_size=16, **more),
        "solve": lambda more: measures.solve(cocos.open(folder), effective=4, batch_size=16, **more),
        "temperature": lambda more: measures.temperature(cocos.open(folder), batch_sizes=[16], **more),
    }[name]
    found, expected = ask({}), ask({"batches": 3})
    assert found.drop_attrs().identical(expected.drop_attrs())
    assert "3 of 31 batches were read; --batches for another number" in found.attrs["notes"]
    assert "batches were read" not in expected.attrs["notes"]


@pytest.mark.parametrize("name", SETS)
def test_an_audit_of_batches_reads_their_rows_alone(tmp_path, monkeypatch, name):
    made, writes = SETS[name]
    arrays = made()
    held, folder = single(tmp_path, arrays), writes(tmp_path / "set", arrays)
    options = {"batch_size": 16, "batches": 9, "rules": ["group"], "copies": "keep"}
    expected = measures.audit(held, **options)
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)
    monkeypatch.setattr(ShardRows, "read_all", lambda *_: pytest.fail("all rows were read at once"))
    found = measures.audit(cocos.open(folder), **options)
    for key in expected.variables:
        one, other = expected[key].values, found[key].values
        if one.dtype.kind == "f":
            np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12, err_msg=key)
        else:
            assert np.array_equal(other, one), key
    untried = json.loads(measures.audit(cocos.open(folder), batch_size=16, batches=9).attrs["untried"])
    assert untried["neighbours"].endswith("name it in the rules to read all")


def test_a_question_of_all_rows_says_their_size_and_refuses_what_does_not_fit(tmp_path, monkeypatch, caplog):
    folder = write(tmp_path / "set", sides(), [123])
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)
    measures.evaluate(cocos.open(folder))
    assert f"{folder}: all rows are read" in caplog.text
    monkeypatch.setattr("cocos.base.machine.memory", lambda: 4 * ROWS * WIDTH)
    for command, said in ((["evaluate"], "do not fit in memory"), (["whatif", "--batches", "9"], "rows of 9 batches")):
        done = CliRunner().invoke(app, [*command, str(folder)])
        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr and "0.0" in done.stderr and done.stderr.count("\n") == 1


def spoiled(arrays, row, value):
    arrays["candidate"][row] = value
    return arrays


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a: spoiled(a, 207, np.nan), "candidate_1.npy: row 207 of the set has NaN or infinity"),
        (lambda a: spoiled(a, 207, 0), "candidate_1.npy: row 207 of the set has only zeros"),
    ],
)
def test_a_row_that_cannot_be_scored_is_named_with_its_file(tmp_path, monkeypatch, change, said):
    folder = write(tmp_path / "set", change(sides()), [123, 300])
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)
    done = CliRunner().invoke(app, ["count", str(folder), "--batch-size", "16"])
    assert done.exit_code == 2
    assert said in done.stderr.splitlines()[-1]


def test_a_shard_that_shrinks_after_it_was_opened_is_named(tmp_path):
    folder = write(tmp_path / "set", sides(), [123, 300])
    opened = cocos.open(folder)
    file = folder / "query_2.npy"
    file.write_bytes(file.read_bytes()[:-400])
    with pytest.raises(InputError, match=r"query_2\.npy"):
        counted(opened)


def test_slices_on_disk_read_their_own_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)
    folder, read, rows = write(tmp_path / "set", sides(), [123, 300]), [], ShardRows.read
    monkeypatch.setattr(ShardRows, "read", lambda self, index: read.append(index) or rows(self, index))
    counts, number = [], []
    for batches in ("0:10", "10:20", "20:"):
        read.clear()
        counts.append(counted(cocos.open(folder), batches=batches))
        number.append(len(torch.cat(read).unique()))
    assert results.concat(counts).identical(counted(cocos.open(folder), batches="0:32"))
    assert max(number) <= 16 * (1 + 12)  # those of the first batch, which is checked, and of the slice


@pytest.mark.parametrize(("module", "limit"), [(shards, "MIN_MAPPED"), (prepared, "MIN_DRAWN")])
@pytest.mark.parametrize("loss", ["ntxent", ["ntxent", "triplet"]])
def test_concat_of_disk_slices_equals_count(module, limit, loss, tmp_path, monkeypatch):
    monkeypatch.setattr(module, limit, 1)
    folder = write(tmp_path / "set", sides(), [123, 300])
    *counts, whole = (
        measures.count(cocos.open(folder), loss, batch_size=16, batches=batches) for batches in ("0:2", "2:9", "0:9")
    )
    joined = results.concat(counts)
    by_loss = zip(joined.values(), whole.values(), strict=True) if isinstance(whole, dict) else [(joined, whole)]
    assert all(left.identical(right) for left, right in by_loss)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--metrics"], "read batch by batch, which does not go with metrics"),
        (["--loss", "cosent"], "cosent reads grades"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(tmp_path, monkeypatch, given, said):
    folder = write(tmp_path / "set", sides(), [123])
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)
    done = CliRunner().invoke(app, ["count", str(folder), "--batch-size", "16", *given])
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("queries", [30, ROWS])
def test_queries_that_are_drawn_are_ranked_on_a_disk_as_in_memory(tmp_path, monkeypatch, name, queries):
    made, writes = SETS[name]
    arrays = made()
    held, folder = single(tmp_path, arrays), writes(tmp_path / "set", arrays)
    every, expected = measures.evaluate(held), measures.evaluate(held, queries=queries)
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)
    monkeypatch.setattr(ShardRows, "read_all", lambda *_: pytest.fail("all rows were read at once"))
    monkeypatch.setattr(retrieval, "SECTION_BYTES", 37 * 4 * WIDTH)
    found = measures.evaluate(cocos.open(folder), queries=queries)
    assert found.data_vars.keys() == expected.data_vars.keys() == every.data_vars.keys() - {"PR-AUC", "NMI"}
    rows = held.embed()
    sizes = zip(found["direction"].values, (rows.query, rows.candidate), strict=False)
    asked = " and ".join(f"{min(queries, len(side)):,} of {len(side):,} {each}" for each, side in sizes)
    assert all(f"queries ({asked}) are ranked among all" in each.attrs["notes"] for each in (found, expected))
    for each in expected.data_vars:
        np.testing.assert_allclose(found[each], expected[each], rtol=1e-12, err_msg=each)
        if queries == ROWS:
            np.testing.assert_allclose(found[each], every[each], rtol=1e-12, err_msg=each)
    if queries < ROWS:  # a query has the rank that it has among all
        rows, best = every["query_index"].values[0], every["best_rank"].values[0]
        ranks = dict(zip(rows[np.isfinite(rows)], best[np.isfinite(rows)], strict=True))
        drawn = zip(found["query_index"].values[0], found["best_rank"].values[0], strict=True)
        assert all(ranks[row] == rank for row, rank in drawn if np.isfinite(rank))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--queries", "0"], "queries: 0, expected an integer of at least 1"),
        (["--queries", "9", "--folds", "2"], "queries 9: folds, distractors and ensembles rank all queries"),
    ],
)
def test_queries_that_cannot_be_asked_are_refused_in_one_sentence(tmp_path, monkeypatch, given, said):
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)
    done = CliRunner().invoke(app, ["evaluate", str(write(tmp_path / "set", sides(), [123])), *given])
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr and done.stderr.count("\n") == 1
