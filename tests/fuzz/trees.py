"""Folders of models and of training data that are damaged, evil or planted, and written to disk or into an archive."""

import copy
import io
import json
import os
import stat
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch

from fuzz import mutations, planted, seeds

__all__ = ["as_json", "damaged_json", "of_data", "of_model", "recipe", "serialised", "whole_data", "whole_model"]

TORCH = (".pt", ".pth", ".bin", ".ckpt", ".t7")
CODE = b"open('canary-ran', 'w').close()\n"  # a file of code that no config may bring to run
NUMBERS = [0, -1, 1, 3, 10**6, 10**9, 10**12, 2**31, 2**63, 10**40, 0.5, -0.0, 1e308, float("nan"), float("inf")]
TEXTS = [
    *mutations.TEXTS[:-1],
    "/etc/passwd",
    "../../x",
    "os.system",
    "torch.nn.modules.activation.ReLU",
    "file.py:function",
    "fuzz.planted:pickled",
    "model--main",
    "http://localhost/x",
    "cls",
    "\\\\host\\x",
    "%(x)s{}",
]
TYPES = [
    "gpt2",
    "roberta",
    "t5",
    "clip",
    "siglip",
    "bert",
    "llama",
    "mpnet",
    "xlnet",
    "timm_wrapper",
    "esm",
    "eurobert",
]
MODULES = ["sentence_transformers.models.CLIPModel", "os.system", "x.Pooling", "sentence_transformers.models.LSTM"]
KEYS = {
    "auto_map": {"AutoModel": "model.Model", "AutoConfig": "model.Config"},
    "quantization_config": {"quant_method": "x"},
    "custom_pipelines": {"x": {"impl": "model.Model"}},
    "_name_or_path": "../../x",
    "trust_remote_code": True,
    "adapter_path": "/nowhere",
    "rope_scaling": {"type": "dynamic", "factor": 10**12},
}
NAMES = ["../x", "/x", "a/../../x", "C:\\x", "model/../x", "modules.json", "config.json", "a" * 300, "\x1b[2J", "é"]


def _value(random):
    kind = random.random()
    if kind < 0.35:
        return random.choice(NUMBERS)
    if kind < 0.65:
        return random.choice([*TEXTS, *TYPES, *MODULES])
    return random.choice([None, True, False, [], {}, [[1], 2], {"a": {}}, [None] * 100, [0] * 5, [10**12, 1], [{}]])


def as_json(content) -> bytes:
    """JSON of a damaged tree; nothing where it is nested too deep to be written."""
    try:
        return json.dumps(content).encode()
    except (RecursionError, TypeError, ValueError):
        return b""


def damaged_json(random, content):
    """Plain data with a few values replaced, removed or added."""
    content = json.loads(json.dumps(content))
    for _ in range(random.choice([1, 1, 2, 4])):
        holder = random.choice(_holders(content) or [{}])
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if random.random() < 0.15 and isinstance(holder, dict):
            key = random.choice(list(KEYS))
            holder[key] = copy.deepcopy(KEYS[key])
        elif keys and random.random() < 0.8:
            holder[random.choice(keys)] = _value(random)
        elif keys:
            del holder[random.choice(keys)]
    return content if random.random() < 0.95 else _value(random)


def _holders(value) -> list:
    if not isinstance(value, dict | list):
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(found for each in inner for found in _holders(each))]


def _odd(random, name: str, content):
    """Contents of one file, other than they should be."""
    if isinstance(content, bytes):
        return content
    if name.endswith(".json"):
        return damaged_json(random, content)
    if not isinstance(content, dict):
        return content
    if name.endswith(TORCH):
        return mutations.odd(random, content)
    key = random.choice(list(content))
    shapes = [(), (0,), (1,), (4,), (4, 4), (13, 4), (13, 0), (0, 4), (2, 3, 4), (5000,)]
    kinds = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.float64]
    made = torch.ones(random.choice(shapes)).to(random.choice(kinds))
    if random.random() < 0.3 and content[key].dtype != torch.bool:
        kind = content[key].dtype
        made = torch.full_like(content[key], float("nan") if kind.is_floating_point else torch.iinfo(kind).max)
    where = key if random.random() < 0.8 else random.choice(["x", "", "cls.weight", "adapter.weight", "a.b.c"])
    return {k: v for k, v in content.items() if k != key or random.random() < 0.9} | {where: made}


