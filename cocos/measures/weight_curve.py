"""How does the weight of one candidate depend on its score?"""

from typing import Annotated

import torch
import xarray as xr

from cocos import losses, results
from cocos.base import ranges
from cocos.base.errors import InputError
from cocos.base.ranges import whole
from cocos.counting import statistics
from cocos.embeddings.scores import Pairs

SPANS = {  # from the farthest to the closest score that is drawn
    "angle": (0.0, 2**0.5),
    "cosine": (-1.0, 1.0),
    "cosine_dot": (-1.0, 1.0),
    "dot": (-4.0, 4.0),
    "euclidean": (-6.0, 0.0),
    "squared_chord": (-4.0, 0.0),
    "squared_euclidean": (-4.0, 0.0),
    "mahalanobis": (-4.0, 0.0),
}
# Maximum number of points of a curve, each of which is weighed by itself.
WEIGHED_POINTS = 100_001
# Maximum number of points on a side of a plane.
MOST_POINTS = 1001
# Negatives that do not move.
STILL_NEGATIVES = 8


@ranges.checked
def weight_curve(loss="ntxent", *, points: Annotated[int, whole(2, WEIGHED_POINTS)] = 481) -> xr.Dataset:
    """Move one candidate of a query over the whole range of scores and watch its weight.

    The query has one positive, at three quarters of the range, and nine negatives: the one that moves, and eight that
    are spread evenly over the lower half of the range. Then the positive moves, among the eight negatives alone. A
    teacher, for a loss that needs one, scores the candidates as they stand, and the negative that moves in the middle.

    Args:
        loss: a loss, or its name.
        points: scores on the way.

    Returns:
        `negative` (score,) and `positive` (score,), weights in float64; `push` and `pull` (score,), the totals of the
        query while the negative moves. The scores of the eight `others` and the `weight_unit` are attributes.

    Examples:
        A triplet pushes a negative with 0 or 1:

        >>> sorted(set(cocos.measures.weight_curve("triplet", points=9)["negative"].values.tolist()))
        [0.0, 1.0]
    """
    loss = losses.load(loss) if isinstance(loss, str) else losses.as_loss(loss)
    if loss.reads == "embeddings":
        raise InputError(f"{loss.name} reads embeddings, not scores: there is no weight of a score to draw")
    low, high = SPANS[loss.metric]
    scores = torch.linspace(low, high, points, dtype=torch.float64)
    others = torch.linspace(low, (low + high) / 2, STILL_NEGATIVES, dtype=torch.float64)
    positive = torch.tensor(low + 0.75 * (high - low), dtype=torch.float64)
    still = torch.cat([positive[None], others, others.new_tensor([(low + high) / 2])])
    taught = "teacher" in loss.requires

    def seen(row: torch.Tensor) -> Pairs:
        mask = torch.zeros(1, len(row), dtype=torch.bool)
        mask[0, 0] = True
        return Pairs(row[None, :], mask, teacher=still[None, : len(row)] if taught else None)

    moving = torch.cat([loss.weight(seen(torch.cat([positive[None], others, s[None]]))) for s in scores])
    row = seen(torch.cat([positive[None], others, others[:1]]))
    unit = loss.unit(row).nan_to_num(1.0)
    pulled = torch.cat([loss.weight(seen(torch.cat([s[None], others])))[:, 0] for s in scores])
    push, pull = statistics.push(moving), statistics.pull(moving)
    variables = {
        "negative": ("score", moving[:, -1], "weight of a negative", "weight"),
        "positive": ("score", pulled, "weight of the positive", "weight"),
        "push": ("score", push, "push as the negative moves", "weight"),
        "pull": ("score", pull, "pull as the negative moves", "weight"),
        "score": ("score", scores, "score of the moving candidate", "score"),
    }
    attrs = results.provenance(loss, title=f"Weight against score, {loss.name}")
    attrs |= {"others": others.numpy(), "weight_unit": float(unit.max()), "positive_score": positive.item()}
    return results.labelled(variables, attrs, measure="weight_curve")
