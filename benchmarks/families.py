"""Families of healthy trainings on which no threshold was set: the false alarms of the detectors are counted on them.

Each is a small training as people do it, that learns what its data hold: with dropout, batch norm, a momentum encoder
and a queue, a frozen tower, class labels, mined negatives, few dimensions, clusters, weak relations, noisy pairs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid, normalize, relu

import cocos
from benchmarks.trainings import OFF, quiet
from cocos.monitor.detectors import Record

__all__ = ["CORRECTED", "FAMILIES", "SHOWN", "Family", "SupCon", "family_records"]

LATENT, FEATURES, CLASSES, TOPICS = 16, 32, 40, 8
# Seeds of the runs that are reported.
SHOWN = range(300, 310)
# First steps of which each is recorded, and the steps between two records after them.
CLOSELY, EVERY = 10, 5


@dataclass(frozen=True)
class Family:
    """A healthy family of trainings.

    Args:
        loss: makes the module, called with queries and candidates and the classes of the rows.
        hidden: width of the hidden layers of a tower; 0: it is linear.
        width: of the embeddings.
        dropout: of a tower.
        norm: between the layers: `batch`, `layer` or nothing.
        batch: rows.
        steps: of the optimiser.
        rate: learning rate.
        rise: steps over which it rises.
        noise: of each view, in units of one latent coordinate.
        shared: latent coordinates that both sides have; the others are of one side alone.
        kind: of the data: `pairs`, `topics`, `captions`, `classes`, `views`, `hard`.
        one: both sides go through one tower.
        trains: which towers are trained: `both`, `second`, or `momentum`, where the second one follows the first.
        good: steps of training before the first record, at ten times the rate.
        wrong: part of the pairs that are wrong, as web data have them.
        sgd: the optimiser is SGD with momentum, at 20 times the rate.
    """

    loss: Callable[[], nn.Module]
    hidden: int = 64
    width: int = 24
    dropout: float = 0.0
    norm: str = ""
    batch: int = 32
    steps: int = 60
    rate: float = 2e-3
    rise: int = 0
    noise: float = 0.3
    shared: int = LATENT
    kind: str = "pairs"
    one: bool = False
    trains: str = "both"
    good: int = 0
    wrong: float = 0.0
    sgd: bool = False


class InfoNCE(nn.Module):
    """Cross-entropy of cosines times a scale, of one direction or both.

    Args:
        scale: from a cosine to a logit.
        both: directions.
        learned: whether the scale is.
    """

    def __init__(self, scale: float = 20.0, *, both: bool = True, learned: bool = False):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)), requires_grad=learned)
        self.both = both

    def forward(self, query: Tensor, candidate: Tensor, classes: Tensor) -> Tensor:
        """Mean over the queries, ()."""
        logits = self.log_scale.exp() * normalize(query, dim=1) @ normalize(candidate, dim=1).T
        target = torch.arange(len(query))
        value = cross_entropy(logits, target)
        return (value + cross_entropy(logits.T, target)) / 2 if self.both else value


class Queue(nn.Module):
    """Cross-entropy over each query's key and a queue of older keys, as MoCo has it.

    Args:
        size: of the queue.
    """

    def __init__(self, size: int = 128):
        super().__init__()
        self.keys: Tensor | None = None
        self.size = size

    def forward(self, query: Tensor, key: Tensor, classes: Tensor) -> Tensor:
        """Mean over the queries, ()."""
        query, key = normalize(query, dim=1), normalize(key, dim=1)
        queue = self.keys if self.keys is not None else normalize(torch.randn(self.size, key.shape[1]), dim=1)
        logits = torch.cat([(query * key).sum(dim=1, keepdim=True), query @ queue.T], dim=1) / 0.07
        self.keys = torch.cat([key.detach(), queue])[: self.size]
        return cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))


class Sigmoids(nn.Module):
    """Pairwise logistic loss with a learned scale and bias, as SigLIP has it."""

    def __init__(self):
        super().__init__()
        self.log_scale, self.bias = nn.Parameter(torch.tensor(math.log(10))), nn.Parameter(torch.tensor(-10.0))

    def forward(self, query: Tensor, candidate: Tensor, classes: Tensor) -> Tensor:
        """Sum over the candidates and mean over the queries, ()."""
        logits = self.log_scale.exp() * normalize(query, dim=1) @ normalize(candidate, dim=1).T + self.bias
        return -logsigmoid(logits * (2 * torch.eye(len(logits)) - 1)).sum() / len(logits)


class SupCon(nn.Module):
    """Mean cross-entropy over the other rows of a row's class."""

    def forward(self, query: Tensor, candidate: Tensor, classes: Tensor) -> Tensor:
        """Mean over the rows, ()."""
        rows, own = normalize(query, dim=1), torch.eye(len(query), dtype=torch.bool)
        logs = (10 * rows @ rows.T).masked_fill(own, -1e9).log_softmax(dim=1)
        same = (classes[:, None] == classes) & ~own
        return -((logs * same).sum(dim=1) / same.sum(dim=1).clamp(min=1)).mean()


