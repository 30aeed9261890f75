"""Time five losses counted in one call of `measures.count` and in five: the inner loop of a study, on one thread.

    python -m benchmarks.several [--json FILE]

Three batches of 128 pairs, of embeddings that no call has seen before; CPU milliseconds per call of all losses, medians
of interleaved rounds. The numbers that both ways give are equal, which is checked.
"""

import argparse
import json
import statistics
from pathlib import Path

import torch
import xarray as xr

from benchmarks.shelf import drawn, seconds
from cocos import Embeddings, losses, measures
from cocos.embeddings.batches import Batch, plan
from cocos.results import several

LOSSES = ("ntxent", "triplet", "triplet_sh", "smoothap", "ce_softmax")
NUMBER, SIZE, ROUNDS = 3, 128, 15


def fresh(source: Embeddings) -> Embeddings:
    """Copy embeddings, so that nothing is known of them."""
    return Embeddings(source.query.clone(), source.candidate.clone())


def separate(source: Embeddings, batches: tuple[Batch, ...]) -> list[xr.Dataset]:
    """Count each loss by itself."""
    embeddings = fresh(source)
    return [measures.count(embeddings, losses.load(name), batches=batches) for name in LOSSES]


def together(source: Embeddings, batches: tuple[Batch, ...]) -> xr.Dataset:
    """Count all losses in one call."""
    return measures.count(fresh(source), [losses.load(name) for name in LOSSES], batches=batches)


def milliseconds() -> dict[str, float]:
    """Milliseconds of five calls and of one, and the median of their ratios.

    Raises:
        AssertionError: the two ways differ.
    """
    source = drawn()
    batches = plan(source, batches=NUMBER, batch_size=SIZE).batches
    for one, other in zip(separate(source, batches), several.each(together(source, batches)).values(), strict=True):
        xr.testing.assert_identical(one, other)
    ways = (separate, together)
    rounds = [[1000 * seconds(lambda way=way: way(source, batches)) for way in ways] for _ in range(ROUNDS)]
    five, one = (statistics.median(each) for each in zip(*rounds, strict=True))
    return {"separate_ms": five, "together_ms": one, "ratio": statistics.median(b / a for a, b in rounds)}


def main() -> None:
    """Print the row, and write it to a file where one is named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the results to this file")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = milliseconds()
    print(f"{len(LOSSES)} losses, {NUMBER} batches of {SIZE}   " + "   ".join(f"{k} {v:.2f}" for k, v in found.items()))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
