"""What does a loss make of one positive and one negative, wherever their scores lie?"""

import math
from typing import Annotated

import torch
import xarray as xr

from cocos import losses, results
from cocos.base import ranges
from cocos.base.errors import InputError
from cocos.base.ranges import whole
from cocos.counting.weights import check_pairs
from cocos.embeddings.scores import Pairs
from cocos.measures.weight_curve import MOST_POINTS, SPANS


@ranges.checked
def score_landscape(
    loss="ntxent",
    *,
    negatives: Annotated[int, whole(1, MOST_POINTS)] = 1,
    points: Annotated[int, whole(2, MOST_POINTS)] = 161,
) -> xr.Dataset:
    """The loss of a query and the weight of its negative, over all scores of its positive and of its negative.

    Args:
        loss: a loss, or its name.
        negatives: of the query; all have the same score.
        points: scores on each side.

    Returns:
        `loss` (positive, negative), in nats or units of score, `push` and `pull` (positive, negative), the weights of
        all negatives and minus that of the positive; the attribute `unit` is the natural size of one weight.

    Examples:
        >>> data = cocos.measures.score_landscape("triplet", points=3)
        >>> data["push"].values.tolist()
        [[1.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
    """
    loss = losses.load(loss) if isinstance(loss, str) else losses.as_loss(loss)
    if loss.couples != "query":
        raise InputError(f"{loss.name} couples the embeddings of a batch: two scores are not enough for it")
    check_pairs(loss, "score_landscape", teacher=False)
    score = torch.linspace(*SPANS[loss.metric], points, dtype=torch.float64)
    rows = torch.cartesian_prod(score, score)
    rows = torch.cat([rows[:, :1], rows[:, 1:].expand(-1, negatives)], dim=1)
    mask = torch.zeros_like(rows, dtype=torch.bool)
    mask[:, 0] = True
    pairs = Pairs(rows, mask)
    weight = loss.weight(pairs)
    grid, axes = (points, points), ("positive", "negative")
    push, pull = weight[:, 1:].sum(dim=1).reshape(grid), -weight[:, 0].reshape(grid)
    variables = {
        "loss": (axes, loss(pairs).reshape(grid), "loss of the query", "loss"),
        "push": (axes, push, "weight of all negatives", "weight"),
        "pull": (axes, pull, "minus the weight of the positive", "weight"),
        **{name: (name, score, f"score of the {name}", "score") for name in axes},
    }
    unit = float(loss.unit(pairs).max())
    unit = unit if math.isfinite(unit) else float(weight[:, 1:].abs().max())
    about = {"title": f"Scores of {loss.name}", "negatives": negatives, "points": points, "unit": unit}
    return results.labelled(variables, results.provenance(loss, **about), measure="score_landscape")
