"""From what a loss saw to the numbers of a record: bounded work, and two transfers from the device.

A mask is multiplied rather than selected by: on a CPU that takes a tenth of the time (measured, PyTorch 2.13).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.counting import averages, statistics
from cocos.embeddings.scores import Pairs
from cocos.embeddings.sources import OTHERS_HARD
from cocos.monitor import units
from cocos.monitor.calls import Named, Seen, equal_rows, first_positives
from cocos.monitor.directions import unit_rows
from cocos.monitor.records import (
    DIRECTION_METRICS,
    DIRECTION_NUMBERS,
    OF_CLASSES,
    SOURCE_KEYS,
    STEP_METRICS,
)

# Maximum number of candidates that are compared with each other: a sample is drawn from more.
SAMPLED_ROWS = 256
# Cosine from which two different candidates are near duplicates.
NEAR = 0.999
# Cosine from which a candidate may be the copy of another one but for noise as that of dropout, and the ratio of its
# distance to that of the next candidate: measured at 0.08 to 0.2 for equal texts in MiniLM with its dropout of 0.1.
COPY, COPY_GAP = 0.8, 0.25
# Number of neighbours of a row among which its copies are.
MOST_COPIES = 8
# Number of queries whose cosines are compared with those of their positives, and of positives that may have copies.
RELATED_ROWS = 64
# Parts of its negatives by which a query's positive is outranked: of one that ranks well, by chance, and far behind.
AHEAD, BEHIND, FAR_BEHIND = 0.1, 0.5, 0.75
# Part of the largest singular value below which rounding in float32 makes a singular value.
SPECTRUM_ROUNDING = 1e-6
# Logit, in nats, far enough below all others to leave a pair out of a softmax.
LEFT_OUT = -1e9

# What is said once of a side that gets no gradient: it may be meant so, or be a fault.
ONE_SIDED = (
    "no gradient reaches the {}, which is right for a frozen or a momentum encoder, a queue, or a stopped gradient; if "
    "both sides should train, look for detach(), no_grad or .data before the loss"
)

# Scores of a block of queries on a CPU: 256 KiB in float32, which stay in the cache.
CACHED_SCORES = 2**16
# Numbers up to which float32 has every whole number.
EXACT_SUMS = 2**24
# Numbers of a count that a record has.
RECORDED = tuple(number for number in statistics.BATCH_NUMBERS.values() if number.record)
# The matrices of a direction.
MATRICES = ("scores", "weights", "positive", "negative")

# Numbers by name, on the device.
Numbers = dict[str, Tensor]


class _Stack:
    """Directions of one shape, whose numbers are taken in the same operations, (N, Q, C) each; a large one is alone."""

    def __init__(self, seen: Sequence[Seen]):
        self.seen, self.first = seen, seen[0]

    @cached_property
    def scores(self) -> Tensor:
        """(N, Q, C)."""
        return self._stacked("scores")

    @cached_property
    def weights(self) -> Tensor:
        """(N, Q, C)."""
        return self._stacked("weights")

    @cached_property
    def positive(self) -> Tensor:
        """(N, Q, C), or (1, Q, C) where all have the same mask."""
        return self._stacked("positive")

    @cached_property
    def negative(self) -> Tensor:
        """Likewise."""
        return self._stacked("negative")

    def _stacked(self, name: str) -> Tensor:
        values = [getattr(each, name) for each in self.seen]
        return values[0][None] if all(each is values[0] for each in values) else torch.stack(values)


def _grouped(seen: Sequence[Seen]) -> list[list[Seen]]:
    """Group small directions of one shape that are read alike."""
    found: dict[Any, list[Seen]] = {}
    for k, each in enumerate(seen):
        alone = each.scores.numel() > CACHED_SCORES or each.sources is not None
        alone |= each.unit is not None and each.unit.ndim > 0
        kinds = each.scores.shape, each.scores.dtype, each.weights.dtype, each.kind, each.scale, each.stretch
        absent = each.unit is None, each.local is None, each.plain
        found.setdefault(k if alone else (kinds, absent, each.origin, id(each.factor)), []).append(each)
    return [*found.values()]


def of(
    seen: Sequence[Seen],
    eps: float,
    generator: torch.Generator,
) -> dict[str, Any]:
    """Read the directions of one call: the numbers of a record, those that are unknown left out.

    Args:
        seen: one entry per direction, the first one first.
        eps: smallest share that contributes.
        generator: of the samples of rows, on the CPU; the global state of random numbers is untouched.

    Returns:
        Keys of a record, without those of the run (step, call, overhead, alarms).
    """
    seen = _with_units(seen)
    found, by_direction, finite = _transferred(seen, eps, generator)
    if not finite:  # a pair that takes no part may be masked by infinity
        found, by_direction, finite = _transferred([_zero_outside_masks(each) for each in seen], eps, generator)
    first = seen[0]
    directions = {
        each.direction: {"queries": each.scores.shape[0], "candidates": each.scores.shape[1]} | numbers
        for each, numbers in zip(seen, by_direction, strict=True)
    }
    about = {
        "queries": first.scores.shape[0],
        "candidates": first.scores.shape[1],
        "width": first.width,
        "source": first.origin,
        "kind": first.kind,
        "share": first.share,
        "dtype": str(first.scores.dtype).removeprefix("torch."),
        "scale": first.scale if first.scale is not None and math.isfinite(first.scale) else None,
        "gathered": first.local is not None if first.origin == "backward pass" else None,
        "no_gradient": first.no_gradient or None,
        "notes": [*first.notes, *([ONE_SIDED.format(first.no_gradient)] if first.no_gradient else [])] or None,
        "finite": finite,
    }
    known = {name: value for name, value in about.items() if value is not None}
    return known | found | {"directions": directions}


def of_batches(
    loss: Any, made: Iterable[Sequence[tuple[str, Pairs]]], eps: float = 0.0, seed: int = 0
) -> dict[str, Any]:
    """Make one record of several batches of a loss at rest: the mean of each number.

    Args:
        loss: of the shelf, or like one.
        made: of each batch the names and pairs of its directions; batches of one size.
        eps: smallest share that contributes.
        seed: of the samples of rows.
    """
    reader, generator = Named(loss), torch.Generator().manual_seed(seed)
    found = []
    for batch in made:
        seen = [reader.of_pairs(name, pairs) for name, pairs in batch]
        found.append(of(seen, eps, generator))
    record = found[0] | _averaged(found, STEP_METRICS)
    record["directions"] = {
        name: _averaged([each["directions"][name] for each in found], DIRECTION_METRICS)
        for name in record["directions"]
    }
    return record


def _averaged(found: Sequence[Mapping[str, Any]], names: Iterable[str]) -> dict[str, float]:
    """Average each number over the records that have it."""
    held = {name: [each[name] for each in found if name in each] for name in names}
    return {name: float(np.mean(values)) for name, values in held.items() if values}


def _factor(seen: Seen) -> float | None:
    """Find the factor from a score to what the loss reads."""
    return seen.scale / seen.stretch if seen.scale and seen.stretch else None


def _with_units(seen: Sequence[Seen]) -> Sequence[Seen]:
    """Add the unit that the weights of each direction have on this batch, where they have one."""
    unknown = [each for each in seen if each.unit is None and each.origin == "backward pass"]
    made = {each: each for each in seen}
    for group in _grouped(unknown):
        factor = _factor(group[0]) if group[0].kind == "softmax" else None
        if factor is not None:
            made |= dict(zip(group, _of_softmax(_Stack(group), factor), strict=True))
    for each in unknown:
        if not made[each].plain and (found := units.found(
            each.scores, each.weights, each.positive, each.negative,
            kind=each.kind, factor=_factor(each), upstream=each.factor,
        )) is not None:  # fmt: skip
            made[each] = replace(each, unit=found.size, share=found.share)
    return [*made.values()]


def _of_softmax(stack: _Stack, factor: float) -> Sequence[Seen]:
    """Add the unit of the usual loss, a softmax with one positive of each query; others take longer.

    It is the first of the closed forms of `cocos.monitor.units.found`, in the precision of the scores.
    """
    if _precise(stack.weights[:, :1]).dtype != stack.scores.dtype:
        return stack.seen
    sizes, totals, errors, missing = [], [], [], []
    guess: Tensor | None = None  # the unit by the first queries; that of all of them differs by rounding alone
    for rows in _blocks(stack):
        weights = _precise(stack.weights[:, rows])
        positive, negative = (_as_factors(mask[:, rows], weights) for mask in (stack.positive, stack.negative))
        logits, taking = stack.scores[:, rows] * factor, negative.add_(positive)
        if float(taking.sum()) != taking.numel():
            logits += LEFT_OUT * (1 - taking)
        form = logits.softmax(dim=2).sub_(positive)
        missing.append(form.sum(dim=2).abs_().amax(dim=1))
        sizes.append(_sum_of_each(logits.copy_(form).abs_()))
        totals.append(_sum_of_each(torch.abs(weights, out=logits)))
        guess = totals[0] / sizes[0] if guess is None else guess
        errors.append(_sum_of_each(torch.div(weights, guess[:, None, None], out=logits).sub_(form).abs_()))
    size, total, error = (torch.stack(each).sum(dim=0) for each in (sizes, totals, errors))
    least = torch.stack([error / size, torch.stack(missing).amax(dim=0)]).amax(dim=0).tolist()
    return [
        replace(each, unit=one, share="probability", plain=True) if most <= units.CLOSE_SHARES else each
        for each, one, most in zip(stack.seen, (total / size).float(), least, strict=True)
    ]


def _blocks(stack: _Stack) -> list[slice]:
    """Blocks of queries whose scores stay in the cache of a CPU; all queries on a device."""
    _, queries, candidates = stack.scores.shape
    rows = queries if stack.scores.device.type != "cpu" else max(1, CACHED_SCORES // candidates)
    return [slice(k, k + rows) for k in range(0, queries, rows)]


def _transferred(
    seen: Sequence[Seen], eps: float, generator: torch.Generator
) -> tuple[dict[str, float], list[dict[str, float]], bool]:
    """Read a record and its directions in one transfer; tell whether every score, weight and loss is finite.

    Numbers that are not finite are left out.
    """
    first, stacks = seen[0], [_Stack(each) for each in _grouped(seen)]
    more: Numbers = {} if first.value is None else {"value": first.value.reshape(())}
    more |= _ranks(first)
    if first.query is not None and first.candidate is not None:
        cut = _without_further_columns(first)
        more |= geometry(cut, generator)
    sums = [_sums(each, eps) for each in stacks]
    values = iter(_to_host([value for each in (more, *sums) for value in each.values()]))
    found = {name: next(values)[0] for name in more}
    of_stacks = [{name: next(values) for name in each} for each in sums]
    numbers = {
        each: {name: value[k] for name, value in some.items()}
        for stack, some in zip(stacks, of_stacks, strict=True)
        for k, each in enumerate(stack.seen)
    }
    by_direction = [numbers[each] for each in seen]
    finite = math.isfinite(found.get("value", 0) + sum(each["sum"] for each in by_direction))
    made = [_means(each, one) | _further(each, one, eps) for each, one in zip(seen, by_direction, strict=True)]
    for each in made[::-1]:  # of the first direction
        found |= {name: each.pop(name) for name in ("zero", "subnormal") if name in each}
    return _finite(found), [_finite(each) for each in made], finite


def _to_host(values: Sequence[Tensor]) -> list[list[float]]:
    """Copy numbers to the host in one transfer."""
    if any(value.device.type == "cpu" for value in values):
        return [value.reshape(-1).tolist() if value.ndim else [value.item()] for value in values]
    one = torch.zeros((1,), dtype=torch.float64, device=values[0].device)  # whose dtype all get: that of whole numbers
    read = iter(torch.cat([one, *(value.reshape(-1) for value in values)]).tolist()[1:])
    return [[*islice(read, value.numel())] for value in values]


def _finite(numbers: dict[str, float]) -> dict[str, float]:
    """Keep the numbers that are finite, whole ones as integers."""
    finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
    return {name: int(value) if value == int(value) and abs(value) < 2**53 else value for name, value in finite.items()}


def _ranks(seen: Seen) -> Numbers:
    """Measure which part of a query's negatives scores above its first positive; ties count half, () each."""
    first = first_positives(seen.positive)
    above = (seen.scores - seen.scores.gather(1, first.places[:, None])).sign_()
    negative = _as_factors(seen.negative, above)
    ahead, number = (above * negative).sum(dim=1), negative.sum(dim=1)
    part = 0.5 + 0.5 * ahead / number
    known = first.known & (number > 0)
    found = torch.stack([part, part < AHEAD, part > BEHIND, part > FAR_BEHIND])
    values = torch.where(known, found, 0).sum(dim=1) / known.sum()
    return dict(zip(("outranked", "ahead", "behind", "far_behind"), values.unbind(), strict=True))


