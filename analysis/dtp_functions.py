"""Distance to proxy at the end of training under the functions of the distance of Table III.

Small networks on Omniglot beside the values of the table, which are of another data set and another network.
"""

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from analysis import omniglot
from analysis.proxy_networks import one_thread, trained
from cocos import losses, measures
from cocos.embeddings import similarities

PUBLISHED = "DeMoor & Prevost 2024, Table III"
SIZE = (7.0, 4.0)
PLAIN = {
    "t": ("t", "t"),
    "t²": ("t^2", "t^2"),
    "√t": ("sqrt", "sqrt"),
    "t^1.5": ("t^1.5", "t^1.5"),
    "0.97t": (0.97, "t"),
    "0.5t": (0.5, "t"),
    "1.1t": (1.1, "t"),
    "2t": (2.0, "t"),
}
WARPS = {50.0: (0.5, 1.5), 25.0: (0.9, 1.1), 7.75: (0.25, 2.25)}  # α: k1, k2
TABLE_III = {  # R@1, NMI, AvgDTP of CUB-200; those of 0.97t and 0.5t are the last before numerical instability
    "untrained": (51.8, 60.8, 13.4),
    "t": (63.2, 67.1, 12.88),
    "t²": (57.2, 64.9, 14.67),
    "√t": (61.6, 68.1, 6.48),
    "t^1.5": (62.2, 68.5, 17.2),
    "0.97t": (39.4, 44.0, 84.8),
    "0.5t": (13.6, 26.3, 93.72),
    "1.1t": (60.5, 64.4, 3.86),
    "2t": (54.1, 59.8, 2.18),
    "warp, α = 50": (18.6, 28.7, 50.05),
    "warp, α = 25": (53.9, 60.1, 25.38),
    "warp, α = 7.75": (64.6, 68.5, 7.76),
}
SEEDS, EPOCHS, VIEWS = (0, 1, 2, 3, 4), 12, 5
# Largest mean distance to proxy of a run that has not diverged; it exceeds every α of the table.
DISTANCE_LIMIT = 60.0
WARP_NAMES = [f"warp, α = {alpha:g}" for alpha in WARPS]
COLUMNS = {"R@1": "%", "NMI": "%", "AvgDTP": "distance", "at_proxy": "%"}


def _runs():
    yield from ((name, losses.load("euclidean_softmax", {"f1": f1, "f2": f2})) for name, (f1, f2) in PLAIN.items())
    for alpha, (k1, k2) in WARPS.items():
        yield f"warp, α = {alpha:g}", losses.load("warped_softmax", {"alpha": alpha, "k1": k1, "k2": k2})


def data():
    """Train every function with all seeds, up to the last epoch or divergence."""
    with one_thread():
        (pixels, labels), held = omniglot.images("train"), omniglot.images("test")
        rows, held = omniglot.edges(omniglot.views(pixels, VIEWS, seed=0)), (omniglot.edges(held[0]), held[1])
        diverged, table = [], {}
        for name, loss in _runs():
            kept = None
            for networks in trained(loss, rows, labels, seeds=SEEDS, epochs=EPOCHS):
                found = networks.embedded(rows[0], labels, proxies=True)
                away = [(each.query - each.candidate[each.query_group]).norm(dim=1).mean() for each in found]
                if not max(away) <= DISTANCE_LIMIT:
                    diverged.append(name)
                    break
                kept = found, networks.embedded(*held, proxies=False)
                if not table:
                    table["untrained"] = _row(*kept)
            table[name] = _row(*kept)
    ours = xr.DataArray(
        [table[name] for name in TABLE_III],
        dims=("function", "column", "seed"),
        coords={"function": list(TABLE_III), "column": list(COLUMNS), "seed": list(SEEDS)},
        attrs={
            "long_name": f"after {EPOCHS} epochs, or the last with a mean distance to proxy up to {DISTANCE_LIMIT:g}"
        },
    )
    published = xr.DataArray(
        list(TABLE_III.values()), dims=("function", "published_column"), attrs={"long_name": "Table III, CUB-200"}
    )
    table = xr.Dataset(
        {"ours": ours, "published": published},
        coords={"published_column": list(COLUMNS)[:3]},
        attrs={"units": ", ".join(COLUMNS.values()), "limit": DISTANCE_LIMIT, "diverged": ", ".join(diverged)},
    )
    return {"table": table.assign_attrs(seed=str(SEEDS))}


