"""Train the embedded example: two small towers, with NT-Xent, on emoji and their captions, on a CPU."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample
from typer import Option, Typer

import cocos
from cocos import losses
from cocos.base import writing
from cocos.checkpoints import encoding
from cocos.checkpoints.formats.native import SmallTowers
from cocos.data import TrainingSet, emoji_captions
from cocos.embeddings import Embeddings, sampling, scores

ENCODER = ("small_towers", {"width": 64, "channels": [32, 48, 64, 96], "buckets": 2048, "hidden": 128})
LOSS = ("ntxent", {"temperature": 0.1})
DATA = ("emoji_captions", {})
OUT = Path(cocos.__file__).parent / "example" / "emoji_ntxent.pt"
BATCH_SIZE = 128
RATE, DECAY, WARM_UP = 3e-3, 0.05, 0.1  # of AdamW; the rate rises over the first tenth, then falls to 0
TURN, SCALE, SHIFT, TINT = math.radians(10), 0.1, 0.125, 0.1  # an image's largest changes; half sides
DROP = 0.2  # chance of a word to be left out of a caption

app = Typer(add_completion=False)


def shaken(images: Tensor, generator: torch.Generator) -> Tensor:
    """Images (N, 3, 32, 32), uint8, each turned, scaled, shifted and tinted a little on its white page."""

    def within(limit: float, *shape: int) -> Tensor:
        return limit * (2 * torch.rand(len(images), *shape, generator=generator) - 1)

    turn, scale, shift = within(TURN), 1 + within(SCALE), within(SHIFT, 2)
    cos, sin = scale * turn.cos(), scale * turn.sin()
    transform = torch.stack((cos, -sin, shift[:, 0], sin, cos, shift[:, 1]), dim=1).view(-1, 2, 3)
    ink = 255 - images.float()  # white is 0, and so is what grid_sample finds beyond the rim
    ink = grid_sample(ink, affine_grid(transform, list(ink.shape), align_corners=False), align_corners=False)
    return (255 - ink * (1 + within(TINT, 3, 1, 1))).clamp(0, 255).round().to(torch.uint8)


def shortened(caption: str, generator: torch.Generator) -> str:
    """The caption without some of its words; whole where none would be left."""
    words = caption.split()
    chances = torch.rand(len(words), generator=generator).tolist()
    return " ".join(word for word, chance in zip(words, chances, strict=True) if chance >= DROP) or caption


def recall(embeddings: Embeddings) -> dict[str, float]:
    """Part of the queries with a positive among their first 1, 5 and 10 candidates, in both directions."""
    found = {}
    for name, side in zip(embeddings.directions, (embeddings, embeddings.flip()), strict=True):
        pairs = scores.pairs(side)
        best = pairs.scores.masked_fill(~pairs.positive, -torch.inf).amax(dim=1, keepdim=True)
        above = (pairs.scores > best).sum(dim=1)
        found |= {f"{name} R@{k}": round((above < k).double().mean().item(), 4) for k in (1, 5, 10)}
    return found


def framed(items: TrainingSet) -> Embeddings:
    """Stand in for embeddings that change with every step: batches and masks depend on the groups alone."""
    sides = (items.query, items.candidate)
    return Embeddings(*(torch.zeros(len(each.items), 1) for each in sides), *(each.group for each in sides))


def fitted(items: TrainingSet, schedule: Sequence[sampling.Batch], loss, seed: int, rate: float = RATE) -> nn.Module:
    """The frozen model after one step of AdamW for every batch, with the mean loss of both directions.

    Args:
        items: images and their captions.
        schedule: the batches, of rows of `items`.
        loss: of the shelf, on unit vectors.
        seed: of the weights and the augmentation.
        rate: largest learning rate.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model, frame = SmallTowers(**ENCODER[1]), framed(items)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=DECAY)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=len(schedule), pct_start=WARM_UP)
    bar = (*Progress.get_default_columns(), TimeElapsedColumn(), TextColumn("{task.fields[loss]}"))
    with Progress(*bar) as progress:
        task = progress.add_task(f"{len(schedule)} steps", total=len(schedule), loss="")
        for batch in schedule:
            images = model.encode(shaken(items.query.items[batch.query_index], generator), "image", "query")
            texts = [shortened(items.candidate.items[row], generator) for row in batch.candidate_index.tolist()]
            similarity = images @ model.encode(texts, "text", "candidate").T
            i2t = scores.pairs(frame, batch, metric="dot").with_scores(similarity)
            t2i = scores.pairs(frame.flip(), batch.flip(), metric="dot").with_scores(similarity.T)
            mean = (loss(i2t).mean() + loss(t2i).mean()) / 2
            optimiser.zero_grad()
            mean.backward()
            optimiser.step()
            rates.step()
            progress.update(task, advance=1, loss=f"loss {mean.item():.2f}")
    return model.eval().requires_grad_(False)


def train(items: TrainingSet, epochs: int, seed: int) -> tuple[nn.Module, int]:
    """The frozen model after `epochs` passes over all captions, and the number of steps."""
    frame = framed(items)
    plans = [sampling.plan(frame, batch_size=BATCH_SIZE, seed=seed + epoch).batches for epoch in range(epochs)]
    schedule = [batch for plan in plans for batch in plan]
    return fitted(items, schedule, losses.load(*LOSS), seed), len(schedule)


@app.command()
def main(
    out: Annotated[Path, Option(help="Write the checkpoint here.")] = OUT,
    epochs: Annotated[int, Option(help="Passes over all captions.", min=1)] = 20,
    seed: Annotated[int, Option(help="Of the weights, the batches and the augmentation.", min=0)] = 0,
):
    """Train on the training split, print the recalls, and write the frozen checkpoint."""
    torch.set_num_threads(2)  # the order of sums, and so the weights, depends on it
    torch.use_deterministic_algorithms(True)
    model, steps = train(emoji_captions.load("train"), epochs, seed)
    found = {}
    for split in ("train", "val"):
        found[split] = recall(encoding.embed(model, emoji_captions.load(split), device="cpu"))
        print(f"{split:5}", "  ".join(f"{name} {value:.3f}" for name, value in found[split].items()))
    training = {
        "cocos": cocos.__version__,
        "epochs": epochs,
        "steps": steps,
        "batch_size": BATCH_SIZE,
        "seed": seed,
        "val": found["val"],
    }
    record: dict[str, Any] = {"schema": 1, "training": training}
    record["encoder"] = {"name": ENCODER[0], "arguments": ENCODER[1]}
    record["loss"] = {"name": LOSS[0], "parameters": LOSS[1]}
    record["data"] = {"name": DATA[0], "arguments": DATA[1]}
    state = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
    stream = io.BytesIO()  # given a path, torch.save writes its name into the archive: equal weights, other bytes
    torch.save({"cocos": record, "state": state}, stream)
    print(writing.write(out, stream.getvalue(), "checkpoint"))


if __name__ == "__main__":
    app()