def _without_further_columns(seen: Seen) -> Seen:
    """Cut off the columns of further directions."""
    candidates = len(seen.candidate)  # type: ignore[arg-type]
    if seen.sources is not None:
        candidates = min(candidates, int((seen.sources[0] <= OTHERS_HARD).sum()))
    if candidates == seen.scores.shape[1]:
        return seen
    cut = {name: getattr(seen, name)[:, :candidates] for name in MATRICES}
    return replace(seen, candidate=seen.candidate[:candidates], plain=False, **cut)  # type: ignore[index]


def _zero_outside_masks(seen: Seen) -> Seen:
    """Set scores and weights to 0 where a pair is in neither mask."""
    part = seen.positive | seen.negative
    scores, weights = torch.where(part, seen.scores, 0), torch.where(part, seen.weights, 0)
    return replace(seen, scores=scores, weights=weights)


def _precise(values: Tensor) -> Tensor:
    """At least float32, in which sums are taken."""
    return values.float() if values.dtype in {torch.float16, torch.bfloat16} else values


def _as_factors(mask: Tensor, values: Tensor) -> Tensor:
    """Make a mask factors, 0 or 1, in the dtype of the values."""
    return mask.view(torch.uint8).to(values.dtype)


def _sum_of_each(values: Tensor) -> Tensor:
    """Add up each direction, (N,)."""
    return values.flatten(start_dim=1).sum(dim=1)


