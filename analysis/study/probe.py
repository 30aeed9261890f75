"""Measure a model of the study: recall on three splits, counts by its own loss and by rulers, and look-alikes."""

from collections.abc import Iterator

import torch
from torch import Tensor

from analysis.study.plan import PUBLISHED, RULERS, Trial
from analysis.study.tasks import Split, Task
from analysis.study.training import Heads, negatives
from cocos import Embeddings, Pairs, losses, measures
from cocos.counting import statistics, weights

__all__ = ["LABELS", "RULER_LABELS", "measured"]

COUNTED = 512  # items of a split whose full batches are counted
RANKED = 500  # items of a split that are ranked
PERCENT, CANDIDATES = "%", "candidates"
COUNTS = {
    "contributing": ("contributing negatives, mean over all queries", CANDIDATES),
    "idle": ("queries without any contributing negative", PERCENT),
    "effective": ("effective number of negatives, mean over the queries with any push", CANDIDATES),
    "weight_positive": ("share of the positives, mean over all queries", "share"),
    "relative": ("negatives with more than 1 % of the push, mean over all queries", CANDIDATES),
    "hardest_share": ("part of the push on the heaviest negative, mean over the queries with any push", "1"),
    "loss": ("loss, mean over all queries", "loss"),
}
RULER_LABELS = {
    f"ruler_{name}": COUNTS[name] for name in ("contributing", "idle", "effective", "weight_positive", "loss")
}
LABELS = {
    "rsum": ("sum of R@1, R@5 and R@10 of both directions, test items", "points of 600"),
    "rsum_val": ("sum of R@1, R@5 and R@10 of both directions, validation items", "points of 600"),
    "rsum_train": ("sum of R@1, R@5 and R@10 of both directions, 500 training items", "points of 600"),
    "rsum_concept": ("the same of test items, where every item of the concept is a match", "points of 600"),
    "r1": ("R@1, mean of both directions, test items", PERCENT),
    **COUNTS,
    **{f"{name}_val": (f"{said}, validation batches", unit) for name, (said, unit) in COUNTS.items()},
    "look_alike_negatives": ("look-alikes among the negatives of training batches", PERCENT),
    "look_alike_push": ("part of the push on look-alikes", PERCENT),
    "random_push": ("part of the push on as many random negatives, on average over all choices", PERCENT),
    "temperature": ("temperature at which the effective number is held", "score"),
}


def _batches(split: Split, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The same items and candidates for every model of a batch size: full batches, or one of a smaller split."""
    generator = torch.Generator().manual_seed(2026)
    order = torch.randperm(len(split.query), generator=generator)[:COUNTED]
    for rows in order.split(size):
        if len(rows) == min(size, len(order)):
            yield rows, torch.randint(split.candidate.shape[1], (len(rows),), generator=generator)


def _counted(loss: losses.Loss, pairs: Pairs) -> dict[str, Tensor]:
    """Statistics of each query, (Q,), at the threshold of 0.01 in the natural unit of the loss."""
    found = weights.of(loss, pairs)
    return statistics.per_query(found, weights.unit(loss, found, pairs), pairs) | {"loss": loss(pairs)}


def _shares(loss: losses.Loss, pairs: Pairs, alike: Tensor | None) -> dict[str, Tensor]:
    """Push on look-alikes, and on as many random negatives on average, (Q,); nothing where it is not asked for."""
    if alike is None:
        return {}
    part = statistics.spread(weights.of(loss, pairs), pairs)
    negatives, found = pairs.negative.sum(dim=1), alike.sum(dim=1)
    pushed = part.sum(dim=1)
    made = {"negatives": negatives, "alike": found, "pushed": pushed}
    return made | {"look_alike_push": (part * alike).sum(dim=1), "random_push": pushed * found / negatives}


def _summary(found: list[dict[str, Tensor]]) -> dict[str, float]:
    """Means over the queries of all batches, and the parts of look-alikes in percent."""
    every = {name: torch.cat([each[name] for each in found]).double() for name in found[0]}
    pushed = every["effective"] > 0
    made = {name: every[name].mean().item() for name in ("contributing", "weight_positive", "relative", "loss")}
    made["idle"] = 100 * (every["contributing"] == 0).double().mean().item()
    made |= {name: every[name][pushed].mean().item() for name in ("effective", "hardest_share")}
    if "alike" in every:
        total = {name: each.sum().item() for name, each in every.items()}
        made["look_alike_negatives"] = 100 * total["alike"] / total["negatives"]
        made |= {name: 100 * total[name] / total["pushed"] for name in ("look_alike_push", "random_push")}
    return made


def _counts(
    model: Heads, split: Split, trial: Trial, loss: losses.Loss, rulers: list[losses.Loss]
) -> list[dict[str, float]]:
    """Summaries by the loss, among the negatives that it trains with, and by each ruler, among all negatives."""
    generator = torch.Generator().manual_seed(7)
    found: list[list[dict[str, Tensor]]] = [[] for _ in (loss, *rulers)]
    for rows, columns in _batches(split, trial.batch_size):
        query, candidate = model(split.query[rows], split.candidate[rows, columns])
        scores, positive = query.double() @ candidate.double().T, torch.eye(len(rows), dtype=torch.bool)
        alike = split.look_alikes(rows, columns) if trial.mask else None
        for own, mask in ((scores, alike), (scores.T, None if alike is None else alike.T)):
            pairs = Pairs(own.contiguous(), positive)
            chosen = Pairs(pairs.scores, positive, negatives(own, pairs.negative, mask, trial, generator))
            found[0].append(_counted(loss, chosen) | _shares(loss, pairs, mask))
            for ruler, parts in zip(rulers, found[1:], strict=True):
                parts.append(_counted(ruler, pairs))
    return [_summary(parts) for parts in found]


def _recalls(model: Heads, split: Split, *, by_concept: bool = False) -> tuple[float, float]:
    """Sum of R@1, 5, 10 of both directions, 0 to 600, and mean R@1 in percent, of the first items of a split."""
    query, candidate = (each.double() for each in model(split.query[:RANKED], split.candidate[:RANKED]))
    group = split.concept[:RANKED] if by_concept else torch.arange(len(query))
    rows = Embeddings(query, candidate.flatten(0, 1), group, group.repeat_interleave(candidate.shape[1]))
    found = measures.evaluate(rows)
    return float(found["rsum"].squeeze()), float(found["R@1"].mean())


@torch.no_grad()
def measured(model: Heads, task: Task, trial: Trial, loss: losses.Loss) -> dict[str, float | list[float]]:
    """All numbers of one checkpoint by name; a list has one number for each ruler."""
    train, val, test = (task.splits[name] for name in ("train", "val", "test"))
    made: dict[str, float | list[float]] = {
        "rsum_val": _recalls(model, val)[0],
        "rsum_train": _recalls(model, train)[0],
    }
    made["rsum"], made["r1"] = _recalls(model, test)
    if test.concept is not None and trial.mask:
        made["rsum_concept"] = _recalls(model, test, by_concept=True)[0]
    if trial.arm == "held":
        made["temperature"] = losses.parameters(loss)["temperature"]
    own, *ruled = _counts(model, train, trial, loss, [losses.load(name, PUBLISHED[name]) for name in RULERS])
    made |= own
    made |= {name: [each[name.removeprefix("ruler_")] for each in ruled] for name in RULER_LABELS}
    (own,) = _counts(model, val, trial, loss, [])
    return made | {f"{name}_val": own[name] for name in COUNTS}
