"""Files: what is read, what is refused, and that nothing in a file is ever run."""

import argparse
import ast
import collections
import enum
import functools
import importlib
import io
import operator
import os
import pickle
import shlex
import struct
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import children
import cocos
from cocos import InputError, UnsafeFile, checkpoints

GENERATOR = np.random.default_rng(0)
ARRAYS = {
    "query": GENERATOR.normal(size=(6, 4)).astype(np.float32),
    "candidate": GENERATOR.normal(size=(12, 4)).astype(np.float32),
    "query_group": np.arange(6),
    "candidate_group": np.repeat(np.arange(6), 2),
}
LABELLED = {"embeddings": ARRAYS["candidate"], "labels": np.repeat(np.arange(6), 2)}


def tensors(arrays):
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def npz(path, arrays=ARRAYS, **more):
    """Write arrays as npz under a name of any suffix."""
    stream = io.BytesIO()
    np.savez(stream, **arrays, **more)
    path.write_bytes(stream.getvalue())
    return path


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "pt", "bin"])
def test_a_file_of_embeddings_is_recognised_by_its_content(tmp_path, suffix):
    path = tmp_path / f"embeddings.{suffix}"
    if suffix == "npz":
        npz(path)
    elif suffix == "safetensors":
        safetensors.torch.save_file(tensors(ARRAYS), path)
    else:
        torch.save(tensors(ARRAYS), path, _use_new_zipfile_serialization=suffix == "pt")
    opened = cocos.open(path)
    found = opened.embed(device="cpu")
    assert opened.format == "embeddings"
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(getattr(found, name), array)
    assert found.directions == ("q2c", "c2q")
    misnamed = path.rename(tmp_path / "other.xyz")
    assert checkpoints.open(misnamed).sha256 == opened.sha256


def test_labelled_sets_proxies_directions_and_text_ids(tmp_path):
    assert cocos.open(npz(tmp_path / "a.npz", LABELLED)).embed().directions == ("s2s",)
    proxies = cocos.open(npz(tmp_path / "b.npz", LABELLED, proxies=ARRAYS["query"])).embed()
    assert proxies.directions == ("s2p",)
    named = cocos.open(npz(tmp_path / "c.npz", directions=np.array(["t2v", "v2t"]))).embed()
    assert named.directions == ("t2v", "v2t")
    words = {"query_group": np.array(list("fabcde")), "candidate_group": np.array(list("aabbccddeeff"))}
    text = cocos.open(npz(tmp_path / "d.npz", ARRAYS | words)).embed()
    assert text.query_group.tolist() == [5, 0, 1, 2, 3, 4]
    one_to_one = {"query": ARRAYS["query"], "candidate": ARRAYS["query"]}
    assert cocos.open(npz(tmp_path / "e.npz", one_to_one)).embed().query_group.tolist() == list(range(6))


def test_a_group_of_unsigned_or_swapped_bytes_is_read(tmp_path):
    odd = ARRAYS | {"query_group": np.arange(6, dtype=np.uint16), "query": ARRAYS["query"].astype(">f4")}
    found = cocos.open(npz(tmp_path / "odd.npz", odd)).embed()
    np.testing.assert_array_equal(found.query, ARRAYS["query"])


