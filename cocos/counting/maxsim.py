r"""MaxSim, the score of late interaction (ColBERT), and the tokens of a document that carry its weight.

Queries and candidates are sets of token vectors. The score is a sum over the tokens of the query, each with the most
similar token of the document,

.. math:: s_{qc} = \sum_{t} \max_u \, \hat q_t \cdot \hat c_u,

so the weight w of a document reaches those of its tokens only that some token of the query chose: the gradient of token
u is :math:`\sum_q w_{qc} \sum_{t : u(t) = u} \hat q_t`, before the Jacobian of its normalisation. A loss reads the
scores in `cocos.Pairs` as any others.

Source: Khattab & Zaharia 2020, ColBERT, arXiv:2004.12832, eq. 3.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.errors import InputError, rows
from cocos.counting.weights import of as weights_of
from cocos.counting.weights import unit as unit_of
from cocos.embeddings.scores import Pairs
from cocos.losses import Loss

__all__ = ["MaxSim", "carriers", "gradients", "score", "statistics"]

# Maximum number of token similarities in memory at once: 64 MiB in float32.
MAX_SIMILARITIES = 2**24


@dataclass(frozen=True, eq=False)
class MaxSim:
    """Scores of documents, and which of their tokens was chosen.

    Args:
        query: (Q, T, D) unit vectors of the tokens, 0 where there is none.
        candidate: (C, U, D) likewise.
        scores: (Q, C).
        chosen: (Q, C, T) place of the token of the document that each token of the query chose, the first of equals; -1
            where the query has no token.
        query_norm: (Q, T) lengths of the raw vectors, 1 where there is none.
        candidate_norm: (C, U) likewise.
        candidate_mask: (C, U) bool, where there is a token.
    """

    query: Tensor
    candidate: Tensor
    scores: Tensor
    chosen: Tensor
    query_norm: Tensor
    candidate_norm: Tensor
    candidate_mask: Tensor


def _prepared(name: str, tokens: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Unit vectors, their lengths, and the mask of one side."""
    if tokens.ndim != 3 or 0 in tokens.shape or not tokens.is_floating_point():
        raise InputError(
            f"{name}: {tokens.dtype} of shape {tuple(tokens.shape)}, expected floating point (rows, tokens, dimensions)"
        )
    mask = tokens.new_ones(tokens.shape[:2], dtype=torch.bool) if mask is None else mask
    shape = tuple(tokens.shape[:2])
    if mask.shape != shape or mask.dtype != torch.bool:
        raise InputError(
            f"{name}_mask: {mask.dtype} of shape {tuple(mask.shape)}, expected bool of shape {shape}, True at a token"
        )
    mask = mask.to(tokens.device)
    found = torch.where(mask[..., None], tokens, 0)
    norm = found.norm(dim=2)
    for wrong, what in (
        (~mask.any(dim=1), "no token"),
        (~found.isfinite().all(dim=2).all(dim=1), "NaN or infinity"),
        ((mask & (norm == 0)).any(dim=1), "a zero vector, whose cosine is not defined,"),
    ):
        if wrong.any():
            raise InputError(f"{name}: {what} in {rows(wrong.nonzero().flatten().tolist())}")
    norm = torch.where(mask, norm, 1)
    return found / norm[..., None], norm, mask


