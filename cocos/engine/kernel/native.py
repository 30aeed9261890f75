"""Load the compiled kernel, which the build hook of the package puts beside this file."""

import ctypes
import functools
import os

from cocos.engine.kernel import build

# Values of COCOS_KERNEL that switch the kernel off.
OFF = ("plain", "0", "off")


@functools.cache
def _open_library() -> tuple[ctypes.CDLL | None, str]:
    if os.environ.get("COCOS_KERNEL", "").lower() in OFF:
        return None, f"COCOS_KERNEL={os.environ['COCOS_KERNEL']} switches it off"
    levels = build.processor_levels()
    paths = [build.KERNEL_FOLDER / level.file for level in levels if (build.KERNEL_FOLDER / level.file).is_file()]
    if not paths:
        return None, "it is not built" if levels else "there is none for this processor"
    try:
        return ctypes.CDLL(str(paths[0])), ""
    except OSError as error:
        return None, str(error)


def library() -> ctypes.CDLL | None:
    """Return the compiled kernel; None if COCOS_KERNEL=plain, if it is not built, or on other processors."""
    return _open_library()[0]


def reason() -> str:
    """Why there is no compiled kernel; empty if there is one."""
    return _open_library()[1]
