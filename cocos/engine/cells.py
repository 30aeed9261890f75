"""Nearest rows by cells: k-means of the candidates, and for each query the candidates of the nearest cells alone.

The answer is not exact. How much it misses is told by its recall on rows that are scored against everything.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.embeddings import Embeddings
from cocos.embeddings.scores import METRICS, NORMALISED_SIDES
from cocos.embeddings.similarities import unit
from cocos.engine import retrieval

__all__ = ["Cells", "nearest"]

# Rows of a sample of which the centres are learned, for each cell; more change little (k-means in faiss takes 256).
LEARNED_FROM = 64
CELL_ITERATIONS = 10  # of k-means
SCORES_TOGETHER = 2**22  # scores that are computed at once
ROWS_TOGETHER = 2**16  # rows that are assigned to cells at once


@dataclass(frozen=True, eq=False)
class Cells:
    """Candidates by the cell that they are in.

    Args:
        centre: (K, D) float32.
        order: (C,) candidates, those of a cell side by side.
        begin: (K + 1,) where each cell begins in `order`.
    """

    centre: Tensor
    order: Tensor
    begin: Tensor

    @classmethod
    def of(cls, rows: Tensor, number: int, metric: str, seed: int) -> "Cells":
        """Cluster the candidates of a metric."""
        number = min(number, len(rows))
        generator = torch.Generator().manual_seed(seed)
        some = torch.randperm(len(rows), generator=generator)[: LEARNED_FROM * number].sort().values
        sample = _points(rows[some], metric)
        labels, _ = retrieval.kmeans(sample, retrieval.kmeans_plus_plus(sample, number, seed), CELL_ITERATIONS)
        sizes = torch.bincount(labels, minlength=number).clamp(min=1)
        centre = torch.zeros(number, rows.shape[1]).index_add_(0, labels, sample) / sizes[:, None]
        cell = torch.cat([
            _distances(_points(part, metric), centre).argmin(dim=1) for part in rows.split(ROWS_TOGETHER)
        ])
        begin = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(cell, minlength=number).cumsum(0)])
        return cls(centre, cell.argsort(stable=True), begin)


def _points(rows: Tensor, metric: str) -> Tensor:
    """Rows as they are clustered, in float32."""
    return unit(rows.float()) if NORMALISED_SIDES.get(metric) else rows.float()


def _distances(points: Tensor, centre: Tensor) -> Tensor:
    """Squared distances up to a number of each point, (n, K)."""
    return centre.square().sum(dim=1) - 2 * (points @ centre.T)


def nearest(
    embeddings: Embeddings,
    metric: str,
    keep: int,
    cells: int,
    visited: int,
    seed: int,
    report: Callable[[int, int], None] | None = None,
) -> Tensor:
    """The nearest candidates of each query in the cells that are nearest to it, (Q, keep); -1 where there are fewer.

    Args:
        embeddings: in whose first direction is asked.
        metric: of the scores.
        keep: candidates of each query.
        cells: their number.
        visited: cells that are searched for each query.
        seed: of the clustering.
        report: called with cells done, and in all.
    """
    embeddings = embeddings.to("cpu")  # where SciPy clusters
    made = Cells.of(embeddings.candidate, cells, metric, seed)
    number = len(made.centre)
    near = torch.cat([
        _distances(_points(part, metric), made.centre).topk(min(visited, number), dim=1, largest=False).indices
        for part in embeddings.query.split(ROWS_TOGETHER)
    ])
    asked = near.flatten().argsort(stable=True)
    ends = torch.bincount(near.flatten(), minlength=number).cumsum(0).tolist()
    best = torch.full((len(near), keep), -torch.inf)
    found = torch.full((len(near), keep), -1)
    for cell in range(number):
        own = made.order[made.begin[cell] : made.begin[cell + 1]]
        queries = asked[(ends[cell - 1] if cell else 0) : ends[cell]] // near.shape[1]
        rows = embeddings.candidate[own].float()
        for some in queries.split(max(1, SCORES_TOGETHER // max(1, len(own)))) if len(own) else ():
            score = METRICS[metric](embeddings.query[some].float(), rows)
            if embeddings.shared:
                score.masked_fill_(some[:, None] == own, -torch.inf)
            top = score.topk(min(keep, len(own)), dim=1)
            both = torch.cat([best[some], top.values], dim=1).sort(dim=1, descending=True, stable=True)
            places = torch.cat([found[some], own[top.indices]], dim=1)
            best[some], found[some] = both.values[:, :keep], places.gather(1, both.indices)[:, :keep]
        if report:
            report(cell + 1, number)
    return torch.where(best > -torch.inf, found, -1)
