"""Open files in forked processes that are watched: what they run, raise, take, and how they end."""

import contextlib
import ctypes
import gc
import io
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cocos.base.errors import InputError, UnsafeFile

__all__ = ["FAULTS", "Limits", "Seen", "watch"]

FAULTS = ("execution", "traceback", "hang", "crash", "greedy")
BATCH = 400  # files that one process opens
# Events of the interpreter that mean that something ran, was started, or was written.
FORBIDDEN = (
    *("os.", "subprocess.", "socket.", "shutil.", "ctypes.", "pty.", "webbrowser.", "urllib.", "http.", "ftplib."),
    *("smtplib.", "tempfile.", "signal.", "mmap.", "code.", "function.", "marshal.", "builtins.", "cpython.", "glob."),
    *("exec", "import", "compile", "pickle.find_class", "fcntl.", "syslog.", "setopencodehook"),
)
# Reading asks for these: literal_eval of the header of an array compiles to a tree, and folders are looked at.
HARMLESS = ("os.listdir", "os.scandir", "os.fwalk", "os.walk", "builtins.id")


@dataclass(frozen=True)
class Limits:
    """What one opening may take.

    Args:
        cpu: seconds of the processor.
        memory: bytes above what the process had.
        wall: seconds on the clock without any opening that begins or ends; a busy machine is slow.
    """

    cpu: float = 5.0
    memory: int = 500_000_000
    wall: float = 300.0


@dataclass
class Seen:
    """What one opening did.

    Args:
        name: of its format.
        number: of its file.
        turn: which opening of the file.
        ended: `opened`, `refused`, `unsafe`, or a fault.
        caught: the sentence came from the net below all readers, and not from one of them.
        said: the sentence, or the end of the traceback.
        cpu: seconds.
        memory: bytes that the process grew by.
    """

    name: str
    number: int
    turn: int
    ended: str
    caught: bool = False
    said: str = ""
    cpu: float = 0.0
    memory: int = 0


@dataclass
class _Hook:
    """Notes forbidden events while it is armed.

    Args:
        room: folder for temporary files, in which archives are unpacked.
    """

    room: str
    armed: bool = False
    late: bool = False
    events: list[str] = field(default_factory=list)

    def __call__(self, event: str, given: tuple) -> None:
        if not self.armed or len(self.events) > 3:
            return
        if event == "open":
            _, mode, flags = given
            wrote = any(letter in "wxa+" for letter in mode or "") and not self.inside(given)
            if (
                wrote
                or not self.inside(given)
                and flags
                and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND)
            ):
                self.events.append(f"open {given[0]!r}")
        elif event.startswith(FORBIDDEN) and not event.startswith(HARMLESS) and not self.excused(event, given):
            self.events.append(f"{event} {given!r:.200}")

    def excused(self, event: str, given: tuple) -> bool:
        """Whether Python's parser is at work on a literal, or a codec or part of a library is loaded late."""
        if event.startswith(UNPACKING) and self.inside(given):
            return True
        if event == "import" and str(given[0]).partition(".")[0] in LATE:
            self.late = True
            return True
        if event == "compile" and given[1] in {"<unknown>", None}:
            return True
        ours = any(f"/{part}/" in getattr(given[0], "co_filename", str(given[-1])) for part in LATE)
        return self.late and (event == "marshal.loads" or event in {"exec", "compile"} and ours)

    def inside(self, given: tuple) -> bool:
        """Whether a file or folder is one of the temporary ones."""
        path, descriptor = str(given[0]), given[-1]
        if not os.path.isabs(path) and isinstance(descriptor, int) and descriptor >= 0:
            with contextlib.suppress(OSError):
                path = os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), path)
        return path.startswith(self.room + os.sep) and ".." not in path


UNPACKING = ("tempfile.mkdtemp", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree")
NET = re.compile(r"(is a damaged file|or its data cannot be encoded|for this command, or a damaged one) \(\w+: ")
C_LIBRARY = ctypes.CDLL(None)
LATE = (
    *("encodings", "torch", "numpy", "cocos", "safetensors", "json", "PIL"),
    *("transformers", "tokenizers", "pyarrow", "regex", "timm", "torchvision", "xarray", "h5netcdf", "pandas"),
)


def _reset_peak() -> None:
    """Let the peak start from the memory in use.

    An earlier, higher peak would hide what an opening takes; so would memory that was freed and is still resident,
    which is given back first.
    """
    with contextlib.suppress(AttributeError):  # of the GNU library only
        C_LIBRARY.malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "ascii")


