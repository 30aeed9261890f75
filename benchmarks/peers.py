"""Other implementations of the same statistics, and what is timed besides passes: evaluation, start-up, memory maps."""

import atexit
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from benchmarks import adapter
from cocos import measures
from cocos.embeddings import Embeddings
from cocos.embeddings.batches import Batch
from cocos.embeddings.sources import IN_BATCH, OTHERS_HARD, OWN_HARD

__all__ = ["PEERS", "four_products", "naive", "naive_columns", "products"]

TILE = 1024
NEAREST = 10


def products(parts: Sequence[Embeddings]) -> Callable[[], list]:
    """Compute the products of all tiles of the batches by torch.mm, into one reused buffer."""
    buffer = parts[0].query.new_empty(TILE * TILE)

    def run() -> list:
        for part in parts:
            for rows in part.query.split(TILE):
                for columns in part.candidate.split(TILE):
                    torch.mm(rows, columns.T, out=buffer[: len(rows) * len(columns)].view(len(rows), len(columns)))
        return []

    return run


def four_products(parts: Sequence[Embeddings]) -> Callable[[], list]:
    """Compute the products of all four directions: with the candidates, and among queries and positives."""
    every = []
    for part in parts:
        positive = part.candidate[: len(part.query)]
        sides = (part.query, part.candidate), (part.query, part.query), (positive, part.candidate)
        every += [products([Embeddings(*each, directions=("q2c",), shared=False, **_ids(*each))]) for each in sides]
    return lambda: [call() for call in every] and []


def _ids(query: Tensor, candidate: Tensor) -> dict[str, Tensor]:
    """Groups in which no query has a candidate."""
    number = len(query)
    return {"query_group": torch.arange(number), "candidate_group": number + torch.arange(len(candidate))}


def naive_columns(loss, eps: float) -> Callable[[Embeddings, Batch], Tensor]:
    """Count the shares above eps by source, (Q, 3), from ∂ loss / ∂ scores by autograd.

    Args:
        loss: MNRL in one direction.
        eps: smallest share that contributes.
    """

    def count(embeddings: Embeddings, batch: Batch) -> Tensor:
        scores = (embeddings.query @ embeddings.candidate.T).requires_grad_()
        rows, source = len(scores), torch.full(scores.shape, OTHERS_HARD, dtype=torch.int8)
        source[:, :rows] = IN_BATCH
        source.scatter_(1, embeddings.negatives, OWN_HARD)
        value = cross_entropy(loss.scale * scores, torch.arange(rows), reduction="sum")
        (gradient,) = torch.autograd.grad(value, scores)
        above = (gradient / loss.scale > eps).fill_diagonal_(False)
        return torch.stack([(above & (source == each)).sum(dim=1) for each in (IN_BATCH, OWN_HARD, OTHERS_HARD)], dim=1)

    return count


