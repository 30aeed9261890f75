"""Between which scores the k-th hardest negative of every query, or batch, lies: by a sample, and by counts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cocos import scores
from cocos.engine import bounds, devices
from cocos.engine.view import View

__all__ = ["Bracket", "ascending", "drawn", "guessed", "guessed_batches"]

# Candidates that the sample of a query has at most, and scores of such samples that are held at once.
SAMPLE, BLOCK = 768, 2**20
# Where a quantile is sought that is known to a normal error: of twelve levels these leave the least between the two
# next to it, 0.49 deviations on average.
DEVIATIONS = (3.76, 2.08, 1.39, 0.91, 0.52, 0.17, -0.17, -0.52, -0.91, -1.39, -2.08, -3.76)
# The sample of a batch: pairs, so many in all and at least so many a batch; or a table of lines and columns, which
# takes less time, of a large one.
PAIRS, FEWEST, TABLE = 2**16, 256, 1024
# Part of the negatives in a bracket by which they are taken to be unequally spread.
CURVED = 1 / 32


@dataclass(frozen=True, eq=False)
class Bracket:
    """Scores that the k-th negative of every owner lies between; an owner is a query, or a batch. (G,) each.

    Args:
        keep: k.
        low: it scores higher.
        high: and not higher than this. Both -inf: all negatives are kept.
        over: number of negatives above `high`.
        reach: number of negatives above `low`.
        of: (n,) owner of every query; None: each is its own.
    """

    keep: Tensor
    low: Tensor
    high: Tensor
    over: Tensor
    reach: Tensor
    of: Tensor | None = None

    @classmethod
    def empty(cls, view: View, keep: Tensor, number: Tensor, of: Tensor | None) -> "Bracket":
        """Nothing is known, save where all of a number of negatives are kept."""
        low = torch.full(keep.shape, -torch.inf, dtype=view.dtype, device=view.device)
        every = keep >= number
        return cls(keep, low, torch.where(every, low, torch.inf), torch.where(every, number, 0), number, of)

    @property
    def inside(self) -> Tensor:
        """Number of negatives between the ends."""
        return self.reach - self.over

    @property
    def sought(self) -> Tensor:
        """Whether some negatives are kept and some are not."""
        return self.high > -torch.inf

    def of_queries(self, values: Tensor) -> Tensor:
        """Values of the owners for every query, (n, ...)."""
        return values if self.of is None else values[self.of]

    def summed(self, values: Tensor) -> Tensor:
        """Sums over the queries of every owner, (G, ...), of values of the queries, (n, ...)."""
        if self.of is None:
            return values
        return values.new_zeros(len(self.keep), *values.shape[1:]).index_add_(0, self.of, values)

    def between(self, low: Tensor, high: Tensor) -> "Bracket":
        """The bracket with other ends, save where all negatives are kept."""
        return replace(self, **{k: end.where(self.sought, -torch.inf) for k, end in (("low", low), ("high", high))})

    def narrowed(self, level: Tensor, count: Tensor) -> "Bracket":
        """The bracket when so many negatives were counted above some scores, (G, K) each."""
        few = count < self.keep[:, None]
        return replace(
            self,
            low=torch.maximum(self.low, torch.where(few, -torch.inf, level).amax(dim=1)),
            high=torch.minimum(self.high, torch.where(few, level, torch.inf).amin(dim=1)),
            over=torch.maximum(self.over, torch.where(few, count, 0).amax(dim=1)),
            reach=torch.minimum(self.reach, torch.where(few, self.reach[:, None], count).amin(dim=1)),
        )

    def levels(self, view: View) -> Tensor:
        """Ascending scores about where the k-th would be if those in the bracket were equally spread, (G, K)."""
        inside = self.inside.clamp(min=1).double()
        part = (self.reach - self.keep) / inside
        width = (part * (1 - part) / inside).clamp(min=0).sqrt() + CURVED + 1 / inside
        low, high = (end.double().clamp(-view.most, view.most)[:, None] for end in (self.low, self.high))
        place = (part[:, None] - width[:, None] * part.new_tensor(DEVIATIONS)).clamp(0, 1)
        return torch.where(self.sought[:, None], low + place * (high - low), torch.inf).to(view.dtype)

    def ends(self, view: View) -> tuple[Tensor, Tensor]:
        """Both ends, (G,) each, so much further out that all that is undecided about the k-th is inside.

        Twice the error of a score for that; and twice, since a sample scores the same pair by another product.
        """
        ends = []
        for k, end in enumerate((self.low.double(), self.high.double())):
            off = 4 * (view.bound(end) + bounds.stored(end, view.dtype))
            ends.append(bounds.outward(end, off, view.dtype)[k])
        return ends[0], ends[1]


def _scores(view: View, direction: int, queries: Tensor, others: Tensor) -> Tensor:
    """Scores of some queries of a direction with some others of their block, as good as a sample needs them."""
    side, other = view.sides[direction], view.sides[1 - direction]
    own = others[None] >= side.first[queries, None]
    own &= others[None] < side.last[queries, None]
    rows = [each.matrix[each.order[places]] for each, places in ((side, queries), (other, others))]
    rows = [row if row.dtype == torch.float64 else row.float() for row in rows]
    score = scores.METRICS[view.metric](*rows) if direction == 0 else scores.METRICS[view.metric](*rows[::-1]).T
    return score.masked_fill(own, -torch.inf)


def _blocks(view: View, direction: int) -> Iterator[tuple[slice, slice]]:
    """The queries of a direction, and the others, of every batch."""
    for k in range(view.blocks):
        both = tuple(slice(int(edges[k]), int(edges[k + 1])) for edges in (view.rows, view.columns))
        yield both[::-1] if direction else both


def _drawn(block: slice, number: int, device: torch.device, seed: int = 0) -> Tensor:
    """Places of a block, ascending; a number of them at most."""
    places = torch.randperm(block.stop - block.start, generator=torch.Generator().manual_seed(seed))[:number]
    return (places.sort().values + block.start).to(device)


def ascending(values: Tensor) -> Tensor:
    """Sorted along the last axis; on a host by NumPy, which is many times faster."""
    if not devices.ahead(values.device):
        return torch.from_numpy(np.sort(values.numpy(), axis=-1))
    return values.sort(dim=-1).values


def _places(score: Tensor, known: Tensor, share: Tensor, error: Tensor) -> Tensor:
    """Ascending levels about a quantile of ascending samples, (G, K).

    Args:
        score: (G, w), -inf where there is none.
        known: (G,) numbers of scores.
        share: (G,) part of them that is sought from the top.
        error: (G,) one deviation, in places.
    """
    width = score.shape[1]
    rank = (share * known)[:, None] + (error[:, None] + 1) * share.new_tensor(DEVIATIONS)  # from the top, descending
    place = width - 0.5 - rank
    below = place.floor().clamp(0, width - 1).long()
    ends = (score.gather(1, each).double() for each in (below, (below + 1).clamp(max=width - 1)))
    level = torch.lerp(*ends, (place - below).clamp(0, 1))
    level = torch.where(rank < 0.5, torch.inf, level)
    return torch.where(rank > known[:, None] - 0.5, -torch.inf, level)


def _observed(view: View, score: Tensor, level: Tensor) -> Tensor:
    """How many ascending scores, (G, w), lie between the outer levels, moved out as by `Bracket.ends`, (G,)."""
    low, high = (level[:, end] + sign * 4 * view.bound(level[:, end]) for end, sign in ((0, -1), (-1, 1)))
    place = torch.searchsorted(score, torch.stack([low, high], dim=1).to(score.dtype), right=True)
    return (place[:, 1] - place[:, 0]).double()


def guessed(view: View, direction: int, bracket: Bracket) -> tuple[Tensor, Tensor]:
    """Levels about the k-th score of every query, (n, K), and how many negatives lie between them, (n,)."""
    level = bracket.low.new_empty(len(bracket.keep), len(DEVIATIONS))
    inside = torch.zeros(len(bracket.keep), dtype=torch.float64, device=view.device)
    for own, others in _blocks(view, direction):
        some = _drawn(others, SAMPLE, view.device)
        part = len(some) / (others.stop - others.start)
        for queries in torch.arange(own.start, own.stop, device=view.device).split(max(1, BLOCK // len(some))):
            score = ascending(_scores(view, direction, queries, some))
            known = (score > -torch.inf).sum(dim=1).double()
            share = bracket.keep[queries] / bracket.reach[queries].clamp(min=1).double()
            error = (known * share * (1 - share) * (1 - part)).sqrt()
            found = _places(score, known, share, error)
            level[queries] = torch.where(bracket.sought[queries, None], found, torch.inf).to(view.dtype)
            most = torch.maximum(2 * DEVIATIONS[0] * (error + 1), _observed(view, score, found))
            inside[queries] = torch.where(bracket.sought[queries], most / part, 0)
    return level, inside


def guessed_batches(view: View, bracket: Bracket) -> tuple[Tensor, Tensor]:
    """Levels about the k-th score of all pairs of every batch, (blocks, K), and how many pairs lie between them."""
    share = bracket.keep / bracket.reach.clamp(min=1).double()
    if view.blocks == 1 and min(len(side) for side in view.sides) > TABLE:
        score, error = _table(view, float(share))
    else:
        score = drawn(view, PAIRS)
        error = (share * (1 - share) / (score > -torch.inf).sum(dim=1)).sqrt()
    known = (score > -torch.inf).sum(dim=1).double()
    level = torch.where(bracket.sought[:, None], _places(score, known, share, error * known), torch.inf)
    inside = torch.maximum(2 * DEVIATIONS[0] * (error * known + 1), _observed(view, score, level))
    inside = inside * bracket.reach / known.clamp(min=1)
    return level.to(view.dtype), torch.where(bracket.sought, inside, 0)


def _table(view: View, share: float) -> tuple[Tensor, Tensor]:
    """Ascending scores of some queries with some candidates, (1, m), and how far a part of them may be off, (1,).

    Pairs of one query, or of one candidate, score alike: what part of each line is above the level tells how far.
    """
    lines = (_drawn(slice(0, len(side)), TABLE, view.device, seed) for seed, side in enumerate(view.sides))
    score = _scores(view, 0, *lines)
    there, rising = score > -torch.inf, ascending(score.flatten())
    number = int(there.sum())
    above = score > rising[len(rising) - 1 - min(number, int(share * number))]
    variance = torch.zeros(1, dtype=torch.float64, device=view.device)
    for dim in (0, 1):
        parts = above.sum(dim=dim) / there.sum(dim=dim).clamp(min=1)
        variance += parts.double().var() / len(parts)
    return rising[None], variance.sqrt()


def drawn(view: View, number: int) -> Tensor:
    """Ascending float64 scores of pairs drawn from every batch, (blocks, m); -inf for what is no negative pair.

    Args:
        view: the scores.
        number: of pairs in all, at least 256 a batch.
    """
    generator, places = torch.Generator().manual_seed(0), []
    for edges in (view.rows, view.columns):
        edge = torch.from_numpy(edges)[:, None]
        part = torch.rand(view.blocks, max(FEWEST, number // view.blocks), generator=generator, dtype=torch.float64)
        places.append((edge[:-1] + (part * (edge[1:] - edge[:-1])).long()).flatten().to(view.device))
    row, column = places
    own = (column >= view.sides[0].first[row]) & (column < view.sides[0].last[row])
    score = view.exact(row, column).masked_fill_(own, -torch.inf)
    return ascending(score.view(view.blocks, -1))
