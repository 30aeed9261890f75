"""Two gradients of one batch side by side: what their comparison needs, and how its sentences are written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.measures._kinds_of_pairs import ENDS, PAIR_KINDS, Fit, RowKinds, fit
from cocos.measures._rows_of_pairs import PairGradients

# Part of the largest number of a gradient below which another one is zero, or a structure is found in the difference.
STRUCTURE = 1e-6
# What to do next, by the kind of an outcome; none where they are the same, or where nothing is known.
NEXT_STEPS = {
    "nan": "look for a square root or a logarithm of 0, a norm of 0, or a row without a positive",
    "idle": "take a larger batch or a file: a hinge may have nothing to do on these rows",
    "none": "see whether it is detached, or idle on these rows, as a hinge may be; --seed draws others",
    "factor": "divide the loss by the factor; Adam hides it, but gradient clipping and a second loss do not",
    "sign": "minimise minus the loss, or exchange what is subtracted from what",
    "normalised": "divide the rows by their norms before the loss if the model does not",
    "exchanged": "exchange the first two arguments, or transpose the scores",
    "directions": "average the loss over both directions, or over none",
    "last": "go backward on every mini-batch, or return the sum of all of them",
    "rows": "look at what is special to these queries: a mask, a mini-batch, a process",
    "misaligned": "gather every column by itself, positives first, and start the targets at the process's first row",
    "blocks": "train with cocos.losses.cached to have all negatives of the batch, or gather candidates with gradient",
    "detached": "gather with gradient, as torch.distributed.nn.all_gather does",
    "across": "gather with gradient, as torch.distributed.nn.all_gather does, where a loss is local",
    "source": "look at which columns enter the denominator, and at what is detached there",
    "factors": "look for a normaliser that counts positives and negatives apart",
    "temperature": "look whether a logarithm of the scale is exponentiated, and whether both read unit vectors",
    "push": "look whether negatives enter one sum or several",
    "queries": "look for weights of the queries, and for a mean over some of their terms",
    "positives": "look whether the loss is a sum or a mean over the positives, and which of them the denominator has",
    "beyond": "look for a clamp or a cut of the scores, and for values that overflow",
    "own positive": "leave the positive out where negatives are drawn or repeated",
    "rounding": "compute the scores and the softmax in float32, or take a larger --tolerance if this is enough",
}


@dataclass(frozen=True)
class Outcome:
    """What was found.

    Args:
        verdict: one sentence.
        same: whether the gradients agree, so that training with one is training with the other.
        ratio: the number in the sentence; NaN without one.
        kind: which of the questions of `outcome` was answered, in one word.
    """

    verdict: str
    same: bool
    ratio: float
    kind: str


@dataclass(frozen=True, eq=False)
class Compared:
    """Two gradients of one batch.

    Args:
        first: of A.
        second: of B.
        layout: of the rows.
        tolerance: largest difference of gradients that are the same, in parts of the largest number.
        exchanged: gradients of A with queries and candidates exchanged, in the order of A's rows, or None.
        returned: likewise of B.
        unit_rows: whether all rows have length 1.
        counts: numbers that a factor may be, with a word for each.
        cosines: of all rows as their pairs were scored, (R, R).
        scale: factor of A's scores in a softmax, where it is known.
        narrow: whether one of them computes in a dtype that is narrower than float64.
        groups: (N,) groups of the pairs, where queries have several positives, or None.
        beyond: whether the cosines fill their range, whatever those of the data do.
    """

    first: PairGradients
    second: PairGradients
    layout: RowKinds
    tolerance: float
    exchanged: PairGradients | None
    returned: PairGradients | None
    unit_rows: bool
    counts: tuple[tuple[float, str], ...]
    cosines: Tensor
    scale: float | None
    narrow: bool
    groups: Tensor | None = None
    beyond: bool = False

    @property
    def room(self) -> float:
        """Tolerance of a structure."""
        return max(self.tolerance, STRUCTURE)

    @property
    def pairs(self) -> tuple[Tensor, Tensor] | None:
        """Both matrices of pairs; None where one of them is not known."""
        a, b = self.first.pairs, self.second.pairs
        return None if a is None or b is None else (a, b)

    def close(self, found: Fit, room: float | None = None) -> bool:
        """Whether a fit leaves nothing but rounding, in parts of the largest number of all pairs."""
        assert self.pairs is not None
        size = max(float(self.pairs[0].abs().max()), float(self.pairs[1].abs().max()) / max(abs(found.ratio), 1e-9))
        return found.off <= (self.room if room is None else room) * size * max(abs(found.ratio), 1e-9)


def number(value: float) -> str:
    """Write a ratio with two or three digits."""
    return f"{value:.3g}" if abs(value) >= 100 or 0 < abs(value) < 0.01 else f"{round(value, 2) + 0.0:.2f}"


def span(rows: Sequence[int], limit: int = 4) -> str:
    """Write row numbers as ranges.

    Examples:
        >>> span([0, 1, 2, 5])
        '0-2, 5'
    """
    found: list[list[int]] = []
    for row in sorted(rows):
        if found and row == found[-1][1] + 1:
            found[-1][1] = row
        else:
            found.append([row, row])
    text = [f"{a}" if a == b else f"{a}-{b}" for a, b in found]
    more = f" and {len(text) - limit} more ranges" if len(text) > limit else ""
    return ", ".join(text[:limit]) + more


def named(both: Compared, rows: Sequence[int]) -> str:
    """Write row numbers by kind of row: `queries 0-3 and candidates 5`."""
    end, parts = both.layout.end.tolist(), []
    for place, name in enumerate(ENDS):
        start = both.layout.rows(place).start
        own = [row - start for row in rows if end[row] == place]
        if own:
            parts.append(f"{name} {span(own)}")
    return " and ".join(parts)


def zero(both: Compared, values: Tensor, mask: Tensor) -> bool:
    return float(values[mask].abs().max()) <= both.room * float(values.abs().max())


def cosine_of(both: Compared) -> float:
    a, b = (each.rows.flatten() for each in (both.first, both.second))
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0))


def by_kind(both: Compared) -> Iterator[tuple[str, str, Fit, float]]:
    """Yield (end, kind of pair, fit, part of A's weights) for each kind of pair that one of them has."""
    if both.pairs is None:
        return
    a, b = both.pairs
    total = max(float(a.abs().sum()), 1e-300)
    for place, end in enumerate(ENDS):
        reached = (both.layout.end == place)[:, None].expand_as(a)
        for index, kind in enumerate(PAIR_KINDS):
            mask = reached & (both.layout.kind == index)
            if mask.any() and bool((a[mask] != 0).any() | (b[mask] != 0).any()):
                yield end, kind, fit(a, b, mask), float(a[mask].abs().sum()) / total