class Views(nn.Module):
    """Cross-entropy over both views in one matrix, as SimCLR has it.

    Args:
        scale: from a cosine to a logit.
    """

    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale

    def forward(self, query: Tensor, candidate: Tensor, classes: Tensor) -> Tensor:
        """Mean over the rows of both views, ()."""
        rows, size = normalize(torch.cat([query, candidate]), dim=1), len(query)
        scores = (self.scale * rows @ rows.T).masked_fill(torch.eye(2 * size, dtype=torch.bool), -1e9)
        return cross_entropy(scores, torch.arange(2 * size).roll(size))


class BatchHard(nn.Module):
    """Triplet loss of the farthest row of a class and the nearest one of the others, as Hermans et al. have it."""

    def forward(self, query: Tensor, candidate: Tensor, classes: Tensor) -> Tensor:
        """Mean over the rows, ()."""
        rows = normalize(query, dim=1)
        apart, same = torch.cdist(rows, rows), classes[:, None] == classes
        far = (apart * same).amax(dim=1)
        near = apart.masked_fill(same, math.inf).amin(dim=1)
        return relu(0.3 + far - near).mean()


class Hinges(nn.Module):
    """Triplet loss of all negatives, averaged over those that violate the margin."""

    def forward(self, query: Tensor, candidate: Tensor, classes: Tensor) -> Tensor:
        """Mean over the violations, ()."""
        scores = normalize(query, dim=1) @ normalize(candidate, dim=1).T
        own = torch.eye(len(scores), dtype=torch.bool)
        each = relu(0.2 + scores - scores.diagonal()[:, None]).masked_fill(own, 0)
        return each.sum() / (each > 0).sum().clamp(min=1)


class ClassVectors(nn.Module):
    """Cross-entropy of cosines with a learned vector for each class."""

    def __init__(self):
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(CLASSES, 24))

    def forward(self, query: Tensor, candidate: Tensor, classes: Tensor) -> Tensor:
        """Mean over the rows, ()."""
        return cross_entropy(16 * normalize(query, dim=1) @ normalize(self.proxies, dim=1).T, classes)


class HardNegatives(nn.Module):
    """Cross-entropy over the candidates of the batch and a hard negative of each query behind them."""

    def forward(self, query: Tensor, candidate: Tensor, classes: Tensor) -> Tensor:
        """Mean over the queries, ()."""
        scores = 20 * normalize(query, dim=1) @ normalize(candidate, dim=1).T
        return cross_entropy(scores, torch.arange(len(query)))


