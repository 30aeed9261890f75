"""Sums over scores and weights that are stored, as a monitor has them: one visit of each row by the kernel.

In: scores and weights of one direction of a batch, and its masks, on the host. Out: sums over the queries. Where the
kernel cannot read them, `readable` says so, and the caller takes PyTorch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.engine import devices
from cocos.engine.fused import PAD
from cocos.engine.kernel import structs

__all__ = ["Form", "Margins", "Sums", "form", "readable", "sums"]

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
)
# Those in units of one weight.
IN_UNITS = ("weight_positive", "weight_negative")
# Queries from which the unit is guessed, by which all are then compared.
GUESSED_FROM = 16


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


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the queries of a direction.

    Args:
        values: by the names of `RESULTS`.
        parts: of the push of each candidate, (C,).
        ahead: negatives that score above a query's first positive less those below, (Q,).
        number: negatives of each query, (Q,).
    """

    values: dict[str, float]
    parts: Tensor
    ahead: Tensor
    number: Tensor


def readable(*arrays: Tensor) -> bool:
    """Whether the kernel reads matrices of float32 and bool: contiguous, on the host, of one shape."""
    first = arrays[0]
    alike = all(
        each.dtype in {torch.float32, torch.bool} and each.shape == first.shape and each.is_contiguous()
        for each in arrays
    )
    return alike and first.numel() > 0 and not devices.ahead(first.device) and structs.loaded() is not None


def _asked(arrays: tuple[Tensor, ...], **fields: float | Tensor) -> structs.Struct:
    """Arguments of the kernel for scores, weights, positives and negatives."""
    score, weight, positive, negative = arrays
    queries, candidates = score.shape
    masks = {"positive": positive.view(torch.int8), "negative": negative.view(torch.int8)}
    made = structs.struct("weighing", score=score, weight=weight, queries=queries, candidates=candidates, **masks)
    made.set(scratch=torch.empty(candidates + PAD), **fields)
    return made


def form(arrays: tuple[Tensor, ...], factor: float) -> Form:
    """Compare the weights with a softmax of the scores times a factor."""
    unit, asked = 1.0, _asked(arrays, factor=factor)
    for queries in (min(GUESSED_FROM, len(arrays[0])), len(arrays[0])):
        found = torch.zeros(5, dtype=torch.float64)
        asked.set(queries=queries, unit=unit, found=found)
        structs.kernel().cocos_form(asked.address)
        made = Form(*found.tolist())
        unit = made.total / made.size if made.size else 1.0
    return made


def sums(arrays: tuple[Tensor, ...], first: Tensor, unit: float, eps: float) -> Sums:
    """Sums over the queries, given the place of the first positive of each, or of any candidate without one, (Q,)."""
    queries, candidates = arrays[0].shape
    found, part = torch.zeros(len(RESULTS), dtype=torch.float64), torch.zeros(candidates + PAD)
    by_query = [torch.empty(queries), torch.empty(queries)]
    asked = _asked(arrays, unit=unit, eps=eps, first=first, found=found, part=part, ahead=by_query[0])
    asked.set(number=by_query[1])
    structs.kernel().cocos_weighing(asked.address)
    values = dict(zip(RESULTS, found.tolist(), strict=True))
    values |= {name: values[name] / unit for name in IN_UNITS}
    return Sums(values, part[:-PAD], *by_query)


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
        self._asked = structs.struct("margins", score=score, first=first, queries=queries, candidates=candidates)
        self._asked.set(factor=factor, rounding=rounding, scratch=torch.empty(candidates + PAD), found=self._found)

    def bent(self, scale: float) -> tuple[float, float, float, float]:
        """Means of the mean and the variance under the softmax times a scale, and without it; the largest distance."""
        self._asked.set(scale=scale)
        structs.kernel().cocos_margins(self._asked.address)
        mean, variance, plain, largest = self._found.tolist()
        return mean / self.queries, variance / self.queries, plain / self.queries, largest
