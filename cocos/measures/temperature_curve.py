"""What would another temperature do to the same embeddings?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results, statistics
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.engine import devices, readers
from cocos.errors import InputError
from cocos.measures._passes import passes
from cocos.run import OUT_OF_RANGE, Run, prepare
from cocos.sampling import Sampling, ladder, sampled

# Parameters that divide or multiply the scores, with their units, in the order in which they are looked for.
PARAMETERS = {"temperature": "score", "scale": "1 / score"}
TEMPERATURE_LABELS = {
    "effective": ("effective number of negatives, mean over the queries with any push", "candidates"),
    "contributing_all": ("contributing negatives, mean over all queries", "candidates"),
    "idle_fraction": ("part of the queries without any contributing negative", "1"),
}
# Ratio of the last value of the curve to the loss's own, and of that to the first.
SPAN = 30.0  # times and parts of the loss's own value
NEAR_EPS = "up to {} negatives, in all batches and at one value, are so near to eps that they may count or not"
# Values of the curve, an odd number: the loss's own is one of them.
CURVE_VALUES = 33
# Values that one pass reads: each reader notes up to 16 MiB a thread.
VALUES_IN_A_PASS = 11
SUMS = ("effective", "pushed", "counted", "idle", "queries", "uncertain")


def _parameter(loss) -> str:
    """Name of the parameter that divides or multiplies the scores of a loss.

    Raises:
        InputError: it has none.
    """
    there = [field.name for field in fields(loss)] if is_dataclass(loss) else []
    for name in PARAMETERS:
        if name in there:
            return name
    known = ", ".join(losses.parameters(loss)) or "none that is known"
    raise InputError(
        f"loss {losses.name_of(loss)}: it has no {' or '.join(PARAMETERS)} to change (its parameters: {known})"
    )


@devices.threads(1)
@sampled(dtype=None)
def temperature_curve(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    values: Sequence[float] | None = None,
    *,
    eps: float = 0.01,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Weigh the same batches of the same embeddings with other values of the temperature or scale of a loss.

    This is a what-if: the embeddings stay those of the model as it was trained. The parameter is the one
    that is called `temperature`, or else `scale`.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss, or its name; a name takes the parameters that the checkpoint recorded for it.
        values: ascending and above 0; None: 33 of them, evenly spaced in the exponent, from a 30th of the loss's own
            value to 30 times it.
        eps: smallest share that contributes.
        **sampling: options of the batches, see `cocos.sampling.Sampling`.

    Returns:
        Each (direction, value): `effective`, the effective number of negatives, mean over the queries with any push;
        `contributing_all`, the mean number of contributing negatives over all queries; `idle_fraction`, the part of
        the queries without any. The name of the parameter and the loss's own value are in the attributes.

    Raises:
        InputError: a loss without such a parameter (those that it has are named), values that it refuses, or an option
            or an embedding that cannot be used.

    Examples:
        At a small temperature every query of a solved set is idle:

        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.temperature_curve(embeddings, "ntxent", [0.01, 1], batch_size="all")
        >>> data["idle_fraction"].values.tolist()
        [[1.0, 0.0], [1.0, 0.0]]
    """
    grid = None if values is None else ladder("values", values, zero=False)
    if not isinstance(loss, str):
        _parameter(losses.of(loss))
    run = prepare(embeddings, loss, eps=eps, visits=True, **sampling)
    parameter = _parameter(run.loss)
    own = float(getattr(run.loss, parameter))
    if grid is None:
        grid = own * SPAN ** np.linspace(-1, 1, CURVE_VALUES)
    given: Any = run.loss  # a dataclass, which the protocol of a loss cannot say
    try:
        others = [replace(given, **{parameter: value}) for value in grid.tolist()]
    except ValueError as error:
        raise InputError(f"loss {losses.name_of(run.loss)}: {error}") from None
    report = sampling["progress"] and sampling["progress"]("weighing")
    directions = [name for name, _, _ in run.sides]
    sums = {name: torch.zeros(len(SUMS), len(grid), dtype=torch.float64) for name in directions}
    for name, found in (_visited if run.visited else _held)(run, others, eps, report):
        sums[name] += found
    effective, pushed, counted, idle, queries, uncertain = np.stack([each.numpy() for each in sums.values()], axis=1)
    shape = effective.shape
    curves = {
        "effective": np.divide(effective, pushed, out=np.full(shape, np.nan), where=pushed > 0),
        "contributing_all": counted / queries,
        "idle_fraction": idle / queries,
    }
    variables = {name: (("direction", "value"), each, *TEMPERATURE_LABELS[name]) for name, each in curves.items()}
    variables["direction"] = ("direction", directions)
    variables["value"] = ("value", grid, parameter, PARAMETERS[parameter])
    attrs = run.provenance(
        title=f"Negatives against the {parameter}, {losses.name_of(run.loss)}",
        parameter=parameter,
        own=own,
        batches=len(run.plan.batches),
        notes="\n".join([*run.notes, *([NEAR_EPS.format(int(uncertain.max()))] if uncertain.any() else [])]),
    )
    return results.labelled(variables, attrs)


def _sums(effective: Tensor, above: Tensor, uncertain: Tensor | int = 0) -> list[float]:
    """Sums over the queries: see `SUMS`."""
    pushed, idle, whole = (effective > 0).sum(), (above == 0).sum(), effective.sum(dtype=torch.float64)
    return [float(each) for each in (whole, pushed, above.sum(), idle, len(above), uncertain)]


def _held(run: Run, others: list, eps: float, report: Callable | None) -> Iterator[tuple[str, Tensor]]:
    """Yield direction and sums, (SUMS, values), of each batch from its weights."""
    names, runs = [name for name, _, _ in run.sides], [replace(run, loss=loss) for loss in others]
    for done, batch in enumerate(run.plan.batches):
        found = {name: [] for name in names}
        for other in runs:
            for name, (_, blocks) in zip(names, other.sided(batch, whole=False), strict=True):
                parts = []
                for pairs, weights, unit in blocks:
                    effective = statistics.effective(statistics.spread(weights, pairs))
                    parts.append(_sums(effective, statistics.contributing(weights.abs() / unit, pairs, eps)))
                found[name].append([sum(each) for each in zip(*parts, strict=True)])
        for name, each in found.items():
            yield name, torch.tensor(each, dtype=torch.float64).T
        if report:
            report(done + 1, len(run.plan.batches))


def _visited(run: Run, others: list, eps: float, report: Callable | None) -> Iterator[tuple[str, Tensor]]:
    """The same of each stack of batches, seen by a reader for each value, some in one pass.

    Raises:
        InputError: the weights of a query leave the range of float64.
    """
    every = [readers.of(loss, eps) for loss in others]
    groups = [every[a : a + VALUES_IN_A_PASS] for a in range(0, len(every), VALUES_IN_A_PASS)]
    for names, _, found in passes(run, lambda view: groups, report):
        for k, name in enumerate(names):
            for loss, sides in zip(others, found, strict=True):
                if not sides[k]["push"].isfinite().all():
                    raise InputError(OUT_OF_RANGE.format(loss, "float64"))
            keys = ("effective", "contributing", "uncertain")
            parts = [[sides[k][key] for key in keys] for sides in found]
            sums = [_sums(effective, above, uncertain.sum()) for effective, above, uncertain in parts]
            yield name, torch.tensor(sums, dtype=torch.float64).T
