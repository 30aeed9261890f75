"""Retrieval of unseen characters when the held-out images are corrupted, and when training labels are wrong.

Left, the gain of the warp over plain softmax over distances, t, under each corruption, here and in the paper. Right,
the cost to each loss of training labels that name another character. Bars are 95 % intervals over paired seeds.
"""

import numpy as np
import seaborn as sns
import torch
import xarray as xr
from matplotlib.lines import Line2D
from torch.nn.functional import conv2d

from analysis import omniglot
from analysis.proxy_networks import one_thread, recall, trained
from cocos import losses
from cocos.counting.statistics import paired
from cocos.plots.replay import UNRESOLVED_GREY, forest

PUBLISHED = "DeMoor & Prevost 2024, Table IV"
SIZE = (7.0, 4.0)
LOSSES = {
    "√t": ("euclidean_softmax", {"f1": "sqrt", "f2": "sqrt"}),
    "t": ("euclidean_softmax", {}),
    "warp": ("warped_softmax", {"alpha": 8.0, "k1": 0.65, "k2": 1.5, "delta": 1.3}),
    "cosine": ("normalized_softmax", {"temperature": 1 / 18}),  # on unit vectors ProxyNCA++ with its temperature of 1/9
}
TABLE_IV = {  # regular softmax, warped softmax
    "uncorrupted": (69.4, 72.5),
    "Gaussian noise": (56.7, 57.7),
    "uniform noise": (66.9, 69.1),
    "salt and pepper": (39.4, 41.0),
    "dropout": (27.3, 28.9),
    "cutout": (59.5, 61.6),
    "affine shear": (67.4, 69.7),
    "jigsaw": (51.2, 55.6),
    "defocus blur": (46.1, 47.6),
}
WRONG = (0.0, 0.4)
SEEDS, EPOCHS, VIEWS = tuple(range(8)), 12, 5
NAMED = {"long_name": "drawings of unseen characters whose nearest other drawing shows the same one", "units": "%"}


def _corrupted(pixels, seed):
    """Corrupt the images in each way of Table IV that applies to grey images, in strengths of our own."""
    generator, (number, side, _) = torch.Generator().manual_seed(seed), pixels.shape
    noise = torch.randn(pixels.shape, generator=generator)
    even, other = (torch.rand(pixels.shape, generator=generator) for _ in range(2))
    yield "uncorrupted", pixels
    yield "Gaussian noise", (pixels + 0.4 * noise).clamp(0, 1)
    yield "uniform noise", (pixels + 0.8 * (even - 0.5)).clamp(0, 1)
    yield "salt and pepper", torch.where(even < 0.1, (other < 0.5).float(), pixels)
    yield "dropout", torch.where(even < 0.3, 0, pixels)
    place = torch.randint(0, side - 12, (number, 2, 1), generator=generator)
    row, column = ((place[:, k] <= torch.arange(side)) & (torch.arange(side) < place[:, k] + 12) for k in range(2))
    yield "cutout", pixels.masked_fill(row[:, :, None] & column[:, None, :], 0)
    slant = 0.4 * (2 * torch.rand(number, generator=generator) - 1)
    still = torch.zeros(number)
    yield "affine shear", omniglot.moved(pixels, still, slant, torch.ones(number, 2), torch.zeros(number, 2))
    yield "jigsaw", _jigsaw(pixels, generator)
    away = (torch.arange(7) - 3.0).square()
    disk = (away[:, None] + away[None, :] <= 3.0**2).float()
    yield "defocus blur", conv2d(pixels[:, None], (disk / disk.sum())[None, None], padding=3)[:, 0]


def _jigsaw(pixels, generator):
    """Swap two consecutive pieces of the 5x5 pieces of 7x7 pixels, five times."""
    pieces = pixels.reshape(-1, 5, 7, 5, 7).transpose(2, 3).flatten(1, 2).clone()
    every = torch.arange(len(pieces))
    for _ in range(5):
        first = torch.randint(0, 24, (len(pieces),), generator=generator)
        pieces[every, first], pieces[every, first + 1] = pieces[every, first + 1], pieces[every, first]
    return pieces.unflatten(1, (5, 5)).transpose(2, 3).reshape(pixels.shape)


def _mislabelled(labels, part, seed):
    """Replace a part of the labels by other classes."""
    generator, classes = torch.Generator().manual_seed(seed), int(labels.max()) + 1
    wrong = torch.rand(len(labels), generator=generator).argsort() < round(part * len(labels))
    other = torch.randint(1, classes, labels.shape, generator=generator)
    return torch.where(wrong, (labels + other) % classes, labels)


