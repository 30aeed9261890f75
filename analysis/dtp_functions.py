"""Distance to proxy at the end of training, and R@1, under the functions of the distance of Table III.

Small networks on Omniglot against the values of the table. Small marks are seeds, a large mark is their mean.
"""

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator
from scipy.stats import spearmanr

import omniglot
from cocos import losses, measures
from cocos.embeddings import scores
from proxy_networks import one_thread, trained

PUBLISHED = "DeMoor & Prevost 2024, Table III (functions of eq. 8), Fig. 9 and eq. 9 (AvgDTP)"
DIFFERS = (
    "other data, another network and fewer dimensions. A run counts as diverged here when its mean distance exceeds "
    "a limit of our choice; no number becomes infinite, because sums of exponentials are shifted. The published code "
    "does not shift the sums of eq. 4, which may explain the instability in Table III. Table III does not state its "
    "scale"
)
INPUTS = (omniglot.FILE,)
SIZE = (10.4, 5.6)
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
PLACES = {  # of a name beside its point: -1 left, 1 right, and lines up
    "AvgDTP": {"warp, α = 50": (-1, 0), "√t": (0, -1.4), "t^1.5": (1, 0.3)},
    "R@1": {
        **dict.fromkeys(("warp, α = 25", "t²", "2t", "warp, α = 50"), (-1, 0)),
        **{"1.1t": (-1, 0.8), "t": (1, 0.8), "t^1.5": (-1, 0), "√t": (1, -0.6)},
    },
}
ASIDE = {-1: "right", 0: "center", 1: "left"}
COLUMNS = {"R@1": "%", "NMI": "%", "AvgDTP": "distance", "at_proxy": "%"}


def _runs():
    yield from ((name, losses.load("euclidean_softmax", {"f1": f1, "f2": f2})) for name, (f1, f2) in PLAIN.items())
    for alpha, (k1, k2) in WARPS.items():
        yield f"warp, α = {alpha:g}", losses.load("warped_softmax", {"alpha": alpha, "k1": k1, "k2": k2})


def data(progress):
    """Train every function with all seeds, up to the last epoch or divergence."""
    with one_thread():
        (pixels, labels), held = omniglot.images("train"), omniglot.images("test")
        rows, held = omniglot.edges(omniglot.views(pixels, VIEWS, seed=0)), (omniglot.edges(held[0]), held[1])
        diverged, table, report = [], {}, progress and progress("training")
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
            if report:
                report(len(table) - 1, len(PLAIN) + len(WARPS))
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
        right = scores.euclidean(each.query, each.candidate).argmax(dim=1) == each.query_group
        average = measures.dtp({"one": [each]})["average"].item()
        columns.append((metrics["R@1"].item(), metrics["NMI"].item(), average, 100 * right.double().mean().item()))
    return list(zip(*columns, strict=True))


def _rank(parts, column, among):
    """Spearman's rank correlation of our mean over seeds with Table III, as a number and in words."""
    table = parts["table"].sel(function=among)
    rho, p = spearmanr(table["ours"].sel(column=column).mean("seed"), table["published"].sel(published_column=column))
    return rho, f"{rho:.2f} (p = {p:.2f}, n = {len(among)})"


def _groups(parts):
    """List the functions: all, all that do not diverge, and the non-diverging ones that are not warps."""
    every, gone = list(TABLE_III)[1:], parts["table"].attrs["diverged"].split(", ")
    ended = [name for name in every if name not in gone]
    return every, ended, [name for name in ended if not name.startswith("warp")]


def title(parts):
    """The claim."""
    ours = parts["table"]["ours"].sel(column="AvgDTP").mean("seed")
    where = ", ".join(f"{float(ours.sel(function=f'warp, α = {alpha:g}')):.1f} (α = {alpha:g})" for alpha in WARPS)
    return f"Under a warp, embeddings come to rest near distance α from their proxy: {where}"


def alt(parts):
    """One sentence."""
    return f"Distance to proxy and R@1 of {len(PLAIN)} functions and {len(WARPS)} warps, ours against Table III."