class Bomb:
    """A pickle that makes a file when it is loaded the unsafe way."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


class Harmless:
    """An object of an unknown class."""


class Colour(enum.Enum):
    """An enumeration of a training script."""

    RED = 1


def in_torch_zip(path, payload):
    """A torch archive whose data.pkl is any pickle."""
    torch.save({"a": torch.ones(2)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, payload if name.endswith("data.pkl") else content)
    return path


def legacy(path, payload):
    """A torch file of the old container whose object is any pickle."""
    head = b"".join(pickle.dumps(part, protocol=2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    path.write_bytes(head + payload + pickle.dumps([], protocol=2))
    return path


BOMBS = {
    "pickle": lambda path, load: path.write_bytes(load) and path,
    "torch zip": in_torch_zip,
    "torch legacy": legacy,
}


@pytest.mark.parametrize("container", ["pickle", "torch zip", "torch legacy"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_a_command_is_refused_and_does_not_run(tmp_path, container, protocol):
    marker = tmp_path / "ran"
    path = BOMBS[container](tmp_path / "model.pt", pickle.dumps({"model": Bomb(marker)}, protocol=protocol))
    with pytest.raises(UnsafeFile, match=r"refused as unsafe: it would run \w+\.system when loaded"):
        checkpoints.open(path)
    with pytest.raises(UnsafeFile, match="refused as unsafe"):
        checkpoints.open(path, model=own_model)
    assert not marker.exists()


@pytest.mark.parametrize(
    "function",
    [
        *(eval, exec, __import__, getattr, pickle.loads, torch.load, np.fromfile, io.open, importlib.import_module),
        *(functools.partial, operator.attrgetter),
    ],
)
def test_other_calls_that_run_code_are_refused(tmp_path, function):
    class Call:
        def __reduce__(self):
            return function, ("1",)

    path = in_torch_zip(tmp_path / "model.pt", pickle.dumps(Call(), protocol=2))
    with pytest.raises(UnsafeFile):
        checkpoints.open(path, model=own_model).embed()


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("container", ["pickle", "torch zip", "torch legacy"])
def test_the_names_of_python_2_are_known(tmp_path, container, protocol):
    """Protocols up to 2 write `subprocess.Popen` as `commands.Popen`, and `eval` as `__builtin__.eval`."""

    class Start:
        def __reduce__(self):
            return subprocess.Popen, (["touch", str(tmp_path / "ran")],)

    path = BOMBS[container](tmp_path / "a.pt", pickle.dumps(Start(), protocol=protocol))
    with pytest.raises(UnsafeFile, match=r"subprocess\.Popen"):
        checkpoints.open(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_legacy_file_of_any_protocol_is_scanned(tmp_path, protocol):
    parts = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, Bomb(tmp_path / "ran"))
    path = tmp_path / "a.pt"
    path.write_bytes(b"".join(pickle.dumps(part, protocol=protocol) for part in parts))
    with pytest.raises(UnsafeFile):
        checkpoints.open(path)


@pytest.mark.parametrize("place", range(40, 900, 40))
def test_a_damaged_compressed_npz_gets_a_sentence(tmp_path, place):
    np.savez_compressed(tmp_path / "a.npz", **ARRAYS)
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[place % len(content)] ^= 0x5A
    (tmp_path / "a.npz").write_bytes(content)
    try:
        checkpoints.open(tmp_path / "a.npz").embed()
    except InputError as error:
        assert "\n" not in str(error)


def test_how_a_file_was_read_is_said(tmp_path):
    sides = {"query": ARRAYS["query"], "candidate": ARRAYS["query"]}
    opened = cocos.open(npz(tmp_path / "a.npz", sides, epoch=np.array(3)))
    assert [note.partition("a.npz")[2] for note in opened.notes] == [
        ": not used: epoch",
        " has no groups: row i of the queries matches row i of the candidates",
    ]


def test_memoised_names_are_found(tmp_path):
    """STACK_GLOBAL takes its names from the stack, which may have put them in a memo long before."""
    marker = str(tmp_path / "ran").encode()
    code = b"\x80\x04\x8c\x06system\x94\x8c\x05posix\x94\x8c\x03foo00h\x01h\x00\x93\x8c" + bytes([len(marker) + 6])
    code += b"touch " + marker + b"\x85R."
    path = tmp_path / "a.pkl"
    path.write_bytes(code)
    with pytest.raises(UnsafeFile, match=r"posix\.system"):
        checkpoints.open(path)


def whole_module(path):
    torch.save(torch.nn.Linear(2, 2), path)


def torchscript(path):
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("m/data.pkl", "m/constants.pkl", "m/code/__torch__.py"):
            archive.writestr(name, "")


def exported(path):
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("m/archive_format", "m/models/model.json"):
            archive.writestr(name, "pt2")


def truncated(path, source):
    path.write_bytes(source.read_bytes()[:-60])


def header(path, text):
    path.write_bytes(struct.pack("<Q", len(text)) + text)


UNUSABLE = {
    "empty": (lambda p: p.write_bytes(b""), "is empty (0 bytes)"),
    "text": (lambda p: p.write_text("<html>404 Not Found</html>\n"), "is a text file, not a checkpoint"),
    "lfs": (lambda p: p.write_text("version https://git-lfs.github.com/spec/v1\n"), "a Git LFS pointer?"),
    "noise": (lambda p: p.write_bytes(bytes(range(256))), "is no format that cocos knows"),
    "whole module": (whole_module, "is a whole pickled model (torch.nn.modules.linear.Linear)"),
    "torchscript": (torchscript, "is a TorchScript archive, a program; save tensors instead"),
    "torch.export": (exported, "is a torch.export program"),
    "plain pickle": (lambda p: p.write_bytes(pickle.dumps({"a": 1})), "is a plain Python pickle"),
    "npy": (
        lambda p: np.save(p.with_suffix(".npy"), ARRAYS["query"]) or p.with_suffix(".npy").rename(p),
        "is a single numpy array, of one side",
    ),
    "other zip": (
        lambda p: zipfile.ZipFile(p, "w").writestr("a.txt", "a"),
        "is a zip archive, but not of torch or numpy",
    ),
    "gzip": (lambda p: p.write_bytes(b"\x1f\x8b\x08rest"), "is compressed with gzip"),
    "hdf5": (lambda p: p.write_bytes(b"\x89HDF\r\n\x1a\n"), "is an HDF5 or netCDF file"),
    "bad safetensors": (lambda p: header(p, b'{"a": {"dtype": "F32"}}'), "is a damaged safetensors file"),
    "state dict": (
        lambda p: torch.save({"net.w": torch.ones(2)}, p),
        "is a bare state dict of 1 tensors (net)",
    ),
    "training checkpoint": (
        lambda p: torch.save({"epoch": 3, "net": {}}, p),
        "architecture that cocos does not know (keys",
    ),
    "list": (lambda p: torch.save([1, 2], p), "holds a list, not named tensors"),
    "unknown class": (
        lambda p: torch.save({"a": Harmless()}, p),
        "holds objects of class test_checkpoints.Harmless",
    ),
    "protocol 4": (
        lambda p: in_torch_zip(p, pickle.dumps({"a": 1}, protocol=4)),
        "has a pickle protocol that torch cannot read safely",
    ),
    "objects": (
        lambda p: torch.save({"query": np.array([{}, None], dtype=object)}, p),
        "holds an array of Python objects or records (dtype 'O8'), which cocos does not load",
    ),
    "records": (
        lambda p: torch.save({"query": np.zeros(2, dtype="i4,f4")}, p),
        "holds an array of Python objects or rec",
    ),
    "enumeration": (lambda p: torch.save({"a": Colour.RED}, p), "holds objects of class test_checkpoints.Colour"),
    "default dict": (
        lambda p: torch.save({"a": collections.defaultdict(int, a=1)}, p),
        "collections.defaultdict, whose code cocos does not run",
    ),
    "empty npz": (lambda p: npz(p, {}), "is a zip archive, but not of torch or numpy"),
    "strange npz": (
        lambda p: npz(p, {}, x=np.ones(2)),
        "(it holds x)",
    ),
    "half an npz": (lambda p: npz(p, {}, query=np.ones((2, 2))), "has no array 'candidate'"),
    "labels missing": (lambda p: npz(p, {}, embeddings=np.ones((2, 2))), "has no array 'labels'"),
    "object array": (
        lambda p: npz(p, {}, query=np.array([{}, None]), candidate=np.ones((2, 2))),
        "holds an array of Python objects",
    ),
    "text array": (
        lambda p: npz(p, {}, query=np.array(["a"]), candidate=np.ones((2, 2))),
        "query: dtype <U1, expected numbers",
    ),
    "widths": (
        lambda p: npz(p, {}, query=np.ones((2, 2)), candidate=np.ones((2, 3))),
        "query has width 2 and candidate has width 3",
    ),
    "groups": (
        lambda p: npz(p, ARRAYS | {"query_group": np.arange(5)}),
        "query_group: shape (5,), expected (6,)",
    ),
    "nan": (
        lambda p: npz(p, {}, query=np.array([[1.0], [np.nan]]), candidate=np.ones((2, 1))),
        "query: NaN or infinity in row 1 (of 2)",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_file_that_cannot_be_used_gets_one_sentence(tmp_path, name):
    write, sentence = UNUSABLE[name]
    path = tmp_path / "model.pt"
    write(path)
    with pytest.raises(InputError) as error:
        checkpoints.open(path).embed()
    text = str(error.value)
    assert sentence in text
    assert str(path) in text
    assert "\n" not in text and "\x1b" not in text and "weights_only" not in text
    assert isinstance(error.value, UnsafeFile) == (name in {"whole module", "unknown class", "enumeration"})


def test_missing_files_folders_and_truncated_archives(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        checkpoints.open(tmp_path / "nothing.pt")
    with pytest.raises(InputError, match="is a folder; name a checkpoint"):
        checkpoints.open(tmp_path)
    torch.save(tensors(ARRAYS), tmp_path / "whole.pt")
    npz(tmp_path / "whole.npz")
    for name in ("whole.pt", "whole.npz"):
        truncated(tmp_path / "cut.pt", tmp_path / name)
        with pytest.raises(InputError, match="is a truncated or damaged zip archive"):
            checkpoints.open(tmp_path / "cut.pt")
    torch.save(tensors(ARRAYS), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    truncated(tmp_path / "cut.pt", tmp_path / "old.pt")
    with pytest.raises(InputError, match="is a damaged torch file"):
        checkpoints.open(tmp_path / "cut.pt")


@pytest.mark.parametrize("place", range(0, 2000, 90))
def test_a_flipped_byte_never_gives_a_traceback(tmp_path, place):
    path = tmp_path / "model.pt"
    torch.save(tensors(ARRAYS) | {"opt": argparse.Namespace(margin=0.2)}, path)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 0xFF
    path.write_bytes(content)
    try:
        checkpoints.open(path).embed()
    except InputError as error:
        assert "\n" not in str(error)


def test_plain_values_of_training_scripts_are_read(tmp_path):
    extra = {
        "opt": argparse.Namespace(margin=0.2),
        "best": np.float64(1.5),
        "where": Path("a"),
        "mean": np.ones(2),
    }
    for zipped in (True, False):
        torch.save(tensors(ARRAYS) | extra, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
        assert len(checkpoints.open(tmp_path / "a.pt").embed().query) == 6


def test_numpy_arrays_in_a_torch_file_are_read(tmp_path):
    for dtype, order in (("f4", "C"), (">f8", "F"), ("f2", "C")):
        arrays = ARRAYS | {"query": np.asarray(ARRAYS["query"], dtype=dtype, order=order)}
        arrays["candidate"] = ARRAYS["candidate"].astype(np.dtype(dtype).newbyteorder("="))
        torch.save(arrays, tmp_path / "a.pt")
        found = checkpoints.open(tmp_path / "a.pt").embed().query
        np.testing.assert_array_equal(found, arrays["query"])
        assert found.dtype == getattr(torch, arrays["candidate"].dtype.name)


HOSTILE_DTYPE = (
    b"\x80\x02}X\x01\x00\x00\x00xcnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tX\x01\x00\x00\x00btR("
    b"K\x01(J\x01\x00\x00\x00tcnumpy\ndtype\n(X\x02\x00\x00\x00%sK\x00K\x01tR(K\x03X\x01\x00\x00\x00|NNNJ\x00\x00\x00\x00"
    b"J\x01\x00\x00\x00J%s\x00\x00\x00tb\x89]tbs."
)


@pytest.mark.parametrize("code", [b"S0", b"O8", b"V8", b"f8", b"U0", b"M8"])
@pytest.mark.parametrize("flags", [b"?", b"\x01", b"\x00"])
def test_a_crafted_dtype_does_not_reach_numpy(tmp_path, code, flags):
    """numpy trusts the state of a dtype: S0 with flags 63 makes it take bytes of the file for object pointers."""
    path = in_torch_zip(tmp_path / "a.pt", HOSTILE_DTYPE % (code, flags))
    for model in (None, own_model):
        with pytest.raises(InputError, match="holds an array"):
            checkpoints.open(path, model=model)


@pytest.mark.parametrize("shape", ["(-1,)", "(10**18, 10**18)", "('a',)", "3"])
def test_an_array_whose_bytes_do_not_fit_its_shape_is_refused(shape):
    from cocos.checkpoints.files.values import Array, Dtype

    with pytest.raises((ValueError, TypeError)):
        Array().__setstate__((1, eval(shape), Dtype("f8"), False, b"12345678"))


def own_model(content):
    """A user's function: content to an encoder."""
    return lambda rows: rows @ content["w"]


