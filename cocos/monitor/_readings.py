"""From what a loss saw to the numbers of a record: bounded work, and two transfers from the device.

A mask is multiplied rather than selected by: on a CPU that takes a tenth of the time (measured, PyTorch 2.13).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cocos import units
from cocos.monitor import _settled
from cocos.monitor._seen import Seen
from cocos.records import LABELLED, SOURCE_KEYS
from cocos.sources import OTHERS_HARD

# Maximum number of candidates that are compared with each other: a sample is drawn from more.
SAMPLED_ROWS = 256
# Cosine from which two different candidates are near duplicates.
NEAR = 0.999
# Cosine from which a candidate may be the copy of another one but for noise as that of dropout, and the ratio of its
# distance to that of the next candidate: measured at 0.08 to 0.2 for equal texts in MiniLM with its dropout of 0.1.
COPY, COPY_GAP = 0.8, 0.25
# Number of neighbours of a candidate among which its copies are, and of candidates whose copies are looked for.
MOST_COPIES, COPIED_ROWS = 8, 64
# Number of queries whose similarities are compared with those of their positives.
AGREEING_ROWS = 64
# Parts of its negatives by which a query's positive is outranked: of one that ranks well, by chance, and far behind.
AHEAD, BEHIND, FAR_BEHIND = 0.1, 0.5, 0.75
# Part of the largest singular value below which rounding in float32 makes a singular value.
SPECTRUM_ROUNDING = 1e-6
# Logit, in nats, far enough below all others to leave a pair out of a softmax.
LEFT_OUT = -1e9
# Relative difference up to which the weights of a hinge are alike.
EVEN_HINGES = 1e-3

# Scores of a block of queries on a CPU: 256 KiB in float32, which stay in the cache.
CACHED_SCORES = 2**16
# Sums over the queries of a direction that are means of a record, and those that are sums of it.
MEANS = ("relative", "contributing", "weight_positive", "weight_negative", "pulled_negatives", "pushed_positives",
         "positives")  # fmt: skip
TOTALS = ("unpushed", "idle", "sum")

Numbers = dict[str, Tensor]


def of(seen: Sequence[Seen], eps: float, generator: torch.Generator) -> dict[str, Any]:
    """Read the directions of one call: the numbers of a record, those that are unknown left out.

    Args:
        seen: one entry per direction, the first one first.
        eps: smallest share that contributes.
        generator: of the samples of rows, on the CPU; the global state of random numbers is untouched.

    Returns:
        Keys of a record, without those of the run (step, call, overhead, alarms).
    """
    seen = [_with_unit(each) for each in seen]
    found = _transferred(_all(seen, eps, generator))
    if found.pop("sum", None) is None:  # a pair that takes no part may be masked by infinity
        found = _transferred(_all([_taking_part(each) for each in seen], eps, generator))
        finite = found.pop("sum", None) is not None
    else:
        finite = True
    first = seen[0]
    directions: dict[str, dict[str, Any]] = {
        each.direction: {"queries": each.scores.shape[0], "candidates": each.scores.shape[1]} for each in seen
    }
    for name in [name for name in found if "/" in name]:
        direction, _, metric = name.partition("/")
        directions[direction][metric] = found.pop(name)
    about = {
        "queries": first.scores.shape[0],
        "candidates": first.scores.shape[1],
        "width": first.width,
        "source": first.source,
        "kind": first.kind,
        "share": first.share,
        "dtype": str(first.scores.dtype).removeprefix("torch."),
        "scale": first.scale if first.scale is not None and math.isfinite(first.scale) else None,
        "gathered": first.own is not None if first.source == "backward pass" else None,
        "notes": list(first.notes) or None,
        "finite": finite,
    }
    settled = _settled.of(seen, generator) if finite else {}
    known = {name: value for name, value in about.items() if value is not None}
    return known | found | settled | {"directions": directions}


def _with_unit(seen: Seen) -> Seen:
    """The same with the unit that its weights have on this batch, where they have one."""
    if seen.unit is not None or seen.source != "backward pass":
        return seen
    factor = seen.scale / seen.stretch if seen.scale and seen.stretch else None
    found = units.found(
        seen.scores, seen.weights, seen.positive, seen.negative,
        kind=seen.kind, factor=factor, upstream=seen.factor,
    )  # fmt: skip
    return seen if found is None else replace(seen, unit=found.size, share=found.share)


def warm() -> None:
    """Read something small, so that the first reading of a training takes no longer than others."""
    rows, eye = torch.eye(4), torch.eye(4, dtype=torch.bool)
    seen = Seen("q2c", rows, rows, eye, ~eye, query=rows, candidate=rows, scale=1.0, kind="softmax", value=rows[0, 0])
    of([seen], 0.0, torch.Generator().manual_seed(0))


def _all(seen: Sequence[Seen], eps: float, generator: torch.Generator) -> Numbers:
    """All numbers of a record, () each; `sum` is finite where every score and weight is, and the loss."""
    first = seen[0]
    numbers: Numbers = {}
    for each in seen:
        numbers |= {f"{each.direction}/{name}": value for name, value in of_direction(each, eps).items()}
    for name in ("zero", "subnormal"):  # of the first direction
        found = [numbers.pop(f"{each.direction}/{name}", None) for each in seen]
        numbers |= {name: found[0]} if found[0] is not None else {}
    numbers["sum"] = torch.stack([numbers.pop(f"{each.direction}/sum") for each in seen]).sum()
    if first.value is not None:
        numbers["value"] = first.value.reshape(())
        numbers["sum"] = numbers["sum"] + first.value.reshape(())
    numbers |= _ranks(first)
    if first.query is not None and first.candidate is not None:
        numbers |= geometry(_alone(first), generator)
    return numbers


def _ranks(seen: Seen) -> Numbers:
    """How many of a query's negatives score above its first positive, as a part of them; ties count half, () each."""
    first = seen.positive.view(torch.uint8).max(dim=1)
    above = (seen.scores - seen.scores.gather(1, first.indices[:, None])).sign_()
    negative = _as(seen.negative, above)
    number = negative.sum(dim=1)
    part = 0.5 + 0.5 * (above * negative).sum(dim=1) / number
    known = (first.values > 0) & (number > 0)
    found = torch.stack([part, part < AHEAD, part > BEHIND, part > FAR_BEHIND])
    values = torch.where(known, found, 0).sum(dim=1) / known.sum()
    return dict(zip(("outranked", "ahead", "behind", "far_behind"), values, strict=True))


