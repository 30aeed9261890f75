"""Triplet SH less triplet by learning rate: how much of the gap between two losses is a setting of the training.

Both have margin 0.2 and 128 pairs in a batch, as in the paper; test recall, paired by seed. In the row of best margins
each loss has the margin and the learning rate with the highest validation recall. Diamonds are the gaps of the paper,
on other captions; it has no emoji.
"""

import seaborn as sns
import xarray as xr
from matplotlib.lines import Line2D

from analysis.study import plan
from analysis.study.findings import chosen
from study_tables import (
    BATCH_SIZE,
    SETS,
    difference,
    findings,
    forest_of,
    inputs,
    keys,
    resolution_entries,
    rows_of,
    seeds_of,
    table,
    where,
)

PUBLISHED = "Bleeker & de Rijke 2022, Tables 1 and 2: rsum of triplet SH less that of triplet, four pairs of models"
DIFFERS = "linear heads and small networks on frozen features, trained for a fixed number of steps"
TABLES_1_AND_2 = {  # rsum of triplet and of triplet SH
    "VSE++, Flickr30k": (309.4, 353.8),
    "VSRN, Flickr30k": (430.7, 466.6),
    "VSE++, COCO": (240.0, 298.8),
    "VSRN, COCO": (377.8, 399.0),
}
INPUTS = inputs("grid", "interventions")
SIZE, PRINTED = (7.0, 3.5), True
BEST = "best margins"


def data(progress):
    """Read the gap at each learning rate, with as many seeds as there are, and at the best margins."""
    parts, found = {}, findings()
    for name in SETS:
        gap, rows = found[name]["gap"], {}
        grid, treated = table(f"{name}_grid"), where(table(f"{name}_interventions"), family="triplet")
        plain = where(grid, batch_size=BATCH_SIZE, value=plan.PUBLISHED["triplet"]["margin"])
        for rate, one in gap["grid"].items():
            if rate in gap["by_rate"]:  # the triplet loss with its hardest negative is triplet SH
                arms = ({"arm": "hard", "k": k, "rate": float(rate)} for k in (1, plan.EVERY))
                rows[rate] = gap["by_rate"][rate], seeds_of(treated, *arms)
            else:
                arms = ({"family": loss, "rate": float(rate)} for loss in ("triplet_sh", "triplet"))
                rows[rate] = one, seeds_of(plain, *arms)
        best = gap["best_against_best"]
        arms = ({"family": loss, "value": best["values"][loss]} for loss in ("triplet_sh", "triplet"))
        rows[BEST] = best["difference"], seeds_of(chosen(grid, BATCH_SIZE), *arms)
        parts[name] = rows_of(rows | {"change": (gap["change"], [])})
        parts[name].attrs = dict(best["values"])
    away = [high - low for low, high in TABLES_1_AND_2.values()]
    parts["published"] = xr.Dataset({"gap": ("model", away)}, coords={"model": list(TABLES_1_AND_2)})
    return parts


def _rates(part):
    """Names of the rows of learning rates."""
    return [name for name in keys(part) if name not in {BEST, "change"}]


def title(parts):
    """The claim."""
    part = parts["captions"]
    if not difference(part, "change").resolved:
        return "Triplet SH minus triplet by learning rate: no change is decided (captions)"
    gaps = [difference(part, rate).mean for rate in _rates(part)]
    return (
        f"Triplet SH minus triplet depends on the learning rate: {min(gaps):.1f} to {max(gaps):.1f} points of rsum "
        "(captions)"
    )


def alt(parts):
    """One sentence."""
    return (
        "Paired differences of recall, triplet SH minus triplet, at three learning rates and at the best margins, with "
        "intervals, for captions and emoji, beside the gaps of the paper."
    )


def agrees(parts):
    """Every row, and the gaps of the paper."""
    told = []
    for name in SETS:
        part = parts[name]
        rows = "; ".join(f"{rate}: {difference(part, rate).said('points')}" for rate in _rates(part))
        best = ", ".join(f"{loss} {value:g}" for loss, value in part.attrs.items())
        told.append(
            f"{name}, by learning rate {rows}; best margins ({best}): {difference(part, BEST).said('points')}; gap at "
            f"{_rates(part)[-2]} less gap at {_rates(part)[-1]}: {difference(part, 'change').said('points')}"
        )
    published = parts["published"]
    gaps = ", ".join(f"{model} {float(published['gap'].sel(model=model)):+.1f}" for model in published["model"].values)
    return f"Test rsum. {'. '.join(told)}. The paper: {gaps}, at one learning rate each."


def draw(parts, figure):
    """Draw the gap at each learning rate and at the best margins, a panel for each data set."""
    orange = sns.color_palette("colorblind")[1]
    for name, ax in zip(SETS, figure.subplots(1, len(SETS)), strict=True):
        part = parts[name]
        names = [*_rates(part), BEST]
        labels = [f"learning rate {rate}" for rate in names[:-1]]
        labels.append("best margins\n" + " and ".join(f"{value:g}" for value in part.attrs.values()))
        numbers = [difference(part, each).number for each in names]
        labels = [f"{label}\nn = {number}" for label, number in zip(labels, numbers, strict=True)]
        forest_of(part, names, ax, at=range(len(names)), offset=0.24)
        if name == SETS[0]:
            gaps = parts["published"]["gap"].values
            ax.plot(gaps, [len(names)] * len(gaps), "D", color="none", markeredgecolor=orange, markeredgewidth=1.2,
                    markersize=5)  # fmt: skip
            labels.append("the paper")
        ax.set(yticks=range(len(labels)), yticklabels=labels, ylim=(len(names) + 0.5, -0.6))
        ax.set_xlabel("rsum, SH minus triplet (points of 600)")
        ax.set_title(name)
        ax.tick_params(axis="y", length=0)
        sns.despine(ax=ax, left=True)
    paper = Line2D(
        [], [], color="none", markeredgecolor=orange, marker="D", markeredgewidth=1.6, label="the paper, Tables 1 and 2"
    )
    figure.legend(handles=[*resolution_entries(), paper], loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title(parts))
