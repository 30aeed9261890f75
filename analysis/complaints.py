"""Six complaints from public trackers, re-created as small trainings: what cocos says of each, beside its cure.

    python analysis/complaints.py

Each training has the fault of its thread and, with the same data and seed, the setting that cures it. The networks are
small and the data synthetic: the fault is re-created, not the model of the thread.
"""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from typer import Argument, BadParameter, Option, Typer

import cocos
from benchmarks.trainings import Clip, Gathered, Grouped, HardestTriplet, MiniBatched, tower

__all__ = ["COMPLAINTS", "Complaint", "Setting", "pairs", "said", "tower", "train"]

LATENT, IMAGE, CAPTION, HIDDEN, WIDTH = 16, 48, 40, 64, 32
NOISE = 0.3  # of each side, in units of one latent coordinate
NEAR = 2.0  # between a caption and its hard negative, likewise

app = Typer(add_completion=False)


def pairs(batch: int, seed: int, *, shuffled: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of images and captions, each a noisy view of one latent vector.

    Args:
        batch: number of pairs.
        seed: of the views and the batches.
        shuffled: whether the captions belong to other images.
    """
    generator = torch.Generator().manual_seed(seed)
    views = [torch.randn(LATENT, width, generator=generator) / LATENT**0.5 for width in (IMAGE, CAPTION)]
    while True:
        latent = torch.randn(batch, LATENT, generator=generator)
        image, caption = (
            latent @ view + NOISE * torch.randn(batch, view.shape[1], generator=generator) for view in views
        )
        yield image, caption[torch.randperm(batch, generator=generator)] if shuffled else caption


@dataclass(frozen=True)
class Setting:
    """How two towers are trained.

    Args:
        loss: makes the module.
        rate: learning rate of AdamW.
        decay: weight decay, of all parameters.
        steps: of the optimiser.
        batch: pairs.
        layers: hidden layers of each tower.
        shuffled: whether captions belong to other images.
        negatives: captions near its own that each image has as hard negatives.
        accumulate: batches of one step.
    """

    loss: Callable[[], nn.Module]
    rate: float = 1e-3
    decay: float = 0.0
    steps: int = 240
    batch: int = 64
    layers: int = 2
    shuffled: bool = False
    negatives: int = 0
    accumulate: int = 1


def train(setting: Setting, seed: int, every: int = 1) -> cocos.Monitor:
    """Train two towers with a monitor beside the loss, which is closed at the end.

    Args:
        setting: of the training.
        seed: of the weights and the data.
        every: calls of the loss from one record to the next.
    """
    torch.manual_seed(seed)
    image_tower, caption_tower = tower(IMAGE, setting.layers), tower(CAPTION, setting.layers)
    loss = setting.loss()
    parameters = [*image_tower.parameters(), *caption_tower.parameters(), *loss.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=setting.rate, weight_decay=setting.decay)
    batches = pairs(setting.batch, seed, shuffled=setting.shuffled)
    with cocos.Monitor(loss, every=every) as monitor:
        for _ in range(setting.steps):
            optimiser.zero_grad()
            for _ in range(setting.accumulate):
                image, caption = next(batches)
                hard = [caption + NEAR * torch.randn_like(caption) for _ in range(setting.negatives)]
                captions = [caption_tower(each) for each in (caption, *hard)]
                (loss(image_tower(image), *captions) / setting.accumulate).backward()
            optimiser.step()
    return monitor


@dataclass(frozen=True)
class Complaint:
    """A thread, and two trainings: with its fault, and with its cure.

    Args:
        thread: its address.
        saw: what its author saw.
        fault: what is wrong in the training that stands for it.
        cure: what differs in the other one.
        fires: detectors that speak of the fault.
        faulty: the training with the fault.
        healthy: the other one.
    """

    thread: str
    saw: str
    fault: str
    cure: str
    fires: tuple[str, ...]
    faulty: Setting
    healthy: Setting


COMPLAINTS = {
    "falling-scale": Complaint(
        "https://github.com/mlfoundations/open_clip/issues/815",
        "the logit scale goes from 14.28 down to 1 while the loss becomes constant",
        "the towers collapse under a learning rate that is too high, and weight decay takes the scale to 1",
        "a lower learning rate, which the author found as well",
        ("scale", "stuck", "collapse"),
        Setting(Clip, rate=0.5, decay=0.1, layers=5),
        Setting(Clip, decay=0.1, layers=5),
    ),
    "constant-loss": Complaint(
        "https://github.com/mlfoundations/open_clip/issues/17",
        "the loss stays at 4.8 for 15 epochs of batches of 128 pairs; ln 128 is 4.85",
        "the captions belong to other images; the thread ends without a cause, and this is one that gives its numbers",
        "each image has its own caption",
        ("stuck",),
        Setting(Clip, batch=128, shuffled=True),
        Setting(Clip, batch=128),
    ),
    "twice-the-margin": Complaint(
        "https://github.com/fartashf/vsepp/issues/27",
        "the loss is stuck at 2 * batch size * margin when the image network is trained as well",
        "all embeddings coincide after a learning rate that is too high",
        "a lower learning rate",
        ("stuck", "collapse"),
        Setting(HardestTriplet, rate=0.1),
        Setting(HardestTriplet),
    ),
    "group-of-one": Complaint(
        "https://github.com/FlagOpen/FlagEmbedding/issues/823",
        "loss 0.0 and gradient norm 0.0 from the first step",
        "a batch of one query with a group of one passage: the positive is the only candidate",
        "a group of eight passages: the positive and seven hard negatives",
        ("one_candidate",),
        Setting(Grouped, steps=120, batch=1, accumulate=2),
        Setting(Grouped, steps=120, batch=1, accumulate=2, negatives=7),
    ),
    "lost-mini-batches": Complaint(
        "https://github.com/huggingface/sentence-transformers/pull/3854",
        "only the last mini-batch of each batch reaches the weights (fixed in the same project's pull request 3862)",
        "the end of a mini-batch is compared with the length of the mini-batch, so that no inner backward pass runs",
        "it is compared with the length of the batch",
        ("lost_gradient",),
        Setting(lambda: MiniBatched(stops_at_its_tile=True)),
        Setting(lambda: MiniBatched(stops_at_its_tile=False)),
    ),
    "misaligned-gather": Complaint(
        "https://github.com/huggingface/sentence-transformers/pull/3453",
        "training with hard negatives on several devices ruins the model: anchors are pulled to hard negatives",
        "the gathered columns stand device by device, PNPN, while the targets expect PPNN",
        "all positives are gathered first",
        ("misaligned",),
        Setting(lambda: Gathered(by_device=True), negatives=1),
        Setting(lambda: Gathered(by_device=False), negatives=1),
    ),
}


def said(monitor: cocos.Monitor) -> list[str]:
    """First sentence of each detector that spoke, in order of steps."""
    first = {each["detector"]: each for each in reversed(monitor.alarms)}
    return [each["sentence"] for each in sorted(first.values(), key=lambda each: each["step"])]


@app.command()
def main(
    name: Annotated[str | None, Argument(help="Of one complaint; all of them otherwise.")] = None,
    seed: Annotated[int, Option(help="Seed of weights and data.", min=0)] = 0,
):
    """Print each complaint, its thread, and what cocos says of the fault and of the cure."""
    logging.getLogger("cocos").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    if name is not None and name not in COMPLAINTS:
        raise BadParameter(f"{name!r}, expected one of {', '.join(COMPLAINTS)}")
    for each in COMPLAINTS if name is None else [name]:
        complaint = COMPLAINTS[each]
        print(f"{each}: {complaint.thread}\n  its author saw: {complaint.saw}\n  fault: {complaint.fault}")
        for sentence in said(train(complaint.faulty, seed)):
            print(f"    cocos: {sentence}")
        print(f"  cure: {complaint.cure}")
        for sentence in said(train(complaint.healthy, seed)) or ["(silent)"]:
            print(f"    cocos: {sentence}")


if __name__ == "__main__":
    app()
