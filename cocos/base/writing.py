"""Write files whole or not at all, and never over an input; texts for spreadsheets."""

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

from cocos.base.errors import InputError, unreachable

MAX_NAME_BYTES = 255  # longest file name in common file systems
# Names of the temporary files that `replacing` makes.
TEMPORARY_NAME = re.compile(r"\.cocos-[0-9a-f]{16}(\.\w+)?")
# Maximum number of files of a data folder that an output is compared with.
MOST_DATA_FILES = 10_000
# Maximum number of bytes of an earlier result that are searched for its origin.
MOST_SEARCHED_BYTES = 2**26
# Age in seconds from which a temporary file is one that a killed run left behind.
STALE_SECONDS = 3600.0


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """Give a temporary file beside `path` that replaces it when the block succeeds, and is removed otherwise."""
    # Remove the temporary files that killed runs left; a run in progress has younger ones.
    with suppress(OSError):  # a folder that cannot be listed, or files of others
        for entry in path.parent.glob(".cocos-*"):
            status = entry.lstat()
            is_temporary = stat.S_ISREG(status.st_mode) and TEMPORARY_NAME.fullmatch(entry.name)
            if is_temporary and time.time() - status.st_mtime > STALE_SECONDS:
                entry.unlink(missing_ok=True)
    # The name comes before the file: a signal between the two leaves nothing behind.
    temporary = path.parent / f".cocos-{secrets.token_hex(8)}{path.suffix}"
    try:
        temporary.touch(exist_ok=False)
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write(path: Path, content: bytes | memoryview, kind: str = "output") -> Path:
    """Write bytes to a temporary file, flush it to the disk, and move it into place; `kind` names it in a message.

    The libraries that make the bytes (HDF5, matplotlib) work in memory and never meet a full disk.
    """
    try:
        with replacing(path) as temporary, open(temporary, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise InputError(f"{kind} {path}: cannot be written ({unreachable(error)})") from None
    return path


def writable(folder: Path, name: str) -> None:
    """Refuse a folder in which no file can be made, before anything is computed."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass  # creating the file is the test
    except OSError as error:
        raise InputError(f"{name}: the folder {folder} cannot be written ({unreachable(error, made=True)})") from None


def output(path: Path | str, name: str = "output") -> Path:
    """Refuse a path at which no file can be written, before anything is computed; `name` is used in a message."""
    path = Path(path)
    if len(os.fsencode(path.name)) > MAX_NAME_BYTES:
        raise InputError(f"{name} {path}: the name is too long for a file")
    try:
        is_folder, has_parent = path.is_dir(), path.parent.is_dir()
    except OSError as error:
        raise InputError(f"{name} {path}: {unreachable(error)}") from None
    if is_folder:
        raise InputError(f"{name} {path} is a folder; name a file in it")
    if not has_parent:
        raise InputError(f"{name} {path}: there is no folder {path.parent}; create it first")
    writable(path.parent, f"{name} {path}")
    return path


def _is_same_file(first: Path, second: Path) -> bool:
    with suppress(OSError, ValueError):  # ValueError: a null character, in the name of a loss rather than a path
        return first.samefile(second)
    return False


def _made_here(path: Path) -> bool:
    """Whether an earlier run of cocos wrote this file: every kind of result contains the name in plain bytes."""
    with suppress(OSError, InputError), open(path, "rb") as stream:
        return b"cocos" in stream.read(MOST_SEARCHED_BYTES)
    return False


def apart(out: Path | None, *inputs: Path | str | None) -> None:
    """Refuse an output that is one of the inputs, under this name, another spelling, or a link of either kind.

    Args:
        out: path of the result; None: nothing is written.
        inputs: files that are read; a folder of training data stands for the files in it, None for no input.
    """
    if out is None or not os.path.exists(out):
        return
    out = Path(out)
    for path in (Path(name) for name in inputs if name is not None):
        if _is_same_file(out, path):
            raise InputError(f"output {out} is the input {path}, which it would destroy; write to another file")
        if not path.is_dir():
            continue
        inside = itertools.islice(itertools.chain(path.glob("*"), path.glob("*/*")), MOST_DATA_FILES)
        for entry in inside:
            if _is_same_file(out, entry) and (os.path.abspath(entry) != os.path.abspath(out) or not _made_here(out)):
                raise InputError(f"output {out} is a file of the data folder {path}; write to another file")
