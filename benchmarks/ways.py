"""The things that are timed: each row of a case as a function without arguments."""

from collections.abc import Callable
from dataclasses import fields

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.cases import Reading, Row
from benchmarks.published import COUNTERS
from cocos import losses, readers, sweep
from cocos.batches import Batch
from cocos.dense import Dense
from cocos.embeddings import Embeddings

__all__ = ["autograd", "loss_of", "metric", "prepare", "reader"]

TILE = 1024
PLAIN = {"ranks": "Ranks", "precision_recall": "PrecisionRecall", "histogram": "Histogram"}


def loss_of(reading: Reading):
    """The loss that is read, or None for a reader of ranks or scores."""
    return None if reading.name in PLAIN else losses.load(reading.name, reading.parameters)


def reader(reading: Reading):
    """A reader of the pass.

    Raises:
        LookupError: the pass has none for this loss.
    """
    if reading.name in PLAIN:
        return getattr(readers, PLAIN[reading.name])()
    found = readers.of(loss_of(reading), eps=reading.eps, spread=reading.spread)
    if found is None:
        raise LookupError(f"the pass has no reader for {reading.name}")
    return found


def metric(rows: tuple[Row, ...]) -> str:
    """The one kind of score that all rows of a case read."""
    found = [loss_of(each) for row in rows for each in row.readings]
    return next((loss.metric for loss in found if loss is not None), "cosine")


def _parts(embeddings: Embeddings, batches: tuple[Batch | None, ...]) -> list[Embeddings]:
    return [embeddings if b is None else embeddings.rows(b.query_index, b.candidate_index) for b in batches]


def _bare(view: sweep.View) -> Callable[[], None]:
    """The products of all tiles of a pass, by the product that it has chosen, of factors that are on hand."""
    blocks = [
        [
            view.operand(side, start, min(start + size, len(view.sides[side])))
            for start in range(0, len(view.sides[side]), size)
        ]
        for side, size in enumerate(sweep.tile_of(view))
    ]
    out = torch.empty(sweep.tile_of(view), dtype=view.dtype, device=view.device)

    def run() -> None:
        for left in blocks[0]:
            for right in blocks[1]:
                inside = out[: len(left), : len(right)]
                sweep.multiply(left, right, inside)

    return run


def _mm(query: Tensor, candidate: Tensor) -> None:
    """The products of all tiles by torch.mm, into one buffer."""
    buffer = query.new_empty(TILE, TILE)
    for rows in query.split(TILE):
        for columns in candidate.split(TILE):
            if len(rows) == len(columns) == TILE:
                torch.mm(rows, columns.T, out=buffer)
            else:
                torch.mm(rows, columns.T)


def autograd(query: Tensor, candidate: Tensor, temperature: float) -> Tensor:
    """∂ loss / ∂ scores of NT-Xent in both directions, all scores held, (Q, C)."""
    matrix = (query @ candidate.T).requires_grad_()
    target = torch.arange(len(matrix), device=matrix.device)
    total = cross_entropy(matrix / temperature, target, reduction="sum")
    (total + cross_entropy(matrix.T / temperature, target, reduction="sum")).backward()
    return matrix.grad


def _pml(part: Embeddings, reading: Reading) -> Callable[[], None]:
    """Forward and backward of pytorch-metric-learning's loss, in both directions."""
    import pytorch_metric_learning.losses as pml

    cls = {"ntxent": pml.NTXentLoss, "supcon": pml.SupConLoss}[reading.name]
    loss = cls(temperature=reading.parameters["temperature"])

    def run() -> None:
        query, candidate = part.query.clone().requires_grad_(), part.candidate.clone().requires_grad_()
        labels = part.query_group
        there = loss(query, labels, ref_emb=candidate, ref_labels=labels)
        (there + loss(candidate, labels, ref_emb=query, ref_labels=labels)).backward()

    return run


def _published(part: Embeddings, reading: Reading):
    loss = loss_of(reading)
    arguments = {field.name: getattr(loss, field.name) for field in fields(loss)}
    eps = {} if reading.name == "triplet" else {"eps": reading.eps}
    return COUNTERS[reading.name](part.query @ part.candidate.T, **arguments, **eps)


def prepare(
    row: Row, embeddings: Embeddings, batches: tuple[Batch | None, ...], kind: str, tile: tuple[int, int] | None = None
) -> Callable[[], list]:
    """One result a batch, of the way that the row names; what it needs on hand is built here, not in the call.

    Args:
        row: what is to be run.
        embeddings: the whole set.
        batches: the rows that are seen together; `(None,)` for all.
        kind: of scores.
        tile: of the pass; None: its own choice.

    Raises:
        LookupError: the pass has no reader for it.
        ModuleNotFoundError: pytorch-metric-learning is not installed.
    """
    if row.way == "bare":
        bare = [_bare(sweep.view(embeddings, batch, metric=kind)) for batch in batches]
        return lambda: [run() for run in bare]
    if row.way == "pass":
        wanted = [reader(each) for each in row.readings]
        return lambda: [sweep.run(sweep.view(embeddings, b, metric=kind), wanted, tile=tile) for b in batches]
    parts = _parts(embeddings, batches)
    if row.way == "mm":
        return lambda: [_mm(part.query, part.candidate) for part in parts]
    (reading,) = row.readings
    if row.way == "dense":
        count = Dense(loss_of(reading), reading.eps)
        return lambda: [[count(part.query, part.candidate)] for part in parts]
    if row.way == "autograd":
        temperature = loss_of(reading).temperature
        return lambda: [autograd(part.query, part.candidate, temperature) for part in parts]
    if row.way == "published":
        return lambda: [_published(part, reading) for part in parts]
    runs = [_pml(part, reading) for part in parts]
    return lambda: [run() for run in runs]
