"""How a command ends: exit codes, errors as one sentence, signals."""

import _thread
import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import typer

from cocos.base import processes
from cocos.base.errors import InputError, UnsafeFile, unreachable
from cocos.reports import terminal

# Exit codes beside 0 (done) and 1 (`verify` found a fault, `doctor` something to put right, `--fail-on` an alarm).
UNUSABLE_INPUT, UNSAFE_FILE = 2, 3
# Seconds that an interrupted run has to clean up before a timer ends it.
CLEANUP_SECONDS = 3.0
# Seconds until a signal that a finaliser swallowed is sent again.
RESEND_SECONDS = 0.02
# Error numbers of the operating system that the user can put right; any other is a fault of the program.
MACHINE_ERRORS = {
    *(errno.ENAMETOOLONG, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
}
# Errors of numbers and names that do not fit together.
MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MemoryError, RecursionError)
# Whether `--debug` is on the command line: show the traceback of the user's own code as well.
debug: ContextVar[bool] = ContextVar("debug", default=False)


class Signalled(BaseException):
    """A signal asked the run to end; it unwinds the stack and cleans up. The argument is the signal's number."""


def starved(error: BaseException | None) -> bool:
    """Whether an error, or one behind it, comes from having no file descriptor left."""
    seen = []
    while error is not None and error not in seen:
        if getattr(error, "errno", None) in {errno.EMFILE, errno.ENFILE} or os.strerror(errno.EMFILE) in str(error):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


def out_of_descriptors() -> int:
    """Say that no file descriptor is left, and return the exit code."""
    terminal.say(f"cocos: {processes.turn()}no file can be opened any more: raise the limit of open files (ulimit -n)")
    return UNUSABLE_INPUT


@contextmanager
def sentences(*, shared: bool = False, results: Sequence[Path] = ()) -> Generator[None]:
    """Turn errors that the user can put right into one sentence on stderr and an exit code.

    Args:
        shared: several processes may do the work.
        results: files of results that were given: their attributes are checked where they are opened, and here is the
            net for one whose numbers do not fit together.
    """
    try:
        if not shared and (size := processes.launched().size) > 1:
            raise InputError(f"{size} processes: only cocos count shares its work; start this command without torchrun")
        yield
    except InputError as error:
        turn = processes.turn()
        if debug.get() and error.__cause__ is not None:
            for line in "".join(traceback.format_exception(error.__cause__)).splitlines():
                terminal.say(line)
        terminal.say(f"cocos: {turn}{error}")
        raise typer.Exit(UNSAFE_FILE if isinstance(error, UnsafeFile) else UNUSABLE_INPUT) from None
    except (KeyboardInterrupt, Signalled) as signalled:
        raise typer.Exit(ended(signalled)) from None
    except typer.Exit:
        raise
    except Exception as error:
        if starved(error):
            raise typer.Exit(out_of_descriptors()) from None
        if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
            where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
            terminal.say(f"cocos: {processes.turn()}{where}{unreachable(error)}")
            raise typer.Exit(UNUSABLE_INPUT) from None
        turn = processes.turn()
        if results and isinstance(error, MISFITS):
            if debug.get():
                for line in traceback.format_exc().splitlines():
                    terminal.say(line)
            names, reason = " or ".join(map(str, results[:3])), " ".join(str(error).split())[:120]
            terminal.say(
                f"cocos: {turn}{names} is no result of cocos for this command, or a damaged one "
                f"({type(error).__name__}: {reason}); write it again"
            )
            raise typer.Exit(UNUSABLE_INPUT) from None
        raise


def ended(signalled: BaseException) -> int:
    """Say that a signal ended the run, and return the exit code: 130 after Ctrl-C, 143 after SIGTERM."""
    number = signalled.args[0] if isinstance(signalled, Signalled) else signal.SIGINT
    word = "interrupted" if number == signal.SIGINT else "terminated"
    launched = processes.launched()
    # torchrun terminates the remaining processes when one fails, and reports why itself.
    if launched.rank == 0 and (number != signal.SIGTERM or launched.size == 1):
        terminal.say(f"cocos: {word}")
    return 128 + number


def unwind(number: int, frame) -> None:
    """Handle a signal by unwinding the stack; a timer ends the run if a library that is being imported swallows it.

    A second SIGTERM ends the run at once.
    """
    timer = threading.Timer(CLEANUP_SECONDS, os._exit, [128 + number])
    timer.daemon = True
    timer.start()
    if number == signal.SIGTERM:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Signalled(number)


def resend(problem) -> None:
    """Send a signal again that arrived in a finaliser, which cannot raise; other problems are reported as usual."""
    if isinstance(problem.exc_value, Signalled):
        number = problem.exc_value.args[0]
        signal.signal(number, unwind)
        again = threading.Timer(RESEND_SECONDS, _thread.interrupt_main, [number])
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(problem)
