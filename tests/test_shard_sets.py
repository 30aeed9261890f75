"""A set of shards is one set: the same rows, draws and counts however it is cut, and an odd shard is named."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import cocos
from cocos import measures
from cocos.base.errors import InputError
from cocos.checkpoints import runs
from cocos.checkpoints.arrays import StoredArray
from cocos.checkpoints.formats import shards
from cocos.cli import app

ROWS, WIDTH = 60, 8


def sides(dtype=np.float16):
    """Two sides with groups."""
    generator = np.random.default_rng(2)
    query = generator.normal(size=(ROWS, WIDTH)).astype(dtype)
    candidate = (query + 0.5 * generator.normal(size=(ROWS, WIDTH))).astype(dtype)
    group = np.arange(ROWS) // 2
    return {"query": query, "candidate": candidate, "query_group": group, "candidate_group": group}


def bounds(cuts):
    ends = [0, *sorted(cuts), ROWS]
    return list(zip(ends, ends[1:], strict=False))


def write(folder, arrays, cuts, kind):
    """Write arrays as shards, cut at some rows."""
    folder.mkdir()
    for number, (start, stop) in enumerate(bounds(cuts)):
        part = {name: values[start:stop] for name, values in arrays.items()}
        if kind == "npy":
            for name, values in part.items():
                np.save(folder / f"{name}_{number:05d}.npy", values)
        elif kind == "npz":
            np.savez(folder / f"shard_{number:05d}.npz", **part)
        elif kind == "safetensors":
            tensors = {name: torch.as_tensor(values).clone() for name, values in part.items()}
            safetensors.torch.save_file(tensors, folder / f"part-{number + 1}-of-{len(cuts) + 1}.safetensors")
        else:
            arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            columns = {
                name: arrow.FixedSizeListArray.from_arrays(arrow.array(values.reshape(-1)), values.shape[1])
                if values.ndim == 2
                else arrow.array(values)
                for name, values in part.items()
            }
            parquet.write_table(arrow.table(columns), folder / f"{number:04d}.parquet")
    return folder


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors", "parquet"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.sets(st.integers(1, ROWS - 1), min_size=1, max_size=12))
def test_rows_draws_and_counts_are_those_of_one_file(tmp_path_factory, kind, cuts):
    folder, arrays = tmp_path_factory.mktemp("cut"), sides(np.float32 if kind == "parquet" else np.float16)
    np.savez(folder / "one.npz", **arrays)
    one = cocos.open(folder / "one.npz").embed()
    found = cocos.open(write(folder / "set", arrays, cuts, kind)).embed()
    for name in ("query", "candidate", "query_group", "candidate_group"):
        ours, theirs = getattr(found, name), getattr(one, name)
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    counted = [measures.count(each, batch_size=8, seed=3) for each in (found, one)]
    assert counted[0].identical(counted[1])


def test_rows_of_a_large_set_are_mapped_and_the_same(tmp_path, monkeypatch):
    held = cocos.open(write(tmp_path / "set", sides(), [7, 30], "npy")).embed()
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)
    mapped = cocos.open(tmp_path / "set").embed()
    assert torch.equal(held.query, mapped.query)
    assert measures.count(held, batch_size=8).identical(measures.count(mapped, batch_size=8))


def test_the_layout_of_clip_retrieval_is_images_and_texts(tmp_path):
    arrays = sides()
    for name, folder in (("query", "img_emb"), ("candidate", "text_emb")):
        (tmp_path / folder).mkdir()
        for number in range(11):  # 10 stands after 2
            np.save(tmp_path / folder / f"{folder}_{number}.npy", arrays[name][number * 5 : number * 5 + 5])
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "metadata_0.parquet").write_bytes(b"PAR1")
    found = cocos.open(tmp_path).embed()
    assert found.directions == ("i2t", "t2i")
    assert torch.equal(found.query, torch.as_tensor(arrays["query"][:55]))


def test_dtypes_stay_and_integers_are_refused(tmp_path):
    arrays = {name: torch.as_tensor(values) for name, values in sides(np.float32).items()}
    half = arrays | {name: arrays[name].bfloat16() for name in ("query", "candidate")}
    assert cocos.open(write(tmp_path / "bf16", half, [20], "safetensors")).embed().query.dtype == torch.bfloat16
    whole = {name: np.asarray(values) for name, values in arrays.items()} | {"query": np.ones((ROWS, WIDTH), np.int8)}
    with pytest.raises(InputError, match="query is int8, expected floats"):
        cocos.open(write(tmp_path / "bare", whole, [20], "npy"))


def test_a_labelled_set_in_shards(tmp_path):
    pytest.importorskip("pyarrow")
    arrays = sides(np.float32)
    found = cocos.open(
        write(tmp_path / "set", {"embedding": arrays["query"], "label": arrays["query_group"]}, [9], "parquet")
    ).embed()
    assert found.shared
    assert torch.equal(found.query, torch.as_tensor(arrays["query"]))


def remove(folder):
    (folder / "query_00001.npy").unlink()


def shorten(folder):
    file = folder / "candidate_00002.npy"
    file.write_bytes(file.read_bytes()[:-7])


def wider(folder):
    np.save(folder / "query_00001.npy", np.ones((23, WIDTH + 1), np.float16))


def other_dtype(folder):
    np.save(folder / "query_00001.npy", np.ones((23, WIDTH), np.float32))


def objects(folder):
    np.save(folder / "query_00001.npy", np.array([{}], dtype=object), allow_pickle=True)


def doubled(folder):
    (folder / "query_1.npy").write_bytes((folder / "query_00001.npy").read_bytes())


def one_side(folder):
    for each in folder.glob("candidate*"):
        each.unlink()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (remove, "query: number 2, expected 1"),
        (shorten, "candidate_00002.npy: cannot be read"),
        (wider, "query_00001.npy: query is float16 (23, 9), and float16 (7, 8) in query_00000.npy"),
        (other_dtype, "query_00001.npy: query is float32"),
        (objects, "query_00001.npy: cannot be read"),
        (doubled, "query: number 1, expected 2"),
        (one_side, "none of candidate"),
    ],
)
def test_a_shard_that_is_missing_or_odd_is_named_in_one_sentence(tmp_path, damage, said):
    folder = write(tmp_path / "set", sides(), [7, 30], "npy")
    damage(folder)
    for command in ("count", "inspect"):
        done = CliRunner().invoke(app, [command, str(folder)])
        assert done.exit_code == 2
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors", "parquet"])
def test_damaged_first_shard_is_named(tmp_path, kind):
    folder = write(tmp_path / "set", sides(np.float32), [7, 30], kind)
    first = sorted(folder.iterdir())[0]
    first.write_bytes(first.read_bytes()[:60])
    for command in ("count", "inspect"):
        done = CliRunner().invoke(app, [command, str(folder)])
        assert done.exit_code == 2 and first.name in done.stderr and done.stderr.count("\n") == 1


def test_inspect_reads_headers_alone(tmp_path, monkeypatch):
    folder = write(tmp_path / "set", sides(), [7, 30], "npy")
    monkeypatch.setattr(StoredArray, "take", None)
    done = CliRunner().invoke(app, ["inspect", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["format"] == "shards"
    assert "(60, 8) float16 in 3 shards" in found["contents"]["query"]


def test_checkpoints_of_a_training_are_no_shards(tmp_path):
    for step in (1, 2, 3):
        np.savez(tmp_path / f"step_{step}.npz", **sides())
    done = CliRunner().invoke(app, ["inspect", str(tmp_path), "--json"])
    assert json.loads(done.stdout)["format"] == "run" and runs.is_run(tmp_path)
    assert not runs.is_run(write(tmp_path / "set", sides(), [7, 30], "npz"))
