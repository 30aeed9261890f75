"""The batches of a set that stays on a disk, and their rows, window by window: memory holds one window.

In: rows that are read by their numbers, a loss, and how batches are drawn. Out: pieces of neighbouring batches, and
the embeddings of each stack of a piece. What is in a stack depends on the draws alone, so its numbers are the same in
whichever part or process it is counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from torch import Tensor

from cocos import losses
from cocos.embeddings import Embeddings
from cocos.embeddings.batches import MatchedRows, Plan
from cocos.embeddings.scores import NORMALISED_SIDES
from cocos.embeddings.stored import Stored
from cocos.engine import prepared
from cocos.engine.sampling import DEFAULTS, Sampling

__all__ = ["StoredBatches", "drawn"]

# Rows of the batches that are counted together, unless one batch has more.
COUNTED_TOGETHER = 2**15


@dataclass(frozen=True, eq=False)
class StoredBatches:
    """Batches of rows on a disk.

    Args:
        stored: the rows.
        plan: the batches.
        positive: whether rows of zeros are refused.
    """

    stored: Stored
    plan: Plan
    positive: bool

    @cached_property
    def stacks(self) -> list[int]:
        """Where stacks end, as numbers of batches."""
        every = self.plan.batches
        if not isinstance(every, MatchedRows):
            return prepared.together([max(batch.sizes) for batch in every], COUNTED_TOGETHER)
        ends = []
        for start, stop in pairwise([0, *self._windows]):
            some = max(1, COUNTED_TOGETHER // every.size)
            ends += [*range(start + some, stop, some), stop]
        return ends

    @cached_property
    def _windows(self) -> list[int]:
        """Numbers of the batches before which a window is left; the last is the number of all."""
        every = self.plan.batches
        assert isinstance(every, MatchedRows)
        ends = []
        for turn in range(-(-len(every) // every.in_pass)):
            edges = every.windows.edges(turn)[1:-1]
            ends += [turn * every.in_pass + int(place) for place in -(-edges // every.size)]
            ends.append((turn + 1) * every.in_pass)
        return sorted({end for end in ends if end < len(every)} | {len(every)})

    def pieces(self, mine: slice) -> list[slice]:
        """Cut some batches into pieces: those of a window, or of a stack where draws are not in windows.

        Whole stacks are counted, so a piece may begin before the first batch, and end behind the last one.
        """
        cuts = self._windows if isinstance(self.plan.batches, MatchedRows) else self.stacks
        begin = max([0, *(end for end in self.stacks if end <= mine.start)])
        stop = min(end for end in self.stacks if end >= mine.stop)
        return [slice(*both) for both in pairwise([begin, *(end for end in cuts if begin < end < stop), stop])]

    def first(self, most: int) -> tuple[Embeddings, Plan]:
        """The first batch, or of pairs the first of them, with its rows."""
        batch = self.plan.batches[0]
        if batch.paired and batch.turned is None:
            batch = replace(batch, query_index=batch.query_index[:most], candidate_index=batch.candidate_index[:most])
        embeddings, own, _ = self.stored.take([batch], positive=self.positive)
        return embeddings, replace(self.plan, batches=tuple(own))

    def read(self, piece: slice) -> Iterator[tuple[Embeddings, Plan, tuple[Tensor, ...]]]:
        """Yield the stacks of a piece: their rows, their batches, and the numbers of the rows of both sides."""
        some = self.plan.batches[piece]
        held = self.stored.holding(some)
        edges = [piece.start, *(end for end in self.stacks if piece.start < end < piece.stop), piece.stop]
        for start, stop in pairwise(edges):
            embeddings, own, rows = held.take(some[start - piece.start : stop - piece.start], positive=self.positive)
            yield embeddings, replace(self.plan, batches=tuple(own)), rows


def drawn(stored: Stored, loss: losses.Loss, sampling: Sampling, window: int | str | None) -> StoredBatches:
    """Draw the batches of a set on a disk, by its ids alone.

    Args:
        stored: the set.
        loss: that is counted, which says how batches are drawn where `sampling` does not.
        sampling: see `cocos.sampling.Sampling`.
        window: as in `cocos.batches.plan`; None: the usual one.
    """
    plan = prepared.planned(stored, loss, DEFAULTS | sampling, window)
    return StoredBatches(stored, plan, bool(NORMALISED_SIDES.get(loss.metric)))
