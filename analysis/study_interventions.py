"""The k hardest candidates against k random ones: by the number kept, and by the number that contribute.

Above, test recall by the number of candidates that are kept, means over the seeds with 95 % intervals. Below, the same
runs by the number of negatives that contribute at the end of the training: of k random candidates few do, and most
queries are idle. The dotted line is where both arms are compared, at the number of the rightmost random one; the hard
arm is read there by linear interpolation between two k, in the log of the number, and the difference, paired by seed,
is written above, or that its 95 % interval includes zero.
NT-Xent has temperature 0.05 and the triplet loss margin 0.2; means over two learning rates.
"""

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
    again,
    difference,
    findings,
    inputs,
    numbers,
    plain_ticks,
    rows_of,
    seeds_of,
    table,
    where,
)

PUBLISHED = "none; Bleeker & de Rijke 2022 compare triplet with triplet SH, the hardest negative against all"
DIFFERS = "nothing published to compare with"
INPUTS = inputs("interventions")
SIZE, PRINTED = (7.0, 5.0), True
MATCHED = str(KEPT[-1])  # random candidates, of which as many contribute as of some hard ones
ARMS = ("hard", "random")
PLACES = (*KEPT, EVERY)
SHOWN = ("rsum", "contributing")


def data(progress):
    """Read recall of every arm and seed, and the differences between hard and random negatives."""
    parts, found, later = {}, findings(), again()
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
        parts[f"{name}_equal"] = numbers({
            loss: later[name]["equal"][loss]["contributing"][MATCHED] for loss in TREATED
        })
    parts["tests"] = xr.Dataset(attrs={"p": found["tests"]["holm"]["p3"], "candidates": EVERY})
    return parts


def _recall(runs):
    """Test rsum and contributing negatives of every loss, arm, number of candidates and seed; all negatives once."""
    seeds = np.unique(runs["seed"].values)
    found = {name: np.full((len(TREATED), len(ARMS), len(PLACES), len(seeds)), np.nan) for name in SHOWN}
    for i, loss in enumerate(TREATED):
        own = where(runs, family=loss)
        for j, arm in enumerate(ARMS):
            for n, k in enumerate(PLACES):
                each = {"arm": "hard" if k == EVERY else arm, "k": k}
                for name, made in found.items():
                    made[i, j, n] = differences(own, each, each, name)[0]
    coords = {"loss": list(TREATED), "arm": list(ARMS), "k": list(PLACES), "seed": seeds}
    return xr.Dataset({name: (tuple(coords), made) for name, made in found.items()}, coords=coords)


def _rows(parts, name, loss):
    """Number of negatives -> difference hard minus random."""
    part = parts[f"{name}_differences"]
    return {int(k): difference(part, f"{loss} {k}") for k in parts[f"{name}_recall"]["k"].values[:-1]}


def title(parts):
    """The claim."""
    means = [difference(parts[f"{name}_differences"], "mean") for name in SETS]
    equal = [_equal(parts, name, loss) for name in SETS for loss in TREATED]
    told = f"where equally many contribute, in {sum(one.low > 0 for one in equal)} of {len(equal)} cases"
    if all(one.low > 0 for one in means):
        return f"The k hardest candidates beat k random ones on average over k; {told}"
    return f"The k hardest candidates against k random ones: undecided, mean over k; ahead {told}"


def _equal(parts, name, loss):
    """Hard less random where as many negatives contribute as of the most random candidates."""
    return difference(parts[f"{name}_equal"], loss)


def _alone(parts, name, loss="ntxent"):
    """Only the hardest negative less all negatives, test rsum, paired by seed."""
    recall = parts[f"{name}_recall"]["rsum"].sel(loss=loss, arm="hard").dropna("seed")
    return paired(*(recall.sel(k=k).values for k in (KEPT[0], EVERY)))


def alt(parts):
    """One sentence."""
    return (
        "Test recall against the number of candidates kept, and against the number of negatives that contribute, for "
        "the hardest and for random candidates, two losses and two data sets."
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
        equal = ", ".join(f"{LOSSES[loss]} {_equal(parts, name, loss).short()}" for loss in TREATED)
        told.append(
            f"{name}: mean {mean.said('points')}; {rows}; where as many contribute as of {MATCHED} random ones "
            f"{equal}; "
            f"only the hardest less all negatives: {alone}"
        )
    tests = parts["tests"].attrs
    return (
        f"Hard minus random, test rsum, of {tests['candidates']} negatives. {'. '.join(told)}. p of the mean of the "
        f"captions, corrected by Holm over the three tests fixed beforehand: {tests['p']:.1g}."
    )


def draw(parts, figure):
    """Draw recall by candidates kept above and by contributing negatives below, a column for each loss and data set."""
    columns = [(name, loss) for name in SETS for loss in TREATED]
    axes, palette = figure.subplots(2, len(columns)), sns.color_palette("colorblind")
    styles = {"hard": (palette[3], "o", "-"), "random": (palette[2], "s", "--")}
    for (name, loss), above, below in zip(columns, *axes, strict=True):
        below.sharey(above)
        part = parts[f"{name}_recall"].sel(loss=loss)
        for arm, (colour, marker, line) in styles.items():
            own = part.sel(arm=arm).isel(k=slice(None, None if arm == "hard" else -1))
            means = [_spread(each) for each in own["rsum"].values]
            low, high = ([each.mean - each.low for each in means], [each.high - each.mean for each in means])
            number = own["contributing"].mean("seed").values
            for ax, x in ((above, range(len(means))), (below, number)):
                ax.errorbar(x, [each.mean for each in means], yerr=(low, high), color=colour, marker=marker,
                            linestyle=line, markersize=3.5, linewidth=1.0, elinewidth=1.1)  # fmt: skip
        ticks = [*map(str, PLACES[:-1]), "all"]
        above.set_xticks(range(len(ticks)), ticks)
        above.set(xlabel="candidates kept, k", title=f"{name}, {LOSSES[loss]}", xlim=(-0.5, len(ticks) - 0.5))
        one = _equal(parts, name, loss)
        below.set_xscale("log")
        plain_ticks(below, (0.03, 0.1, 0.3, 1, 3))
        below.set(xlabel="contributing negatives (log)", xlim=(0.025, 5))
        below.axvline(part["contributing"].sel(arm="random", k=KEPT[-1]).mean(), color="0.4", linewidth=0.9,
                      linestyle=":", zorder=0)  # fmt: skip
        below.set_title(
            f"at equal number:\n{f'{one.mean:+.1f}' if one.resolved else 'undecided'}".replace("-", "\u2212")
        )
        for ax in (above, below):
            sns.despine(ax=ax)
    for ax in (axes[0][0], axes[1][0]):
        ax.set_ylabel("test rsum (points of 600)")
    entries = [
        Line2D([], [], color=colour, marker=marker, linestyle=line, label=f"the k {word}")
        for (colour, marker, line), word in zip(
            styles.values(), ("hardest", f"random (below: k = {KEPT[0]} at the left)"), strict=True
        )
    ]
    entries.append(Line2D([], [], color="0.4", linewidth=0.9, linestyle=":", label="equal number, as compared"))
    figure.legend(handles=entries, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(title(parts))


def _spread(values):
    """Mean over the seeds with its interval."""
    return paired(values, np.zeros(len(values)))