def _sums(stack: _Stack, eps: float) -> Numbers:
    """Sums over the queries of some directions, (N,) each, and the largest share of one candidate of each.

    Args:
        stack: the directions.
        eps: smallest share that contributes.
    """
    first = stack.first
    blocks = [_of_rows(stack, rows, eps) for rows in _blocks(stack)]
    sums = blocks[0][0]
    for more, _ in blocks[1:]:
        sums = {name: sums[name] + more[name] for name in sums}
    parts = blocks[0][1] if len(blocks) == 1 else torch.stack([each for _, each in blocks]).sum(dim=0)
    sums["hub_share"] = parts[:, 0].amax(dim=1)
    if first.local is not None:
        push, pull = parts[:, 1], parts[:, 2]
        own = torch.stack([_as_factors(each.local, parts) for each in stack.seen])  # type: ignore[arg-type]
        sums |= {
            "push_own": (push * own).sum(dim=1) / push.sum(dim=1),
            "pull_own": (pull * own).sum(dim=1) / pull.sum(dim=1),
        }
    return sums if first.sources is None else sums | _by_source(first)


def _means(seen: Seen, sums: dict[str, float]) -> dict[str, float]:
    """Average one direction over its queries, as `cocos count` does."""
    sums |= {"unpushed": len(seen.scores) - sums["some"]}
    over = {"all": len(seen.scores), "pushed": sums["some"] or math.nan}
    found = {
        name: sums[name] / over[number.over] if number.how == "mean" else sums[name]
        for name, number in DIRECTION_NUMBERS.items()
        if name in sums
    }
    if seen.origin == "backward pass":
        found["zero"] = 1 - sums["nonzero"] / (sums["negatives"] or math.nan)
        if seen.scores.dtype == torch.float16:
            found["subnormal"] = sums["subnormal"] / (sums["push"] or math.nan)
    return found


