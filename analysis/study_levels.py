"""Contributing negatives and recall by what varies: one table of runs has several correlations.

Each panel shows the runs of the captions at another level: checkpoints of a run, seeds of a setting, settings of a
loss, losses, and all points together. Between settings of a loss the points form an arch rather than a line, and a rank
correlation has the sign of the side on which they lie. The last panel has the rank correlations of both data sets with
their 95 % intervals, of the settings also on either side of the top of the arch; blue also asks for the permutation
test, which is why a bar may lie off zero and be grey: between losses the interval of five points is too short.
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
SIZE, PRINTED = (7.0, 5.4), True
MEASURES = {"contributing": "count", "effective": "effective number"}
TITLES = {
    "within_run": "within a run",
    "seeds": "between seeds of a setting",
    "settings": "between settings of a loss",
    "families": "between losses",
    "pooled": "pooled, which mixes them",
}
SHORT = {  # names of the last panel
    "within_run": "within a run",
    "seeds": "seeds",
    "settings": "settings",
    "below": "up to the top",
    "above": "beyond it",
    "families": "losses",
    "pooled": "pooled",
}
SIDES = {"below": "settings up to the top", "above": "settings beyond the top"}
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
    return parts | {"levels": numbers(rows)}


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
    shown = {
        "within_run": TITLES["within_run"],
        "settings": TITLES["settings"],
        "below": "up to the top of the arch",
        "above": "beyond it",
    }
    told = ", ".join(f"{_plain(_at(parts, level))} {words}" for level, words in shown.items())
    if len({_at(parts, level)["rho"] > 0 for level in shown if resolved(_at(parts, level))}) > 1:
        said = "The sign of the correlation of count and recall depends on what varies, and on where the settings lie"
        return f"{said}: {told}"
    return f"Rank correlation of count and recall by what varies: {told}"


def _plain(one):
    """A correlation with its interval."""
    return f"{one['rho']:+.2f} [{one['low']:+.2f}, {one['high']:+.2f}]"


def alt(parts):
    """One sentence."""
    return (
        "Test recall against the count of contributing negatives in five panels, by what varies, and the rank "
        "correlations of both data sets with their intervals."
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
    """Means over the seeds of a setting, with its loss and the value of its parameter."""
    made, config = runs[[*MEASURES, "rsum"]].groupby("config").mean(), runs["config"].values.tolist()
    for name in ("family", "value"):
        known = dict(zip(config, runs[name].values.tolist(), strict=True))
        made = made.assign_coords({name: ("config", [known[each] for each in made["config"].values.tolist()])})
    return made


def _draw_settings(ax, means, shades, *, paths):
    """Draw the settings: the path of each over its checkpoints, or their ends in the order of the parameter."""
    for name in LOSSES:
        own = means.isel(config=np.flatnonzero(means["family"].values == name)).sortby("value")
        style = {"color": shades[name], "alpha": 0.85, "markeredgewidth": 0}
        if paths:
            ax.plot(own["contributing"].values.T, own["rsum"].values.T, linewidth=0.9, **style)
            last = own.isel(step=-1)
            ax.plot(last["contributing"], last["rsum"], MARKERS[name], markersize=3, **style)
        else:
            last = own.isel(step=-1)
            ax.plot(last["contributing"], last["rsum"], MARKERS[name], linestyle=":", linewidth=0.9, markersize=4,
                    **style)  # fmt: skip


def draw(parts, figure):
    """Draw a panel for each level of the captions, and the correlations of both data sets."""
    runs, shades, (top, bottom) = parts["captions"], colours(), figure.subplots(2, 3)
    panels = dict(zip(TITLES, (*top, *bottom), strict=False))
    means, ends = _means(runs), runs.isel(step=-1)
    _draw_settings(panels["within_run"], means, shades, paths=True)
    _draw_settings(panels["settings"], means, shades, paths=False)
    away = ends.groupby("config") - ends.groupby("config").mean()
    last = means.isel(step=-1)
    for name, label in LOSSES.items():
        own = last.isel(config=np.flatnonzero(last["family"].values == name))
        style = {"color": shades[name], "marker": MARKERS[name], "linestyle": "", "markeredgewidth": 0}
        mine = runs["family"].values == name
        panels["seeds"].plot(away["contributing"].values[mine], away["rsum"].values[mine], markersize=2.5, alpha=0.7,
                             **style)  # fmt: skip
        at = float(own["contributing"].mean()), float(own["rsum"].mean())
        panels["families"].plot(*at, markersize=6, label=label, **style)
        pooled = runs[["contributing", "rsum"]].isel(run=mine)
        panels["pooled"].plot(pooled["contributing"].values.ravel(), pooled["rsum"].values.ravel(), markersize=1.8,
                              alpha=0.35, **style)  # fmt: skip
    for level, ax in panels.items():
        if level == "seeds":
            ax.set(xlabel="count less mean", ylabel="test rsum less mean")
        else:
            ax.set_xscale("symlog", linthresh=STEP)
            plain_ticks(ax, (0, 0.1, 1, 10, 100))
            ax.set(xlabel="count (own loss)", ylabel="test rsum (points of 600)", xlim=(-0.02, 130))
        ax.set_title(f"{TITLES[level]}\n{_said(_at(parts, level))}",
                     color="0.45" if level == "pooled" else "black")  # fmt: skip
        sns.despine(ax=ax)
    _draw_forest(parts, bottom[2])
    handles = [Line2D([], [], color=shades[name], marker=MARKERS[name], linestyle="-", markeredgewidth=0, label=label)
               for name, label in LOSSES.items()]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    figure.suptitle(title(parts))


def _draw_forest(parts, ax):
    """Draw the correlations of both data sets at every level with their intervals."""
    styles = {"captions": ("o", -0.16), "emoji": ("D", 0.16)}
    blue = sns.color_palette("colorblind")[0]
    ax.axvline(0, color="black", linewidth=0.9, zorder=1)
    rows = [level for each in TITLES for level in ((each, *SIDES) if each == "settings" else (each,))]
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
    names = [SHORT[level] for level in rows]
    ax.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, -0.5), xlim=(-1.05, 1.05))
    ax.set_xlabel("Spearman's ρ")
    ax.set_title("captions ●, emoji ◆\nblue: excludes 0")
    ax.tick_params(axis="y", length=0)
    sns.despine(ax=ax, left=True)
