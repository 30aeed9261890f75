"""Scores of a teacher or a guide: another model's scores of the pairs of a query and a candidate."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError, rows
from cocos.embeddings.annotations import as_tensor

SIDES = ("query", "candidate")


@dataclass(frozen=True, eq=False)
class Teacher:
    """Scores of a teacher or a guide, known for all pairs of two rows or for some.

    Args:
        matrix: (Q, C), NaN for unknown scores; None: scores are cosines of the guide's rows.
        guide: rows of the guide for queries, (Q, G), and candidates, (C, G); or None.

    Examples:
        >>> teacher = cocos.embeddings.teachers.of((torch.eye(2), torch.eye(2)), 2, 2)
        >>> teacher.scores("query", torch.tensor([0, 1]), "candidate", torch.tensor([1])).tolist()
        [[0.0], [1.0]]
    """

    matrix: Tensor | None = None
    guide: tuple[Tensor, Tensor] | None = None

    def scores(self, first_side: str, first: Tensor, second_side: str, second: Tensor) -> Tensor:
        """Return the scores of pairs of rows, (a, b); NaN if unknown.

        Args:
            first_side: `query` or `candidate`.
            first: (a,) rows of this side.
            second_side: likewise.
            second: (b,) rows of this side.
        """
        if self.guide is not None:
            vectors = self.guide[SIDES.index(first_side)][first], self.guide[SIDES.index(second_side)][second]
            left, right = (torch.nn.functional.normalize(rows, dim=1) for rows in vectors)
            return left @ right.T
        matrix: Any = self.matrix
        if first_side == second_side:
            return matrix.new_full((len(first), len(second)), torch.nan)
        return matrix[first][:, second] if first_side == "query" else matrix[second][:, first].T

    def flip(self) -> "Teacher":
        """Swap queries and candidates."""
        guide = self.guide and self.guide[::-1]
        return replace(self, matrix=None if self.matrix is None else self.matrix.T, guide=guide)

    def rows(self, query: Tensor, candidate: Tensor) -> "Teacher":
        """Select queries and candidates by their row numbers."""
        if self.guide is not None:
            return replace(self, guide=(self.guide[0][query], self.guide[1][candidate]))
        return replace(self, matrix=self.scores("query", query, "candidate", candidate))

    def to(self, like: Tensor) -> "Teacher":
        """Move to the device and dtype of a tensor."""
        guide = self.guide and (self.guide[0].to(like), self.guide[1].to(like))
        return Teacher(None if self.matrix is None else self.matrix.to(like), guide)


def _read_matrix(name: str, values: Any) -> Tensor:
    """Read a floating-point matrix; NaN is allowed."""
    matrix = as_tensor(name, values, "a matrix of numbers")
    if matrix.ndim != 2 or 0 in matrix.shape or matrix.is_complex():
        raise InputError(f"{name}: {matrix.dtype} of shape {tuple(matrix.shape)}, expected a matrix of numbers")
    if infinite := matrix.isinf().any(dim=1).nonzero().flatten().tolist():
        raise InputError(f"{name}: infinity in {rows(infinite)}, expected finite scores, or NaN for unknown ones")
    return matrix if matrix.is_floating_point() else matrix.double()


def of(
    values: Any,
    queries: int,
    candidates: int,
    negatives: Tensor | None = None,
    groups: tuple[Tensor, Tensor] | None = None,
) -> Teacher:
    """Make a teacher of its scores, or of the rows of a guide.

    Args:
        values: (Q, C) scores, NaN if unknown; or (Q, 1 + K), of the positive of each query and of its own hard
            negatives; or a pair of the guide's rows, (Q, G) and (C, G), whose cosines are the scores.
        queries: Q.
        candidates: C.
        negatives: (Q, K) rows of the candidates that are a query's own hard negatives, -1 for none; or None.
        groups: (Q,) and (C,) ids that a query shares with its positives; or None.
    """
    if isinstance(values, Teacher):
        return values
    if isinstance(values, tuple) and len(values) == 2:
        query, candidate = _read_matrix("guide_query", values[0]), _read_matrix("guide_candidate", values[1])
        if (len(query), len(candidate)) != (queries, candidates) or query.shape[1] != candidate.shape[1]:
            shapes = f"{tuple(query.shape)} and {tuple(candidate.shape)}"
            raise InputError(f"guide: shapes {shapes}, expected ({queries}, G) and ({candidates}, G)")
        if query.isnan().any() or candidate.isnan().any():
            raise InputError("guide: NaN among its rows, expected finite numbers")
        return Teacher(guide=(query, candidate.to(query)))
    scores = _read_matrix("teacher", values)
    if scores.isnan().all():
        raise InputError("teacher: all scores are NaN, so that none is known; leave it out")
    if tuple(scores.shape) == (queries, candidates):
        return Teacher(scores)
    if negatives is None or groups is None or tuple(scores.shape) != (queries, 1 + negatives.shape[1]):
        columns = "" if negatives is None else f", or ({queries}, {1 + negatives.shape[1]}): positive and negatives"
        raise InputError(f"teacher: shape {tuple(scores.shape)}, expected ({queries}, {candidates}){columns}")
    matrix = scores.new_full((queries, candidates), torch.nan)
    row, column = (groups[0][:, None] == groups[1]).nonzero().to(scores.device).T
    matrix[row, column] = scores[row, 0]
    row, place = (negatives >= 0).nonzero().to(scores.device).T
    matrix[row, negatives.to(scores.device)[row, place]] = scores[row, 1 + place]
    return Teacher(matrix)
