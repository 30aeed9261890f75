"""Files: kind by content, safe content, one message for every unusable file."""

import argparse
import collections
import io
import json
import pickle
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import cocos
from cocos import InputError, UnsafeFile, checkpoints
from cocos.checkpoints.files import File, plain, state_dicts, weight_files

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


def tensors(arrays=ARRAYS):
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def npz(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def saved(content, start=0, stop=None, **options):
    stream = io.BytesIO()
    torch.save(content, stream, **options)
    return stream.getvalue()[start:stop]


def archive(*names):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as members:
        for name in names:
            members.writestr(name, b"\x80\x04}.")
    return stream.getvalue()


def quantised():
    with warnings.catch_warnings(action="ignore"):
        return torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.qint8)


def labels(*values):
    return saved({"embeddings": torch.eye(4), "labels": list(values) * 4})


EYE = {"query": np.eye(2), "candidate": np.eye(2)}
# Name -> content of the file, its kind, and whether it is refused as unsafe.
UNUSABLE = {
    "empty": (b"", "text", False),
    "text": (b"<html>404 Not Found</html>\n", "text", False),
    "caption table": (b"caption,image\na dog,1.jpg\n", "text", False),
    "noise": (bytes(range(256)), "unknown", False),
    "gzip": (b"\x1f\x8b\x08rest", "gzip", False),
    "hdf5": (b"\x89HDF\r\n\x1a\n", "netcdf", False),
    "zip": (archive("a.txt"), "torch", False),
    "cut zip": (saved(tensors(), 0, -60), "torch", False),
    "cut legacy": (saved(tensors(), 0, -60, _use_new_zipfile_serialization=False), "torch", False),
    "torchscript": (archive("m/data.pkl", "m/constants.pkl"), "torch", False),
    "torch.export": (archive("m/archive_format", "m/models/model.json"), "torch", False),
    "protocol 4": (archive("m/data.pkl", "m/version"), "torch", False),
    "plain pickle": (pickle.dumps({"a": np.ones(2)}), "pickle", True),
    "pickled class": (pickle.dumps(Settings()), "pickle", True),
    "header": ((24).to_bytes(8, "little") + b'{"a": {"dtype": "F32" }}', "safetensors", False),
    "state dict": (saved({"net.w": torch.ones(2)}), "torch", False),
    "training": (saved({"epoch": 3, "net": {}}), "torch", False),
    "list": (saved([1, 2]), "torch", False),
    "whole module": (saved(torch.nn.Linear(2, 2)), "torch", True),
    "unknown class": (saved({"a": Settings()}), "torch", True),
    "default dict": (saved({"a": collections.defaultdict(int)}), "torch", True),
    "objects": (saved({"query": np.array([{}, None], dtype=object)}), "torch", False),
    "records": (saved({"query": np.zeros(2, dtype="i4,f4")}), "torch", False),
    "ragged labels": (labels([1], [1, 2]), "torch", False),
    "complex labels": (labels(1j), "torch", False),
    "quantised": (saved({"query": quantised(), "candidate": torch.eye(4)}), "torch", False),
    "strange npz": (npz(x=np.ones(2)), "npz", False),
    "one side": (npz(query=np.eye(2)), "npz", False),
    "labels missing": (npz(embeddings=np.eye(2)), "npz", False),
    "object array": (npz(query=np.array([{}, None]), candidate=np.eye(2)), "npz", False),
    "text array": (npz(query=np.array(["a"]), candidate=np.eye(2)), "npz", False),
    "widths": (npz(query=np.ones((2, 2)), candidate=np.ones((2, 3))), "npz", False),
    "groups": (npz(query_group=np.arange(5), **EYE), "npz", False),
    "nan": (npz(query=np.array([[1.0], [np.nan]]), candidate=np.ones((2, 1))), "npz", False),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_file_has_one_message(tmp_path, name):
    content, kind, unsafe = UNUSABLE[name]
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    assert File(path).kind == kind
    with pytest.raises(InputError) as error:
        cocos.open(path).embed()
    message = str(error.value)
    assert str(path) in message and message.isprintable() and "weights_only=True" not in message
    assert isinstance(error.value, UnsafeFile) == unsafe
    try:
        json.dumps(checkpoints.inspect(path), allow_nan=False)
        assert not unsafe
    except InputError as error:
        assert str(error).isprintable() and isinstance(error, UnsafeFile) == unsafe


@pytest.mark.parametrize("place", range(0, 2000, 90))
def test_flipped_byte_is_an_input_error(tmp_path, place):
    np.savez_compressed(tmp_path / "a.npz", **ARRAYS)
    torch.save(tensors() | {"opt": argparse.Namespace(margin=0.2)}, tmp_path / "a.pt")
    for path in (tmp_path / "a.npz", tmp_path / "a.pt"):
        content = bytearray(path.read_bytes())
        content[place % len(content)] ^= 0xFF
        path.write_bytes(content)
        try:
            cocos.open(path).embed()
        except InputError as error:
            assert "\n" not in str(error) and str(path) in str(error)


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


def test_weight_files_prefer_safetensors(tmp_path):
    names = [f"model-{number}-of-2.safetensors" for number in (1, 2)]
    for name in (*names, "a/pytorch_model.bin", "pytorch_model.bin", "training_args.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(weight_files(File(tmp_path))) == ["a/pytorch_model.bin", *names]


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
    assert [set(tensors) for tensors in state_dicts(content)] == expected
