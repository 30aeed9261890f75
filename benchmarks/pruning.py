"""Does certified pruning by cells pay? `python -m benchmarks.pruning [--file FILE] [--cells N]`.

A cell of unit rows with centre c and angle r to its furthest row holds no candidate that scores above
cos(max(0, angle(q, c) - r)) with a query q. Where this lies below tau ln(eps Z), with Z the sum of exp(s / tau) of all
candidates, no candidate of the cell contributes to the gradient of a softmax, and its scores need not be computed. The
share of the pairs in such cells is the most that pruning can save, with Z known for nothing. Beside it stands the
share for the nearest neighbour alone: cells whose bound lies below the best score.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch

import cocos
from cocos.embeddings.similarities import unit
from cocos.engine.cells import Cells

QUERIES = 500
EPS, TEMPERATURES = 0.01, (0.05, 0.02)


def drawn(rows: int, width: int, decay: float, seed: int = 0) -> torch.Tensor:
    """Unit rows whose variances fall as i^-decay, as those of trained encoders do; 0: all directions alike."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.arange(1, width + 1).double().pow(-decay / 2).float()
    return unit(torch.randn(rows, width, generator=generator) * scale)


def shares(query: torch.Tensor, candidate: torch.Tensor, number: int) -> dict[str, float]:
    """Shares of the pairs in cells that a certified bound leaves out."""
    query, candidate = unit(query.double()), unit(candidate.double())
    cells = Cells.of(candidate.float(), number, "cosine", 0)
    centre = unit(cells.centre.double())
    sizes = cells.begin.diff()
    cell = torch.empty(len(candidate), dtype=torch.int64)
    cell[cells.order] = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    angle = (candidate * centre[cell]).sum(dim=1).clamp(-1, 1).acos()
    radius = torch.zeros(len(sizes), dtype=torch.float64).scatter_reduce(0, cell, angle, "amax")
    score, bound = query @ candidate.T, ((query @ centre.T).clamp(-1, 1).acos() - radius).clamp(min=0).cos()
    found = {"radius": math.degrees(float(radius.median()))}
    for tau in TEMPERATURES:
        least = tau * (math.log(EPS) + (score / tau).logsumexp(dim=1))
        found[f"tau {tau}"] = float(((bound < least[:, None]) * sizes).sum() / score.numel())
    found["nearest"] = float(((bound < score.amax(dim=1)[:, None]) * sizes).sum() / score.numel())
    return found


def main() -> None:
    """Parse the arguments, and print a row for each set."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pruning", description=__doc__)
    parser.add_argument(
        "--file", type=Path, action="append", default=[], help="embeddings of yours, beside those drawn"
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--cells", type=int, nargs="+", default=[300, 3000])
    given = parser.parse_args()
    sets: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for path in given.file:
        held = cocos.open(path).embed()
        sets[f"{path.name}, {len(held.candidate):,} x {held.candidate.shape[1]}"] = held.query, held.candidate
    for width in (384, 768):
        for decay in (0.0, 1.0, 2.0):
            rows = drawn(given.rows + QUERIES, width, decay)
            sets[f"drawn, {given.rows:,} x {width}, variances as i^-{decay:g}"] = rows[given.rows :], rows[: given.rows]
    for name, (query, candidate) in sets.items():
        some = torch.from_numpy(np.random.default_rng(0).permutation(len(query))[:QUERIES])
        for number in given.cells:
            found = shares(query[some], candidate, number)
            print(
                f"{name:48} {number:5} cells: " + ", ".join(f"{key} {value:.3g}" for key, value in found.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
