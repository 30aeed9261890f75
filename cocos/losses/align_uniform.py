"""Alignment and uniformity: draw positives together, and spread all over the sphere."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.base.ranges import Positive, one_of
from cocos.embeddings import sources
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss

UNIFORMITIES = ("pairs", "views")
# Sources of the pairs within a view.
VIEW_SOURCES = (sources.QUERY_QUERY, sources.CANDIDATE_CANDIDATE)


@dataclass(frozen=True)
class AlignUniform(Loss):
    r"""Squared distance to each positive, and log of the mean Gaussian potential of all negative pairs of the batch.

    .. math::
        \ell_q(d) = \sum_{p \in P_q} \Bigl(d_{qp}^2 + \frac{\gamma}{|V|} \sum_{T \in V} \log \frac{1}{|T|}
        \sum_{(k, n) \in T} e^{-t d_{kn}^2}\Bigr)

    :math:`P_q` are the positives of query q, d² the squared distances of unit vectors, minus the score (rows are
    divided by their norms), and V one set T or two. For uniformity over `pairs`, T has all negative pairs of a query
    and a candidate, also of queries without a positive; in a labelled set, where every sample is query and candidate,
    those of two classes. Within `views` there are two: the pairs of two queries, and those of two candidates, each of
    which belongs to a query. The paper's loss is the mean over the positive pairs.

    Args:
        t: t, in units of 1/score; 2 as in the paper.
        weight: γ, weight of the uniformity; 1 as in the paper.
        uniformity: `pairs`, the expectation over independent samples of section 4.1, read as pairs of a query and
            a candidate; or `views`, mean of the uniformity within each view, which published code computes: that of the
            paper's authors, and lightly's HypersphereLoss (whose t is 1).

    Counts: negatives with more than eps of γt; every query pushes every pair, so shares may exceed 1; unit γt|P|.
        Within views the negatives of a query that are spread are other queries, and candidates beside its positive.
    Net: a positive pulls with 1 at any distance; the push over the batch is γt for each positive pair.
    Source: Wang & Isola 2020, Alignment and Uniformity on the Hypersphere, arXiv:2005.10242, section 4.

    Examples:
        Two queries with their positives at distance 0 and one negative each at 1: 2 of the push on each, -1 of pull.

        >>> pairs = cocos.Pairs(torch.tensor([[0.0, -1.0], [-1.0, 0.0]]), torch.eye(2, dtype=torch.bool))
        >>> loss = cocos.losses.load("align_uniform")
        >>> loss(pairs)
        tensor([-2., -2.])
        >>> loss.weight(pairs)
        tensor([[-1.,  2.],
                [ 2., -1.]])
    """

    t: Positive = 2.0
    weight_: Positive = 1.0
    uniformity: Annotated[str, one_of(UNIFORMITIES)] = "pairs"
    metric = "squared_chord"
    couples = "batch"
    per_positive = True
    family = "pair"
    aliases = {
        "alignment and uniformity": {},
        "HypersphereLoss": {"uniformity": "views", "t": 1},
    }

    @property
    def directions(self) -> tuple[str, ...]:
        """Columns that it reads: within views those of query with query, and of candidate with candidate."""
        further = [sources.SOURCES[place] for place in VIEW_SOURCES] if self.uniformity == "views" else []
        return (sources.DIRECTIONS[0], *further)

    def _spread_pairs(self, pairs: Pairs) -> list[Tensor]:
        """Pairs that are spread, (Q, C) bool: one set, or one for each view."""
        if self.uniformity == "pairs":
            return [pairs.negative]
        if pairs.source is None:
            raise InputError(
                "align_uniform with uniformity views reads columns of further directions, and there are none: give "
                "pairs of cocos.scores.pairs(embeddings, batch, metric=loss.metric, directions=loss.directions)"
            )
        return [pairs.negative & (pairs.source == place) for place in VIEW_SOURCES]

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), of either sign; 0 for a query without a positive."""
        sets, spread = self._spread_pairs(pairs), pairs.scores.new_zeros(())
        for mask in sets:
            number = mask.sum()
            mean = logsumexp(self.t * pairs.scores, mask, (0, 1)) - number.clamp(min=1).to(pairs.scores).log()
            spread = spread + torch.where(number > 0, mean, 0) / len(sets)
        return torch.where(pairs.positive, self.weight_ * spread - pairs.scores, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form: the sum over the losses of all queries.

        Positives -1; negatives :math:`\frac{\gamma t K}{|V|} \, \mathrm{softmax}_T(-t d^2)` with K the positive pairs
        of the batch.
        """
        sets, pull = self._spread_pairs(pairs), pairs.positive.to(pairs.scores.dtype)
        push = sum(softmax(self.t * pairs.scores, mask, (0, 1)) for mask in sets) / len(sets)
        return self.weight_ * self.t * pull.sum() * push - pull

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the push of a positive pair on all pairs together, for every positive, (Q, 1): γt|P|."""
        return self.weight_ * self.t * pairs.positives()
