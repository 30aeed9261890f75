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

__all__ = ["Form", "form", "readable", "sums"]

# Sums over the queries, in the order of weighing.c.
RESULTS = (
    "relative",  # negatives with more than eps of the query's push
    "some",  # queries with any push
    "hardest_share",  # largest part of the push of one negative
    "effective",  # exp of the entropy of the parts
    "pulled_negatives",
    "pushed_positives",
    "positives",
    "negatives",
    "nonzero",  # negatives with a weight
    "sum",  # of all scores and weights, which is finite if all of them are
    "idle",  # queries with no share above eps
    "weight_positive",
    "weight_negative",
    "contributing",
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


def readable(*arrays: Tensor) -> bool:
    """Whether the kernel reads matrices of float32 and bool: contiguous, on the host, of one shape."""
    first = arrays[0]
    alike = all(
        each.dtype in {torch.float32, torch.bool} and each.shape == first.shape and each.is_contiguous()
        for each in arrays
    )
    return alike and first.numel() > 0 and not devices.ahead(first.device) and structs.loaded() is not None


def _asked(arrays: tuple[Tensor, ...], queries: int, **fields: float | Tensor) -> structs.Struct:
    """Arguments of the kernel for the first queries of the scores, weights, positives and negatives."""
    score, weight, positive, negative = arrays
    candidates = score.shape[1]
    masks = {"positive": positive.view(torch.int8), "negative": negative.view(torch.int8)}
    made = structs.struct("weighing", score=score, weight=weight, queries=queries, candidates=candidates, **masks)
    made.set(scratch=torch.empty(candidates + PAD), **fields)
    return made


def form(arrays: tuple[Tensor, ...], factor: float) -> Form:
    """Compare the weights with a softmax of the scores times a factor."""
    unit = 1.0
    for queries in (min(GUESSED_FROM, len(arrays[0])), len(arrays[0])):
        found = torch.zeros(5, dtype=torch.float64)
        asked = _asked(arrays, queries, factor=factor, unit=unit, found=found)
        structs.kernel().cocos_form(asked.address)
        made = Form(*found.tolist())
        unit = made.total / made.size if made.size else 1.0
    return made


def sums(arrays: tuple[Tensor, ...], unit: float, eps: float) -> tuple[dict[str, float], Tensor]:
    """Sums over the queries, by the names of `RESULTS`, and the parts of the push of each candidate, (C,)."""
    found, part = torch.zeros(len(RESULTS), dtype=torch.float64), torch.zeros(arrays[0].shape[1] + PAD)
    asked = _asked(arrays, len(arrays[0]), unit=unit, eps=eps, found=found, part=part)
    structs.kernel().cocos_weighing(asked.address)
    values = dict(zip(RESULTS, found.tolist(), strict=True))
    return {name: value / unit if name in IN_UNITS else value for name, value in values.items()}, part[:-PAD]
