"""Pictures of the how-tos and of the gallery: each is what a command draws. `python docs/_ext/pictures.py [NAME ...]`.

The files that the commands name are made in a temporary folder from what cocos carries: the held-out embeddings of the
embedded example, captions of photos under a public encoder, and small trainings on them, all from a seed.
"""

import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import normalize

import cocos

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
# Colours and largest width of a kept picture, in pixels.
COLOURS, WIDEST = 64, 1100


@dataclass(frozen=True)
class Picture:
    """A command, and its picture in words."""

    command: str
    alt: str
    page: str = "plots"  # the how-to that shows it


PICTURES = {
    "audit": Picture(
        "cocos plot audit embeddings.npz --loss ntxent",
        "Bars of the part of the push on negatives that each rule suspects, and that each filter removes.",
        "audit",
    ),
    "contributors": Picture(
        "cocos plot contributors embeddings.npz --row 12 --direction i2t --loss ntxent",
        "Bars of the largest parts of the gradient of one emoji, with the captions that pull and push it.",
        "checkpoint",
    ),
    "count": Picture(
        "cocos plot count embeddings.npz --loss ntxent",
        "Histograms of the contributing negatives per query under NT-Xent.",
        "checkpoint",
    ),
    "decomposition": Picture(
        "cocos plot decomposition embeddings.npz --loss ntxent",
        "Boxes of the lengths of pull, push, their sum, and what the normalisation leaves of it.",
    ),
    "diff": Picture(
        "cocos diff runs/collapsing/step_300.npz runs/healthy/step_300.npz --loss triplet_sh",
        "Change of the reciprocal rank of every query, from the largest fall to the largest rise.",
        "diff",
    ),
    "dtp": Picture(
        "cocos plot dtp runs/plain runs/warp --alpha warp=3",
        "Distance to the own proxy over the steps of two runs; the one with a warp comes to rest near its boundary.",
    ),
    "eps_curve": Picture(
        "cocos plot eps-curve embeddings.npz --loss ntxent",
        "Contributing negatives of NT-Xent against the threshold: the count falls with it.",
    ),
    "landscape": Picture(
        "cocos plot landscape --f1 warp --alpha 3 --k1 0.65 --k2 1.5",
        "The loss around two proxies as a map with arrows; its minimum lies 3 behind the own proxy.",
    ),
    "lorenz": Picture(
        "cocos plot lorenz embeddings.npz --loss ntxent",
        "Part of the push that the heaviest negatives of a query have together, against their number.",
    ),
    "precision_recall": Picture(
        "cocos plot precision-recall embeddings.npz --width two",
        "Precision against recall of one threshold for all queries, and of a threshold for each query.",
        "evaluate",
    ),
    "replay": Picture(
        "cocos plot replay embeddings.npz --loss ntxent --width two",
        "A point with its interval for each changed setting: the paired change of the contributing negatives.",
        "replay",
    ),
    "retrievals": Picture(
        "cocos plot retrievals embeddings.npz --direction i2t",
        "Emoji, each with the five captions that score highest for it; right ones have a green frame.",
        "evaluate",
    ),
    "run": Picture(
        "cocos run runs/collapsing --loss triplet_sh",
        "Panels of counts, idle queries, recall, alignment and uniformity over the steps of a collapsing run.",
        "run",
    ),
    "score_distribution": Picture(
        "cocos plot score-distribution embeddings.npz --loss triplet --width two",
        "Negatives of each query by their score, scores of the positives, and of each k-th neighbour.",
    ),
    "score_landscape": Picture(
        "cocos plot score-landscape --loss triplet",
        "Weight of a negative over the scores of a positive and of a negative, with lines of equal loss.",
        "loss",
    ),
    "sources": Picture(
        "cocos plot sources triples.npz --loss mnrl --batch-size 64",
        "Bars of the part of the push, and of the negatives, that each source has; own hard negatives lead.",
        "columns",
    ),
    "temperature": Picture(
        "cocos whatif embeddings.npz --settles --batch-size 32,64,128,256",
        "Where a learned temperature settles, against the batch size, with intervals.",
        "temperature",
    ),
    "temperature_curve": Picture(
        "cocos plot temperature-curve embeddings.npz --loss ntxent --batches 1",
        "Effective and contributing negatives against the temperature: the first rises, the second has a peak.",
        "temperature",
    ),
    "thresholds": Picture(
        "cocos plot thresholds embeddings.npz",
        "How many candidates queries get when everything above one cosine is returned.",
        "evaluate",
    ),
    "watched": Picture(
        "cocos run training.jsonl",
        "Counts, idle queries, alignment, uniformity and loss of a training, as a monitor recorded them.",
        "monitor",
    ),
    "weight_curve": Picture(
        "cocos plot weight-curve --loss circle",
        "Gradient weight of a negative and of a positive under the circle loss while its score moves.",
        "loss",
    ),
    "weight_map": Picture(
        "cocos plot weight-map embeddings.npz --loss triplet --batch-size 24 --width two",
        "All weights of one batch as a map of queries and candidates; grey cells do not contribute.",
    ),
}


