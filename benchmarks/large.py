"""Count sets in shards: `python -m benchmarks.large [--folder FOLDER] [--rows N ...] [--json FILE]`.

Sets of random float16 pairs are written to a disk, and counted in fresh processes: seconds, CPU seconds, bytes read and
peak memory by rows, width, shards, processes, and for queries against everything. Each set is removed when it has been
counted. `--json` keeps the numbers, of which `docs/howto/large_plan.md` makes its plan.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

import cocos
from cocos.base import processes

DRAWN_ROWS = 2**17  # rows that are drawn at once
NOISE = 0.3  # of a candidate about its query
CASES = (10_000, 100_000, 1_000_000, 10_000_000)
WIDE_ROWS = 1_500_000  # of 384 float16: above 1 GiB a side, so that they are streamed
PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True)
class Work:
    """A set, and what is counted of it.

    Args:
        rows: of each side.
        width: of a row.
        shards: of each side.
        batch_size: pairs in a batch.
        batches: how many; 0 for a pass.
        queries: against all candidates, in the place of batches; 0: batches.
        processes: that share the work.
        threads: of each process.
    """

    rows: int
    width: int = 64
    shards: int = 10
    batch_size: int = 4096
    batches: int = 24
    queries: int = 0
    processes: int = 1
    threads: int = 1


def written(folder: Path, work: Work) -> Path:
    """Write the shards of both sides, some rows at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    edges = np.linspace(0, work.rows, work.shards + 1).astype(int).tolist()
    for number, (start, stop) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
        rng, kind = np.random.default_rng([work.rows, number]), np.dtype(np.float16)
        files = [
            np.lib.format.open_memmap(folder / f"{name}_{number:05d}.npy", "w+", kind, (stop - start, work.width))
            for name in ("query", "candidate")
        ]
        for at in range(0, stop - start, DRAWN_ROWS):
            query = rng.standard_normal((min(DRAWN_ROWS, stop - start - at), work.width), dtype=np.float32)
            files[0][at : at + len(query)] = query
            files[1][at : at + len(query)] = query + NOISE * rng.standard_normal(query.shape, dtype=np.float32)
    return folder


def _read() -> int:
    """Bytes that this process has read, from the disk or its cache."""
    lines = Path("/proc/self/io").read_text("utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


def counted(folder: Path, work: Work) -> None:
    """Count in this process, and print what it took, as JSON, in the first process."""
    processes.join("cpu")
    torch.set_num_threads(work.threads)
    before, read, begun, worked = _peak(), _read(), time.perf_counter(), time.process_time()
    options = {"queries": work.queries} if work.queries else {"batches": work.batches or None}
    data = cocos.measures.count(cocos.open(folder), "ntxent", batch_size=work.batch_size, **options)
    took = {
        "CPU": time.process_time() - worked,
        "read": _read() - read,
        "start": before,
        "peak": _peak(),
        "seconds": time.perf_counter() - begun,
    }
    every = processes.gather(took)
    if processes.first():
        found = {name: sum(each[name] for each in every) for name in ("CPU", "read")}
        found |= {name: max(each[name] for each in every) for name in ("seconds", "peak", "start")}
        drawn = int(data["queries"].isel(direction=0).sum())
        print(json.dumps(found | {"drawn": drawn, "contributing": float(data["contributing"].mean())}))
    processes.close()


def _peak() -> int:
    """Largest resident memory of this program so far, in bytes; ru_maxrss would begin with that of its parent."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


def measured(folder: Path, work: Work) -> dict:
    """Count in fresh processes."""
    launch = [sys.executable, "-m"]
    if work.processes > 1:
        launch += ["torch.distributed.run", "--standalone", f"--nproc-per-node={work.processes}", "-m"]
    command = [*launch, "benchmarks.large", "--folder", str(folder), "--of", json.dumps(asdict(work))]
    env = os.environ | {"OMP_NUM_THREADS": str(work.threads)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=PACKAGE)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return asdict(work) | json.loads(done.stdout.splitlines()[-1])


def line(found: dict) -> str:
    """One row of the table."""
    asked = f"{found['queries']:,} queries" if found["queries"] else f"{found['drawn'] // found['batch_size']} batches"
    return (
        f"{found['rows']:>11,} x {found['width']:<4} {found['shards']:>5} shards {found['processes']} processes  "
        f"{asked:>13} of {found['batch_size']:>6,}: {found['seconds']:8.2f} s {found['CPU']:8.2f} s CPU "
        f"{found['read'] / 2**20:9.1f} MiB read  peak {found['peak'] / 2**20:7.0f} MiB"
    )


def plan(rows: list[int]) -> list[list[Work]]:
    """What is counted, set by set: by rows, by processes, by shards, and of wider rows."""
    made = []
    for number in rows:
        own = [Work(number, batch_size=min(4096, number // 2)), Work(number, queries=200)]
        if number == max(rows):
            own += [Work(number, queries=each) for each in (50, 1000)]
            own += [Work(number, batches=256, processes=each) for each in (1, 2, 4, 8)]
        made.append(own)
    middle = sorted(rows)[len(rows) // 2]
    made[rows.index(middle)].append(Work(middle, batch_size=32768, batches=8))
    made += [[Work(middle, shards=each)] for each in (1, 100, 1000)]
    wide = [Work(WIDE_ROWS, 384), Work(WIDE_ROWS, 384, batch_size=32768, batches=3)]
    return [*made, [*wide, *(Work(WIDE_ROWS, 384, queries=each) for each in (50, 200))]]


def main() -> None:
    """Parse the arguments, write sets, and print a row for each count."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where sets are written; they are removed")
    parser.add_argument("--rows", type=int, nargs="+", default=list(CASES))
    parser.add_argument("--width", type=int, help="one set of --rows of this width: a pass, and 200 queries")
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--batches", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.of is not None:
        counted(given.folder, Work(**json.loads(given.of)))
        return
    works = plan(given.rows)
    if given.width:
        own = Work(given.rows[0], given.width, 100, given.batch_size, given.batches)
        works = [[own, Work(given.rows[0], given.width, 100, queries=200)]]
    found = []
    for several in works:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            path = written(Path(folder) / "set", several[0])
            for work in several:
                found.append(measured(path, work))
                print(line(found[-1]), flush=True)
            shutil.rmtree(path)
    if given.json:
        cores = len(os.sched_getaffinity(0))
        about = {"machine": f"{platform.machine()}, {os.cpu_count()} cores, of which {cores} counted"}
        rows = ",\n".join(json.dumps(each) for each in found)
        head = json.dumps(about | {"torch": torch.__version__})[:-1]
        given.json.write_text(f'{head}, "counts": [\n{rows}\n]}}\n')


if __name__ == "__main__":
    main()
