"""Similarities of rows: dot products, cosines, and distances with a minus. Higher is closer, always."""

from pathlib import Path

import torch
from torch import Tensor

from cocos.base.errors import InputError, nearest, rows
from cocos.embeddings import Embeddings


def dot(query: Tensor, candidate: Tensor) -> Tensor:
    """Return inner products, (Q, C)."""
    return query @ candidate.T


def _scale(rows: Tensor) -> Tensor:
    """Return the largest power of two in each row, (N, 1); squares of rows divided by it stay in range."""
    largest = rows.detach().abs().amax(dim=1, keepdim=True)
    return torch.ldexp(torch.ones_like(largest), largest.frexp().exponent - 1)


def length(rows: Tensor) -> Tensor:
    """Return the Euclidean lengths of rows, (N,), accurate over the whole range of the dtype."""
    scale = _scale(rows)
    return torch.linalg.vector_norm(rows / scale, dim=1) * scale[:, 0]


def unit(rows: Tensor) -> Tensor:
    """Divide rows by their lengths, (N, D), accurate over the whole range of the dtype; zero rows are undefined."""
    rows = rows / _scale(rows)
    return rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)


def cosine(query: Tensor, candidate: Tensor) -> Tensor:
    """Return cosine similarities, (Q, C). Zero vectors are undefined: see `check`."""
    return unit(query) @ unit(candidate).T


def cosine_dot(query: Tensor, candidate: Tensor) -> Tensor:
    """Return inner products of unit queries and raw candidates, (Q, C). Zero queries are undefined: see `check`."""
    return unit(query) @ candidate.T


def plus_turned(rows: Tensor, way: int = 1) -> Tensor:
    """Return rows (a, b), of the halves of their dimensions, as (a + b, b - a), (N, D): plus a turn by 90 degrees.

    With an odd number of dimensions the last one of the first half has the partner 0. `way` is 1, or -1 for the
    adjoint, (a - b, b + a).
    """
    width = rows.shape[1]
    real, imaginary = torch.nn.functional.pad(rows, (0, width % 2)).chunk(2, dim=1)
    return torch.cat([real + way * imaginary, imaginary - way * real], dim=1)[:, :width]


def angle(query: Tensor, candidate: Tensor) -> Tensor:
    r"""Return the similarity of AnglE, (Q, C): |sum of real and imaginary parts of :math:`z \bar w / (|z| |w|)`|.

    A row is the complex vector z whose real parts are the first half of its dimensions; of an odd number of them, the
    last imaginary part is 0. The value is at most √2. Not defined for zero vectors: see `check`.

    Source: Li & Li 2023, AnglE-optimized Text Embeddings, arXiv:2309.12871, eqs. 4-6.

    Examples:
        >>> cocos.similarities.angle(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        tensor([[1., 0.]])
    """
    return (plus_turned(unit(query)) @ unit(candidate).T).abs()


def euclidean(query: Tensor, candidate: Tensor) -> Tensor:
    """Return minus the Euclidean distances, (Q, C), from differences: exact for near duplicates."""
    scale = torch.maximum(_scale(query).amax(), _scale(candidate).amax())
    return -torch.cdist(query / scale, candidate / scale, compute_mode="donot_use_mm_for_euclid_dist") * scale


def squared_euclidean(query: Tensor, candidate: Tensor) -> Tensor:
    """Return minus the squared Euclidean distances, (Q, C)."""
    return -euclidean(query, candidate).square()


def chord(query: Tensor, candidate: Tensor) -> Tensor:
    """Return minus the Euclidean distances of unit rows, (Q, C). Not defined for zero vectors."""
    return euclidean(unit(query), unit(candidate))


def projection(query: Tensor, candidate: Tensor) -> Tensor:
    """Return inner products of raw queries and unit candidates, such as class vectors, (Q, C)."""
    return query @ unit(candidate).T


def squared_chord(query: Tensor, candidate: Tensor) -> Tensor:
    """Return minus the squared Euclidean distances of unit rows, 2 cosine - 2, (Q, C).

    Examples:
        >>> cocos.similarities.squared_chord(torch.tensor([[3.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        tensor([[-0.0000, -2.0000]])
    """
    return squared_euclidean(unit(query), unit(candidate))


def mahalanobis(query: Tensor, candidate: Tensor, variance: Tensor | None = None) -> Tensor:
    r"""Return minus the squared Mahalanobis distances :math:`\sum_d (q_d - c_d)^2 / \sigma^2_d`, (Q, C).

    Args:
        query: (Q, D).
        candidate: (C, D), the means.
        variance: (C, D), above 0; None: 1 throughout, the squared Euclidean distance.
    """
    if variance is None:
        return squared_euclidean(query, candidate)
    columns = [-((query - mean).square() / scale).sum(dim=1) for mean, scale in zip(candidate, variance, strict=True)]
    return torch.stack(columns, dim=1)  # one candidate at a time: (Q, C, D) differences would not fit


METRICS = {
    metric.__name__: metric
    for metric in (angle, chord, cosine, cosine_dot, dot, euclidean, mahalanobis)
    + (projection, squared_chord, squared_euclidean)
}
# Sides that the metric divides by their norms.
NORMALISED_SIDES = dict.fromkeys(("angle", "chord", "cosine", "squared_chord"), ("query", "candidate"))
NORMALISED_SIDES |= {"cosine_dot": ("query",), "projection": ("candidate",)}
# Metrics with s(q, c) = s(c, q) that one product gives: one score matrix serves both directions.
SYMMETRIC = ("cosine", "dot", "euclidean", "squared_chord", "squared_euclidean")


def check(embeddings: Embeddings, metric: str, file: Path | str | None = None) -> None:
    """Reject an unknown metric, and zero vectors in a side that the metric divides by its norms.

    Args:
        embeddings: the whole set.
        metric: one of `METRICS`.
        file: their file or name, for the message.
    """
    if metric not in METRICS:
        raise InputError(nearest("metric", metric, METRICS))
    for side in NORMALISED_SIDES.get(metric, ()):
        matrix, norms = getattr(embeddings, side), embeddings.norms[side == "candidate"]
        suspects = (norms == 0).nonzero().flatten()  # squares of tiny entries are 0 too
        zero = suspects[(matrix[suspects] == 0).all(dim=1)].tolist()
        if zero:
            where = f"{file}: {side}" if file else side
            raise InputError(f"{where}: zero vector in {rows(zero)}; its cosine similarity is not defined, remove it")
