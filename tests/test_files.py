"""Files: kind by content, safe content, one message for every unusable file."""

import argparse
import collections
import enum
import io
import json
import pickle
import struct
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import cocos
from cocos import InputError, UnsafeFile, checkpoints
from cocos.checkpoints import state_dicts
from cocos.checkpoints.files import File, plain

GENERATOR = np.random.default_rng(0)
ARRAYS = {
    "query": GENERATOR.normal(size=(6, 4)).astype(np.float32),
    "candidate": GENERATOR.normal(size=(12, 4)).astype(np.float32),
    "query_group": np.arange(6),
    "candidate_group": np.repeat(np.arange(6), 2),
}
W = torch.ones(2, 2)


class Settings:
    """An object of an unknown class."""


class Colour(enum.Enum):
    """An enumeration of a training script."""

    RED = 1


def tensors(arrays=ARRAYS):
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def npz(path, **arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    path.write_bytes(stream.getvalue())


def npy(path):
    stream = io.BytesIO()
    np.save(stream, ARRAYS["query"])
    path.write_bytes(stream.getvalue())


def archive(path, *names):
    with zipfile.ZipFile(path, "w") as members:
        for name in names:
            members.writestr(name, b"\x80\x04}.")


def quantised():
    with warnings.catch_warnings(action="ignore"):
        return torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.qint8)


def damaged(path, start, stop, **options):
    torch.save(tensors(), path, **options)
    path.write_bytes(path.read_bytes()[start:stop])


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def labels(*values):
    return lambda path: torch.save({"embeddings": torch.eye(4), "labels": list(values) * 4}, path)