def _alone(seen: Seen) -> Seen:
    """The same with the candidates alone, without the columns of further directions."""
    candidates = len(seen.candidate)  # type: ignore[arg-type]
    if seen.sources is not None:
        candidates = min(candidates, int((seen.sources[0] <= OTHERS_HARD).sum()))
    if candidates == seen.scores.shape[1]:
        return seen
    cut = {name: getattr(seen, name)[:, :candidates] for name in ("scores", "weights", "positive", "negative")}
    return replace(seen, candidate=seen.candidate[:candidates], kind=None, **cut)  # type: ignore[index]


def _taking_part(seen: Seen) -> Seen:
    """The same, with 0 where a pair is in neither mask."""
    part = seen.positive | seen.negative
    scores, weights = torch.where(part, seen.scores, 0), torch.where(part, seen.weights, 0)
    return replace(seen, scores=scores, weights=weights)


def _transferred(numbers: Numbers) -> dict[str, float]:
    """All numbers in one transfer; those that are not finite are left out."""
    values = torch.stack([value.detach().to(torch.float64) for value in numbers.values()]).tolist()
    found = zip(numbers, values, strict=True)
    return {name: _whole(value) for name, value in found if math.isfinite(value)}


def _whole(value: float) -> float:
    return int(value) if value == int(value) and abs(value) < 2**53 else value


def _precise(values: Tensor) -> Tensor:
    """At least float32, in which sums are taken."""
    return values.float() if values.dtype in {torch.float16, torch.bfloat16} else values


def _as(mask: Tensor, values: Tensor) -> Tensor:
    """A mask as factors, 0 or 1, in the dtype of the values."""
    return mask.view(torch.uint8).to(values.dtype)


