"""Test recall of each cell against a validated search over seven temperatures: held late, and the constant 0.15.

A row is a cell: data, loss, width of the embeddings and batch size. Zero is the temperature and learning rate, of seven
and three, with the highest validation recall; ticks are the seven constants, each at its own validated rate. The last
rows are means over the cells with 95 % intervals by t. The dashed line is the margin of the test: by three points
holding may be worse.
"""

import json
from pathlib import Path

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.lines import Line2D

from cocos.plots import wording
from cocos.reports.captions import holds

STUDY = Path(__file__).parent / "hold_study"
PUBLISHED = "none; the effective number has not been held by a schedule before"
DIFFERS = "nothing published to compare with"
INPUTS = (STUDY / "findings.py", STUDY / "plan.py", STUDY / "results" / "findings.json")
SIZE, PRINTED = (7.0, 7.4), True
EDGE, LEFT, RIGHT = -27.0, -22.0, 9.0  # points: of the axis, and between which they are shown
NAMES = {"ntxent": "NT-Xent", "ce_softmax": "cross-example"}
FIXED = "0.15"  # the constant of the second test
SHOWN = {"late": "held late", FIXED: f"constant {FIXED}"}
TESTS = {"h1": "H1", "h2": "H2"}
GAP = 0.9  # rows between the data sets


def findings():
    """Every number of the second study."""
    return json.loads((STUDY / "results" / "findings.json").read_text("utf-8"))


def data(progress):
    """Read the recall of each cell, and the means over the cells."""
    found = findings()
    cells = found["cells"]
    heats = [name for name in cells[0]["arms"] if name.replace(".", "").isdigit()]
    rsum = {name: [cell["arms"][name]["rsum"] for cell in cells] for name in ("grid", "late")}
    constants = [[cell["arms"][name]["rsum"] for name in heats] for cell in cells]
    coords = {name: ("row", [cell[name] for cell in cells]) for name in ("data", "loss", "width", "batch_size")}
    part = xr.Dataset(
        {name: ("row", values) for name, values in rsum.items()} | {"constants": (("row", "temperature"), constants)},
        coords=coords | {"temperature": [float(each) for each in heats]},
    )
    means = {"late": found["differences"]["late_grid"], FIXED: found["differences"]["constant_grid"]}
    keys = ("mean", "low", "high")
    mean = xr.Dataset({key: ("arm", [one[key] for one in means.values()]) for key in keys}, coords={"arm": list(means)})
    told = {
        f"{name}_{key}": found["tests"][name][key] for name in ("h1", "h2") for key in (*keys, "bound", "holm", "lower")
    }
    mean.attrs = told | {"margin": found["tests"]["h1"]["margin"], "seeds": len(cells[0]["arms"]["late"]["seeds"])}
    by = {data: one for data, one in found["by"]["late_grid"]["data"].items()}
    sets = xr.Dataset({key: ("set", [one[key] for one in by.values()]) for key in keys}, coords={"set": list(by)})
    return {"cells": part, "means": mean, "sets": sets}


def _said(one):
    """A difference with its interval."""
    return f"{float(one['mean']):+.1f} [{float(one['low']):+.1f}, {float(one['high']):+.1f}]"


def _test(parts, name):
    """A test as a difference."""
    return {key: parts["means"].attrs[f"{name}_{key}"] for key in ("mean", "low", "high", "bound", "holm", "lower")}


def title(parts):
    """The claim."""
    late, fixed = (_away(parts, name).mean() for name in SHOWN)
    return holds(
        max(late, fixed) < 0,
        f"Both are below a validated search, on the mean of {parts['cells'].sizes['row']} cells: held late by "
        f"{-late:.1f} points of recall, the constant {FIXED} by {-fixed:.1f}",
    )


def alt(parts):
    """One sentence."""
    return (
        f"Test recall of {parts['cells'].sizes['row']} cells minus that of a validated search over seven temperatures: "
        f"held late, the constant {FIXED} and the other constants, and the means with their intervals."
    )


def _away(parts, name):
    """Differences from the search in each cell."""
    cells = parts["cells"]
    return (
        (cells["late"] if name == "late" else cells["constants"].sel(temperature=float(name))) - cells["grid"]
    ).values


