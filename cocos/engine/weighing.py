"""Sums over scores and weights that are stored, as a monitor has them: one visit of each row by the kernel.

In: scores and weights of one direction of a batch, and its masks, on the host. Out: sums over the queries. Where the
kernel cannot read them, `readable` says so, and the caller takes PyTorch.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cocos.engine import devices
from cocos.engine.fused import PAD
from cocos.engine.kernel import structs

__all__ = ["Form", "Margins", "Weighing", "read", "readable"]

# Sums over the queries, in the order of weighing.c.
RESULTS = (
    "relative",  # negatives with more than eps of the query's push
    "some",  # queries with any push
    "hardest_share",  # largest part of the push of one negative
    "effective",  # exp of the entropy of the parts
    "idle",  # queries with no share above eps
    "sum",  # of all scores and weights, which is finite if all of them are
    "pulled_negatives",
    "pushed_positives",
    "positives",
    "negatives",
    "nonzero",  # negatives with a weight
    "weight_positive",
    "weight_negative",
    "contributing",
    "score_negative",
    "doubtful",  # shares within the error of the unit from eps
)
# Those in units of one weight.
IN_UNITS = ("weight_positive", "weight_negative")
# Queries from which the unit is guessed, by which all are then compared.
GUESSED_FROM = 16
# Relative error of the unit of all queries, or of a guess of it by the first ones, for which shares near eps are looked
# at once more with the right one.
UNSURE = 1e-5


@dataclass(frozen=True)
class Form:
    """How near weights are to a softmax with one positive a query.

    Args:
        size: Σ |softmax - positive|.
        total: Σ |weight|; over `size`, it is the unit.
        error: Σ |weight / unit - (softmax - positive)|, with the unit of the first queries.
        missing: largest |sum| of a row of the form: 0 with one positive.
        out: number of pairs in neither mask.
    """

    size: float
    total: float
    error: float
    missing: float
    out: float

    @property
    def unit(self) -> float:
        """Size of one weight, in float32 as a tensor has it; 1 where no weight is left, as in a batch of one pair."""
        return (ctypes.c_float(self.total / self.size).value if self.size else 0.0) or 1.0


@dataclass(frozen=True, eq=False)
class Weighing:
    """Sums over the queries of a direction.

    Args:
        values: by the names of `RESULTS`.
        parts: of the push of each candidate, (C,).
        ahead: negatives that score above a query's first positive less those below, (Q,).
        number: negatives of each query, (Q,).
        form: how near the weights are to a softmax; None: they were not compared.
    """

    values: dict[str, float]
    parts: Tensor
    ahead: Tensor
    number: Tensor
    form: Form | None


def readable(*arrays: Tensor) -> bool:
    """Whether the kernel reads matrices of float32 and bool: contiguous, on the host, of one shape."""
    first = arrays[0]
    alike = all(
        each.dtype in {torch.float32, torch.bool} and each.shape == first.shape and each.is_contiguous()
        for each in arrays
    )
    return alike and first.numel() > 0 and not devices.ahead(first.device) and structs.loaded() is not None


def read(
    arrays: tuple[Tensor, ...], first: Tensor, eps: float, *, unit: float | None = None, factor: float | None = None
) -> Weighing:
    """Visit each row once.

    Args:
        arrays: scores, weights, positives and negatives, (Q, C) each.
        first: place of the first positive of each query, or of any candidate without one, (Q,).
        eps: smallest share that contributes.
        unit: size of one weight; None: the weights are compared with a softmax, which may tell it.
        factor: of the scores in this softmax; None: there is none to compare with, and the unit is 1.
    """
    queries, candidates = arrays[0].shape
    score, weight, positive, negative = arrays
    masks = {"positive": positive.view(torch.int8), "negative": negative.view(torch.int8)}
    ahead, number = torch.empty(queries), torch.empty(queries)
    compared = torch.zeros(5, dtype=torch.float64)
    found, parts = torch.zeros(len(RESULTS), dtype=torch.float64), torch.zeros(candidates + PAD)
    asked: Any = structs.struct("weighing", score=score, weight=weight, first=first, **masks, part=parts, found=found,
        scratch=torch.empty(candidates + PAD), form=compared, ahead=ahead, number=number, eps=eps, doubt=UNSURE,
        queries=queries, candidates=candidates, unit=unit or 1.0)  # fmt: skip
    kernel, form = structs.kernel(), None
    if unit is None and factor is not None:
        asked.queries, asked.factor = min(GUESSED_FROM, queries), factor
        kernel.cocos_form(asked.address)
        guess = Form(*compared.tolist()).unit
        compared.zero_()
        asked.queries, asked.unit = queries, guess
    kernel.cocos_weighing(asked.address)
    values = dict(zip(RESULTS, found.tolist(), strict=True))
    if asked.factor:
        form = Form(*compared.tolist())
        unit = form.unit
        asked.factor, asked.unit = 0.0, unit
        if values["doubtful"] or not abs(guess - unit) <= UNSURE / 2 * unit:  # of the guess: once more with the unit
            found.zero_(), parts.zero_()
            kernel.cocos_weighing(asked.address)
            values = dict(zip(RESULTS, found.tolist(), strict=True))
    values |= {name: values[name] / asked.unit for name in IN_UNITS}
    return Weighing(values, parts[:-PAD], ahead, number, form)


class Margins:
    """Distances of the scores of a direction from those of the first positives, for softmaxes at several scales.

    Args:
        score: (Q, C) float32.
        first: (Q,) places of the positives.
        factor: of the scores.
        rounding: distance from 0 that is none.
    """

    def __init__(self, score: Tensor, first: Tensor, factor: float, rounding: float):
        queries, candidates = score.shape
        self.queries, self._found = queries, torch.zeros(4, dtype=torch.float64)
        self._asked: Any = structs.struct("margins", score=score, first=first, queries=queries, candidates=candidates,
            factor=factor, rounding=rounding, scratch=torch.empty(candidates + PAD), found=self._found)  # fmt: skip

    def bent(self, scale: float) -> tuple[float, float, float, float]:
        """Means of the mean and the variance under the softmax times a scale, and without it; the largest distance."""
        self._asked.scale = scale
        structs.kernel().cocos_margins(self._asked.address)
        mean, variance, plain, largest = self._found.tolist()
        return mean / self.queries, variance / self.queries, plain / self.queries, largest
