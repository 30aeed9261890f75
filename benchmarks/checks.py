"""The checks that `benchmarks.exactness` makes on one draw."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from benchmarks.compare import Loss, Pass, Result, Side, counted, sides
from benchmarks.draws import Draw
from cocos import measures
from tests import reference

__all__ = ["Check", "checks"]

# Fraction of draws whose first loss is also counted by measures.count.
PUBLIC = 0.4
# Fraction of draws whose pass also computes ranks, precision-recall and a histogram.
BESIDE = 0.4
# Fraction of draws that are repeated with other numbers of threads.
AGAIN = 0.1
# Fraction of draws that are evaluated.
EVALUATED = 0.15
BINS = 64
THREADS = (2, 3)


@dataclass(frozen=True)
class Check:
    """One check: its name, and the comparison."""

    name: str
    run: Callable[[], Result]


def _ranks(every: list[list[Side]], seen: Pass, at: int) -> Result:
    """Count the negatives above every positive pair, and those tied with it."""
    result = Result()
    for direction, own in enumerate(every):
        found = [one[at][direction] for one in seen.found()]
        query, candidate, above, ties = (
            torch.cat([getattr(one, key) for one in found]).numpy() for key in ("query", "candidate", "above", "ties")
        )
        wanted, place, start, across = [], [], 0, 0
        for side in own:
            wanted.append(reference.ranks(side.score, side.positive, side.negative, side.tie, side.beside))
            rows, columns = side.positive.nonzero()
            several = len(seen.found()) == 1
            place.append(np.stack([rows + several * start, columns + several * across]))
            start, across = start + len(side.score), across + side.score.shape[1]
            result.queries += len(side.score)
        place, wanted = np.concatenate(place, axis=1), np.concatenate(wanted, axis=1)
        if len(found) == 1:
            order = np.lexsort((candidate, query))
            query, candidate, above, ties = (each[order] for each in (query, candidate, above, ties))
        if not (np.array_equal(query, place[0]) and np.array_equal(candidate, place[1])):
            result.wrong.append(f"direction {direction}: other positive pairs")
            continue
        low, high, low_both, high_both = wanted
        both = above + ties
        bad = (above < low) | (above > high) | (both < low_both) | (both > high_both)
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            result.wrong.append(
                f"direction {direction}: pair ({query[k]}, {candidate[k]}) has {above[k]} above and {ties[k]} ties, "
                f"not {low[k]} to {high[k]} above, {low_both[k]} to {high_both[k]} in all ({int(bad.sum())} pairs)"
            )
    return result


def _reached(every: list[list[Side]], seen: Pass, at: int) -> Result:
    """Count the negatives of the matrix at or above each positive pair."""
    result, found = Result(), [one[at] for one in seen.found()]
    batches = [[side] for side in every[0]] if len(found) > 1 else [every[0]]
    for curve, own in zip(found, batches, strict=True):
        positive = np.concatenate([side.score[side.positive] for side in own])
        negative = np.concatenate([side.score[side.negative] for side in own])
        both = np.concatenate([positive, negative])[None]
        masks = np.zeros_like(both, dtype=bool), np.ones_like(both, dtype=bool)
        masks[0][0, : len(positive)], masks[1][0, : len(positive)] = True, False
        least, most = reference.reached(both, *masks, own[0].tie, own[0].beside)
        got = curve.negatives.numpy()
        if len(got) != len(least) or ((got < least) | (got > most)).any():
            k = int(np.flatnonzero((got < least) | (got > most))[0]) if len(got) == len(least) else -1
            result.wrong.append(f"level {k}: {got[k]} negatives, not {least[k]} to {most[k]}")
        result.queries += sum(len(side.score) for side in own)
    return result


def _binned(every: list[list[Side]], seen: Pass, at: int) -> Result:
    """Count the negatives of every query in bins of score."""
    result, edges = Result(), np.linspace(-1, 1, BINS + 1)[1:-1]
    for direction, own in enumerate(every):
        got = torch.cat([one[at][direction] for one in seen.found()]).numpy().cumsum(axis=1)
        start = 0
        for side in own:
            part, start = got[start : start + len(side.score)], start + len(side.score)
            beside = 4 * side.single + 1e-6
            for k, edge in enumerate(edges):
                least = ((side.score < edge - beside) & side.negative).sum(axis=1)
                most = ((side.score < edge + beside) & side.negative).sum(axis=1)
                if ((part[:, k] < least) | (part[:, k] > most)).any():
                    result.wrong.append(f"direction {direction}: negatives below {edge}")
                    break
            if (part[:, -1] != side.negative.sum(axis=1)).any():
                result.wrong.append(f"direction {direction}: not every negative is in a bin")
            result.queries += len(side.score)
    return result


def _again(one: Draw, every: list[Loss], seen: Pass, threads: int) -> Result:
    """Check that other numbers of threads give the same bits."""
    result, before = Result(), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        other = Pass(one, every, beside=seen.beside)
        for own, their in zip(seen.flat(), other.flat(), strict=True):
            same = own.dtype == their.dtype and own.shape == their.shape
            if not same or not bool(((own == their) | (own.isnan() & their.isnan())).all()):
                result.wrong.append(f"{threads} threads: other bits")
                break
    finally:
        torch.set_num_threads(before)
    return result


def _evaluated(one: Draw, every: list[list[Side]]) -> Result:
    """Check the public metrics of the first direction, and PR-AUC, where no two scores are too close."""
    result = Result(queries=len(every[0][0].score))
    groups = one.embeddings.query_group
    if len(torch.unique(groups[torch.isin(groups, one.embeddings.candidate_group)])) < 2:
        return result  # rejected, since no query with a positive has a negative
    if not every[0][0].positive.any():
        return result  # rejected, since every sample is the only one of its class
    data = measures.evaluate(one.embeddings, metric=one.metric)
    data = data.sel(direction=one.embeddings.directions[0]).isel(distractors=0).squeeze()
    side = every[0][0]
    rows, columns = side.positive.any(axis=1), side.positive.any(axis=0)
    if one.embeddings.shared:
        columns = np.ones_like(columns)
    score, positive, negative = (each[rows][:, columns] for each in (side.score, side.positive, side.negative))
    *_, least, most = reference.ranks(score, positive, negative, side.tie, side.beside)
    reached = reference.reached(score, positive, negative, side.tie, side.beside)
    query = positive.nonzero()[0]
    if (least == most).all():
        for key, want in reference.recalls(least, query).items():
            if abs(float(data[key]) - want) > 1e-9 * max(1, want):
                result.wrong.append(f"{key} is {float(data[key])!r}, not {want!r}")
    if (reached[0] == reached[1]).all() and not one.embeddings.shared:
        want = reference.average_precision(score, positive, negative, side.tie)
        if abs(float(data["PR-AUC"]) - want) > 1e-7:
            result.wrong.append(f"PR-AUC is {float(data['PR-AUC'])!r}, not {want!r}")
    return result


def checks(one: Draw, random: np.random.Generator) -> Iterator[Check]:
    """Return all checks of a draw.

    Args:
        one: the draw.
        random: generator of the remaining choices: eps, and which checks to make.
    """
    every = sides(one)
    public, beside, again, evaluated = random.random(4) < (PUBLIC, BESIDE, AGAIN, EVALUATED)
    given = [Loss(name, parameters, every, random) for name, parameters in one.losses]
    batch = one.batches[0]
    square = batch is None or batch.square
    beside = bool(beside) and square
    seen, passed = Pass(one, given, beside=beside), every if square else every[:1]
    for k, each in enumerate(given):
        own = each.only(len(passed))
        yield Check(f"{each.name} pass", lambda own=own, k=k: own.compare(seen.loss(k)))
    if public and given[0].eps < 1:  # the public function refuses an eps that no share can exceed
        chosen = given[0]
        yield Check(f"{chosen.name} count", lambda: chosen.compare(counted(one, chosen)))
    if beside:
        for k, (name, check) in enumerate((("ranks", _ranks), ("reached", _reached), ("binned", _binned))):
            yield Check(f"{name} pass", partial(check, every, seen, len(given) + k))
    if again:
        yield Check("threads pass", lambda: _again(one, given, seen, THREADS[one.number % 2]))
    if evaluated and one.batches == (None,) and one.structure != "proxies":
        yield Check("evaluate public", lambda: _evaluated(one, every))
