"""What would another temperature do to the same embeddings?"""

from collections.abc import Sequence
from typing import Unpack

import numpy as np
import xarray as xr

from cocos import losses, results
from cocos.base.errors import InputError
from cocos.base.ranges import Share, checked
from cocos.checkpoints import Checkpoint
from cocos.counting import sharpness
from cocos.counting.statistics import BATCH_NUMBERS
from cocos.embeddings import Embeddings
from cocos.embeddings.options import DEFAULTS, Sampling, fill_options, ladder
from cocos.engine import devices
from cocos.measures.shared.prepared import prepare
from cocos.measures.shared.settings import Scored

# Parameters that divide or multiply the scores, with their units, in the order in which they are looked for.
PARAMETERS = {"temperature": "score", "scale": "1 / score"}
TEMPERATURE_LABELS = {name: BATCH_NUMBERS[name].about for name in ("effective", "contributing_all", "idle_fraction")}
# Ratio of the last value of the curve to the loss's own, and of that to the first.
SPAN = 30.0  # times and parts of the loss's own value
NEAR_EPS = "up to {} negatives, in all batches and at one value, are so near to eps that they may count or not"
# Values of the curve, an odd number: the loss's own is one of them.
CURVE_VALUES = 33


def _parameter(loss) -> str:
    """Name of the parameter that divides or multiplies the scores of a loss."""
    for name in PARAMETERS:
        if name in getattr(loss, "__dataclass_fields__", ()):
            return name
    known = ", ".join(loss.parameters) or "none that is known"
    raise InputError(f"loss {loss.name}: it has no {' or '.join(PARAMETERS)} to change (its parameters: {known})")


@devices.threads(1)
@checked
def temperature_curve(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    values: Sequence[float] | None = None,
    *,
    eps: Share = 0.01,
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
        **sampling: options of the batches, see `Sampling`.

    Returns:
        Each (direction, value): `effective`, the effective number of negatives, mean over the queries with any push;
        `contributing_all`, the mean number of contributing negatives over all queries; `idle_fraction`, the part of
        the queries without any. The name of the parameter and the loss's own value are in the attributes.

    Raises:
        InputError: a loss without such a parameter.

    Examples:
        At a small temperature every query of a solved set is idle:

        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.temperature_curve(embeddings, "ntxent", [0.01, 1], batch_size="all")
        >>> data["idle_fraction"].values.tolist()
        [[1.0, 0.0], [1.0, 0.0]]
    """
    sampling = fill_options("temperature_curve", sampling, DEFAULTS | {"dtype": None})
    grid = None if values is None else ladder("values", values, zero=False)
    if not isinstance(loss, str):
        _parameter(losses.as_loss(loss))
    run = prepare(embeddings, loss, eps=eps, visits=True, **sampling)
    parameter = _parameter(run.loss)
    own = float(getattr(run.loss, parameter))
    if grid is None:
        grid = own * SPAN ** np.linspace(-1, 1, CURVE_VALUES)
    try:
        others = [sharpness.changed(run.loss, parameter, value) for value in grid.tolist()]
    except ValueError as error:
        raise InputError(f"loss {run.loss.name}: {error}") from None
    found = Scored(run).means(others, eps, sampling["progress"] and sampling["progress"]("weighing"))
    near = int(found["uncertain"].max())
    variables = {name: (("direction", "value"), found[name], *about) for name, about in TEMPERATURE_LABELS.items()}
    variables["direction"] = ("direction", [name for name, _, _ in run.sides])
    variables["value"] = ("value", grid, parameter, PARAMETERS[parameter])
    attrs = run.provenance(
        title=f"Negatives against the {parameter}, {run.loss.name}",
        parameter=parameter,
        own=own,
        batches=len(run.plan.batches),
        notes="\n".join([*run.notes, *([NEAR_EPS.format(near)] if near else [])]),
    )
    return results.labelled(variables, attrs, measure="temperature_curve")