def _copied(value):
    """Containers of what is saved, new; their tensors are shared."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def serialised(random, name: str, content) -> bytes:
    """Bytes of a file."""
    if isinstance(content, bytes):
        return content
    if name.endswith(".json"):
        return json.dumps(content).encode("utf-8", "surrogatepass")
    if name.endswith(TORCH):
        return seeds.saved(content, legacy=random.random() < 0.3)
    return safetensors.torch.save({key: each.contiguous() for key, each in content.items()})


def _planted(random, payload: bytes) -> bytes:
    """A torch file whose pickle first calls something, at any protocol, and then gives what it gave; or another."""
    call = planted.pickled(random, protocol := random.randrange(6)).removesuffix(b".")
    call = call[2:] if protocol >= 2 else call
    if call.startswith(b"\x95"):
        call = call[9:]

    def before(pickled: bytes) -> bytes:
        return b"\x80" + bytes([random.randrange(2, 6)]) + call + b"0" + pickled[2:]

    if not zipfile.is_zipfile(io.BytesIO(payload)) or random.random() < 0.2:
        kind = random.choice(["torch", "torch legacy", "plain"])
        return planted.CONTAINERS[kind](random, planted.pickled(random, protocol))
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, inner in members:
            archive.writestr(zipfile.ZipInfo(name), before(inner) if name.endswith("data.pkl") else inner)
    return stream.getvalue()


def _damaged(random, name: str, payload: bytes) -> bytes:
    """Bytes of a file, changed as its kind suggests."""
    if name.endswith(TORCH):
        if random.random() < 0.4:
            return _planted(random, payload)
        if payload[:2] == b"PK":
            return _archive(random, payload)
    if name.endswith(".safetensors") and payload and random.random() < 0.6:
        return _header(random, payload)
    if name.endswith(".json") and random.random() < 0.2:
        return random.choice([b"[" * 100_000, b'{"a":' * 50_000, b"", b"\xff\xfe", b" " * 10**6, b"null", b"NaN", b"7"])
    if name.endswith(".npz") and random.random() < 0.5:
        return _archive(random, payload)
    if random.random() < 0.1:
        return random.choice([_bomb, _pickled])(random, name)
    return mutations.damaged(random, payload)


def _archive(random, payload: bytes) -> bytes:
    try:
        return mutations.damaged_archive(random, payload)
    except (ValueError, IndexError, zipfile.BadZipFile, zlib.error):  # it is damaged, or empty, already
        return mutations.damaged(random, payload)


def _header(random, payload: bytes) -> bytes:
    try:
        return mutations.damaged_header(random, payload)
    except (ValueError, IndexError, RecursionError):
        return mutations.damaged(random, payload)


def _pickled(random, name: str) -> bytes:
    return planted.pickled(random, random.randrange(6))


def _bomb(random, name: str) -> bytes:
    """Few bytes that ask for much, of the kind that the name promises."""
    import gzip
    import struct
    import zlib

    if name.endswith(".png"):
        width = random.choice([30_000, 2**31 - 1, 8000, 0])
        head = b"IHDR" + struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)
        parts = [head, b"IDAT" + zlib.compress(bytes(10**6)), b"IEND"]
        chunks = (struct.pack(">I", len(each) - 4) + each + struct.pack(">I", zlib.crc32(each)) for each in parts)
        return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    if name.endswith(".gz"):
        return gzip.compress(random.choice([b"\n", b" ", b'{"query": "a", "positive": "b"}\n']) * 10**6, mtime=0)
    line = random.choice([b"a,", b'"', b"[", b'{"query": "', b"\n", b"a b ", b"x.png#0\t", b"##"])
    return line * int(2 ** random.uniform(10, 17))


def _evil(random, files: dict[str, bytes]) -> dict[str, bytes]:
    """Files that are gone, swapped, renamed or new."""
    way, names = random.random(), list(files)
    one, other = random.choice(names), random.choice(names)
    if way < 0.35:
        files = {name: payload for name, payload in files.items() if name != one}
    elif way < 0.65:
        files |= {one: files[other], other: files[one]}
    elif way < 0.8:
        new = random.choice(["modules.json", "config.json", "adapter_config.json", "a.json", "trunk_9.pth", "x/y.pt"])
        files[new] = files[one]
    else:
        files |= {"model.py": CODE, "modeling_bert.py": CODE, "__init__.py": CODE, "Model/__init__.py": CODE}
    return files


def _made(random, contents: dict) -> dict[str, bytes]:
    """Bytes of all files; most often something is wrong with one or two."""
    contents, whole = _copied(contents), random.random() < 0.08
    if not whole and random.random() < 0.55:
        for _ in range(random.choice([1, 1, 2])):
            name = random.choice(list(contents))
            contents[name] = _odd(random, name, contents[name])
    files = {}
    for name, content in contents.items():
        try:
            files[name] = serialised(random, name, content)
        except Exception:  # not everything odd can be saved
            files[name] = b""
    if not whole and random.random() < 0.6:
        for _ in range(random.choice([1, 1, 1, 2])):
            name = random.choice(list(files))
            files[name] = _damaged(random, name, files[name])
    return _evil(random, files) if not whole and random.random() < 0.15 else files


def _write(random, folder: Path, files: dict[str, bytes]) -> None:
    """Write files, one of them perhaps as a link to elsewhere."""
    links = {random.choice(list(files))} if random and files and random.random() < 0.03 else set()
    for name, payload in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in links:
            os.symlink(random.choice(["/etc/passwd", "/dev/zero", "../elsewhere", "/", path.name]), path)
        else:
            path.write_bytes(payload)
    if links and random.random() < 0.5:
        folder.parent.joinpath("elsewhere").write_bytes(b"{}")


def _zipped(random, files: dict[str, bytes]) -> bytes:
    """An archive of a folder, with members that are doubled, renamed, packed a thousandfold, or links."""
    top = random.choice(["", "model/"])
    members = [(zipfile.ZipInfo(top + name), payload) for name, payload in files.items()]
    if random.random() < 0.5:
        info, payload = random.choice(members)
        way = random.randrange(5)
        if way == 0:
            members.append((zipfile.ZipInfo(info.filename), b"{}"))
        elif way == 1:
            members.append((zipfile.ZipInfo(random.choice(NAMES)), payload))
        elif way == 2:
            members.append((zipfile.ZipInfo(f"{top}model.safetensors"), bytes(2**22)))
        elif way == 3:
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
        else:
            members.append((zipfile.ZipInfo(top + "a/" * 40 + "x"), payload))
    stream, kind = io.BytesIO(), random.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED])
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(stream, "w", kind) as archive:
        for info, payload in members:
            archive.writestr(info, payload, kind)
    packed = stream.getvalue()
    return mutations.damaged(random, packed) if random.random() < 0.3 else packed


def of_model(random, folder: Path, seed: Callable) -> tuple[Path, Path | None]:
    """Write a model and the training data beside it; what is opened, and the data."""
    files, opened, data = seed(random)
    made = _made(random, files)
    place = None
    if data and random.random() < 0.85:
        beside = (
            _made(random, data) if random.random() < 0.2 else {k: serialised(random, k, v) for k, v in data.items()}
        )
        _write(random, folder / "data", beside)
        place = folder / "data" / _entry(data)
    if not opened and random.random() < 0.25:
        path = folder / random.choice(["model.zip", "model.bin"])
        path.write_bytes(_zipped(random, made))
        return path, place
    _write(random, folder / "model", made)
    (folder / "model").mkdir(exist_ok=True)
    return folder / "model" / opened, place


def whole_model(random, folder: Path, seed: Callable) -> tuple[Path, Path | None]:
    """Write a model, and training data, with which nothing is wrong."""
    files, opened, data = seed(random)
    for place, held in (("model", files), ("data", data)):
        _write(None, folder / place, {name: serialised(random, name, each) for name, each in held.items()})
    return folder / "model" / opened, folder / "data" / _entry(data) if data else None


def whole_data(random, folder: Path, seed: Callable) -> Path:
    """Write training data with which nothing is wrong."""
    return whole_model(random, folder, lambda random: ({}, "", seed(random)))[1]


def _entry(files: dict) -> str:
    """What is named of training data: its one file above all folders, or the folder ("")."""
    tops = [name for name in files if "/" not in name]
    return tops[0] if len(tops) == 1 and tops != ["dataset_dict.json"] else ""


def of_data(random, folder: Path, seed: Callable) -> Path:
    """Write training data; what is opened."""
    files = seed(random)
    _write(random, folder / "data", _made(random, files))
    (folder / "data").mkdir(exist_ok=True)
    return folder / "data" / _entry(files)


def recipe(random, folder: Path, seed: Callable) -> Path:
    """Write a model whose recipe says where its data are, or names code, or leads out of the folder."""
    files, _, data = seed(random)
    held = {
        "data": {"path": _entry(data), "columns": {"query": "query"}},
        "loss": {"name": "ntxent", "parameters": {"temperature": 0.05}},
    }
    if random.random() < 0.8:
        held = damaged_json(random, held)
    if random.random() < 0.2 and isinstance(held, dict):
        table = random.choice(["model", "data", "loss"])
        held[table] = {random.choice(["build", "load", "path", "name"]): random.choice([*TEXTS, "code.py:ran"])}
    text = _toml(held) if isinstance(held, dict) else str(held)
    raw = text.encode("utf-8", "surrogatepass")
    made = {name: serialised(random, name, each) for name, each in (files | data).items()}
    made |= {"cocos.toml": mutations.damaged(random, raw) if random.random() < 0.3 else raw, "code.py": CODE}
    _write(random, folder / "model", made)
    return folder / "model"


def _toml(held: dict) -> str:
    lines = []
    for table, content in held.items():
        lines.append(f"[{table}]" if isinstance(content, dict) else f"{table} = {_inline(content)}")
        lines += [f"{_inline(k)} = {_inline(v)}" for k, v in content.items()] if isinstance(content, dict) else []
    return "\n".join(lines)


def _inline(value) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_inline(key)} = {_inline(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return '""' if value is None else json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")
