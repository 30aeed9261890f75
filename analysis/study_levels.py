"""Contributing negatives and recall by what varies: one table of runs has several correlations.

Left, the settings of the captions at the end of the training: they form an arch rather than a line, and a rank
correlation has the sign of the side on which they lie. The top of the arch is a number of effective negatives, so that
it is no line on an axis of counts: filled marks have at most that many, open ones more. Right, the rank correlations of
both data sets with their 95 % intervals by what varies: checkpoints of a run, seeds of a setting, settings of a loss,
those on either side of the top, losses, and all points together. Blue also asks for the permutation test, which is why
a bar may lie off zero and be grey: between losses the interval of five points is too short.
"""

import numpy as np
import seaborn as sns
from matplotlib.lines import Line2D

from analysis.study.findings import chosen
from cocos.plots.replay import UNRESOLVED_GREY
from study_tables import (
    BATCH_SIZE,
    LOSSES,
    MARKERS,
    SETS,
    again,
    colours,
    findings,
    inputs,
    numbers,
    plain_ticks,
    resolved,
    row,
    table,
)

PUBLISHED = "Bleeker & de Rijke 2022 compare the counts and the scores of four losses (Tables 1 to 5), one point each"
DIFFERS = "linear heads and small networks on frozen features, many settings of each loss, and seeds"
INPUTS = inputs("grid")
SIZE, PRINTED = (7.0, 3.7), True
MEASURES = {"contributing": "count", "effective": "effective number"}
TITLES = {
    "within_run": "within a run",
    "seeds": "between seeds of a setting",
    "settings": "between settings of a loss",
    "families": "between losses",
    "pooled": "pooled, which mixes all",
}
SIDES = {"below": "settings up to the top", "above": "settings beyond the top"}  # of the arch
STEP = 0.1  # below this count the axis is linear, so that 0 has a place


def data(progress):
    """Read the runs at the learning rates chosen on validation items, and the correlations at every level."""
    parts, found, later = {}, findings(), again()
    for name in SETS:
        runs = chosen(table(f"{name}_grid"), BATCH_SIZE)
        parts[name] = runs[[*MEASURES, "rsum"]]
        parts[name].attrs = {"runs": "at the learning rate of each setting with the highest validation rsum"}
    rows = {
        f"{name} {measure} {level}": found[name]["levels"][measure][level]
        for name in SETS
        for measure in MEASURES
        for level in TITLES
    }
    for name in SETS:
        rows[f"{name} contributing settings"] = found[name]["p1"]  # the registered test, which has more resamples
        for measure, word in (("contributing", "count"), ("effective", "effective")):
            for side in SIDES:
                sides = later[name]["correlations"]["sides"][str(later["apex"])]
                rows[f"{name} {measure} {side}"] = sides[side][word]
    return parts | {"levels": numbers(rows).assign_attrs(apex=later["apex"])}


def _at(parts, level, name="captions", measure="contributing"):
    """A correlation of a level with its interval."""
    return row(parts["levels"], f"{name} {measure} {level}")


def _said(one):
    """A correlation in words; none is claimed where its interval contains 0."""
    if np.isnan(one["rho"]):
        return "undefined"
    if not np.isfinite(one["low"]):
        return f"ρ = {one['rho']:+.2f}"
    interval = f"[{one['low']:+.2f}, {one['high']:+.2f}]"
    if resolved(one):
        return f"ρ = {one['rho']:+.2f} {interval}"
    if one["low"] > 0 or one["high"] < 0:  # few units: the interval is too narrow, and the permutation test is exact
        interval = f"p = {one['p']:.2g}, n = {one['number']:.0f}"
    return f"ρ = {one['rho']:+.2f}, undecided: {interval}"


def title(parts):
    """The claim."""
    clear = [one["rho"] > 0 for level in (*TITLES, *SIDES) if resolved(one := _at(parts, level))]
    said = "correlation of count and recall depends on what varies (captions)"
    return f"The sign of the rank {said}" if len(set(clear)) > 1 else f"No sign of the rank {said}"


def alt(parts):
    """One sentence."""
    return (
        "Test recall against the count of contributing negatives between settings, on either side of the top of the "
        "arch, and the rank correlations of both data sets by what varies, with their intervals."
    )


def agrees(parts):
    """Every level of both data sets with its interval, for the count and for the effective number."""
    told = []
    for name in SETS:
        for measure, word in MEASURES.items():
            every = TITLES | SIDES
            rows = ", ".join(f"{words} {_said(_at(parts, level, name, measure))}" for level, words in every.items())
            told.append(f"{name}, {word}: {rows}")
    runs, steps = (parts["captions"].sizes[each] for each in ("run", "step"))
    settings = [len(set(parts[name]["config"].values.tolist())) for name in SETS]
    return (
        f"Spearman's ρ with test rsum. {'; '.join(told)}. Captions: {settings[0]} settings of {len(LOSSES)} losses at "
        f"the learning rate chosen on validation items, {runs} runs, {steps} checkpoints each; emoji: {settings[1]} "
        f"settings. Pooled points depend on each other, so that they have no interval."
    )


