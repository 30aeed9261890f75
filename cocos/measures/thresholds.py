"""What does one global cut-off mean for each query?"""

import math
from collections.abc import Sequence
from typing import Annotated, Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import engine, results
from cocos.base.errors import InputError
from cocos.base.ranges import checked, different
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.embeddings.options import QUERY_DEFAULTS, Queries, fill_options
from cocos.engine import readers
from cocos.measures.shared.queries import NO_POSITIVE, QUERY_PERCENTILES, Asked, asked, steps

# Cut-offs of the curves.
CUTOFF_LEVELS = 101
# Recall at the left end of the curves.
LEFT_RECALL = 0.98
# Long name and units.
CUTOFF_LABELS = {
    "cutoff": ("cosine cut-off", "score"),
    "chosen": ("reason for the cut-off", "1"),
    "distance": ("Euclidean distance", "distance"),
    "target": ("requested precision", "1"),
    "global_precision": ("precision of all pairs", "1"),
    "global_recall": ("recall of all pairs", "1"),
}
# The entry of a cut-off, long name and units.
LEVEL_LABELS = {
    "level": ("cutoff", *CUTOFF_LABELS["cutoff"]),
    "level_distance": ("distance", *CUTOFF_LABELS["distance"]),
    "level_precision": ("global_precision", "precision of all pairs", "1"),
    "level_recall": ("global_recall", "recall of all pairs", "1"),
}
# Dims of one direction, long name and units.
THRESHOLDS_LABELS = {
    "returned": (("query", "cutoff"), "candidates returned", "candidates"),
    "precision": (("query", "cutoff"), "precision", "1"),
    "recall": (("query", "cutoff"), "recall", "1"),
    "returned_band": (("percentile", "cutoff"), "candidates returned", "candidates"),
    "precision_band": (("percentile", "cutoff"), "precision", "1"),
    "recall_band": (("percentile", "cutoff"), "recall", "1"),
    "none_returned": (("cutoff",), "queries without candidates", "%"),
    "no_positive": (("cutoff",), "queries without positives", "%"),
    "query_index": (("query",), "row of the query", "1"),
    "level_returned": (
        ("percentile", "level"),
        "candidates returned",
        "candidates",
    ),
    "level_none": (("level",), "queries without candidates", "%"),
    "level_no_positive": (("level",), "queries without positives", "%"),
}


@checked
def thresholds(
    embeddings: Embeddings | Checkpoint,
    *,
    recalls: Annotated[Sequence[float], different(0, 1)] = (0.1, 0.25, 0.5, 0.75),
    precisions: Annotated[Sequence[float], different(0, 1)] | None = None,
    cutoffs: Annotated[Sequence[float], different(-1, 1)] | None = None,
    **asking: Unpack[Queries],
) -> xr.Dataset:
    r"""The candidates that each query gets when everything at or above one cosine is returned.

    A cut-off of cosine s is one of Euclidean distance :math:`d = \sqrt{2 - 2 s}` of the unit vectors, at or below which
    everything is returned. Global precision and recall are over all pairs, exactly; queries without any positive take
    part.

    Args:
        embeddings: embeddings, or a checkpoint (a split of its data is encoded).
        recalls: for each, the highest cut-off with at least this recall over all pairs; the cut-off of the best
            F1 comes with them.
        precisions: in their place, for each the cut-off of the largest recall that has at least this precision over all
            pairs. One that no cut-off reaches is left out and named in `not_reached`; of two with one cut-off the
            larger stays.
        cutoffs: cosines, in the place of both.
        **asking: options of the queries, see `Queries`.

    Returns:
        Of each cut-off (cutoff,): its `distance`, what it was `chosen` for, the precision that was its `target` (NaN
        for others), and over all pairs `global_precision` (NaN where nothing is returned) and `global_recall`. Of each
        query, (direction, query, cutoff): `returned`, `precision` (NaN where nothing is returned) and `recall` (NaN
        where it has no positive). Percentiles 5, 50 and 95 of these over the queries that have them, `returned_band`,
        `precision_band` and `recall_band` (direction, percentile, cutoff); `none_returned` and `no_positive`
        (direction, cutoff), percent of the queries. Of 101 cut-offs evenly spaced (level,), around those:
        `level_distance`, `level_precision` and `level_recall` over all pairs, and `level_returned` (direction,
        percentile, level), `level_none` and `level_no_positive` (direction, level), likewise.

    Raises:
        InputError: no positive pair, or no precision that is reached.

    Source: threshold relevancy, Veit & Wilber 2020, arXiv:2011.08824, abstract.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.thresholds(embeddings, recalls=[1])
        >>> data["global_precision"].values.tolist()  # all positives and nothing else
        [1.0]
    """
    asking = fill_options("thresholds", asking, QUERY_DEFAULTS | {"queries": 1000})
    seen = asked(embeddings, None, **asking)
    report = asking["progress"] and asking["progress"]("scoring")
    if cutoffs is not None:
        cuts, ends = _counted(seen, cutoffs, report), (float(min(cutoffs)), float(max(cutoffs)))
    else:
        cuts, ends = _chosen(seen, precisions, recalls, report)
    score = cuts["cutoff"]
    records = {name: _record(seen, name, score) for name in seen.sides}
    room = 0.05 * (ends[1] - ends[0]) or 0.05
    level = torch.linspace(max(-1.0, ends[0] - room), min(1.0, ends[1] + room), CUTOFF_LEVELS, dtype=torch.float64)
    strip = _counted(seen, level.tolist(), None)
    for name, record in records.items():
        along = _record(seen, name, level)
        record |= {"level_returned": along["returned_band"], "level_none": along["none_returned"]}
        record["level_no_positive"] = along["no_positive"]
    attrs = seen.attrs | {"title": "What one cut-off means for each query"}
    if precisions is not None and cutoffs is None:
        missing = [f"{each:g}" for each in precisions if each > float(cuts["target"].max())]
        attrs |= {"not_reached": ", ".join(missing)} if missing else {}
    variables = {name: ("cutoff", cuts[name], *about) for name, about in CUTOFF_LABELS.items()}
    variables |= {name: ("level", strip[of], *about) for name, (of, *about) in LEVEL_LABELS.items()}
    variables |= results.by_direction(records, THRESHOLDS_LABELS)
    variables["percentile"] = ("percentile", list(QUERY_PERCENTILES), "percentile over queries", "%")
    return results.labelled(variables, attrs, measure="thresholds")


