"""Graded labels of the candidates of a query, which are the scores of its teacher, compared with one another."""

from typing import ClassVar

from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses._shelf import ShelfLoss, taught


class GradedList(ShelfLoss):
    """A loss of the order of the candidates of a query by their grades, (Q, C): a teacher's scores, or judgements."""

    metric: ClassVar[str] = "dot"
    balanced: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("teacher",)

    def graded(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Grades, and the candidates that have one, of queries with a positive and a negative that have one."""
        grades = taught(pairs, type(self).__module__.rpartition(".")[2]).to(pairs.scores.dtype)
        known = ~grades.isnan() & (pairs.positive | pairs.negative)
        both = (pairs.positive & known).any(dim=1, keepdim=True) & (pairs.negative & known).any(dim=1, keepdim=True)
        return grades.nan_to_num(), known & both
