"""ListMLE: the likelihood of the order by grades, drawn one candidate after the other from a softmax."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses.families.graded import GradedList


@dataclass(frozen=True)
class ListMLE(GradedList):
    r"""Cross-entropy of each candidate of a query against those that have no higher grade.

    .. math:: \ell(s) = -\sum_i \log \frac{e^{s_i}}{\sum_{j: y_j \le y_i} e^{s_j}}

    y are the grades of the candidates of the query, which are the scores of its teacher, and s their scores. It is the
    likelihood of the order by grades under the model of Plackett and Luce. Candidates of one grade are each compared
    with all of it, so that no order among them is learned twice over; libraries draw that order from the input.

    Counts: negatives that lose more than eps of one draw, or are pulled by their own; unit 1, one draw surely lost.
        Candidates without a grade have no weight.
    Net: push equals pull for every query; a candidate of a middle grade is pulled by its own draw and pushed by others.
    Source: Xia et al. 2008, Listwise Approach to Learning to Rank: Theory and Algorithm, doi:10.1145/1390156.1390306,
        eq. 6.

    Examples:
        Three grades at one score: the first draw is among three, the second among two.

        >>> scores, positive = torch.zeros(1, 3), torch.tensor([[True, True, False]])
        >>> pairs = cocos.Pairs(scores, positive, teacher=torch.tensor([[2.0, 1.0, 0.0]]))
        >>> cocos.losses.load("listmle").weight(pairs)
        tensor([[-0.6667, -0.1667,  0.8333]])
    """

    family = "ranking"
    aliases = {"Plackett-Luce likelihood": {}}

    def _draws(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Candidates j of each draw i, (Q, C, C), the log of their sum, (Q, C), and which are drawn, (Q, C)."""
        grades, graded = self.graded(pairs)
        left = (grades[:, None, :] <= grades[:, :, None]) & graded[:, :, None] & graded[:, None, :]
        remaining = pairs.scores[:, None, :].expand_as(left).masked_fill(~left & graded[:, :, None], -torch.inf)
        return left, torch.where(graded, remaining.logsumexp(dim=2), 0), graded

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a graded positive or a graded negative."""
        _, total, graded = self._draws(pairs)
        return torch.where(graded, total - pairs.scores, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        Each candidate has its softmax in every draw that it is left for, less 1 for its own:
        :math:`\sum_{i: y_i \ge y_j} \mathrm{softmax}_i(s)_j - 1`.
        """
        left, total, graded = self._draws(pairs)
        parts = torch.where(left, pairs.scores[:, None, :] - total[:, :, None], -torch.inf).exp()
        return parts.sum(dim=1) - graded.to(parts.dtype)
