"""Build what is timed: each row of a case as a function without arguments."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from benchmarks import adapter, peers
from benchmarks.cases import Reading, Row
from cocos import losses, measures
from cocos.embeddings import Embeddings
from cocos.embeddings.batches import Batch

__all__ = ["autograd", "counted", "loss_of", "metric", "prepare", "reader"]

CURVES = ("eps_curve", "lorenz", "temperature_curve")


def loss_of(reading: Reading):
    """Return the loss of a reading; None for a reader of ranks or scores."""
    return None if reading.name in adapter.PLAIN else losses.load(reading.name, reading.parameters)


def reader(reading: Reading):
    """Return a reader of the pass.

    Raises:
        LookupError: the engine has none for this loss.
    """
    if reading.name in adapter.PLAIN:
        return adapter.plain(reading.name)
    found = adapter.reader(loss_of(reading), reading.eps, spread=reading.spread, relative=False)
    if found is None:
        raise LookupError(f"the pass has no reader for {reading.name}")
    return found


def metric(rows: tuple[Row, ...]) -> str:
    """Return the metric shared by all rows of a case."""
    found = [loss_of(each) for row in rows for each in row.readings]
    return next((loss.metric for loss in found if loss is not None), "cosine")


def _parts(embeddings: Embeddings, batches: tuple[Batch | None, ...]) -> list[Embeddings]:
    return [embeddings if b is None else embeddings.rows(b.query_index, b.candidate_index) for b in batches]


def counted(embeddings: Embeddings, batches: tuple[Batch, ...], reading: Reading) -> list[tuple[dict, ...]]:
    """Count batches with the public function; for each batch, one dict a direction, as a pass returns it."""
    data = measures.count(embeddings, loss_of(reading), reading.eps, batches=batches)
    names = [key for key in data if data[key].dims == ("direction", "batch", "query") and key != "query_index"]
    found = []
    for k in range(len(batches)):
        sides = []
        for direction in data["direction"].values:
            own = data.sel(direction=direction).isel(batch=k)
            there = torch.from_numpy(own["contributing"].values).isfinite()
            values = {str(key).removesuffix("_per_query"): torch.from_numpy(own[key].values)[there] for key in names}
            sides.append({"uncertain": torch.zeros_like(values["contributing"])} | values)
        found.append(tuple(sides))
    return found


def autograd(query: Tensor, candidate: Tensor, loss) -> Tensor:
    """∂ loss / ∂ scores of NT-Xent, of both directions, or of SigLIP, from the full score matrix, (Q, C)."""
    matrix = (query @ candidate.T).requires_grad_()
    if loss.logistic:
        match = torch.eye(len(matrix)).to(matrix)
        binary_cross_entropy_with_logits(loss.scale * matrix + loss.bias, match, reduction="sum").backward()
        return matrix.grad
    target = torch.arange(len(matrix), device=matrix.device)
    total = cross_entropy(matrix / loss.temperature, target, reduction="sum")
    (total + cross_entropy(matrix.T / loss.temperature, target, reduction="sum")).backward()
    return matrix.grad


def _of_library(reading: Reading):
    """The loss of pytorch-metric-learning that equals one of the shelf."""
    import pytorch_metric_learning.losses as pml

    loss = loss_of(reading)
    if reading.name == "triplet":
        return pml.TripletMarginLoss(margin=loss.margin)
    return {"ntxent": pml.NTXentLoss, "supcon": pml.SupConLoss}[reading.name](temperature=loss.temperature)


def _pml(part: Embeddings, reading: Reading) -> Callable[[], None]:
    """Forward and backward of pytorch-metric-learning's loss, in both directions."""
    loss = _of_library(reading)

    def run() -> None:
        query, candidate = part.query.clone().requires_grad_(), part.candidate.clone().requires_grad_()
        labels = part.query_group
        there = loss(query, labels, ref_emb=candidate, ref_labels=labels)
        (there + loss(candidate, labels, ref_emb=query, ref_labels=labels)).backward()

    return run


def prepare(
    row: Row, embeddings: Embeddings, batches: tuple[Batch | None, ...], kind: str, size: int | None = None
) -> Callable[[], list]:
    """Build the function that a row names; it returns one result a batch. Set-up happens here, not in the call.

    Args:
        row: what to run.
        embeddings: the whole set.
        batches: rows of each batch; `(None,)` for all.
        kind: metric of the scores.
        size: batch size of the public count, which then draws batches; None: it receives `batches`.

    Raises:
        LookupError: the engine has no reader for it.
        ModuleNotFoundError: a peer is not installed.
    """
    if row.way == "pass":
        wanted = [reader(each) for each in row.readings]
        return lambda: [adapter.passed(adapter.view(embeddings, batch, metric=kind), wanted) for batch in batches]
    if row.way == "command":
        return peers.command(row.name, embeddings)
    if row.way.startswith("map"):
        opened = peers.mapped(embeddings)
        if row.way == "map-open":
            return lambda: [opened()]
        if row.way == "map-product":
            return peers.map_product(opened())
        return peers.map_pass(opened(), lambda: reader(row.readings[0]))
    if row.way in peers.PEERS:
        return peers.PEERS[row.way](embeddings)
    if row.way == "count":
        (reading,) = row.readings
        if size is None:
            return lambda: counted(embeddings, batches, reading)
        loss = loss_of(reading)
        return lambda: [measures.count(embeddings, loss, reading.eps, batch_size=size)]
    if row.way == "library":
        (reading,) = row.readings
        return lambda: [measures.count(embeddings, _of_library(reading), reading.eps, batch_size=size, sample="pairs")]
    if row.way in CURVES:
        (reading,) = row.readings
        measure, loss = getattr(measures, row.way), loss_of(reading)
        return lambda: [measure(embeddings, loss, batch_size=size or len(embeddings.query))]
    if row.way == "columns":
        (reading,) = row.readings
        return lambda: [[(adapter.columned(embeddings, b, loss_of(reading), reading.eps),)] for b in batches]
    if row.way == "naive-columns":
        (reading,) = row.readings
        count = peers.naive_columns(loss_of(reading), reading.eps)
        return lambda: [count(embeddings, batch) for batch in batches]
    parts = _parts(embeddings, batches)
    if row.way == "bare-directions":
        return peers.four_products(parts)
    if row.way == "bare":
        return peers.products(parts)
    (reading,) = row.readings
    if row.way == "naive":
        count = peers.naive(loss_of(reading), reading.eps)
        return lambda: [count(part.query, part.candidate) for part in parts]
    if row.way == "autograd":
        loss = loss_of(reading)
        return lambda: [autograd(part.query, part.candidate, loss) for part in parts]
    runs = [_pml(part, reading) for part in parts]
    return lambda: [run() for run in runs]
