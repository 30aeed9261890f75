"""Matrices of embeddings: their checks, and the norms and projections of their rows."""

import warnings
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError, NotFinite, rows

FLOAT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
ENTRIES_AT_ONCE = 2**18  # entries that are read at once, so that they stay in the cache of the processor


def matrix(name: str, values: Any) -> Tensor:
    """Convert an array or tensor to a matrix of embeddings, (N, D), without a copy or a check for NaN."""
    try:
        with warnings.catch_warnings():  # torch warns about read-only memory maps, to which nothing writes
            warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
            rows = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: {type(values).__name__}, expected a tensor or an array of numbers") from None
    if rows.layout != torch.strided or rows.is_meta:
        raise InputError(f"{name}: a {'meta' if rows.is_meta else 'sparse'} tensor, expected a dense one with values")
    if rows.ndim != 2 or 0 in rows.shape:
        raise InputError(f"{name}: shape {tuple(rows.shape)}, expected two dimensions (rows, width), none of them 0")
    if rows.dtype not in FLOAT_DTYPES:
        raise InputError(f"{name}: dtype {rows.dtype}, expected a floating-point dtype of 16, 32 or 64 bits")
    return rows.detach() if rows.requires_grad else rows


def norms_and_projections(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the norms of rows, (N,), and their projections on two random lines, (N, 2), in one pass over the rows."""
    wide = torch.promote_types(values.dtype, torch.float32)
    lines = torch.randn(values.shape[1], 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lines = (lines / lines.norm(dim=0)).to(values.device, wide)
    norms = torch.empty(len(values), dtype=wide, device=values.device)
    projections = torch.empty(len(values), 2, dtype=wide, device=values.device)
    step = max(1, ENTRIES_AT_ONCE // values.shape[1])
    for start in range(0, len(values), step):
        index = slice(start, start + step)
        part = values[index].to(wide)
        torch.linalg.vector_norm(part, dim=1, out=norms[index])
        torch.mm(part, lines, out=projections[index])
    return norms, projections


def check_finite(name: str, values: Tensor, norms: Tensor) -> None:
    """Refuse rows with NaN or infinity; only rows without a finite norm are read."""
    suspects = (~norms.isfinite()).nonzero().flatten()
    if wrong := suspects[(~values[suspects].isfinite()).any(dim=1)].tolist():
        raise NotFinite(f"{name}: NaN or infinity in {rows(wrong)} (of {len(values)}); remove or repair them")


def variances(values: Any, candidate: Tensor, directions: int) -> Tensor:
    """Check the variances of candidates that are normal distributions, (C, D)."""
    variance = matrix("candidate_variance", values)
    check_finite("candidate_variance", variance, norms_and_projections(variance)[0])
    if variance.shape != candidate.shape or not (variance > 0).all():
        value = f"shape {tuple(variance.shape)} and smallest value {variance.min().item():g}"
        expected = f"values above 0 in the shape of candidate, {tuple(candidate.shape)}"
        raise InputError(f"candidate_variance: {value}, expected {expected}")
    if directions > 1:
        raise InputError("candidate_variance: only candidates have it, so there is one direction, like s2p")
    return variance.to(candidate)


def check_joint(query: Tensor, candidate: Tensor) -> None:
    """Refuse sides of different width, dtype or device."""
    if query.shape[1] != candidate.shape[1]:
        widths = f"query has width {query.shape[1]} and candidate has width {candidate.shape[1]}"
        raise InputError(f"{widths}: both sides must come from one joint space")
    if query.dtype != candidate.dtype or query.device != candidate.device:
        sides = f"query is {query.dtype} on {query.device} and candidate is {candidate.dtype} on {candidate.device}"
        raise InputError(f"{sides}: give both the same dtype and device")


def check_dims(dims: int, width: int) -> None:
    """Refuse a number of first dimensions that rows do not have."""
    if not isinstance(dims, Integral) or isinstance(dims, bool) or not 1 <= dims <= width:
        raise InputError(f"dims: {dims}, expected 1 to {width}, the dimensions of the rows")
