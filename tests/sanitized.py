"""The kernel under the address and undefined-behaviour sanitizers of GCC.

`python tests/sanitized.py --calls 2000 --seed 0` drives every function of the kernel with random shapes, levels and
scores, at the ends of what Python lets through. `python tests/sanitized.py -- tests/test_tiles.py` runs tests with the
same kernel. Either way the first fault ends the run with a report and an exit code other than 0.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__)
SANITIZERS = "-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all -g1"


def library(name):
    """Path of a runtime of GCC; None where it has none."""
    if not (gcc := shutil.which("gcc")):
        return None
    path = subprocess.run([gcc, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
    return path if Path(path).is_absolute() else None


def run(command, optimise="-O0", **streams):
    """Run a command of this Python with a sanitized kernel, built in a cache of its own."""
    with tempfile.TemporaryDirectory() as folder:
        compiler = Path(folder) / "compiler"
        compiler.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec gcc "$@" {optimise} {SANITIZERS}\n')
        compiler.chmod(0o700)
        environment = os.environ | {
            "CC": str(compiler),
            "XDG_CACHE_HOME": folder,
            "LD_PRELOAD": library("libasan.so"),
            "ASAN_OPTIONS": "detect_leaks=0",  # Python and torch keep what they have
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        environment.pop("COCOS_KERNEL", None)
        return subprocess.run([sys.executable, *command], env=environment, check=False, **streams)


def drive(calls, seed, threads):
    """Call every function of the kernel; gives how often each was called."""
    import torch

    from cocos import Embeddings, dense, losses, readers, sweep, tiles
    from cocos.tiles import _build, _plain

    assert _build.loaded() is not None, "the sanitized kernel was not built"
    torch.set_num_threads(threads)
    sweep._pays, sweep._product = lambda view: True, lambda *_: ("torch.mm", sweep._mm)
    generator, counted = torch.Generator().manual_seed(seed), Counter()

    def whole(low, high):
        return int(torch.randint(low, high + 1, (), generator=generator))

    def some(*shape):
        values = torch.randn(*shape, generator=generator) * 10.0 ** whole(-3, 2)
        values[torch.rand(shape, generator=generator) < 0.1] = -torch.inf
        return values

    def tile():
        """A tile at the end of its memory, so that a step beyond it is noticed; m may be above a strip."""
        return some(whole(1, 300), 16 * whole(1, 25))

    def distances():
        tiles.distances(tile())

    def tops():
        tiles.tops(tile(), bool(whole(0, 1)))

    def sums():
        t = tile().clamp(max=1)
        both = bool(whole(0, 1))
        floors = (some(len(t)), some(t.shape[1]) if both else None) if whole(0, 1) else None
        references = (torch.zeros(len(t)), torch.zeros(t.shape[1]) if both else None) if whole(0, 1) else None
        columns = torch.zeros(3, t.shape[1], dtype=torch.float64) if both else None
        rows = torch.zeros(3, len(t), dtype=torch.float64)
        tiles.sums(t, 1.0, rows, columns, references, floors, spread=bool(whole(0, 1)))

    def owners(number):
        other = torch.rand(2, number, dtype=torch.float64, generator=generator)
        known = other[0].clone() if whole(0, 1) else None
        return _plain.Owners(torch.zeros(3, number, dtype=torch.float64), some(number), *other, some(number), known)

    def exponentials():
        t, a, c = tile().clamp(max=1), whole(0, 3), whole(0, 3)
        columns = owners(t.shape[1] + c) if whole(0, 1) else None
        tiles.exponentials(t, owners(len(t) + a), a, columns, c, 1.0, 1e-6, (True, True), spread=bool(whole(0, 1)))

    def dots():
        d, n = whole(1, 1025), whole(1, 40)
        left, right = some(whole(1, 60), d), some(whole(1, 60), d)
        of, with_ = (torch.randint(0, len(side), (n,), generator=generator) for side in (left, right))
        (tiles.dots, tiles.squares, tiles.gaps)[whole(0, 2)](left, right, of, with_)

    def above():
        t = tile()
        columns = (some(t.shape[1]), t.amax(dim=0)) if whole(0, 1) else (None, None)
        tiles.above(t, some(len(t)), t.amax(dim=1), *columns)

    def levels():
        t, k, known = tile(), whole(1, 3) if whole(0, 9) else 127, bool(whole(0, 1))
        row = some(len(t), k).sort(dim=1).values
        column = some(whole(1, 16), t.shape[1]).sort(dim=0).values if whole(0, 1) else None
        tops = (t.amax(dim=1), None if column is None else t.amax(dim=0)) if known else (None, None)
        ends = (None, None) if column is None else (column, column + 0.1)
        tiles.levels(t, row, row + 0.1, tops[0], *ends, tops[1])

    def sigmoids():
        t = tile()
        column = some(whole(1, 5), t.shape[1]) if whole(0, 1) else None
        tiles.sigmoids(t, 10.0 ** whole(-3, 6), 10.0 ** whole(-3, 3), some(len(t), whole(1, 5)), column)

    def histogram():
        t, width = tile(), 2 / 64 if whole(0, 1) else 10.0 ** whole(-45, 38)
        low = float(t[0].nan_to_num(neginf=0)[whole(0, 15)])  # a score where the bins begin is 0 from there
        tiles.histogram(t, low, width, torch.zeros(len(t), whole(1, 70), dtype=torch.int32))

    def batches():
        loss = losses.load(("ntxent", "triplet", "smoothap")[whole(0, 2)])
        rows = torch.nn.functional.normalize(torch.randn(2, 16 * whole(1, 6), whole(1, 65), generator=generator), dim=2)
        dense.Dense(loss)(*rows)

    def passes():
        loss = losses.load(("ntxent", "triplet", "smoothap", "triplet_euclidean")[whole(0, 3)])
        d = whole(1, 300) if whole(0, 3) else whole(510, 1025)
        side = torch.randn(2, whole(17, 700), d, generator=generator)
        sweep.run(sweep.view(Embeddings(*side), metric=loss.metric), [readers.of(loss)])

    functions = (distances, tops, sums, exponentials, dots, above, levels, sigmoids, histogram, batches, passes)
    for call in range(calls):
        function = functions[call % len(functions)]
        function()
        counted[function.__name__] += 1
    return counted


def main():
    """Start, or be, the run under the sanitizers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=220, help="of functions of the kernel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--optimise", default="-O0", help="-O3 is what users run, and takes minutes to build")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("tests", nargs="*", help="of pytest, after --")
    given = parser.parse_args()
    if given.here:
        begun = time.monotonic()
        counted = drive(given.calls, given.seed, given.threads)
        print(json.dumps({"calls": counted.total(), "seconds": round(time.monotonic() - begun, 1), **counted}))
        return
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *given.tests]
    if not given.tests:
        command = [str(HERE), "--here", *(f"--{name}={getattr(given, name)}" for name in ("calls", "seed", "threads"))]
    sys.exit(run(command, given.optimise).returncode)


if __name__ == "__main__":
    main()