def _row(found, held):
    """The columns, (4, S), of each seed: of the held-out drawings, and of those of the training."""
    columns = []
    for each, unseen in zip(found, held, strict=True):
        metrics = measures.evaluate(unseen, metric="euclidean", ks=(1,))
        right = similarities.euclidean(each.query, each.candidate).argmax(dim=1) == each.query_group
        average = measures.dtp({"one": [each]})["average"].item()
        columns.append((metrics["R@1"].item(), metrics["NMI"].item(), average, 100 * right.double().mean().item()))
    return list(zip(*columns, strict=True))


def _groups(parts):
    """List the functions: all, all that do not diverge, and the non-diverging ones that are not warps."""
    every, gone = list(TABLE_III)[1:], parts["table"].attrs["diverged"].split(", ")
    ended = [name for name in every if name not in gone]
    return every, ended, [name for name in ended if not name.startswith("warp")]


def title(parts):
    """The claim: of the warps whose α is not where the embeddings are before training."""
    ours = parts["table"]["ours"].sel(column="AvgDTP").mean("seed")
    first = float(ours.sel(function="untrained"))
    moved = {alpha: float(ours.sel(function=f"warp, α = {alpha:g}")) for alpha in WARPS if alpha > 2 * first}
    alphas, rests = (
        " and ".join(f"{alpha:g}" for alpha in moved),
        " and ".join(f"{rest:.1f}" for rest in moved.values()),
    )
    return f"Warps with α = {alphas} move embeddings to {rests} from their proxy"


def draw(parts, figure):
    """Draw a row for each function: distance to proxy of every seed and their mean, that of the table, and α."""
    table, ax, (every, ended, plain) = parts["table"], figure.subplots(), _groups(parts)
    blue, orange = sns.color_palette("colorblind", 2)
    ours, told = table["ours"].sel(column="AvgDTP"), table["published"].sel(published_column="AvgDTP")
    rows = [*WARP_NAMES, *sorted(plain, key=lambda name: -float(ours.sel(function=name).mean()))]
    rows += [name for name in every if name not in ended]
    for place, name in enumerate(rows):
        seeds, mark = ours.sel(function=name).values, "o" if name in ended else "^"
        ax.plot(seeds, np.full(len(seeds), place + 0.28), mark, color=blue, markersize=3, alpha=0.6, markeredgewidth=0)
        ax.plot(seeds.mean(), place, mark, color=blue, markersize=7, markeredgecolor="white", zorder=4)
        ax.plot(
            told.sel(function=name), place, "D", color="none", markeredgecolor=orange, markeredgewidth=1.6, zorder=5
        )
        if name in WARP_NAMES:
            alpha = list(WARPS)[WARP_NAMES.index(name)]
            ax.plot([alpha] * 2, [place - 0.42, place + 0.42], color="black", linewidth=1.6, zorder=3)
    before = float(ours.sel(function="untrained").mean())
    ax.axvline(before, color="0.5", linestyle=":", linewidth=1)
    ax.annotate(f"{before:.1f} before training", (before, -0.72), xytext=(3, 0), textcoords="offset points",
                va="center", color="0.35", fontsize="small")  # fmt: skip
    names = [name if name in ended else f"{name} (diverges)" for name in rows]
    ax.set(xscale="log", xlim=(1.5, 160), ylim=(len(rows) - 0.4, -1.1), yticks=range(len(rows)), yticklabels=names)
    ax.xaxis.set_major_locator(FixedLocator((2, 5, 10, 20, 50, 100)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("AvgDTP: mean distance to the own proxy (logarithmic axis)")
    ax.tick_params(axis="y", length=0)
    for edge in (len(WARPS), len(ended)):
        ax.axhline(edge - 0.4, color="0.85", linewidth=0.8)
    sns.despine(ax=ax, left=True)
    entries = [
        Line2D([], [], color="black", linewidth=1.6, label="α of the warp"),
        Line2D([], [], linestyle="", marker="o", color=blue, label=f"ours, mean of {len(SEEDS)} seeds"),
        Line2D([], [], linestyle="", marker="o", color=blue, markersize=3, label="a seed"),
        Line2D([], [], linestyle="", marker="^", color=blue, label="the last epoch before it diverges"),
        Line2D(
            [], [], linestyle="", marker="D", color="none", markeredgecolor=orange, label="DeMoor & Prevost, Table III"
        ),
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=3, frameon=False, columnspacing=1.2)
    figure.suptitle(title(parts))
