"""Files are written whole or not at all."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing"]


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A temporary file beside `path` that takes its place when the block ends well, and goes away otherwise.

    Args:
        path: of the file to be.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".cocos-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)  # mkstemp makes files that only their owner can read
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