def of_direction(seen: Seen, eps: float) -> Numbers:
    """Statistics of one direction, () each: means over its queries, as `cocos count` has them."""
    queries, candidates = seen.scores.shape
    rows = queries if seen.scores.device.type != "cpu" else max(1, CACHED_SCORES // candidates)
    blocks = [_of_rows(seen, slice(k, k + rows), eps) for k in range(0, queries, rows)]
    totals = torch.stack([torch.stack(list(each.values())) for each, _ in blocks]).sum(dim=0)
    sums = dict(zip(blocks[0][0], totals, strict=True))
    push, pull, parts = torch.stack([each for _, each in blocks]).sum(dim=0)
    found = {name: sums[name] / queries for name in MEANS if name in sums}
    found |= {name: sums[name] / sums["some"] for name in ("effective", "hardest_share")}
    found |= {name: sums[name] for name in TOTALS if name in sums} | {"hub_share": parts.amax() / sums["some"]}
    if seen.sources is not None:
        found |= _by_source(seen)
    if seen.own is not None:
        own = _as(seen.own, push)
        found |= {"push_own": (push * own).sum() / push.sum(), "pull_own": (pull * own).sum() / pull.sum()}
    if seen.source == "backward pass":
        found["zero"] = 1 - sums["nonzero"] / sums["negatives"]
    if seen.source == "backward pass" and seen.scores.dtype == torch.float16:
        found["subnormal"] = sums["subnormal"] / push.sum()
    return found


def _by_source(seen: Seen) -> Numbers:
    """Part of the push, pulled negatives and negatives of each source that has any, () each."""
    weights, found = _precise(seen.weights), Numbers()
    push, queries = (weights * _as(seen.negative, weights)).relu(), len(weights)
    present = torch.bincount(seen.sources[seen.negative].long(), minlength=len(SOURCE_KEYS)).tolist()  # type: ignore[index]
    for place, (key, number) in enumerate(zip(SOURCE_KEYS, present, strict=True)):
        if number:
            mine = seen.negative & (seen.sources == place)
            found[f"push_{key}"] = torch.where(mine, push, 0).sum() / push.sum()
            found[f"pulled_{key}"] = (mine & (weights < 0)).count_nonzero() / queries
            found[f"negatives_{key}"] = push.new_tensor(number / queries)
    return found


def _of_rows(seen: Seen, rows: slice, eps: float) -> tuple[Numbers, Tensor]:
    """Sums over some queries by name, () each; push, pull, and parts of a query's push by candidate, (3, C)."""
    weights = _precise(seen.weights[rows])
    negative, positive = _as(seen.negative[rows], weights), _as(seen.positive[rows], weights)
    away, near = weights * negative, weights * positive
    push = away.relu()
    largest = push.amax(dim=1, keepdim=True)
    scaled = push / torch.where(largest > 0, largest, 1)  # so that no tiny weight is lost in a sum
    total = scaled.sum(dim=1)
    some, at_least_one = (total > 0).to(weights.dtype), total.clamp(min=1)
    surprise = (scaled * scaled.clamp(min=torch.finfo(weights.dtype).tiny).log_()).sum(dim=1)
    effective = some * (at_least_one.log() - surprise / at_least_one).exp()
    pulls = near.neg().relu_()
    sums = {
        "relative": (scaled > eps * at_least_one[:, None]).count_nonzero(),
        "unpushed": len(some) - some.sum(),
        "some": some.sum(),
        "effective": effective.sum(),
        "hardest_share": (some / at_least_one).sum(),
        "pulled_negatives": (away < 0).count_nonzero(),
        "pushed_positives": (near > 0).count_nonzero(),
        "positives": positive.sum(),
        "negatives": negative.sum(),
        "nonzero": away.count_nonzero(),
        "subnormal": _below(push, seen),
        "sum": weights.sum() + seen.scores[rows].sum(dtype=weights.dtype),
    }
    if seen.unit is not None:
        unit = seen.unit[rows] if seen.unit.ndim == 2 and len(seen.unit) > 1 else seen.unit
        share = away.abs() / unit
        sums |= {
            "contributing": (share > eps).count_nonzero(),
            "idle": (share.amax(dim=1) <= eps).count_nonzero(),
            "weight_positive": (near.abs() / unit).sum(),
            "weight_negative": share.sum(),
        }
    numbers = {name: value.to(torch.float64) for name, value in sums.items()}
    return numbers, torch.stack([push.sum(dim=0), pulls.sum(dim=0), at_least_one.reciprocal() @ scaled])


def _below(push: Tensor, seen: Seen) -> Tensor:
    """Push by gradients that half precision has with fewer digits, ()."""
    if seen.scores.dtype != torch.float16:
        return push.new_zeros(())
    factor = 1.0 if seen.factor is None else seen.factor.abs().to(push.dtype)
    return (push * (push * factor < torch.finfo(torch.float16).tiny)).sum()


def _unit(rows: Tensor) -> Tensor:
    rows = _precise(rows)
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


def _sample(number: int, generator: torch.Generator, device: torch.device) -> Tensor:
    return torch.randperm(number, generator=generator)[:SAMPLED_ROWS].to(device)


def geometry(seen: Seen, generator: torch.Generator) -> Numbers:
    """Where the rows lie on the unit sphere, () each.

    Alignment takes one positive of each query; uniformity, similarity, rank and near duplicates are of a sample of
    the candidates, and the similarity of negatives and the reduction of a sample of the queries, drawn anew each time.

    Args:
        seen: a direction with its rows.
        generator: of the samples, on the CPU.

    Source: alignment and uniformity of Wang & Isola 2020, arXiv:2005.10242, with α = 2 and t = 2; effective rank of
    Roy & Vetterli 2007, EUSIPCO, of the deviations from the mean, as in `cocos.health`.
    """
    query, candidate = _unit(seen.query), _unit(seen.candidate)  # type: ignore[arg-type]
    found = _of_candidates(candidate[_sample(len(candidate), generator, candidate.device)], len(candidate))
    first = seen.positive.view(torch.uint8).max(dim=1)  # of the positives of a query, and whether it has any
    apart = (query - candidate[first.indices]).square().sum(dim=1)
    found["alignment"] = (apart * first.values).sum() / first.values.sum()
    found["duplicates"] = _duplicates(seen.candidate)  # type: ignore[arg-type]
    place = _sample(len(query), generator, query.device)
    cosines = query[place] @ candidate.T
    negative = _as(seen.negative[place], cosines)
    if seen.direction not in LABELLED:
        some = place[:AGREEING_ROWS]
        found["agreement"] = _agreement(query[some], candidate[first.indices[some]])
    found["similarity_negative"] = (cosines * negative).sum() / negative.sum()
    return found | _reduction(seen, place, cosines, negative)


def _agreement(query: Tensor, positive: Tensor) -> Tensor:
    """Correlation of the cosines between some queries with those between their positives, around their means, ()."""
    rows = torch.stack([query, positive])
    rows -= rows.mean(dim=1, keepdim=True)
    cosines = rows @ rows.mT
    cosines.diagonal(dim1=1, dim2=2).zero_()
    total, pairs = cosines.sum(dim=(1, 2)), len(query) * (len(query) - 1)
    squares = torch.einsum("kij,lij->kl", cosines, cosines) - total[:, None] * total / pairs
    return squares[0, 1] / (squares[0, 0] * squares[1, 1]).sqrt()


def _of_candidates(some: Tensor, number: int) -> Numbers:
    """Similarity of a sample of unit rows, of `number` in all."""
    rows = len(some)
    if rows < 2:
        return {}
    cosines = some @ some.T
    cosines.fill_diagonal_(-torch.inf)
    near = (cosines.amax(dim=1) > NEAR).sum()
    nearest = cosines[:COPIED_ROWS].topk(min(MOST_COPIES + 1, rows - 1), dim=1).values
    gaps = (1 - nearest[:, :-1] < COPY_GAP * (1 - nearest[:, 1:])) & (nearest[:, :-1] > COPY)
    copies = gaps.any(dim=1).sum()
    potential = (4 * (cosines - 1)).exp().sum()  # exp(-2 |x - y|²), and |x - y|² = 2 - 2 cos; 0 on the diagonal
    cosines.fill_diagonal_(0)
    pairs = rows * (rows - 1)
    return {
        "near_duplicates": near * (number / rows),
        "copies": copies * (number / len(nearest)),
        "similarity": cosines.sum() / pairs,
        "uniformity": (potential / pairs).log(),
        "rank": effective_rank(some),
    }


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


def _reduction(seen: Seen, place: Tensor, cosines: Tensor, negative: Tensor) -> Numbers:
    """Total pull of some queries over that of their closed form, (): 1 for a sum, 1/Q for a mean.

    It is known for a softmax with one positive per query, and for a hinge whose negatives weigh alike.

    Args:
        seen: a direction.
        place: (q,) rows of these queries.
        cosines: (q, C) of them.
        negative: (q, C) 0 or 1.
    """
    weights = _precise(seen.weights[place]).to(cosines.dtype)
    if seen.kind == "hinge":
        push = (weights * negative).relu()
        number, largest = (push > 0).sum(), push.amax()
        mean = push.sum() / number
        return {"reduction": torch.where(largest <= (1 + EVEN_HINGES) * mean, mean, torch.nan)}
    if seen.kind != "softmax" or seen.scale is None:
        return {}
    positive = _as(seen.positive[place], cosines)
    one = (positive.sum(dim=1) == 1).to(cosines.dtype)
    stretch = _precise(seen.scores[place]).abs().sum() / cosines.abs().sum()  # of the scores to the cosines
    logits = seen.scale * cosines + LEFT_OUT * (1 - positive - negative)
    left = (positive * (1 - logits.softmax(dim=1))).sum(dim=1) * seen.scale / stretch
    pull = -(weights * positive).sum(dim=1)
    return {"reduction": (one * pull).sum() / (one * left).sum()}
