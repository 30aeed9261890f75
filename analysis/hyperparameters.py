"""Effect of α, k1, k2 and δ of the warp on retrieval among unseen characters, varied one at a time.

Differences of R@1 from plain softmax over distances, t, trained from the same seeds. The intervals hold for all
settings together; the axis of α has its own range.
"""

import seaborn as sns
import xarray as xr
from matplotlib.lines import Line2D

from analysis import omniglot
from analysis.proxy_networks import one_thread, recall, trained
from cocos import losses, measures
from cocos.counting.statistics import paired
from cocos.plots.replay import UNRESOLVED_GREY, forest

PUBLISHED = "DeMoor & Prevost 2024, Figs. 6 to 8"
SIZE = (7.0, 5.4)
CENTRE = {"alpha": 8.0, "k1": 0.65, "k2": 1.5, "delta": 1.0}  # the slopes of Fig. 3d; δ of eq. 7
SWEEPS = {
    "alpha": (2.0, 4.0, 8.0, 16.0, 24.0, 40.0, 64.0, 95.0),
    "k1": (0.1, 0.35, 0.65, 0.85, 1.0),
    "k2": (1.0, 1.2, 1.5, 2.0, 3.0),
    "delta": (1.0, 1.3, 1.6, 2.0, 3.5, 5.5),
}
SEEDS, EPOCHS, VIEWS = tuple(range(8)), 12, 5
NAMED = {"long_name": "drawings of unseen characters whose nearest other drawing shows the same one", "units": "%"}
LEVEL = 0.05
AXES = {
    "alpha": "α, boundary of the warp (distance)",
    "k1": "k1, slope inside α",
    "k2": "k2, slope outside α",
    "delta": "δ, multiplier of Δ",
}
# Limits of the differences, in points, of the panels without α.
SHOWN = (-6.5, 6.5)


def data():
    """Measure R@1 of every setting and seed, and of t, and the distance to proxy at the end of training."""
    with one_thread():
        (pixels, labels), (held, unseen) = omniglot.images("train"), omniglot.images("test")
        rows, held = omniglot.edges(omniglot.views(pixels, VIEWS, seed=0)), omniglot.edges(held)
        asked = {name: [tuple((CENTRE | {name: value}).items()) for value in values] for name, values in SWEEPS.items()}
        runs = {None: losses.load("euclidean_softmax", {})}
        runs |= {one: losses.load("warped_softmax", dict(one)) for settings in asked.values() for one in settings}
        found, rest = {}, {}
        for setting, loss in runs.items():
            *_, networks = trained(loss, rows, labels, seeds=SEEDS, epochs=EPOCHS)
            found[setting] = [recall(each, loss.metric) for each in networks.embedded(held, unseen, proxies=False)]
            last = zip(SEEDS, networks.embedded(rows[0], labels, proxies=True), strict=True)
            rest[setting] = measures.dtp({str(seed): [each] for seed, each in last})["average"].values[:, 0]
    about = {f"centre_{key}": value for key, value in CENTRE.items()} | {"epochs": EPOCHS, "seed": str(SEEDS)}
    about["rest_of_t"] = float(rest[None].mean())
    return {
        name: xr.Dataset(
            {
                "recall": ((name, "seed"), [found[one] for one in settings], NAMED),
                "recall_of_t": ("seed", found[None], NAMED),
                "rest": ((name, "seed"), [rest[one] for one in settings], {"long_name": "AvgDTP", "units": "distance"}),
            },
            coords={name: list(SWEEPS[name]), "seed": list(SEEDS)},
            attrs=about,
        )
        for name, settings in asked.items()
    }


def _setting(parts, name, value):
    """All four parameters where one is varied."""
    return tuple(({key: part.attrs[f"centre_{key}"] for key, part in parts.items()} | {name: value}).items())


def _every(parts):
    """All varied parameters and their values; one setting is in each panel."""
    return [(name, value) for name, part in parts.items() for value in part[name].values.tolist()]


def _number(parts):
    """Number of distinct settings."""
    return len({_setting(parts, *key) for key in _every(parts)})


def _differences(parts):
    """Every setting and its paired difference of R@1 from t, with intervals that hold for all settings together."""
    level = 1 - LEVEL / _number(parts)  # Bonferroni's
    return {
        (name, value): paired(
            parts[name]["recall"].sel({name: value}).values, parts[name]["recall_of_t"].values, level=level
        )
        for name, value in _every(parts)
    }


def title(parts):
    """The claim."""
    every = {_setting(parts, *key): one for key, one in _differences(parts).items()}
    above, below = (sum(one.resolved and (one.mean > 0) == up for one in every.values()) for up in (True, False))
    return f"R@1 of the warp minus plain softmax: of {len(every)} settings, {above} are above 0 and {below} below"


def draw(parts, figure):
    """Draw a panel per parameter, α above: paired differences from t, with a line at 0."""
    every = _differences(parts)
    places = figure.add_gridspec(2, 3)
    axes = {"alpha": figure.add_subplot(places[0, :])}
    axes |= {name: figure.add_subplot(places[1, k]) for k, name in enumerate(("k1", "k2", "delta"))}
    for (name, part), ax in zip(parts.items(), axes.values(), strict=True):
        values = part[name].values.tolist()
        away = part["recall"] - part["recall_of_t"]
        forest(
            [every[name, value] for value in values],
            [away.sel({name: value}).values for value in values],
            at=range(len(values)),
            upright=True,
            offset=0.22,
            ax=ax,
        )
        ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        shared = ax.get_xticklabels()[values.index(part.attrs[f"centre_{name}"])]
        shared.set_fontweight("bold")
        ax.set(xlabel=AXES[name], xlim=(-0.5, len(values) - 0.3))
        if name != "alpha":
            ax.set_ylim(*SHOWN)
        if name == "alpha":
            ax.annotate("axis of its own", (0, 0), xycoords="axes fraction", xytext=(4, 4), color="0.3",
                        textcoords="offset points", fontsize="small")  # fmt: skip
        if name in {"alpha", "k1"}:
            ax.set_ylabel("R@1, warp minus t\n(points)")
        sns.despine(ax=ax)
    blue = sns.color_palette("colorblind")[0]
    sure = f"{100 * (1 - LEVEL):g} % interval for all settings together"
    entries = [
        Line2D([], [], color=blue, marker="o", markersize=5, linewidth=2.4, label=f"mean and {sure}"),
        Line2D([], [], color=UNRESOLVED_GREY, marker="o", markersize=5, linewidth=2.4, label="interval contains 0"),
        Line2D([], [], color="0.4", marker="o", markersize=3.2, linestyle="", label="a seed"),
        Line2D([], [], linestyle="", label="bold: the setting that all panels share"),
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(title(parts))