def score(
    query: Tensor, candidate: Tensor, query_mask: Tensor | None = None, candidate_mask: Tensor | None = None
) -> MaxSim:
    """Score queries with documents by their tokens; the gradient flows through the chosen ones.

    Args:
        query: (Q, T, D) vectors of tokens, of any length: cosines are taken, as in ColBERT.
        candidate: (C, U, D) likewise.
        query_mask: (Q, T) bool, True where there is a token; None: everywhere.
        candidate_mask: (C, U) bool likewise.

    Raises:
        InputError: a tensor that does not fit, NaN or infinity, a row without a token, or a zero vector.

    Examples:
        The first document has both tokens of the query, the second has one of them twice:

        >>> east, north = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
        >>> query = torch.stack([east, north])[None]
        >>> candidate = torch.stack([torch.stack([north, east]), torch.stack([east, east])])
        >>> found = cocos.maxsim.score(query, candidate)
        >>> found.scores, found.chosen.tolist()
        (tensor([[2., 1.]]), [[[1, 0], [0, 0]]])
        >>> pairs = cocos.Pairs(found.scores, torch.tensor([[True, False]]))
        >>> cocos.losses.load("ntxent", {"temperature": 1})(pairs)  # log(1 + 1/e)
        tensor([0.3133])
    """
    query, query_norm, query_mask = _prepared("query", query, query_mask)
    candidate, candidate_norm, candidate_mask = _prepared("candidate", candidate, candidate_mask)
    if query.shape[2] != candidate.shape[2]:
        raise InputError(
            f"query tokens have {query.shape[2]} dimensions and candidate tokens {candidate.shape[2]}, expected as many"
        )
    step = max(1, MAX_SIMILARITIES // (math.prod(query.shape[:2]) * candidate.shape[1]))
    scores, chosen = [], []
    for part, there in zip(candidate.split(step), candidate_mask.split(step), strict=True):
        similarity = torch.einsum("qtd,cud->qctu", query, part).masked_fill(~there[None, :, None], -torch.inf)
        place = similarity.detach().eq(similarity.detach().amax(dim=3, keepdim=True)).byte().argmax(dim=3)
        best = similarity.gather(3, place[..., None])[..., 0]
        scores.append(best.sum(dim=2))  # a token that is not there is a zero vector: 0 with every other
        chosen.append(place.masked_fill(~query_mask[:, None], -1))
    whole = torch.cat(scores, dim=1), torch.cat(chosen, dim=1)
    return MaxSim(query, candidate, *whole, query_norm, candidate_norm, candidate_mask)


def carriers(found: MaxSim) -> Tensor:
    """Number of tokens of each document that carry its weight to the encoder, (Q, C): those that a query token chose.

    Examples:
        Two tokens of a query may choose one token of a document:

        >>> tokens = torch.eye(3)
        >>> found = cocos.maxsim.score(tokens[None, :2], torch.stack([tokens[[0, 1]], tokens[[0, 2]]]))
        >>> cocos.maxsim.carriers(found)
        tensor([[2, 1]])
    """
    ordered = found.chosen.sort(dim=2).values
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    return (fresh & (ordered >= 0)).sum(dim=2)


def gradients(found: MaxSim, weights: Tensor) -> tuple[Tensor, Tensor]:
    """∂ Σ loss / ∂ raw token vectors of both sides, (Q, T, D) and (C, U, D), from the weights of the documents.

    Args:
        found: of `score`.
        weights: (Q, C) of a loss of the scores.

    Examples:
        A document that is pushed by 1 hands it to one of its tokens:

        >>> tokens = torch.eye(3)
        >>> found = cocos.maxsim.score(tokens[None, :1], (tokens[[0, 1]] + 0.5)[None])
        >>> [bool(row.any()) for row in cocos.maxsim.gradients(found, torch.ones(1, 1))[1][0]]
        [True, False]
    """
    there, width = found.chosen >= 0, found.query.shape[2]
    place = found.chosen.clamp(min=0)
    of_query, of_candidate = torch.zeros_like(found.query), torch.zeros_like(found.candidate)
    for c in range(len(found.candidate)):  # one document at a time: (Q, C, T, D) would not fit
        part = torch.where(there[:, c], weights[:, c, None], 0)[..., None]
        of_query += part * found.candidate[c][place[:, c]]
        of_candidate[c].index_add_(0, place[:, c].flatten(), (part * found.query).reshape(-1, width))
    return (
        _tangential(of_query, found.query, found.query_norm),
        _tangential(of_candidate, found.candidate, found.candidate_norm),
    )


def _tangential(gradient: Tensor, unit: Tensor, norm: Tensor) -> Tensor:
    """Jacobian of x / |x| on the gradient of the unit vectors."""
    return (gradient - (gradient * unit).sum(dim=2, keepdim=True) * unit) / norm[..., None]


def statistics(found: MaxSim, loss: Loss, positive: Tensor, eps: float = 0.01) -> dict[str, Tensor]:
    """Count the contributing negatives of each query, and the tokens that carry the gradient of these and of positives.

    Args:
        found: of `score`.
        loss: of the scores; the sum over T tokens of a query is up to T, so that a temperature is T times that of a
            mean of cosines.
        positive: (Q, C) bool; the other documents are negatives.
        eps: smallest share that contributes.

    Returns:
        (Q,) each, NaN where there is none: `contributing` negatives; `negative_tokens` and `positive_tokens`, means
        over the contributing negatives and over the positives of the tokens that carry their gradient, and `_part`, in
        parts of their tokens.

    Examples:
        Both documents push and pull through the one token that the query token chose, of two and of three:

        >>> tokens = torch.eye(4)
        >>> candidate, mask = torch.stack([tokens[:3], tokens[1:]]), torch.tensor([[True, True, False], [True] * 3])
        >>> found = cocos.maxsim.score(tokens[None, :1], candidate, candidate_mask=mask)
        >>> ntxent = cocos.losses.load("ntxent", {"temperature": 1})
        >>> told = cocos.maxsim.statistics(found, ntxent, torch.tensor([[True, False]]))
        >>> told["negative_tokens"], told["negative_tokens_part"], told["positive_tokens_part"]
        (tensor([1.]), tensor([0.3333]), tensor([0.5000]))
    """
    pairs = Pairs(found.scores.detach(), positive)
    weights = weights_of(loss, pairs)
    share = weights.abs() / unit_of(loss, weights, pairs)
    contributing = (share > eps) & pairs.negative
    carrying, tokens = carriers(found).to(weights.dtype), found.candidate_mask.sum(dim=1)
    told: dict[str, Tensor] = {"contributing": contributing.sum(dim=1)}
    if share.isnan().any():  # of a loss of unknown unit
        told["contributing"] = torch.full_like(share[:, 0], torch.nan)
    for name, mask in (("negative", contributing), ("positive", positive)):
        number = mask.sum(dim=1)
        for end, values in (("", carrying), ("_part", carrying / tokens)):
            mean = torch.where(mask, values, 0).sum(dim=1) / number
            told[f"{name}_tokens{end}"] = torch.where(number > 0, mean, torch.nan)
    return told
