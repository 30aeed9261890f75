"""Evaluate with millions of distractors: `python -m benchmarks.distractors [--distractors N] [--width D]`.

The size is that of Veit & Wilber 2020, arXiv:2011.08824, section 4.3: 3.3 million candidates that match no query. They
lie in a memory-mapped file. One fresh process evaluates; seconds and the peak of its memory are printed.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import cocos

# Candidates that match no query: Veit & Wilber 2020, section 4.3.
DISTRACTORS = 3_300_000
# Rows of the file that are drawn at a time: 64 MiB at a width of 64.
DRAWN_ROWS = 2**18
# Images that ask, and captions of each.
IMAGES, CAPTIONS = 1000, 5


def written(folder: Path, rows: int, width: int) -> Path:
    """Draw unit vectors to a file, a part at a time."""
    path, rng = folder / "distractors.npy", np.random.default_rng(0)
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, width))
    for start in range(0, rows, DRAWN_ROWS):
        drawn = rng.standard_normal((min(DRAWN_ROWS, rows - start), width), dtype=np.float32)
        file[start : start + len(drawn)] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return path


def evaluated(path: Path) -> dict[str, float]:
    """Evaluate images and captions with the rows of a file behind the captions: seconds, GiB, R@1 without and with."""
    generator = torch.Generator().manual_seed(1)
    far = np.load(path, mmap_mode="r")
    image = torch.randn(IMAGES, far.shape[1], generator=generator)
    group = torch.arange(IMAGES).repeat_interleave(CAPTIONS)
    caption = image[group] + 2.5 * torch.randn(len(group), far.shape[1], generator=generator)
    embeddings = cocos.Embeddings(image, caption, torch.arange(IMAGES), group, directions=("i2t", "t2i"))
    extra = cocos.Embeddings(torch.from_numpy(image.numpy()[:1]), far, [0], np.arange(1, len(far) + 1))
    begun, worked = time.perf_counter(), time.process_time()
    data = cocos.measures.evaluate(embeddings, distractors=extra)
    seconds, worked = time.perf_counter() - begun, time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    recall = data["R@1"].sel(direction="i2t").mean("fold")
    without, beside = (float(recall.sel(distractors=name)) for name in ("without", "with"))
    return {"seconds": seconds, "CPU": worked, "GiB": peak, "without": without, "with": beside}


def main() -> None:
    """Parse the arguments, write the file, and print the row of a fresh process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distractors", description=__doc__)
    parser.add_argument("--distractors", type=int, default=DISTRACTORS)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--of", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.of is not None:
        print(json.dumps(evaluated(given.of)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), given.distractors, given.width)
        size = path.stat().st_size / 2**30
        command = [sys.executable, "-m", "benchmarks.distractors", "--of", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{given.distractors:,} distractors of width {given.width} ({size:.2f} GiB), {IMAGES:,} images and "
        f"{IMAGES * CAPTIONS:,} captions: {found['seconds']:.1f} s ({found['CPU']:.1f} s of CPU time on "
        f"{torch.get_num_threads()} threads), peak "
        f"{found['GiB']:.2f} GiB; R@1 i2t {found['without']:.1f} % without, {found['with']:.1f} % with"
    )


if __name__ == "__main__":
    main()
