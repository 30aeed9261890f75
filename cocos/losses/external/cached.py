"""Gradient caching: a loss of a whole batch whose encoder keeps the activations of one chunk at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cocos.base.errors import InputError
from cocos.losses.external.sides import Sides, sides

Encoder = Callable[[Any], Tensor]


def _number(inputs: Any) -> int:
    """Rows of the inputs of an encoder: the length of a tensor or a list, or of the first one inside."""
    if isinstance(inputs, Mapping):
        return _number(next(iter(inputs.values()))) if inputs else 0
    if isinstance(inputs, tuple):
        return _number(inputs[0]) if inputs else 0
    return len(inputs)


def _cut(inputs: Any, rows: slice) -> Any:
    """Some rows of tensors, lists, or dicts and tuples of such; anything else as it is."""
    if isinstance(inputs, Mapping):
        return {name: _cut(each, rows) for name, each in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(_cut(each, rows) for each in inputs)
    return inputs[rows] if isinstance(inputs, Tensor | list) else inputs


@dataclass(frozen=True, eq=False)
class Cached:
    """A loss whose encoders run chunk by chunk; see `cached`.

    Args:
        loss: the loss of a batch of embeddings.
        chunk: rows of one side that are encoded at once.
    """

    loss: Sides
    chunk: int

    def __post_init__(self) -> None:
        if not isinstance(self.chunk, Integral) or isinstance(self.chunk, bool) or self.chunk < 1:
            raise InputError(f"cached({self.loss.name}): chunk: {self.chunk!r}, expected a whole number of at least 1")

    def encode(self, encoder: Encoder, inputs: Any) -> Tensor:
        """Embeddings of all inputs, (N, D), with the activations of no chunk kept: backward computes them again.

        Raises:
            InputError: there are no inputs.
        """
        number = _number(inputs)
        if not number:
            raise InputError(f"cached({self.loss.name}): no inputs to encode")
        parts = []
        for start in range(0, number, int(self.chunk)):
            part = _cut(inputs, slice(start, start + int(self.chunk)))
            parts.append(checkpoint(encoder, part, use_reentrant=False, preserve_rng_state=True))
        return torch.cat(parts)

    def __call__(
        self,
        query: tuple[Encoder, Any],
        candidate: tuple[Encoder, Any],
        negatives: tuple[Encoder, Any] | None = None,
    ) -> Tensor:
        """Mean of the loss over the queries, ().

        Args:
            query: the encoder of the queries, and their inputs.
            candidate: likewise, of as many candidates.
            negatives: likewise, of the hard negatives, K for each query, query by query.

        Raises:
            InputError: the numbers of rows do not fit together.
        """
        asking, asked = self.encode(*query), self.encode(*candidate)
        if len(asking) != len(asked):
            raise InputError(
                f"cached({self.loss.name}): {len(asking)} queries and {len(asked)} candidates, not as many"
            )
        if negatives is None:
            return self.loss(asking, asked)
        hard = self.encode(*negatives)
        if len(hard) % len(asking):
            raise InputError(
                f"cached({self.loss.name}): {len(hard)} hard negatives for {len(asking)} queries, expected K for each"
            )
        return self.loss(asking, asked, hard.unflatten(0, (len(asking), -1)))


def cached(loss: Any, chunk: int) -> Cached:
    """Train on batches that do not fit in memory: gradient caching, with the gradient of the whole batch.

    The encoders run in chunks whose activations are not kept; the loss sees the embeddings of the whole batch, and
    `backward()` encodes each chunk again, with the same random numbers and under the same autocast, to pass its part
    of the gradient on. It costs a second forward pass. An encoder that mixes the rows of a batch, as batch
    normalisation does in training, sees chunks in place of batches, and its running statistics are updated twice.

    Args:
        loss: a loss, its name, or a function of (query, candidate) or (query, candidate, negatives).
        chunk: rows of one side that are encoded at once, at least 1.

    Raises:
        InputError: a loss or a number that cannot be used.

    Source: Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup",
    arXiv:2101.06983, section 3.

    Examples:
        >>> loss = cocos.losses.cached("ntxent", chunk=2)
        >>> tower, images, texts = torch.nn.Linear(3, 2), torch.randn(5, 3), torch.randn(5, 3)
        >>> loss((tower, images), (tower, texts)).backward()
        >>> tower.weight.grad.shape
        torch.Size([2, 3])
    """
    return Cached(sides(loss), chunk)
