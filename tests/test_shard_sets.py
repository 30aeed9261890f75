"""A set of shards is one set: the same rows, draws and counts however it is cut, and an odd shard is named."""

import hashlib
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
from cocos.checkpoints.formats import shards
from cocos.checkpoints.shard_rows import ShardRows
from cocos.commands import app

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


def test_dtypes_stay_and_int8_has_a_scale(tmp_path):
    arrays = {name: torch.as_tensor(values) for name, values in sides(np.float32).items()}
    half = arrays | {name: arrays[name].bfloat16() for name in ("query", "candidate")}
    assert cocos.open(write(tmp_path / "bf16", half, [20], "safetensors")).embed().query.dtype == torch.bfloat16
    scale = {f"{name}_scale": arrays[name].abs().amax(1) / 127 for name in ("query", "candidate")}
    whole = {
        name: (arrays[name] / scale[f"{name}_scale"][:, None]).round().to(torch.int8) for name in ("query", "candidate")
    }
    small = {name: np.asarray(values) for name, values in (arrays | whole | scale).items()}
    found = cocos.open(write(tmp_path / "int8", small, [20, 41], "npy")).embed()
    assert torch.equal(found.query, whole["query"].float() * scale["query_scale"][:, None])
    del small["query_scale"]
    with pytest.raises(InputError, match="int8 without query_scale"):
        cocos.open(write(tmp_path / "bare", small, [20], "npy"))


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
        (remove, "number 1 is missing"),
        (shorten, "candidate_00002.npy is a damaged shard"),
        (wider, "query_00001.npy: query is float16 (23, 9), and float16 (7, 8) in query_00000.npy"),
        (other_dtype, "query_00001.npy: query is float32"),
        (objects, "query_00001.npy holds Python objects"),
        (doubled, "are both shard 1 of query"),
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


