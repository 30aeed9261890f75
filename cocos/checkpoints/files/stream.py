"""Streams over the bytes of a file, never mapped, with the state of the file that they show."""

import io
import os
import zipfile
from typing import IO

__all__ = ["ALWAYS_ALLOWED", "Directory", "Stream", "most_unpacked", "state"]

MAX_DIRECTORY = 2**23  # bytes of the directory of a zip archive, 100,000 members
# A file may ask for MAX_EXPANSION times its own bytes of memory, or for ALWAYS_ALLOWED bytes if that is more: deflated
# arrays of real embeddings keep at least a tenth of their bytes, and tensors that repeat rows are small.
MAX_EXPANSION, ALWAYS_ALLOWED = 50, 2**26


def most_unpacked(size: int) -> int:
    """Most bytes of memory that `size` bytes of a file may ask for."""
    return max(ALWAYS_ALLOWED, MAX_EXPANSION * size)


def state(stream: IO[bytes]) -> tuple:
    """Identify a file and its state: device, inode, bytes, times of change."""
    about = os.fstat(stream.fileno())
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


class Stream(io.BufferedReader):
    """A file without a number: torch then neither maps it nor takes it for a tar archive."""

    def fileno(self) -> int:
        """Refuse.

        Raises:
            UnsupportedOperation: always.
        """
        raise io.UnsupportedOperation("fileno")


class Directory:
    """A stream for zipfile, which reads a whole directory at once: too large a directory is refused."""

    def __init__(self, stream: IO[bytes]):
        self.stream, self.most = stream, MAX_DIRECTORY
        self.seek, self.tell, self.seekable, self.close = stream.seek, stream.tell, stream.seekable, stream.close

    def read(self, number: int = -1) -> bytes:
        """Read bytes.

        Raises:
            BadZipFile: more than a directory may have.
        """
        if self.most and number > self.most:
            raise zipfile.BadZipFile(f"a directory of {number} bytes")
        return self.stream.read(number)
