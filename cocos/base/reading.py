"""File names, and checks that only the current user can write a file or folder."""

import os
import stat
from pathlib import Path

# Bytes of the longest file name that common file systems accept.
NAME_BYTES = 255


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
