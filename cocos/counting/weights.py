"""Weights of a loss, ∂ Σ loss / ∂ score, from three independent sides, and the gap between them."""

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.embeddings.scores import Pairs
from cocos.embeddings.sources import DIRECTIONS
from cocos.losses import Bindable, Loss, UnitOfWeights, has_closed_form, has_weight, name_of, traits

__all__ = ["analytic", "autograd", "autograd_radial", "bound", "check_pairs", "finite_difference", "gap", "of", "unit"]


def analytic(loss: Loss, pairs: Pairs) -> Tensor:
    """Closed form of the weights, (Q, C).

    Raises:
        TypeError: the loss has no closed form.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.analytic(cocos.losses.load("triplet"), pairs)
        tensor([[-1.,  1.,  0.]])
    """
    if not has_closed_form(loss):
        raise TypeError(f"{type(loss).__name__} has no closed form (no method `weight`): use cocos.weights.autograd")
    return loss.weight(pairs)


def of(loss: Loss, pairs: Pairs) -> Tensor:
    """Weights as they are counted, (Q, C): those that the loss computes itself, else by autograd.

    A foreign loss computes its own, since torch.func may refuse its code; they may be influences.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.of(cocos.losses.load("triplet"), pairs)
        tensor([[-1.,  1.,  0.]])
    """
    return loss.weight(pairs) if has_weight(loss) else autograd(loss, pairs)


def autograd(loss: Loss, pairs: Pairs) -> Tensor:
    """Derivative of the summed loss with respect to the scores, by automatic differentiation, (Q, C).

    By torch.func.grad, so that it can be batched; by torch.autograd where the loss is foreign code, which torch.func
    may refuse.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.autograd(cocos.losses.load("triplet"), pairs)
        tensor([[-1.,  1.,  0.]])
    """

    def total(scores: Tensor) -> Tensor:
        return loss(pairs.with_scores(scores)).sum()

    if traits(loss).gradient != "autograd":
        return cast(Tensor, torch.func.grad(total)(pairs.scores.detach()))
    with torch.enable_grad():
        scores = pairs.scores.detach().clone().requires_grad_()
        (found,) = torch.autograd.grad(total(scores), scores, allow_unused=True, materialize_grads=True)
    return torch.where(pairs.positive | pairs.negative, found, 0)


def unit(loss: Loss, weights: Tensor, pairs: Pairs) -> Tensor:
    """Natural size of one weight, broadcastable to (Q, C), of weights that are known already.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> ntxent = cocos.losses.load("ntxent")
        >>> cocos.weights.unit(ntxent, ntxent.weight(pairs), pairs)
        tensor([[10.]])
    """
    return loss.unit_of(weights, pairs) if isinstance(loss, UnitOfWeights) else loss.unit(pairs)


def bound(loss: Loss, pairs: Pairs) -> Loss:
    """Settle a loss by a first batch; most losses have nothing to settle.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.bound(cocos.losses.load("ntxent"), pairs)
        NTXent(temperature=0.1)
    """
    return loss.bind(pairs) if isinstance(loss, Bindable) else loss


def autograd_radial(loss: Loss, pairs: Pairs) -> Tensor:
    """∂ Σ loss / ∂ norm of each query, the scores fixed, by torch.func.grad, (Q,); 0 for losses that read no norm.

    Raises:
        TypeError: the pairs have no query norms.

    Examples:
        NT-Xent reads no norm; the margin of MagFace grows with it, and so does its loss:

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

    return cast(Tensor, torch.func.grad(total)(pairs.query_norm.detach()))


def finite_difference(loss: Loss, pairs: Pairs, step: float = 1e-6) -> Tensor:
    """Central differences of the summed loss in float64, (Q, C); needs memory for 2·(Q·C)² scores.

    Stop-gradient and pseudo-gradient losses differ from it by design.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.finite_difference(cocos.losses.load("triplet"), pairs).round(decimals=3)
        tensor([[-1.,  1.,  0.]], dtype=torch.float64)
    """
    scores = pairs.scores.detach().to(torch.float64)
    norms: dict[str, Any] = {
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


def gap(loss: Loss, pairs: Pairs) -> float:
    """Largest |analytic - autograd|, in units of weight.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.gap(cocos.losses.load("ntxent"), pairs) < 1e-5
        True
    """
    return (analytic(loss, pairs) - autograd(loss, pairs)).abs().max().item()


def check_pairs(loss: Loss, measure: str, *, teacher: bool = True, graded: bool = False) -> None:
    """Refuse a loss that reads more than the scores of queries with candidates, for measures that place each weight.

    Args:
        loss: the loss.
        measure: its name, for the message.
        teacher: whether the measure has the scores of a teacher, where the embeddings have them.
        graded: whether the embeddings have grades, so that a weight may be of the score of a graded pair.

    Raises:
        InputError: naming what else it reads.

    Examples:
        >>> cocos.weights.check_pairs(cocos.losses.load("ntxent"), "decomposition")
    """
    read = traits(loss)
    further = [f"{name} scores" for name in read.directions if name != DIRECTIONS[0]]
    further += [] if teacher else [f"the {name}" for name in read.requires]
    further += ["the scores of other graded pairs"] if graded and read.graded else []
    if further:
        raise InputError(
            f"loss {name_of(loss)}: it also reads {' and '.join(further)}, for which {measure} has no place; "
            "use `cocos count` instead"
        )