def data():
    """Measure R@1 of each loss and seed, by corruption of the held-out images and by part of wrong labels."""
    with one_thread():
        (pixels, labels), (held, unseen) = omniglot.images("train"), omniglot.images("test")
        rows = omniglot.edges(omniglot.views(pixels, VIEWS, seed=0))
        seen = {name: omniglot.edges(images) for name, images in _corrupted(held, seed=0)}
        corrupted, mislabelled = [], []
        for name, parameters in LOSSES.values():
            loss = losses.load(name, parameters)
            for part in WRONG:
                told = _mislabelled(labels, part, seed=0)
                *_, networks = trained(loss, rows, told, seeds=SEEDS, epochs=EPOCHS)
                for kind in seen if part == 0 else ["uncorrupted"]:
                    found = networks.embedded(seen[kind], unseen, proxies=False)
                    recalls = [recall(each, loss.metric) for each in found]
                    corrupted += [recalls] if part == 0 else []
                    mislabelled += [recalls] if kind == "uncorrupted" else []
    shape = (len(LOSSES), -1, len(SEEDS))
    coords = {"loss": list(LOSSES), "corruption": list(TABLE_IV), "wrong": list(WRONG), "seed": list(SEEDS)}
    return {
        "noise": xr.Dataset(
            {
                "corrupted": (("loss", "corruption", "seed"), np.reshape(corrupted, shape), NAMED),
                "mislabelled": (("loss", "wrong", "seed"), np.reshape(mislabelled, shape), NAMED),
                "published": (("corruption", "published_loss"), list(TABLE_IV.values())),
            },
            coords=coords | {"published_loss": ["regular softmax", "warped softmax"]},
            attrs={"seed": str(SEEDS), "epochs": EPOCHS},
        )
    }


def _gain(parts, kind, loss="warp"):
    """Paired difference of R@1 from t under a corruption."""
    found = parts["noise"]["corrupted"].sel(corruption=kind)
    return paired(found.sel(loss=loss).values, found.sel(loss="t").values)


def _lost(parts, loss):
    """Paired difference of R@1 between the largest part of wrong labels and none."""
    found = parts["noise"]["mislabelled"].sel(loss=loss)
    return paired(found.isel(wrong=-1).values, found.isel(wrong=0).values)


def title(parts):
    """The claim."""
    kinds = parts["noise"]["corruption"].values.tolist()
    worse = [kind for kind in kinds if _gain(parts, kind).high < 0]
    better = [kind for kind in kinds if _gain(parts, kind).low > 0]
    lost = [loss for loss in LOSSES if _lost(parts, loss).high < 0]
    return (
        f"The warp is below plain softmax, t, in {len(worse)} of {len(kinds)} conditions, above it in "
        f"{len(better) or 'none'}; wrong labels lower R@1 of {len(lost)} of {len(LOSSES)} losses"
    )


def draw(parts, figure):
    """Draw the warp minus t by corruption on the left, and the cost of wrong labels by loss on the right."""
    noise, (left, right) = parts["noise"], figure.subplots(1, 2, width_ratios=(1.6, 1))
    kinds = noise["corruption"].values.tolist()
    every = noise["corrupted"].sel(loss="warp") - noise["corrupted"].sel(loss="t")
    forest(
        [_gain(parts, kind) for kind in kinds],
        [every.sel(corruption=kind).values for kind in kinds],
        at=range(len(kinds)),
        published=noise["published"].diff("published_loss").values[:, 0],
        ax=left,
    )
    left.set(
        ylim=(len(kinds) - 0.4, -0.6),
        yticks=range(len(kinds)),
        yticklabels=kinds,
        title="warp minus plain softmax, t, under corruption",
    )
    wrong = noise["mislabelled"]
    cost = wrong.isel(wrong=-1) - wrong.isel(wrong=0)
    forest([_lost(parts, loss) for loss in LOSSES], [cost.sel(loss=loss).values for loss in LOSSES],
           at=range(len(LOSSES)), ax=right)  # fmt: skip
    part = f"{100 * float(noise['wrong'][-1]):.0f} % wrong labels minus none"
    right.set(ylim=(len(LOSSES) - 0.4, -0.6), yticks=range(len(LOSSES)), yticklabels=list(LOSSES), title=part)
    for ax in (left, right):
        ax.set_xlabel("difference of R@1 (points)")
        ax.tick_params(axis="y", length=0)
        sns.despine(ax=ax, left=True)
    entries = [
        Line2D([], [], color=sns.color_palette("colorblind")[0], marker="o", linewidth=2.4, label="resolved"),
        Line2D([], [], color=UNRESOLVED_GREY, marker="o", linewidth=2.4, label="not resolved"),
        Line2D([], [], color="0.4", marker="o", markersize=3.2, linestyle="", label="a seed"),
        Line2D(
            [],
            [],
            color="none",
            markeredgecolor=sns.color_palette("colorblind")[1],
            marker="D",
            label="DeMoor & Prevost, Table IV",
        ),
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=len(entries), frameon=False)
    figure.suptitle(title(parts))