def test_a_function_of_the_users_reads_what_cocos_does_not_know(tmp_path):
    rows = {"items": np.eye(3, dtype="float32"), "labels": [0, 0, 1]}
    torch.save({"w": torch.ones(3, 2)}, tmp_path / "a.pt")
    for model in (own_model, "test_checkpoints:own_model"):
        opened = checkpoints.open(tmp_path / "a.pt", data=rows, model=model)
        assert opened.embed(device="cpu").query.tolist() == torch.ones(3, 2).tolist()
    for model, sentence in (
        ("nope", "write it as file.py:function or package.module:function"),
        ("no.such:thing", "there is no module 'no.such' here"),
        ("test_checkpoints:nothing", "unknown attribute of test_checkpoints 'nothing'"),
        (lambda content, data: content["w"], "takes 2 arguments; it must take the content of"),
        (lambda content: 3, "int, expected a function from a batch of rows"),
    ):
        with pytest.raises(InputError, match=sentence):
            checkpoints.open(tmp_path / "a.pt", data=rows, model=model).embed()
    torch.save({"w": torch.ones(3, 2), "extra": Harmless()}, tmp_path / "a.pt")
    with pytest.raises(UnsafeFile, match="objects of class test_checkpoints.Harmless, whose code cocos does not run"):
        checkpoints.open(tmp_path / "a.pt", data=rows, model=own_model)


