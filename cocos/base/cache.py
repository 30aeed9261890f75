"""The embeddings cache: rows that a frozen encoder gave, on disk under a key of everything they depend on.

One file holds the rows of one split under one model; its name is the sha256 of what the rows depend on, so that a
changed input never meets the rows of another. Files are safetensors, written whole or not at all; several processes
may share a folder.

Anyone who knows a model and its data can compute the key. Rows are therefore read only from files and a folder that
nobody but this user can have written, as the compiled kernel is.
"""

import functools
import hashlib
import json
import logging
import os
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cocos.base import reading, tensor_files, writing
from cocos.base.errors import InputError, unreachable

# Values of COCOS_CACHE that switch the cache off.
SWITCHED_OFF = ("off", "0")
# Bytes of the header of a file: what the rows depend on, as text.
MAX_HEADER = 2**20
# What a file can be that is no longer what was written, or never was.
DAMAGES = (ValueError, RecursionError, RuntimeError, TypeError, MemoryError)
# Room of the package whose code decides what an encoder returns.
ENCODING_ROOM = Path(__file__).parents[1] / "checkpoints"
# Distributions that decide what an encoder returns, where they are installed.
ENCODING_PACKAGES = ("torch", "numpy", "pillow", "transformers", "tokenizers", "timm")

logger = logging.getLogger(__name__)


def folder() -> Path | None:
    """Return the folder of the cache: $COCOS_CACHE, or one in the cache folder of the platform; None if it is off.

    A relative XDG_CACHE_HOME is ignored, as its specification demands.
    """
    given = os.environ.get("COCOS_CACHE", "").strip()
    if given:
        return None if given.lower() in SWITCHED_OFF else Path(given)
    home = Path(os.path.expanduser("~"))
    usual = {"darwin": home / "Library" / "Caches", "win32": Path(os.environ.get("LOCALAPPDATA", home))}
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = base if base.is_absolute() else usual.get(sys.platform, home / ".cache")
    return base / "cocos" / "embeddings" if base.is_absolute() else None


@functools.cache
def _identity_of_code() -> dict[str, str]:
    """Identity of the code that encodes: sha256 of this package, versions of the others."""
    found = hashlib.sha256()
    for path in sorted(ENCODING_ROOM.rglob("*.py")):
        found.update(path.read_bytes())
    versions = {}
    for name in ENCODING_PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {"code": found.hexdigest(), "versions": " ".join(f"{name} {each}" for name, each in versions.items())}


