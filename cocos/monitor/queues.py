"""Candidates of a module that are rows of its queue."""

import functools
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from cocos.embeddings.sources import IN_BATCH, QUEUE
from cocos.monitor.calls import Seen

# Names of a queue in a module, and of its write position: MoCo, lightly, pytorch-metric-learning.
POINTED = (("queue", "queue_ptr"), ("bank", "bank_ptr"), ("embedding_memory", "queue_idx"))


def marked(seen: Seen, number: int) -> Seen:
    """Mark the last `number` candidates as rows of a queue; a direction with fewer, or with positives there, stays."""
    rest = seen.scores.shape[1] - number
    if rest < 0 or bool(seen.positive[:, rest:].any()):  # a direction in which the queue is no candidate
        return seen
    sources = torch.full_like(seen.positive, IN_BATCH, dtype=torch.int8) if seen.sources is None else seen.sources
    sources = torch.cat([sources[:, :rest], torch.full_like(sources[:, rest:], QUEUE)], dim=1)
    return replace(seen, sources=sources)


def of_module(module: torch.nn.Module) -> Callable[[], int] | None:
    """Return a function that counts the rows of the module's queue; None if it has none with a write position.

    Examples:
        >>> module = torch.nn.Module()
        >>> module.queue, module.queue_ptr = torch.zeros(8, 6), 0  # MoCo stores rows as columns
        >>> from cocos.monitor import queues
        >>> queues.of_module(module)()
        6
    """
    for own in module.modules():
        for name, pointer in POINTED:
            if isinstance(getattr(own, name, None), Tensor) and getattr(own, pointer, None) is not None:
                return functools.partial(_length, own, name, 0 if pointer == "queue_idx" else -1)
    return None


def _length(module: torch.nn.Module, name: str, axis: int) -> int:
    return int(getattr(module, name).shape[axis])
