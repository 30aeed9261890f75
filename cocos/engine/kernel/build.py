"""The kernel as machine code: built once for this processor by the compiler that is there, kept in the user's cache.

A library that is loaded is run. So it is loaded only if nobody but this user can have put it there (owner, mode, no
link), if its bytes are those that the compiler wrote (their hash is in the name), and if another process could load it.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["loaded", "reason"]

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "kernel.c"
FLAGS = ("-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-strict-aliasing", "-Wno-psabi", "-shared", "-fPIC")
NATIVE = {  # this processor, by the name of its architecture
    "x86_64": ("-march=native", "-mprefer-vector-width=512"),
    "AMD64": ("-march=native", "-mprefer-vector-width=512"),
    "aarch64": ("-mcpu=native",),
    "arm64": ("-mcpu=native",),
}
PATIENCE = 300  # seconds that a compiler may take; the kernel takes 2 on an idle processor
STALE = 3600  # seconds after which the folder of a build was left behind by a process that was killed
OFF = ("plain", "0", "off")
# Loads a library in a process that may die of it: a library cut short is SIGBUS.
PROBE = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).cocos_pass"
LOG = logging.getLogger("cocos")  # where nobody listens, a warning goes to stderr


class _NotBuilt(Exception):
    """The compiler, or what it made, is of no use; trying again would not change that."""

    def __init__(self, why: str, *, said: bool = False):
        super().__init__(why)
        self.said = said


def _folder() -> Path:
    """Folder of the libraries; a relative XDG_CACHE_HOME is not heeded, as its specification says.

    Raises:
        OSError: the home folder is a relative path.
        RuntimeError: there is no home.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".cache"
    if not base.is_absolute():
        raise OSError(f"the home folder {base.parent} is a relative path")
    return base / "cocos"


def _processor() -> str:
    """The part of the processor that `-march=native` depends on: a home may be shared by several machines."""
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    return "".join(line for line in about if line.startswith(("model name", "flags", "Features", "CPU part")))


def _mine(about: os.stat_result) -> bool:
    """Whether only this user can have written a file or folder."""
    return about.st_uid == os.getuid() and not about.st_mode & 0o022


def _prepare(folder: Path) -> None:
    """Make the folder, or see that only this user can have written there, and take all rights from others.

    Raises:
        OSError: it cannot be made, or others can write there.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if not (stat.S_ISDIR(about.st_mode) and _mine(about)):
        raise OSError(f"{folder} is a link, or can be written by others; only a folder of yours with mode 700 is used")
    folder.chmod(0o700)
    for left in folder.glob("build-*"):
        if time.time() - left.lstat().st_mtime > STALE:
            shutil.rmtree(left, ignore_errors=True)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _kept(folder: Path, key: str) -> Path | None:
    """The library of a key, if it is whole; what has its name and is not, goes away."""
    for path in sorted(folder.glob(f"kernel-{key}-*.so")):
        about = path.lstat()
        plain = stat.S_ISREG(about.st_mode) and about.st_nlink == 1
        if plain and _mine(about) and path.stem.rpartition("-")[2] == _hash(path.read_bytes()):
            return path
        path.unlink()
    return None


def _done(command: Sequence[str], log: Path) -> None:
    """Run a command with its own process group, all of which ends with it, or with this process's patience.

    Args:
        command: and its arguments.
        log: file for what it says; a pipe would be held open by what it leaves behind.

    Raises:
        _NotBuilt: it failed, or did not end.
    """
    with open(log, "wb") as words:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=True
            )
        except OSError as error:
            raise _NotBuilt(f"the C compiler {command[0]!r} cannot be started ({error.strerror})") from None
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise _NotBuilt(f"{command[0]} did not end within {PATIENCE} s") from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        said = log.read_bytes()[-2000:].decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
        ended = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
        raise _NotBuilt(f"{command[0]} {ended}" + (f": {said}" if said else ""))


def _built(command: Sequence[str], folder: Path, key: str) -> Path:
    """Compile the library, try it in a process of its own, and move it into place whole.

    Raises:
        OSError: the folder cannot be used.
        _NotBuilt: the compiler failed, or what it made cannot be loaded.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="build-", ignore_cleanup_errors=True) as scratch:
        made, log = Path(scratch) / "kernel.so", Path(scratch) / "log"
        _done([*command, "-o", str(made), str(SOURCE), "-lm"], log)
        if not made.is_file():
            raise _NotBuilt(f"{command[0]} made no library")
        _done([sys.executable, "-I", "-S", "-c", PROBE, str(made)], log)
        made.chmod(0o500)
        return made.replace(folder / f"kernel-{key}-{_hash(made.read_bytes())}.so")


def _compiled() -> Path:
    """The library, compiled if it is not there.

    Raises:
        OSError: the folder cannot be used.
        _NotBuilt: the compiler, or what it made, is of no use. That is remembered, and said once.
    """
    usual = next(filter(shutil.which, ("cc", "gcc", "clang")), "cc")
    compiler = shlex.split(os.environ.get("CC", "")) or [usual]
    found = [shutil.which(word) for word in compiler]
    command = [found[0] or compiler[0], *compiler[1:], *FLAGS, *NATIVE.get(platform.machine(), ())]
    tools = [(name, about.st_size, about.st_mtime_ns) for name in found if name for about in (os.stat(name),)]
    sources = [path.read_bytes() for path in sorted(FOLDER.glob("*.[ch]"))]
    key = _hash(b"\0".join([*sources, repr((command, tools)).encode(), _processor().encode()]))[:16]
    folder = _folder()
    _prepare(folder)
    if (path := _kept(folder, key)) is not None:
        return path
    failed = folder / f"kernel-{key}.failed"
    if failed.exists():
        raise _NotBuilt(failed.read_text("utf-8").strip(), said=True)
    try:
        return _built(command, folder, key)
    except _NotBuilt as error:
        said = f"{error}; to try again, change CC or remove {failed}"
        with suppress(OSError):
            failed.write_text(f"{said}\n", "utf-8")
        raise _NotBuilt(said) from None


@functools.cache
def _opened() -> tuple[ctypes.CDLL | None, str]:
    if os.environ.get("COCOS_KERNEL", "").lower() in OFF:
        return None, f"COCOS_KERNEL={os.environ['COCOS_KERNEL']} asks for none"
    if sys.platform == "win32":
        return None, "none is built on Windows"
    try:
        return ctypes.CDLL(str(_compiled())), ""
    except (OSError, RuntimeError, ValueError, _NotBuilt) as error:  # ValueError: a CC that has no second quote
        if not getattr(error, "said", False):
            LOG.warning("note: there is no compiled kernel, PyTorch reads the tiles: %s", error)
        return None, str(error)


def loaded() -> ctypes.CDLL | None:
    """The compiled kernel; None without a C compiler, on Windows, or where COCOS_KERNEL=plain asks for none.

    Why it could not be built is said once, through the logger `cocos`.
    """
    return _opened()[0]


def reason() -> str:
    """Why there is no compiled kernel; empty where there is one."""
    return _opened()[1]
