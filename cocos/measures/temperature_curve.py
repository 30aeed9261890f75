"""What would another temperature do to the same embeddings?"""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace

import numpy as np
import torch
import xarray as xr

from cocos import losses, results, statistics
from cocos.batches import Batch
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.errors import InputError
from cocos.measures._weighing import Progress, prepare

__all__ = ["temperature_curve"]

PARAMETERS = ("temperature", "scale")
SPAN = 30.0  # times and parts of the loss's own value
POINTS = 33  # odd: the own value is one of them


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


def _with(loss, name: str, value: float):
    """The same loss with another value of a parameter.

    Raises:
        InputError: it refuses the value.
    """
    try:
        return replace(loss, **{name: value})
    except ValueError as error:
        raise InputError(f"loss {losses.name_of(loss)}: {error}") from None


def temperature_curve(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    values: Sequence[float] | None = None,
    *,
    eps: float = 0.01,
    batches: int | Sequence[Batch] | None = None,
    batch_size: int | str = 128,
    sample: str | None = None,
    per_group: int | None = None,
    same_group: str = "ignore",
    seed: int = 0,
    dtype: str = "float64",
    split: str = "train",
    device: str | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Weigh the same batches of the same embeddings with other values of the temperature or scale of a loss.

    It is a what-if: the embeddings are those of a model that was trained as it was trained. The parameter is the one
    that is called `temperature`, or else `scale`.

    Args:
        embeddings: as in `count`, like all options that are not named here.
        loss: a loss, or its name; a name takes the parameters that the checkpoint recorded for it.
        values: ascending and above 0; None: 33 of them, evenly spaced in the exponent, from a 30th of the loss's own
            value to 30 times it.
        eps: smallest share that contributes.
        batches: how many, or the batches themselves.
        batch_size: pairs, queries or samples in a batch; `all` for the whole set.
        sample: `pairs` or `groups`.
        per_group: candidates of a query, or samples of a class, in a batch of groups.
        same_group: `ignore` or `negative`.
        seed: of the batches.
        dtype: of the computation.
        split: of the checkpoint's data.
        device: `auto`, `cpu`, `cuda`; None: where the embeddings are.
        progress: called with what is done (`encoding`, `weighing`); gives a function of (done, in all).

    Returns:
        Each (direction, value): `effective`, the effective number of negatives, mean over the queries with any push;
        `contributing_all`, the mean number of contributing negatives over all queries; `idle_fraction`, the part of
        the queries without any. The name of the parameter and the loss's own value are in the attributes.

    Raises:
        InputError: a loss without such a parameter (those that it has are named), values that it refuses, or an option
            or an embedding that cannot be used.
    """
    if not 0 <= eps < float("inf"):
        raise InputError(f"eps: {eps}, expected a share: finite and at least 0")
    grid = None if values is None else np.asarray(values, dtype=np.float64)
    if grid is not None and not _usable(grid):
        raise InputError(f"values: {grid.tolist()}, expected finite numbers above 0 in ascending order")
    if not isinstance(loss, str):
        _parameter(losses.of(loss))
    run = prepare(
        embeddings,
        loss,
        batch_size=batch_size,
        batch_count=batches,
        sample=sample,
        per_group=per_group,
        same_group=same_group,
        seed=seed,
        dtype=dtype,
        split=split,
        device=device,
        progress=progress,
    )
    parameter = _parameter(run.loss)
    own = float(getattr(run.loss, parameter))
    if grid is None:
        grid = own * SPAN ** np.linspace(-1, 1, POINTS)
    others = [replace(run, loss=_with(run.loss, parameter, value)) for value in grid.tolist()]
    report = progress("weighing") if progress else None
    directions = [name for name, _, _ in run.sides]
    shape = (len(directions), len(grid))
    effective, pushed, counted, idle, queries = (np.zeros(shape) for _ in range(5))
    for done, batch in enumerate(run.plan.batches):
        for d, (_, side, second) in enumerate(run.sides):
            for v, other in enumerate(others):
                for pairs, weights, unit in other.blocks(side, batch.flip() if second else batch, whole=False):
                    number = statistics.effective(statistics.spread(weights, pairs))
                    above = statistics.contributing(weights.abs() / unit, pairs, eps)
                    effective[d, v] += float(number.sum(dtype=torch.float64))
                    pushed[d, v] += int((number > 0).sum())
                    counted[d, v] += int(above.sum())
                    idle[d, v] += int((above == 0).sum())
                    queries[d, v] += len(above)
        if report:
            report(done + 1, len(run.plan.batches))
    found = {
        "effective": np.divide(effective, pushed, out=np.full(shape, np.nan), where=pushed > 0),
        "contributing_all": counted / queries,
        "idle_fraction": idle / queries,
    }
    attrs = results.provenance(
        run.loss,
        title=f"Negatives against the {parameter}, {losses.name_of(run.loss)}",
        parameter=parameter,
        own=own,
        eps=eps,
        batches=len(run.plan.batches),
        batch_size=run.plan.batch_size,
        sample=run.plan.sample,
        same_group=run.same_group,
        seed=seed,
        dtype=dtype,
        device=run.embeddings.query.device.type,
        notes="\n".join(run.notes),
        **(run.checkpoint.identity() | {"split": split} if run.checkpoint else {}),
    )
    return results.temperature_curve(directions, grid, found, attrs)


def _usable(grid: np.ndarray) -> bool:
    """Finite numbers above 0 that ascend."""
    return (
        grid.ndim == 1 and len(grid) > 0 and grid[0] > 0 and np.isfinite(grid[-1]) and bool((np.diff(grid) > 0).all())
    )