def _embeddings(folder: Path) -> None:
    """`embeddings.npz`: the held-out split of the example, with its texts and pictures."""
    held = cocos.open("example").embed("val")
    shown = {"query_image": np.stack(held.pictures[0]), "candidate_name": np.array(held.names[1])}
    groups = {"query_group": held.query_group, "candidate_group": held.candidate_group}
    sides = {"query": held.query, "candidate": held.candidate, "directions": list(held.directions)}
    np.savez(folder / "embeddings.npz", **sides, **groups, **shown)


def _triples(folder: Path) -> None:
    """`triples.npz`: captions of photos with the three captions that score highest."""
    data = np.load(ROOT / "notebooks" / "data" / "captions_minilm.npz")
    rows = normalize(torch.as_tensor(data["embeddings"]).float(), dim=1)
    asked = torch.arange(0, len(rows), 5)
    scores = rows[asked] @ rows.T
    place = torch.arange(len(asked))
    scores[place, asked] = scores[place, asked + 1] = -2
    hard = rows[scores.topk(3, dim=1).indices]
    np.savez(folder / "triples.npz", query=rows[asked], candidate=rows[asked + 1], negatives=hard)


def _runs(folder: Path) -> None:
    """`runs/collapsing` and `runs/healthy`: two heads on frozen embeddings, by the VSE++ recipe (arXiv:1707.05612)."""
    splits = {}
    for split in ("train", "val"):
        embeddings = cocos.open("example").embed(split)
        scale = embeddings.query.shape[1] ** 0.5  # unit vectors become features with a variance of about 1
        groups = {"query_group": embeddings.query_group, "candidate_group": embeddings.candidate_group}
        splits[split] = {"query": scale * embeddings.query, "candidate": scale * embeddings.candidate, **groups}
    train, held = splits.values()
    width = train["query"].shape[1]
    for name, rate in (("healthy", 1e-3), ("collapsing", 3e-2)):
        run = folder / "runs" / name
        run.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(0)
        sizes = [(width, 128), (128, 128), (128, 64)]
        heads = {}
        for side in ("query", "candidate"):
            first, second, last = (torch.nn.Linear(*size) for size in sizes)
            heads[side] = torch.nn.Sequential(first, torch.nn.ReLU(), second, torch.nn.ReLU(), last)
        parameters = [parameter for head in heads.values() for parameter in head.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=rate)
        for step in range(301):
            if step % 50 == 0:
                sides = {side: normalize(head(held[side]), dim=1).detach().numpy() for side, head in heads.items()}
                groups = {group: held[group] for group in ("query_group", "candidate_group")}
                np.savez(run / f"step_{step:03}.npz", **sides, **groups, directions=["i2t", "t2i"])
            row = torch.randint(len(train["candidate"]), (128,))
            image = train["candidate_group"][row]  # the group of a caption is the row of its image
            query = normalize(heads["query"](train["query"][image]), dim=1)
            scores = query @ normalize(heads["candidate"](train["candidate"][row]), dim=1).T
            hinges = [(0.2 + part - part.diagonal()[:, None]).clamp(min=0) for part in (scores, scores.T)]
            optimizer.zero_grad()
            sum(hinge.fill_diagonal_(0).amax(dim=1).sum() for hinge in hinges).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 2.0)
            optimizer.step()