# Families on which thresholds were corrected, with seeds 0 to 3.
CORRECTED = {
    "dropout 0.2": Family(InfoNCE, dropout=0.2),
    "dropout 0.1, fine-tuned from a good start": Family(InfoNCE, dropout=0.1, good=60, rate=1e-4),
    "batch norm and a projection head": Family(lambda: InfoNCE(1 / 0.07, learned=True), norm="batch"),
    "layer norm, SGD": Family(lambda: InfoNCE(1 / 0.07, learned=True), norm="layer", sgd=True),
    "MoCo, momentum encoder and queue": Family(Queue, kind="views", trains="momentum"),
    "a frozen first tower": Family(lambda: InfoNCE(1 / 0.07, learned=True), trains="second"),
    "sigmoid, 300 steps": Family(Sigmoids, steps=300),
    "batches of 16": Family(lambda: InfoNCE(both=False), batch=16),
    "five captions of an image, 300 steps": Family(lambda: InfoNCE(1 / 0.07, learned=True), kind="captions", steps=300),
    "views through one tower": Family(lambda: Views(10.0), kind="views", one=True),
    "views at temperature 0.5": Family(lambda: Views(2.0), kind="views", one=True, steps=300),
    "hard negatives, one tower": Family(HardNegatives, kind="hard", one=True, dropout=0.1),
    "supervised contrastive, classes": Family(SupCon, kind="classes", one=True),
    "batch-hard triplets, classes": Family(BatchHard, kind="classes", one=True),
    "class vectors": Family(ClassVectors, kind="classes", one=True),
    "torch.nn.TripletMarginLoss": Family(lambda: nn.TripletMarginLoss(2.0), one=True),
    "triplets, mean over the violations": Family(Hinges),
    "eight topics": Family(InfoNCE, kind="topics", steps=300),
    "four dimensions": Family(InfoNCE, width=4),
    "weak relation, 60 steps of warm-up, a tenth of the pairs wrong": Family(
        lambda: InfoNCE(1 / 0.07, learned=True), shared=6, rise=60, wrong=0.1
    ),
}
# Families that were looked at once the thresholds stood.
FAMILIES = {
    "wide towers, dropout 0.1": Family(InfoNCE, hidden=256, width=64, dropout=0.1),
    "linear towers": Family(lambda: InfoNCE(1 / 0.07, learned=True), hidden=0),
    "temperature 0.02": Family(lambda: InfoNCE(50.0)),
    "temperature 0.2, batches of 64": Family(lambda: InfoNCE(5.0), batch=64),
    "eight dimensions, eight topics": Family(InfoNCE, width=8, kind="topics", noise=0.6),
    "captions, dropout 0.3, batches of 64": Family(InfoNCE, kind="captions", dropout=0.3, batch=64),
    "MoCo with dropout, a queue of 48": Family(lambda: Queue(48), kind="views", trains="momentum", dropout=0.1),
    "a frozen first tower, layer norm, 30 steps of warm-up": Family(InfoNCE, trains="second", norm="layer", rise=30),
    "sigmoid with dropout, batches of 24": Family(Sigmoids, dropout=0.1, batch=24, steps=300),
    "supervised contrastive, dropout 0.2, batches of 64": Family(
        SupCon, kind="classes", one=True, dropout=0.2, batch=64, steps=300
    ),
    "batch-hard triplets, layer norm, batches of 48": Family(
        BatchHard, kind="classes", one=True, norm="layer", batch=48
    ),
    "class vectors, dropout, SGD": Family(ClassVectors, kind="classes", one=True, dropout=0.1, sgd=True),
    "views, batch norm, batches of 64": Family(lambda: Views(10.0), kind="views", one=True, norm="batch", batch=64),
    "views at temperature 0.3, dropout 0.2": Family(lambda: Views(1 / 0.3), kind="views", one=True, dropout=0.2),
    "hard negatives, two towers": Family(HardNegatives, kind="hard", steps=300),
    "weak relation, batches of 24": Family(lambda: InfoNCE(1 / 0.07, learned=True), shared=5, batch=24, steps=300),
    "a fifth of the pairs wrong": Family(InfoNCE, wrong=0.2),
    "fine-tuned at 1e-5 from a good start, batches of 16": Family(InfoNCE, good=80, rate=1e-5, norm="layer", batch=16),
    "triplets, mean over the violations, noisy views": Family(Hinges, noise=0.8, batch=64),
    "a learning rate of 0.01": Family(lambda: InfoNCE(1 / 0.07, learned=True), rate=1e-2, dropout=0.1),
}


