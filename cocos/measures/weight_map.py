"""Who weighs on whom in one batch?"""

from typing import Unpack

import torch
import xarray as xr

from cocos import results
from cocos.base.errors import InputError, nearest
from cocos.base.ranges import Share, checked
from cocos.checkpoints import Checkpoint
from cocos.counting.weights import check_pairs
from cocos.embeddings import Embeddings
from cocos.embeddings.options import ONE_BATCH_DEFAULTS, OneBatch, fill_options
from cocos.measures.contributors import CONTRIBUTOR_LABELS
from cocos.measures.shared.prepared import prepare

ORDERS = ("hardness", "batch", "group")
# Maximum number of cells of a map.
MAP_CELLS = 2**22
CELL_LABELS = {
    "weight": CONTRIBUTOR_LABELS["weight"],
    "share": CONTRIBUTOR_LABELS["share"],
    "positive": ("positive pair",),
    "negative": ("negative pair",),
}
QUERY_COUNTS = {
    "negatives": "negatives of the query",
    "weighed": "negatives of the query with a weight",
    "contributing": "contributing negatives of the query",
    "pulled": "pulled positives of the query",
}


@checked
def weight_map(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    eps: Share = 0.01,
    *,
    direction: str | None = None,
    order: str = "hardness",
    **sampling: Unpack[OneBatch],
) -> xr.Dataset:
    """All weights of one batch, the first one that a seed draws.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss, or its name; a name takes the parameters that the checkpoint recorded for it.
        eps: smallest share that contributes.
        direction: which side asks; None: the first one.
        order: of queries and candidates: `hardness`, queries by their contributing negatives and candidates by the push
            that they receive, the most first; `batch`, as they were drawn; or `group`, by their groups.
        **sampling: options of the batches, see `Sampling`.

    Returns:
        Each (query, candidate): `weight`, signed; `share`, |weight| / unit; `positive` and `negative`, the masks. Of
        each (query,): its `negatives`, those that are `weighed` at all and those `contributing`, and its positives that
        are `pulled`. Of each (candidate,): `received`, its part of all push in the batch. Rows of the embeddings:
        `query_index` and `candidate_index`; their groups: `query_group` and `candidate_group`.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.weight_map(embeddings, "ntxent")
        >>> int(data["weighed"].sum())  # every negative has a weight
        6
    """
    sampling = fill_options("weight_map", sampling, ONE_BATCH_DEFAULTS | {"batch_size": 48})
    if order not in ORDERS:
        raise InputError(nearest("order", str(order), ORDERS))
    run = prepare(embeddings, loss, eps=eps, batches=1, **sampling)
    check_pairs(run.loss, "weight_map")
    (direction, side, second), (batch,) = run.side(direction), run.plan.batches
    batch = batch.flip() if second else batch
    size = (len(batch.query_index), len(batch.candidate_index))
    if size[0] * size[1] > MAP_CELLS:
        raise InputError(
            f"batch size: {size[0]} x {size[1]} cells, expected at most {MAP_CELLS:,}; take a smaller batch"
        )
    blocks = list(run.blocks(side, batch, whole=False))
    weight = torch.cat([weights for _, weights, _ in blocks])
    cells = {
        "weight": weight,
        "share": torch.cat([(weights.abs() / unit).expand_as(weights) for _, weights, unit in blocks]),
        "positive": torch.cat([pairs.positive for pairs, _, _ in blocks]),
        "negative": torch.cat([pairs.negative for pairs, _, _ in blocks]),
    }
    totals = {
        "negatives": cells["negative"].sum(dim=1),
        "weighed": (cells["negative"] & (weight != 0)).sum(dim=1),
        "contributing": (cells["negative"] & (cells["share"] > eps)).sum(dim=1),
        "pulled": (cells["positive"] & (weight < 0)).sum(dim=1),
    }
    push = (cells["negative"] * weight.clamp(min=0)).sum(dim=0)
    received = push / push.sum().clamp(min=torch.finfo(push.dtype).tiny)
    rows = {"query": (batch.query_index, side.query_group), "candidate": (batch.candidate_index, side.candidate_group)}
    rows = {
        name: (run.numbers(index, second != (name == "candidate")), group[index])
        for name, (index, group) in rows.items()
    }
    if order != "batch":
        keys = (-totals["contributing"], -received) if order == "hardness" else [group for _, group in rows.values()]
        places = [key.argsort(stable=True) for key in keys]
        cells = {name: values[places[0]][:, places[1]] for name, values in cells.items()}
        totals, received = {name: values[places[0]] for name, values in totals.items()}, received[places[1]]
        rows = {name: (index[p], group[p]) for (name, (index, group)), p in zip(rows.items(), places, strict=True)}
    attrs = run.provenance(
        title=f"Weights of one batch, {run.loss.name}",
        direction=direction,
        order=order,
    )
    variables = {name: (("query", "candidate"), values, *CELL_LABELS[name]) for name, values in cells.items()}
    variables |= {name: ("query", values, QUERY_COUNTS[name], "candidates") for name, values in totals.items()}
    variables["received"] = ("candidate", received, "fraction of the batch's push on the candidate", "1")
    for name, (index, group) in rows.items():
        variables[f"{name}_index"] = (name, index, f"row of the {name} in the embeddings", "1")
        variables[f"{name}_group"] = (name, group, f"group of the {name}", "1")
        variables[name] = (name, range(len(index)), f"place of the {name}")
    return results.labelled(variables, attrs, measure="weight_map")
