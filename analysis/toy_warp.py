"""A small network with a two-dimensional embedding of Fashion-MNIST: plain softmax, warped softmax, distance to proxy.

Above, the held-out images where the two losses put them (a point each, its class by colour and by the number at its
proxy); below, how far the training images come to rest from the proxies of their classes, epoch by epoch.
"""

from pathlib import Path

import numpy as np
import torch
import xarray as xr

from cocos import losses, measures, plots, scores
from proxy_networks import one_thread, trained

PUBLISHED = "DeMoor & Prevost 2024, Fig. 10 (toy illustration on Fashion-MNIST), Fig. 9 and eq. 9 (AvgDTP)"
DIFFERS = (
    "the paper's figure overfits a convolutional network; here a network of one hidden layer, and the points shown are "
    "held out. No number is compared"
)
INPUTS = (Path(__file__).parent / "data" / "fashion_mnist.npz",)
SIZE = (11.4, 9.6)
RUNS = {
    "t": ("euclidean_softmax", {}),
    "√t": ("euclidean_softmax", {"f1": "sqrt", "f2": "sqrt"}),
    "warp, α = 1.5": ("warped_softmax", {"alpha": 1.5}),
    "warp, α = 3": ("warped_softmax", {"alpha": 3.0}),
    "warp, α = 6": ("warped_softmax", {"alpha": 6.0}),
}
SHOWN = ("t", "warp, α = 3")
NETWORK = {"hidden": 128, "width": 2, "batch": 100, "rate": 2e-3, "proxy_rate": 5e-2, "spread": 4.0}
EPOCHS, SEED = 24, 0


def _images(split):
    with np.load(INPUTS[0]) as held:
        images, labels = held[f"{split}_images"], held[f"{split}_labels"]
    return torch.as_tensor(images).float().flatten(1) / 255, torch.as_tensor(labels).long()


def _trained(name, parameters):
    """The embeddings of the training images after every epoch, of the held-out ones after the last."""
    (rows, labels), seen = _images("train"), []
    loss, how = losses.load(name, parameters), {"seeds": [SEED], "epochs": EPOCHS}
    for epoch, networks in enumerate(trained(loss, rows[None], labels, **how, **NETWORK)):
        if epoch:
            seen += networks.embedded(rows, labels, proxies=True)
    return seen, networks.embedded(*_images("test"), proxies=True)[0]


def data(progress):
    """Every run, and what became of the held-out images under two of them."""
    runs, parts = {}, {}
    with one_thread():
        for name, (loss, parameters) in RUNS.items():
            runs[name], held = _trained(loss, parameters)
            if name in SHOWN:
                parts[f"place_{SHOWN.index(name)}"] = _place(held).assign_attrs(run=name, seed=SEED)
        alpha = {name: parameters["alpha"] for name, (_, parameters) in RUNS.items() if "alpha" in parameters}
        found = measures.dtp(runs, steps=range(1, EPOCHS + 1), alpha=alpha)
    return parts | {"dtp": found.assign_attrs(seed=SEED)}


def _place(held):
    right = (scores.euclidean(held.query, held.candidate).argmax(dim=1) == held.query_group).double().mean()
    return xr.Dataset(
        {
            "place": (("sample", "axis"), held.query.numpy()),
            "label": ("sample", held.query_group.numpy()),
            "proxy": (("class", "axis"), held.candidate.numpy()),
        },
        attrs={"accuracy": float(right)},
    )


def _ends(parts):
    return parts["dtp"]["average"].isel(step=-1)


def title(parts):
    """The claim."""
    ends, alpha = _ends(parts), parts["dtp"]["alpha"]
    warps = [run for run in ends["run"].values if float(alpha.sel(run=run)) > 0]
    told = ", ".join(f"{float(ends.sel(run=run)):.1f} for α = {float(alpha.sel(run=run)):g}" for run in warps)
    return f"Images rest at or short of the warp's α: mean distance to proxy {told}"


def alt(parts):
    """One sentence."""
    return "Two-dimensional embeddings of held-out images around their proxies, and distance to proxy over the epochs."


def agrees(parts):
    """Distances at the end, and accuracy without any comparison."""
    ends = _ends(parts)
    plain, root = float(ends.sel(run="t")), float(ends.sel(run="√t"))
    side = "farther out than" if root > plain else "nearer than"
    return (
        f"Without a warp t rests at {plain:.1f} and √t at {root:.1f}, {side} t (Table III has √t nearer). "
        "One seed, so neither the distances nor the accuracies of the runs can be compared."
    )


def draw(parts, figure):
    """Two panels above, one below."""
    panels = figure.subplot_mosaic("ab;cc")
    for ax, part in zip((panels["a"], panels["b"]), (parts["place_0"], parts["place_1"]), strict=True):
        place, label, proxy = part["place"].values, part["label"].values, part["proxy"].values
        ax.scatter(*place.T, c=label, cmap="tab10", s=7, linewidth=0, rasterized=True)
        ax.scatter(*proxy.T, c=range(10), cmap="tab10", s=150, marker="o", edgecolor="black")
        for number, at in enumerate(proxy):
            ax.annotate(str(number), at, ha="center", va="center", fontsize="small", fontweight="bold", color="white")
        ax.set(
            title=f"{part.attrs['run']}: {100 * part.attrs['accuracy']:.0f} % at the nearest proxy",
            xlabel="first coordinate of the embedding",
            ylabel="second coordinate",
            aspect="equal",
        )
    ax = plots.dtp(parts["dtp"], band=False, ax=panels["c"])
    ax.set(xlabel="epoch", xlim=(1, EPOCHS * 1.12))
    correlation = parts["dtp"].attrs["alpha_correlation"]
    ax.set_title(
        f"distance to proxy, mean over classes; correlation of α and its end over three warps: {correlation:.3f}"
    )
