"""What pulls and pushes each query, how much of it cancels, and what does the normalisation remove?"""

import json
from typing import Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.counting import averages, statistics
from cocos.counting.forces import candidate_gradient, force_share, gradient, norm_slope, per_query, sides
from cocos.counting.weights import check_pairs
from cocos.embeddings import Embeddings
from cocos.embeddings.batches import Batch
from cocos.embeddings.scores import Pairs, length
from cocos.engine.prepared import Run, prepare
from cocos.engine.sampling import Sampling, sampled
from cocos.measures.health import reports

GRADIENT_LABELS = {
    "pull_norm": ("length of the pull", "loss / length"),
    "push_norm": ("length of the push", "loss / length"),
    "net_norm": ("length of pull and push together", "loss / length"),
    "tangential_norm": ("length of the part that the normalisation leaves", "loss / length"),
    "gradient_norm": ("length of the gradient of the raw embedding", "loss / length"),
    "candidate_role_norm": ("length of its gradient as a candidate of the others", "loss / length"),
    "both_roles_norm": ("length of its gradient in both roles", "loss / length"),
    "mass_ratio": ("weight of the negatives / of the positives", "1"),
    "pull_push_cosine": ("cosine between pull and push", "1"),
    "cancellation": ("part of pull and push that cancels", "1"),
    "radial_fraction": ("radial part, which the normalisation removes", "1"),
    "radial_fraction_pull": ("radial part of the pull", "1"),
    "radial_fraction_push": ("radial part of the push", "1"),
    "radial": ("slope of the loss along the norm of the query", "loss / length"),
    "hardest_share": ("part of the push on the heaviest negative", "1"),
    "hardest_share_force": ("part of the force on the strongest negative", "1"),
    "hardest_projection": ("projection of the heaviest negative on the push", "1"),
    "hardest_rank": ("rank by score of the heaviest negative", "rank"),
    "hardest_rank_force": ("rank by score of the strongest negative", "rank"),
    "contributing": ("contributing negatives, by weight", "candidates"),
    "contributing_force": ("contributing negatives, by force", "candidates"),
    "pushed_positives": ("positives that are pushed", "candidates"),
    "pushed_positives_part": ("part of all weight that pushes positives", "1"),
    "pulled_negatives": ("negatives that are pulled", "candidates"),
    "pulled_negatives_part": ("part of all weight that pulls negatives", "1"),
}


def _radial(loss, pairs: Pairs) -> Tensor | None:
    """∂ Σ loss / ∂ norm of each query, (Q,); None for a closed form that reads no norm."""
    if isinstance(loss, losses.ReadsNorms):
        return loss.radial(pairs)
    return None if losses.has_closed_form(loss) else norm_slope(loss, pairs, "query")


def _of_batch(run: Run, embeddings: Embeddings, batch: Batch, eps: float) -> dict[str, Tensor]:
    """Statistics of every query of one batch, (queries,) each."""
    parts, as_query, as_candidate = [], [], 0
    both_roles = embeddings.shared and torch.equal(batch.query_index, batch.candidate_index)
    for pairs, weight, unit in run.blocks(embeddings, batch, whole=False):
        radial = _radial(run.loss, pairs)
        share = weight.abs() / unit
        part = per_query(weight, pairs, run.loss.metric, radial)
        part["contributing"] = statistics.contributing(share, pairs, eps)
        by_force = force_share(weight, unit, pairs, run.loss.metric)
        part["contributing_force"] = statistics.contributing(by_force, pairs, eps)
        part["negatives"] = pairs.negative.sum(dim=1)
        parts.append(part)
        if both_roles:
            pull, push = sides(weight, pairs, run.loss.metric)
            as_query.append(gradient(pull, push, pairs, run.loss.metric, radial))
            across = None if radial is None else norm_slope(run.loss, pairs, "candidate")
            as_candidate = as_candidate + candidate_gradient(weight, pairs, run.loss.metric, across)
    found = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    if both_roles:
        found["candidate_role_norm"] = length(as_candidate)
        found["both_roles_norm"] = length(torch.cat(as_query) + as_candidate)
    if not all(found[name].isfinite().all() for name in ("pull_norm", "push_norm", "gradient_norm")):
        dtype = str(embeddings.query.dtype).removeprefix("torch.")
        raise InputError(f"{run.loss!r}: its gradients leave the range of {dtype}; the embeddings are too short")
    return found | {"query_index": batch.query_index}


@sampled()
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
        **sampling: options of the batches, see `cocos.sampling.Sampling`.

    Returns:
        The statistics of `cocos.forces.per_query`, dims (direction, batch, query), missing where they are not
        defined; `contributing` by weight and `contributing_force`; `negatives`; and in a labelled set, where samples
        are candidates of each other, `candidate_role_norm`, the length of the gradient of a sample in that role, and
        `both_roles_norm`, that of its whole gradient.

    Raises:
        InputError: an option or an embedding that cannot be used, or a loss that does not weigh scores of a metric.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> ntxent = cocos.losses.load("ntxent", {"temperature": 1})
        >>> data = cocos.measures.decomposition(embeddings, ntxent, batch_size="all")
        >>> data["contributing"].values.ravel().tolist()
        [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    """
    run = prepare(embeddings, loss, eps=eps, **sampling)
    traits = losses.traits(run.loss)
    if traits.weights == "influence" or traits.own_scores:
        raise InputError(f"{run.loss!r}: it weighs no scores that cocos knows, so pull and push have no direction")
    check_pairs(run.loss, "decomposition", graded=run.embeddings.grades is not None)
    report = sampling["progress"] and sampling["progress"]("decomposing")
    records = {name: [] for name, _, _ in run.sides}
    for done, batch in enumerate(run.plan.batches):
        for name, side, second in run.sides:
            records[name].append(_of_batch(run, side, batch.flip() if second else batch, eps))
        if report:
            report(done + 1, len(run.plan.batches))
    attrs = run.provenance(
        title=f"Decomposition of the gradient, {type(run.loss).__name__}",
        health=json.dumps(reports([run])[0]),
    )
    found = averages.arrays(records)
    values = {name: found[name] for name in (*GRADIENT_LABELS, "negatives", "query_index") if name in found}
    values["queries"] = (~np.isnan(found["negatives"])).sum(axis=2)
    return results.labelled(averages.variables(values, list(records), GRADIENT_LABELS), attrs)


def document(data: xr.Dataset) -> dict:
    """A decomposition as the JSON document of `cocos decompose --json`.

    An entry is the mean over all queries for which the statistic is defined, and the deviation over the full batches of
    their own means; one batch has no deviation.
    """
    attrs, named = data.attrs, data[[name for name in GRADIENT_LABELS if name in data]]
    whole, means, full = named.mean(("batch", "query")), named.mean("query"), averages.full_batches(data)

    def entry(key: str, name: str) -> dict[str, float | None]:
        return averages.entry(*(each[key].sel(direction=name).values for each in (whole, means)), full)

    return {
        **results.about(attrs),
        "gradient": attrs["gradient"],
        "metric": attrs["metric"],
        **averages.drawn(data, full),
        "directions": {str(name): {key: entry(key, name) for key in named} for name in data["direction"].values},
    }
