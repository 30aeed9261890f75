"""A file on disk: its bytes, never mapped; its kind, by its content; and its content without running any of it."""

import hashlib
import io
import pickle
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from cocos.base import tensor_files
from cocos.base.errors import InputError, unreachable
from cocos.checkpoints.files.operations import TooMuch, names
from cocos.checkpoints.files.pickles import Pickles

TORCH_KINDS = frozenset({"torch", "torch legacy"})  # written by torch.save, as a zip archive or before torch 1.6
PROGRAM_KINDS = frozenset({"torchscript", "pt2"})  # written by torch.jit.save and torch.export.save
TENSOR_KINDS = TORCH_KINDS | {"safetensors", "npz", "npy"}  # kinds that can hold tensors or arrays
LEGACY_MAGIC = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # a number, the first pickle of torch files before 1.6
# Bytes of the longest header for which a file counts as safetensors; the library's own limit.
MAX_RECOGNISED_HEADER = 100_000_000


class Stream(io.BufferedReader):
    """A stream without a file descriptor: torch then neither maps it nor takes it for a tar archive."""

    def fileno(self) -> int:
        """Refuse."""
        raise io.UnsupportedOperation("fileno")


@dataclass(frozen=True)
class File:
    """A file on disk."""

    path: Path

    def __post_init__(self):
        try:
            folder, there = self.path.is_dir(), self.path.exists()
        except OSError as error:
            raise InputError(f"{self.path}: {unreachable(error)}") from None
        if folder:
            raise InputError(f"{self.path} is a folder; name a checkpoint file or a file of embeddings in it")
        if not there:
            raise InputError(f"{self.path}: there is no such file")
        try:
            self.stream().close()
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}") from None

    @cached_property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def stream(self) -> IO[bytes]:
        """Open a stream at the beginning of the file."""
        return Stream(open(self.path, "rb").detach())

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the bytes, in hexadecimal."""
        with self.stream() as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    @contextmanager
    def archive(self) -> Generator[zipfile.ZipFile]:
        """Open the file as a zip archive."""
        with self.stream() as stream, zipfile.ZipFile(stream) as archive:
            yield archive

    @cached_property
    def members(self) -> dict[str, zipfile.ZipInfo] | None:
        """Members of a zip archive, by name; None for any other file, or a damaged one."""
        try:
            with self.archive() as archive:
                return {info.filename: info for info in archive.infolist()}
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
            return None

    @cached_property
    def kind(self) -> str:
        """Kind of the file, one word, such as `torch` or `npz`."""
        return _kind_of(self)

    @property
    def is_torch(self) -> bool:
        """Whether `torch.save` wrote the file."""
        return self.kind in TORCH_KINDS

    @cached_property
    def pickles(self) -> Pickles:
        """The pickles in the file."""
        return Pickles(self)

    @cached_property
    def content(self):
        """Content of a torch or safetensors file, loaded without running any of it; None for other kinds.

        Raises:
            InputError: the file is damaged, or holds objects of unknown classes (they are named).
            UnsafeFile: it asks for code to be run.
        """
        if self.kind == "safetensors":
            return self._safe(tensor_files.tensors)
        return self.pickles.load() if self.is_torch else None

    @property
    def record(self) -> dict:
        """Content of a torch file that is a dictionary; empty for any other file."""
        content = self.content if self.is_torch else None
        return content if isinstance(content, dict) else {}

    @cached_property
    def metadata(self) -> dict[str, str]:
        """Metadata strings of a safetensors file; empty for other kinds."""
        return self._safe(tensor_files.header).metadata if self.kind == "safetensors" else {}

    def _safe(self, read: Callable[[IO[bytes], int], Any]) -> Any:
        """Read a part of a safetensors file."""
        with self.stream() as stream:
            try:
                found = read(stream, self.size)
            except ValueError as error:
                raise InputError(f"{self.path} is a damaged safetensors file: {error}") from error
        return found


def _kind_of(file: File) -> str:
    """Name the kind of a file, such as `torch`, `safetensors`, `npz`, `empty` or `unknown`."""
    with file.stream() as stream:
        head = stream.read(512)
    if not head:
        return "empty"
    if head[:4] in {b"PK\x03\x04", b"PK\x05\x06"}:
        return "damaged zip" if file.members is None else _kind_of_archive(set(file.members))
    if head[0] == 0x80 and LEGACY_MAGIC in head[:32]:
        return "torch legacy"
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if head.startswith((b"\x89HDF\r\n", b"CDF")):
        return "netcdf"
    if 2 <= int.from_bytes(head[:8], "little") <= MAX_RECOGNISED_HEADER and head[8:9] == b"{":
        return "safetensors"
    if head[257:262] == b"ustar":
        return "tar"
    if head[:2] == b"\x1f\x8b":
        return "gzip"
    if (head[0] == 0x80 and len(head) > 1 and head[1] <= pickle.HIGHEST_PROTOCOL) or _unmarked_pickle(file, head):
        return "pickle"
    return "text" if all(byte >= 32 or byte in b"\t\n\r\f" for byte in head) else "unknown"


def _kind_of_archive(members: set[str]) -> str:
    inner = {name.split("/", 1)[-1] for name in members}
    exported = any(name.startswith("models/") for name in inner)
    if any(name.endswith(".npy") for name in members):
        return "npz"
    if "constants.pkl" in inner or any(name.startswith("code/") for name in inner):
        return "torchscript"
    if "data.pkl" in inner and not exported:
        return "torch"
    return "pt2" if exported or "archive_format" in inner else "zip"


def _unmarked_pickle(file: File, head: bytes) -> bool:
    """Pickles of protocols 0 and 1 have no mark: one must parse to its end and import something.

    A table whose first column is a `caption` begins as one, and stops being one at its second line.
    """
    if head[:1] not in {b"c", b"(", b"]", b"}"}:
        return False
    try:
        with file.stream() as stream:
            return sum(1 for _ in names(stream)) > 0
    except TooMuch:
        return True
    except ValueError:
        return False
