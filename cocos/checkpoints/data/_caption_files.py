"""Files of captions: how they begin, their JSON, and where the images of them may lie."""

import os
import re
from pathlib import Path
from typing import Any

from cocos.base import reading
from cocos.base.errors import InputError, unreachable
from cocos.base.untrusted import MAX_MEMORY, parsed

__all__ = ["begin", "places", "read"]

# Bytes of a JSON file of captions; that of COCO's 118,287 training images has 9e7.
MAX_JSON = 2**30
HEAD = 2**16
# Bytes of memory for each byte of a large file of captions: short captions with their ids take 12.
MAX_EXPANSION = 16


def begin(path: Path) -> bytes:
    """Read the first bytes of a file, without the blanks before them; nothing where it cannot be read."""
    try:
        with reading.stream(path) as stream:
            return stream.read(HEAD).lstrip()
    except OSError:
        return b""


def read(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        if (size := os.path.getsize(path)) > MAX_JSON:
            raise InputError(f"{path}: {size} bytes of JSON, expected at most {MAX_JSON}")
        with reading.stream(path) as stream:
            found = parsed(stream.read(), max(MAX_MEMORY, MAX_EXPANSION * size))
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: {unreachable(error)}") from None
    except ValueError as error:
        raise InputError(f"{path} is not readable as JSON ({str(error)[:120]}); copy it again") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: a JSON {type(found).__name__}, expected an object")
    return found


def places(path: Path, images: str | None) -> list[Path]:
    """List the folders in which the images of a file of captions may lie.

    Args:
        path: of the file.
        images: folder that the user names; None: those beside the file and above it.
    """
    if images is not None:
        return [Path(images)]
    part = re.sub(r"^(captions|dataset)_", "", path.stem)
    names = (part, "images", f"images/{part}", f"{part}_images", f"{part}-images", ".")
    return [folder / name for folder in (path.parent, path.parent.parent) for name in names]
