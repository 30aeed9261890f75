"""Compare a GPU with the host, then time it: `python -m benchmarks.cuda [--device cuda]`; exit 1 on a difference.

Counts must be equal and sums agree to rounding, for every loss on batches of pairs and of labels; then one batch of
65,536 pairs is counted or refused, and counts are timed next to `torch.mm`. The script stops after four minutes.
"""

import argparse
import functools
import sys
import time

import numpy as np
import torch
import xarray as xr

from cocos import Embeddings, losses, measures
from cocos.base.errors import InputError

# Seconds after which no further loss is compared, and none is timed.
COMPARE_SECONDS, STOP_SECONDS = 120, 220
# Two devices add float32 numbers in different orders.
RELATIVE, ABSOLUTE = 1e-5, 1e-6
ROWS, WIDTH, GROUP, BATCH = 240, 48, 4, 64
LARGE = 65_536


def differences(one: xr.Dataset, other: xr.Dataset) -> list[str]:
    """Return the variables that differ: integers by one, sums by more than rounding explains."""
    names = []
    for name in sorted(set(one.data_vars) | set(other.data_vars)):
        if name not in one or name not in other:
            names.append(str(name))
            continue
        left, right = one[name].values, other[name].values
        exact = left.dtype.kind in "iub" or str(name).startswith(("contributing", "relative", "idle", "uncertain"))
        if exact:
            equal = np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
        else:
            equal = left.dtype.kind != "f" or np.allclose(left, right, RELATIVE, ABSOLUTE, equal_nan=True)
        if not equal:
            names.append(str(name))
    return names


def compare(device: str) -> list[str]:
    """Count every loss on the host and on the device; return a line for each difference."""
    generator = torch.Generator().manual_seed(5)
    label = torch.arange(ROWS) // GROUP
    centre = torch.randn(ROWS // GROUP, WIDTH, generator=generator)
    rows, others = (centre[label] + 0.8 * torch.randn(ROWS, WIDTH, generator=generator) for _ in range(2))
    sources = {"pairs": Embeddings(rows, others), "labels": Embeddings.labelled(rows, label)}
    wrong, compared, begin = [], 0, time.monotonic()
    for name in losses.names():
        for kind, source in sources.items():
            for size in (BATCH, ROWS):
                if time.monotonic() - begin > COMPARE_SECONDS:
                    return [*wrong, f"{name}: not compared within {COMPARE_SECONDS} s"]
                results = []
                for embeddings in (source, source.to(device)):
                    try:
                        results.append(measures.count(embeddings, losses.load(name), batch_size=size))
                    except ValueError as error:
                        results.append(str(error))
                if all(isinstance(result, str) for result in results):
                    continue
                if any(isinstance(result, str) for result in results):
                    wrong.append(f"{name}, {kind}, batches of {size}: one device alone refuses: {results}")
                elif names := differences(*results):
                    wrong.append(f"{name}, {kind}, batches of {size}: {', '.join(names)}")
                compared += 1
    print(f"{compared - len(wrong)} of {compared} counts agree")
    return wrong


def measure(device: str, begin: float) -> None:
    """Time counts of one batch next to the product of its rows."""
    generator = torch.Generator().manual_seed(8)
    for number, width in ((8192, 512), (LARGE, 256)):
        rows, noise = (torch.randn(number, width, generator=generator) for _ in range(2))
        embeddings = Embeddings(rows, rows + 2 * noise).to(device)
        product = min(_seconds(functools.partial(_product, embeddings)) for _ in range(3))
        for name in ("ntxent", "triplet"):
            if time.monotonic() - begin > STOP_SECONDS:
                return
            try:
                work = functools.partial(measures.count, embeddings, name, batch_size=number)
                seconds = min(_seconds(work) for _ in range(2))
            except (InputError, torch.cuda.OutOfMemoryError) as error:
                print(f"{name}, {number:,}: {error}")
                continue
            peak = torch.cuda.max_memory_allocated() / 2**20 if device.startswith("cuda") else 0
            rate = number**2 / seconds / 1e9
            print(f"{name}, {number:,} x {number:,}: {seconds:.3f} s, {rate:.1f} G scores/s, ", end="")
            print(f"{seconds / product:.2f} x torch.mm, peak {peak:.0f} MiB")


def _product(embeddings: Embeddings) -> None:
    for left in embeddings.query.split(8192):
        for right in embeddings.candidate.split(8192):
            left @ right.T


def _seconds(work) -> float:
    begin = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def main() -> None:
    """Compare, then time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda", description=__doc__)
    parser.add_argument("--device", default="cuda", help="Device that is compared with the host.")
    device, begin = parser.parse_args().device, time.monotonic()
    wrong = compare(device)
    print(*(f"DIFFERS {line}" for line in wrong), sep="\n")
    measure(device, begin)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
