"""Time every loss of the shelf on batches of 128, `measures.count` against autograd: one thread, CPU seconds.

    python -m benchmarks.shelf [--json FILE] [LOSS ...]

The naive way computes the scores of a batch once in float32, differentiates the summed loss of each direction by
autograd and counts the shares above eps: the least that a training script would do. `measures.count` returns all of its
statistics. A ratio is the median over interleaved rounds.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch

from cocos import Embeddings, Pairs, losses, measures
from cocos.base.errors import InputError
from cocos.embeddings.batches import plan

BATCHES, SIZE, WIDTH, ROUNDS, EPS = 16, 128, 512, 5, 0.01


def drawn() -> Embeddings:
    """Draw pairs of unit vectors with a cosine of about 0.6, in two directions, and those of a teacher."""
    generator = torch.Generator().manual_seed(0)
    query, noise, other = (torch.randn(BATCHES * SIZE, WIDTH, generator=generator) for _ in range(3))
    sides = query, query + 1.3 * noise, query + 0.5 * other, query + 0.5 * noise
    rows = [torch.nn.functional.normalize(side, dim=1) for side in sides]
    return Embeddings(*rows[:2], teacher=tuple(rows[2:]))


def naive(loss, embeddings: Embeddings) -> list[torch.Tensor]:
    """Count the contributing negatives of every query by autograd, one tensor for each batch and direction."""
    guides = embeddings.teacher and embeddings.teacher.guide
    positive, found = torch.eye(SIZE, dtype=torch.bool), []
    groups, ones = torch.arange(SIZE), torch.ones(SIZE)
    for batch in plan(embeddings, batch_size=SIZE).batches:
        rows = embeddings.query[batch.query_index], embeddings.candidate[batch.candidate_index]
        product = rows[0] @ rows[1].T
        scores = -(2 - 2 * product).clamp(min=0) if "euclidean" in loss.metric else product
        scores = -(-scores).sqrt() if loss.metric == "euclidean" else scores
        guide = guides[0][batch.query_index] @ guides[1][batch.candidate_index].T if guides else None
        for turned, teacher in ((scores, guide), (scores.T, guide.T if guides else None)):
            side = turned.detach().contiguous().requires_grad_()
            pairs = Pairs(side, positive, candidate_group=groups, query_norm=ones, candidate_norm=ones, teacher=teacher)
            (weights,) = torch.autograd.grad(loss(pairs).sum(), side)
            found.append((((weights.abs() / loss.unit(pairs)) > EPS) & pairs.negative).sum(dim=1))
    return found


def seconds(call) -> float:
    """Measure one call, in CPU seconds."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def ratio(name: str, embeddings: Embeddings) -> dict[str, float]:
    """Milliseconds per batch of both ways, medians of interleaved rounds, and the median of their ratios."""
    loss = losses.load(name)
    embeddings = embeddings if losses.traits(loss).requires else replace(embeddings, teacher=None)

    def counted():
        measures.count(embeddings, loss, EPS, batch_size=SIZE, sample="pairs")

    counted(), naive(loss, embeddings)
    rounds = [(seconds(counted), seconds(lambda: naive(loss, embeddings))) for _ in range(ROUNDS)]
    ours, theirs = (1000 * statistics.median(each) / BATCHES for each in zip(*rounds, strict=True))
    return {"count_ms": ours, "naive_ms": theirs, "ratio": statistics.median(a / b for a, b in rounds)}


def main() -> None:
    """Print a line for each loss, then the worst and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("losses", nargs="*", help="losses to time [all]")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    embeddings, found = drawn(), {}
    for name in asked.losses or losses.names():
        try:
            found[name] = ratio(name, embeddings)
        except InputError as error:
            print(f"{name:22}left out: {error}", flush=True)
            continue
        print(f"{name:22}" + "".join(f"{key} {value:8.2f}   " for key, value in found[name].items()), flush=True)
    ratios = {name: each["ratio"] for name, each in found.items()}
    worst = max(ratios, key=ratios.get)
    print(
        f"worst {ratios[worst]:.2f} ({worst}), median {statistics.median(ratios.values()):.2f} of {len(ratios)} losses"
    )
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
