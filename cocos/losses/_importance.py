"""Negatives that are weighted by their hardness, as the softmax of β s / τ, and the gradient that flows through it."""

import torch
from torch import Tensor

from cocos.embeddings.scores import softmax


def log_sum(logits: Tensor, negative: Tensor, beta: float) -> Tensor:
    r"""Log of :math:`|N| \sum_{n \in N} r_n e^{z_n}` with :math:`r = \mathrm{softmax}_N(\beta z)`, (Q, 1).

    It is 0 for a query without negatives.
    """
    number = negative.sum(dim=1, keepdim=True)
    some = number > 0
    hard, weighted = ((power * logits).masked_fill(~negative & some, -torch.inf).logsumexp(1, keepdim=True)
                      for power in (beta, 1 + beta))  # fmt: skip
    return number.clamp(min=1).to(logits.dtype).log() + torch.where(some, weighted - hard, 0)


def slopes(logits: Tensor, negative: Tensor, beta: float) -> Tensor:
    r"""Derivative of `log_sum` by the logits, (Q, C): :math:`(1 + \beta) \mathrm{softmax}_N((1 + \beta) z) - \beta r`.

    Each row with a negative sums to 1; an easy negative has a slope below zero.
    """
    soft, hard = (softmax(power * logits, negative) for power in (1 + beta, beta))
    return (1 + beta) * soft - beta * hard