def _monitored(folder: Path) -> None:
    """`training.jsonl`: the store of a monitor beside a training whose learning rate is too high."""
    torch.manual_seed(0)
    query, shared = torch.nn.Linear(32, 16), torch.randn(512, 32)
    adam = torch.optim.Adam(query.parameters(), lr=0.3)
    with cocos.Monitor("triplet_sh", every=5, store=str(folder / "training.jsonl")) as monitor:
        for step in range(301):
            rows = shared[torch.randint(512, (64,))]
            one, two = (normalize(query(rows + 0.5 * torch.randn_like(rows)), dim=1) for _ in range(2))
            scores = one @ two.T
            hinge = (0.2 + scores - scores.diagonal()[:, None]).clamp(min=0).fill_diagonal_(0).amax(dim=1).mean()
            monitor(one, two, step=step)
            adam.zero_grad()
            hinge.backward()
            adam.step()


def _proxies(folder: Path) -> None:
    """`runs/plain` and `runs/warp`: samples that move freely around six proxies, without a warp and with one."""
    for name, loss in (
        ("plain", cocos.losses.load("euclidean_softmax")),
        ("warp", cocos.losses.load("warped_softmax", alpha=3)),
    ):
        torch.manual_seed(0)
        labels = torch.arange(120) % 6
        proxies = 6 * normalize(torch.randn(6, 8), dim=1)
        samples = (proxies[labels] + 3 * torch.randn(120, 8)).requires_grad_()
        descent = torch.optim.SGD([samples], lr=2.0)
        (folder / "runs" / name).mkdir(parents=True, exist_ok=True)
        for step in range(121):
            if step % 10 == 0:
                about = {"labels": labels, "proxies": proxies, "proxy_labels": np.arange(6)}
                np.savez(folder / "runs" / name / f"step_{step}.npz", embeddings=samples.detach(), **about)
            own = labels[:, None] == torch.arange(6)
            descent.zero_grad()
            loss(-torch.cdist(samples, proxies), own, ~own).sum().backward()
            descent.step()


# What makes the files of a command, by a word of the command.
MAKERS = {
    "embeddings.npz": _embeddings,
    "triples.npz": _triples,
    "runs/collapsing": _runs,
    "training.jsonl": _monitored,
    "runs/warp": _proxies,
}


def draw(name: str, folder: Path) -> None:
    """Run the command of a picture in a folder that has its files, and keep the picture small."""
    words = shlex.split(PICTURES[name].command)
    large = folder / f"{name}.png"
    subprocess.run(
        [sys.executable, "-m", *words, "--out", str(large), "-q"], check=True, cwd=folder, stdout=subprocess.DEVNULL
    )
    image = Image.open(large).convert("RGB")
    image.thumbnail((WIDEST, 10 * WIDEST), Image.Resampling.LANCZOS)
    FOLDER.mkdir(exist_ok=True)
    small = image.quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(FOLDER / f"{name}.png", "PNG", optimize=True)


def main(names: list[str]) -> None:
    """Draw the pictures that are named, or all, and say how large each is."""
    chosen = names or list(PICTURES)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for make in (make for word, make in MAKERS.items() if any(word in PICTURES[each].command for each in chosen)):
            make(folder)
        for name in chosen:
            draw(name, folder)
            print(f"{name}: {(FOLDER / f'{name}.png').stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
