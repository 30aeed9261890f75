"""The k hardest negatives against k random ones: at the same number of negatives, which of them a loss sees.

Above, test recall by the number of negatives that are kept, means over the seeds with 95 % intervals; below, hard minus
random, paired by seed. NT-Xent has temperature 0.05 and the triplet loss margin 0.2; means over two learning rates.
"""

import textwrap

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.lines import Line2D

from analysis.study.findings import differences
from analysis.study.plan import EVERY, KEPT, TREATED
from cocos.counting.statistics import paired
from study_tables import (
    LOSSES,
    SETS,
    difference,
    findings,
    forest_of,
    inputs,
    resolution_entries,
    rows_of,
    seeds_of,
    table,
    where,
)

PUBLISHED = "none; Bleeker & de Rijke 2022 compare triplet with triplet SH, the hardest negative against all"
DIFFERS = "nothing published to compare with"
INPUTS = inputs("interventions")
SIZE = (10.4, 6.6)
ARMS = ("hard", "random")
PLACES = (*KEPT, EVERY)


def data(progress):
    """Read recall of every arm and seed, and the differences between hard and random negatives."""
    parts, found = {}, findings()
    for name in SETS:
        runs, rows = table(f"{name}_interventions"), {}
        for loss in TREATED:
            own = where(runs, family=loss)
            for k, one in found[name]["interventions"][loss]["hard_minus_random"].items():
                rows[f"{loss} {k}"] = one, seeds_of(own, *({"arm": arm, "k": int(k)} for arm in ARMS))
        every = {"arm": list(ARMS), "k": KEPT}
        rows["mean"] = found[name]["p3"], seeds_of(runs, *(every | {"arm": arm} for arm in ARMS))
        parts[f"{name}_differences"] = rows_of(rows)
        parts[f"{name}_recall"] = _recall(runs)
    parts["tests"] = xr.Dataset(attrs={"p": found["tests"]["holm"]["p3"], "candidates": EVERY})
    return parts


def _recall(runs):
    """Test rsum of every loss, arm, number of negatives and seed, mean over the learning rates; all negatives once."""
    seeds = np.unique(runs["seed"].values)
    made = np.full((len(TREATED), len(ARMS), len(PLACES), len(seeds)), np.nan)
    for i, loss in enumerate(TREATED):
        own = where(runs, family=loss)
        for j, arm in enumerate(ARMS):
            for n, k in enumerate(PLACES):
                each = {"arm": "hard" if k == EVERY else arm, "k": k}
                made[i, j, n] = differences(own, each, each)[0]
    coords = {"loss": list(TREATED), "arm": list(ARMS), "k": list(PLACES), "seed": seeds}
    return xr.Dataset({"rsum": (("loss", "arm", "k", "seed"), made)}, coords=coords)


def _rows(parts, name, loss):
    """Number of negatives -> difference hard minus random."""
    part = parts[f"{name}_differences"]
    return {int(k): difference(part, f"{loss} {k}") for k in parts[f"{name}_recall"]["k"].values[:-1]}


def title(parts):
    """The claim."""
    one, other = (difference(parts[f"{name}_differences"], "mean") for name in SETS)
    if not one.resolved:
        return f"Hard minus random negatives at the same number is {one.said('points of rsum')}"
    more = "more" if one.mean > 0 else "less"
    second = f"{other.short()} (emoji)" if other.resolved else f"not resolvable on the emoji: {other.short()}"
    alone = ", ".join(f"{_alone(parts, name).short()} ({name})" for name in SETS)
    return (
        f"At the same number of negatives the hardest are worth {abs(one.mean):.1f} points of rsum {more} than "
        f"random ones {_bounds(one)} (captions), {second}; the hardest alone against all of them, NT-Xent: {alone}"
    )