def _key(about: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _header(path: Path) -> tuple[dict[str, str], tuple[int, int], int]:
    """Read the metadata of a file, the shape of its rows and where they begin."""
    if not reading.private(path):
        raise ValueError("a link, or others can write to it")
    with open(path, "rb") as stream:
        found = tensor_files.header(stream, os.fstat(stream.fileno()).st_size, MAX_HEADER)
    dtype, shape, *_ = found.places.get("rows", (None, ()))
    if len(found.places) != 1 or dtype != torch.float32 or len(shape) != 2:
        raise ValueError(
            f"{', '.join(map(repr, found.places))[:80] or 'no rows'} in its header, of shape {str(shape)[:40]}"
        )
    return found.metadata, (shape[0], shape[1]), found.begin


def _bytes(rows: Tensor) -> memoryview:
    values: Any = rows.numpy()
    return memoryview(values.reshape(-1)).cast("B")


def _read(path: Path, about: Mapping[str, str], number: int) -> Tensor:
    """Read the rows of a file, (number, width), in float32."""
    said, shape, begin = _header(path)
    if json.loads(said.get("about", "null")) != about:
        raise ValueError("rows of something else")
    if shape[0] != number:
        raise ValueError(f"{shape[0]} rows, expected {number}")
    rows = torch.empty(shape, dtype=torch.float32)
    with open(path, "rb") as stream:
        stream.seek(begin)
        tensor_files.fill(stream, rows)
    if hashlib.sha256(_bytes(rows)).hexdigest() != said.get("sha256"):
        raise ValueError("rows that are not those that were written")
    return rows


def _write(path: Path, rows: Tensor, about: Mapping[str, str]) -> None:
    """Write rows to a file, atomically."""
    content = _bytes(rows)
    said = {"about": json.dumps(about), "sha256": hashlib.sha256(content).hexdigest()}
    about_rows = {"dtype": "F32", "shape": list(rows.shape), "data_offsets": [0, len(content)]}
    header = json.dumps({"__metadata__": said, "rows": about_rows}).encode()
    header = header.ljust(-len(header) % 8 + len(header))
    with writing.replacing(path) as temporary, open(temporary, "wb") as stream:
        temporary.chmod(0o600)
        stream.write(struct.pack("<Q", len(header)) + header)
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


class _Kept:
    """The file of one key."""

    def __init__(self, where: Path | None, about: Mapping[str, str]):
        self.where, self.about, self.key = where, about, _key(about)
        if where is not None and (why := distrusted(where)):
            logger.warning("note: cache %s is not used: %s", where, why)
            self.where = None

    def whole(self, number: int) -> Tensor | None:
        """Read all rows; None if they are not there, or damaged, which is noted."""
        if self.where is None:
            return None
        path = self.where / f"{self.key}.safetensors"
        try:
            return _read(path, self.about, number)
        except OSError:
            return None
        except DAMAGES as error:
            why = " ".join(str(error).split())[:120] or type(error).__name__
            logger.warning("note: cache: %s is damaged (%s) and is encoded anew", path, why)
            return None

    def keep(self, rows: Tensor) -> None:
        """Write all rows; a file that cannot be written is a note."""
        if self.where is None:
            return
        try:
            self.where.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(self.where / f"{self.key}.safetensors", rows, self.about)
        except OSError as error:
            logger.warning("note: cache %s: it cannot be written (%s); nothing is kept", self.where, unreachable(error))


@dataclass(frozen=True, eq=False)
class Work:
    """How rows are encoded.

    Args:
        sizes: number of rows of each chunk.
        encode: chunk -> its rows, (sizes[chunk], D).
        order: (N,) row that is encoded at each place; None: in their own order.
    """

    sizes: Sequence[int]
    encode: Callable[[int], Tensor]
    order: Tensor | None = None


def embeddings(
    about: Mapping[str, str],
    total: int,
    begin: Callable[[], Work],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Return the rows of an encoder from the cache, or encode and keep them.

    Args:
        about: what the rows depend on: hashes of model and data, device and the like. The version of the code is
            added. Empty: nothing is kept.
        total: N, number of rows.
        begin: builds the encoder; it is called only if rows are missing.
        progress: called with (rows done, rows in all).

    Returns:
        (N, D), float32, on the CPU.
    """
    about = {**about, **_identity_of_code()} if about else {}
    kept = _Kept(folder() if about else None, about)
    if (whole := kept.whole(total)) is not None:
        return whole
    work, rows, done = begin(), torch.empty(0, 0, dtype=torch.float32), 0
    for chunk, size in enumerate(work.sizes):
        found = work.encode(chunk).detach().to("cpu", torch.float32)
        if not done:
            rows = torch.empty(total, found.shape[1], dtype=torch.float32)
        if found.shape[1] != rows.shape[1]:
            widths = f"{rows.shape[1]} and {found.shape[1]}"
            raise InputError(f"the encoder returned vectors of {widths} numbers, expected one width")
        rows[done : done + size] = found
        done += size
        if progress:
            progress(done, total)
    rows = rows if work.order is None else rows[work.order.argsort()]
    kept.keep(rows)
    return rows


def distrusted(where: Path) -> str:
    """Say why a folder is not used, because others can have written to it; empty if nothing speaks against it."""
    try:
        reading.private_folder(where)
    except FileNotFoundError:  # it will be made
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""