def test_inspect_reads_headers_alone(tmp_path, monkeypatch):
    folder = write(tmp_path / "set", sides(), [7, 30], "npy")
    monkeypatch.setattr(shards, "values", None)
    monkeypatch.setattr(ShardRows, "read", None)
    done = CliRunner().invoke(app, ["inspect", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["format"] == "shards"
    assert "(60, 8) float16 in 3 shards" in found["contents"]["query"]
    assert found["contents"]["rows"] == "60"
    assert found["contents"]["layout"] == "npy"
    assert found["contents"]["bytes"] == f"{sum(each.stat().st_size for each in folder.iterdir()):,} in 12 files"


def test_checkpoints_of_a_training_are_no_shards(tmp_path):
    for step in (1, 2, 3):
        np.savez(tmp_path / f"step_{step}.npz", **sides())
    done = CliRunner().invoke(app, ["inspect", str(tmp_path), "--json"])
    assert json.loads(done.stdout)["format"] == "run"


def listed(folder, text):
    (folder / "set.toml").write_text(text)
    return folder / "set.toml"


MANIFEST = """
directions = ["i2t", "t2i"]

[arrays.query]
files = ["images/*.npy"]
rows = 60

[arrays.candidate]
files = ["texts/b.safetensors", "texts/a.safetensors"]
name = "vector"

[arrays.query_group]
files = ["ids.npz"]
name = "image"

[arrays.candidate_group]
files = ["ids.npz"]
name = "text"

[arrays.candidate_text]
files = ["captions.npy"]
"""


def odd_names(folder):
    """The sides in files whose names say nothing."""
    arrays = sides()
    for name in ("images", "texts"):
        (folder / name).mkdir()
    for number in range(12):
        np.save(folder / "images" / f"x{number}.npy", arrays["query"][5 * number : 5 * number + 5])
    for name, some in (("b", slice(0, 20)), ("a", slice(20, 60))):
        tensors = {"vector": torch.as_tensor(arrays["candidate"][some]).clone(), "other": torch.ones(3)}
        safetensors.torch.save_file(tensors, folder / "texts" / f"{name}.safetensors")
    np.savez(folder / "ids.npz", image=arrays["query_group"], text=arrays["candidate_group"])
    np.save(folder / "captions.npy", np.array([f"caption {k}" for k in range(ROWS)]))
    return arrays


def test_a_manifest_names_shards_whose_names_say_nothing(tmp_path):
    arrays = odd_names(tmp_path)
    opened = cocos.open(listed(tmp_path, MANIFEST))
    found = opened.embed()
    assert (opened.format, found.directions) == ("manifest", ("i2t", "t2i"))
    for name in ("query", "candidate", "query_group", "candidate_group"):
        assert torch.equal(getattr(found, name), torch.as_tensor(arrays[name]))
    assert found.names[1][59] == "caption 59" and found.names[0] is None
    one = cocos.Embeddings(
        **{name: torch.as_tensor(values) for name, values in arrays.items()}, directions=("i2t", "t2i")
    )
    counted = [measures.count(each, batch_size=8).drop_attrs() for each in (found, one)]
    assert counted[0].identical(counted[1])
    done = CliRunner().invoke(app, ["inspect", str(tmp_path / "set.toml"), "--json"])
    told = json.loads(done.stdout)
    assert told["format"] == "manifest"
    assert told["contents"]["layout"] == "npy and npz and safetensors"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rows = 60", "rows = 61", "12 shards with 60 rows, expected 61"),
        ("images/*.npy", "images/*.npz", "there is no file 'images/*.npz'"),
        ('name = "vector"', 'name = "vectr"', "did you mean 'vector'?"),
        ("arrays.query]", "arrays.qery]", "did you mean 'query'?"),
        ("rows = 60", "row = 60", "did you mean 'rows'?"),
        ('files = ["ids.npz"]', "files = 3", "expected a list of names or patterns"),
        ("images/*.npy", "../*.npy", "there is no file"),
        ("[arrays.candidate_text]", "[arrays.candidate_text", "no TOML file"),
        ('"texts/a.safetensors"', '"texts/b.safetensors"', "is named twice"),
        ('files = ["captions.npy"]', 'files = ["captions.npy", "ids.npz"]', "unknown array"),
    ],
)
def test_a_manifest_that_is_wrong_is_one_sentence(tmp_path, old, new, said):
    odd_names(tmp_path)
    done = CliRunner().invoke(app, ["count", str(listed(tmp_path, MANIFEST.replace(old, new)))])
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr and done.stderr.count("\n") == 1


def inspected(path):
    return CliRunner().invoke(app, ["inspect", str(path), "--hashes", "--json"])