def agrees(parts):
    """Both tests, each data set, and the cells that lose most."""
    one, two, attrs = _test(parts, "h1"), _test(parts, "h2"), parts["means"].attrs
    away, cells = _away(parts, "late"), parts["cells"]
    order = np.argsort(away)
    worst = "; ".join(f"{_label(cells, k)} ({cells['data'].values[k]}) {away[k]:+.1f}" for k in order[:3])
    sets = ", ".join(f"{name} {_said(parts['sets'].sel(set=name))}" for name in parts["sets"]["set"].values.tolist())
    return (
        f"{TESTS['h1']}, held late minus a validated search above {attrs['margin']:g} points: {_said(one)}, one-sided "
        f"lower bound {one['bound']:+.1f}, p = {one['holm']:.2g} (Holm); below the search in {one['lower']} of "
        f"{len(away)} cells. {TESTS['h2']}, held late above the constant {FIXED}: {_said(two)}, lower bound "
        f"{two['bound']:+.1f}, p = {two['holm']:.2g} (Holm); below it in {two['lower']}. Held late "
        f"minus the search by data set: {sets}. Lowest cells: {worst}. Each number is a mean "
        f"of {attrs['seeds']} seeds; learning rates are chosen on validation items."
    )


def _label(cells, place):
    """A cell without its data set."""
    loss, width, size = (cells[name].values[place] for name in ("loss", "width", "batch_size"))
    return f"{NAMES[str(loss)]}, {width} dimensions, batch {size}"


def draw(parts, figure):
    """Draw a row for each cell, and the means below."""
    ax, cells = figure.subplots(), parts["cells"]
    sets = cells["data"].values
    starts = np.cumsum(np.concatenate([[0], sets[1:] != sets[:-1]]))
    places = np.arange(len(sets)) + GAP * starts
    palette = sns.color_palette("colorblind")
    styles = {"late": ("o", palette[0], palette[0]), FIXED: ("D", "none", palette[1])}
    away = (cells["constants"] - cells["grid"]).values
    for place, row in zip(places, away, strict=True):
        inside = row[row >= LEFT]
        ax.plot(inside, np.full(len(inside), place), "|", color="0.6", markersize=5, markeredgewidth=0.8)
        if beyond := len(row) - len(inside):
            ax.annotate(f"{beyond} further left", (EDGE, place), xytext=(2, 0), textcoords="offset points",
                        va="center", color="0.45", fontsize="small")  # fmt: skip
    for name, (marker, face, edge) in styles.items():
        ax.plot(_away(parts, name), places, marker, color=face, markeredgecolor=edge, markersize=5, zorder=4)
    below = places[-1] + 1 + GAP + np.arange(len(styles))
    for at, (name, (marker, face, edge)) in zip(below, styles.items(), strict=True):
        one = parts["means"].sel(arm=name)
        ax.plot((one["low"], one["high"]), (at, at), color=edge, linewidth=2.2, solid_capstyle="butt")
        ax.plot(one["mean"], at, marker, color=face if face != "none" else "white", markeredgecolor=edge, markersize=7)
    ax.axvline(0, color="black", linewidth=0.9, zorder=1)
    ax.axvline(parts["means"].attrs["margin"], color="black", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    names = [_label(cells, place) for place in range(len(places))]
    names += [f"mean of {len(places)} cells, {words}" for words in SHOWN.values()]
    ax.set_yticks([*places, *below], names, fontsize="small")
    for start in np.unique(starts):
        first = places[starts == start][0]
        ax.text(RIGHT, first - 0.75, str(sets[starts == start][0]), ha="right", va="center", fontweight="bold")
    ax.set(xlim=(EDGE, RIGHT), ylim=(below[-1] + 0.8, -1.4),
           xlabel="test rsum minus that of the validated search (points of 600)")  # fmt: skip
    ax.tick_params(axis="y", length=0)
    sns.despine(ax=ax, left=True)
    handles = [
        *(Line2D([], [], color=face, marker=marker, markeredgecolor=edge, linestyle="", label=SHOWN[name])
          for name, (marker, face, edge) in styles.items()),
        Line2D([], [], color="0.6", marker="|", linestyle="", label="a constant of the search"),
        Line2D([], [], color="black", linewidth=0.9, label="the search"),
        Line2D([], [], color="black", linewidth=0.8, linestyle=(0, (4, 3)), label="margin of the test"),
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, columnspacing=1.2)
    figure.suptitle(wording.wrapped(title(parts), 92))
