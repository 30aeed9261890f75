"""Graded labels of the candidates of a query, which are the scores of its teacher, compared with one another."""

from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


class GradedList(Loss):
    """A loss of the order of the candidates of a query by their grades, (Q, C): a teacher's scores, or judgements."""

    metric = "dot"
    balanced = True
    requires = ("teacher",)

    def graded(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Grades, and the candidates that have one, of queries with a positive and a negative that have one."""
        grades = self.teacher_scores(pairs).to(pairs.scores.dtype)
        usable = ~grades.isnan() & (pairs.positive | pairs.negative)
        mixed = (pairs.positive & usable).any(dim=1, keepdim=True) & (pairs.negative & usable).any(dim=1, keepdim=True)
        return grades.nan_to_num(), usable & mixed
