"""Weights of a loss, ∂ Σ loss / ∂ score, from three independent sides, and the gap between them."""

from dataclasses import replace

import torch
from torch import Tensor

from cocos.scores import Pairs

__all__ = ["analytic", "autograd", "autograd_radial", "finite_difference", "gap", "of"]


def analytic(loss, pairs: Pairs) -> Tensor:
    """The loss's own closed form, (Q, C).

    Raises:
        TypeError: the loss has no closed form.

    Examples:
        >>> import cocos, torch
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.analytic(cocos.losses.load("triplet"), pairs)
        tensor([[-1.,  1.,  0.]])
    """
    if not callable(getattr(loss, "weight", None)):
        raise TypeError(f"{type(loss).__name__} has no closed form (no method `weight`): use cocos.weights.autograd")
    return loss.weight(pairs)


def of(loss, pairs: Pairs) -> Tensor:
    """The weights of a loss, (Q, C): its closed form where it has one, autograd where not.

    Examples:
        >>> import cocos, torch
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.of(cocos.losses.load("triplet"), pairs)
        tensor([[-1.,  1.,  0.]])
    """
    return (analytic if callable(getattr(loss, "weight", None)) else autograd)(loss, pairs)


def autograd(loss, pairs: Pairs) -> Tensor:
    """The gradient that training uses, by torch.func.grad, (Q, C); as they find it themselves, for losses of others.

    Examples:
        >>> import cocos, torch
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.autograd(cocos.losses.load("triplet"), pairs)
        tensor([[-1.,  1.,  0.]])
    """
    own = getattr(loss, "gradient", "") == "autograd" and getattr(loss, "weights", "score") == "score"
    if own and callable(getattr(loss, "weight", None)):
        return loss.weight(pairs)
    return torch.func.grad(lambda scores: loss(pairs.with_scores(scores)).sum())(pairs.scores.detach())


def autograd_radial(loss, pairs: Pairs) -> Tensor:
    """∂ Σ loss / ∂ norm of each query, the scores held, by torch.func.grad, (Q,); 0 for losses that read no norm.

    Raises:
        TypeError: the pairs have no query norms.

    Examples:
        NT-Xent reads no norm; the margin of MagFace grows with it, and so does its loss:

        >>> import cocos, torch
        >>> scores, positive = torch.tensor([[0.8, 0.7]]), torch.tensor([[True, False]])
        >>> pairs = cocos.Pairs(scores, positive, query_norm=torch.tensor([20.0]))
        >>> cocos.weights.autograd_radial(cocos.losses.load("ntxent"), pairs)
        tensor([0.])
        >>> bool(cocos.weights.autograd_radial(cocos.losses.load("magface"), pairs) > 0)
        True
    """
    if pairs.query_norm is None:
        raise TypeError("pairs.query_norm is None: give the norms of the queries")

    def total(norm: Tensor) -> Tensor:
        return loss(pairs.with_scores(pairs.scores, norm)).sum()

    return torch.func.grad(total)(pairs.query_norm.detach())


def finite_difference(loss, pairs: Pairs, step: float = 1e-6) -> Tensor:
    """Central differences of the summed loss in float64, (Q, C); holds 2·(Q·C)² scores, for small batches.

    Stop-gradient and pseudo-gradient losses differ from it by design.

    Examples:
        >>> import cocos, torch
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.finite_difference(cocos.losses.load("triplet"), pairs).round(decimals=3)
        tensor([[-1.,  1.,  0.]], dtype=torch.float64)
    """
    scores = pairs.scores.detach().to(torch.float64)
    norms = {
        name: None if (value := getattr(pairs, name)) is None else value.to(torch.float64)
        for name in ("query_norm", "candidate_norm")
    }
    pairs = replace(pairs, scores=scores, **norms)
    change = step * torch.eye(scores.numel(), dtype=scores.dtype, device=scores.device).reshape(-1, *scores.shape)

    def total(scores: Tensor) -> Tensor:
        return loss(pairs.with_scores(scores)).sum()

    moved = torch.cat([scores + change, scores - change])
    try:
        values = torch.func.vmap(total)(moved)
    except Exception:  # code of others need not run under vmap: it may branch on its numbers, or draw some
        values = torch.stack([total(one) for one in moved])
    up, down = values.chunk(2)
    return ((up - down) / (2 * step)).reshape(scores.shape)


def gap(loss, pairs: Pairs) -> float:
    """Largest |analytic - autograd|, in units of weight.

    Examples:
        >>> import cocos, torch
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.gap(cocos.losses.load("ntxent"), pairs) < 1e-5
        True
    """
    return (analytic(loss, pairs) - autograd(loss, pairs)).abs().max().item()
