"""Files and folders of models, read without executing code; the content decides the kind, never the suffix."""

import hashlib
import json
import math
import os
import pathlib
import pickle
import re
import warnings
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from cocos.base.errors import InputError, UnsafeFile, unreachable
from cocos.data import tables

TENSOR_KINDS = ("torch", "safetensors", "npz", "npy")
# Kinds that may be training data.
DATA_KINDS = ("text", "gzip", "unknown", "folder", "npz", "safetensors", "pickle")
# First pickle of a torch file before version 1.6.
LEGACY_MAGIC = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
# Beginnings of files -> their kinds.
MAGIC = {b"\x93NUMPY": "npy", b"\x89HDF\r\n": "netcdf", b"CDF": "netcdf", b"Ix": "faiss", b"\x1f\x8b": "gzip"}
MAX_HEADER = 100_000_000  # bytes of a header that the safetensors library accepts
# Files in a model folder that define its embeddings.
MODEL_SUFFIXES = (".json", ".txt", ".model", ".safetensors", ".bin", ".pt", ".pth")
# Modules whose functions run commands or other code.
RUNNERS = ("builtins", "__builtin__", "functools", "importlib", "nt", "operator", "os", "posix", "runpy", "subprocess")
# Keys of the weights in training scripts, in the order of the search.
KNOWN_KEYS = ("state_dict", "model", "model_state_dict", "net", "state_dict_backbone", "model_state", "network")
# Beginnings of keys that contain the state of the training.
NOT_OF_THE_MODEL = ("optim", "lr_sched", "scheduler", "loops", "callbacks", "amp", "scaler", "grad_scaler")
# Prefixes of DataParallel, torch.compile, FSDP and activation checkpointing, anywhere in a name.
WRAPPERS = re.compile(r"(?:^|(?<=\.))(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
MAX_DEPTH = 8  # nested containers that are read
WEIGHT_FILE = re.compile(r"(model(-\d+-of-\d+)?\.safetensors|pytorch_model(-\d+-of-\d+)?\.bin)$")
EMBED_INSTEAD = (
    "encode your training data with the frozen model and save the embeddings: numpy.savez(FILE, query=..., "
    "candidate=...), or embeddings=..., labels=..., then `cocos count FILE`"
)
ADVICE = {
    "netcdf": "is an HDF5 file; open a result with cocos.results.open, and convert arrays: arrays = h5py.File(FILE); "
    "numpy.savez('embeddings.npz', embeddings=arrays['NAME'][:], labels=arrays['LABELS'][:])",
    "faiss": "is a FAISS index; convert it: index = faiss.read_index(FILE); numpy.savez('embeddings.npz', "
    "embeddings=index.reconstruct_n(0, index.ntotal), labels=...)",
    "gzip": "is compressed with gzip; unpack it first",
    "text": "is empty or text, not a checkpoint, vectors or scores (a failed download, a Git LFS pointer?); convert "
    "vectors: numpy.savez('embeddings.npz', embeddings=numpy.loadtxt(FILE, usecols=range(FIRST, LAST)), labels=...)",
    "unknown": "is not a torch, safetensors or npz file",
}


class Dtype:
    """A pickled numpy dtype of numbers or text, checked because numpy trusts its pickles."""

    def __init__(self, code: str = "", *_: Any):
        self.dtype = np.dtype(code)
        if self.dtype.kind not in "biufcU" or not self.dtype.itemsize:
            raise ValueError(f"an array of Python objects or records (dtype {code!r})")

    def __setstate__(self, state: tuple):
        if any(part is not None for part in state[2:5]):
            raise ValueError("an array of records")
        self.dtype = self.dtype.newbyteorder(state[1])


class Array:
    """A pickled numpy array of numbers or text."""

    value: np.ndarray | None = None

    def __init__(self, *_: Any): ...

    def __setstate__(self, state: tuple):
        _, shape, kind, fortran, raw = state
        self.value = np.frombuffer(raw, kind.dtype).reshape(shape, order="F" if fortran else "C").copy()


def read_scalar(kind: Dtype, raw: bytes) -> Any:
    """Return a pickled numpy scalar as a Python number or text."""
    return np.frombuffer(raw, kind.dtype)[0].item()


# Plain values that training scripts save with the tensors: name in the pickle -> stand-in.
VALUES: dict[str, Any] = {
    "argparse.Namespace": Namespace,
    **{f"{module}.PosixPath": pathlib.PurePosixPath for module in ("pathlib", "pathlib._local")},
    **{f"{module}.WindowsPath": pathlib.PureWindowsPath for module in ("pathlib", "pathlib._local")},
    "numpy.dtype": Dtype,
    "numpy.ndarray": Array,
    **{f"numpy.{module}.multiarray.scalar": read_scalar for module in ("core", "_core")},
    **{f"numpy.{module}.multiarray._reconstruct": Array for module in ("core", "_core")},
}


@dataclass(frozen=True)
class File:
    """A file or folder on disk, which must be readable."""

    path: Path

    def __post_init__(self):
        try:
            if not self.path.is_dir():
                open(self.path, "rb").close()
        except FileNotFoundError:
            raise InputError(f"{self.path}: file not found") from None
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({unreachable(error)})") from None

    @cached_property
    def kind(self) -> str:
        """The kind of the file: one of `TENSOR_KINDS`, a key of `ADVICE`, `pickle` or `folder`."""
        if self.path.is_dir():
            return "folder"
        with open(self.path, "rb") as stream:
            head = stream.read(512)
        if head.startswith(b"PK"):  # a zip archive, by the name of its first member
            return "npz" if head[30 : 30 + int.from_bytes(head[26:28], "little")].endswith(b".npy") else "torch"
        if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= MAX_HEADER:
            return "safetensors"
        if head.startswith(b"\x80"):
            return "torch" if LEGACY_MAGIC in head[:32] else "pickle"
        is_text = all(byte >= 32 or byte in b"\t\n\r\f" for byte in head)
        by_magic = (kind for magic, kind in MAGIC.items() if head.startswith(magic))
        return next(by_magic, "text" if is_text else "unknown")

    @cached_property
    def content(self) -> Any:
        """The content of a torch or safetensors file; None for other kinds. A file that requires code is refused."""
        values = [(value, name) for name, value in VALUES.items()]
        with tables.readable(self.path), warnings.catch_warnings(action="ignore"):
            if self.kind == "safetensors":
                with safe_open(self.path, "pt") as tensors:
                    return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
            if self.kind == "torch":
                try:
                    with torch.serialization.safe_globals(values):
                        return replace_stand_ins(torch.load(self.path, map_location="cpu", weights_only=True))
                except pickle.UnpicklingError as error:
                    if "unsupported" in str(error).lower():
                        raise UnsafeFile(explain_refusal(self.path, str(error))) from None
                    raise
        return None

    @property
    def record(self) -> dict:
        """The dictionary in a torch file; empty for all other files."""
        content = self.content if self.kind == "torch" else None
        return content if isinstance(content, dict) else {}

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of a safetensors file; empty for other kinds."""
        if self.kind != "safetensors":
            return {}
        with tables.readable(self.path), safe_open(self.path, "pt") as tensors:
            return tensors.metadata() or {}

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays in an npz file, or of the entries of a dictionary in another file."""
        if self.kind == "npz":
            with tables.readable(self.path), np.load(self.path) as archive:
                return tuple(archive.files)
        return tuple(self.content) if isinstance(self.content, dict) else ()

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of a file; of a folder, SHA-256 of the names and hashes of the files that define its model."""
        if self.kind != "folder":
            with open(self.path, "rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        digest = hashlib.sha256()
        for name in self.names:
            if name.endswith(MODEL_SUFFIXES):
                digest.update(f"{name}\0{self.file(name).sha256}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the files in a folder and its subfolders, sorted, with `/`; hidden files are skipped."""
        paths = (path.relative_to(self.path) for path in self.path.rglob("*") if path.is_file())
        return tuple(sorted(path.as_posix() for path in paths if not any(part[0] == "." for part in path.parts)))

    def __contains__(self, name: str) -> bool:
        return (self.path / name).is_file()

    def file(self, name: str) -> "File":
        """Open a file in the folder."""
        return File(self.path / name)

    def json(self, name: str) -> Any:
        """Read a JSON file in the folder; None if absent."""
        if name not in self:
            return None
        with tables.readable(self.path / name):
            return json.loads((self.path / name).read_bytes())


def explain_refusal(path: Path, error: str) -> str:
    """Return the message for a file that torch refuses: its first class, and the two lines that save the state dict."""
    match = re.search(r"GLOBAL (\S+)", error)
    name, output = match[1].rstrip(".") if match else "", f"{path.stem}_weights.pt"
    if match is None or name.partition(".")[0] in RUNNERS:
        return f"{path} is refused as unsafe: loading it would run {name or 'its pickle protocol'}; ask for tensors"
    return (
        f"{path}: contains unsafe class {name}, expected tensors only. If you trust the file, save its tensors "
        f"where the class is installed: content = torch.load({str(path)!r}, weights_only=False); "
        f"torch.save(content['state_dict'] if isinstance(content, dict) else content.state_dict(), {output!r})"
    )


def replace_stand_ins(value: Any) -> Any:
    """Rebuild loaded content with arrays in place of stand-ins and tensors without attributes."""
    if isinstance(value, Array | Dtype):
        return value.value if isinstance(value, Array) else value.dtype
    if isinstance(value, Tensor):
        return Tensor.detach(value)
    if isinstance(value, dict):
        return {replace_stand_ins(key): replace_stand_ins(item) for key, item in dict.items(value)}
    if type(value) in {list, tuple, set}:
        return type(value)(map(replace_stand_ins, value))
    if isinstance(value, Namespace):
        return type(value)(**{str(key): replace_stand_ins(item) for key, item in vars(value).items()})
    return value


def plain(value: Any) -> Any:
    """Convert to JSON data. A tensor or array of one number becomes that number, a larger one a text."""
    if isinstance(value, Tensor | np.ndarray):
        if math.prod(value.shape) != 1 or value.dtype == torch.bfloat16:
            return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        value = value.item()
    value = value.item() if isinstance(value, np.generic) else vars(value) if isinstance(value, Namespace) else value
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, int | float) and not abs(value) < 2**63:  # also NaN and infinity
        return str(value)
    return value if isinstance(value, int | float | str | None) else str(value)[:100]


