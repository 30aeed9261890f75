"""Find the kernel: that of the wheel, or one that is compiled once for this processor and cached for the user.

Loading a library executes it. That of the wheel is as trusted as the Python files beside it. A compiled one is loaded
only if nobody but this user can have written it (owner, mode, no link), if its bytes are those that the compiler wrote
(its name contains their hash), and if a separate process could load it first.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cocos.base import reading
from cocos.engine.kernel import levels
from cocos.engine.kernel.levels import COMPILER_FLAGS, compiler

KERNEL_FOLDER = Path(__file__).parent
KERNEL_SOURCE = KERNEL_FOLDER / "kernel.c"
# Flags for this processor, by the name of its architecture.
PROCESSOR_FLAGS = {
    "x86_64": ("-march=native", "-mprefer-vector-width=512"),
    "AMD64": ("-march=native", "-mprefer-vector-width=512"),
    "aarch64": ("-mcpu=native",),
    "arm64": ("-mcpu=native",),
}
# Time limit of the compiler in seconds; the kernel takes 2 s on an idle processor.
COMPILER_SECONDS = 300
# Age in seconds after which a build folder was left behind by a killed process.
STALE_BUILD_SECONDS = 3600
# Values of COCOS_KERNEL that switch the kernel off.
OFF = ("plain", "0", "off")
# Loads a library in a process that may crash: a truncated library raises SIGBUS.
PROBE = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).cocos_pass"
# Without a handler, warnings go to stderr.
LOG = logging.getLogger("cocos")


class _NotBuilt(Exception):
    """The compiler, or its output, is unusable; trying again would not change that."""

    def __init__(self, why: str, *, said: bool = False):
        super().__init__(why)
        self.said = said


def folder() -> Path:
    """Return the folder of the libraries; a relative XDG_CACHE_HOME is ignored, as its specification demands.

    Raises:
        OSError: the home folder is a relative path.
        RuntimeError: there is no home folder.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".cache"
    if not base.is_absolute():
        raise OSError(f"the home folder {base.parent} is a relative path")
    return base / "cocos"


def _processor() -> list[str]:
    """Lines that tell apart the processors of machines with one home folder, as far as the kernel depends on them."""
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        return [platform.processor()]
    return [line for line in about if line.startswith(("model name", "flags", "Features", "CPU part"))]


def instructions() -> list[str]:
    """Names of the instruction sets of the processor, as Linux lists them."""
    return next((line.partition(":")[2].split() for line in _processor() if line.startswith("flags")), [])


def _make_private(folder: Path) -> None:
    """Create the folder, or check that only this user can have written to it, and make it private."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    reading.private_folder(folder)
    folder.chmod(0o700)
    for left in folder.glob("build-*"):
        if time.time() - left.lstat().st_mtime > STALE_BUILD_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _intact_library(folder: Path, key: str) -> Path | None:
    """Return the intact library of a key; delete files of its name that are not intact."""
    for path in sorted(folder.glob(f"kernel-{key}-*.so")):
        if reading.private(path) and path.stem.rpartition("-")[2] == _hash(path.read_bytes()):
            return path
        path.unlink()
    return None


def _done(command: Sequence[str], log: Path) -> None:
    """Run a command in its own process group; the whole group ends with it or after `COMPILER_SECONDS`.

    Args:
        command: program and arguments.
        log: file for its output; a pipe would be kept open by orphaned children.
    """
    with open(log, "wb") as words:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=True
            )
        except OSError as error:
            raise _NotBuilt(f"the C compiler {command[0]!r} cannot be started ({error.strerror})") from None
        try:
            code = process.wait(COMPILER_SECONDS)
        except subprocess.TimeoutExpired:
            raise _NotBuilt(f"{command[0]} did not end within {COMPILER_SECONDS} s") from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        said = log.read_bytes()[-2000:].decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
        ended = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
        raise _NotBuilt(f"{command[0]} {ended}" + (f": {said}" if said else ""))


def _build_library(command: Sequence[str], folder: Path, key: str) -> Path:
    """Compile the library, load it in a separate process, and move it into place atomically."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="build-", ignore_cleanup_errors=True) as scratch:
        made, log = Path(scratch) / "kernel.so", Path(scratch) / "log"
        _done([*command, "-o", str(made), str(KERNEL_SOURCE), "-lm"], log)
        if not made.is_file():
            raise _NotBuilt(f"{command[0]} made no library")
        _done([sys.executable, "-I", "-S", "-c", PROBE, str(made)], log)
        made.chmod(0o500)
        return made.replace(folder / f"kernel-{key}-{_hash(made.read_bytes())}.so")


def _compiled() -> Path:
    """Return the library, compiled if necessary."""
    words = compiler()
    found = [shutil.which(word) for word in words]
    command = [found[0] or words[0], *words[1:], *COMPILER_FLAGS, *PROCESSOR_FLAGS.get(platform.machine(), ())]
    tools = [(name, about.st_size, about.st_mtime_ns) for name in found if name for about in (os.stat(name),)]
    sources = [path.read_bytes() for path in sorted(KERNEL_FOLDER.glob("*.[ch]"))]
    key = _hash(b"\0".join([*sources, repr((command, tools)).encode(), "".join(_processor()).encode()]))[:16]
    cache = folder()
    _make_private(cache)
    if (path := _intact_library(cache, key)) is not None:
        return path
    failed = cache / f"kernel-{key}.failed"
    if failed.exists():
        raise _NotBuilt(failed.read_text("utf-8").strip(), said=True)
    try:
        return _build_library(command, cache, key)
    except _NotBuilt as error:
        said = f"{error}; to try again, change CC or remove {failed}"
        with suppress(OSError):
            failed.write_text(f"{said}\n", "utf-8")
        raise _NotBuilt(said) from None


@functools.cache
def _open_library() -> tuple[ctypes.CDLL | None, str]:
    asked = os.environ.get("COCOS_KERNEL", "").lower()
    if asked in OFF:
        return None, f"COCOS_KERNEL={os.environ['COCOS_KERNEL']} asks for none"
    if sys.platform == "win32":
        return None, "none is built on Windows"
    try:
        return ctypes.CDLL(str(levels.shipped(KERNEL_FOLDER, instructions()) or _compiled())), ""
    except (OSError, RuntimeError, ValueError, _NotBuilt) as error:  # ValueError: an unclosed quote in CC
        if not getattr(error, "said", False):
            LOG.warning("note: there is no compiled kernel, PyTorch reads the tiles: %s", error)
        return None, str(error)


def library() -> ctypes.CDLL | None:
    """Return the compiled kernel; None on Windows, if COCOS_KERNEL=plain, or in a checkout without a C compiler.

    The reason for a failed build is logged once, by the logger `cocos`.
    """
    return _open_library()[0]


def reason() -> str:
    """Why there is no compiled kernel; empty if there is one."""
    return _open_library()[1]
