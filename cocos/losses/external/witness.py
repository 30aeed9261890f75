"""The weights of a loss of embeddings from outside: by dimensions that are added to the embeddings, unseen by its code.

Query i gets a small number in an added dimension of its own, in which every candidate is 0. A score changes by the
square of the number alone, and the derivative in that 0 of candidate j is the weight of the pair (i, j), times the
derivative of its score there.
"""

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.embeddings.scores import METRICS, Pairs, length
from cocos.losses.external.embedded import Embedded

# The number that a query gets, in parts of its length; in float64 its square is still far above rounding.
TAG = 1e-4


def lifted(rows: Tensor, own: Tensor) -> Tensor:
    """Rows with a coordinate of its own for each, (N, D + N): `own`, (N,), in which every other row is 0."""
    return torch.cat([rows, own.diag()], dim=1)


def unfit(loss: Embedded, pairs: Pairs) -> str | None:
    """Why the weights of a loss cannot be found by added dimensions; None: they can."""
    if loss.traits.own_scores:
        return "it weighs no scores of a metric that cocos knows"
    return "queries and candidates are one set" if pairs.embeddings is None or pairs.embeddings.shared else None


def weights(loss: Embedded, pairs: Pairs) -> Tensor:
    r"""∂ Σ loss / ∂ score by added dimensions, (Q, C), one backward pass; 0 for a pair in neither mask.

    .. math:: w_{ij} = \frac{\partial \ell}{\partial x_{j, D + i}} \Big/ \frac{\partial s_{ij}}{\partial x_{j, D + i}}

    It is the derivative of everything that the loss computes of both rows, so that a score that was overlooked shows.

    Args:
        loss: bound.
        pairs: in float64, that `unfit` does not refuse.

    Examples:
        >>> def mine(query, candidate):
        ...     scores = 5 * torch.cosine_similarity(query[:, None], candidate[None], dim=2)
        ...     return torch.nn.functional.cross_entropy(scores, torch.arange(len(query)), reduction="none")
        >>> rows = torch.eye(3, dtype=torch.float64)
        >>> pairs = cocos.scores.pairs(cocos.Embeddings(rows + 0.1, rows), metric="cosine", same_group="negative")
        >>> loss = cocos.losses.of(mine).bind(pairs)
        >>> bool((weights(loss, pairs) - loss.weight(pairs)).abs().max() < 1e-6)
        True
    """
    part = pairs.embeddings
    if part is None or (why := unfit(loss, pairs)):
        raise InputError(f"{loss.spelling}: {why if part else 'these pairs are scores alone'}")
    query, candidate = part.query.detach(), part.candidate.detach()
    added = torch.zeros(len(candidate), len(query), dtype=query.dtype, device=query.device).requires_grad_()
    with torch.enable_grad():
        rows = lifted(query, TAG * length(query)), torch.cat([candidate, added], dim=1)
        scores = METRICS[loss.metric](*rows)
        values = loss(pairs.unchecked(scores=scores, embeddings=part.with_rows(*rows))).sum(), scores.sum()
        found, slopes = (torch.autograd.grad(value, added, retain_graph=True)[0].T for value in values)
    return torch.where(pairs.positive | pairs.negative, found / slopes, 0)
