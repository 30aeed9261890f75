"""State of a log-sum-exp pass: the partial sums, and the negatives whose share may exceed eps in the end."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from cocos.engine.parts import Part

# Maximum number of noted negatives of one part for a direction: 6 MiB (row, column and score, 12 bytes).
MAX_NOTED_PER_PART = 2**19
# Maximum number of noted negatives for a direction, in addition to eight per query: 12 MiB.
MAX_NOTED = 2**20

Piece = tuple[Tensor, Tensor, Tensor]  # rows, columns and scores


@dataclass(eq=False)
class Exponentials:
    """State of `LogSumExp`. For each direction: arrays over its queries, padded by `PAD` elements.

    z denotes scale * score - reference, an exponent of two.

    Args:
        total: (3, n) float64: Σ 2^z, Σ score 2^z, Σ 4^z; (4, n) with a floor: then also the number of scores above it.
        top: (n,) largest score above the floor.
        reference: (n,) integer exponents, subtracted so that 2^z stays in range; 0 if all exponents are small.
        limit: (n,) scores above which a negative may still count.
        noted: rows, columns and scores of those negatives, in pieces; None: there were too many.
        wide: whether references are in use.
        known: (2, n) exponents `base` and `offset` of `LogSumExp`; empty if nothing is noted.
        scale: factor of a score in its exponent.
        off: amounts by which limits are lowered: a score; and, for distances, a square to be divided by the distance.
        tiles: that are kept in place of lists: first row, first column, (blocks, m, n) scores.
    """

    total: list[Tensor]
    top: list[Tensor]
    reference: list[Tensor]
    limit: list[Tensor]
    noted: list[list[Piece] | None]
    wide: bool
    known: list[Tensor]
    scale: float
    off: tuple[float, float]
    tiles: list[tuple[int, int, Tensor]] = field(default_factory=list)

    def merge(self, other: "Exponentials", part: Part) -> None:
        """Add the sums of a part, and append its list."""
        self.tiles += other.tiles
        for k, where in enumerate((part.rows, part.columns)[: len(self.total)]):
            if self.wide:
                both = torch.maximum(self.reference[k][where], other.reference[k][where])
                for each in (self, other):
                    each.raised(k, where, both)
            self.total[k][:, where] += other.total[k][:, where]
            for mine, its in ((self.top, other.top), (self.limit, other.limit)):
                torch.maximum(mine[k][where], its[k][where], out=mine[k][where])
            self.note(k, other.noted[k])

    def raised(self, k: int, where: slice, reference: Tensor) -> None:
        """Re-express the sums of some queries relative to larger references."""
        part = (self.reference[k][where] - reference).double().exp2()
        self.total[k][:3, where] *= torch.stack([part, part, part.square()])
        self.reference[k][where] = reference

    def note(self, k: int, more: list[Piece] | None, most: int | None = None) -> None:
        """Append to the list of a direction; if it is long, drop the entries below the current limits, or give up."""
        noted = self.noted[k]
        if more is None or noted is None:
            return self.give_up(k)
        noted += more
        most, spare = MAX_NOTED if most is None else most, 8 * len(self.top[k])
        if self.known and sum(len(row) for row, _, _ in noted) > most + spare:
            self.renew(k, slice(0, self.known[k].shape[1]))
            row, column, score = (torch.cat(each) for each in zip(*noted, strict=True))
            kept = (score > self.limit[k][(row, column)[k].long()]).nonzero().flatten()
            self.noted[k] = [(row[kept], column[kept], score[kept])]
            if len(kept) > most // 2 + spare:
                self.give_up(k)
        return None

    def renew(self, k: int, where: slice) -> Tensor:
        """Raise the limits of some queries to those that follow from the current sums; return them."""
        (base, offset), (room, square) = self.known[k][:, where], self.off
        exponent = self.total[k][0, where].log2() + self.reference[k][where]
        score = (torch.logaddexp2(exponent, base) + offset) / self.scale
        score = score - room - ((square / score.abs()).clamp(max=square**0.5) if square else 0.0)
        torch.maximum(self.limit[k][where], score.to(self.limit[k].dtype), out=self.limit[k][where])
        return self.limit[k][where]

    def give_up(self, k: int) -> None:
        """Drop the list and note nothing from now on."""
        self.noted[k] = None
        self.limit[k].fill_(torch.inf)
