"""The batches of a set that stays on a disk, and their rows, stack by stack.

In: rows that are read by their numbers, a loss, and how batches are drawn. Out: stacks of neighbouring batches, and
the embeddings of each. A stack depends on the draws alone.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

from torch import Tensor

from cocos import losses
from cocos.embeddings import Embeddings
from cocos.embeddings.options import DEFAULTS, Sampling
from cocos.embeddings.sampling import Plan
from cocos.embeddings.scores import NORMALISED_SIDES
from cocos.embeddings.stored import Stored
from cocos.measures.shared import prepared

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

    def stacks(self) -> list[slice]:
        """The batches that are counted together."""
        ends = prepared.together([max(batch.sizes) for batch in self.plan.batches], COUNTED_TOGETHER)
        return [slice(*each) for each in pairwise([0, *ends])]

    def first(self, most: int) -> tuple[Embeddings, Plan]:
        """The first batch, or of pairs the first of them, with its rows."""
        batch = self.plan.batches[0]
        if batch.paired and batch.square:
            batch = replace(batch, query_index=batch.query_index[:most], candidate_index=batch.candidate_index[:most])
        embeddings, own, _ = self.stored.take([batch], positive=self.positive)
        return embeddings, replace(self.plan, batches=tuple(own))

    def read(self, stack: slice) -> tuple[Embeddings, Plan, tuple[Tensor, ...]]:
        """Read a stack: its rows, its batches, and the numbers of the rows of both sides."""
        embeddings, own, rows = self.stored.take(self.plan.batches[stack], positive=self.positive)
        return embeddings, replace(self.plan, batches=tuple(own)), rows


def drawn(stored: Stored, loss: losses.Loss, sampling: Sampling) -> StoredBatches:
    """Draw the batches of a set on a disk, by its ids alone.

    Args:
        stored: the set.
        loss: that is counted, which says how batches are drawn where `sampling` does not.
        sampling: see `Sampling`.
    """
    plan = prepared.planned(stored, loss, DEFAULTS | sampling)
    return StoredBatches(stored, plan, bool(NORMALISED_SIDES.get(loss.metric)))
