"""Pickles that would run something, at every protocol, in every way that a pickle can call, in every container."""

import io
import pickle
import struct
import zipfile

import numpy as np

from fuzz import seeds
from fuzz.mutations import damaged

__all__ = ["CONTAINERS", "pickled", "planted"]

MAGIC = 0x1950A86A20F9469CFC6C
CANARY = "canary-ran"  # would be written into the current folder
TOUCH = f"touch {CANARY}"
WRITE = f"open({CANARY!r}, 'w').close()"
TARGETS = [
    ("os", "system", TOUCH),
    ("posix", "system", TOUCH),
    ("nt", "system", TOUCH),
    ("os", "popen", TOUCH),
    ("os", "mkdir", CANARY),
    ("os", "putenv", "A"),
    ("os", "_exit", 7),
    ("subprocess", "Popen", TOUCH),
    ("subprocess", "getoutput", TOUCH),
    ("commands", "getoutput", TOUCH),
    ("builtins", "eval", WRITE),
    ("builtins", "exec", WRITE),
    ("__builtin__", "eval", WRITE),
    ("__builtin__", "execfile", CANARY),
    ("builtins", "__import__", "this"),
    ("builtins", "compile", WRITE),
    ("builtins", "open", CANARY),
    ("builtins", "getattr", "x"),
    ("builtins", "breakpoint", "x"),
    ("builtins", "map", "x"),
    ("io", "open", CANARY),
    ("_io", "FileIO", CANARY),
    ("codecs", "open", CANARY),
    ("pathlib", "Path.touch", CANARY),
    ("pathlib", "PosixPath.touch", CANARY),
    ("importlib", "import_module", "antigravity"),
    ("runpy", "run_path", CANARY),
    ("pty", "spawn", "sh"),
    ("ctypes", "CDLL", CANARY),
    ("socket", "socket", 2),
    ("socket", "create_connection", "localhost"),
    ("webbrowser", "open", "http://localhost"),
    ("urllib.request", "urlopen", "http://localhost"),
    ("pickle", "loads", "x"),
    ("marshal", "loads", "x"),
    ("code", "interact", "x"),
    ("pdb", "run", WRITE),
    ("timeit", "timeit", WRITE),
    ("cProfile", "run", WRITE),
    ("doctest", "debug_script", WRITE),
    ("site", "addsitedir", "."),
    ("shutil", "rmtree", CANARY),
    ("tempfile", "mkdtemp", "x"),
    ("threading", "Thread", "x"),
    ("multiprocessing", "Process", "x"),
    ("signal", "raise_signal", 9),
    ("functools", "partial", "x"),
    ("operator", "attrgetter", "system"),
    ("operator", "methodcaller", "system"),
    ("types", "FunctionType", "x"),
    ("torch", "load", CANARY),
    ("torch.hub", "load", CANARY),
    ("torch.jit", "load", CANARY),
    ("torch.storage", "_load_from_bytes", "x"),
    ("torch.serialization", "load", CANARY),
    ("torch._utils", "_import_dotted_name", "antigravity"),
    ("torch.utils.cpp_extension", "load", "x"),
    ("torch.package", "PackageImporter", CANARY),
    ("torch._dynamo.eval_frame", "OptimizedModule", "x"),
    ("torch.distributed.rpc", "rpc_sync", "x"),
    ("numpy", "load", CANARY),
    ("numpy", "fromfile", CANARY),
    ("numpy.testing._private.utils", "runstring", WRITE),
    ("numpy.core.multiarray", "_reconstruct", "x"),
    ("argparse", "FileType", "w"),
    ("argparse", "Namespace.__init__", "x"),
    ("collections", "OrderedDict.__init__", "x"),
    ("copyreg", "_reconstructor", "x"),
    ("cocos.commands", "main", "x"),
    ("cocos.losses", "load", "os:system"),
    ("fuzz.planted", "pickled", "x"),
    ("vocab", "Vocabulary", "x"),
    ("this", "s", "x"),
]
WAYS = (
    "reduce",
    "newobj",
    "newobj_ex",
    "inst",
    "obj",
    "build",
    "set state",
    "key",
    "memo",
    "persistent",
    "type",
    "extension",
)


def _text(value: str, protocol: int) -> bytes:
    raw = value.encode()
    if protocol == 0:
        return b"V" + raw + b"\n"
    return b"X" + struct.pack("<I", len(raw)) + raw if protocol < 4 else b"\x8c" + bytes([len(raw)]) + raw


def _argument(value, protocol: int) -> bytes:
    return (
        _text(value, protocol)
        if isinstance(value, str)
        else f"I{value}\n".encode()
        if protocol == 0
        else b"K%c" % value
    )


