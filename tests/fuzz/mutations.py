"""Damage: to bytes, to the members of an archive, to values of what is saved."""

import io
import json
import struct
import warnings
import zipfile
from collections import OrderedDict

import numpy as np
import torch

from fuzz.seeds import NAMESPACE

__all__ = ["damaged", "damaged_archive", "damaged_header", "odd"]

NUMBERS = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**62, 2**63, 2**64 - 1]
DELIMITERS = b'\x00\n"{}[](),.:0123456789-ctqRbQKJX'


def damaged(random, payload: bytes, times: int | None = None) -> bytes:
    """Bytes with a few places changed, cut, doubled, moved or overwritten."""
    data = bytearray(payload)
    for _ in range(times or random.choice([1, 1, 2, 4, 16])):
        if not data:
            break
        at, size = random.randrange(len(data)), random.choice([1, 2, 4, 8, 64])
        way = random.randrange(9)
        if way == 0:
            data[at] ^= 1 << random.randrange(8)
        elif way == 1:
            data[at] = random.choice(DELIMITERS) if random.random() < 0.5 else random.randrange(256)
        elif way == 2:
            del data[at : at + size]
        elif way == 3:
            data[at:at] = data[at : at + size]
        elif way == 4:
            number = random.choice(NUMBERS).to_bytes(8, random.choice(["little", "big"]))
            data[at : at + 4] = number[:4] if random.random() < 0.5 else number[-4:]
        elif way == 5:
            data[at:at] = random.randbytes(size)
        elif way == 6:
            del data[at:]
        elif way == 7:
            other = random.randrange(len(data))
            data[at : at + size] = data[other : other + size]
        else:
            data[at : at + size] = bytes(len(data[at : at + size]))
    return bytes(data)


def damaged_archive(random, payload: bytes) -> bytes:
    """An archive whose members are damaged, missing, doubled or renamed."""
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    for _ in range(random.choice([1, 1, 2, 3])):
        place = random.randrange(len(members))
        if random.random() < 0.5:  # the pickle of a torch file, where most can go wrong
            place = next((i for i, (name, _) in enumerate(members) if name.endswith("data.pkl")), place)
        name, inner = members[place]
        way = random.random()
        if way < 0.75:
            members[place] = name, damaged(random, inner)
        elif way < 0.82 and len(members) > 1:
            del members[place]
        elif way < 0.88:
            members.append((name, damaged(random, inner)))
        elif way < 0.94:
            members[place] = random.choice(["../x", "/x", "data.pkl", "é.npy", "query.npy", "a" * 300, name * 2]), inner
        else:
            members.insert(
                random.randrange(len(members)), (random.choice(["x/data.pkl", "constants.pkl", "b.npy"]), inner)
            )
    stream = io.BytesIO()
    kind = random.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(stream, "w", kind) as archive:
        for name, inner in members:
            archive.writestr(zipfile.ZipInfo(name), inner, kind)
    return stream.getvalue()


def damaged_header(random, payload: bytes) -> bytes:
    """A safetensors file whose header says something else."""
    size = int.from_bytes(payload[:8], "little")
    header, rest = json.loads(payload[8 : 8 + size]), payload[8 + size :]
    for _ in range(random.choice([1, 1, 2])):
        name = random.choice(list(header))
        odd_values = [0, -1, 2**31, 2**63, 1e300, None, "", "F64", "U8", [], {}, [0, 2**40], [-1, 4], [3, 1], "é"]
        if isinstance(header[name], dict) and header[name] and random.random() < 0.8:
            header[name][random.choice(list(header[name]))] = random.choice(odd_values)
        elif random.random() < 0.5:
            header[name] = random.choice(odd_values)
        else:
            header["__metadata__"] = random.choice([
                {"directions": "["},
                {"directions": "[" * 5000},
                {"directions": '["a"]'},
                {"directions": "a,b,c"},
                5,
                {"a": 1},
            ])
    text = json.dumps(header).encode()
    if random.random() < 0.2:
        text = damaged(random, text)
    return struct.pack("<Q", random.choice([len(text)] * 9 + [2**31])) + text + rest


def _items(kind: type):
    class Items(kind):
        """Has an attribute that hides a method."""

        def __reduce__(self):
            return kind, (), {"items": 5, "get": None, "keys": 1}, None, iter(dict.items(self))

    return Items


def _attributes(random) -> torch.nn.Parameter:
    made = torch.nn.Parameter(torch.ones(random.choice([1, 3])))
    for name in ("item", "numel", "shape_", "detach", "isfinite"):
        setattr(made, name, random.choice([5, torch.device, OrderedDict, torch.Size]))
    return made


def _nested(random):
    made = []
    for _ in range(random.choice([2, 5, 40, 70, 200])):
        made = random.choice([[made], {"a": made}, (made,), [made, made]])
    return made


def _itself(random):
    made = {"a": []}
    made["a"].append(made)
    return made


