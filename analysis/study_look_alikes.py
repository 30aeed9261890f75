"""Look-alikes: their part of the negatives and of the push, and recall with look-alikes masked.

A look-alike is another item of the same concept (emoji), or one whose caption has a MiniLM cosine above 0.7; whether it
is a false negative depends on the task. Left, their part of the push at the end of training, beside as many random
negatives and beside their part of the negatives, which is one number for all losses. Right, test recall with
look-alikes masked less recall with as many random negatives masked, paired by seed, where a match is the item itself,
and where it is any item of the concept.
"""

import seaborn as sns
from matplotlib.lines import Line2D

from cocos.plots.replay import UNRESOLVED_GREY
from study_tables import (
    LOSSES,
    SETS,
    difference,
    findings,
    forest_of,
    inputs,
    keys,
    numbers,
    plain_ticks,
    resolution_entries,
    row,
    rows_of,
    seeds_of,
    table,
    where,
)

PUBLISHED = "none; that other items can be matches is a known caveat of image-caption retrieval"
DIFFERS = "nothing published to compare with"
INPUTS = inputs("masking")
SIZE, PRINTED = (7.0, 6.4), True
SHARES = ("look_alike_negatives", "look_alike_push", "random_push")
SCORES = {"rsum": "item level", "rsum_concept": "concept level"}
WORDS = {"ntxent": "τ", "triplet_sh": "margin", "smoothap": "τ", "ce_softmax": "scale"}


def data(progress):
    """Read the shares of look-alikes, and the differences between masking them and masking random negatives."""
    parts, found = {}, findings()
    for name in SETS:
        runs, masking = table(f"{name}_masking"), found[name]["masking"]
        parts[f"{name}_shares"] = numbers({
            f"{setting} {share}": each[share] for setting, each in masking.items() for share in SHARES
        })
        rows = {}
        for setting, each in masking.items():
            loss, value = setting.split()
            own = where(runs, family=loss, value=float(value))
            for score in SCORES:
                if score in each:
                    seeds = seeds_of(own, {"mask": "look_alikes"}, {"mask": "random"}, score)
                    rows[f"{setting} {score}"] = each[score]["look_alikes_minus_random"], seeds
                    rows[f"{setting} {score} placebo"] = each[score]["random_minus_none"], _placebo(own, score)
        parts[f"{name}_masked"] = rows_of(rows)
    return parts


def _placebo(runs, score):
    return seeds_of(runs, {"mask": "random"}, {"mask": "none"}, score)


def _settings(part):
    """Loss and value of each setting, in the order of the table."""
    return list(dict.fromkeys(" ".join(each.split()[:2]) for each in keys(part)))


def _label(setting):
    loss, value = setting.split()
    return f"{LOSSES[loss]}, {WORDS[loss]} {value}"


def _range(values):
    low, high = min(values), max(values)
    return f"{low:.2g} to {high:.2g} %" if f"{low:.2g}" != f"{high:.2g}" else f"{low:.2g} %"


def _shares(part, share):
    return [row(part, f"{setting} {share}")["mean"] for setting in _settings(part)]


def title(parts):
    """The claim."""
    times, told = [], []
    for name in SETS:
        part, masked = parts[f"{name}_shares"], parts[f"{name}_masked"]
        times += [push / chance for push, chance in zip(*(_shares(part, share) for share in SHARES[1:]), strict=True)]
        rows = [difference(masked, f"{setting} rsum") for setting in _settings(part)]
        clear = {"raises": sum(one.low > 0 for one in rows), "lowers": sum(one.high < 0 for one in rows)}
        told += [
            f"{word} recall in {number} of {len(rows)} settings ({name})" for word, number in clear.items() if number
        ]
    low, high = (round(end(times), -1) for end in (min, max))
    return (
        f"Look-alikes take {low:.0f} to {high:.0f} times the push on as many random negatives; masking them by item "
        f"{' and '.join(told)}"
    )


def alt(parts):
    """One sentence."""
    return (
        "Part of the push on look-alikes and on as many random negatives by loss, and the effect of masking "
        "look-alikes on recall with intervals, for captions and emoji."
    )