def _means(runs):
    """Means over the seeds of a setting at the end of its training, with its loss and the value of its parameter."""
    made, config = runs[[*MEASURES, "rsum"]].isel(step=-1).groupby("config").mean(), runs["config"].values.tolist()
    for name in ("family", "value"):
        known = dict(zip(config, runs[name].values.tolist(), strict=True))
        made = made.assign_coords({name: ("config", [known[each] for each in made["config"].values.tolist()])})
    return made


def draw(parts, figure):
    """Draw the settings of the captions, and the correlations of both data sets."""
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    apex = int(parts["levels"].attrs["apex"])
    _draw_settings(_means(parts["captions"]), apex, left)
    _draw_forest(parts, right)
    grey = {"color": "0.3", "linestyle": "", "markersize": 4.5}
    blue, shades = sns.color_palette("colorblind")[0], colours()
    handles = [Line2D([], [], color=shades[name], marker=MARKERS[name], linestyle=":", markeredgewidth=0, label=label)
               for name, label in LOSSES.items()]  # fmt: skip
    handles += [
        Line2D([], [], marker="o", label=f"up to the arch's top: {apex} effective negatives", **grey),
        Line2D([], [], marker="o", markerfacecolor="white", label="open, left: beyond the top", **grey),
        Line2D([], [], marker="o", label="ρ of the captions", **grey),
        Line2D([], [], marker="D", label="ρ of the emoji", **grey),
        Line2D([], [], marker="D", markerfacecolor="white", label="open, right: no interval (pooled)", **grey),
        Line2D([], [], color=blue, linewidth=1.6, label="interval excludes 0 and permutation p < 0.05"),
        Line2D([], [], color=UNRESOLVED_GREY, linewidth=1.6, label="interval includes 0 or permutation p ≥ 0.05"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(title(parts))


def _draw_settings(means, apex, ax):
    """Draw the settings of each loss in the order of their parameter, filled up to the top of the arch."""
    shades = colours()
    for name in LOSSES:
        own = means.isel(config=np.flatnonzero(means["family"].values == name)).sortby("value")
        ax.plot(own["contributing"], own["rsum"], ":", color=shades[name], linewidth=0.9)
        for beyond, face in ((False, shades[name]), (True, "white")):
            side = own.isel(config=np.flatnonzero((own["effective"].values > apex) == beyond))
            ax.plot(side["contributing"], side["rsum"], MARKERS[name], color=shades[name], markersize=4.5,
                    markerfacecolor=face)  # fmt: skip
    ax.set_xscale("symlog", linthresh=STEP)
    plain_ticks(ax, (0, 0.1, 1, 10, 100))
    ax.set(xlabel="contributing negatives (log axis)", ylabel="test rsum (points of 600)", xlim=(-0.02, 130))
    ax.set_title("captions: settings of the losses")
    sns.despine(ax=ax)


def _draw_forest(parts, ax):
    """Draw the correlations of both data sets at every level with their intervals."""
    styles = {"captions": ("o", -0.16), "emoji": ("D", 0.16)}
    blue = sns.color_palette("colorblind")[0]
    ax.axvline(0, color="black", linewidth=0.9, zorder=1)
    rows = {key: words for level in TITLES for key, words in ((level, TITLES[level]), *_split(level))}
    for place, level in enumerate(rows):
        for name, (marker, offset) in styles.items():
            one = _at(parts, level, name)
            colour = blue if resolved(one) else UNRESOLVED_GREY
            if np.isfinite(one["low"]):
                ax.plot((one["low"], one["high"]), (place + offset,) * 2, color=colour, linewidth=1.6,
                        solid_capstyle="butt")  # fmt: skip
            full = level != "pooled"
            ax.plot(one["rho"], place + offset, marker, color=colour if full else "none", markersize=4.5,
                    markeredgecolor="white" if full else UNRESOLVED_GREY)  # fmt: skip
    ax.set(yticks=range(len(rows)), yticklabels=rows.values(), ylim=(len(rows) - 0.5, -0.5), xlim=(-1.05, 1.05))
    ax.set(xlabel="Spearman's ρ", title="ρ of count and test rsum, by what varies")
    ax.tick_params(axis="y", length=0)
    sns.despine(ax=ax, left=True)


def _split(level):
    """The sides of the arch, below the row of the settings."""
    return SIDES.items() if level == "settings" else ()
