"""Parts of the negatives and of the push that marked candidates have, beside those of as many random negatives."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cocos.counting import statistics
from cocos.counting.statistics import MARKED_LABELS
from cocos.embeddings import Embeddings
from cocos.embeddings.sampling import Batch
from cocos.embeddings.scores import Pairs


@dataclass(frozen=True, eq=False)
class MarkedBatch:
    """The marks of the pairs of one batch, in one direction, and the draw of as many random negatives.

    Args:
        embeddings: with marks, seen from the side that asks.
        batch: likewise.
        generator: of the random negatives.
    """

    embeddings: Embeddings
    batch: Batch
    generator: torch.Generator

    @classmethod
    def of(cls, embeddings: Embeddings, batch: Batch, seed: int, number: int) -> "MarkedBatch | None":
        """The marks of the batch of this number; None where the embeddings have none."""
        if not embeddings.marks:
            return None
        second = sum(map(ord, embeddings.directions[0]))  # one sum for q2c and c2q, which share their draws
        (state,) = np.random.SeedSequence([seed, number, second]).generate_state(1, np.uint64)
        return cls(embeddings, batch, torch.Generator().manual_seed(int(state >> np.uint64(1))))

    def masks(self, pairs: Pairs, start: int) -> Iterator[tuple[Tensor, Tensor] | None]:
        """Yield for each kind its negatives and as many random ones, (q, C) bool; None where nothing is known.

        Args:
            pairs: a block of the batch.
            start: its first query.
        """
        query = self.batch.query_index[start : start + len(pairs.scores)]
        for mark in (self.embeddings.marks or {}).values():
            kinds = mark.pairs(query, self.batch.candidate_index)
            for kind in range(len(mark.kinds)):
                mask = None if kinds is None else (kinds == kind) & pairs.negative
                yield None if mask is None else (mask, statistics.as_many(mask, pairs.negative, self.generator))


def of_block(push: Tensor, masks: Sequence[tuple[Tensor, Tensor] | None]) -> dict[str, Tensor]:
    """The statistics of `MARKED_LABELS` of the queries of a block, (q, kinds) each; and `negative_push`, (q,).

    Args:
        push: (q, C), push of each negative.
        masks: of each kind, those that are marked and as many random ones; None: NaN, for nothing is known.
    """
    total, unknown = push.sum(dim=1), push.new_full((len(push),), torch.nan)
    kinds = []
    for both in masks:
        parts = [torch.where(mask, push, 0).sum(dim=1) / torch.where(total > 0, total, 1) for mask in both or ()]
        kinds.append([unknown] * 3 if both is None else [both[0].sum(dim=1), *parts])
    columns = (torch.stack(each, dim=1) for each in zip(*kinds, strict=True))
    return {"negative_push": total} | dict(zip(MARKED_LABELS, columns, strict=True))