def _alone(parts, name, loss="ntxent"):
    """Only the hardest negative less all negatives, test rsum, paired by seed."""
    recall = parts[f"{name}_recall"]["rsum"].sel(loss=loss, arm="hard").dropna("seed")
    return paired(*(recall.sel(k=k).values for k in (KEPT[0], EVERY)))


def _bounds(one):
    low, high = sorted((abs(one.low), abs(one.high)))
    return f"[{low:.1f}, {high:.1f}]"


def alt(parts):
    """One sentence."""
    return (
        "Test recall against the number of negatives kept, the hardest or random ones, for two losses and two data "
        "sets, and the paired differences with their intervals."
    )


def _listed(parts, name, loss):
    rows = ", ".join(f"k = {k} {one.short()}" for k, one in _rows(parts, name, loss).items())
    return f"{LOSSES[loss]} {rows}"


def agrees(parts):
    """The test fixed beforehand, and every difference."""
    told = []
    for name in SETS:
        mean = difference(parts[f"{name}_differences"], "mean")
        rows = "; ".join(_listed(parts, name, loss) for loss in parts[f"{name}_recall"]["loss"].values.tolist())
        alone = ", ".join(
            f"{LOSSES[loss]} {_alone(parts, name, loss).said('points')}"
            for loss in parts[f"{name}_recall"]["loss"].values.tolist()
        )
        told.append(f"{name}: mean {mean.said('points')}; {rows}; only the hardest less all negatives: {alone}")
    tests = parts["tests"].attrs
    return (
        f"Hard minus random, test rsum, of {tests['candidates']} negatives. {'. '.join(told)}. p of the mean of the "
        f"captions, corrected by Holm over the three tests fixed beforehand: {tests['p']:.1g}."
    )


def draw(parts, figure):
    """Draw recall by number of negatives above and hard minus random below, a column for each loss and data set."""
    columns = [(name, loss) for name in SETS for loss in parts[f"{name}_recall"]["loss"].values.tolist()]
    axes, palette = (
        figure.subplots(2, len(columns), sharex=True, height_ratios=(1.1, 1)),
        sns.color_palette("colorblind"),
    )
    styles = {"hard": (palette[3], "o", "-"), "random": (palette[2], "s", "--")}
    for ax in axes[1][1:]:
        ax.sharey(axes[1][0])
    for (name, loss), above, below in zip(columns, *axes, strict=True):
        recall = parts[f"{name}_recall"]["rsum"].sel(loss=loss)
        for arm, (colour, marker, line) in styles.items():
            means = [paired(each, np.zeros(len(each))) for each in recall.sel(arm=arm).values]
            low, high = ([abs(each.mean - end(each)) for each in means] for end in (lambda o: o.low, lambda o: o.high))
            above.errorbar(range(len(means)), [each.mean for each in means], yerr=(low, high), color=colour,
                           marker=marker, linestyle=line, markersize=5, linewidth=1.3, elinewidth=1.6)  # fmt: skip
        rows = _rows(parts, name, loss)
        forest_of(parts[f"{name}_differences"], [f"{loss} {k}" for k in rows], below, at=range(len(rows)), upright=True,
                  offset=0.28)  # fmt: skip
        ticks = [*map(str, rows), "all"]
        for ax in (above, below):
            ax.set_xticks(range(len(ticks)), ticks)
            ax.set_xlim(-0.5, len(ticks) - 0.5)
            sns.despine(ax=ax)
        above.set_title(f"{name}, {LOSSES[loss]}", fontsize="medium")
        below.set_xlabel("negatives kept, k")
    axes[0][0].set_ylabel("test rsum (points of 600)")
    axes[1][0].set_ylabel("hard minus random (points)")
    entries = [
        Line2D([], [], color=colour, marker=marker, linestyle=line, label=f"the k {word}")
        for (colour, marker, line), word in zip(styles.values(), ("hardest", "random"), strict=True)
    ]
    figure.legend(handles=[*entries, *resolution_entries()], loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(textwrap.fill(title(parts), 92))
