"""Which negatives are the k hardest ones of every query, or of every batch: bracketed by counts, decided in float64.

    brackets = yield from bracketed(view, keeps)
    listed, sums = yield Threshold(view, listed=[each.ends(view) for each in brackets], most=room(view)), LogSumExp(...)
    kept = settled(view, direction, brackets[direction], listed)

A sample says between which scores the k-th one lies. Where too many negatives lie there, counts above a few scores
between them narrow it. One more pass then counts the negatives above the bracket, which are kept, and lists those in
it. Let b bound the error of a score of the tiles, and let t be the k-th of these: the k-th true score is within b of t,
so a negative further than 2 b from t is kept or not for certain, and float64 decides about the others.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos import shards
from cocos.engine import bounds
from cocos.engine.primitives.brackets import Bracket, ascending, guessed, guessed_batches
from cocos.engine.primitives.threshold import Counts, Threshold
from cocos.engine.view import View

__all__ = ["Kept", "bracketed", "room", "settled"]

# Negatives that may be listed, in all and for each query besides: 48 MiB, and memory in proportion to the sides.
LISTED = (2**21, 32)
# Passes that may go into narrowing brackets.
PASSES = 4


def room(view: View) -> int:
    """How many negatives in brackets may be listed."""
    return LISTED[0] + LISTED[1] * sum(len(side) for side in view.sides)


def bracketed(
    view: View, keeps: Sequence[Tensor], *, batch: bool = False, sure: bool = False
) -> Generator[Threshold, object, list[Bracket]]:
    """Bracket the k-th negative, by passes over the scores where a sample does not tell.

    Args:
        view: the scores.
        keeps: of each direction, (n,) numbers of negatives that every query keeps; or, with `batch`, one tensor,
            (blocks,), of pairs that every batch keeps.
        batch: the k hardest ones of every batch are sought, not of every query.
        sure: count, even where a sample is likely to be enough.


    Returns:
        A bracket of each direction, or one. One from a sample may miss the k-th, and owners with too many equal scores
        to be listed have none (both ends are +inf): `settled` says that they are lost.
    """
    brackets, guesses, expected = [], [], []
    for k, keep in enumerate(keeps):
        of = view.block_of(0, torch.arange(len(view.sides[0]), device=view.device)) if batch else None
        number = view.negatives(k)
        number = torch.zeros_like(keep).index_add_(0, of, number) if batch else number
        brackets.append(Bracket.empty(view, keep, number, of))
        level, inside = guessed_batches(view, brackets[k]) if batch else guessed(view, k, brackets[k])
        if view.together:  # processes must go on alike
            level, inside = (each.to(view.device) for each in shards.gather((level, inside))[0])
        guesses.append(level)
        expected.append(torch.minimum(inside, number.double()))
    if not sure and sum(float(each.sum()) for each in expected) <= room(view):
        return [each.between(level[:, 0], level[:, -1]) for each, level in zip(brackets, guesses, strict=True)]
    before = math.inf
    for _ in range(PASSES):
        counted = yield _Above(view, [each.of_queries(level) for each, level in zip(brackets, guesses, strict=True)])
        for k, level in enumerate(guesses):
            brackets[k] = brackets[k].narrowed(level, brackets[k].summed(counted.above[k]))
        inside = sum(int(each.inside.sum()) for each in brackets)
        if inside <= room(view):
            return brackets
        if 2 * inside > before:  # scores are equal
            break
        before, guesses = inside, [each.levels(view) for each in brackets]
    every = torch.cat([each.inside for each in brackets])
    fewest = every.argsort(stable=True)
    out = torch.empty_like(every, dtype=torch.bool).index_copy_(0, fewest, every[fewest].cumsum(0) > room(view))
    parts = out.split([len(each.keep) for each in brackets])
    for k, lost in enumerate(parts):
        brackets[k] = brackets[k].between(*(end.where(~lost, torch.inf) for end in (brackets[k].low, brackets[k].high)))
    return brackets  # noqa: B901 - the value of `yield from`


class _Above(Threshold):
    """How many scores of the tiles are above each level, (n, K) of each direction: none is decided."""

    def __init__(self, view: View, levels: list[Tensor]):
        super().__init__(view, listed=[(level, level) for level in levels])


@dataclass(frozen=True, eq=False)
class Kept:
    """The negatives of a bracket that are kept.

    Args:
        query: (P,) places of queries.
        other: (P,) places of the others.
        score: (P,) float64; in float64 where the tiles do not tell, else as in the tiles.
        last: (G,) true score of the k-th negative of every owner, float64; -inf where all are kept.
        of: (n,) owner of every query; None: each is its own.
        lost: (G,) bool: the k-th is not certainly among those listed.
    """

    query: Tensor
    other: Tensor
    score: Tensor
    last: Tensor
    of: Tensor | None
    lost: Tensor


def settled(
    view: View,
    direction: int,
    bracket: Bracket,
    counts: Counts,
    *,
    both: bool = False,
    deep: int | None = None,
) -> list[Kept]:
    """Find the k-th negative of every owner among those listed, and which of these are kept.

    Of equal negatives the first ones are kept, query by query; which these are depends on the side that asks.

    Args:
        view: the scores.
        direction: of the queries.
        bracket: as it was counted above and listed in.
        counts: of `Threshold(view, listed=...)` with the `ends` of the bracket.
        both: the other side asks too; queries and others change their places then.
        deep: as in `View.bound`.
    """
    none = torch.empty(0, dtype=torch.int64, device=view.device)
    query, other, score = counts.listed(direction) or (none, none, none.to(view.dtype))
    query, other = query.long(), other.long()
    over, owner = counts.above[direction][:, 0], query if bracket.of is None else bracket.of[query]
    low, high = bracket.ends(view)
    number, needed = torch.bincount(owner, minlength=len(low)), bracket.keep - bracket.summed(over)
    known = bracket.sought & (needed >= 1) & (needed <= number)
    middle = torch.full(low.shape, torch.inf, dtype=torch.float64, device=view.device)
    middle[known] = _ordered(owner, score)[(number.cumsum(0) - needed)[known]].double()
    off = view.bound(middle, deep=deep) + bounds.stored(middle, view.dtype)
    lower, upper = bounds.outward(middle, 2 * off, view.dtype)
    known &= (lower >= low) & (upper <= high)
    lower, upper = (end.where(known, torch.inf) for end in (lower, upper))
    sure = score > upper[owner]
    near = ((score > lower[owner]) & ~sure).nonzero().flatten()
    needed = needed - torch.bincount(owner[sure], minlength=len(low))
    sides, pair = view.sides[:: 1 - 2 * direction], (query[near], other[near])
    exact, owner = view.exact(*pair[:: 1 - 2 * direction]), owner[near]
    places, last = (
        [side.place[each] for side, each in zip(sides, pair, strict=True)],
        torch.full_like(middle, torch.inf),
    )
    found = []
    for turned in range(1 + both):
        first, second = places[:: 1 - 2 * turned]
        kept = _hardest(owner, exact, first * len(sides[1 - turned]) + second, needed)
        chosen = torch.cat([sure.nonzero().flatten(), near[kept]])
        last = last.scatter_reduce(0, owner[kept], exact[kept], "amin").where(bracket.sought, -torch.inf)
        ends = (query[chosen], other[chosen])[:: 1 - 2 * turned]
        found.append(
            Kept(*ends, torch.cat([score[sure].double(), exact[kept]]), last, bracket.of, bracket.sought & ~known)
        )
    return found


def _hardest(owner: Tensor, score: Tensor, turn: Tensor, number: Tensor) -> Tensor:
    """Which entries are the hardest of their owner, so many each, (K,); of equal ones those with the least turn."""
    order = turn.argsort()
    for key in (-score, owner):
        order = order[key[order].argsort(stable=True)]
    mine = owner[order]
    count = torch.bincount(mine, minlength=len(number))
    place = torch.arange(len(order), device=order.device) - (count.cumsum(0) - count)[mine]
    return order[place < number[mine]]


def _ordered(owner: Tensor, score: Tensor) -> Tensor:
    """Scores in float32, ascending within each owner, owner after owner, (P,).

    One sort of whole numbers, the owner above the score, is many times faster than one by two keys.
    """
    key = _flipped(score.float().view(torch.int32)).long() + 2**31 + (owner << 32)
    return _flipped(((ascending(key) & (2**32 - 1)) - 2**31).int()).view(torch.float32)


def _flipped(bits: Tensor) -> Tensor:
    """Whole numbers in the order of the float32 numbers with these bits, and back."""
    return bits ^ ((bits >> 31) & (2**31 - 1))