def test_hashes_of_shards_are_taken_when_asked_and_compared_with_the_manifest(tmp_path):
    odd_names(tmp_path)
    files = ["images/x7.npy", "texts/a.safetensors"]
    known = {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in files}
    lines = [f'"{name}" = "{each.upper()}"' for name, each in known.items()]
    path = listed(tmp_path, "\n".join([MANIFEST, "[sha256]", *lines]))
    found = json.loads(inspected(path).stdout)
    assert found["hashes"].items() >= known.items() and len(found["hashes"]) == 16
    own = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found["sha256"] == own == measures.count(cocos.open(path), batch_size=8).attrs["checkpoint_sha256"]
    rows = np.load(tmp_path / files[0])
    np.save(tmp_path / files[0], rows + 1)
    assert CliRunner().invoke(app, ["count", str(path), "--batch-size", "8"]).exit_code == 0  # nobody asked
    done = inspected(path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{files[0]} has changed: its sha256 is" in done.stderr and done.stderr.count("\n") == 1
    for line, said in (
        (f'"images/x77.npy" = "{own}"', "did you mean 'images/x7.npy'"),
        ('"ids.npz" = "1"', "64 digits"),
    ):
        done = inspected(listed(tmp_path, "\n".join([MANIFEST, "[sha256]", line])))
        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr and done.stderr.count("\n") == 1


def test_the_hash_of_a_folder_of_shards_changes_with_any_of_them(tmp_path):
    folder = write(tmp_path / "set", sides(), [7, 30], "npy")
    one = json.loads(inspected(folder).stdout)
    assert one["hashes"]["query_00001.npy"] == hashlib.sha256((folder / "query_00001.npy").read_bytes()).hexdigest()
    np.save(folder / "query_00001.npy", np.load(folder / "query_00001.npy")[::-1])
    other = json.loads(inspected(folder).stdout)
    assert other["sha256"] != one["sha256"] and len(other["sha256"]) == 64


JOINED = """
[arrays.query]
files = ["images/*.npy"]

[arrays.candidate]
files = ["texts/b.safetensors", "texts/a.safetensors"]
name = "vector"

[arrays.query_key]
files = ["ids.npz"]
name = "image"

[arrays.candidate_key]
files = ["keys.npy"]

[tables.query]
files = ["images.parquet"]
key = "id"
group = "image"

[tables.candidate]
files = ["captions-*.parquet"]
key = "id"
group = "image"
text = "caption"
"""


def keyed(folder, **changed):
    """The sides, whose groups and texts stand in parquet files in another order."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    arrays, order = odd_names(folder), np.random.default_rng(1).permutation(ROWS + 9)
    key = np.array([f"k{row}" for row in range(ROWS + 9)])
    np.save(folder / "keys.npy", key[:ROWS])
    group = np.concatenate([arrays["candidate_group"], np.arange(9)])
    columns = {"id": key, "image": group, "caption": np.array([f"caption {row}" for row in range(ROWS + 9)])} | changed
    table = arrow.table({name: arrow.array(values[order]) for name, values in columns.items()})
    for number, some in enumerate((table.slice(0, 20), table.slice(20))):
        parquet.write_table(some, folder / f"captions-{number}.parquet")
    image = np.unique(arrays["query_group"])[::-1]
    parquet.write_table(arrow.table({"id": image, "image": image}), folder / "images.parquet")
    return arrays


def test_groups_and_texts_are_found_by_a_key_in_tables(tmp_path, monkeypatch):
    arrays = keyed(tmp_path)
    opened = cocos.open(listed(tmp_path, JOINED))
    found = opened.embed()
    for name in ("query", "candidate", "query_group", "candidate_group"):
        assert torch.equal(getattr(found, name), torch.as_tensor(arrays[name]))
    assert found.names == (None, tuple(f"caption {row}" for row in range(ROWS)))
    assert [each(7) for each in opened.items().texts("q2c")] == ["row 7", "caption 7"]
    expected = measures.count(found, batch_size=8)
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)  # read batch by batch
    counted = measures.count(cocos.open(tmp_path / "set.toml"), batch_size=8)
    for name in ("query_index", "query_group", "contributing"):
        assert np.array_equal(counted[name], expected[name], equal_nan=True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('key = "id"\ngroup = "image"\ntext', 'key = "di"\ngroup = "image"\ntext', "did you mean 'id'?"),
        ('text = "caption"', 'text = "captions"', "did you mean 'caption'?"),
        ('text = "caption"', "text = 3", "expected the name of a column"),
        ('text = "caption"', 'names = "caption"', "unknown field 'names'"),
        ("[tables.candidate]", "[tables.candidates]", "did you mean 'candidate'?"),
        ("[arrays.candidate_key]", "[arrays.candidate_text]", "the rows have no keys; add [arrays.candidate_key]"),
        ('key = "id"\ngroup = "image"\ntext', 'key = "image"\ngroup = "image"\ntext', "rows; keep one of them"),
        ('files = ["keys.npy"]', 'files = ["ids.npz"]\nname = "text"', "row 0 has the key"),
    ],
)
def test_tables_that_cannot_be_joined_are_one_sentence(tmp_path, old, new, said):
    keyed(tmp_path)
    done = CliRunner().invoke(app, ["count", str(listed(tmp_path, JOINED.replace(old, new)))])
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr and done.stderr.count("\n") == 1