def naive(loss, eps: float) -> Callable[[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
    """Count and sum the shares above eps in both directions, from ∂ loss / ∂ scores by autograd.

    Args:
        loss: NT-Xent, SigLIP or triplet, of pairs.
        eps: smallest share that contributes.
    """
    softmax, unit = hasattr(loss, "temperature"), getattr(loss, "scale", 1)

    def one(query: Tensor, candidate: Tensor) -> list[tuple[Tensor, Tensor]]:
        scores = (query @ candidate.T).requires_grad_()
        other = ~torch.eye(len(scores), dtype=torch.bool, device=scores.device)
        target, found = torch.arange(len(scores), device=scores.device), []
        for side in (scores, scores.T):
            if softmax:
                value = cross_entropy(side * unit, target, reduction="sum")
            elif loss.logistic:
                value = binary_cross_entropy_with_logits(
                    unit * side + loss.bias, (~other).to(side.dtype), reduction="sum"
                )
            else:
                value = ((loss.margin + side - side.diagonal()[:, None]).clamp(min=0) * other).sum()
            (gradient,) = torch.autograd.grad(value, side, retain_graph=True)
            share = gradient.abs() / unit
            above = (share > eps) & other
            found.append((above.sum(dim=1), (share * above).sum(dim=1)))
        return found

    return one


def _evaluate(embeddings: Embeddings) -> Callable[[], list]:
    return lambda: [measures.evaluate(embeddings)]


def _argsort(embeddings: Embeddings) -> Callable[[], list]:
    """Best rank of every query in both directions, as in the published evaluation code: by sorting each row."""
    query, candidate = embeddings.query.numpy(), embeddings.candidate.numpy()
    groups = embeddings.query_group.numpy(), embeddings.candidate_group.numpy()

    def run() -> list:
        scores, found = query @ candidate.T, []
        for side, own, other in ((scores, *groups), (scores.T, *groups[::-1])):
            ranks = np.empty(len(side), dtype=np.int64)
            for row, group in enumerate(own):
                ranks[row] = np.flatnonzero(other[np.argsort(side[row])[::-1]] == group)[0]
            found.append(ranks)
        return found

    return run


def _faiss(embeddings: Embeddings) -> Callable[[], list]:
    """The nearest ten in both directions, which is all that R@10 needs."""
    import faiss

    faiss.omp_set_num_threads(1)
    sides = embeddings.query.numpy(), embeddings.candidate.numpy()

    def run() -> list:
        found = []
        for asking, asked in (sides, sides[::-1]):
            index = faiss.IndexFlatIP(asked.shape[1])
            index.add(asked)
            found.append(index.search(asking, NEAREST)[1])
        return found

    return run


def _calculator(embeddings: Embeddings) -> Callable[[], list]:
    """R@1, MAP@R and R-precision in both directions by pytorch-metric-learning, with faiss."""
    import faiss
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    faiss.omp_set_num_threads(1)
    names = ("precision_at_1", "mean_average_precision_at_r", "r_precision")
    calculator = AccuracyCalculator(include=names, k="max_bin_count", device=torch.device("cpu"))
    there = embeddings.query, embeddings.query_group, embeddings.candidate, embeddings.candidate_group
    back = *there[2:], *there[:2]
    return lambda: [calculator.get_accuracy(*there), calculator.get_accuracy(*back)]


def _folder() -> Path:
    """Create a folder that is deleted when this process ends."""
    path = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def command(name: str, embeddings: Embeddings) -> Callable[[], list]:
    """Time a separate process: Python alone, with torch, or `cocos count` on a file of the embeddings."""
    if name.startswith("cocos"):
        path = _folder() / "pairs.npz"
        np.savez(path, query=embeddings.query.numpy(), candidate=embeddings.candidate.numpy())
        words = ["-m", "cocos", "count", str(path), "--json"]
    else:
        words = ["-c", "import torch" if name.endswith("torch") else "pass"]
    return lambda: [subprocess.run([sys.executable, *words], check=True, capture_output=True).stdout]


@cache
def _saved(candidate: Tensor) -> Path:
    """Write the candidates to a file, once."""
    path = _folder() / "candidates.npy"
    np.save(path, candidate.numpy())
    return path


def mapped(embeddings: Embeddings) -> Callable[[], Embeddings]:
    """Open the candidates from a memory-mapped file, anew at each call; one direction."""
    path = _saved(embeddings.candidate)
    query, groups = embeddings.query.clone(), (embeddings.query_group, embeddings.candidate_group)

    def opened() -> Embeddings:
        candidate = torch.from_numpy(np.load(path, mmap_mode="c"))  # copy on write; nothing is written
        return Embeddings(query, candidate, *groups, directions=("q2c",))

    return opened


def map_product(opened: Embeddings) -> Callable[[], list]:
    """The floor: products of the queries with the mapped candidates."""
    return products([opened])


def map_pass(opened: Embeddings, reader: Callable) -> Callable[[], list]:
    """A pass of the queries over the mapped candidates."""
    return lambda: [adapter.passed(adapter.view(opened), [reader()])]


PEERS = {"evaluate": _evaluate, "argsort": _argsort, "faiss": _faiss, "calculator": _calculator}
