"""The k hardest negatives of every query, or of every batch: bracketed by counts, decided in float64.

    brackets = yield from bracketed(view, keeps)
    listed, sums = yield listing(view, brackets), LogSumExp(...)
    kept = settled(view, direction, brackets[direction], listed)

In: k for each owner (a query or a batch). Out: which negatives inside the bracket are among the k hardest; all above it
are. A sample brackets the k-th score; if too many negatives lie inside, a pass counts those above several levels
between the ends. One more pass counts the negatives above the bracket, which are kept, and lists those inside.

Why it is exact: let b bound the error of a score of the tiles and let t be the k-th largest of these scores. The k-th
true score is within b of t, so a negative further than 2 b from t is certainly kept or certainly not; float64 decides
about the others.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cocos.embeddings import scores
from cocos.engine import bounds, devices, fused
from cocos.engine.primitives.threshold import Counts, Threshold
from cocos.engine.view import View

# Maximum number of candidates in the sample of a query.
SAMPLED_CANDIDATES = 384
# Maximum number of sampled scores in memory at once.
SAMPLED_AT_ONCE = 2**20
# Number of sampled pairs of all batches together, if batches keep pairs.
SAMPLED_PAIRS = 2**16
# Minimum number of sampled pairs of a batch.
SAMPLED_PAIRS_PER_BATCH = 256
# Half-width of a bracket from a sample, in standard errors of the quantile: 1 in 16,000 queries is outside.
BRACKET_DEVIATIONS = 4.0
# Levels of a bracket above which a pass counts.
BRACKET_LEVELS = 18
# Maximum number of passes that narrow brackets.
BRACKET_PASSES = 2
# Maximum number of listed negatives: in total (48 MiB), and in addition per row of either side.
MAX_LISTED_NEGATIVES = (2**21, 32)


def list_capacity(view: View) -> int:
    """Maximum number of negatives inside brackets that may be listed."""
    return MAX_LISTED_NEGATIVES[0] + MAX_LISTED_NEGATIVES[1] * sum(len(side) for side in view.sides)


@dataclass(frozen=True, eq=False)
class Bracket:
    """Two scores that enclose the k-th largest score of every owner (a query or a batch). (G,) each.

    Args:
        keep: k.
        low: the k-th score is above it.
        high: the k-th score is not above it. Both -inf: all negatives are kept; both +inf: unknown.
        over: number of negatives above `high`.
        reach: number of negatives above `low`.
        of: (n,) owner of every query; None: each query is its own owner.
    """

    keep: Tensor
    low: Tensor
    high: Tensor
    over: Tensor
    reach: Tensor
    of: Tensor | None = None

    @property
    def inside(self) -> Tensor:
        """Number of negatives between the ends."""
        return self.reach - self.over

    @property
    def sought(self) -> Tensor:
        """Whether some negatives are kept and some are not, so that there is a k-th score to find."""
        return self.high > -torch.inf

    def of_queries(self, values: Tensor) -> Tensor:
        """Values of the owners, repeated for their queries, (n, ...)."""
        return values if self.of is None else values[self.of]

    def summed(self, values: Tensor) -> Tensor:
        """Sums over the queries of every owner, (G, ...), from values of the queries, (n, ...)."""
        if self.of is None:
            return values
        return values.new_zeros(len(self.keep), *values.shape[1:]).index_add_(0, self.of, values)

    def between(self, low: Tensor, high: Tensor) -> "Bracket":
        """Return the bracket with other ends, except where all negatives are kept."""
        return replace(self, low=low.where(self.sought, -torch.inf), high=high.where(self.sought, -torch.inf))

    def narrowed(self, level: Tensor, count: Tensor) -> "Bracket":
        """Narrow the bracket by the number of negatives counted above some scores, (G, K) each."""
        few = count < self.keep[:, None]
        return replace(
            self,
            low=torch.maximum(self.low, torch.where(few, -torch.inf, level).amax(dim=1)),
            high=torch.minimum(self.high, torch.where(few, level, torch.inf).amin(dim=1)),
            over=torch.maximum(self.over, torch.where(few, count, 0).amax(dim=1)),
            reach=torch.minimum(self.reach, torch.where(few, self.reach[:, None], count).amin(dim=1)),
        )

    def levels(self, view: View) -> Tensor:
        """Equally spaced scores from one end to the other, ascending, (G, K)."""
        low, high = (end.double().clamp(-view.most, view.most)[:, None] for end in (self.low, self.high))
        place = torch.linspace(0, 1, BRACKET_LEVELS, dtype=torch.float64, device=low.device)
        return torch.where(self.sought[:, None], low + place * (high - low), torch.inf).to(view.dtype)

    def ends(self, view: View) -> tuple[Tensor, Tensor]:
        """Both ends, (G,) each, moved outward so that everything undecided about the k-th score is inside.

        Twice the error bound for that; and twice again, since the sample computes the same score by another product.
        """
        low, high = self.low.double(), self.high.double()
        return (
            bounds.outward(low, 4 * view.bound(low), view.dtype)[0],
            bounds.outward(high, 4 * view.bound(high), view.dtype)[1],
        )


def _scores(view: View, direction: int, queries: Tensor, others: Tensor) -> Tensor:
    """Compute scores of some queries with some others of their block, accurate enough for a sample."""
    side, other = view.sides[direction], view.sides[1 - direction]
    own = others[None] >= side.first[queries, None]
    own &= others[None] < side.last[queries, None]
    rows = [each.matrix[each.order[places]] for each, places in ((side, queries), (other, others))]
    rows = [row if row.dtype == torch.float64 else row.float() for row in rows]
    score = scores.METRICS[view.metric](*rows) if direction == 0 else scores.METRICS[view.metric](*rows[::-1]).T
    return score.masked_fill(own, -torch.inf)


def sampled_scores(view: View, number: int) -> Tensor:
    """Ascending float64 scores of random pairs of every batch, (blocks, m); -inf for pairs that are not negative.

    `number` pairs are drawn in total, but at least 256 per batch.
    """
    generator, places = torch.Generator().manual_seed(0), []
    for edges in (view.rows, view.columns):
        edge = torch.from_numpy(edges)[:, None]
        size = max(SAMPLED_PAIRS_PER_BATCH, number // view.blocks)
        part = torch.rand(view.blocks, size, generator=generator, dtype=torch.float64)
        places.append((edge[:-1] + (part * (edge[1:] - edge[:-1])).long()).flatten().to(view.device))
    row, column = places
    own = (column >= view.sides[0].first[row]) & (column < view.sides[0].last[row])
    return ascending(view.exact(row, column).masked_fill_(own, -torch.inf).view(view.blocks, -1))


def ascending(values: Tensor) -> Tensor:
    """Sort along the last axis; on a host with NumPy, which is many times faster."""
    if not devices.ahead(values.device):
        return torch.from_numpy(np.sort(values.numpy(), axis=-1))
    return values.sort(dim=-1).values


def _levels_around(
    view: View, bracket: Bracket, some: Tensor | slice, score: Tensor, part: float
) -> tuple[Tensor, Tensor]:
    """Estimate levels around the k-th score of some owners, (m, K), and the number of negatives between, (m,).

    Args:
        view: the scores.
        bracket: of all owners.
        some: which owners.
        score: (m, w) samples, ascending, -inf for missing ones.
        part: fraction of the negatives that was sampled.
    """
    known, width, number = (score > -torch.inf).sum(dim=1).double(), score.shape[1], bracket.reach[some]
    share = bracket.keep[some] / number.clamp(min=1).double()
    error = (known * share * (1 - share) * (1 - part)).sqrt() + 1
    far = BRACKET_DEVIATIONS
    step = torch.linspace(far, -far, BRACKET_LEVELS, dtype=torch.float64, device=score.device)
    rank = (share * known)[:, None] + error[:, None] * step  # counted from the largest score
    level = score.gather(1, (width - rank).long().clamp(0, width - 1)).double()
    level = torch.where(rank < 0.5, torch.inf, level)
    level = torch.where(rank > known[:, None] - 0.5, -torch.inf, level).where(bracket.sought[some, None], torch.inf)
    ends = replace(bracket, low=level[:, 0], high=level[:, -1]).ends(view)
    place = torch.searchsorted(score, torch.stack(ends, dim=1).to(score.dtype), right=True)
    return level.to(view.dtype), (place[:, 1] - place[:, 0]) * number / known.clamp(min=1)


def _levels_from_sample(view: View, direction: int, bracket: Bracket) -> tuple[Tensor, Tensor]:
    """Estimate the levels of all owners from a sample, (G, K), and the number of negatives between them, (G,)."""
    if bracket.of is not None:
        return _levels_around(view, bracket, slice(None), sampled_scores(view, SAMPLED_PAIRS), 0.0)
    level = bracket.low.new_empty(len(bracket.keep), BRACKET_LEVELS)
    inside = torch.zeros(len(bracket.keep), dtype=torch.float64, device=view.device)
    own, other = (view.rows, view.columns)[:: 1 - 2 * direction]
    for k in range(view.blocks):
        size = int(other[k + 1] - other[k])
        some = torch.randperm(size, generator=torch.Generator().manual_seed(0))[:SAMPLED_CANDIDATES].sort().values
        some = (some + int(other[k])).to(view.device)
        for queries in torch.arange(own[k], own[k + 1], device=view.device).split(
            max(1, SAMPLED_AT_ONCE // max(1, len(some)))
        ):
            score = ascending(_scores(view, direction, queries, some))
            level[queries], inside[queries] = _levels_around(view, bracket, queries, score, len(some) / size)
    return level, inside


def bracketed(
    view: View, keeps: Sequence[Tensor], of: Tensor | None = None, *, sure: bool = False
) -> Generator[Threshold, Counts, list[Bracket]]:
    """Bracket the k-th score of every owner, by a sample and, where that is not narrow enough, by counting passes.

    Args:
        view: the scores.
        keeps: for each direction, (n,) number of negatives kept per query; or one tensor, (blocks,), of pairs kept per
            batch.
        of: (n,) batch of every query, in that case.
        sure: verify the bracket by counts even if the sample is narrow enough.

    Returns:
        One bracket for each direction, or one. A bracket from a sample may miss the k-th score, and owners with too
        many equal scores to list have none (both ends +inf): `settled` marks both as lost.
    """
    brackets, guesses = [], []
    for k, keep in enumerate(keeps):
        low, number = torch.full(keep.shape, -torch.inf, dtype=view.dtype, device=view.device), view.negatives(k)
        number = number if of is None else torch.zeros_like(keep).index_add_(0, of, number)
        every = keep >= number
        high, over = torch.where(every, low, torch.inf), torch.where(every, number, 0)
        brackets.append(Bracket(keep, low, high, over, number, of))
        guess = _levels_from_sample(view, k, brackets[k])
        guesses.append(guess)
    levels, expected = [level for level, _ in guesses], [number for _, number in guesses]
    if not sure and sum(float(each.sum()) for each in expected) <= list_capacity(view):
        return [each.between(level[:, 0], level[:, -1]) for each, level in zip(brackets, levels, strict=True)]
    for _ in range(BRACKET_PASSES):
        counted = yield Threshold(view, listed=[(b.of_queries(x),) * 2 for b, x in zip(brackets, levels, strict=True)])
        both = zip(brackets, levels, counted.above, strict=True)
        brackets = [each.narrowed(level, each.summed(above)) for each, level, above in both]
        if sum(int(each.inside.sum()) for each in brackets) <= list_capacity(view):
            return brackets
        levels = [each.levels(view) for each in brackets]
    every = torch.cat([each.inside for each in brackets])  # equal scores: settle as many owners as can be listed
    fewest = every.argsort(stable=True)
    beyond = every[fewest].cumsum(0) > list_capacity(view)
    lost = torch.empty_like(beyond).index_copy_(0, fewest, beyond)
    for k, out in enumerate(lost.split([len(each.keep) for each in brackets])):
        low, high = (end.masked_fill(out, torch.inf) for end in (brackets[k].low, brackets[k].high))
        brackets[k] = brackets[k].between(low, high)
    return brackets  # noqa: B901 - the value of `yield from`


def listing(view: View, brackets: Sequence[Bracket]) -> Threshold:
    """Return the reader that counts the negatives above brackets and lists those inside."""
    ends = [(each.of_queries(low), each.of_queries(high)) for each in brackets for low, high in [each.ends(view)]]
    return Threshold(view, listed=ends, most=list_capacity(view))


@dataclass(frozen=True, eq=False)
class Kept:
    """The negatives inside a bracket that are among the k hardest.

    Args:
        query: (P,) places of queries.
        other: (P,) places of the others.
        score: (P,) float64: recomputed where the tiles leave the choice open, else the score of the tile.
        last: (G,) float64 score of the k-th negative of every owner; -inf where all are kept.
        lost: (G,) bool, whether the k-th score may lie outside the list.
    """

    query: Tensor
    other: Tensor
    score: Tensor
    last: Tensor
    lost: Tensor


def settled(view: View, direction: int, bracket: Bracket, counts: Counts, *, both: bool = False) -> list[Kept]:
    """Find the k-th negative of every owner among the listed ones, and which of these are kept.

    Of equal negatives the first ones are kept, query by query, so the choice depends on the direction.

    Args:
        view: the scores.
        direction: of the queries.
        bracket: the bracket that was counted and listed.
        counts: the result of `listing`.
        both: return the result of the other direction as well, with queries and others swapped.
    """
    none = torch.empty(0, dtype=torch.int64, device=view.device)
    line = torch.zeros(1, dtype=view.dtype, device=view.device)
    deep = fused.deep(view, Threshold(view, listed=[(line, line)]))  # as that of `listing`
    query, other, score = counts.listed(direction) or (none, none, none.to(view.dtype))
    query, other = query.long(), other.long()
    owner = query if bracket.of is None else bracket.of[query]
    low, high = bracket.ends(view)
    number = torch.bincount(owner, minlength=len(low))
    needed = bracket.keep - bracket.summed(counts.above[direction][:, 0])
    known = bracket.sought & (needed >= 1) & (needed <= number)
    whole = _as_integers(view, score)
    middle = torch.full_like(number, 2**32)
    middle[known] = ascending((owner << 32) | whole)[(number.cumsum(0) - needed)[known]] & (2**32 - 1)
    undecided = 2 * float(view.bound(0.0, deep=deep) + view.bound(view.most, deep=deep))  # at any score
    undecided = int(_as_integers(view, torch.tensor(undecided - view.most, dtype=torch.float64))) + 2
    higher = whole.sub_(middle[owner])
    sure, near = (higher > undecided).nonzero().flatten(), (higher.abs() <= undecided).nonzero().flatten()
    needed = needed - torch.bincount(owner[sure], minlength=len(low))
    sides, pair, owner = view.sides[:: 1 - 2 * direction], (query[near], other[near]), owner[near]
    exact = view.exact(*pair[:: 1 - 2 * direction])
    places, found = [side.place[each] for side, each in zip(sides, pair, strict=True)], []
    last = torch.full(low.shape, torch.inf, dtype=torch.float64, device=view.device)
    for turned in range(1 + both):
        first, second = places[:: 1 - 2 * turned]
        kept = _hardest(owner, exact, first * len(sides[1 - turned]) + second, needed)
        chosen = torch.cat([sure, near[kept]])
        last = last.scatter_reduce(0, owner[kept], exact[kept], "amin")
        lower, upper = bounds.outward(last, view.bound(last, deep=deep) + view.tie, view.dtype)
        lost = bracket.sought & ~(known & (lower >= low) & (upper <= high))
        one, two = (query[chosen], other[chosen])[:: 1 - 2 * turned]
        scored = torch.cat([score[sure].double(), exact[kept]])
        found.append(Kept(one, two, scored, last.where(bracket.sought, -torch.inf), lost))
    return found


def _as_integers(view: View, score: Tensor) -> Tensor:
    """Map scores to integers from 0 to 2^31, preserving order."""
    return ((score.double() / max(view.most, math.ulp(0.0)) + 1) * 2**30).long().clamp(0, 2**31)


def _hardest(owner: Tensor, score: Tensor, turn: Tensor, number: Tensor) -> Tensor:
    """Indices of the `number` hardest entries of each owner, (K,); of equal scores those with the smallest `turn`."""
    order = turn.argsort()
    for key in (-score, owner):
        order = order[key[order].argsort(stable=True)]
    mine = owner[order]
    count = torch.bincount(mine, minlength=len(number))
    place = torch.arange(len(order), device=order.device) - (count.cumsum(0) - count)[mine]
    return order[place < number[mine]]
