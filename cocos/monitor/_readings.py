"""From what a loss saw to the numbers of a record: bounded work, and one transfer from the device."""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from cocos import statistics
from cocos.losses.external import guard
from cocos.monitor._seen import Seen
from cocos.scores import Pairs

# Maximum number of candidates that are compared with each other: a sample is drawn from more.
SAMPLED_ROWS = 256
# Cosine from which two different candidates are near duplicates.
NEAR = 0.999
# Part of the largest singular value below which rounding in float32 makes a singular value.
SPECTRUM_ROUNDING = 1e-6

Numbers = dict[str, Tensor]


def of(seen: Sequence[Seen], eps: float, generator: torch.Generator) -> dict[str, Any]:
    """Read the directions of one call: the numbers of a record, those that are unknown left out.

    Args:
        seen: one entry per direction, the first one first.
        eps: smallest share that contributes.
        generator: of the sample of candidates, on the CPU; the global state of random numbers is untouched.

    Returns:
        Keys of a record, without those of the run (step, call, loss, overhead, alarms).
    """
    first = seen[0]
    numbers = {f"{each.direction}/{name}": value for each in seen for name, value in of_direction(each, eps).items()}
    numbers |= _of_weights(seen)
    if first.query is not None and first.candidate is not None:
        numbers |= geometry(first.query, first.candidate, first.positive, generator)
    if (reduction := _reduction(first)) is not None:
        numbers["reduction"] = reduction
    found = _transferred(numbers)
    directions: dict[str, dict[str, Any]] = {each.direction: {} for each in seen}
    for name in [name for name in found if "/" in name]:
        direction, _, metric = name.partition("/")
        directions[direction][metric] = found.pop(name)
    for each in seen:
        sizes = {"queries": each.scores.shape[0], "candidates": each.scores.shape[1]}
        directions[each.direction] = sizes | directions[each.direction]
    about = {
        "queries": first.scores.shape[0],
        "candidates": first.scores.shape[1],
        "width": first.width,
        "source": first.source,
        "kind": first.kind,
        "dtype": str(first.scores.dtype).removeprefix("torch."),
        "scale": first.scale if first.scale is not None and math.isfinite(first.scale) else None,
        "gathered": first.own is not None,
        "notes": list(first.notes) or None,
        "finite": found.pop("finite", 1.0) == 1,
    }
    return {name: value for name, value in about.items() if value is not None} | found | {"directions": directions}


def _transferred(numbers: Numbers) -> dict[str, float]:
    """All numbers in one transfer; those that are not finite are left out."""
    values = torch.stack([value.detach().to(torch.float64) for value in numbers.values()]).tolist()
    found = zip(numbers, values, strict=True)
    return {name: _whole(value) for name, value in found if math.isfinite(value)}


def _whole(value: float) -> float:
    return int(value) if value == int(value) and abs(value) < 2**53 else value


def _mean(values: Tensor, where: Tensor | None = None) -> Tensor:
    """Mean over the queries, or those in a mask: NaN where there is none."""
    values = values.to(torch.float64)
    return values.mean() if where is None else torch.where(where, values, 0).sum() / where.sum()


def of_direction(seen: Seen, eps: float) -> Numbers:
    """Statistics of one direction, () each: means over its queries, as `cocos count` has them."""
    weights = _precise(seen.weights)
    pairs = cast(Pairs, seen)  # the statistics read the masks alone, and a check would wait for the device
    push = torch.where(seen.negative, weights.clamp(min=0), 0)
    unit = guard.pushes(weights, pairs) if seen.unit is None else seen.unit
    share, part = weights.abs() / unit, statistics.spread(weights, pairs)
    contributing, effective = statistics.contributing(share, pairs, eps), statistics.effective(part)
    some, by_candidate = effective > 0, push.sum(dim=0)
    total = by_candidate.sum()
    found = {
        "contributing": _mean(contributing),
        "idle": (contributing == 0).sum(),
        "effective": _mean(effective, some),
        "hardest_share": _mean(statistics.hardest_share(part), some),
        "weight_positive": _mean(statistics.weight_positive(share, pairs)),
        "weight_negative": _mean(torch.where(seen.negative, share, 0).sum(dim=1)),
        "pulled_negatives": _mean(((weights < 0) & seen.negative).sum(dim=1)),
        "pushed_positives": _mean(((weights > 0) & seen.positive).sum(dim=1)),
        "hub_share": by_candidate.amax() / total,
        "positives": _mean(seen.positive.sum(dim=1)),
    }
    if seen.own is not None:
        found["push_own"] = by_candidate[seen.own].sum() / total
    return found


def _precise(values: Tensor) -> Tensor:
    """At least float32, in which sums are taken."""
    return values.float() if values.dtype in {torch.float16, torch.bfloat16} else values


