"""Train the arms of a cell side by side: one stack of weights, the same batches, and a temperature for each arm."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from analysis.hold_study.plan import AFTER, Arm, Stack
from analysis.hold_study.tasks import Split, Task
from cocos.monitor.hold import EVERY, usual

__all__ = ["Heads", "Trained", "effective", "head", "losses_of", "solved", "trained"]

# Weight decay of AdamW, and part of the steps in which the learning rate of its one cycle rises, as in the first study.
DECAY, WARM_UP = 0.05, 0.1
# Axes of the negatives: of rows and of columns; both directions of cross-example softmax are one sum over the batch,
# of which `cocos.Hold` reads the rows.
WAYS = {"ntxent": (-1, -2), "ce_softmax": (-1,)}
# Temperatures between which one is searched, and halvings of their logarithms: the last bracket is 2e-9 wide.
ENDS, HALVINGS = (1e-3, 1e2), 32


def head(features: int, hidden: int, width: int) -> nn.Module:
    """A linear layer, or a network with one hidden layer."""
    if not hidden:
        return nn.Linear(features, width)
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, width))


class Heads:
    """Weights of R equal heads for queries, and of R for candidates.

    Args:
        task: tells the features and the hidden layer.
        width: dimensions of the embeddings.
        number: R.
    """

    def __init__(self, task: Task, width: int, number: int):
        split = task.splits["train"]
        self._sides = []
        for features in (split.query.shape[-1], split.candidate.shape[-1]):
            layers = [each for each in head(features, task.hidden, width).modules() if isinstance(each, nn.Linear)]
            stacked = [(each.weight.T, each.bias[None]) for each in layers]  # (features, width), (1, width)
            self._sides.append([[nn.Parameter(x.detach().repeat(number, 1, 1)) for x in pair] for pair in stacked])

    def parameters(self) -> list[nn.Parameter]:
        """Weights and biases, (R, ., .) each."""
        return [each for side in self._sides for pair in side for each in pair]

    def __call__(self, *rows: Tensor) -> list[Tensor]:
        """Unit vectors (R, N, D) of queries (N, F) and of candidates (N, G)."""
        made = []
        for features, side in zip(rows, self._sides, strict=True):
            out = features
            for place, (weight, bias) in enumerate(side):
                out = torch.baddbmm(bias, (out.relu() if place else out).expand(len(weight), -1, -1), weight)
            made.append(nn.functional.normalize(out, dim=-1))
        return made


def batches(split: Split, size: int, steps: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Items of each step, (B,), no item twice in a batch, and which of its candidates each brings, (B,)."""
    left = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(left) < size:
            left = torch.randperm(len(split.query), generator=generator)
        rows, left = left[:size], left[size:]
        yield rows, torch.randint(split.candidate.shape[1], (size,), generator=generator)


def losses_of(scores: Tensor, temperature: Tensor, loss: str, weight: Tensor | None = None) -> Tensor:
    """The loss of each training, (R,): mean over the queries and over both directions.

    Args:
        scores: (R, B, B), the positives on the diagonal.
        temperature: (R, 1, 1).
        loss: `ntxent` or `ce_softmax`, whose scale is 1 / temperature.
        weight: (R, 1, 1), temperature of the weight of a query where it is another one: the gradient of NT-Xent is
            (1 - p) / weight times [sum of q_j s_j over the negatives, minus the positive], with p, the part of the
            positive, at this temperature and q, the softmax of the negatives, at the other one; None: NT-Xent itself.
    """
    eye = torch.eye(scores.shape[-1], dtype=torch.bool)
    if weight is not None:
        made, still = torch.zeros(len(scores)), scores.detach()
        for own, fixed in ((scores, still), (scores.mT, still.mT)):
            part = (fixed / temperature).masked_fill(eye, -torch.inf).softmax(-1)
            missing = (1 - (fixed / weight).softmax(-1).diagonal(dim1=-2, dim2=-1)) / weight[:, :, 0]
            gap = (part * own).sum(-1) - own.diagonal(dim1=-2, dim2=-1)
            made = made + (missing * gap).mean(-1) / 2
        return made
    logits = scores / temperature
    positive = logits.diagonal(dim1=-2, dim2=-1)
    if loss == "ntxent":
        return (logits.logsumexp(-1) + logits.logsumexp(-2) - 2 * positive).mean(-1) / 2
    total = logits.masked_fill(eye, -torch.inf).flatten(1).logsumexp(-1)
    return torch.logaddexp(total[:, None] - positive, torch.zeros(())).mean(-1)