def agrees(parts):
    """Distances to proxy, and rank correlations with Table III."""
    table, (every, ended, plain) = parts["table"], _groups(parts)
    ours, told = table["ours"].mean("seed"), table["published"]
    rests = ", ".join(
        f"{name} {float(ours.sel(function=name, column='AvgDTP')):.1f} "
        f"({float(told.sel(function=name, published_column='AvgDTP')):g})"
        for name in ended
    )
    first = float(ours.sel(function="untrained", column="AvgDTP"))
    best = ", ".join(
        f"{name} {float(ours.sel(function=name, column='R@1')):.1f} "
        f"({float(told.sel(function=name, published_column='R@1')):g})"
        for name in sorted(every, key=lambda name: -float(ours.sel(function=name, column="R@1")))[:3]
    )
    return (
        f"AvgDTP (Table III in parentheses): {rests}; {table.attrs['diverged']} diverge. Before training it is "
        f"{first:.1f} on average, so the smallest warp starts near its α and is little evidence. Rank correlation of "
        f"AvgDTP with Table III: {_rank(parts, 'AvgDTP', ended)[1]} over the functions that do not diverge, "
        f"{_rank(parts, 'AvgDTP', plain)[1]} without the warps. Of R@1: {_rank(parts, 'R@1', every)[1]} over all, "
        f"{_rank(parts, 'R@1', ended)[1]} over those that do not. Highest R@1 here: {best}. "
        f"n = {table.sizes['seed']} seeds."
    )


def draw(parts, figure):
    """Draw our values against the table's: distance to proxy on the left, R@1 on the right."""
    table, (every, ended, _) = parts["table"], _groups(parts)
    colours = dict(zip(("plain", "warp", "diverged"), sns.color_palette("colorblind", 3), strict=True))
    for ax, column in zip(figure.subplots(1, 2), ("AvgDTP", "R@1"), strict=True):
        for name in every:
            ours = table["ours"].sel(function=name, column=column).values
            told = table["published"].sel(function=name, published_column=column).item()
            kind = "diverged" if name not in ended else "warp" if name in WARP_NAMES else "plain"
            mark = {"plain": "o", "warp": "s", "diverged": "^"}[kind]
            ax.plot(
                np.full(len(ours), told), ours, mark, color=colours[kind], markersize=4, alpha=0.5, markeredgewidth=0
            )
            ax.plot(told, ours.mean(), mark, color=colours[kind], markersize=8, markeredgecolor="white")
            side, up = PLACES[column].get(name, (1, 0))
            at = {"xytext": (9 * side, 9 * up), "textcoords": "offset points", "va": "center", "fontsize": "small"}
            ax.annotate(name.removeprefix("warp, "), (told, ours.mean()), ha=ASIDE[side], **at)
        ax.axline((20, 20), (40, 40), color="0.4", linestyle="--", linewidth=1, zorder=1)
        sns.despine(ax=ax)
    left, right = figure.axes
    left.set(xscale="log", yscale="log", xlim=(1.5, 160), ylim=(1.5, 160), aspect="equal")
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_locator(FixedLocator((2, 5, 10, 20, 50, 100)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    left.set(xlabel="AvgDTP, Table III (distance)", ylabel="AvgDTP, ours (distance)")
    left.set_title(f"rank correlation without warps {_rank(parts, 'AvgDTP', _groups(parts)[2])[1]}", fontsize="medium")
    right.set(xlim=(10, 76), ylim=(25, 76), xlabel="R@1, Table III (%)", ylabel="R@1, ours (%)")
    right.set_title(f"rank correlation {_rank(parts, 'R@1', ended)[1]}, without the diverged", fontsize="medium")
    entries = [
        Line2D([], [], linestyle="", marker="o", color=colours["plain"], label="function of eq. 8"),
        Line2D([], [], linestyle="", marker="s", color=colours["warp"], label="warp"),
        Line2D([], [], linestyle="", marker="^", color=colours["diverged"], label="diverged: last epoch before"),
        Line2D([], [], linestyle="", marker="o", color="0.4", markersize=4, label="a seed"),
        Line2D([], [], linestyle="--", color="0.4", label="ours = Table III"),
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=len(entries), frameon=False, fontsize="small")
    figure.suptitle(title(parts))