def _of_weights(seen: Sequence[Seen]) -> Numbers:
    """Whether all numbers are finite, and what half precision has lost."""
    finite = [torch.isfinite(values).all() for each in seen for values in (each.scores, each.weights)]
    value = seen[0].value
    if value is not None:
        finite.append(torch.isfinite(value).all())
    found = {"finite": torch.stack(finite).all()}
    if value is not None:
        found["value"] = value.reshape(())
    if seen[0].source == "backward pass":
        sizes, negatives = seen[0].weights.abs(), seen[0].negative
        some = sizes > 0
        tiny = some & (sizes < torch.finfo(sizes.dtype).tiny)
        found["subnormal"] = tiny.sum() / some.sum()
        found["zero"] = (negatives & ~some).sum() / negatives.sum()
    return found


def _unit(rows: Tensor) -> Tensor:
    rows = _precise(rows)
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


def geometry(query: Tensor, candidate: Tensor, positive: Tensor, generator: torch.Generator) -> Numbers:
    """Where the rows lie on the unit sphere, () each.

    Alignment takes one positive of each query; uniformity, similarity, rank and near duplicates are of a sample of
    the candidates, drawn anew each time.

    Args:
        query: (Q, D).
        candidate: (C, D).
        positive: (Q, C) bool.
        generator: of the sample, on the CPU.

    Source: alignment and uniformity of Wang & Isola 2020, arXiv:2005.10242, with α = 2 and t = 2; effective rank of
    Roy & Vetterli 2007, EUSIPCO, of the deviations from the mean, as in `cocos.health`.
    """
    place = torch.randperm(len(candidate), generator=generator)[:SAMPLED_ROWS].to(candidate.device)
    some, rows = _unit(candidate[place]), len(place)
    cosines = some @ some.T
    others = cosines.masked_fill(torch.eye(rows, dtype=torch.bool, device=some.device), -torch.inf)
    has, first = positive.any(dim=1), positive.to(torch.uint8).argmax(dim=1)
    apart = (_unit(query) - _unit(candidate[first])).square().sum(dim=1)
    number, near = rows * (rows - 1), (others > NEAR).any(dim=1).sum()
    found = {"duplicates": _duplicates(candidate), "alignment": _mean(apart, has)}
    if rows > 1:
        potential = (4 * (others - 1)).exp().sum()  # exp(-2 |x - y|²), and |x - y|² = 2 - 2 cos; 0 on the diagonal
        found["near_duplicates"] = near * (len(candidate) / rows)
        found["similarity"] = (cosines.sum() - cosines.diagonal().sum()) / number
        found["uniformity"] = (potential / number).log()
        found["rank"] = effective_rank(some)
    return found


def effective_rank(rows: Tensor) -> Tensor:
    """Effective rank of the deviations from the mean, (): exp of the entropy of the singular values above rounding."""
    centred = rows - rows.mean(dim=0)
    gram = centred @ centred.T if len(rows) < rows.shape[1] else centred.T @ centred
    values = torch.linalg.eigvalsh(torch.nan_to_num(gram)).clamp(min=0).sqrt()
    values = torch.where(values > SPECTRUM_ROUNDING * len(rows) ** 0.5, values, 0)
    total = values.sum()
    return torch.where(total > 0, torch.special.entr(values / torch.where(total > 0, total, 1)).sum().exp(), 0)


def _duplicates(rows: Tensor) -> Tensor:
    """Number of rows that equal another one exactly and come after it, ().

    Equal rows stand beside each other in the order of their projections on one line.
    """
    line = torch.linspace(1, 2, rows.shape[1], device=rows.device, dtype=torch.float32).cos()
    order = (_precise(rows).float() @ line).argsort()
    rows = rows[order]
    return (rows[1:] == rows[:-1]).all(dim=1).sum()


def _reduction(seen: Seen) -> Tensor | None:
    """Total pull of the rows over that of their closed form, (): 1 for a sum, 1/Q for a mean.

    It is known for a softmax with one positive per query, and for a hinge whose negatives weigh alike.
    """
    weights, one = _precise(seen.weights), seen.positive.sum(dim=1) == 1
    if seen.scale is None or seen.query is None or seen.candidate is None:
        return None
    lengths = _precise(seen.query).norm(dim=1)[:, None] * _precise(seen.candidate).norm(dim=1)
    cosines = (_precise(seen.query) @ _precise(seen.candidate).T) / lengths
    stretch = seen.scores.abs().sum() / cosines.abs().sum()  # of the scores to the cosines
    pull = (-torch.where(seen.positive, weights, 0)).sum(dim=1)
    if seen.kind == "softmax":
        some = seen.positive | seen.negative
        left = 1 - (seen.scale * cosines).masked_fill(~some, -torch.inf).softmax(dim=1)
        expected = torch.where(seen.positive, left, 0).sum(dim=1) * seen.scale / stretch
        return torch.where(one, pull, 0).sum() / torch.where(one, expected, 0).sum()
    return None
