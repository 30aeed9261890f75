"""Train and measure one model of the third part, with `cocos.Hold` itself in the loop."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import cocos
from analysis.hold_study import scale_models
from analysis.hold_study.plan import AFTER
from analysis.hold_study.probe import COUNTED, DRAWN, recalls
from analysis.hold_study.scale_plan import BATCH_SIZE, RATE, STEPS, TENTHS, Trial
from analysis.hold_study.training import DECAY, WARM_UP, effective
from cocos import losses

__all__ = ["LABELS", "Contrast", "row"]

LABELS = {
    "rsum": ("sum of R@1, R@5 and R@10 of both directions, test items", "points of 600"),
    "rsum_val": ("sum of R@1, R@5 and R@10 of both directions, validation items", "points of 600"),
    "effective": ("effective number of negatives at the end, training items", "candidates"),
    "temperature": ("temperature at the end", "score"),
    "alarms": ("settings at which the number could not be held", "settings"),
}
PATHS = {
    "spread_path": ("standard deviation of the scores of a query's negatives, mean over the queries", "score"),
    "size_path": ("norm of a query times norm of its candidate, mean, over its first value", "ratio"),
    "effective_path": ("effective number of negatives at the temperature of the step", "candidates"),
    "temperature_path": ("temperature of the step", "score"),
    "reached_path": ("effective number at the temperature that is set, over the target", "ratio"),
}


class Contrast(nn.Module):
    """A loss of the shelf in both directions on scores of a batch, with a temperature as an attribute.

    Args:
        name: of the loss, `ntxent` or `ce_softmax`, whose scale is 1 / temperature.
        temperature: at the start.
    """

    def __init__(self, name: str, temperature: float):
        super().__init__()
        self.name, self.temperature = name, temperature

    def forward(self, query: Tensor, candidate: Tensor) -> Tensor:
        """The loss of B pairs, (B, D) each."""
        sharp = {"temperature": self.temperature} if self.name == "ntxent" else {"scale": 1 / self.temperature}
        loss, scores = losses.load(self.name, **sharp), query @ candidate.T
        positive = torch.eye(len(scores), dtype=torch.bool)
        return (loss(scores, positive).mean() + loss(scores.T, positive).mean()) / 2


def _batches(
    emoji: Tensor, columns: tuple[int, ...], size: int, steps: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Emoji of each step, (B,), no one twice in a batch, and which of its captions each brings, (B,)."""
    left, among = emoji[:0], torch.tensor(columns)
    for _ in range(steps):
        if len(left) < size:
            left = emoji[torch.randperm(len(emoji), generator=generator)]
        rows, left = left[:size], left[size:]
        yield rows, among[torch.randint(len(columns), (size,), generator=generator)]


def _scaled(vectors: tuple[Tensor, Tensor], score: str, unit: float) -> tuple[Tensor, Tensor]:
    """Vectors whose inner products are the scores: of length 1, or in units of the first size."""
    if score == "cosine":
        first, second = (nn.functional.normalize(each, dim=1) for each in vectors)
        return first, second
    return vectors[0] / unit**0.5, vectors[1] / unit**0.5


def _size(vectors: tuple[Tensor, Tensor]) -> float:
    """Norm of a query times norm of its candidate, mean over the pairs."""
    return float((vectors[0].detach().norm(dim=1) * vectors[1].detach().norm(dim=1)).mean())


def _spread(scores: Tensor) -> float:
    """Standard deviation over the negatives of a query, mean over the queries, of scores (B, B)."""
    number = len(scores)
    others = scores[~torch.eye(number, dtype=torch.bool)].view(number, number - 1)
    return float(others.std(dim=1, correction=0).mean())


@torch.no_grad()
def _rsum(model: Any, emoji: Tensor, score: str) -> float:
    """Recall of a split; the unit of the inner products does not change it."""
    columns = torch.tensor(model.candidates)
    rows, each = emoji.repeat_interleave(len(columns)), columns.repeat(len(emoji))
    chunk = scale_models.CHUNK
    query = torch.cat([model.queries(some) for some in emoji.split(chunk)])
    candidate = torch.cat([model.captions(*some) for some in zip(rows.split(chunk), each.split(chunk), strict=True)])
    return float(recalls(*_scaled((query, candidate), score, 1.0), len(columns)))


def row(trial: Trial) -> dict[str, Any]:
    """Train and measure: numbers of the training, and what was read at the beginning of each tenth of it."""
    torch.set_num_threads(1)  # the order of sums, and so the last digits, depends on it
    size, steps = BATCH_SIZE[trial.part], STEPS[trial.part]
    split = {name: torch.from_numpy(each) for name, each in scale_models.items()[0].items()}
    generator = torch.Generator().manual_seed(trial.seed)
    torch.manual_seed(trial.seed)
    model, loss = scale_models.built(trial.part), Contrast(trial.loss, trial.temperature)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE[trial.part], weight_decay=DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE[trial.part], total_steps=steps, pct_start=WARM_UP)
    hold = None
    if trial.kind in AFTER:
        every = steps if trial.kind == "once" else None
        hold = cocos.Hold(loss, after=AFTER[trial.kind], steps=steps, every=every)
    path: dict[str, list[float]] = {name: [float("nan")] * TENTHS for name in PATHS}
    unit = 0.0
    for step, (rows, columns) in enumerate(_batches(split["train"], model.candidates, size, steps, generator)):
        vectors = model.queries(rows, generator), model.captions(rows, columns, generator)
        unit = unit or _size(vectors)
        query, candidate = _scaled(vectors, trial.score, unit)
        if step % (steps // TENTHS) == 0:
            scores, place = (query @ candidate.T).detach(), step // (steps // TENTHS)
            path["spread_path"][place] = _spread(scores)
            path["size_path"][place] = _size(vectors) / unit
            path["temperature_path"][place] = loss.temperature
            path["effective_path"][place] = _effective(scores, loss.temperature, trial.loss)
        optimiser.zero_grad()
        (hold or loss)(query, candidate).backward()
        optimiser.step()
        schedule.step()
    for each in hold.history if hold else ():
        path["reached_path"][each["step"] // (steps // TENTHS)] = each["effective"] / each["target"]
    alarms = float(len(hold.alarms)) if hold else 0.0
    if hold:
        hold.close()
    model.eval()
    counted = torch.Generator().manual_seed(DRAWN)
    with torch.no_grad():
        at_end = [
            _scaled((model.queries(rows), model.captions(rows, columns)), trial.score, unit)
            for rows, columns in _batches(split["train"], model.candidates, size, COUNTED, counted)
        ]
    number = np.mean([_effective(q @ c.T, loss.temperature, trial.loss) for q, c in at_end])
    return path | {
        "rsum": _rsum(model, split["test"], trial.score),
        "rsum_val": _rsum(model, split["val"], trial.score),
        "effective": float(number),
        "temperature": float(loss.temperature),
        "alarms": alarms,
    }


def _effective(scores: Tensor, temperature: float, loss: str) -> float:
    """Effective number of negatives of a batch."""
    return float(effective(scores[None].double(), torch.tensor(temperature).double().view(1, 1, 1), loss))