def test_losses_take_what_the_checkpoint_recorded():
    opened = checkpoints.Checkpoint(
        Path("a"), "", "native", {}, None, recorded={"ntxent": {"temperature": 0.07}}, trained_with="ntxent"
    )
    assert opened.loss() == (
        cocos.losses.load("ntxent", {"temperature": 0.07}),
        "temperature 0.07 (recorded in the checkpoint)",
    )
    assert opened.loss("ntxent", {"temperature": "0.5"})[1] == "temperature 0.5 (given)"
    assert opened.loss("smoothap")[1] == "temperature 0.01 (default)"


def test_every_torch_load_says_weights_only():
    """TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD cannot change a call that says it."""
    loads = []
    for path in Path(cocos.__file__).parent.rglob("*.py"):
        source = path.read_text("utf-8")
        risky = any(name in source for name in ("torch.load", "pickle.", "eval(", "exec("))
        for node in ast.walk(ast.parse(source)) if risky else ():
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            own = {"eval"} if path.name == "signatures.py" else set()  # of types in the package's own sources
            assert called not in {"pickle.load", "pickle.loads", "eval", "exec"} - own, path
            if called == "torch.load":
                loads.append(path)
                assert {k.arg: ast.unparse(k.value) for k in node.keywords}["weights_only"] == "True", path
    assert [path.name for path in loads] == ["pickles.py"]


@pytest.mark.parametrize("name", ["texts.npy", 'it\'s the "text".npy'])
def test_what_a_single_array_is_told_to_type_makes_a_file_that_is_read(tmp_path, name):
    """The other side is taken to be the only other array in the folder."""
    np.save(tmp_path / "images.npy", ARRAYS["query"])
    with pytest.raises(InputError, match=r"candidates\.npy.*query_group=.*embeddings= and labels="):
        cocos.open(tmp_path / "images.npy")
    np.save(tmp_path / name, ARRAYS["query"][::-1])
    with pytest.raises(InputError) as told:
        cocos.open(tmp_path / "images.npy")
    command = str(told.value).partition("writes: ")[2].partition(". Row i")[0]
    python, option, code = shlex.split(command)
    assert (python, option) == ("python", "-c")
    assert children.python(code, cwd=tmp_path).returncode == 0
    found = cocos.open(tmp_path / f"images_and_{Path(name).stem}.npz").embed()
    np.testing.assert_array_equal(found.candidate, ARRAYS["query"][::-1])
