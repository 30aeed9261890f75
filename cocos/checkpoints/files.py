"""Files and folders of models, read without executing code from them.

The content of a file decides its kind, never the suffix. Tensors are read with `torch.load(weights_only=True)`,
safetensors and `numpy.load(allow_pickle=False)`.
"""

import argparse
import hashlib
import json
import os
import pathlib
import pickle
import pickletools
import re
import sys
import types
import warnings
import zipfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from cocos.base.errors import InputError, UnsafeFile, unreachable

TENSOR_KINDS = ("torch", "safetensors", "npz", "npy")
# Kinds that may be training data.
DATA_KINDS = ("text", "gzip", "unknown", "folder", "npz", "safetensors", "pickle")
# First pickle of a torch file before version 1.6, and the number of its pickles.
LEGACY_MAGIC, LEGACY_PICKLES = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", 5
# Largest header that the safetensors library accepts.
MAX_HEADER = 100_000_000
# Files in a model folder that do not change its embeddings: exports, training state, prose.
NOT_WEIGHTS = re.compile(
    r"(^|/)(onnx|openvino|coreml|runs|logs|checkpoint-\d+)/|\.(h5|onnx|msgpack|ot|tflite|md|png|jpe?g|log|py)$"
    r"|(^|/)(optimizer|scheduler|scaler|rng_state\w*|training_args)\.(pt|pth|bin)$"
)
# Modules of the standard library that contain only plain values.
VALUE_MODULES = ("collections", "datetime", "decimal", "enum", "fractions", "pathlib", "uuid")
EMBED_INSTEAD = (
    "encode your training data with the frozen model and save the embeddings: numpy.savez(FILE, query=..., "
    "candidate=..., query_group=..., candidate_group=...), or embeddings=..., labels=... of a labelled set, then "
    "`cocos count FILE`"
)
BUILD_INSTEAD = "or build its model: --model file.py:build"
# Files next to the weights of a Hugging Face model.
MODEL_FOLDER_FILES = ("modules.json", "tokenizer.json", "vocab.txt", "vocab.json", "preprocessor_config.json")
ADVICE = {
    "empty": "is empty (0 bytes); copy it again",
    "zip": "is a zip archive, but not of torch or numpy; unpack it and give the checkpoint or folder inside",
    "damaged zip": "is a truncated or damaged zip archive (a torch or npz file cut short?); copy it again",
    "torchscript": "is a TorchScript or torch.export program, which runs code when loaded; save tensors instead: "
    "torch.save(model.state_dict(), FILE)",
    "netcdf": "is an HDF5 or netCDF file; open a result of cocos with cocos.results.open, and convert other arrays: "
    "import h5py, numpy; arrays = h5py.File(FILE); numpy.savez('embeddings.npz', embeddings=arrays['NAME'][:], "
    "labels=arrays['LABELS'][:])",
    "faiss": "is a FAISS index; convert its vectors: import faiss, numpy; index = faiss.read_index(FILE); "
    "numpy.savez('embeddings.npz', embeddings=index.reconstruct_n(0, index.ntotal), labels=...)",
    "mteb": "contains results of MTEB and no vectors; encode its texts: cocos encode DATA --model MODEL --out "
    "embeddings.npz",
    "gzip": "is compressed with gzip; unpack it first",
    "pickle": f"is a plain Python pickle, which cocos does not load; {EMBED_INSTEAD}",
    "text": "is a text file, not a checkpoint (a failed download, or a Git LFS pointer?)",
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


NAMESPACES = (argparse.Namespace, types.SimpleNamespace)
# Plain values that training scripts save with the tensors: name in the pickle -> stand-in.
VALUES: dict[str, Any] = {
    "argparse.Namespace": argparse.Namespace,
    "types.SimpleNamespace": types.SimpleNamespace,
    **{f"{module}.PosixPath": pathlib.PurePosixPath for module in ("pathlib", "pathlib._local")},
    **{f"{module}.WindowsPath": pathlib.PureWindowsPath for module in ("pathlib", "pathlib._local")},
    "numpy.dtype": Dtype,
    "numpy.ndarray": Array,
    **{f"numpy.{module}.multiarray.scalar": read_scalar for module in ("core", "_core")},
    **{f"numpy.{module}.multiarray._reconstruct": Array for module in ("core", "_core")},
}
# Names of plain values in pickles.
ACCEPTED = {"collections.OrderedDict", "collections.Counter", "_codecs.encode"}
ACCEPTED |= {"copy_reg._reconstructor", "copyreg._reconstructor", "builtins.object", "__builtin__.object"}
ACCEPTED |= {f"{module}.{name}" for module in ("builtins", "__builtin__") for name in ("set", "bytearray", "complex")}


@dataclass(frozen=True)
class File:
    """A file or folder on disk.

    Raises:
        InputError: it does not exist or cannot be read.
    """

    path: Path

    def __post_init__(self):
        try:
            if not self.path.is_dir():
                open(self.path, "rb").close()
        except FileNotFoundError:
            raise InputError(f"{self.path}: there is no such file") from None
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({unreachable(error)})") from None

    @cached_property
    def kind(self) -> str:
        """The kind of the file: one of `TENSOR_KINDS`, a key of `ADVICE`, or `folder`."""
        if self.path.is_dir():
            return "folder"
        with open(self.path, "rb") as stream:
            head = stream.read(512)
        if head[:4] in {b"PK\x03\x04", b"PK\x05\x06"}:
            return archive_kind(self.path)
        if not head:
            return "empty"
        if head[0] == 0x80 and LEGACY_MAGIC in head[:32]:
            return "torch"
        if head.startswith(b"\x93NUMPY"):
            return "npy"
        if head.startswith((b"\x89HDF\r\n", b"CDF")):
            return "netcdf"
        if 2 <= int.from_bytes(head[:8], "little") <= MAX_HEADER and head[8:9] == b"{":
            return "safetensors"
        if head[:2] == b"Ix" and head[2:4].isalnum():
            return "faiss"
        if head[:1] == b"{" and b'"mteb_version"' in head:
            return "mteb"
        if head[:2] == b"\x1f\x8b":
            return "gzip"
        if head[0] == 0x80 or (head[:1] in b"c(]}" and is_old_pickle(self.path)):
            return "pickle"
        return "text" if all(byte >= 32 or byte in b"\t\n\r\f" for byte in head) else "unknown"

    @cached_property
    def content(self) -> Any:
        """The content of a torch or safetensors file; None for other kinds.

        Raises:
            InputError: the file is damaged.
            UnsafeFile: it requires code beyond tensors and plain values.
        """
        with reading(self):
            if self.kind == "safetensors":
                with safe_open(self.path, "pt") as tensors:
                    return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
            if self.kind == "torch":
                with (
                    warnings.catch_warnings(action="ignore"),
                    torch.serialization.safe_globals([(value, name) for name, value in VALUES.items()]),
                ):
                    return replace_stand_ins(torch.load(self.path, map_location="cpu", weights_only=True))
        return None

    @property
    def record(self) -> dict:
        """The dictionary in a torch file; empty for all other files."""
        content = self.content if self.kind == "torch" else None
        return content if isinstance(content, dict) else {}

    @cached_property
    def metadata(self) -> dict[str, str]:
        """The metadata of a safetensors file; empty for other kinds."""
        if self.kind != "safetensors":
            return {}
        with reading(self), safe_open(self.path, "pt") as tensors:
            return tensors.metadata() or {}

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays in an npz file; empty for other kinds."""
        if self.kind != "npz":
            return ()
        with zipfile.ZipFile(self.path) as archive:
            return tuple(name.removesuffix(".npy") for name in archive.namelist())

    @cached_property
    def wanted_names(self) -> list[str]:
        """The classes and functions that the pickles in the file require beyond tensors and plain values, in order."""
        names: list[str] = []
        with suppress(ValueError, OSError, zipfile.BadZipFile, NotImplementedError):  # a damaged pickle ends early
            for stream in pickle_streams(self.path):
                names += pickled_names(stream)
        names = [name for name in dict.fromkeys(names) if name not in VALUES and name not in ACCEPTED]
        return [name for name in names if not name.startswith("torch.") or name.startswith("torch.nn.modules.")]

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of a file; of a folder, SHA-256 of the names and hashes of the files that define its model."""
        if self.kind != "folder":
            with open(self.path, "rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        digest = hashlib.sha256()
        for name in self.names:
            if not NOT_WEIGHTS.search(name):
                digest.update(f"{name}\0{self.file(name).sha256}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the files in a folder and its subfolders, sorted, with `/`; hidden files are skipped."""
        names = []
        for folder, inner, files in os.walk(self.path):
            inner[:] = [name for name in inner if not name.startswith((".", "__pycache__"))]
            place = Path(folder).relative_to(self.path)
            names += [(place / name).as_posix() for name in files if not name.startswith(".")]
        return tuple(sorted(name for name in names if (self.path / name).is_file()))

    def __contains__(self, name: str) -> bool:
        return (self.path / name).is_file()

    def file(self, name: str) -> "File":
        """Open a file in the folder."""
        return File(self.path / name)

    def json(self, name: str) -> Any:
        """Read a JSON file in the folder; None if absent."""
        return read_json(self.path / name) if name in self else None


def archive_kind(path: Path) -> str:
    """Return the kind of a zip archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return "damaged zip"
    inner = {name.split("/", 1)[-1] for name in members}
    if any(name.endswith(".npy") for name in members):
        return "npz"
    if "constants.pkl" in inner or "archive_format" in inner or any(re.match("(code|models)/", name) for name in inner):
        return "torchscript"
    return "torch" if "data.pkl" in inner else "zip"


def is_old_pickle(path: Path) -> bool:
    """Return whether a file is a pickle of protocol 0 or 1, which has no mark at the start."""
    try:
        with open(path, "rb") as stream:
            return bool(list(pickled_names(stream)))  # to its end: a text may begin like a pickle
    except ValueError:
        return False


@contextmanager
def reading(file: File) -> Generator[None]:
    """Turn the exceptions of the libraries that read a file into one message."""
    try:
        yield
    except InputError:
        raise
    except pickle.UnpicklingError as error:
        if "Unsupported" in str(error) or "unsupported" in str(error):
            raise UnsafeFile(explain_refusal(file, str(error))) from None
        raise InputError(f"{file.path} is a damaged torch file; copy it again") from None
    except Exception as error:  # torch, numpy and zipfile raise almost anything for a damaged file
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise InputError(f"{file.path} is a damaged {file.kind} file ({reason}); copy it again") from None


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not readable as JSON ({str(error)[:100]}); copy it again") from None


def pickle_streams(path: Path) -> Iterator[IO[bytes]]:
    """Yield a stream at the start of each pickle of a torch file or plain pickle."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".pkl"):
                    with archive.open(name) as stream:
                        yield stream
    else:
        with open(path, "rb") as stream:
            for _ in range(LEGACY_PICKLES):
                yield stream


def pickled_names(stream: IO[bytes]) -> Iterator[str]:
    """Yield the names of the classes and functions in a pickle, without loading it."""
    texts: list[str | None] = []
    memo: dict[int, str | None] = {}
    for operation, argument, _ in pickletools.genops(stream):
        if operation.name in {"GLOBAL", "INST"}:
            yield argument.replace(" ", ".")
        elif operation.name == "STACK_GLOBAL":
            yield ".".join(map(str, texts[-2:]))
        elif operation.name == "MEMOIZE" or "PUT" in operation.name:
            memo[len(memo) if argument is None else argument] = texts[-1] if texts else None
        elif "GET" in operation.name:
            texts.append(memo.get(argument))
        elif isinstance(argument, str):
            texts.append(argument)


def explain_refusal(file: File, error: str) -> str:
    """Return the message for a file that requires code: the class, and the two lines that save the state dict."""
    names = file.wanted_names
    users = [name for name in names if not name.startswith("torch.")]
    reported = re.search(r"GLOBAL (\S+)", error)
    name = (users or names or [reported[1].rstrip(".") if reported else "an instruction that torch does not accept"])[0]
    module = name.partition(".")[0]
    if module == "__builtin__" or (module in sys.stdlib_module_names and module not in VALUE_MODULES):
        return (
            f"{file.path} is refused as unsafe: loading it would run {name}. Nothing was run; do not load it with "
            "another tool, and ask its author for a file of tensors"
        )
    if not names:
        return f"{file.path} is refused: it contains {name}; save it again with torch.save(content, FILE)"
    output = file.path.with_name(f"{file.path.stem}_weights.pt").name
    weights = "content['state_dict']"
    if any(name.startswith("torch.nn.") for name in names):  # the whole model, or a dictionary that contains it
        weights = "(content['model'] if isinstance(content, dict) else content).state_dict()"
    return (
        f"{file.path} contains an object of class {name}, whose code cocos does not run. If you trust the file, save "
        f"its tensors where the class is installed: content = torch.load({str(file.path)!r}, weights_only=False); "
        f"torch.save({weights}, {output!r})"
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
    if isinstance(value, NAMESPACES):
        return type(value)(**{str(key): replace_stand_ins(item) for key, item in vars(value).items()})
    return value


def plain(value: Any) -> Any:
    """Convert to JSON data. A tensor or array of one number becomes that number, a larger one a text."""
    if isinstance(value, Tensor):
        value = value.numpy(force=True) if value.numel() == 1 and value.dtype != torch.bfloat16 else value
    if isinstance(value, Tensor | np.ndarray | np.generic):
        if isinstance(value, Tensor) or value.size != 1 or value.dtype.kind not in "biufU":
            return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return value if abs(value) < 2**63 else str(value)  # also NaN and infinity
    if isinstance(value, NAMESPACES):
        value = vars(value)
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return f"{len(value)} bytes" if isinstance(value, bytes | bytearray) else str(value)


def describe(file: File) -> str:
    """Return the message for a file or folder without a known format: its kind and the next step.

    Raises:
        UnsafeFile: it requires code.
    """
    path = file.path
    if file.kind == "folder":
        files = ", ".join(name[:60] for name in file.names[:8]) or "no files"
        return f"{path} is a folder without a known model ({files}); name a checkpoint or a file of embeddings in it"
    if file.kind == "pickle" and file.wanted_names:
        raise UnsafeFile(explain_refusal(file, ""))
    if file.kind == "npy":
        array = f"numpy.load({str(path)!r})"
        return (
            f"{path} is one numpy array; save both sides in one file, numpy.savez('embeddings.npz', query={array}, "
            f"candidate=...), or a matrix of scores, numpy.savez('scores.npz', scores={array}, positive=...)"
        )
    if file.kind in ADVICE:
        return f"{path} {ADVICE[file.kind]}"
    if file.kind == "npz":
        arrays = ", ".join(name[:40] for name in file.arrays[:8])
        return f"{path} has no array 'query', 'candidate' or 'embeddings' (arrays: {arrays}); {EMBED_INSTEAD}"
    content = file.content
    if not isinstance(content, dict):
        return f"{path} contains a {type(content).__name__}, expected named tensors; {EMBED_INSTEAD}"
    tensors = [str(key)[:40] for key, value in content.items() if isinstance(value, Tensor)]
    if tensors and any((path.parent / name).is_file() for name in MODEL_FOLDER_FILES):
        return f"{path} contains only the weights of the model in {path.parent}; name the folder: {path.parent}"
    if tensors and len(tensors) == len(content):
        parts = ", ".join(list(dict.fromkeys(key.split(".")[0] for key in tensors))[:6])
        return (
            f"{path} is a bare state dict of {len(tensors)} tensors ({parts}) without its architecture and data; "
            f"{EMBED_INSTEAD}, {BUILD_INSTEAD}"
        )
    keys = ", ".join(str(key)[:40] for key in list(content)[:8])
    return f"{path} is a training checkpoint of an unknown architecture (keys {keys}); {EMBED_INSTEAD}, {BUILD_INSTEAD}"
