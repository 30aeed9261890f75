"""A collapsing and a healthy training by the recipe of VSE++, which differ in their learning rate alone.

    python analysis/collapse.py FOLDER
    cocos run FOLDER/collapsing --loss triplet_sh
    cocos diff FOLDER/collapsing FOLDER/healthy --loss triplet_sh

Two heads learn on frozen features, as VSE++ learns on features of a network that it does not train: the features are
the embeddings of the example that cocos carries, emoji and their captions. The loss, its margin of 0.2, Adam, batches
of 128 and the clipped gradient are the recipe's; the heads have two hidden layers in place of one linear layer, so
that there is something to collapse. The embeddings of the held-out split are written every 50 steps.

Source: Faghri et al. 2018, arXiv:1707.05612, section 4.1 and their code, https://github.com/fartashf/vsepp.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize
from typer import Argument, Option, Typer

import cocos
from cocos.embeddings import Embeddings
from complaints import HardestTriplet

__all__ = ["RATES", "write"]

# Learning rates: VSE++ has 2e-4 for its one layer on 113,287 images; here are 300 steps.
RATES = {"healthy": 1e-3, "collapsing": 3e-2}
STEPS, EVERY, BATCH, WIDTH, HIDDEN, CLIP = 300, 50, 128, 64, 128, 2.0

app = Typer(add_completion=False)


def _head(features: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH)
    )


def _features(split: str) -> Embeddings:
    """Frozen features of a split, with a variance of about 1: unit vectors times the square root of their width."""
    found = cocos.open("example").embed(split)
    width = found.query.shape[1]
    return Embeddings(found.query * width**0.5, found.candidate * width**0.5, found.query_group, found.candidate_group)


@torch.no_grad()
def _save(path: Path, image: nn.Module, caption: nn.Module, held: Embeddings) -> None:
    """Write the embeddings of both sides, of unit length, with their groups."""
    sides = {"query": image(held.query), "candidate": caption(held.candidate)}
    arrays = {name: normalize(rows, dim=1).numpy() for name, rows in sides.items()}
    groups = {"query_group": held.query_group.numpy(), "candidate_group": held.candidate_group.numpy()}
    np.savez(path, **arrays, **groups, directions=np.array(["i2t", "t2i"]))


def write(folder: Path | str, name: str, *, seed: int = 0) -> Path:
    """Train one of the two runs, and write its checkpoints and its store.

    Args:
        folder: in which the folder of the run and its store are made.
        name: of the run, a key of `RATES`.
        seed: of the heads and the batches.

    Returns:
        The folder of the run, with `step_000.npz` to `step_300.npz`; beside it lies `NAME.jsonl`.
    """
    learned, held = _features("train"), _features("val")
    run = Path(folder) / name
    run.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    image, caption, loss = _head(learned.query.shape[1]), _head(learned.candidate.shape[1]), HardestTriplet()
    parameters = [*image.parameters(), *caption.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=RATES[name])
    with cocos.Monitor(loss, store=run.with_suffix(".jsonl")):
        for step in range(STEPS + 1):
            if step % EVERY == 0:
                _save(run / f"step_{step:03}.npz", image, caption, held)
            row = torch.randint(len(learned.candidate), (BATCH,))
            picture = learned.candidate_group[row]  # the group of a caption is the row of its image
            value = loss(image(learned.query[picture]), caption(learned.candidate[row]))
            optimiser.zero_grad()
            value.backward()
            nn.utils.clip_grad_norm_(parameters, CLIP)
            optimiser.step()
    return run


@app.command()
def main(
    folder: Annotated[Path, Argument(help="In which the folders of both runs are made.")],
    seed: Annotated[int, Option(help="Seed of the heads and the batches.", min=0)] = 0,
):
    """Write the checkpoints of both runs, and the stores of their monitors."""
    torch.set_num_threads(1)
    for name in RATES:
        print(write(folder, name, seed=seed))


if __name__ == "__main__":
    app()
