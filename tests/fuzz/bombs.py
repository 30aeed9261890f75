"""Small files that ask for much: memory, work, depth, or a read without end."""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import torch

from fuzz import seeds
from fuzz.planted import CONTAINERS

__all__ = ["BOMBS", "bomb"]


def _big(random) -> int:
    return int(2 ** random.uniform(27, 31))


def _number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def _pickle(random, body: bytes) -> bytes:
    return CONTAINERS[random.choice(["torch", "torch", "torch legacy", "plain"])](random, b"\x80\x02" + body + b".")


def _allocated(random) -> bytes:
    homes = ("builtins", "__builtin__", "torch.storage", "torch", "torch.nn.parameter", "collections", "torch.cuda")
    kinds = ("bytearray", "UntypedStorage", "FloatTensor", "Tensor", "LongTensor", "Parameter", "Counter", "Size")
    pairs = ((0, 0), (1, 0), (2, 1), (3, 2), (3, 3), (3, 4), (4, 5), (5, 6), (6, 2), (3, 7))
    home, kind = random.choice(pairs)
    name = f"{homes[home]}\n{kinds[kind]}".encode()
    call = random.choice([b"\x85R", b"\x85\x81", b"\x85\x85R", b"\x86R"])
    return _pickle(
        random, b"](" + (b"c" + name + b"\n" + _number(_big(random) - 1) + call) * random.choice([1, 20]) + b"e"
    )


def _operations(random) -> bytes:
    unit = random.choice([
        b"N",
        b"N0",
        b"K\x01",
        b"]",
        b"}",
        b"(",
        b")",
        b"\x88",
        b"(lp0\n0",
        b"q\x00",
        b"h\x00",
        b"U\x00",
    ])
    number = int(2 ** random.uniform(10, 22 if random.random() < 0.02 else 17))
    return _pickle(random, b"]q\x00(" + unit * number + b"e")


def _deep(random) -> bytes:
    depth = int(2 ** random.uniform(6, 18))
    inner = random.choice([
        b")" + b"\x85" * depth,
        b"N" + b"q\x01h\x01\x86" * min(depth, 200),
        b"]" * depth + b"a" * (depth - 1),
    ])
    return _pickle(random, random.choice([b"}" + inner + b"K\x01s", b"}K\x01" + inner + b"s", inner]))


def _colliding(random) -> bytes:
    size = random.choice([10, 13])
    keys = (
        b"(" + b"".join(_number(-1) if i >> k & 1 else _number(-2) for k in range(size)) + b"tN" for i in range(2**size)
    )
    longs = (b"\x8a\x0c" + (i * (2**61 - 1)).to_bytes(12, "little") + b"N" for i in range(1, 2**size))
    return _pickle(random, b"}(" + b"".join(random.choice([keys, longs])) + b"u")


def _tensor(random) -> bytes:
    shape = random.choice([(_big(random),), (_big(random), 64), (2**20, 2**20)])
    made = {
        "query": torch.ones(random.choice([1, 4])).as_strided(shape, [0] * len(shape)),
        "candidate": torch.ones(4, 4),
    }
    if random.random() < 0.3:
        made = {"embeddings": made["query"], "labels": torch.zeros(1, dtype=torch.int64).expand(shape[0])}
    return seeds.saved(made, legacy=random.random() < 0.3)


def _storage(random) -> bytes:
    numel, size, stride = (random.choice([b"K\x10", _number(_big(random) - 1), _number(-5)]) for _ in range(3))
    body = b"}X\x05\x00\x00\x00queryctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    body += b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + numel + random.choice([b"", b"N"]) + b"tQK\x00" + size + b"\x85"
    body += random.choice([b"K\x00", b"K\x01", stride]) + b"\x85\x89ccollections\nOrderedDict\n)RtRs"
    return _pickle(random, body)


def _layers(random) -> bytes:
    content = seeds.content("native", random)
    key = random.choice(["num_layers", "embed_size", "word_dim", "img_dim"])
    content["cocos"]["encoder"]["arguments"][key] = random.choice([10**3, 10**6, 10**9, 2**62, 2**63, 10**30, -1, 0])
    return seeds.saved(content)


