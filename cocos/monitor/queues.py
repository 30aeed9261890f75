"""How many steps ago the rows of a queue in a training loop were computed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.embeddings.sources import IN_BATCH, QUEUE
from cocos.monitor.calls import Seen

# Names of a queue in a module, and of the place at which it is written next: MoCo, lightly, pytorch-metric-learning.
POINTED = (("queue", "queue_ptr"), ("bank", "bank_ptr"), ("embedding_memory", "queue_idx"))


def aged(seen: Seen, ages: Any) -> Seen:
    """The same with the ages of the last candidates, where there are as many; a direction without them stays."""
    if ages is None:
        return seen
    found = torch.as_tensor(ages, device=seen.scores.device)
    if found.ndim != 1 or found.is_floating_point() or found.dtype == torch.bool or bool((found < 0).any()):
        raise InputError(f"ages: {found.dtype} of shape {tuple(found.shape)}, expected whole numbers of steps, (K,)")
    rest = seen.scores.shape[1] - len(found)
    if rest < 0 or bool(seen.positive[:, rest:].any()):  # a direction in which the queue is no candidate
        return seen
    sources = torch.full_like(seen.positive, IN_BATCH, dtype=torch.int8) if seen.sources is None else seen.sources
    sources = torch.cat([sources[:, :rest], torch.full_like(sources[:, rest:], QUEUE)], dim=1)
    return replace(seen, ages=torch.cat([found.new_full((rest,), -1), found]), sources=sources)


def pointed(module: torch.nn.Module) -> Callable[[], Tensor | None] | None:
    """Ages of a queue that the module writes in turn, from the place at which it is written next; None without one.

    To be called before each call of the module. The rows between two places were written in the call between them, or
    in turn in the calls; they are known once the place has moved.

    Examples:
        >>> module = torch.nn.Module()
        >>> module.queue, module.queue_ptr = torch.zeros(8, 6), 0  # 6 rows
        >>> from cocos.monitor import queues
        >>> ages = queues.pointed(module)
        >>> ages()
        >>> module.queue_ptr = 2
        >>> ages()
        tensor([1, 1, 3, 3, 2, 2])
    """
    for own in module.modules():
        for rows, place in POINTED:
            if isinstance(getattr(own, rows, None), Tensor) and getattr(own, place, None) is not None:
                return _Pointed(own, rows, place)
    return None


class _Pointed:
    """The ages of the rows of one queue, from the places at which it was written."""

    def __init__(self, module: torch.nn.Module, rows: str, place: str):
        self.module, self.rows, self.place = module, rows, place
        self.last: int | None = None
        self.step = 0  # rows that a call writes

    def __call__(self) -> Tensor | None:
        held, at = getattr(self.module, self.rows), int(torch.as_tensor(getattr(self.module, self.place)))
        number = held.shape[0] if self.place == "queue_idx" else held.shape[-1]  # those of MoCo lie in columns
        if self.last is not None and at != self.last:
            self.step = (at - self.last) % number
        self.last = at
        if not self.step:
            return None
        behind = (at - 1 - torch.arange(number)) % number  # rows that were written since
        return torch.div(behind, self.step, rounding_mode="floor") + 1
