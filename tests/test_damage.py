"""Odd and damaged files: one sentence each, before anything is built, and nothing in them is called."""

import argparse
import io
import json
import struct
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

import cocos
from cocos import InputError, checkpoints
from cocos.checkpoints.files import file, rehearsal, values
from cocos.cli import app

EXAMPLE = Path(cocos.__file__).parent / "example" / "emoji_ntxent.pt"
QUERY = torch.eye(4)
NATIVE = {
    "schema": 1,
    "encoder": {"name": "vsepp", "arguments": {"vocabulary": {}, "img_dim": 3, "num_layers": 1}},
    "loss": {"name": "ntxent", "parameters": {"temperature": 0.1}},
    "data": {"name": "precomp", "arguments": {}},
    "training": {},
}


def native(**parts):
    """A native record with parts of its own."""
    return {"cocos": NATIVE | parts.pop("cocos", {}), "state": {"w": torch.ones(2)}} | parts


def holding(path, payload):
    """A torch file whose pickle is any bytes, beside a storage 0 of 16 numbers."""
    torch.save({"a": torch.ones(16)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, payload if name.endswith("data.pkl") else content)


def npz(path, compressed=False, **arrays):
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    path.write_bytes(stream.getvalue())


def tensor(path, **more):
    torch.save({"query": QUERY, "candidate": QUERY} | more, path)


def two_towers(**options):
    image = {"fc.weight": torch.ones(2, 3), "fc.bias": torch.ones(2)}
    text = {"embed.weight": torch.ones(5, 2), "rnn.weight_ih_l0": torch.ones(6, 2)}
    return {"opt": argparse.Namespace(**options), "model": [image, text]}


def gadget():
    """A parameter whose `item` and `numel` are what the file says."""
    made = torch.nn.Parameter(torch.ones(1))
    made.item = made.numel = torch.device
    return made


class WithItems:
    """Is loaded as an OrderedDict whose `items` and `get` are what the file says."""

    def __init__(self, content):
        self.content = content

    def __reduce__(self):
        return OrderedDict, (), {"items": 5, "get": 5}, None, iter(self.content.items())


def quantised():
    with warnings.catch_warnings(action="ignore"):
        return torch.quantize_per_tensor(QUERY, 0.1, 0, torch.qint8)


def itself():
    made = {}
    made["self"] = made
    return made


def nested(depth, kind=list):
    made = kind()
    for _ in range(depth):
        made = [made] if kind is list else {"a": made}
    return made


ODD = {
    "ragged labels": lambda p: torch.save({"embeddings": QUERY, "labels": [[1], [1, 2], 3, 4]}, p),
    "deep labels": lambda p: torch.save({"embeddings": QUERY, "labels": nested(40)}, p),
    "sparse labels": lambda p: torch.save({"embeddings": QUERY, "labels": [torch.ones(2).to_sparse()] * 4}, p),
    "learned labels": lambda p: torch.save({"embeddings": QUERY, "labels": [torch.ones(1, requires_grad=True)] * 4}, p),
    "bfloat16 labels": lambda p: torch.save({"embeddings": QUERY, "labels": [torch.ones(1).bfloat16()] * 4}, p),
    "complex labels": lambda p: torch.save({"embeddings": QUERY, "labels": [1j] * 4}, p),
    "quantised": lambda p: tensor(p, query=quantised()),
    "meta": lambda p: torch.save({"embeddings": QUERY, "labels": torch.empty(4, device="meta", dtype=torch.int64)}, p),
    "deep directions": lambda p: tensor(p, directions="[" * 3000),
    "deep metadata": lambda p: safetensors.torch.save_file(
        {"query": QUERY, "candidate": QUERY.clone()}, p, {"directions": "[" * 3000}
    ),
    "directions in latin-1": lambda p: npz(
        p, query=np.eye(2), candidate=np.eye(2), directions=np.array([b"\xe9", b"a"])
    ),
    "groups in two codes": lambda p: npz(
        p, query=np.eye(1), candidate=np.eye(1), query_group=np.array(["é"]), candidate_group=np.array([b"\xe9"])
    ),
    "a weight is a number": lambda p: torch.save(native(state={"w": 5}), p),
    "a weight is text": lambda p: torch.save(native(state={"w": "x"}), p),
    "keys are no text": lambda p: torch.save(native(state={5: torch.ones(1), (1,): torch.ones(1)}), p),
    "schema is a tensor": lambda p: torch.save(native(cocos={"schema": torch.ones(2)}), p),
    "record calls": lambda p: torch.save({"cocos": WithItems(NATIVE), "state": {}}, p),
    "state calls": lambda p: torch.save(native(state=WithItems({"w": torch.ones(1)})), p),
    "a loss parameter is 5": lambda p: torch.save(native(cocos={"loss": {"name": "ntxent", "parameters": {5: 1}}}), p),
    "itself": lambda p: torch.save(native(cocos={"training": itself()}), p),
    "deep": lambda p: torch.save(native(cocos={"training": nested(200, dict)}), p),
    "deep pickle": lambda p: holding(p, b"\x80\x02" + b"]" * 1500 + b"a" * 1499 + b"."),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_an_odd_file_of_any_kind_is_one_sentence(tmp_path, name, options):
    path = tmp_path / "odd.pt"
    ODD[name](path)
    done = CliRunner().invoke(app, ["inspect", str(path), *options])
    assert done.exit_code == 2 and type(done.exception) is SystemExit
    assert done.stdout == "" and done.stderr.count("\n") == 1 and str(path) in done.stderr


def test_records_that_json_cannot_hold_are_plain_data(tmp_path):
    example = torch.load(EXAMPLE, weights_only=True)
    example["cocos"]["training"] |= {
        "loss": float("nan"), b"key": b"bytes", (1, 2): torch.ones(3), "rate": torch.tensor(0.5), "big": 10**400,
        "place": np.float64(3), "many": list(range(5)),
    }  # fmt: skip
    torch.save(example, tmp_path / "a.pt")
    done = CliRunner().invoke(app, ["inspect", str(tmp_path / "a.pt"), "--json"])
    told = json.loads(done.stdout)["contents"]["training"]
    assert told["loss"] == "nan" and told["b'key'"] == "b'bytes'" and told["rate"] == 0.5 and told["place"] == 3
    assert told["[1, 2]"] == "(3,) float32" and told["big"] == "a huge number" and told["many"] == [0, 1, 2, 3, 4]


def test_nothing_that_a_file_put_somewhere_is_called(tmp_path):
    content = two_towers(learned=gadget(), rate=torch.nn.Parameter(torch.ones(1)))
    torch.save(content | {"epoch": gadget()}, tmp_path / "a.pt")
    found = checkpoints.open(tmp_path / "a.pt")
    assert found.contents["opt"]["learned"] == found.contents["epoch"] == 1.0
    loaded = file.File(tmp_path / "a.pt").content
    assert type(loaded["epoch"]) is torch.Tensor and not vars(loaded["epoch"])


def test_a_sentence_has_one_line_whatever_the_keys_of_a_file_are(tmp_path):
    torch.save({"a\nb": torch.ones(2), "c\r\nd": 1}, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"keys a b, c d\)") as error:
        checkpoints.open(tmp_path / "a.pt")
    assert len(str(error.value).splitlines()) == 1


def test_versions_and_shared_tensors_of_a_state_dict_are_kept():
    state = torch.nn.BatchNorm1d(2).state_dict()
    found = values.bare({"a": state, "b": state, "c": [state["weight"]]})
    assert found["a"] is found["b"] and found["a"]._metadata[""] == {"version": 2}
    assert found["c"][0].data_ptr() == state["weight"].data_ptr()
    with pytest.raises(ValueError, match="an object of class Random"):
        values.bare([__import__("random").Random()])


SAVED = (
    b"\x80\x02}X\x05\x00\x00\x00queryctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpu%stQK\x00%s\x89ccollections\nOrderedDict\n)RtRs."
)
NUMBER = b"J" + struct.pack("<i", 2**30)


@pytest.mark.parametrize(
    ("numel", "view", "sentence"),
    [
        (NUMBER, b"K\x10\x85K\x01\x85", "storage 0 of 4294967296 bytes, of which the file has 64"),
        (b"K\x10", NUMBER + b"\x85K\x01\x85", r"a tensor of shape \(1073741824,\) in a storage of 64 bytes"),
        (b"K\x10", NUMBER + b"\x85K\x00\x85", "a tensor that repeats 64 bytes until they are 4294967296"),
        (b"K\x10", b"K\x10\x85J\xff\xff\xff\xff\x85", r"a tensor of shape \(16,\) and stride \(-1,\)"),
    ],
)
def test_the_sizes_of_a_tensor_are_those_of_its_file(tmp_path, numel, view, sentence):
    holding(tmp_path / "a.pt", SAVED % (numel, view))
    with pytest.raises(InputError, match=sentence):
        checkpoints.open(tmp_path / "a.pt")


def test_an_expanded_tensor_is_refused_and_a_small_one_is_read(tmp_path):
    torch.save({"query": torch.ones(1).expand(40_000_000, 64), "candidate": QUERY}, tmp_path / "a.pt")
    with pytest.raises(InputError, match="a tensor that repeats 4 bytes until they are 10240000000"):
        checkpoints.open(tmp_path / "a.pt")
    torch.save({"query": torch.ones(1).expand(4, 4), "candidate": QUERY}, tmp_path / "b.pt")
    assert checkpoints.open(tmp_path / "b.pt").embed(device="cpu").query.shape == (4, 4)


def test_a_header_that_claims_more_than_its_bytes_makes_nothing(tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (10**9, 64)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name in ("query", "candidate"):
            archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + stream.getvalue()[8:] + bytes(256))
    with pytest.raises(InputError, match=r"an array of shape \(1000000000, 64\) in \d+ bytes"):
        checkpoints.open(tmp_path / "a.npz")


def test_real_sizes_are_read(tmp_path):
    """Deflated embeddings of an ordinary ratio, and other files of that size."""
    rows = np.maximum(np.random.default_rng(0).normal(size=(3000, 64)), 0).astype(np.float32)
    labels = np.repeat(np.arange(300), 10)
    npz(tmp_path / "a.npz", compressed=True, embeddings=rows, labels=labels)
    torch.save({"embeddings": torch.from_numpy(rows), "labels": labels.tolist()}, tmp_path / "b.pt")
    torch.save(torch.load(tmp_path / "b.pt"), tmp_path / "c.pt", _use_new_zipfile_serialization=False)
    safetensors.torch.save_file(
        {"embeddings": torch.from_numpy(rows), "labels": torch.from_numpy(labels)}, tmp_path / "d"
    )
    for name in ("a.npz", "b.pt", "c.pt", "d"):
        found = checkpoints.open(tmp_path / name).embed(device="cpu")
        np.testing.assert_array_equal(found.query, rows)
        np.testing.assert_array_equal(found.query_group, labels)


def test_the_rehearsal_knows_every_operation_that_torch_reads():
    """Whatever torch would carry out must have been rehearsed."""
    from pickletools import opcodes

    from torch._weights_only_unpickler import Unpickler

    for each in opcodes:
        code = each.code.encode("latin-1")
        payload = b"\x80\x02" + code + bytes(20) + b"."
        try:
            Unpickler(io.BytesIO(payload)).load()
        except Exception as error:
            if "Unsupported operand" in str(error):
                continue
        with pytest.raises(Exception) as ours:  # noqa: B017, PT011
            rehearsal.rehearse(io.BytesIO(payload), None, lambda name: False, set(), iter(range(1)))
        assert not isinstance(ours.value, rehearsal.UnsafeOperation), each.name