def _further(seen: Seen, sums: Mapping[str, float], eps: float) -> dict[str, float]:
    """Compute the numbers of a count that no sum has, as `cocos count` does: those of the loss's own statistics first.

    Another pass is made where a row of `STATISTICS` asks for it alone; what is known of a loss at rest only, as its own
    statistics are, is left out of a backward pass.
    """
    wanted = [each for each in RECORDED if each.record not in sums]
    own = [each for each in wanted if statistics.BY_NAME[each.of].by_loss]
    plain = [each for each in wanted if each not in own and not (seen.unit is None and each.of in statistics.BY_SHARE)]
    found = seen.extra(eps) if seen.extra is not None and own else {}
    if plain or any(each.of in found and (each.by or each.over == "pushed") for each in own):
        weights = _precise(seen.weights)
        pairs = Pairs(_precise(seen.scores), seen.positive, seen.negative)
        unit = weights.new_tensor(math.nan) if seen.unit is None else seen.unit
        found |= statistics.per_query(weights, unit, pairs, eps)
        found["n90"] = statistics.n90(statistics.spread(weights, pairs))
        found["negatives"] = seen.negative.sum(dim=1)
        found["negative_push"] = statistics.push_of_negatives(weights, pairs).sum(dim=1)
    values = {statistics.BY_NAME[name].variable: each.detach().double().cpu().numpy() for name, each in found.items()}
    if not values:
        return {}
    numbers = averages.of_batches(values, 0)
    known = [each for each in wanted if each.name in numbers and (not each.by or each.by in values)]
    return {each.record: float(numbers[each.name]) for each in known}


