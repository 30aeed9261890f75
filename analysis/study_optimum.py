"""Recall against the effective number of negatives: settings of the losses, and the same number held by intervention.

Above, a mark is a setting, mean over its seeds; the best of each loss has a ring: it is chosen on validation items,
so that it need not be the highest on the test items that are shown. The two lines are made to meet at the top of the
registered parabola, which is not where they fit best, and are the same for all losses but for their height. They ask
whether recall rises before that number and falls behind it, and are dashed where that is undecided. One parabola for
all losses is rejected by the data. Triplet SH always has exactly one negative and takes no part in the fit. Below,
NT-Xent with the temperature solved at every third step so that the effective number stays at k, as far as a
temperature can do that: differences from the k that is best on validation items, paired by seed. Where k is not
reached, the mark stands at the number at the end, with its k.
"""

import numpy as np
import seaborn as sns
from matplotlib.lines import Line2D

from analysis.study.findings import chosen
from study_tables import (
    BATCH_SIZE,
    LOSSES,
    MARKERS,
    SETS,
    again,
    colours,
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

PUBLISHED = "none; Bleeker & de Rijke 2022 suggest that lower counts go with higher scores, between four losses"
DIFFERS = "nothing published to compare with"
INPUTS = inputs("grid", "interventions")
SIZE, PRINTED = (7.0, 6.0), True
ROUNDING = 1e-6  # of means of equal logarithms
REACHED = 0.1  # a number is reached if the effective number at the end differs by less than this part of it
TICKS = (1, 2, 4, 8, 16, 32, 64, 127)
OPTIMUM = ("optimum", "optimum_low", "optimum_high")
FIT = ("curvature", "low", "high", "p")
SIDES = ("below", "above")
ENDS = ("mean", "low", "high", "p")


def data(progress):
    """Read the settings, the parabola, and the differences between effective numbers that were held."""
    parts, found, later = {}, findings(), again()
    for name in SETS:
        mean = chosen(table(f"{name}_grid"), BATCH_SIZE).isel(step=-1)
        owner = dict(zip(mean["config"].values.tolist(), mean["family"].values.tolist(), strict=True))
        mean = mean[["effective", "rsum", "rsum_val"]].groupby("config").mean()
        p2, held = found[name]["p2"], found[name]["held"]
        family = [owner[config] for config in mean["config"].values.tolist()]
        parts[name] = mean.assign_coords(family=("config", family)).drop_vars("step", errors="ignore")
        known = {key: p2["fit"][key] for key in FIT} | {key: p2["number"][key] for key in OPTIMUM}
        parts[name].attrs = {key: np.nan if value is None else value for key, value in known.items()}
        parts[name].attrs |= {key: p2["fit"][key] for key in ("r2", "number")} | {"best": held["best"]}
        arch = later[name]["arch"]
        parts[name].attrs |= {"inside": int(p2["fit"]["inside"]), "meet": later["apex"], "robust_p": arch["hc3"]["p"]}
        parts[name].attrs |= {f"{side}_{key}": arch["two_lines"][side][key] for side in SIDES for key in ENDS}
        freed = arch["meeting"]
        parts[name].attrs |= {"freed": freed["mean"], "freed_low": freed["low"], "freed_high": freed["high"]}
        parts[name].attrs["freed_above_high"] = freed["above"]["high"]
        parts[name].attrs |= {"cubic_p": arch["cubic"], "slopes_p": arch["slopes"]}
        own, best = where(table(f"{name}_interventions"), arm="held"), {"k": held["best"]}
        rows = {k: (one, seeds_of(own, {"k": int(k)}, best)) for k, one in held["best_minus"].items()}
        parts[f"{name}_held"] = rows_of({k: (_turned(one), seeds) for k, (one, seeds) in rows.items()})
        reached = ("row", [held["reached"][k] for k in rows])
        parts[f"{name}_held"] = parts[f"{name}_held"].assign_coords(reached=reached)
    return parts


def _missed(part):
    """Numbers that were not reached, for the temperature has a floor: k -> effective number at the end."""
    found = {k: float(part["reached"].sel(row=k)) for k in keys(part)}
    return {k: at for k, at in found.items() if abs(at / float(k) - 1) > REACHED}


def _turned(one):
    """The same difference the other way round."""
    return one | {"mean": -one["mean"], "low": -one["high"], "high": -one["low"]}


def _slope(part, side):
    """Slope of a line, in points per doubling of the number, with its interval; that of the data is per e-fold."""
    at, low, high = (part.attrs[f"{side}_{key}"] * np.log(2) for key in ENDS[:3])
    return f"{at:+.1f} [{low:+.1f}, {high:+.1f}]"


def _arched(part):
    """Whether recall rises up to where the lines meet, and falls behind it, each with its interval."""
    return part.attrs["below_low"] > 0 and part.attrs["above_high"] < 0


def _optimum(part):
    """The optimum with its interval, in words."""
    at, low, high = (part.attrs[key] for key in OPTIMUM)
    return f"{at:.0f} [{low:.0f}, {high:.0f}]"


def _inside(part):
    """Whether the effective number that is best when held lies in the interval of the optimum."""
    return part.attrs["optimum_low"] <= part.attrs["best"] <= part.attrs["optimum_high"]


def _best(part):
    """The best setting on validation items of each loss in the fit: loss -> its effective number and its test rsum."""
    found = {}
    for loss in LOSSES:
        own = part.isel(config=np.flatnonzero(part["family"].values == loss))
        if np.ptp(np.log(own["effective"].values)) > ROUNDING:
            one = own.isel(config=int(np.argmax(own["rsum_val"].values)))
            found[loss] = float(one["effective"]), float(one["rsum"])
    return found


def title(parts):
    """The claim: what the settings of the first set show, and the best number held where it beats its neighbours."""
    one, best = parts[SETS[0]].attrs, {name: parts[name].attrs["best"] for name in SETS if _beats(parts, name)}
    rises = _arched(parts[SETS[0]]) and one["freed_above_high"] < 0
    between = (
        f"recall rises up to {one['meet']} effective negatives and falls beyond {one['freed']:.0f}"
        if rises
        else "no arch is shown"
    )
    number = next(iter(best.values()), None)
    same = [name for name, each in best.items() if each == number]
    held = f"; held, {number} is best ({', '.join(same)})" if same else ""
    return f"Between settings, {SETS[0]}: {between}{held}"


def _beats(parts, name):
    """Whether the best number held is above the numbers beside it."""
    held, best = parts[f"{name}_held"], parts[name].attrs["best"]
    others = sorted(int(k) for k in keys(held))
    place = int(np.searchsorted(others, best))
    return all(difference(held, str(k)).high < 0 for k in (*others[:place][-1:], *others[place:][:1]))


def alt(parts):
    """One sentence."""
    return (
        "Test recall against the effective number of negatives, the best setting of each loss, two lines common to "
        "them, and differences of recall between effective numbers that were held, for captions and emoji."
    )


def _fitted(part):
    """The two lines and the parabola in words."""
    fit, (blocks, line, bent) = part.attrs, part.attrs["r2"]
    best = ", ".join(f"{LOSSES[loss]} {at:.1f} ({score:.1f})" for loss, (at, score) in _best(part).items())
    lines = ", ".join(f"{side} {_slope(part, side)} (p = {fit[f'{side}_p']:.2g})" for side in SIDES)
    free = f"{fit['freed']:.0f} [{fit['freed_low']:.0f}, {fit['freed_high']:.0f}]"
    return (
        f"best settings on validation items, effective number (test rsum): {best}; slopes per doubling {lines}, robust "
        f"errors; where the two lines fit best {free}; common parabola: curvature "
        f"{fit['curvature']:+.2f} [{fit['low']:+.2f}, {fit['high']:+.2f}] points per squared natural log, p = "
        f"{fit['p']:.2g}, with "
        f"robust errors {fit['robust_p']:.2g}, top {_optimum(part)}, n = {fit['number']} settings; against a cubic p = "
        f"{fit['cubic_p']:.2g}, against a slope for each loss p = {fit['slopes_p']:.2g}; part of the variance "
        "explained by "
        f"losses {blocks:.2f}, with a line {line:.2f}, with the parabola {bent:.2f}"
    )


def _held(parts, name):
    """Differences from the best number held, in words."""
    part = parts[f"{name}_held"]
    rows = {k: difference(part, k) for k in keys(part)}
    number = next(iter(rows.values())).number
    clear = ", ".join(f"{k}: {one.short()}" for k, one in rows.items() if one.resolved)
    open_ = ", ".join(f"{k}: {one.short()}" for k, one in rows.items() if not one.resolved)
    missed = ", ".join(f"{k} (ends at {at:.1f})" for k, at in _missed(part).items())
    side = "inside" if _inside(parts[name]) else "outside"
    return (
        f"{name}: best on validation items {parts[name].attrs['best']}, {side} the interval of the parabola's "
        "top; test rsum "
        f"less its own, n = {number} paired seeds, interval apart from zero {clear or 'none'}; undecided "
        f"{open_ or 'none'}; "
        f"not reached {missed or 'none'}"
    )


def agrees(parts):
    """Best settings, lines and parabola of both data sets, and the numbers that were held."""
    fits = "; ".join(f"{name}: {_fitted(parts[name])}" for name in SETS)
    return f"{fits}. Held, {'; '.join(_held(parts, name) for name in SETS)}."


def draw(parts, figure):
    """Draw settings and parabola above, effective numbers that were held below, a column for each data set."""
    axes, shades = figure.subplots(2, len(SETS), sharex=True, height_ratios=(1.3, 1)), colours()
    for name, above, below in zip(SETS, *axes, strict=True):
        part, held = parts[name], parts[f"{name}_held"]
        _draw_settings(part, above, shades)
        names, missed = keys(held), _missed(held)
        forest_of(held, names, below, at=[np.log2(missed.get(k, float(k))) for k in names], upright=True, offset=0.22)
        below.plot(np.log2(part.attrs["best"]), 0, "*", color="black", markersize=9, zorder=5)
        for k, at in missed.items():
            end = np.log2(at), difference(held, k).low
            below.annotate(k, end, xytext=(0, -10), textcoords="offset points", ha="center")
        above.set_title(f"{name}: settings of the losses")
        away = ", ".join(f"k = {k} ends at {at:.1f}" for k, at in missed.items())
        told = f"{name}: number held at k, best k = {part.attrs['best']} (star)"
        below.set_title(f"{told}\n{away}" if away else told)
        below.set(xlabel="effective number of negatives (log axis)", xlim=(-0.3, 7.3))
        below.margins(y=0.14)
        for ax in (above, below):
            ax.axvline(np.log2(part.attrs["meet"]), color="0.8", linewidth=0.8, linestyle=":", zorder=0)
            ax.set_xticks([np.log2(each) for each in TICKS], [str(each) for each in TICKS])
            ax.tick_params(labelbottom=True)
            sns.despine(ax=ax)
    axes[0][0].set_ylabel("test rsum (points of 600)")
    axes[1][0].set_ylabel("rsum less that of the best k")
    fitted = {loss for name in SETS for loss in _best(parts[name])}
    handles = [
        Line2D([], [], color=shades[loss], marker=MARKERS[loss], linestyle="-" if loss in fitted else "",
               markerfacecolor=shades[loss] if loss in fitted else "none", label=label)
        for loss, label in LOSSES.items()
    ]  # fmt: skip
    handles += [
        Line2D(
            [],
            [],
            marker="o",
            color="none",
            markeredgecolor="black",
            markersize=9,
            label="best of its loss (validation)",
        ),
        Line2D(
            [],
            [],
            color="0.8",
            linewidth=0.8,
            linestyle=":",
            label="top of the registered parabola: the lines meet there",
        ),
        *(each for each in resolution_entries() if _shown(parts, each.get_label())),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(title(parts))


def _shown(parts, label):
    """Whether an entry of the legend has a mark in the figure."""
    held = [difference(parts[f"{name}_held"], k) for name in SETS for k in keys(parts[f"{name}_held"])]
    return label != "the interval includes 0" or not all(one.resolved for one in held)


def _draw_settings(part, ax, shades):
    """Draw a mark for each setting, and the two lines at the height of each loss that takes part in the fit."""
    fit, family, best = part.attrs, part["family"].values, _best(part)
    for loss in LOSSES:
        own = part.isel(config=np.flatnonzero(family == loss))
        number, score = np.log(own["effective"].values), own["rsum"].values
        fitted = loss in best
        face, edge, wide = (shades[loss], "white", 0.5) if fitted else ("none", shades[loss], 1.2)
        ax.plot(number / np.log(2), score, MARKERS[loss], color=face, markersize=5, markeredgecolor=edge,
                markeredgewidth=wide)  # fmt: skip
        if fitted:
            at, top = best[loss]
            ax.plot(np.log2(at), top, "o", color="none", markersize=9, markeredgecolor="black", zorder=6)
            lines = [fit[f"{side}_mean"] for side in SIDES]
            meet = np.log(fit["meet"])

            def common(at, lines=lines, meet=meet):
                return lines[0] * np.minimum(at - meet, 0) + lines[1] * np.maximum(at - meet, 0)

            height = float((score - common(number)).mean())
            line = np.unique([number.min(), *np.clip([meet], number.min(), number.max()), number.max()])
            ax.plot(line / np.log(2), height + common(line), color=shades[loss], linewidth=1.1, alpha=0.8,
                    linestyle="-" if _arched(part) else "--")  # fmt: skip
