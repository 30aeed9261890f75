"""Processes that tests start: each has a deadline, and none outlives its test."""

import subprocess
import sys
import threading
from contextlib import contextmanager

DEADLINE = 120  # seconds; on an idle machine each ends within a few


def run(*command, **options):
    """A command and what it says; past the deadline it is killed, and the test fails."""
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=DEADLINE, **options
    )


def python(code, *arguments, **options):
    """`run` of some lines of Python."""
    return run(sys.executable, "-c", code, *arguments, **options)


@contextmanager
def started(*command, **options):
    """A process that runs beside the test: past the deadline it is killed, so that no read of it waits for ever."""
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    end = threading.Timer(DEADLINE, process.kill)
    end.start()
    try:
        yield process
    finally:
        end.cancel()
        process.kill()
        process.communicate(timeout=DEADLINE)