def effective(scores: Tensor, temperature: Tensor, loss: str) -> Tensor:
    """Effective number of negatives, mean over the queries of the directions of a loss, (R,).

    Args:
        scores: (R, B, B), the positives on the diagonal.
        temperature: (R, 1, 1).
        loss: see `WAYS`.
    """
    logits = (scores / temperature).masked_fill(torch.eye(scores.shape[-1], dtype=torch.bool), -torch.inf)
    found = [torch.special.entr(logits.softmax(way)).sum(way).exp().mean(-1) for way in WAYS[loss]]
    return torch.stack(found).mean(dim=0)


def solved(scores: Tensor, target: float, loss: str) -> Tensor:
    """Temperature of each training at which the effective number is the target, (R, 1, 1)."""
    ends = torch.tensor(ENDS, dtype=torch.float64).log()
    low, high = (end.expand(len(scores), 1, 1) for end in ends)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = (effective(scores.double(), middle.exp(), loss) < target)[:, None, None]
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return ((low + high) / 2).exp().to(scores.dtype)


def due(arm: Arm, step: int, steps: int) -> bool:
    """Whether the temperature of an arm is set after a step, counted from 0: the rule of `cocos.Hold`."""
    if arm.kind not in AFTER:
        return False
    passed = step - math.ceil(AFTER[arm.kind] * steps)
    return passed == 0 or (arm.kind != "once" and passed > 0 and passed % max(1, round(EVERY * steps)) == 0)


@dataclass(frozen=True, eq=False)
class Trained:
    """What a stack of trainings ends with.

    Args:
        heads: the stack of models.
        temperature: of each arm at the end, (R,).
        history: temperatures at each setting of an arm that is held, by its place.
    """

    heads: Heads
    temperature: Tensor
    history: dict[int, list[float]]


def trained(stack: Stack, task: Task) -> Trained:
    """Train all arms of a stack."""
    generator, arms = torch.Generator().manual_seed(stack.seed), stack.arms
    torch.manual_seed(stack.seed)
    heads = Heads(task, stack.width, len(arms))
    optimiser = torch.optim.AdamW(heads.parameters(), lr=stack.rate, weight_decay=DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, stack.rate, total_steps=task.steps, pct_start=WARM_UP)
    split, target = task.splits["train"], usual(stack.batch_size)
    temperature = torch.tensor([arm.temperature for arm in arms])[:, None, None]
    weight = torch.tensor([arm.weight for arm in arms])[:, None, None] if stack.part == "factorial" else None
    history: dict[int, list[float]] = {place: [] for place, arm in enumerate(arms) if arm.kind in AFTER}
    for step, (rows, columns) in enumerate(batches(split, stack.batch_size, task.steps, generator)):
        query, candidate = heads(split.query[rows], split.candidate[rows, columns])
        scores = query @ candidate.mT
        optimiser.zero_grad()
        losses_of(scores, temperature, stack.loss, weight).sum().backward()
        optimiser.step()
        schedule.step()
        held = [place for place in history if due(arms[place], step, task.steps)]
        if held:
            temperature[held] = solved(scores.detach()[held], target, stack.loss)
            for place in held:
                history[place].append(temperature[place].item())
    return Trained(heads, temperature.flatten(), history)