def _peak() -> int:
    """Peak of the resident memory since it was reset, in bytes."""
    try:
        return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text("ascii"))[1]) * 1024
    except (OSError, TypeError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _used() -> float:
    return time.process_time()


def _sentence(seen: Seen, error: ValueError) -> None:
    """A file that was refused: in one sentence, and not for want of memory."""
    cause, seen.said = error.__cause__, str(error)
    seen.ended = "unsafe" if isinstance(error, UnsafeFile) else "refused"
    seen.caught = NET.search(seen.said) is not None
    if isinstance(cause, MemoryError) or "more memory than there is" in seen.said:
        seen.ended = "greedy"


def _one(seen: Seen, opening: Callable[[object, int], str], case, hook: _Hook, limits: Limits, folder: Path) -> None:
    """Open one file and note what happened."""
    _reset_peak()
    before, begun, there = _peak(), _used(), set(os.listdir(folder))
    hook.events.clear()
    hook.late = False
    hook.armed = True
    try:
        seen.ended = opening(case, seen.turn)
    except InputError as error:
        hook.armed = False
        _sentence(seen, error)
    except MemoryError:
        seen.ended = "greedy"
    except BaseException:  # whatever it raises is what is looked for
        hook.armed = False
        seen.ended, seen.said = "traceback", traceback.format_exc()[-1500:]
    hook.armed = False
    seen.cpu, seen.memory = _used() - begun, _peak() - before
    if seen.ended not in FAULTS and seen.memory > limits.memory:
        seen.ended = "greedy"
    if hook.events or set(os.listdir(folder)) - there:
        seen.ended, seen.said = "execution", "; ".join(hook.events) or "a file was written"


def _child(cases: list, make: Callable, opening: Callable, turns: int, limits: Limits, pipe: int, folder: Path) -> None:
    """Make and open files until one takes too much; a line before and after each opening."""
    gc.freeze()  # garbage of the parent, freed during an opening, would hide what the opening takes
    canary = folder / "canary"
    canary.mkdir()
    os.chdir(canary)
    room = folder / "room"
    room.mkdir()
    tempfile.tempdir = str(room)
    hook = _Hook(str(room))
    sys.addaudithook(hook)
    silent = io.StringIO()
    most = _virtual() + 8 * limits.memory
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, number in cases:
        inner = folder / "file"
        shutil.rmtree(inner, ignore_errors=True)
        inner.mkdir()
        case = make(name, number, inner)
        for turn in range(turns):
            silent.truncate(silent.seek(0))
            seen = Seen(name, number, turn, "crash")
            os.write(pipe, b"%s\n" % json.dumps(asdict(seen)).encode())
            end = int(_used() + limits.cpu + 1.5)
            resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))
            with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
                _one(seen, opening, case, hook, limits, canary)
            if seen.cpu > limits.cpu and seen.ended not in FAULTS:
                seen.ended = "hang"
            os.write(pipe, b"%s\n" % json.dumps(asdict(seen) | {"done": True}).encode())
            if seen.memory > limits.memory // 2:
                os._exit(0)  # its peak would hide the next one's: the rest goes to a new process
    os._exit(0)


def _virtual() -> int:
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    except OSError:
        return 2**34


def watch(
    cases: Iterable[tuple[str, int]],
    make: Callable[[str, int, Path], object],
    opening: Callable[[object, int], str],
    *,
    turns: int = 1,
    limits: Limits | None = None,
    note: Callable[[Seen], None] = lambda seen: None,
) -> list[Seen]:
    """Make and open files, each in a forked process that may die.

    Args:
        cases: names of formats and numbers of files.
        make: (name, number, folder) -> what is opened; writes it into the folder.
        opening: (what is opened, turn) -> `opened`; raises what it raises.
        turns: how often each file is opened.
        limits: of one opening.
        note: called with each opening when it is over.

    Raises:
        RuntimeError: a process ended before it opened anything.
    """
    left, found, limits = list(cases), [], limits or Limits()
    while left:
        with tempfile.TemporaryDirectory(prefix="cocos-fuzz-", ignore_cleanup_errors=True) as folder:
            done = _batch(left[:BATCH], make, opening, turns, limits, note, Path(folder))
        found += done
        finished = {(seen.name, seen.number) for seen in done}
        left = [case for case in left[:BATCH] if case not in finished] + left[BATCH:]
        if not done:
            raise RuntimeError(f"a process died before it opened anything, at {left[0]}")
    return found


def _batch(cases, make, opening, turns, limits, note, folder) -> list[Seen]:
    """One process; the openings that it began, the last of which may have ended it."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            _child(cases, make, opening, turns, limits, writing, folder)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)
    os.close(writing)
    found, begun, rest, late = [], None, b"", False
    while True:
        ready, _, _ = select.select([reading], [], [], limits.wall)
        if not ready:
            late = True
            os.kill(child, signal.SIGKILL)
        part = os.read(reading, 65536)
        if not part:
            break
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            values = json.loads(line)
            over = values.pop("done", False)
            begun = None if over else Seen(**values)
            if over:
                found.append(Seen(**values))
                note(found[-1])
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if begun is not None:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        begun.ended = "hang" if late or number == signal.SIGXCPU else "crash"
        begun.said = signal.Signals(number).name if number else f"exit code {os.waitstatus_to_exitcode(status)}"
        found.append(begun)
        note(begun)
    return found