def _by_source(seen: Seen) -> Numbers:
    """Measure the part of the push, pulled negatives and negatives of each source that has any, () each."""
    weights, found = _precise(seen.weights), Numbers()
    push, queries = (weights * _as_factors(seen.negative, weights)).relu(), len(weights)
    present = torch.bincount(seen.sources[seen.negative].long(), minlength=len(SOURCE_KEYS)).tolist()  # type: ignore[index]
    for place, (key, number) in enumerate(zip(SOURCE_KEYS, present, strict=True)):
        if number:
            mine = seen.negative & (seen.sources == place)
            found[f"push_{key}"] = torch.where(mine, push, 0).sum() / push.sum()
            found[f"pulled_{key}"] = (mine & (weights < 0)).count_nonzero() / queries
            found[f"negatives_{key}"] = push.new_tensor(number / queries)
    return found


def _of_rows(stack: _Stack, rows: slice, eps: float) -> tuple[Numbers, Tensor]:
    """Sums over some queries by name, (N,) each, and by candidate: parts of the push, push and pull, (N, 1 or 3, C)."""
    first, weights, scores = stack.first, _precise(stack.weights[:, rows]), stack.scores[:, rows]
    negative, positive = _as_factors(stack.negative[:, rows], weights), _as_factors(stack.positive[:, rows], weights)
    away, near = weights * negative, weights * positive
    push, size = away.relu(), away.abs()
    largest = push.amax(dim=2, keepdim=True)
    scaled = push / torch.where(largest > 0, largest, 1)  # so that no tiny weight is lost in a sum
    total = scaled.sum(dim=2)
    some, at_least_one = (total > 0).to(weights.dtype), total.clamp(min=1)
    surprise = (scaled.clamp(min=torch.finfo(weights.dtype).tiny).log_().mul_(scaled)).sum(dim=2)
    each = at_least_one.reciprocal()
    effective = (at_least_one.log() - surprise * each).exp()
    sums = {
        "relative": _count_of_each(scaled.clone().gt_(eps * at_least_one[..., None])),  # a fifth of the time of a mask
        "some": some.sum(dim=1),
        **statistics.how_spread((some * each).sum(dim=1), (some * effective).sum(dim=1)),
        "pulled_negatives": _count_of_each((push - away).gt_(0)),
        "pushed_positives": _count_of_each(near.relu().gt_(0)),
        "positives": _count_of_each(positive).expand(len(weights)),
        "negatives": _count_of_each(negative).expand(len(weights)),
        "nonzero": _count_of_each(size.clone().gt_(0)),
        "sum": _sum_of_each(weights) + scores.flatten(start_dim=1).sum(dim=1, dtype=weights.dtype),
    }
    if first.unit is not None:
        unit = first.unit[rows] if first.unit.ndim == 2 and len(first.unit) > 1 else first.unit
        if len(stack.seen) > 1:
            unit = torch.stack([one.unit for one in stack.seen])[:, None, None]  # type: ignore[misc]
        share = size / unit
        sums |= {
            "idle": (share.amax(dim=2) <= eps).sum(dim=1),
            "weight_positive": _sum_of_each(near.abs().div_(unit)),
            "weight_negative": _sum_of_each(share),
            "contributing": _count_of_each(share.gt_(eps)),
        }
    if scores.dtype == torch.float16:
        times = 1.0 if first.factor is None else first.factor.abs().to(push.dtype)
        below = push * times < torch.finfo(torch.float16).tiny  # gradients that half precision has with fewer digits
        sums |= {"subnormal": _sum_of_each(push * below), "push": _sum_of_each(push)}
    parts = [(each[..., None] * scaled).sum(dim=1)]
    parts += [] if first.local is None else [push.sum(dim=1), near.neg().relu_().sum(dim=1)]
    return sums, torch.stack(parts, dim=1)