SIDES = {"query": W, "candidate": W.clone()}
EYE = {"query": np.eye(2), "candidate": np.eye(2)}
BAD_HEADER = struct.pack("<Q", 24) + b'{"a": {"dtype": "F32" }}'
# Name -> how to write the file, its kind, and whether it is refused as unsafe.
UNUSABLE = {
    "empty": (lambda path: path.write_bytes(b""), "empty", False),
    "text": (lambda path: path.write_text("<html>404 Not Found</html>\n"), "text", False),
    "lfs": (lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\n"), "text", False),
    "caption table": (lambda path: path.write_text("caption,image\na dog,1.jpg\n"), "text", False),
    "noise": (lambda path: path.write_bytes(bytes(range(256))), "unknown", False),
    "gzip": (lambda path: path.write_bytes(b"\x1f\x8b\x08rest"), "gzip", False),
    "hdf5": (lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n"), "netcdf", False),
    "zip": (lambda path: archive(path, "a.txt"), "zip", False),
    "cut zip": (lambda path: damaged(path, 0, -60), "damaged zip", False),
    "cut legacy": (lambda p: damaged(p, 0, -60, _use_new_zipfile_serialization=False), "torch", False),
    "torchscript": (lambda path: archive(path, "m/data.pkl", "m/constants.pkl"), "torchscript", False),
    "torch.export": (lambda path: archive(path, "m/archive_format", "m/models/model.json"), "torchscript", False),
    "protocol 4": (lambda path: archive(path, "m/data.pkl", "m/version"), "torch", False),
    "plain pickle": (lambda path: path.write_bytes(pickle.dumps({"a": np.ones(2)})), "pickle", False),
    "old pickle": (lambda path: path.write_bytes(pickle.dumps(np.ones(2), 0)), "pickle", False),
    "pickled class": (lambda path: path.write_bytes(pickle.dumps(Settings())), "pickle", True),
    "npy": (npy, "npy", False),
    "header": (lambda path: path.write_bytes(BAD_HEADER), "safetensors", False),
    "deep metadata": (
        lambda path: save_file({"query": W, "candidate": W.clone()}, path, {"directions": "[" * 3000}),
        "safetensors",
        False,
    ),
    "state dict": (lambda path: torch.save({"net.w": torch.ones(2)}, path), "torch", False),
    "training": (lambda path: torch.save({"epoch": 3, "net": {}}, path), "torch", False),
    "list": (lambda path: torch.save([1, 2], path), "torch", False),
    "whole module": (lambda path: torch.save(torch.nn.Linear(2, 2), path), "torch", True),
    "unknown class": (lambda path: torch.save({"a": Settings()}, path), "torch", True),
    "enumeration": (lambda path: torch.save({"a": Colour.RED}, path), "torch", True),
    "default dict": (lambda path: torch.save({"a": collections.defaultdict(int)}, path), "torch", True),
    "objects": (lambda path: torch.save({"query": np.array([{}, None], dtype=object)}, path), "torch", False),
    "records": (lambda path: torch.save({"query": np.zeros(2, dtype="i4,f4")}, path), "torch", False),
    "deep labels": (labels(nested(40)), "torch", False),
    "ragged labels": (labels([1], [1, 2]), "torch", False),
    "sparse labels": (labels(torch.ones(2).to_sparse()), "torch", False),
    "complex labels": (labels(1j), "torch", False),
    "quantised": (lambda path: torch.save({"query": quantised(), "candidate": torch.eye(4)}, path), "torch", False),
    "empty npz": (npz, "zip", False),
    "strange npz": (lambda path: npz(path, x=np.ones(2)), "npz", False),
    "one side": (lambda path: npz(path, query=np.eye(2)), "npz", False),
    "labels missing": (lambda path: npz(path, embeddings=np.eye(2)), "npz", False),
    "object array": (lambda path: npz(path, query=np.array([{}, None]), candidate=np.eye(2)), "npz", False),
    "text array": (lambda path: npz(path, query=np.array(["a"]), candidate=np.eye(2)), "npz", False),
    "widths": (lambda path: npz(path, query=np.ones((2, 2)), candidate=np.ones((2, 3))), "npz", False),
    "groups": (lambda path: npz(path, query_group=np.arange(5), **EYE), "npz", False),
    "nan": (lambda path: npz(path, query=np.array([[1.0], [np.nan]]), candidate=np.ones((2, 1))), "npz", False),
    "directions": (lambda path: npz(path, directions=np.array([b"\xe9", b"a"]), **EYE), "npz", False),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_file_has_one_message(tmp_path, name):
    write, kind, unsafe = UNUSABLE[name]
    path = tmp_path / "model.pt"
    write(path)
    assert File(path).kind == kind
    with pytest.raises(InputError) as error:
        cocos.open(path).embed()
    message = str(error.value)
    assert str(path) in message and message.isprintable() and "weights_only=True" not in message
    assert isinstance(error.value, UnsafeFile) == unsafe


@pytest.mark.parametrize("name", UNUSABLE)
def test_inspect_describes_or_refuses(tmp_path, name):
    write, _, unsafe = UNUSABLE[name]
    write(path := tmp_path / "model.pt")
    try:
        json.dumps(checkpoints.inspect(path), allow_nan=False)
        assert not unsafe
    except InputError as error:
        assert str(error).isprintable() and isinstance(error, UnsafeFile) == unsafe


@pytest.mark.parametrize("place", range(0, 2000, 90))
def test_flipped_byte_is_an_input_error(tmp_path, place):
    path = tmp_path / "model.pt"
    torch.save(tensors() | {"opt": argparse.Namespace(margin=0.2)}, path)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 0xFF
    path.write_bytes(content)
    try:
        cocos.open(path).embed()
    except InputError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("place", range(40, 900, 40))
def test_damaged_compressed_npz_is_an_input_error(tmp_path, place):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **ARRAYS)
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)
    try:
        cocos.open(path).embed()
    except InputError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize("path", ["missing.pt", "x" * 300])
def test_absent_file_is_an_input_error(tmp_path, path):
    with pytest.raises(InputError, match=path):
        cocos.open(tmp_path / path)


@pytest.mark.parametrize("legacy", [False, True])
def test_values_of_training_scripts_are_read(tmp_path, legacy):
    extra = {"opt": argparse.Namespace(margin=0.2), "best": np.float64(1.5), "where": Path("a"), "mean": np.ones(2)}
    torch.save(tensors() | extra, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    content = File(tmp_path / "a.pt").content
    assert content["opt"].margin == 0.2 and content["best"] == 1.5 and str(content["where"]) == "a"
    assert content["mean"].tolist() == [1, 1] and torch.equal(content["query"], tensors()["query"])


@pytest.mark.parametrize(("dtype", "order"), [("f4", "C"), (">f8", "F"), ("f2", "C")])
def test_pickled_array_is_equal(tmp_path, dtype, order):
    query = np.asarray(ARRAYS["query"], dtype=dtype, order=order)
    torch.save({"query": query, "candidate": query}, tmp_path / "a.pt")
    read = cocos.open(tmp_path / "a.pt").embed().query
    np.testing.assert_array_equal(read, query)
    assert read.dtype == torch.from_numpy(query.astype(query.dtype.newbyteorder("="))).dtype


@pytest.mark.parametrize(
    ("value", "document"),
    [
        (torch.tensor(2.5), 2.5),
        (torch.tensor([1], dtype=torch.bfloat16), "(1,) bfloat16"),
        (np.float64(2), 2.0),
        (np.ones((2, 3)), "(2, 3) float64"),
        (float("nan"), "nan"),
        (10**40, str(10**40)),
        ({1: (True, None), "a": argparse.Namespace(b={2})}, {"1": [True, None], "a": {"b": [2]}}),
        (b"abc", "3 bytes"),
        (torch.float32, "torch.float32"),
    ],
    ids=str,
)
def test_plain_is_json(value, document):
    assert plain(value) == document and json.dumps(plain(value), allow_nan=False)


def test_folder_lists_and_hashes_its_files(tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("1_Pooling/config.json", "config.json", ".git/config"):
        (tmp_path / name).write_text('{"a": 1}')
    folder = File(tmp_path)
    assert folder.names == ("1_Pooling/config.json", "config.json") and folder.json("config.json") == {"a": 1}
    assert folder.kind == "folder" and folder.content is None and folder.json("b.json") is None
    (tmp_path / "README.md").write_text("prose")
    assert File(tmp_path).sha256 == folder.sha256
    (tmp_path / "tokenizer.json").write_text("{")
    assert File(tmp_path).sha256 != folder.sha256
    with pytest.raises(InputError, match="tokenizer.json"):
        folder.json("tokenizer.json")


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_split_weights_are_joined(tmp_path, suffix):
    stem = "model" if suffix == "safetensors" else "pytorch_model"
    save = save_file if suffix == "safetensors" else torch.save
    for number, name in enumerate("ab", 1):
        save({name: W * number}, tmp_path / f"{stem}-{number}-of-2.{suffix}")
    index = tmp_path / f"{stem}.{suffix}.index.json"
    places = {name: f"{stem}-{number}-of-2.{suffix}" for number, name in enumerate("ab", 1)}
    index.write_text(json.dumps({"weight_map": places}))
    assert {name: float(value[0, 0]) for name, value in state_dicts.weights(File(tmp_path)).items()} == {"a": 1, "b": 2}
    (tmp_path / places["b"]).unlink()
    with pytest.raises(InputError, match=places["b"]):
        state_dicts.weights(File(tmp_path))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"fc.weight": W}, [{"fc.weight"}]),
        ({"epoch": 1, "net": {"weight": W}, "optimizer": {"state": {0: {"exp": W}}}}, [{"weight"}]),
        ({"ema": {"module": {"x": W}}, "model": {"module.w": W}}, [{"w"}, {"x"}]),
        ({"model": [{"a": W}, {"b": W}]}, [{"a"}, {"b"}]),
        ({"cnn.module.a": W}, [{"cnn.a"}]),
        ({"_orig_mod.module.a": W}, [{"a"}]),
        ({"module.a": W, "a": W}, [{"module.a", "a"}]),
        ({"module.a": W, "b": W}, [{"a", "b"}]),
        ({"a": torch.tensor(1.0), "b": 3, 4: W}, []),
        (None, []),
    ],
)
def test_state_dicts_have_no_wrappers(content, expected):
    assert [set(tensors) for tensors in state_dicts.state_dicts(content)] == expected


def test_circular_content_is_searched_once():
    content = {f"k{number}": {} for number in range(64)}
    for value in content.values():
        value.update(content, w=W)
    assert len(state_dicts.state_dicts(content)) == 64
