"""Where the scale of the scores moves: their spread, and the temperature that follows it, through the training.

Six cells of the third part of the second study: the last layer of a text encoder, and convolution towers, with cosines
or with inner products that no normalisation bounds. Lines are the standard deviation of the scores of a query's
negatives, dashes the temperature, both at the beginning of each tenth of the training and the mean of five seeds:
at the constant 0.15, held late (from 40 % on) and held from the first step.
"""

import json

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis.hold_study.plan import AFTER, START
from analysis.hold_study.scale_plan import TENTHS
from cocos.plots import wording
from hold_cells import STUDY

PUBLISHED = "none; the effective number has not been held by a schedule before"
DIFFERS = "nothing published to compare with"
INPUTS = (STUDY / "scale_findings.py", STUDY / "scale_plan.py", STUDY / "results" / "scale.json")
SIZE, PRINTED = (7.0, 4.2), True
FIXED = f"{START:g}"
SHOWN = {FIXED: f"constant {FIXED}", "late": "held late", "early": "held from the first step"}
NAMES = {"ntxent": "NT-Xent", "ce_softmax": "cross-example", "cosine": "cosine", "dot": "inner product"}
LOST = 0.1  # of its start: a spread below it is lost
LEAST, MOST = 0.02, 2.0  # of the axis
LINES = {"spread": "-", "temperature": "--"}


def data(progress):
    """Read the paths of each cell."""
    cells = json.loads((STUDY / "results" / "scale.json").read_text("utf-8"))["cells"].values()
    coords = {name: ("cell", [cell[name] for cell in cells]) for name in ("part", "score", "loss")}
    coords |= {"arm": list(SHOWN), "tenth": list(range(TENTHS))}
    paths = {
        name: (("cell", "arm", "tenth"), [[cell["arms"][arm]["path"][name] for arm in SHOWN] for cell in cells])
        for name in LINES
    }
    recall = ("cell", "arm"), [[cell["arms"][arm]["rsum"] for arm in SHOWN] for cell in cells]
    part = xr.Dataset(paths | {"rsum": recall}, coords=coords)
    part.attrs["seeds"] = len(next(iter(cells))["arms"]["late"]["seeds"])
    return {"paths": part}


def _label(part, place):
    """A cell in words."""
    model, score, loss = (str(part[name].values[place]) for name in ("part", "score", "loss"))
    return f"{model}, {NAMES[score]}, {NAMES[loss]}"


def _rise(part, arm):
    """Spread at the end over that at the start, of each cell."""
    own = part["spread"].sel(arm=arm)
    return (own.isel(tenth=-1) / own.isel(tenth=0)).values


def title(parts):
    """The claim."""
    one, late, early = (_rise(parts["paths"], arm) for arm in SHOWN)
    return (
        f"The spread of the negatives' scores grows {one.min():.1f} to {one.max():.1f} times at the constant {FIXED}, "
        f"{late.min():.1f} to {late.max():.1f} times held late; held from the first step it is lost "
        f"in {(early < LOST).sum()} of {len(early)} cells"
    )


def alt(parts):
    """One sentence."""
    return (
        "Spread of the negatives' scores and temperature against the part of the training, one panel for each of "
        f"{parts['paths'].sizes['cell']} cells, at a constant, held late and held from the first step."
    )


def agrees(parts):
    """Recall and the ends of the paths."""
    part, told = parts["paths"], []
    for place in range(part.sizes["cell"]):
        own = part.isel(cell=place)
        each = []
        for arm, words in SHOWN.items():
            spread, heat = (own[name].sel(arm=arm).values for name in LINES)
            ends = f"spread {spread[0]:.2g} to {spread[-1]:.2g}, temperature {heat[-1]:.2g}"
            each.append(f"{words} {float(own['rsum'].sel(arm=arm)):.1f} ({ends})")
        told.append(f"{_label(part, place)}: {', '.join(each)}")
    return f"Test rsum of each arm. {'. '.join(told)}. n = {part.attrs['seeds']} seeds."


def draw(parts, figure):
    """Draw a panel for each cell: cosines above, inner products below."""
    part = parts["paths"]
    order = np.argsort(part["score"].values, kind="stable")
    axes = figure.subplots(2, len(order) // 2, sharex=True, sharey=True)
    at = 100 * part["tenth"].values / TENTHS
    colours = dict(zip(SHOWN, ("0.6", *sns.color_palette("colorblind", 2)), strict=True))
    for place, ax in zip(order.tolist(), axes.flat, strict=True):
        ax.axvline(100 * AFTER["late"], color="0.85", linewidth=0.8, zorder=0)
        for arm, colour in colours.items():
            own = part.isel(cell=place).sel(arm=arm)
            for name, line in LINES.items():
                ax.plot(at, own[name], line, color=colour, linewidth=2.6 if arm == FIXED else 1.4)
            if own["spread"][-1] < LEAST:
                ends = "\n".join(f"{name} {float(own[name][-1]):.1g}" for name in LINES)
                ax.annotate(f"in the last tenth\n{ends}", (at[-1], LEAST), xytext=(0, 3), textcoords="offset points",
                            ha="right", color=colour, fontsize="small")  # fmt: skip
        ax.set(yscale="log", ylim=(LEAST, MOST), title=_label(part, place), xticks=np.arange(0, 100, 20))
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.title.set_fontsize("medium")
        sns.despine(ax=ax)
    for ax in axes[-1]:
        ax.set_xlabel("part of the training (%)")
    for ax in axes[:, 0]:
        ax.set_ylabel("score")
    handles = [Line2D([], [], color=colours[arm], linewidth=2.6 if arm == FIXED else 1.4, label=words)
               for arm, words in SHOWN.items()]  # fmt: skip
    handles += [Line2D([], [], color="black", linestyle=line, linewidth=1.4, label=words)
                for line, words in zip(LINES.values(), ("spread of the negatives' scores", "temperature"),
                                       strict=True)]  # fmt: skip
    handles.append(Line2D([], [], color="0.85", linewidth=0.8, label=f"{100 * AFTER['late']:g} %: holding late begins"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, columnspacing=1.2)
    figure.suptitle(wording.wrapped(title(parts), 92))
