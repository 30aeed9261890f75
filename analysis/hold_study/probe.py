"""Measure a stack of models: recall on validation and test items, and the effective number of negatives."""

import torch
from torch import Tensor

from analysis.hold_study.tasks import Split, Task
from analysis.hold_study.training import Heads, Trained, batches, effective

__all__ = ["COUNTED", "DRAWN", "measured", "recalls", "rsum"]

CUTS = (1, 5, 10)
# Batches of training items on which the effective number is counted at the end, and the seed that draws them.
COUNTED, DRAWN = 4, 2026


def recalls(query: Tensor, candidate: Tensor, each: int) -> Tensor:
    """Sum of R@1, R@5 and R@10 of both directions, (), by inner products; a tie goes before the positive.

    Args:
        query: (N, D).
        candidate: (N * each, D); the candidates of one query stand next to each other.
        each: candidates of a query.
    """
    number = len(query)
    mine = torch.arange(number).repeat_interleave(each) == torch.arange(number)[:, None]
    scores = query @ candidate.T
    positive = scores[mine].view(number, each)
    others = scores.masked_fill(mine, -torch.inf)
    ranks = (others >= positive.amax(dim=1, keepdim=True)).sum(dim=1), (others >= positive.flatten()).sum(dim=0)
    return torch.as_tensor(sum(100 * (rank < cut).double().mean() for rank in ranks for cut in CUTS))


@torch.no_grad()
def rsum(heads: Heads, split: Split) -> Tensor:
    """Sum of R@1, R@5 and R@10 of both directions, (R,), 0 to 600; a negative that ties goes before the positive."""
    query, candidate = heads(split.query, split.candidate.flatten(0, 1))
    each = split.candidate.shape[1]
    return torch.stack([recalls(one, other, each) for one, other in zip(query, candidate, strict=True)])


@torch.no_grad()
def measured(found: Trained, task: Task, size: int, loss: str) -> dict[str, list[float]]:
    """Numbers of each arm: recall, and the effective number on the same batches of training items for all."""
    split, generator = task.splits["train"], torch.Generator().manual_seed(DRAWN)
    counted = []
    for rows, columns in batches(split, size, COUNTED, generator):
        query, candidate = found.heads(split.query[rows], split.candidate[rows, columns])
        scores = (query @ candidate.mT).double()
        counted.append(effective(scores, found.temperature.double()[:, None, None], loss))
    return {
        "rsum": rsum(found.heads, task.splits["test"]).tolist(),
        "rsum_val": rsum(found.heads, task.splits["val"]).tolist(),
        "effective": torch.stack(counted).mean(dim=0).tolist(),
        "temperature": found.temperature.tolist(),
    }
