"""The kernel under the address and undefined-behaviour sanitizers of GCC.

`python tests/sanitized.py --calls 2000 --seed 0` lets every primitive of the kernel see scores of random shapes,
widths, groups and stacks. `python tests/sanitized.py -- tests/test_kernel.py` runs tests with the same kernel. Either
way the first fault ends the run with a report and an exit code other than 0.
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

import children

HERE = Path(__file__)
SANITIZERS = "-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all -g1"


def library(name):
    """Path of a runtime of GCC; None where it has none."""
    if not (gcc := shutil.which("gcc")):
        return None
    path = children.run(gcc, f"-print-file-name={name}").stdout.strip()
    return path if Path(path).is_absolute() else None


def run(command, optimise="-O0", timeout=None, **streams):
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
        return subprocess.run([sys.executable, *command], env=environment, check=False, timeout=timeout, **streams)


def drive(calls, seed, threads):
    """Visit views of random shapes with the readers of the shelf and the primitives; gives how often each was used."""
    import torch

    from cocos import Embeddings, engine, losses
    from cocos.embeddings.batches import Batch
    from cocos.engine import exact, fused, readers
    from cocos.engine.primitives.threshold import Threshold
    from cocos.engine.readers.histogram import Histogram
    from cocos.engine.readers.precision_recall import PrecisionRecall
    from cocos.engine.readers.ranks import Ranks

    assert fused.kernel_name() == "compiled C", "the sanitized kernel was not built"
    torch.set_num_threads(threads)
    generator, counted = torch.Generator().manual_seed(seed), Counter()
    names = [name for name in losses.names() if readers.has(losses.load(name))]

    def whole(low, high):
        return int(torch.randint(low, high + 1, (), generator=generator))

    def rows(number, d, dtype=torch.float32):
        values = torch.randn(number, d, generator=generator, dtype=dtype)
        return values.round() + 0.1 if whole(0, 3) == 0 else values

    def view(metric):
        """A matrix or a stack, of sizes around those of strips, tiles, panels and vectors."""
        edges = (1, 2, 7, 15, 16, 17, 47, 48, 49, 129, 255, 257, 383, 385)
        d = whole(1, 40) if whole(0, 5) else (511, 512, 513, 1025)[whole(0, 3)]
        m, n = (edges[whole(0, len(edges) - 1)] for _ in range(2))
        dtype = (torch.float64, torch.float32)[min(1, whole(0, 3))]
        if whole(0, 2) and metric != "cosine_dot":
            sizes = [whole(1, 40) for _ in range(whole(2, 20))]
            group = torch.randint(0, sum(sizes), (sum(sizes),), generator=generator)
            embeddings = Embeddings(rows(sum(sizes), d, dtype), rows(sum(sizes), d, dtype), group, group)
            order = torch.randperm(sum(sizes), generator=generator)
            return engine.view(embeddings, [Batch(k, k, paired=True) for k in order.split(sizes)], metric=metric)
        groups = [torch.randint(0, max(1, min(m, n) // whole(1, 3)), (k,), generator=generator) for k in (m, n)]
        directions = ("q2c",) if metric == "cosine_dot" or whole(0, 4) == 0 else ("q2c", "c2q")
        return engine.view(
            Embeddings(rows(m, d, dtype), rows(n, d, dtype), *groups, directions=directions), metric=metric
        )

    def loss():
        loss = losses.load(names[whole(0, len(names) - 1)])
        counted[type(loss).__name__] += 1
        engine.run(view(loss.metric), [readers.of(loss, relative=bool(whole(0, 1)))])

    def metrics():
        engine.run(view("cosine"), [Ranks(), PrecisionRecall(), Histogram(whole(1, 70))])

    def levels():
        seen = view(("cosine", "dot", "euclidean")[whole(0, 2)])
        sides = [len(seen.sides[k]) for k in seen.directions]
        shapes = [(k, whole(1, 3) if whole(0, 9) else 127) for k in sides]
        level = [torch.randn(*k, generator=generator, dtype=torch.float64).sort(dim=1).values for k in shapes]
        ends = [torch.randn(2, k, generator=generator).sort(dim=0).values for k in sides]
        engine.run(seen, [Threshold(seen, level), Threshold(seen, listed=[tuple(each) for each in ends])])

    def pairs():
        d, n = whole(1, 1025), whole(1, 40)
        left, right = (rows(whole(1, 60), d, (torch.float32, torch.float64)[whole(0, 1)]) for _ in range(2))
        of, with_ = (torch.randint(0, len(side), (n,), generator=generator) for side in (left, right))
        exact.pairs(left, right, of, with_, gaps=bool(whole(0, 1)))

    functions = (loss, loss, levels, metrics, pairs)
    for call in range(calls):
        function = functions[call % len(functions)]
        function()
        counted[function.__name__] += 1
    return counted


def main():
    """Start, or be, the run under the sanitizers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200, help="passes, and lists of pairs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--optimise", default="-O0", help="-O3 is what users run, and takes minutes to build")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("tests", nargs="*", help="of pytest, after --")
    given = parser.parse_args()
    if given.here:
        begun = time.monotonic()
        counted = drive(given.calls, given.seed, given.threads)
        print(json.dumps({"calls": given.calls, "seconds": round(time.monotonic() - begun, 1), **counted}))
        return
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *given.tests]
    if not given.tests:
        command = [str(HERE), "--here", *(f"--{name}={getattr(given, name)}" for name in ("calls", "seed", "threads"))]
    sys.exit(run(command, given.optimise).returncode)


if __name__ == "__main__":
    main()