def _global(module: str, name: str, protocol: int) -> bytes:
    if protocol < 4:
        return f"c{module}\n{name}\n".encode()
    return _text(module, protocol) + _text(name, protocol) + b"\x93"


def _call(random, way: str, protocol: int) -> bytes:
    """Operations that call one of the targets and leave its result on the stack."""
    module, name, value = random.choice(TARGETS)
    named, given = _global(module, name, protocol), _argument(value, protocol)
    if way == "newobj":
        return named + b"(" + given + b"t\x81"
    if way == "newobj_ex":
        return named + b"(" + given + b"t}\x92"
    if way == "inst":
        return b"(" + given + f"i{module}\n{name}\n".encode()
    if way == "obj":
        return b"(" + named + given + b"o"
    if way == "build":
        return (
            _global("argparse", "Namespace", protocol)
            + b")\x81}"
            + _text("__setstate__", protocol)
            + named
            + b"sb"
            + given
            + b"b"
        )
    if way == "set state":
        return _global("collections", "OrderedDict", protocol) + b")R}" + _text("__class__", protocol) + named + b"sb"
    if way == "key":
        return b"}" + named + b"(" + given + b"tRNs"
    if way == "memo":
        return _text(name, protocol) + b"p5\n" + _text(module, protocol) + b"p6\n00g6\ng5\n\x93(" + given + b"tR"
    if way == "persistent":
        return b"(" + _text("storage", protocol) + named + _text("0", protocol) + _text("cpu", protocol) + b"K\x10tQ"
    if way == "type":
        return (
            _global("torch._tensor", "_rebuild_from_type_v2", protocol) + b"(" + named + named + b"(" + given + b"t}tR"
        )
    if way == "extension":
        return b"\x82\x01(" + given + b"tR"
    return named + b"(" + given + b"tR"


def pickled(random, protocol: int) -> bytes:
    """A pickle that calls something, alone or within what a checkpoint holds."""
    body = _call(random, random.choice(WAYS), protocol)
    frame = random.random()
    if frame < 0.4:
        key = random.choice(["query", "model", "opt", "state", "cocos", "embeddings", "epoch"])
        body = b"(d" + _text(key, protocol) + body + b"s"
    elif frame < 0.5:
        body = b"(l" + body + b"a"
    elif frame < 0.6:
        body = body + b"0" + _call(random, random.choice(WAYS), protocol)
    start = b"" if protocol < 2 else b"\x80" + bytes([protocol])
    if protocol >= 4 and random.random() < 0.5:
        start += b"\x95" + struct.pack("<Q", len(body) + 1)
    return start + body + b"."


def _torch(random, payload: bytes) -> bytes:
    stream = io.BytesIO()
    name, kind = random.choice(["archive", "a"]), random.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{name}/data.pkl"), payload, kind)
        archive.writestr(zipfile.ZipInfo(f"{name}/data/0"), bytes(64))
        archive.writestr(zipfile.ZipInfo(f"{name}/version"), "3\n")
        if random.random() < 0.15:
            extra = random.choice(["constants.pkl", "code/a.py", "models/a.pt", "archive_format", "data/weights.pkl"])
            archive.writestr(zipfile.ZipInfo(f"{name}/{extra}"), payload)
    return stream.getvalue()


def _legacy(random, payload: bytes) -> bytes:
    parts = [pickle.dumps(part, protocol=2) for part in (MAGIC, 1001, {"little_endian": True}, {}, [])]
    parts[random.choice([1, 2, 3, 3, 3, 4])] = payload
    return b"".join(parts)


def _npz(random, payload: bytes) -> bytes:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in ("query", "candidate", random.choice(["query_group", "other"])):
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), head.getvalue() + payload)
    return stream.getvalue()


def _npy(random, payload: bytes) -> bytes:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    return head.getvalue() + payload


CONTAINERS = {
    "plain": lambda random, payload: payload,
    "torch": _torch,
    "torch legacy": _legacy,
    "npz": _npz,
    "npy": _npy,
    "vocabulary": lambda random, payload: payload,
}


def planted(random) -> tuple[str, bytes]:
    """A container by name, and its bytes; of a vocabulary, those of the file beside the checkpoint."""
    container = random.choice(["plain", "torch", "torch", "torch legacy", "torch legacy", "npz", "npy", "vocabulary"])
    payload = pickled(random, random.randrange(6))
    if random.random() < 0.15:
        payload = damaged(random, payload, times=1)
    return container, CONTAINERS[container](random, payload)


def vocabulary_folder(random, payload: bytes) -> dict[str, bytes]:
    """The folder of a checkpoint whose vocabulary is planted."""
    files = {name: inner for name, inner in seeds.folder(random, regions=False).items() if "vocab" not in name}
    return files | {"data_vocab.pkl": payload, "f30k_precomp_vocab.pkl": payload}
