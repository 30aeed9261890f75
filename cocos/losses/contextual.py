"""Contextual loss: two samples are as similar as their neighbourhoods, with a gradient made up for the counts."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative, Positive, whole
from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


@dataclass(frozen=True)
class Contextual(Loss):
    r"""Squared error of the contextual similarity: how many neighbours two samples of a labelled set share.

    .. math::
        \ell_i = \frac{1}{C} \sum_j (y_{ij} - w_{ij})^2, \quad w = \frac{\tilde w + \tilde w^\top}{2}, \quad
        \tilde w_{ij} = \frac{\sum_m R_{im} v_{mj}}{\sum_m R_{im}}, \quad
        v_{ij} = \frac{N_{ij}}{2} \left(\frac{|N_i \cap N_j|}{|N_i|}
        + \frac{|\bar N_i \cap \bar N_j|}{|\bar N_i|}\right)

    :math:`N_{ij} = [-d_{ij}^2 + \varepsilon \ge -d_{i(k)}^2]` says that j is among the k nearest of i, itself included,
    or no more than ε farther; :math:`d^2 = 2 - 2s`. :math:`R_{ij} = N'_{ij} N'_{ji}` is the same for the k/2 nearest,
    both ways. y is 1 for positives and 0 for negatives; :math:`\bar N` are the others.

    All of these are counts: the true derivative is 0 almost everywhere. The backward pass takes every comparison N for
    a line of slope α in :math:`-d^2`, and :math:`d_{i(k)}`, :math:`|N_i|` and :math:`|\bar N_i|` for constants. There
    is no closed form; autograd computes the weights of that.

    The scores are those of a labelled set where the matrix is square and no pair of its diagonal takes part. Otherwise
    queries and candidates are taken for one set whose scores within a side are unknown, and unknown pairs are never
    neighbours: an extension that is ours. The mean over queries is the published loss, without the contrastive loss
    and the regulariser that its training adds. Memory grows with the square of the number of samples.

    Args:
        k: size of a neighbourhood, the sample itself included. This and the other defaults are of the published code.
        eps: ε, in units of squared distance.
        alpha: α, slope of a comparison per unit of squared distance.

    Counts: negatives that autograd gives a weight, by the straight-through slope; unit 4α/C.
    Net: not balanced; queries share neighbourhoods, so that a weight serves several of them.
    Source: Liao et al. 2023, Contextual Similarity Optimization, arXiv:2210.01908; formula from its published code.

    Examples:
        Two classes of samples that are each other's nearest neighbours: no similarity is wrong.

        >>> same = torch.block_diag(torch.ones(2, 2), torch.ones(2, 2)).bool()
        >>> pairs = cocos.Pairs(2.0 * same - 1, same & ~torch.eye(4, dtype=torch.bool), ~same)
        >>> cocos.losses.load("contextual", {"k": 2})(pairs)
        tensor([0., 0., 0., 0.])
    """

    k: Annotated[int, whole(2)] = 4
    eps: NonNegative = 0.05
    alpha: Positive = 10.0
    couples = "batch"
    gradient = "pseudo"
    sample = "groups"
    family = "pair"

    def _neighbours(self, closeness: Tensor, taking_part: Tensor) -> tuple[Tensor, Tensor]:
        """k- and k/2-nearest-neighbour indicators of each sample with a straight-through gradient, (n, n) each."""
        itself = torch.eye(len(taking_part), dtype=torch.bool, device=taking_part.device)
        ranked = closeness.detach().masked_fill(~taking_part, -torch.inf).masked_fill(itself, 0)
        nearest = ranked.topk(min(self.k, len(taking_part)), dim=1).values
        slope = self.alpha * (closeness - closeness.detach())  # 0, with a gradient

        def indicators(k: int) -> Tensor:
            count = (ranked + self.eps >= nearest[:, :k][:, -1:]).to(closeness.dtype)
            return torch.where(itself, 1, torch.where(taking_part, count + slope, 0))

        return indicators(self.k), indicators(self.k // 2)

    def _similarity(self, closeness: Tensor, taking_part: Tensor) -> Tensor:
        """Contextual similarities w of one set of samples, (n, n), from minus their squared distances."""
        near, nearest = self._neighbours(closeness, taking_part)
        far = 1 - near
        shared = near @ near.T / near.sum(dim=1, keepdim=True).detach()
        neither = far @ far.T / far.sum(dim=1, keepdim=True).detach().clamp(min=1)
        mutual = nearest * nearest.T
        mean = mutual @ (near * (shared + neither) / 2) / mutual.sum(dim=1, keepdim=True)
        return (mean + mean.T) / 2

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), from 0 to 1."""
        taking_part, (queries, candidates) = pairs.positive | pairs.negative, pairs.positive.shape
        closeness = 2 * pairs.scores.clamp(max=1) - 2
        if queries == candidates and not taking_part.diagonal().any():
            similarity = self._similarity(closeness, taking_part)
        else:
            corner, part = (
                torch.nn.functional.pad(side, (queries, 0, 0, candidates)) for side in (closeness, taking_part)
            )
            similarity = self._similarity(corner + corner.T, part | part.T)[:queries, queries:]
        error = (pairs.positive.to(similarity.dtype) - similarity).square()
        return torch.where(taking_part, error, 0).sum(dim=1) / candidates

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a comparison that moves a contextual similarity from 0 to 1 where it is wrong by 1, (): 4α/C."""
        return pairs.scores.new_tensor(4 * self.alpha / pairs.scores.shape[1])