def _tower(family: Family) -> nn.Module:
    if not family.hidden:
        return nn.Linear(FEATURES, family.width)
    norms = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
    norm = [norms[family.norm](family.hidden)] if family.norm else []
    drop = [nn.Dropout(family.dropout)] if family.dropout else []
    first = [nn.Linear(FEATURES, family.hidden), *norm, nn.ReLU(), *drop]
    return nn.Sequential(
        *first, nn.Linear(family.hidden, family.hidden), nn.ReLU(), nn.Linear(family.hidden, family.width)
    )


class _Draws:
    """Batches of a family: first sides, second sides (hard negatives behind them), and classes."""

    def __init__(self, family: Family, seed: int):
        self.family, self.generator = family, torch.Generator().manual_seed(seed)
        self.ways = [self.normal(LATENT, FEATURES) / LATENT**0.5 for _ in range(2)]
        self.middles, self.topics = 1.5 * self.normal(CLASSES, LATENT), 2 * self.normal(TOPICS, LATENT)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def view(self, latent: Tensor, side: int) -> Tensor:
        return latent @ self.ways[side] + self.family.noise * self.normal(len(latent), FEATURES)

    def __call__(self) -> tuple[Tensor, Tensor, Tensor]:
        size, kind = self.family.batch, self.family.kind
        latent, classes = self.normal(size, LATENT), torch.arange(size)
        if kind == "classes":
            some = torch.randperm(CLASSES, generator=self.generator)[: size // 4]
            classes = some.repeat_interleave(4)
            latent = self.middles[classes] + latent
        if kind == "topics":
            latent += self.topics[torch.randint(TOPICS, (size,), generator=self.generator)]
        first, second = latent.clone(), latent.clone()
        if kind == "captions":  # one of five, each of which says a part of the image
            said = torch.randint(5, (size,), generator=self.generator)
            second = second * (torch.arange(LATENT) % 5 != said[:, None])
        if self.family.shared < LATENT:
            second[:, self.family.shared :] = self.normal(size, LATENT - self.family.shared)
        wrong = torch.rand(size, generator=self.generator) < self.family.wrong
        second = torch.where(wrong[:, None], second.roll(1, dims=0), second)
        one = 0 if self.family.one or kind == "views" else 1
        query, candidate = self.view(first, 0), self.view(second, one)
        if kind == "hard":
            candidate = torch.cat([candidate, self.view(second + 0.7 * self.normal(size, LATENT), one)])
        return query, candidate, classes


def family_records(family: Family, seed: int) -> list[Record]:
    """Train a family, and return what the monitor recorded.

    Args:
        family: of trainings.
        seed: of the weights and the data.
    """
    torch.manual_seed(seed)
    draw, loss, first = _Draws(family, seed), family.loss(), _tower(family)
    second = first if family.one else _tower(family)
    if family.trains == "momentum":
        second.load_state_dict(first.state_dict())
    frozen = {"both": None, "second": first, "momentum": second}[family.trains]
    if frozen is not None:
        frozen.requires_grad_(False)
    trained = {each for module in (first, second, loss) for each in module.parameters() if each.requires_grad}
    rate = family.rate * (20 if family.sgd else 1)
    make: Any = torch.optim.SGD if family.sgd else torch.optim.AdamW
    optimiser = make(
        sorted(trained, key=lambda each: each.numel()), lr=rate, **({"momentum": 0.9} if family.sgd else {})
    )
    due = False
    with quiet(), cocos.Monitor(loss, due=lambda: due, detectors=OFF) as monitor:
        for step in range(-family.good, family.steps):
            slow = min(1.0, (step + 1) / family.rise) if family.rise else 10.0 if step < 0 else 1.0
            for group in optimiser.param_groups:
                group["lr"] = rate * slow
            due = step >= 0 and (step < CLOSELY or step % EVERY == 0)
            monitor.step = max(0, step)
            query, candidate, classes = draw()
            one, other = first(query), second(candidate)
            third = other.roll(1, dims=0) if isinstance(loss, nn.TripletMarginLoss) else classes
            value = loss(one, other, third)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            if family.trains == "momentum":
                with torch.no_grad():
                    for new, old in zip(first.parameters(), second.parameters(), strict=True):
                        old.lerp_(new, 0.05)
    return [*monitor.records]
