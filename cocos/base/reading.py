"""Open the files of others: regular files alone, since a pipe or device can keep a reader waiting without end.

Every file that a user names, or that lies in a folder, is opened here. A file of a cache must moreover be `private`.
"""

import errno
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from cocos.base.errors import InputError

# Bytes of the longest file name that common file systems accept.
NAME_BYTES = 255
# What else a path can be, by the test of its mode.
IRREGULAR: dict[str, Callable[[int], bool]] = {
    "pipe": stat.S_ISFIFO,
    "socket": stat.S_ISSOCK,
    "device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
}


def _refuse(path: Any, mode: int) -> None:
    """Refuse a pipe, a socket or a device; a folder is left to the reader, who says what he expects."""
    kind = next((kind for kind, test in IRREGULAR.items() if test(mode)), None)
    if kind is not None:
        raise InputError(
            f"{os.fsdecode(path)} is no regular file but a {kind}; write its content to a file first, and name that"
        )


def regular(path: Path | str) -> Path:
    """Return a path that a library may open by itself: that of a regular file, links followed, or of a folder.

    Raises:
        InputError: it is a pipe, a socket or a device.
        OSError: there is nothing, or it cannot be reached.

    Examples:
        >>> try:
        ...     cocos.base.reading.regular("/dev/null")
        ... except cocos.InputError as error:
        ...     print(str(error).partition(";")[0])
        /dev/null is no regular file but a device
    """
    _refuse(path, os.stat(path).st_mode)
    return Path(path)


def _descriptor(path: str, flags: int) -> int:
    """Open a file for `stream`: opening neither waits for the writer of a pipe nor touches a device."""
    regular(path)  # opening a device may already do something, such as rewinding a tape
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    try:
        _refuse(path, os.fstat(descriptor).st_mode)  # of the file that was opened, whatever the path leads to by now
    except InputError:
        os.close(descriptor)
        raise
    return descriptor


def stream(path: Path | str) -> io.BufferedReader:
    """Open a regular file to read its bytes.

    Raises:
        InputError: it is a pipe, a socket or a device.
        OSError: it is a folder, is not there, or cannot be read.

    Examples:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "some.txt")
        >>> _ = path.write_text("ntxent")
        >>> with cocos.base.reading.stream(path) as file:
        ...     file.read()
        b'ntxent'
    """
    return open(path, "rb", opener=_descriptor)


def state(about: os.stat_result) -> tuple[int, ...]:
    """Identify a file and its state: device, inode, bytes, times of change."""
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def written(stream: IO[bytes], enough: int) -> int:
    """Count the bytes of a file on disk, up to enough; holes that were never written read as zeros."""
    size = os.fstat(stream.fileno()).st_size
    if size <= enough or not hasattr(os, "SEEK_DATA"):
        return size
    found = end = 0
    place = os.lseek(stream.fileno(), 0, os.SEEK_CUR)
    try:
        while found <= enough:
            start = os.lseek(stream.fileno(), end, os.SEEK_DATA)
            end = os.lseek(stream.fileno(), start, os.SEEK_HOLE)
            found += end - start
    except OSError as error:
        return found if error.errno == errno.ENXIO else size  # no more data; or a file system that does not say
    finally:
        os.lseek(stream.fileno(), place, os.SEEK_SET)  # the reader goes on where it was
    return size


def private(path: Path | str) -> bool:
    """Whether nobody but this user can have written a file or folder: owner, mode, and no link of either kind.

    Systems without owners and modes leave that to the folder of the user.

    Examples:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "some.txt")
        >>> path.touch(mode=0o600)
        >>> cocos.base.reading.private(path)
        True
        >>> path.chmod(0o602)
        >>> cocos.base.reading.private(path)
        False
    """
    about = os.lstat(path)
    plain = stat.S_ISDIR(about.st_mode) or (stat.S_ISREG(about.st_mode) and about.st_nlink == 1)
    return plain and (not hasattr(os, "getuid") or (about.st_uid == os.getuid() and not about.st_mode & 0o022))


def private_folder(folder: Path) -> None:
    """Refuse the folder of a cache in which somebody else may have planted files."""
    if not private(folder):
        raise OSError(f"{folder} is a link, or others can write to it; it must be your own folder with mode 700")