def _count_of_each(factors: Tensor) -> Tensor:
    """Count the factors of 1 of each direction, (N,), exactly."""
    exact = torch.float64 if factors[0].numel() > EXACT_SUMS else factors.dtype
    return factors.flatten(start_dim=1).sum(dim=1, dtype=exact)


def _sample(rows: Tensor, generator: torch.Generator, most: int = SAMPLED_ROWS) -> Tensor | slice:
    """Places of a sample of rows; all of them where they are few."""
    if len(rows) <= most:
        return slice(None)
    return torch.randperm(len(rows), generator=generator)[:most].to(rows.device)


def geometry(seen: Seen, generator: torch.Generator) -> Numbers:
    """Where the rows lie on the unit sphere, () each.

    Alignment takes one positive of each query; uniformity, similarity, rank and near duplicates are of a sample of
    the candidates, drawn anew each time. The similarity of negatives is of all queries of a softmax of cosines, and
    else of a sample.

    Args:
        seen: a direction with its rows.
        generator: of the samples, on the CPU.

    Source: alignment and uniformity of Wang & Isola 2020, arXiv:2005.10242, with α = 2 and t = 2; effective rank of
    Roy & Vetterli 2007, EUSIPCO, of the deviations from the mean, as in `cocos.counting.health`.
    """
    query, candidate = unit_rows(seen.query), unit_rows(seen.candidate)  # type: ignore[arg-type]
    some = _sample(candidate, generator)
    found, closest = _of_candidates(candidate[some], len(candidate))
    found |= {"rank": effective_rank(candidate[some])} if found else {}
    first, whole = first_positives(seen.positive), isinstance(some, slice)
    nearest, shortest = torch.stack(closest).tolist()
    known = whole and nearest <= NEAR < shortest  # rows without a near one have no equal one
    found["duplicates"] = query.new_zeros(()) if known else equal_rows(seen.candidate)  # type: ignore[arg-type]
    matches = candidate if first.ordered else candidate[first.places]
    distances = (query - matches).square().sum(dim=1)
    found["alignment"] = (distances * first.known).sum() / first.known.sum()
    place = _sample(query, generator)
    if seen.direction not in OF_CLASSES and len(query) > 1:
        matches, asking = matches[place], query[place]
        found["agreement"] = _agreement(asking[:RELATED_ROWS], matches[:RELATED_ROWS])
        # Each row is a match once where they are in order, so that one without a near one is none.
        if not seen.own_candidates:
            none = whole and first.ordered and nearest <= COPY
            found["copies"] = query.new_zeros(()) if none else _copies(matches) * len(query)
    if seen.own_candidates:
        found.pop("near_duplicates", None)
        found.pop("duplicates", None)
    return found | {"similarity_negative": _similarity_of_negatives(seen, query, candidate, place)}


