"""What each filter rule of a masked InfoNCE would leave out of the gradient, and how much of it rightly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError, nearest
from cocos.embeddings.scores import Pairs

# Of each filter: the parameter of `mnrl` that is its threshold, its values, and the published one among them.
# Sources: GISTEmbed, arXiv:2402.16829; Qwen3 Embedding, arXiv:2506.05176; NV-Retriever, arXiv:2407.15831; for
# `relative_margin` sentence-transformers, pull request 3821.
FILTER_THRESHOLDS: dict[str, tuple[str, tuple[float, ...], float]] = {
    "guide": ("filter_margin", (0.0, 0.05, 0.1), 0.0),
    "self": ("filter_margin", (0.0, 0.05, 0.1, 0.2), 0.1),
    "percent": ("percent", (0.8, 0.9, 0.95, 0.99), 0.95),
    "relative_margin": ("percent", (0.8, 0.9, 0.95, 0.99), 0.95),
    "factor": ("filter_margin", (0.1,), 0.1),
}
# Filters that are tried without being asked for; `relative_margin` is `percent` where positives score above 0.
USUAL_FILTERS = ("guide", "self", "percent", "factor")
# Sums over all queries that are drawn, of each filter and threshold.
SUMS_OF_FILTERS = ("masked", "masked_push", "left_push", "right", "right_push", "emptied", "below_zero")


@dataclass(frozen=True)
class FilterTrial:
    """One filter at one threshold.

    Args:
        filter: name of the rule, as `mnrl` has it.
        threshold: value of its parameter.
        loss: `mnrl` with this filter.
        published: whether it is the published threshold.
    """

    filter: str
    threshold: float
    loss: Any
    published: bool


def trials(
    given: Mapping[str, Sequence[float]] | None, *, taught: bool, metric: str, scale: float | None
) -> list[FilterTrial]:
    """The filters that are tried.

    Args:
        given: filter -> thresholds; an empty list: its usual ones. None: all filters that the data allow.
        taught: whether there are scores of a guide.
        metric: of the scores; a part of the positive's score means nothing where scores are minus a distance.
        scale: λ of the loss, if its negatives enter through Σ exp(λ score): only then a factor on logits has a meaning.
    """
    lacking = (
        {} if taught else {"guide": "there are no scores of a guide; give teacher, or guide_query, guide_candidate"}
    )
    if metric not in {"cosine", "cosine_dot", "dot"}:
        lacking["percent"] = f"a part of the positive's score has no meaning for {metric} scores, which are below 0"
    if scale is None:
        lacking["factor"] = "it weakens the logits of a softmax over the negatives, which this loss does not have"
    asked = given
    if asked is None:
        asked = {name: () for name in USUAL_FILTERS if name not in lacking}
    made = []
    for name, thresholds in asked.items():
        if name not in FILTER_THRESHOLDS:
            raise InputError(nearest("filter", name, FILTER_THRESHOLDS))
        if name in lacking:
            raise InputError(f"filter {name}: {lacking[name]}")
        parameter, usual, published = FILTER_THRESHOLDS[name]
        for threshold in thresholds or usual:
            loss = losses.load(
                "mnrl", {"filter": name, parameter: float(threshold)} | ({"scale": scale} if scale else {})
            )
            made.append(FilterTrial(name, float(threshold), loss, threshold == published))
    return made


def sums(trial: FilterTrial, pairs: Pairs, push: Tensor, label: Tensor) -> list[float]:
    """The entries of `SUMS_OF_FILTERS` of some queries.

    Args:
        trial: the filter.
        pairs: of the queries.
        push: (q, C), push of each negative.
        label: (q, C) bool, negatives that are known to be positives.
    """
    masked = trial.loss.masked(pairs) & pairs.negative
    held, right, left = torch.where(masked, push, 0), masked & label, torch.zeros_like(push)
    emptied = pairs.negative.any(dim=1) & ~(pairs.negative & ~masked).any(dim=1)
    if trial.filter == "factor":  # its suspects stay, with smaller logits
        weakened = torch.where(masked & push.any(dim=1, keepdim=True), trial.loss.weight(pairs).clamp(min=0), 0)
        left, emptied = weakened, torch.zeros_like(emptied)
    below = trial.loss.extra(pairs, 0.0).get("below_zero", push.new_zeros(len(push)))
    every = (masked, held, left, right, torch.where(right, push, 0), emptied, below)
    return [float(each.sum(dtype=torch.float64)) for each in every]
