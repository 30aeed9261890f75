"""Scores of a teacher or a guide: another model's opinion on the pairs of a query and a candidate."""

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
        matrix: (Q, C), NaN where no score is known; None: scores are cosines of the guide's rows.
        guide: rows of the queries, (Q, G), and of the candidates, (C, G), of the guide; or None.

    Examples:
        >>> teacher = cocos.embeddings.teachers.of((torch.eye(2), torch.eye(2)), 2, 2)
        >>> teacher.scores("query", torch.tensor([0, 1]), "candidate", torch.tensor([1])).tolist()
        [[0.0], [1.0]]
    """

    matrix: Tensor | None = None
    guide: tuple[Tensor, Tensor] | None = None

    def scores(self, asking: str, asks: Tensor, asked: str, listed: Tensor) -> Tensor:
        """Scores of some pairs of rows, (a, b); NaN where none is known.

        Args:
            asking: `query` or `candidate`, the side of the rows that ask.
            asks: (a,) their numbers.
            asked: the side of the other rows.
            listed: (b,) their numbers.
        """
        if self.guide is not None:
            guide_rows = self.guide[SIDES.index(asking)][asks], self.guide[SIDES.index(asked)][listed]
            query_rows, candidate_rows = (torch.nn.functional.normalize(row, dim=1) for row in guide_rows)
            return query_rows @ candidate_rows.T
        matrix: Any = self.matrix
        if asking == asked:
            return matrix.new_full((len(asks), len(listed)), torch.nan)
        scores: Tensor = matrix[asks][:, listed] if asking == "query" else matrix[listed][:, asks].T
        return scores

    def flip(self) -> "Teacher":
        """The same scores where the candidates ask."""
        guide = self.guide and (self.guide[1], self.guide[0])
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
    """Read a floating-point matrix."""
    matrix = as_tensor(name, values, "a matrix of numbers")
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(f"{name}: {matrix.dtype} of shape {tuple(matrix.shape)}, expected a matrix of numbers")
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
        values: (Q, C) scores, NaN where none is known; or (Q, 1 + K), of the positive of each query and of its own hard
            negatives; or a pair of the guide's rows, (Q, G) and (C, G), whose cosines are the scores.
        queries: Q.
        candidates: C.
        negatives: (Q, K) rows of the candidates that are a query's own hard negatives, -1 for none; or None.
        groups: (Q,) and (C,) ids that a query shares with its positives; or None.
    """
    if isinstance(values, Teacher):
        return values
    if isinstance(values, tuple) and len(values) == 2:
        return _read_guide(values, queries, candidates)
    scores = _read_matrix("teacher", values)
    infinite_rows = scores.isinf().any(dim=1).nonzero().flatten().tolist()
    if infinite_rows:
        raise InputError(f"teacher: infinity in {rows(infinite_rows)}; NaN says that a score is not known")
    if scores.isnan().all():
        raise InputError("teacher: all scores are NaN, so that none is known; leave it out")
    if tuple(scores.shape) == (queries, candidates):
        return Teacher(scores)
    if negatives is None or groups is None or tuple(scores.shape) != (queries, 1 + negatives.shape[1]):
        expected = f"({queries}, {candidates})"
        if negatives is not None:
            expected += f", or ({queries}, {1 + negatives.shape[1]}): of the positive and the negatives"
        raise InputError(f"teacher: shape {tuple(scores.shape)}, expected {expected}")
    matrix = scores.new_full((queries, candidates), torch.nan)
    row, column = (groups[0][:, None] == groups[1]).nonzero().to(scores.device).T
    matrix[row, column] = scores[row, 0]
    row, place = (negatives >= 0).nonzero().to(scores.device).T
    matrix[row, negatives.to(scores.device)[row, place]] = scores[row, 1 + place]
    return Teacher(matrix)


def _read_guide(guide: tuple[Any, Any], queries: int, candidates: int) -> Teacher:
    """Check the rows of a guide."""
    query, candidate = (_read_matrix(f"guide_{side}", matrix) for side, matrix in zip(SIDES, guide, strict=True))
    sizes = (len(query), len(candidate))
    if sizes != (queries, candidates) or query.shape[1] != candidate.shape[1]:
        shapes = f"{tuple(query.shape)} and {tuple(candidate.shape)}"
        raise InputError(
            f"guide_query, guide_candidate: shapes {shapes}, expected ({queries}, G) and ({candidates}, G)"
        )
    for side, rows_of_side in zip(SIDES, (query, candidate), strict=True):
        wrong = (~rows_of_side.isfinite()).any(dim=1).nonzero().flatten().tolist()
        if wrong:
            raise InputError(f"guide_{side}: NaN or infinity in {rows(wrong)}")
    return Teacher(guide=(query, candidate.to(query)))
