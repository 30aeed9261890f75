"""What pulls and pushes each query or proxy, how much of it cancels, and what does the normalisation remove?"""

import json
from typing import Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import results
from cocos.base.errors import InputError
from cocos.base.ranges import checked
from cocos.checkpoints import Checkpoint
from cocos.counting import averages, forces, statistics
from cocos.counting.weights import check_pairs
from cocos.embeddings import Embeddings
from cocos.embeddings.options import DEFAULTS, Sampling, fill_options, tracked
from cocos.embeddings.sampling import Batch
from cocos.embeddings.scores import Pairs
from cocos.embeddings.similarities import length
from cocos.measures.health import DIRECTION_LABELS, reports
from cocos.measures.shared.prepared import Run, prepare

GRADIENT_LABELS = {
    "pull_norm": ("length of the pull", "loss / length"),
    "push_norm": ("length of the push", "loss / length"),
    "net_norm": ("length of pull and push together", "loss / length"),
    "tangential_norm": ("length of the tangential part", "loss / length"),
    "gradient_norm": ("length of the raw gradient", "loss / length"),
    "candidate_role_norm": ("length as a candidate", "loss / length"),
    "both_roles_norm": ("length in both roles", "loss / length"),
    "mass_ratio": ("push / pull", "1"),
    "pull_push_cosine": ("cosine between pull and push", "1"),
    "cancellation": DIRECTION_LABELS["cancellation"],
    "radial_fraction": ("radial part of the gradient", "1"),
    "radial_fraction_pull": ("radial part of the pull", "1"),
    "radial_fraction_push": ("radial part of the push", "1"),
    "radial": ("slope along the norm", "loss / length"),
    "hardest_share": statistics.BY_NAME["hardest_share"].about,
    "hardest_share_force": ("strongest negative, force", "1"),
    "hardest_projection": ("heaviest negative, projection", "1"),
    "hardest_rank": ("rank by score of the heaviest negative", "rank"),
    "hardest_rank_force": ("rank by score of the strongest negative", "rank"),
    "contributing": ("contributing negatives, by weight", "candidates"),
    "contributing_force": ("contributing negatives, by force", "candidates"),
    "pushed_positives": ("pushed positives", "candidates"),
    "pushed_positives_part": ("weight fraction on pushed positives", "1"),
    "pulled_negatives": ("pulled negatives", "candidates"),
    "pulled_negatives_part": ("weight fraction on pulled negatives", "1"),
}

# The forces on class proxies, beside the directions; their variables in a Dataset start with the prefix.
ON_PROXIES, PROXY_PREFIX = "proxies", "proxy_"


def radial(loss, pairs: Pairs) -> Tensor | None:
    """∂ Σ loss / ∂ norm of each query, (Q,); None for a closed form that reads no norm."""
    if loss.reads_norms:
        return loss.radial(pairs)
    return None if loss.closed_form else forces.norm_slope(loss, pairs, "query")