def describe(file: File) -> str:
    """Return the message for a file or folder without a known format; refuse one that requires code."""
    path, names = file.path, ", ".join(str(name)[:40] for name in file.arrays[:8])
    if file.kind == "folder":
        return f"{path} is a folder without a known model ({', '.join(file.names[:8])}); name a checkpoint in it"
    if file.kind == "pickle":
        raise UnsafeFile(f"{path} is a plain Python pickle, which can run code and is not loaded; {EMBED_INSTEAD}")
    if file.kind in ADVICE:
        return f"{path} {ADVICE[file.kind]}"
    if {"modules.json", "config.json"} & set(os.listdir(path.parent)):
        return f"{path} contains only the weights of a model; name its folder: {path.parent}"
    problem = f"has no array 'query' or 'embeddings', and no weights of a known architecture ({names})"
    return f"{path} {problem}; {EMBED_INSTEAD}, or --model file.py:build"


def walk(value: Any, path: tuple[str, ...] = (), siblings: frozenset[str] = frozenset()) -> Iterator[tuple]:
    """Yield (keys, value, keys next to it) in nested containers, without lists of numbers and states of optimizers."""
    value = vars(value) if isinstance(value, Namespace) else value
    if isinstance(value, dict):
        entries, siblings = list(value.items()), frozenset(map(str, value))
    elif isinstance(value, list | tuple):
        entries = [(index, item) for index, item in enumerate(value) if not isinstance(item, int | float | str)]
    else:
        yield path, value, siblings
        return
    for key, item in entries if len(path) < MAX_DEPTH else ():
        if path or not str(key).lower().startswith(NOT_OF_THE_MODEL):
            yield from walk(item, (*path, str(key)), siblings)