def _similarity_of_negatives(seen: Seen, query: Tensor, candidate: Tensor, place: Tensor | slice) -> Tensor:
    """Mean cosine of the negatives, (), given unit rows of both sides and a sample of queries."""
    if seen.plain and seen.stretch:  # the factor from cosines to the scores
        cosines, mask = seen.scores / seen.stretch, seen.negative
    else:
        cosines, mask = query[place] @ candidate.T, seen.negative[place]
    negative = _as_factors(mask, cosines)
    return (cosines * negative).sum() / negative.sum()


def _agreement(query: Tensor, positive: Tensor) -> Tensor:
    """Correlation of the cosines between some queries with those between their positives, around their means, ()."""
    rows = torch.stack([query, positive])
    rows -= rows.mean(dim=1, keepdim=True)
    cosines = rows @ rows.mT
    cosines.diagonal(dim1=1, dim2=2).zero_()
    total, pairs = cosines.sum(dim=(1, 2)), len(query) * (len(query) - 1)
    flat = cosines.flatten(start_dim=1)
    squares = flat @ flat.T - total[:, None] * total / pairs
    return squares[0, 1] / (squares[0, 0] * squares[1, 1]).sqrt()


def _copies(rows: Tensor) -> Tensor:
    """Measure which part of some unit rows has a copy among them but for noise, ()."""
    cosines = rows[:RELATED_ROWS] @ rows.T
    cosines.fill_diagonal_(-torch.inf)
    nearest = cosines.topk(min(MOST_COPIES + 1, len(rows) - 1), dim=1).values
    near, next_one = nearest[:, :-1], nearest[:, 1:]
    gaps = (1 - near < COPY_GAP * (1 - next_one)) & (near > COPY)
    return gaps.any(dim=1).sum() / len(cosines)


def _of_candidates(some: Tensor, number: int) -> tuple[Numbers, tuple[Tensor, Tensor]]:
    """Measure how similar a sample of `number` unit rows is, with its largest cosine, and the least of a row itself."""
    rows = len(some)
    if rows < 2:
        return {}, (some.new_full((), -torch.inf), some.new_ones(()))
    cosines = some @ some.T
    shortest = cosines.diagonal().amin()
    cosines.fill_diagonal_(-torch.inf)
    nearest = cosines.amax(dim=1)
    potential = (4 * cosines - 4).exp_().sum()  # exp(-2 |x - y|²), and |x - y|² = 2 - 2 cos; 0 on the diagonal
    cosines.fill_diagonal_(0)
    pairs = rows * (rows - 1)
    found = {
        "near_duplicates": (nearest > NEAR).sum() * (number / rows),
        "similarity": cosines.sum() / pairs,
        "uniformity": (potential / pairs).log(),
    }
    return found, (nearest.amax(), shortest)


def effective_rank(rows: Tensor) -> Tensor:
    """Effective rank of the deviations from the mean, (): exp of the entropy of the singular values above rounding."""
    centred = rows - rows.mean(dim=0)
    gram = centred @ centred.T if len(rows) < rows.shape[1] else centred.T @ centred
    values = torch.linalg.eigvalsh(torch.nan_to_num(gram)).clamp(min=0).sqrt()
    values = torch.where(values > SPECTRUM_ROUNDING * len(rows) ** 0.5, values, 0)
    total = values.sum()
    return torch.where(total > 0, torch.special.entr(values / torch.where(total > 0, total, 1)).sum().exp(), 0)