def _of_batch(
    run: Run, embeddings: Embeddings, batch: Batch, eps: float
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Statistics of every query of one batch, (queries,) each, and of the forces on every proxy, (proxies,) each."""
    records, as_query, as_candidate = [], [], 0
    pulled, pushed, slope = 0, 0, None
    both_roles = embeddings.shared and torch.equal(batch.query_index, batch.candidate_index)
    for pairs, weight, unit in run.blocks(embeddings, batch, whole=False):
        along = radial(run.loss, pairs)
        share = weight.abs() / unit
        part = forces.per_query(weight, pairs, run.loss.metric, along)
        part["contributing"] = statistics.contributing(share, pairs, eps)
        by_force = forces.force_share(weight, unit, pairs, run.loss.metric)
        part["contributing_force"] = statistics.contributing(by_force, pairs, eps)
        part["negatives"] = pairs.negative.sum(dim=1)
        records.append(part)
        if embeddings.proxies:
            pull, push = forces.candidate_sides(weight, pairs, run.loss.metric)
            pulled, pushed = pulled + pull, pushed + push
            if along is not None:
                slope = forces.norm_slope(run.loss, pairs, "candidate") + (0 if slope is None else slope)
        if both_roles:
            pull, push = forces.sides(weight, pairs, run.loss.metric)
            as_query.append(forces.gradient(pull, push, pairs, run.loss.metric, along))
            across = None if along is None else forces.norm_slope(run.loss, pairs, "candidate")
            as_candidate = as_candidate + forces.candidate_gradient(weight, pairs, run.loss.metric, across)
    found = {name: torch.cat([part[name] for part in records]) for name in records[0]}
    if both_roles:
        found["candidate_role_norm"] = length(as_candidate)
        found["both_roles_norm"] = length(torch.cat(as_query) + as_candidate)
    forced = forces.parts(pulled, pushed, pairs, run.loss.metric, slope, "candidate") if embeddings.proxies else {}
    norms = [each[name] for each in (found, forced) if each for name in ("pull_norm", "push_norm", "gradient_norm")]
    if not all(each.isfinite().all() for each in norms):
        dtype = str(embeddings.query.dtype).removeprefix("torch.")
        raise InputError(f"{run.loss!r}: its gradients leave the range of {dtype}; the embeddings are too short")
    return found | {"query_index": batch.query_index}, forced


def _of_proxies(batches: list[dict[str, Tensor]]) -> dict[str, tuple]:
    """Variables of the force on each proxy: means over the batches in which it is defined."""
    made = {}
    for name, (label, units) in GRADIENT_LABELS.items():
        if name in batches[0]:
            mean = torch.stack([batch[name] for batch in batches]).nanmean(dim=0)
            made[f"{PROXY_PREFIX}{name}"] = ("proxy", mean, f"{label.replace('query', 'proxy')}, on a proxy", units)
    return made


def on_proxies(data: xr.Dataset) -> xr.Dataset:
    """The forces on the class proxies, (proxy,) each, by the names that those on queries have; empty without any."""
    found = data[[name for name in data.data_vars if data[name].dims == ("proxy",)]]
    return found.rename({name: str(name).removeprefix(PROXY_PREFIX) for name in found.data_vars})


@checked
def decomposition(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    eps: float = 0.01,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Take the gradient of each query apart, in training batches, in every direction by itself.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss, or its name; a name takes the parameters that the checkpoint recorded for it.
        eps: smallest share that contributes, by weight and by force.
        **sampling: options of the batches, see `Sampling`.

    Returns:
        The statistics of `cocos.counting.forces.per_query`, dims (direction, batch, query), missing where they are not
        defined; `contributing` by weight and `contributing_force`; `negatives`; and in a labelled set, where samples
        are candidates of each other, `candidate_role_norm`, the length of the gradient of a sample in that role, and
        `both_roles_norm`, that of its whole gradient. With class proxies there are the forces on each of them, too, of
        the summed loss of a batch, mean over the batches, dim (proxy,): `proxy_pull_norm`, of the pull of its own
        samples, `proxy_push_norm`, of the push of the samples of other classes, and so on, as those of a query
        (DeMoor & Prevost 2024, arXiv:2408.15656, Figs. 2 and 4).

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> ntxent = cocos.losses.load("ntxent", {"temperature": 1})
        >>> data = cocos.measures.decomposition(embeddings, ntxent, batch_size="all")
        >>> data["contributing"].values.ravel().tolist()
        [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    """
    sampling = fill_options("decomposition", sampling, DEFAULTS)
    run = prepare(embeddings, loss, eps=eps, **sampling)
    check_pairs(run.loss, "decomposition", graded=run.embeddings.grades is not None)
    records, on_each = {name: [] for name, _, _ in run.sides}, []
    for batch in tracked(run.plan.batches, sampling["progress"], "decomposing"):
        for name, side, second in run.sides:
            found, forced = _of_batch(run, side, batch.flip() if second else batch, eps)
            found["query_index"] = run.numbers(found["query_index"], second)
            records[name].append(found)
            on_each.append(forced)
    attrs = run.provenance(
        title=f"Decomposition of the gradient, {type(run.loss).__name__}",
        health=json.dumps(reports([run])[0]),
    )
    arrays = averages.arrays(records)
    values = {name: arrays[name] for name in (*GRADIENT_LABELS, "negatives", "query_index") if name in arrays}
    values["queries"] = (~np.isnan(arrays["negatives"])).sum(axis=2)
    variables = averages.variables(values, list(records), GRADIENT_LABELS)
    return results.labelled(variables | _of_proxies(on_each), attrs, measure="decomposition")