TEXTS = ["", "x", "\x00", "é", "\ud800", "../x", "os:system", "a" * 5000, "[" * 3000, "\x1b[2J", "a\nb"]
WIDE = [torch.int64, torch.bool, torch.uint8, torch.complex64, torch.float16]
WHOLE = [torch.int32, torch.uint8, torch.int16, torch.float64, torch.bool]
FLOATS = [torch.float8_e5m2, torch.bfloat16, torch.float16, torch.float64]
CODES = [">f4", "f2", "c8", "i1", "u8", "U3", "S4", "?"]
ODD = (
    lambda random: None,
    lambda random: random.choice([0, -1, 1, 10**9, 2**31, 2**63, 2**64, 10**40, True]),
    lambda random: random.choice([0.0, -1.0, float("nan"), float("inf"), 1e-320, 1e308]),
    lambda random: random.choice(TEXTS),
    lambda random: random.choice([b"", b"\xff\xfe", b"query"]),
    lambda random: [[1], [1, 2], 3],
    lambda random: [torch.ones(2), torch.ones(3)],
    lambda random: [torch.ones(2).to_sparse()] * random.choice([1, 6]),
    lambda random: [torch.ones(1).bfloat16()] * 6,
    lambda random: [torch.ones(1, requires_grad=True)] * 6,
    lambda random: [1j] * 6,
    lambda random: torch.ones(()),
    lambda random: torch.ones(random.choice([(0,), (0, 4), (4, 0), (6,), (6, 1, 1), (1, 4), (6, 5), (8, 4), (4, 4)])),
    lambda random: torch.full((6, 4), random.choice([float("nan"), float("inf"), 1e30, 0.0, 1e-40])),
    lambda random: torch.zeros(6, 4, dtype=random.choice(WIDE)),
    lambda random: torch.zeros(6, dtype=random.choice(WHOLE)),
    lambda random: torch.ones(6, 4).to(random.choice(FLOATS)),
    lambda random: torch.ones(6, 4).to_sparse(),
    lambda random: torch.ones(6, 4).to_sparse_csr(),
    lambda random: torch.empty(6, 4, device="meta"),
    lambda random: torch.empty(6, device="meta", dtype=torch.int64),
    lambda random: torch.quantize_per_tensor(torch.ones(6, 4), 0.1, 0, torch.qint8),
    lambda random: torch.quantize_per_channel(torch.ones(6, 4), torch.ones(4), torch.zeros(4), 1, torch.quint8),
    lambda random: torch.ones(1).expand(random.choice([6, 1000, 40_000_000, 2**40]), 4),
    lambda random: torch.ones(8, 4).T,
    lambda random: torch.ones(6, 4).conj() * 1j,
    lambda random: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    lambda random: torch.ones(6, 4, requires_grad=True),
    lambda random: torch.nn.Parameter(torch.ones(6, 4)),
    _attributes,
    lambda random: torch.ones(3).untyped_storage(),
    lambda random: np.array([[1.0, 2], [3, 4]], dtype=random.choice(CODES)),
    lambda random: np.array(["a", "b", "é", "", "x" * 50, "a"]),
    lambda random: np.array([b"a", b"\xff", b"", b"c", b"d", b"e"]),
    lambda random: np.float64(random.choice([1.5, float("nan")])),
    lambda random: np.zeros((6, 0)),
    lambda random: np.arange(6, dtype=np.uint64) + np.uint64(2**63),
    lambda random: {},
    lambda random: [],
    lambda random: (),
    lambda random: set(range(3)),
    lambda random: {1: 2, "a": 3, (1, 2): 4, None: 5},
    lambda random: {5: torch.ones(2), (1,): torch.ones(2)},
    lambda random: bytearray(b"abc"),
    lambda random: NAMESPACE(a=1, items=5, get=3),
    lambda random: _items(OrderedDict)(a=1, name="ntxent"),
    lambda random: torch.float32,
    lambda random: torch.device("cpu"),
    lambda random: torch.Size([2, 3]),
    lambda random: complex(1, 2),
    _nested,
    _itself,
)  # fmt: skip


def odd(random, content):
    """What was to be saved, with a few values replaced, removed, added or moved to odd keys, anywhere in it."""
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        places = _containers(content)
        holder = random.choice(places)
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            continue
        key, value = random.choice(keys), random.choice(ODD)(random)
        way = random.random()
        if way < 0.8:
            holder[key] = value
        elif isinstance(holder, dict) and way < 0.88:
            del holder[key]
        elif isinstance(holder, dict):
            new = random.choice([
                5,
                (1, 2),
                None,
                "x",
                "",
                "labels",
                "proxies",
                "é\x1b",
                b"key",
                1.5,
                "Rs_GCN_1",
                "cnn.a",
            ])
            holder[new] = holder.pop(key) if way < 0.95 else value
    return content


def _containers(value, deep: int = 0) -> list:
    """Dicts and lists in what is saved, the more often the higher."""
    if isinstance(value, NAMESPACE):
        value = vars(value)
    if not isinstance(value, dict | list) or deep > 4:
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value] * (2 if deep < 2 else 1) + [found for item in inner for found in _containers(item, deep + 1)]
