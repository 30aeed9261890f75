"""The kernel as machine code: built once for this processor by the compiler that is there, kept in the user's cache."""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["loaded"]

SOURCE = Path(__file__).with_name("kernel.c")
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-strict-aliasing", "-shared", "-fPIC")
KINDS = {"p": ctypes.c_void_p, "i": ctypes.c_int, "l": ctypes.c_int64, "f": ctypes.c_float, "d": ctypes.c_double}
ARGUMENTS = {  # kinds of the arguments of each function, in their order
    "cocos_distances": "piil",
    "cocos_tops": "piilpp",
    "cocos_sums": "piilfppppiiiiplpppp",
    "cocos_settle": "iiiiiffi" + "pppppp" + "pp" + "pl" + "ppppp",
    "cocos_dots": "ppppllppp",
    "cocos_above": "piilppppii" + "ppppl",
    "cocos_levels": "piilippppipppp" + "ppppil",
    "cocos_sigmoids": "piilffipppp" + "iplpppp",
    "cocos_histogram": "piilffip",
    "cocos_batch": "pilifffffppp",
    "cocos_ranked": "piippipidddpp",
    "cocos_gaps": "ppppllp",
    "cocos_pack": "ppiilppfpip",
    "cocos_product": "ppiiipl",
    "cocos_strip_seen": "piiplpp",
    "cocos_pass": "ppiiiiiiii" + "pppipp",
}
RESULTS = {"cocos_above": ctypes.c_int64, "cocos_levels": ctypes.c_int64, "cocos_pass": ctypes.c_int}
PATIENCE = 120  # seconds that a compiler may take
OFF = ("plain", "0", "off")


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cocos"


def _processor() -> str:
    """What `-march=native` hangs on, so that a home shared by several machines holds one file for each kind."""
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    return "".join(line for line in about if line.startswith(("model name", "flags", "Features", "CPU part")))


def _own(folder: Path) -> bool:
    """Only this user can have written there: what is loaded from it is run."""
    about = folder.stat()
    return about.st_uid == os.getuid() and not about.st_mode & 0o022


def _built(compiler: str, folder: Path) -> Path:
    """The library in the folder, compiled if it is not there yet; moved into place whole.

    Raises:
        OSError: the folder cannot be used.
        subprocess.SubprocessError: the compiler failed.
    """
    flags = FLAGS + (("-mprefer-vector-width=512",) if platform.machine() in {"x86_64", "AMD64"} else ())
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=PATIENCE).stdout
    key = hashlib.sha256(b"\0".join((SOURCE.read_bytes(), " ".join(flags).encode(), version, _processor().encode())))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _own(folder):
        raise OSError(f"{folder} can be written by others")
    path = folder / f"kernel-{key.hexdigest()[:16]}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / path.name
            command = [compiler, *flags, "-o", str(made), str(SOURCE), "-lm"]
            subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE)
            made.replace(path)
    return path


@functools.cache
def loaded() -> ctypes.CDLL | None:
    """The compiled kernel; None without a C compiler, on Windows, or where COCOS_KERNEL=plain asks for none."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if os.environ.get("COCOS_KERNEL", "").lower() in OFF or not compiler or sys.platform == "win32":
        return None
    try:
        found = ctypes.CDLL(str(_built(compiler, _folder())))
    except (OSError, RuntimeError, subprocess.SubprocessError):  # of them RuntimeError: there is no home
        return None
    for name, arguments in ARGUMENTS.items():
        function = getattr(found, name)
        function.argtypes = [KINDS[kind] for kind in arguments]
        function.restype = RESULTS.get(name)
    return found
