"""Processes that tests start: each has a deadline, and none outlives its test."""

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
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


def fork(work, cwd, **streams):
    """Do work in a fork of this process, which ends with the exit code that an interpreter gives; its number."""
    if child := os.fork():
        return child
    signal.alarm(DEADLINE)
    os.chdir(cwd)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.close(descriptor) if streams[name] is None else os.dup2(streams[name], descriptor)
        setattr(sys, name, None if streams[name] is None else open(descriptor, "w", closefd=False, encoding="utf-8"))
    code = 0
    try:
        work()
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream:
                stream.flush()
        except OSError:
            code = 120
    os._exit(code)


def forked(work, cwd, **streams):
    """What a function does as `run` tells it, in a fork of this process, which has imported everything.

    `stdout` and `stderr` may be the descriptor of another file, or None where the stream is closed.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = fork(work, cwd, **{"stdout": out.fileno(), "stderr": err.fileno()} | streams)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = [(each.seek(0), each.read().decode())[1] for each in (out, err)]
    return subprocess.CompletedProcess(work, code, *said)


def cocos(*arguments):
    """The command, as work of a fork."""

    def work():
        from cocos.cli import main

        sys.argv = ["cocos", *map(str, arguments)]
        main()

    return work


def serve():
    """Be a process that has imported PyTorch and nothing of cocos, and run each piece of code it reads in a fork."""
    gc.disable()
    import torch  # noqa: F401

    gc.enable()
    sys.path[0] = ""
    for line in sys.stdin:
        done = forked(lambda: interpreted(json.loads(line)), ".")  # noqa: B023
        print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)


def interpreted(code):
    """Run code, and what it registered for the end; the rest of an interpreter's end takes a second in a fork."""
    try:
        exec(code, {"__name__": "__main__"})
    finally:
        atexit._run_exitfuncs()


@contextmanager
def fresh():
    """A function as `python`, for code that needs an interpreter with PyTorch that has imported nothing of cocos."""
    process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def python(code):
        process.stdin.write(json.dumps(code) + "\n")
        process.stdin.flush()
        return subprocess.CompletedProcess(code, *json.loads(process.stdout.readline()))

    try:
        yield python
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE)


# Lines around those that run in each of two processes, which meet at a file of their folder.
TWO = """
import datetime, os, signal, torch.distributed as dist
os.chdir({folder!r})
{before}
other = os.fork()
rank = int(not other)
signal.alarm({seconds})
place, limit = "file://" + {folder!r} + "/meet", datetime.timedelta(seconds={seconds})
dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2, timeout=limit)
{code}
dist.barrier()
assert rank or os.waitpid(other, 0)[1] == 0
"""


def two(python, before, code, folder):
    """Lines of `before` in an interpreter of `fresh`, then others in two forks that are one group, in a folder.

    Each knows its `rank`, and the group as `dist`.
    """
    return python(TWO.format(before=before, code=code, folder=str(folder), seconds=DEADLINE // 2))


if __name__ == "__main__":
    serve()