def _labelled(
    score: Tensor, chosen: list[str], target: Tensor, found: Tensor, negatives: Tensor, positives: int
) -> dict[str, Tensor]:
    """Cut-offs from the lowest cosine on, and their results over all pairs."""
    order = score.argsort(stable=True)
    score, target, found, negatives = (each[order].cpu() for each in (score, target, found, negatives))
    returned = found + negatives
    return {
        "cutoff": score,
        "chosen": np.array([chosen[place] for place in order.tolist()]),
        "distance": (2 - 2 * score).clamp(min=0).sqrt(),
        "target": target,
        "global_precision": torch.where(returned > 0, found / returned.double().clamp(min=1), math.nan),
        "global_recall": found.double() / positives,
    }


def _chosen(
    seen: Asked, wanted: Sequence[float] | None, recalls: Sequence[float], report
) -> tuple[dict[str, Tensor], tuple]:
    """Choose the lowest cut-off of each precision that is reached, or of each recall and of the best F1; and the ends.

    The ends are the scores between which a picture is drawn: of nearly all positive pairs, and the highest one.
    """
    (curve,) = engine.run(seen.whole(), [readers.PrecisionRecall()], progress=report)
    if not len(curve.score):
        raise InputError(NO_POSITIVE)
    score, found, negatives = steps(curve)
    recall, positives = found / found[-1].double(), len(curve.score)
    ends = (float(score[int((recall < LEFT_RECALL).sum().clamp(max=len(score) - 1))]), float(score[0]))
    targets: dict[int, float] = {}
    if wanted is None:
        places = {int((recall < each - 1e-12).sum()): f"recall {100 * each:g} %" for each in sorted(recalls)}
        f1 = 2 * found / (found + negatives + positives).double()
        places[int(f1.argmax())] = "best F1"
    else:
        precision = found / (found + negatives).double()
        for each in sorted(wanted):
            reached = (precision >= each).nonzero().flatten()
            if len(reached):
                targets[int(reached[-1])] = each
        if not targets:
            most = float(precision.max())
            digit = 10.0 ** math.floor(math.log10(most))
            high = math.floor(most / digit) * digit
            raise InputError(
                f"precisions: {list(wanted)}, expected at most {most:.3g}, the largest there is: take lower ones, like "
                f"{high / 5:.2g} and {high:.2g}"
            )
        places = {place: f"precision {100 * each:g} %" for place, each in targets.items()}
    at = list(places)
    target = torch.tensor([targets.get(place, math.nan) for place in at], dtype=torch.float64, device=score.device)
    ends = (min(ends[0], float(score[at].min())), max(ends[1], float(score[at].max())))
    return _labelled(score[at], list(places.values()), target, found[at], negatives[at], positives), ends


def _counted(seen: Asked, given: Sequence[float], report) -> dict[str, Tensor]:
    """Count the pairs that given cut-offs let through."""
    whole = seen.whole()
    level = torch.tensor(sorted(given), dtype=torch.float64, device=whole.device)
    (curve,) = engine.run(whole, [readers.PrecisionRecall(level)], progress=report)
    found, positives = torch.zeros_like(curve.negatives), 0
    for start, stop in whole.chunks(0):
        score = whole.scored(0, start, stop)[2]
        found += (score[:, None] >= curve.score - whole.tie).sum(dim=0)
        positives += len(score)
    if not positives:
        raise InputError(NO_POSITIVE)
    nothing = torch.full_like(curve.score, math.nan)
    return _labelled(curve.score, ["given"] * len(curve.score), nothing, found, curve.negatives, positives)


def _record(seen: Asked, name: str, score: Tensor) -> dict[str, Tensor]:
    """Results of the cut-offs for each query of a direction."""
    view = seen.view(name)
    (found,) = engine.run(view, [readers.Neighbours(0, score)])
    positives = view.sides[0].unsorted(view.counted(0))[:, None]
    returned = found.negatives + found.positives
    values = {
        "returned": returned.double(),
        "precision": torch.where(returned > 0, found.positives / returned.double().clamp(min=1), torch.nan),
        "recall": torch.where(positives > 0, found.positives / positives.double().clamp(min=1), torch.nan),
    }
    quantiles = torch.tensor(QUERY_PERCENTILES, dtype=torch.float64, device=returned.device) / 100
    bands = {f"{key}_band": torch.nanquantile(value, quantiles, dim=0) for key, value in values.items()}
    shares = {"none_returned": returned == 0, "no_positive": found.positives == 0}
    shares = {key: 100 * value.double().mean(dim=0) for key, value in shares.items()}
    return values | bands | shares | {"query_index": seen.index[name]}
