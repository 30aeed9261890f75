"""The kind of a file, one word, decided by its content and never by its suffix."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from cocos.checkpoints.files.imports import names

if TYPE_CHECKING:
    from cocos.checkpoints.files.file import File

__all__ = ["PROGRAM_KINDS", "TENSOR_KINDS", "TORCH_KINDS", "kind_of"]

TORCH_KINDS = frozenset({"torch", "torch legacy"})  # written by torch.save, as a zip archive or before torch 1.6
PROGRAM_KINDS = frozenset({"torchscript", "pt2"})  # written by torch.jit.save and torch.export.save
TENSOR_KINDS = TORCH_KINDS | {"safetensors", "npz", "npy"}  # kinds that can hold tensors or arrays
LEGACY_MAGIC = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # a number, the first pickle of torch files before 1.6
# Bytes of the longest header for which a file counts as safetensors; the library's own limit.
MAX_RECOGNISED_HEADER = 100_000_000


def kind_of(file: File) -> str:
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
    """Pickles of protocols 0 and 1 have no mark: one must parse to its end and import something."""
    if head[:1] not in {b"c", b"(", b"]", b"}"}:
        return False
    try:
        with file.stream() as stream:
            return any(True for _ in names(stream))
    except ValueError:
        return False
