"""Small trainings of two towers with a monitor beside the loss: healthy ones of several families, and faulty ones.

The data are noisy views of latent vectors, or the frozen features of the emoji and captions that cocos carries. A batch
has 32 pairs unless a training says otherwise. A faulty training is a healthy one with one thing wrong.
"""

import functools
import logging
import math
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid, normalize

import cocos
from cocos.embeddings import Embeddings, scores
from cocos.monitor import detectors
from cocos.monitor.detectors import Record

__all__ = ["FAULTS", "HEALTHY", "OFF", "Data", "Fault", "Training", "quiet", "records"]

LATENT, FEATURES, HIDDEN, WIDTH = 12, 24, 64, 32
NOISE, NEAR = 0.3, 0.5  # of a view, and of a hard negative beside its caption, in units of one latent coordinate
BATCH, STEPS, LONGER, EPOCH = 32, 260, 1000, 20  # an epoch in batches
OFF, LOSS_FACTOR = dict.fromkeys(detectors.names(), False), 1024.0  # a factor as GradScaler has it after some steps


class Clip(nn.Module):
    """Symmetric cross-entropy of cosines times a learned scale, as CLIP begins it: 1/0.07."""

    def __init__(self):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, image: Tensor, caption: Tensor) -> Tensor:
        """Mean over both directions, ()."""
        logits = self.logit_scale.exp() * normalize(image, dim=1) @ normalize(caption, dim=1).T
        target = torch.arange(len(logits))
        return (cross_entropy(logits, target) + cross_entropy(logits.T, target)) / 2


class HardestTriplet(nn.Module):
    """Triplet loss with the hardest negative of each side, summed, as VSE++ has it."""

    margin = 0.2

    def forward(self, image: Tensor, caption: Tensor) -> Tensor:
        """Sum over both directions, ()."""
        scores = normalize(image, dim=1) @ normalize(caption, dim=1).T
        positive, own = scores.diagonal(), torch.eye(len(scores), dtype=torch.bool)
        of_image = (self.margin + scores - positive[:, None]).clamp(min=0).masked_fill(own, 0)
        of_caption = (self.margin + scores - positive).clamp(min=0).masked_fill(own, 0)
        return of_image.amax(dim=1).sum() + of_caption.amax(dim=0).sum()


class Grouped(nn.Module):
    """Cross-entropy of each query over the passages of a batch: its positive and its own negatives, query by query."""

    def forward(self, query: Tensor, *passages: Tensor) -> Tensor:
        """Mean over the queries, ()."""
        candidates = torch.stack(passages, dim=1).flatten(0, 1)
        scores = normalize(query, dim=1) @ normalize(candidates, dim=1).T / 0.02
        return cross_entropy(scores, len(passages) * torch.arange(len(scores)))


class MiniBatched(nn.Module):
    """Cross-entropy in mini-batches of anchors: all but the last go backward at once, and the last one is returned.

    Args:
        stops_at_its_tile: whether the end of a mini-batch is compared with the length of its own scores, as in the
            thread, so that no mini-batch ever goes backward but the last.
        size: anchors of one mini-batch.
    """

    def __init__(self, stops_at_its_tile: bool, size: int = 16):
        super().__init__()
        self.stops_at_its_tile, self.size = stops_at_its_tile, size

    def forward(self, image: Tensor, caption: Tensor) -> Tensor:
        """Mean over the last mini-batch, ()."""
        for start in range(0, len(image), self.size):
            end = start + self.size
            scores = 20 * normalize(image[start:end], dim=1) @ normalize(caption, dim=1).T
            loss = cross_entropy(scores, torch.arange(start, end))
            if end < len(scores if self.stops_at_its_tile else image):
                loss.backward(retain_graph=True)
        return loss


