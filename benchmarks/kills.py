"""Kill a count in parts again and again: `python -m benchmarks.kills [--kills 50]`; exit 1 if a bit differs.

Each part runs as `cocos count --part i/n --keep FOLDER` in a process of its own, which is killed (SIGKILL) some
time after it has kept a piece, and started again, until it ends. Then the parts are joined and compared with a count
in one run that nobody disturbed.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cocos
from benchmarks.large import Work, written
from cocos import results
from cocos.results import parts

PATIENCE = 600  # seconds of one part


def finished(command: list[str], kept: Path, after: float | None) -> bool:
    """Run a part; kill it some seconds after it has kept one more piece. Whether it has ended by itself, and well."""
    before = len(list(kept.glob("*.nc")))
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end, kill = time.monotonic() + PATIENCE, None
    while process.poll() is None and time.monotonic() < end:
        if after is not None and kill is None and len(list(kept.glob("*.nc"))) > before:
            kill = time.monotonic() + after
        if kill is not None and time.monotonic() > kill:
            process.send_signal(signal.SIGKILL)
            kill = end
        time.sleep(0.005)
    said = process.communicate(timeout=PATIENCE)[1]
    if process.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(said.decode())
    return process.returncode == 0


def main() -> None:
    """Count in parts under kills, and compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--parts", type=int, default=5)
    given = parser.parse_args()
    chance, work = random.Random(0), Work(48_000, 16, 7, batch_size=128)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        path, made, killed = written(place / "set", work), [], 0
        # Windows of 512 rows: 18 or 19 pieces a part.
        base = [sys.executable, "-m", "cocos", "count", str(path), "--batch-size", "128", "--window", "512"]
        expected = cocos.measures.count(cocos.open(path), "ntxent", batch_size=128, window=512)
        for k in range(1, given.parts + 1):
            kept, out = place / f"kept{k}", place / f"part{k}.nc"
            command = [*base, "--part", f"{k}/{given.parts}", "--keep", str(kept), "--out", str(out)]
            quota = given.kills * k // given.parts
            while not finished(command, kept, chance.uniform(0, 0.02) if killed < quota else None):
                killed += 1
                print(f"part {k}: killed with {len(list(kept.glob('*.nc')))} pieces kept", flush=True)
            made.append(results.open(out))
        same = parts.join(made).drop_attrs().identical(expected.drop_attrs())
    print(
        f"{killed} kills in {given.parts} parts, {os.cpu_count()} cores: {'equal' if same else 'NOT EQUAL'}, bit by bit"
    )
    sys.exit(0 if same and killed == given.kills else 1)


if __name__ == "__main__":
    main()