def _deflated(random) -> bytes:
    size = int(2 ** random.uniform(16, 28 if random.random() < 0.01 else 22))
    big = np.zeros((size // 16, 4), dtype=np.float32)
    sides = {
        "query": np.eye(4),
        "candidate": np.eye(4),
        random.choice(["query", "other", "candidate", "query_group"]): big,
    }
    return seeds.npz(sides, deflated=True)


def _repacked(random) -> bytes:
    """An archive of bytes that deflate to a thousandth, or that claims to."""
    stream = io.BytesIO()
    kind = random.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    with zipfile.ZipFile(stream, "w", kind) as archive:
        for name in random.choice([
            ("a/data.pkl", "a/data/0"),
            ("query.npy", "candidate.npy"),
            ("a/data.pkl", "a/constants.pkl"),
        ]):
            archive.writestr(zipfile.ZipInfo(name), bytes(int(2 ** random.uniform(14, 22))), kind)
    data = bytearray(stream.getvalue())
    if random.random() < 0.5:
        at = data.rindex(b"PK\x01\x02")
        data[at + 24 : at + 28] = struct.pack("<I", _big(random) - 1)
    return bytes(data)


def _header(random) -> bytes:
    head = io.BytesIO()
    shape = random.choice([(2**40, 4), (10**9, 64), (2**62, 2**62), (-1, 4), (0, 2**60)])
    np.lib.format.write_array_header_1_0(
        head, {"descr": random.choice(["<f4", "<U9999999", "S0"]), "fortran_order": False, "shape": shape}
    )
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in ("query.npy", "candidate.npy"):
            archive.writestr(zipfile.ZipInfo(name), head.getvalue() + bytes(256))
    return stream.getvalue()


def _members(random) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for number in range(int(2 ** random.uniform(6, 10))):
            archive.writestr(
                zipfile.ZipInfo(f"quer{number}.npy" if random.random() < 0.5 else f"a/{number}.pkl"), b"\x80\x02N."
            )
    return stream.getvalue()


def _safetensors(random) -> bytes:
    header = random.choice([
        b"{" * 5000,
        b'{"a":' * 5000,
        b'{"__metadata__":{"directions":"' + b"[" * 9000 + b'"}}',
        b"{}",
        b"{" + b" " * 50_000,
    ])
    return struct.pack("<Q", random.choice([len(header), _big(random), 99_999_999])) + header + bytes(64)


def _line(random) -> bytes:
    head = random.choice([
        b"c",
        b"(S'",
        b"\x80\x02c",
        b"\x80\x02X\xff\xff\xff\x7f",
        b"]",
        b"(lp",
        b"I",
        b"\x80\x04\x95" + b"\xff" * 8,
        b"PK\x03\x04",
    ])
    return head + random.choice([b"x", b"\x00", b"(", b"\n", b"c\n"]) * int(2 ** random.uniform(10, 20))


BOMBS = {
    "allocated": _allocated,
    "operations": _operations,
    "deep": _deep,
    "colliding": _colliding,
    "tensor": _tensor,
    "storage": _storage,
    "layers": _layers,
    "deflated": _deflated,
    "repacked": _repacked,
    "header": _header,
    "members": _members,
    "safetensors": _safetensors,
    "line": _line,
    "holes": _line,
    "captions": None,
}


def bomb(random, folder: Path) -> tuple[Path, Path | None]:
    """Write a bomb; the file to open, and the folder of its data where it is one of captions."""
    kind, path = random.choice(list(BOMBS)), folder / "bomb.bin"
    if kind == "captions":
        files = seeds.folder(random, regions=False)
        words = random.choice([b"a ", b"a", b"a.", b"'", b"n't ", b"\xff", b"\n"])
        which = random.choice([
            "train_caps.txt",
            "train_caps.txt",
            "data_vocab.json",
            "data_vocab.pkl",
            "train_ims.npy",
        ])
        files[which] = words * int(2 ** random.uniform(8, 20 if random.random() < 0.1 else 15))
        seeds.write(folder / "data", files)
        path.write_bytes(seeds.saved(seeds.content("vsepp", random)))
        return path, folder / "data"
    path.write_bytes(BOMBS[kind](random))
    if kind == "holes":
        with open(path, "r+b") as stream:
            stream.truncate(random.choice([3 * 2**30, 2**36, 2**27]))
    return path, None