class Gathered(nn.Module):
    """Cross-entropy over positives and hard negatives gathered from several devices; the target of anchor i is i.

    Args:
        by_device: whether the columns stand device by device, PNPN, as a gather of both together leaves them, and not
            all positives first, PPNN, as the targets assume.
        devices: number of devices, simulated in one process.
    """

    def __init__(self, by_device: bool, devices: int = 2):
        super().__init__()
        self.by_device, self.devices = by_device, devices

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Mean over the anchors, ()."""
        sides = (positive.chunk(self.devices), negative.chunk(self.devices))
        order = zip(*sides, strict=True) if self.by_device else sides
        candidates = torch.cat([rows for each in order for rows in each])
        scores = 20 * normalize(anchor, dim=1) @ normalize(candidates, dim=1).T
        return cross_entropy(scores, torch.arange(len(scores)))


def tower(features: int, layers: int) -> nn.Sequential:
    """A network with `layers` hidden layers."""
    sizes = [features, *[HIDDEN] * layers]
    hidden = [nn.Sequential(nn.Linear(*each), nn.ReLU()) for each in zip(sizes, sizes[1:], strict=False)]
    return nn.Sequential(*hidden, nn.Linear(HIDDEN, WIDTH))


class Softmax(nn.Module):
    """Mean cross-entropy of cosines times a fixed scale.

    Args:
        scale: from a cosine to a logit.
        half: whether the scores are float16.
        hub: length of a broken first candidate, which points to the mean of the queries; 0: there is none.
    """

    def __init__(self, scale: float = 20.0, *, half: bool = False, hub: float = 0.0):
        super().__init__()
        self.scale, self.half, self.hub = scale, half, hub

    def forward(self, query: Tensor, candidate: Tensor) -> Tensor:
        """Mean over the queries, ()."""
        query, candidate = normalize(query, dim=1), normalize(candidate, dim=1)
        if self.hub:
            mean = normalize(query.detach().mean(dim=0, keepdim=True), dim=1)
            candidate = torch.cat([self.hub * mean, candidate[1:]])
        if self.half:
            query, candidate = query.half(), candidate.half()
        scores = (self.scale * query @ candidate.T).float()
        return cross_entropy(scores, torch.arange(len(query)))


class Sigmoid(nn.Module):
    """Pairwise logistic loss with a learned scale and bias, as SigLIP has it."""

    def __init__(self):
        super().__init__()
        self.log_scale, self.bias = nn.Parameter(torch.tensor(math.log(10))), nn.Parameter(torch.tensor(-10.0))

    def forward(self, query: Tensor, candidate: Tensor) -> Tensor:
        """Sum over the candidates and mean over the queries, ()."""
        logits = self.log_scale.exp() * normalize(query, dim=1) @ normalize(candidate, dim=1).T + self.bias
        return -logsigmoid(logits * (2 * torch.eye(len(logits)) - 1)).sum() / len(logits)


class TwoViews(nn.Module):
    """Cross-entropy over both views in one matrix, without a row itself, as SimCLR has it."""

    def forward(self, query: Tensor, candidate: Tensor) -> Tensor:
        """Mean over the rows of both views, ()."""
        rows, size = normalize(torch.cat([query, candidate]), dim=1), len(query)
        scores = (10 * rows @ rows.T).masked_fill(torch.eye(2 * size, dtype=torch.bool), -1e9)
        return cross_entropy(scores, torch.arange(2 * size).roll(size))


class AllTriplets(nn.Module):
    """Triplet loss of all negatives in both directions, averaged over the queries.

    Args:
        margin: in units of a cosine.
    """

    def __init__(self, margin: float = 0.2):
        super().__init__()
        self.margin = margin

    def forward(self, query: Tensor, candidate: Tensor) -> Tensor:
        """Sum over negatives and directions, mean over the queries, ()."""
        scores = normalize(query, dim=1) @ normalize(candidate, dim=1).T
        own, positive = torch.eye(len(scores), dtype=torch.bool), scores.diagonal()
        of_query = (self.margin + scores - positive[:, None]).clamp(min=0).masked_fill(own, 0)
        of_candidate = (self.margin + scores - positive).clamp(min=0).masked_fill(own, 0)
        return (of_query.sum() + of_candidate.sum()) / len(scores)


class TwoPositives(nn.Module):
    """Cross-entropy that pulls rows 2k and 2k + 1 of the other side alike, as two captions of one image."""

    def forward(self, query: Tensor, candidate: Tensor) -> Tensor:
        """Mean over the queries, ()."""
        scores = 20 * normalize(query, dim=1) @ normalize(candidate, dim=1).T
        item = torch.arange(len(scores)) // 2
        both = (item[:, None] == item).double()
        return cross_entropy(scores, (both / both.sum(dim=1, keepdim=True)).to(scores.dtype))


@dataclass(frozen=True)
class Data:
    """Batches of images, captions and the ids of their items.

    Args:
        items: number of different latent vectors of a batch; the others repeat them. 0: as many as rows.
        noise: of each view.
        near: noise of the repeats of an item, in each feature.
        shuffled: whether the captions belong to other images.
        wrong: part of the captions that belong to other images.
        alone: whether no caption has the label of an image.
        emoji: whether the rows are features of the emoji and captions that cocos carries.
        last: rows of the last batch of an epoch; 0: it is whole.
        broken: whether the first image of the second epoch is NaN.
    """

    items: int = 0
    noise: float = NOISE
    near: float = 0.0
    shuffled: bool = False
    wrong: float = 0.0
    alone: bool = False
    emoji: bool = False
    last: int = 0
    broken: bool = False

    def batches(self, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield batches of a seed for ever."""
        generator = torch.Generator().manual_seed(seed)
        draw = _emoji(size, generator) if self.emoji else self._views(size, generator)
        for number, (image, caption, item) in enumerate(draw):
            if self.broken and number == EPOCH:
                image[0] = math.nan
            rows = self.last if self.last and number % EPOCH == EPOCH - 1 else size
            order = torch.randperm(size, generator=generator) if self.shuffled else torch.arange(size)
            wrong = round(self.wrong * size)
            order = torch.cat([order[:wrong].roll(1), order[wrong:]])
            yield image[:rows], caption[order][:rows], item[:rows]

    def _views(self, size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        views = [torch.randn(LATENT, FEATURES, generator=generator) / LATENT**0.5 for _ in range(2)]
        while True:
            item = torch.arange(size) * (self.items or size) // size
            latent = torch.randn(size, LATENT, generator=generator)[item]
            noises = [torch.randn(size, FEATURES, generator=generator)[item] for _ in views]
            image, caption = (latent @ v + self.noise * n for v, n in zip(views, noises, strict=True))
            apart = torch.randn(2, size, FEATURES, generator=generator)
            yield image + self.near * apart[0], caption + self.near * apart[1], item


@functools.cache
def _features() -> tuple[Tensor, Tensor, Tensor]:
    """Features of the training split: images, captions, and the image of each caption."""
    found = cocos.open("example").embed("train")
    return found.query * FEATURES**0.5, found.candidate * FEATURES**0.5, found.candidate_group


def _emoji(size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    images, captions, group = _features()
    while True:
        row = torch.randperm(len(captions), generator=generator)[:size]
        yield images[group[row]], captions[row], group[row]


@dataclass(frozen=True)
class Training:
    """How two towers are trained.

    Args:
        loss: makes the module; or the name of a loss of the shelf.
        rate: learning rate of AdamW, of the towers.
        scale_rate: of the loss's own parameters; None: the same.
        decay: weight decay.
        rise: steps over which the learning rate rises from 0.
        layers: hidden ones of each tower.
        steps: of the optimiser.
        every: steps between two records, after the first `closely` steps, of which each is recorded.
        closely: steps.
        batch: pairs.
        data: of the training.
        negatives: captions near its own that each image has as hard negatives.
        near: noise of these captions, in each feature; infinite: they are empty.
        groups: whether the monitor is given groups by which each row matches only its own.
        factor: of the loss before its backward pass.
        about: keys that every record gets in addition, where one process cannot show them.
    """

    loss: Callable[[], nn.Module] | str
    rate: float = 1e-3
    scale_rate: float | None = None
    decay: float = 0.0
    rise: int = 0
    layers: int = 1
    steps: int = STEPS
    every: int = 5
    closely: int = 30
    batch: int = BATCH
    data: Data = Data()
    negatives: int = 0
    near: float = NEAR
    groups: bool = False
    factor: float = 1.0
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """A training with one thing wrong, and the detector that should say so.

    Args:
        detector: its name.
        fault: in words.
        training: with the fault.
        brief: whether it lasts for single steps, which a record of every tenth step may miss.
    """

    detector: str
    fault: str
    training: Training
    brief: bool = False


def _mean(loss: Any, query: Tensor, candidate: Tensor, item: Tensor) -> Tensor:
    """A loss of the shelf, averaged over the queries of both directions, ()."""
    similarity = normalize(query, dim=1) @ normalize(candidate, dim=1).T
    frame = Embeddings(torch.zeros(len(query), 1), torch.zeros(len(candidate), 1), item, item)
    both = ((frame, similarity), (frame.flip(), similarity.T))
    return sum(loss(scores.pairs(side, metric="dot").with_scores(values)).mean() / 2 for side, values in both)


@contextmanager
def quiet() -> Generator[None]:
    """Leave out what the monitor says on its logger."""
    level = (logger := logging.getLogger("cocos")).level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def records(training: Training, seed: int) -> list[Record]:
    """Train two towers, and return what the monitor recorded.

    Args:
        training: to do.
        seed: of the weights and the data.
    """
    torch.manual_seed(seed)
    features = _features()[0].shape[1] if training.data.emoji else FEATURES
    image, caption = tower(features, training.layers), tower(features, training.layers)
    named = isinstance(training.loss, str)
    loss = cocos.losses.load(training.loss) if isinstance(training.loss, str) else training.loss()
    own = [] if named else list(loss.parameters())
    rates = [{"params": [*image.parameters(), *caption.parameters()]}]
    rates += [{"params": own, "lr": training.scale_rate or training.rate}] if own else []
    optimiser = torch.optim.AdamW(rates, lr=training.rate, weight_decay=training.decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1.0, (step + 1) / (training.rise or 1)))
    batches = training.data.batches(training.batch, seed)
    groups = (lambda: torch.arange(training.batch)) if training.groups else None
    with quiet(), cocos.Monitor(loss, due=lambda: due, detectors=OFF, groups=groups) as monitor:
        for step in range(training.steps):
            due = step < training.closely or step % training.every == 0
            pictures, texts, item = next(batches)
            query, candidate = image(pictures), caption(texts)
            noise = training.near if math.isfinite(training.near) else 0.0
            clear = texts if noise else torch.zeros_like(texts)
            hard = [caption(clear + noise * torch.randn_like(texts)) for _ in range(training.negatives)]
            if named:
                monitor(query, candidate, groups=(item, item + training.data.alone * len(item)), step=step)
                value = _mean(loss, query, candidate, item)
            else:
                value = loss(query, candidate, *hard)
            optimiser.zero_grad()
            (value * training.factor).backward()
            for each in optimiser.param_groups:
                for parameter in each["params"]:
                    if parameter.grad is not None:
                        parameter.grad /= training.factor
            optimiser.step()
            schedule.step()
    return [each | training.about for each in monitor.records]


HEALTHY = {
    "softmax, learned scale": Training(Clip),
    "softmax, fixed scale": Training(Softmax),
    "softmax, scale 100": Training(lambda: Softmax(100.0)),
    "softmax, batches of 128": Training(Clip, batch=128),
    "softmax, warm-up of 100 steps": Training(Clip, rise=100, decay=0.1),
    "softmax, two views in one matrix": Training(TwoViews),
    "softmax, emoji": Training(Clip, data=Data(emoji=True)),
    "softmax, hard negatives": Training(lambda: Gathered(by_device=False), negatives=1),
    "softmax, mini-batches": Training(lambda: MiniBatched(stops_at_its_tile=False), batch=64),
    "softmax, float16": Training(lambda: Softmax(half=True), factor=LOSS_FACTOR),
    "sigmoid, learned scale": Training(Sigmoid),
    "softmax, learned scale, longer": Training(Clip, steps=LONGER, every=10),
    "sigmoid, learned scale, longer": Training(Sigmoid, steps=LONGER, every=10),
    "triplets, hardest": Training(HardestTriplet),
    "triplets, hardest, emoji": Training(HardestTriplet, data=Data(emoji=True)),
    "triplets, all": Training(AllTriplets),
    "ntxent by name": Training("ntxent"),
    "supcon by name, two captions": Training("supcon", data=Data(items=16, near=0.3)),
    "supcon by name, repeated items": Training("supcon", data=Data(items=16)),
    "triplet_sh by name, emoji": Training("triplet_sh", data=Data(emoji=True)),
}
FAULTS = (
    Fault("collapse", "learning rate 0.1", Training(HardestTriplet, rate=0.1, layers=2, steps=120)),
    Fault("stuck", "softmax, captions of other images", Training(Clip, data=Data(shuffled=True), batch=128)),
    Fault("stuck", "sigmoid, captions of other images", Training(Sigmoid, data=Data(shuffled=True))),
    Fault("stuck", "hardest triplets, learning rate 0.1", Training(HardestTriplet, rate=0.1, layers=2)),
    Fault("one_candidate", "a batch of one pair", Training(Grouped, batch=1, steps=30)),
    Fault(
        "idle",
        "triplets with a margin of 0.001",
        Training(lambda: AllTriplets(0.001), rate=3e-3, batch=8, data=Data(noise=0.05)),
    ),
    Fault("whole_batch", "softmax without a scale", Training(lambda: Softmax(1.0))),
    Fault(
        "scale",
        "weight decay and unrelated captions",
        Training(Clip, scale_rate=0.01, decay=1.0, data=Data(shuffled=True)),
    ),
    Fault("scale", "learning rate 1 for the scale", Training(Clip, scale_rate=1.0, data=Data(noise=0.05))),
    Fault(
        "short_batch",
        "the last batch of an epoch has 5 rows",
        Training(Softmax, steps=45, data=Data(last=5)),
        brief=True,
    ),
    Fault("non_finite", "an image of NaN", Training(Softmax, steps=45, data=Data(broken=True)), brief=True),
    Fault("underflow", "float16 without a factor", Training(lambda: Softmax(half=True), batch=256, steps=60)),
    Fault("duplicates", "each pair twice in a batch", Training(Softmax, steps=60, data=Data(items=16))),
    Fault(
        "near_duplicates",
        "each pair twice, but for rounding",
        Training(Softmax, steps=60, data=Data(items=16, near=1e-3)),
    ),
    Fault("hubs", "a broken caption near all images", Training(lambda: Softmax(hub=3.0), steps=160)),
    Fault(
        "pulled_negatives",
        "two captions of an image, not told",
        Training(TwoPositives, steps=60, data=Data(items=16, near=0.3), groups=True),
    ),
    Fault(
        "misaligned",
        "candidates in another order than targets",
        Training(lambda: Gathered(by_device=True), steps=60, negatives=1),
    ),
    Fault(
        "not_gathered",
        "two processes without a gather",
        Training(Softmax, steps=30, about={"world": 2, "gathered": False}),
    ),
    Fault(
        "one_source",
        "hard negatives that are empty",
        Training(lambda: Gathered(by_device=False), negatives=1, near=math.inf),
    ),
    Fault("mispaired", "every caption of another image", Training(Clip, steps=60, data=Data(shuffled=True))),
    Fault("mispaired", "half of the captions of other images", Training(Softmax, steps=120, data=Data(wrong=0.5))),
    Fault("no_positives", "every row a label of its own", Training("ntxent", steps=60, data=Data(alone=True))),
    Fault(
        "detached",
        "one of two towers behind detach()",
        Training(Softmax, steps=60, about={"unreached": 0.5, "unreached_modules": "text"}),
    ),
    Fault("scale", "a fixed scale of 1,000", Training(lambda: Softmax(1000.0), steps=60)),
    Fault("scale", "a fixed scale of 1", Training(lambda: Softmax(1.0), steps=60)),
    Fault("collapse", "all rows alike", Training(Softmax, steps=60, data=Data(items=1))),
    Fault(
        "near_duplicates",
        "each pair four times, under noise like that of dropout",
        Training(Softmax, steps=60, data=Data(items=8, near=0.15)),
    ),
    Fault(
        "lost_gradient",
        "mini-batches without a backward pass",
        Training(lambda: MiniBatched(stops_at_its_tile=True), steps=60, batch=64),
    ),
)
