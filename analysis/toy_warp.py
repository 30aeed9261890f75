"""A small network with a two-dimensional embedding of Fashion-MNIST: plain softmax, warped softmax, distance to proxy.

Left, held-out images of one seed on one scale, each connected to the proxy of its class. Right, the mean distance of
the training images to the proxies of their classes.
"""

from pathlib import Path

import numpy as np
import seaborn as sns
import torch
import xarray as xr
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from analysis.proxy_networks import one_thread, trained
from cocos import losses
from cocos.embeddings import similarities

PUBLISHED = "DeMoor & Prevost 2024, Figs. 9 and 10"
SIZE = (7.0, 3.7)
RUNS = {
    "t": ("euclidean_softmax", {}),
    "√t": ("euclidean_softmax", {"f1": "sqrt", "f2": "sqrt"}),
    "warp, α = 1.5": ("warped_softmax", {"alpha": 1.5}),
    "warp, α = 3": ("warped_softmax", {"alpha": 3.0}),
    "warp, α = 6": ("warped_softmax", {"alpha": 6.0}),
}
SHOWN = ("t", "warp, α = 3")
CLASSES = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
NETWORK = {"hidden": 128, "width": 2, "batch": 100, "rate": 2e-3, "proxy_rate": 5e-2, "spread": 4.0}
EPOCHS, SEEDS = 24, (0, 1, 2, 3, 4)


def _images(split):
    with np.load(Path(__file__).parent / "data" / "fashion_mnist.npz") as held:
        images, labels = held[f"{split}_images"], held[f"{split}_labels"]
    return torch.as_tensor(images).float().flatten(1) / 255, torch.as_tensor(labels).long()


def _away(found):
    """Mean distance of the samples to the proxy of their class."""
    return float((found.query - found.candidate[found.query_group]).norm(dim=1).mean())


def data():
    """Train every run, and measure the distances of training and held-out images to their proxies."""
    (rows, labels), held = _images("train"), _images("test")
    seen, unseen, right, parts = [], [], [], {}
    with one_thread():
        for name, (loss, parameters) in RUNS.items():
            *_, networks = trained(
                losses.load(loss, parameters), rows[None], labels, seeds=SEEDS, epochs=EPOCHS, **NETWORK
            )
            ends = networks.embedded(*held, proxies=True)
            seen.append([_away(each) for each in networks.embedded(rows, labels, proxies=True)])
            unseen.append([_away(each) for each in ends])
            right.append([_right(each) for each in ends])
            if name in SHOWN:
                parts[f"place_{SHOWN.index(name)}"] = _place(ends[0]).assign_attrs(run=name, seed=SEEDS[0])
    ends = xr.Dataset(
        {
            "seen": (
                ("run", "seed"),
                seen,
                {"long_name": "mean distance of training images to the proxy of their class"},
            ),
            "unseen": (("run", "seed"), unseen, {"long_name": "mean distance of held-out images to their proxy"}),
            "accuracy": (("run", "seed"), right, {"long_name": "held-out images at the nearest proxy", "units": "%"}),
            "alpha": ("run", [parameters.get("alpha", np.nan) for _, parameters in RUNS.values()]),
        },
        coords={"run": list(RUNS), "seed": list(SEEDS)},
        attrs={"seed": str(SEEDS), "epochs": EPOCHS, "samples": len(rows)},
    )
    return {"ends": ends} | parts


def _right(found):
    """Percent of the samples that are nearest to the proxy of their class."""
    return 100 * float(
        (similarities.euclidean(found.query, found.candidate).argmax(dim=1) == found.query_group).double().mean()
    )


def _place(held):
    return xr.Dataset({
        "place": (("sample", "axis"), held.query.numpy()),
        "label": ("sample", held.query_group.numpy()),
        "proxy": (("class", "axis"), held.candidate.numpy()),
    })


def title(parts):
    """The claim."""
    ends = parts["ends"].dropna("run", subset=["alpha"])
    away = ends["seen"].mean("seed").values
    rests = ", ".join(f"{mean:.1f} for α = {alpha:g}" for mean, alpha in zip(away, ends["alpha"].values, strict=True))
    return f"Mean distance to proxy under the warp: {rests}"


def draw(parts, figure):
    """Draw two scatter plots on one scale, and the distances of all seeds."""
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 0.85))
    colours = sns.color_palette("colorblind", 10)
    shown = [parts[f"place_{k}"] for k in range(len(SHOWN))]
    middles = [(part["place"].min("sample").values + part["place"].max("sample").values) / 2 for part in shown]
    half = 1.06 * max(float(abs(part["place"].values - at).max()) for part, at in zip(shown, middles, strict=True))
    for ax, part, at in zip((left, middle), shown, middles, strict=True):
        place, label, proxy = part["place"].values, part["label"].values, part["proxy"].values
        for number, colour in enumerate(colours):
            mine = place[label == number]
            spokes = np.stack([mine, np.broadcast_to(proxy[number], mine.shape)], axis=1)
            ax.add_collection(LineCollection(spokes, color=colour, linewidth=0.4, alpha=0.35, rasterized=True))
            ax.plot(*mine.T, ".", color=colour, markersize=3.5, markeredgewidth=0, rasterized=True)
        for number, (at_x, at_y) in enumerate(proxy):
            ax.plot(at_x, at_y, "o", markersize=9, color=colours[number], markeredgecolor="black")
            ax.annotate(str(number), (at_x, at_y), ha="center", va="center", fontsize="small", fontweight="bold")
        ax.set(
            title=part.attrs["run"],
            xlabel="first coordinate (distance)",
            ylabel="second coordinate (distance)" if ax is left else "",
            aspect="equal",
            xlim=(at[0] - half, at[0] + half),
            ylim=(at[1] - half, at[1] + half),
        )
    ends, names = parts["ends"], ("t", "√t")
    top = 1.12 * max(float(ends["seen"].max()), float(ends["alpha"].max()))
    right.plot((0, top), (0, top), color="0.4", linestyle="--", linewidth=1)
    right.annotate(
        "distance = α",
        (0.86 * top, 0.86 * top),
        xytext=(-5, 4),
        textcoords="offset points",
        ha="right",
        color="0.35",
        fontsize="small",
    )
    for run in ends["run"].values:
        values = ends["seen"].sel(run=run).values
        at = float(ends["alpha"].sel(run=run)) if run not in names else top * (1.12 + 0.14 * names.index(run))
        right.plot(np.full(len(values), at), values, "o", markersize=5, alpha=0.75, markeredgewidth=0,
                   color="0.35" if run in names else sns.color_palette("colorblind")[0])  # fmt: skip
    right.axvline(1.04 * top, color="0.8", linewidth=0.8)
    alphas = ends["alpha"].dropna("run").values
    right.set_xticks([*alphas, *(top * (1.12 + 0.14 * k) for k in range(2))], [*(f"{a:g}" for a in alphas), *names])
    right.set(xlabel="α of the warp; no warp", ylabel="mean distance to proxy\n(training images)", xlim=(0, 1.34 * top),
              ylim=(0, top), title=f"{ends.sizes['seed']} seeds, a dot each")  # fmt: skip
    for ax in (left, middle, right):
        sns.despine(ax=ax)
    entries = [
        Line2D([], [], linestyle="", marker="o", color=colour, label=f"{number} {name}")
        for number, (name, colour) in enumerate(zip(CLASSES, colours, strict=True))
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=5, frameon=False, fontsize="small",
                  title="circle: proxy of a class; dots: its held-out images", title_fontsize="small")  # fmt: skip
    figure.suptitle(title(parts))
