"""A loss is called with Pairs, or in a training loop with the tensors that make them."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from torch import Tensor

from cocos.base.errors import InputError
from cocos.embeddings.scores import Pairs

Class = TypeVar("Class", bound=type)


def pairs_of_tensors(
    scores: Any,
    positive: Tensor | None = None,
    negative: Tensor | None = None,
    *,
    candidate_group: Tensor | None = None,
    query_norm: Tensor | None = None,
    candidate_norm: Tensor | None = None,
    embeddings: Any = None,
    teacher: Tensor | None = None,
    source: Tensor | None = None,
    logq: Tensor | None = None,
) -> Pairs:
    """Make the Pairs of a call `loss(scores, positive, negative)`; see `cocos.Pairs` for the arguments.

    Examples:
        >>> pairs_of_tensors(torch.tensor([[0.8, 0.7]]), torch.tensor([[True, False]]))
        Pairs(scores=(1, 2), float32 on cpu, 1 positive, 1 negative)
    """
    if positive is None:
        raise InputError(
            "positive: missing; a loss is called with Pairs, or with (scores, positive, negative), where positive is "
            "torch.eye(len(scores), dtype=torch.bool, device=scores.device) if query i matches candidate i alone"
        )
    fields = candidate_group, query_norm, candidate_norm, embeddings, teacher, source, logq
    return Pairs(scores, positive, cast(Tensor, negative), *fields)


def _taking_tensors(plain: Callable[[Any, Pairs], Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(plain)
    def call(self: Any, pairs: Any = None, *tensors: Tensor | None, **named: Tensor | None) -> Tensor:
        if isinstance(pairs, Pairs):
            if tensors or named:
                raise InputError("loss(pairs): masks and norms are part of the Pairs, and nothing is given beside them")
            return plain(self, pairs)
        return plain(self, pairs_of_tensors(named.pop("scores", None) if pairs is None else pairs, *tensors, **named))

    call.takes_tensors = True  # type: ignore[attr-defined]
    return call


def takes_tensors(cls: Class) -> Class:
    """Let instances of a class of losses be called with `(scores, positive, negative)` too, in place.

    The class defines `__call__(pairs)`, which stays as it is for Pairs.

    Examples:
        >>> loss = cocos.losses.load("triplet", {"margin": 0.25})
        >>> scores = torch.tensor([[0.75, 0.75, 0.0]], requires_grad=True)
        >>> loss(scores, torch.tensor([[True, False, False]])).mean().backward()
        >>> scores.grad
        tensor([[-1.,  1.,  0.]])
    """
    plain: Any = cls.__call__
    if not getattr(plain, "takes_tensors", False):
        cls.__call__ = _taking_tensors(plain)  # type: ignore[method-assign]
    return cls
