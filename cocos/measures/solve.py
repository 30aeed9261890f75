"""Which temperature, scale or margin gives a wanted effective number of negatives?"""

import functools
from typing import Unpack

import numpy as np
import xarray as xr

from cocos import losses, results
from cocos.base.ranges import checked
from cocos.checkpoints import Checkpoint
from cocos.counting import sharpness
from cocos.embeddings import Embeddings
from cocos.embeddings.options import DEFAULTS, Sampling, fill_options
from cocos.engine import devices
from cocos.measures.shared.prepared import few_batches, prepare
from cocos.measures.shared.settings import Scored

# Part of the negatives that share the push where no number is wanted: in docs/study.md recall turns at 16 of 127.
USUAL_PART = 1 / 8
USUAL_NOTE = (
    "no number was wanted, so an eighth of the negatives of a batch is taken, {:g}: in the trainings of docs/study.md "
    "recall rose up to about 16 of 127 and fell beyond, and the best settings had 7 to 34; other data need not share it"
)
SOLVE_LABELS = {
    "effective": ("effective negatives", "candidates"),
    "effective_mean": ("effective negatives, mean", "candidates"),
    "tried_effective": ("effective negatives", "candidates"),
}


@devices.threads(1)
@checked
def solve(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    *,
    effective: sharpness.Effective | None = None,
    parameter: str | None = None,
    bounds: sharpness.Bounds | None = None,
    tolerance: sharpness.Tolerance = 1e-3,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Find the temperature, scale or margin at which a loss has a wanted mean effective number of negatives.

    The embeddings stay those of the model as it is: this is the value to start with, or to compare losses at one
    effective number. The mean is that of the directions, and in each over the queries with any push, as `count` has it.
    `cocos.sharpness.solve` does the same for the scores of one batch, inside a training loop.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss, or its name; its own value is where the search starts.
        effective: wanted effective number of negatives, mean over the queries. None: an eighth of those of a batch. At
            least 1.
        parameter: parameter to solve for. None: the one that sets the sharpness: temperature, scale, margin. It is that
            of `cocos.sharpness.parameter_of`.
        bounds: of the value. A number beyond them gives the nearer bound, which `bound` of the attributes says. None:
            from 1e-4 to 1e4 times the loss's own value, and a number beyond is refused.
        tolerance: relative difference from the wanted number that is good enough.
        **sampling: options of the batches, see `Sampling`.

    Returns:
        `value`, of the parameter; `effective` (direction,), the number that it gives, and `effective_mean`, its mean;
        `tried_value` and `tried_effective` (evaluation,), of the search. Attributes: `parameter`, `own` (its value in
        the loss), `target`, and `bound`, `lower` or `upper` where the value is one that was given, else empty.

    Raises:
        InputError: a number that no value gives (the reachable range is named).

    Examples:
        Two negatives of each query score alike, so that they are two effective ones at any temperature:

        >>> embeddings = cocos.Embeddings(torch.eye(3), torch.eye(3))
        >>> data = cocos.measures.solve(embeddings, "ntxent", effective=2, batch_size="all")
        >>> data["value"].item(), data["effective"].values.tolist()
        (0.1, [2.0, 2.0])
    """
    sampling = fill_options("solve", sampling, DEFAULTS | {"dtype": None})
    if not isinstance(loss, str):
        sharpness.parameter_of(losses.as_loss(loss), parameter)
    sampling, few = few_batches(embeddings, sampling)
    run = prepare(embeddings, loss, visits=True, scored=True, **sampling)
    usual = effective is None
    if effective is None:
        effective = max(1.0, float(round(USUAL_PART * (max(run.plan.batches[0].sizes) - 1))))
    report, scored = sampling["progress"] and sampling["progress"]("weighing"), Scored(run)

    @functools.cache
    def means(other) -> list[float]:
        """Mean of each direction, 0 without any push."""
        return np.nan_to_num(scored.means([other])["effective"][:, 0]).tolist()

    def mean_at(other) -> float:
        found = means(other)
        if report:
            report(means.cache_info().misses, sharpness.REFINEMENTS)
        return sum(found) / (sum(each > 0 for each in found) or 1)

    found = sharpness.search(mean_at, run.loss, effective, parameter=parameter, bounds=bounds, tolerance=tolerance)
    value, number = np.array(found.tried).T
    unit = sharpness.SHARPNESS.get(found.parameter.rpartition(".")[2], ("1", 0))[0]
    jump = abs(found.effective / effective - 1) > tolerance and not found.bound
    notes = [
        *run.notes,
        *few,
        *([USUAL_NOTE.format(effective)] if usual else []),
        *([f"the effective number jumps over {effective:g} at this value"] if jump else []),
    ]
    attrs = run.provenance(
        title=f"{found.parameter} for {effective:g} effective negatives, {run.loss.name}",
        parameter=found.parameter,
        own=float(run.loss.parameters[found.parameter]),
        target=float(effective),
        bound=found.bound,
        batches=len(run.plan.batches),
        notes="\n".join(notes),
    )
    variables = {
        "value": ((), found.value, found.parameter, unit),
        "effective": ("direction", means(found.loss), *SOLVE_LABELS["effective"]),
        "effective_mean": ((), found.effective, *SOLVE_LABELS["effective_mean"]),
        "tried_value": ("evaluation", value, f"{found.parameter} of the search", unit),
        "tried_effective": ("evaluation", number, *SOLVE_LABELS["tried_effective"]),
        "direction": ("direction", [name for name, _, _ in run.sides]),
    }
    return results.labelled(variables, attrs, measure="solve")