def _listed(part, score):
    """Differences of a score, resolved ones first."""
    rows = {setting: difference(part, f"{setting} {score}") for setting in _settings(part)}
    clear, open_ = (
        ", ".join(f"{_label(setting)} {one.short()}" for setting, one in rows.items() if one.resolved == way)
        for way in (True, False)
    )
    return f"{SCORES[score]}: interval apart from zero {clear or 'none'}; undecided {open_ or 'none'}"


def agrees(parts):
    """Shares, placebo and the effect of masking."""
    told = []
    for name in SETS:
        shares, masked = parts[f"{name}_shares"], parts[f"{name}_masked"]
        scores = [score for score in SCORES if keys(masked) and any(each.split()[2] == score for each in keys(masked))]
        effect = ". ".join(_listed(masked, score) for score in scores)
        number = difference(masked, keys(masked)[0]).number
        placebo = [difference(masked, f"{setting} {scores[0]} placebo") for setting in _settings(masked)]
        clear = sum(one.resolved for one in placebo)
        pushes = ", ".join(f"{_label(s)} {row(shares, f'{s} {SHARES[1]}')['mean']:.1f}" for s in _settings(shares))
        told.append(
            f"{name}: push on look-alikes in % {pushes}; on as many random negatives "
            f"{_range(_shares(shares, SHARES[2]))}. Look-alikes masked less random ones masked, rsum, n = {number} "
            f"paired seeds, {effect}. Random ones masked less none: {clear} of {len(placebo)} differences have an "
            "interval apart from zero"
        )
    return f"{'. '.join(told)}. Intervals are not adjusted for the number of rows."


def draw(parts, figure):
    """Draw parts of the push on the left and the effect of masking on the right, a row for each data set."""
    axes, palette = figure.subplots(2, 3), sns.color_palette("colorblind")
    styles = {
        "random_push": ("s", UNRESOLVED_GREY, "push on as many random\nnegatives, on average"),
        "look_alike_push": ("o", palette[3], "push on look-alikes"),
    }
    for (left, middle, right), name in zip(axes, SETS, strict=True):
        shares, masked = parts[f"{name}_shares"], parts[f"{name}_masked"]
        settings = _settings(shares)
        for part in sorted(set(_shares(shares, SHARES[0]))):
            left.axvline(part, color="black", linewidth=1.0, linestyle=":", zorder=0)
        for place, setting in enumerate(settings):
            ends = [row(shares, f"{setting} {share}")["mean"] for share in SHARES[1:]]
            left.plot(ends, (place, place), color="0.8", linewidth=1.2, zorder=1)
            for share, (marker, face, _) in styles.items():
                one = row(shares, f"{setting} {share}")
                left.plot(one["mean"], place, marker, color=face, markeredgecolor="white", markersize=5.5)
            left.text(-0.06, place, _label(setting).replace(", ", "\n"), ha="right", va="center", size="small",
                      transform=left.get_yaxis_transform())  # fmt: skip
        left.set_xscale("log")
        plain_ticks(left, (0.1, 0.3, 1, 3, 10, 30))
        left.set(yticks=[], xlabel="part (%, log axis)", title=f"{name}: look-alikes")
        for ax, score in ((middle, "rsum"), (right, "rsum_concept")):
            names = [f"{setting} {score}" for setting in settings]
            if names[0] not in keys(masked):
                ax.set_axis_off()
                continue
            forest_of(masked, names, ax, at=range(len(names)), offset=0.28)
            ax.set(yticks=[], xlabel="change of rsum (points)", title=f"{name}: masking,\n{SCORES[score]}")
        for ax in (left, middle, right):
            ax.set_ylim(len(settings) - 0.4, -0.6)
            sns.despine(ax=ax, left=True)
    entries = [Line2D([], [], color="black", linewidth=1.0, linestyle=":", label="part of the negatives")]
    entries += [Line2D([], [], marker=marker, color=face, markeredgecolor="white", linestyle="", label=label)
                for marker, face, label in styles.values()]  # fmt: skip
    key = axes[0][2].legend(handles=[*entries, *resolution_entries()], loc="center", frameon=False, labelspacing=0.9,
                            title="masking: look-alikes masked less\nas many random ones masked")  # fmt: skip
    key.get_title().set_fontsize("small")
    figure.suptitle(title(parts))
