"""Train two small heads on fixed features: the same weights and batches for every loss of a seed."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from analysis.study.plan import EVERY, Trial
from analysis.study.tasks import Split, Task
from cocos import losses

__all__ = ["WIDTH", "Heads", "as_many", "effective", "negatives", "trained"]

WIDTH, DECAY, WARM_UP = 64, 0.05, 0.1  # embedding width; of AdamW and its one cycle, as in train_example.py
SOLVED_EVERY, BISECTIONS, TEMPERATURES = 3, 14, (0.002, 10.0)  # of the effective number that is held


class Heads(nn.Module):
    """Linear layers, or networks of one hidden layer, for queries and for candidates; the rows are unit vectors."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        split = task.splits["train"]
        self.query, self.candidate = (_head(x.shape[-1], task.hidden) for x in (split.query, split.candidate))

    def forward(self, query: Tensor, candidate: Tensor) -> tuple[Tensor, Tensor]:
        """Embed features (..., F) and (..., G) as unit vectors (..., 64)."""
        both = self.query(query), self.candidate(candidate)
        first, second = (nn.functional.normalize(each, dim=-1) for each in both)
        return first, second


def _head(features: int, hidden: int) -> nn.Module:
    if not hidden:
        return nn.Linear(features, WIDTH)
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, WIDTH))


def _batches(split: Split, size: int, steps: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Items of each step, (B,), no item twice in a batch, and which of its candidates each brings, (B,)."""
    left = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(left) < size:
            left = torch.randperm(len(split.query), generator=generator)
        rows, left = left[:size], left[size:]
        yield rows, torch.randint(split.candidate.shape[1], (size,), generator=generator)


def effective(scores: Tensor, negative: Tensor, temperature: float) -> Tensor:
    """Effective number of negatives of NT-Xent, mean over the queries, (): exp of the entropy of their softmax."""
    part = (scores / temperature).masked_fill(~negative, -torch.inf).softmax(dim=1)
    return torch.special.entr(part).sum(dim=1).exp().mean()


def _solved(scores: Tensor, negative: Tensor, k: int) -> float:
    """Temperature at which the effective number of negatives, the mean of both directions, is k."""
    low, high = (torch.tensor(each).log().item() for each in TEMPERATURES)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        at = torch.tensor(middle).exp().item()
        number = sum(effective(each, mask, at).item() for each, mask in ((scores, negative), (scores.T, negative.T)))
        low, high = (middle, high) if number < 2 * k else (low, middle)
    return torch.tensor((low + high) / 2).exp().item()


def _kept(scores: Tensor, negative: Tensor, trial: Trial, generator: torch.Generator) -> Tensor:
    """The k hardest, or k random, negatives of each query, (B, B) bool."""
    order = scores.detach() if trial.arm == "hard" else torch.rand(scores.shape, generator=generator)
    chosen = order.masked_fill(~negative, -torch.inf).topk(trial.k, dim=1).indices
    return torch.zeros_like(negative).scatter_(1, chosen, True)


def as_many(alike: Tensor, negative: Tensor, generator: torch.Generator) -> Tensor:
    """As many random negatives of each query as it has look-alikes, (B, B) bool."""
    order = torch.rand(negative.shape, generator=generator).masked_fill(~negative, 2.0)
    rank = order.argsort(dim=1).argsort(dim=1)
    return negative & (rank < alike.sum(dim=1, keepdim=True))


def negatives(
    scores: Tensor, negative: Tensor, alike: Tensor | None, trial: Trial, generator: torch.Generator
) -> Tensor:
    """Negatives of a direction that take part in a step, (B, B) bool."""
    if trial.mask == "look_alikes":
        return negative & ~alike
    if trial.mask == "random":
        return negative & ~as_many(alike, negative, generator)
    if trial.arm in {"hard", "random"} and trial.k < EVERY:
        return _kept(scores, negative, trial, generator)
    return negative


def trained(trial: Trial, task: Task) -> Iterator[tuple[int, Heads, losses.Loss]]:
    """Train, and yield at each checkpoint the step, the model and the loss, whose temperature a trial may move."""
    batches, choice = (torch.Generator().manual_seed(trial.seed + more) for more in (0, 1_000_000))
    torch.manual_seed(trial.seed)
    model, loss = Heads(task), losses.load(trial.loss, trial.parameters)
    optimiser = torch.optim.AdamW(model.parameters(), lr=trial.rate, weight_decay=DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, trial.rate, total_steps=task.steps, pct_start=WARM_UP)
    split, positive = task.splits["train"], torch.eye(trial.batch_size, dtype=torch.bool)
    for step, (rows, columns) in enumerate(_batches(split, trial.batch_size, task.steps, batches), start=1):
        query, candidate = model(split.query[rows], split.candidate[rows, columns])
        scores, value = query @ candidate.T, 0.0
        alike = split.look_alikes(rows, columns) if trial.mask in {"look_alikes", "random"} else None
        if trial.arm == "held" and step % SOLVED_EVERY == 1:
            temperature = _solved(scores.detach(), ~positive, trial.k)
            loss = losses.load("ntxent", {"temperature": temperature})
        for own, mask in ((scores, alike), (scores.T, None if alike is None else alike.T)):
            negative = negatives(own, ~positive, mask, trial, choice)
            value = value + loss(own, positive, negative).mean() / 2
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        schedule.step()
        if step in task.checkpoints:
            yield step, model, loss