def state_dicts(content: Any, depth: int = 0) -> Iterator[dict[str, Tensor]]:
    """Yield the state dicts in the content of a file, those under known keys first, without prefixes of wrappers."""
    values = content if isinstance(content, list | tuple) else []
    if isinstance(content, dict):
        tensors = {key: value for key, value in content.items() if isinstance(key, str) and isinstance(value, Tensor)}
        if any(tensor.ndim for tensor in tensors.values()):
            bare = {WRAPPERS.sub("", name): tensor for name, tensor in tensors.items()}
            yield bare if len(bare) == len(tensors) else tensors  # two names would become one
        keys = [key for key in KNOWN_KEYS if key in content]
        keys += [key for key in content if key not in KNOWN_KEYS and not str(key).lower().startswith(NOT_OF_THE_MODEL)]
        values = [content[key] for key in keys]
    for value in values if depth < MAX_DEPTH else ():
        yield from state_dicts(value, depth + 1)


def weight_files(folder: File) -> list[str]:
    """Return the names of the weight files in a folder and its subfolders; only the safetensors files if both exist."""
    files: dict[str, list[str]] = {}
    for name in folder.names:
        if match := WEIGHT_FILE.search(name):
            files.setdefault(name[: match.start()], []).append(name)
    safe = {prefix: [name for name in names if name.endswith(".safetensors")] for prefix, names in files.items()}
    return [name for prefix, names in files.items() for name in safe[prefix] or names]
