"""Files are written whole or not at all, and never over what is being read."""

import itertools
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from cocos.errors import InputError, unreachable

__all__ = ["apart", "replacing", "writable", "write"]

TEMPORARY = re.compile(r"\.cocos-[0-9a-f]{16}(\.\w+)?")  # names that `replacing` gives
ENTRIES = 10_000  # files of a data folder that an output is compared with
MOST = 2**26  # bytes of an earlier result that are searched for its origin
STALE = 3600.0  # seconds after which a temporary file is one that a killed run left behind


def _sweep(folder: Path) -> None:
    """Remove the temporary files that killed runs left in a folder; another that is being written is younger."""
    with suppress(OSError):  # a folder that cannot be listed, or files of others
        for entry in folder.glob(".cocos-*"):
            about = entry.lstat()
            if TEMPORARY.fullmatch(entry.name) and stat.S_ISREG(about.st_mode) and time.time() - about.st_mtime > STALE:
                entry.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A temporary file beside `path` that takes its place when the block ends well, and goes away otherwise.

    Args:
        path: of the file to be.
    """
    _sweep(path.parent)
    # The name comes before the file: a signal between the two leaves nothing behind.
    temporary = path.parent / f".cocos-{secrets.token_hex(8)}{path.suffix}"
    try:
        temporary.touch(exist_ok=False)
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write(path: Path, content: bytes | memoryview, kind: str = "output") -> Path:
    """Write bytes to a file: under a temporary name, to the disk, then moved into place.

    What makes the bytes (HDF5, matplotlib) works in memory, and never meets a disk that is full.

    Args:
        path: of the file.
        content: all of it.
        kind: of file, for the sentence.

    Raises:
        InputError: the file cannot be written; one that was there is as it was.
    """
    try:
        with replacing(path) as temporary, open(temporary, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise InputError(f"{kind} {path}: cannot be written ({unreachable(error)})") from None
    return path


def writable(folder: Path, what: str) -> None:
    """Refuse a folder in which no file can be made, before anything is computed.

    Args:
        folder: that is there.
        what: is to be written, with its path, for the sentence.

    Raises:
        InputError: naming the folder and the reason.
    """
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{what}: the folder {folder} cannot be written ({unreachable(error)})") from None


def _same(one: Path, other: Path) -> bool:
    with suppress(OSError, ValueError):  # ValueError: a null character, in what is no path but the name of a loss
        return one.samefile(other)
    return False


def _made_here(path: Path) -> bool:
    """Whether an earlier run of cocos wrote this result: each kind carries the name in plain bytes."""
    with suppress(OSError), open(path, "rb") as stream:
        return b"cocos" in stream.read(MOST)
    return False


def apart(out: Path | None, *inputs: Path | str | None) -> None:
    """Refuse an output that is one of the inputs: by name, by another spelling of it, by a link of either kind.

    Args:
        out: where the result goes; None: nowhere.
        inputs: files that are read; a folder of training data stands for the files in it. None is no input.

    Raises:
        InputError: naming both.
    """
    if out is None or not os.path.exists(out):
        return
    out = Path(out)
    for each in (Path(each) for each in inputs if each is not None):
        if _same(out, each):
            raise InputError(f"output {out} is the input {each}, which it would destroy; write to another file")
        if not each.is_dir():
            continue
        inside = itertools.islice(itertools.chain(each.glob("*"), each.glob("*/*")), ENTRIES)
        for entry in inside:
            if _same(out, entry) and (os.path.abspath(entry) != os.path.abspath(out) or not _made_here(out)):
                raise InputError(f"output {out} is a file of the data folder {each}; write to another file")
