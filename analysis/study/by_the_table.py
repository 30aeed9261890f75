"""The training loop, written again from the table of the page and nothing else: no import of the study's own loop.

A description suffices if a stranger's loop lands within the spread of the seeds. Its seeds are others, and so are its
order of random numbers and its code for losses and recall.
"""

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from cocos.base import writing

__all__ = ["FILE", "SETTINGS", "trained", "write"]

HERE = Path(__file__).parent
FILE = HERE / "results" / "by_the_table.json"
SETTINGS = (  # loss, value and learning rate of the best settings of the captions, as the page has them
    ("ntxent", 0.15, 0.002),
    ("triplet", 0.4, 0.02),
    ("triplet_sh", 0.6, 0.006),
    ("smoothap", 0.1, 0.006),
    ("ce_softmax", 7.5, 0.006),
)
SEEDS = tuple(range(100, 105))


def _photos() -> dict[str, Tensor]:
    with np.load(HERE / "data" / "captions.npz") as held:
        rows, split = torch.tensor(held["embeddings"].astype(np.float32)), held["split"]
    rows = _unit(rows)
    return {name: rows[torch.tensor(np.flatnonzero(split == k))] for k, name in enumerate(("train", "val", "test"))}


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=-1, keepdim=True)


def _loss(name: str, value: float, scores: Tensor) -> Tensor:
    """Mean over the rows of a square of scores, whose diagonal are the positives."""
    own, positive = torch.eye(len(scores), dtype=torch.bool), scores.diagonal()
    if name == "ntxent":
        return cross_entropy(scores / value, torch.arange(len(scores)))
    if name == "triplet":
        return (value - positive[:, None] + scores).relu().masked_fill(own, 0).sum(dim=1).mean()
    if name == "triplet_sh":
        return (value - positive + scores.masked_fill(own, -2).max(dim=1).values).relu().mean()
    if name == "smoothap":
        above = ((scores - positive[:, None]) / value).sigmoid().masked_fill(own, 0).sum(dim=1)
        return (1 - 1 / (1 + above)).mean()
    if name == "ce_softmax":
        negatives = (value * scores).exp().masked_fill(own, 0).sum()
        return ((-value * positive).exp() * negatives).log1p().mean()
    raise ValueError(name)


@torch.no_grad()
def _rsum(query: Tensor, candidate: Tensor) -> float:
    """Recall of unit vectors, (N, D) and (N, K, D), 0 to 600."""
    number, many, _ = candidate.shape
    scores, own = query @ candidate.flatten(0, 1).T, torch.arange(number).repeat_interleave(many)
    total = 0.0
    for k in (1, 5, 10):
        found = own[scores.topk(k, dim=1).indices] == torch.arange(number)[:, None]
        back = scores.T.topk(k, dim=1).indices == own[:, None]
        total += 100 * sum(each.any(dim=1).double().mean().item() for each in (found, back))
    return total


def trained(name: str, value: float, rate: float, seed: int, batch: int = 128, steps: int = 150) -> float:
    """Train two linear heads and return the `rsum` of the test items.

    Args:
        name: of the loss.
        value: of its temperature, margin or scale.
        rate: largest learning rate.
        seed: for weights and batches.
        batch: photos in a step.
        steps: of the training.
    """
    photos = _photos()
    torch.manual_seed(seed)
    heads = torch.nn.Linear(384, 64), torch.nn.Linear(384, 64)
    weights = [each for head in heads for each in head.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=rate, weight_decay=0.05)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=rate, total_steps=steps, pct_start=0.1)
    random, left = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(left) < batch:
            left = torch.randperm(len(photos["train"]), generator=random)
        rows, left = left[:batch], left[batch:]
        asked = photos["train"][rows, 1 + torch.randint(4, (batch,), generator=random)]
        scores = _unit(heads[0](photos["train"][rows, 0])) @ _unit(heads[1](asked)).T
        loss = (_loss(name, value, scores) + _loss(name, value, scores.T)) / 2
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        cycle.step()
    with torch.no_grad():
        query, candidate = heads[0](photos["test"][:, 0]), heads[1](photos["test"][:, 1:])
    return _rsum(_unit(query).double(), _unit(candidate).double())


def write(path: Path = FILE) -> Path:
    """Train every setting with every seed, and write the scores."""
    torch.set_num_threads(1)
    found = {name: [trained(name, value, rate, seed) for seed in SEEDS] for name, value, rate in SETTINGS}
    about = {name: {"value": value, "rate": rate, "rsum": found[name]} for name, value, rate in SETTINGS}
    return writing.write(path, (json.dumps(about, indent=1) + "\n").encode(), "scores")


if __name__ == "__main__":
    print(write())
