"""Which number of a training predicts its final recall: the own count, counts by a common ruler, or simple baselines.

Rank correlations with test recall at the end over the settings of all losses (dots) and between the settings of one
loss (squares), with 95 % intervals: early in the training, and at its end. A ruler is one loss with the parameters of
the paper that counts the models of all losses.
"""

import textwrap

import numpy as np
import seaborn as sns
from matplotlib.lines import Line2D

from cocos.plots.replay import UNRESOLVED_GREY
from cocos.reports.captions import holds
from study_tables import SETS, findings, inputs, keys, numbers, resolved, row

PUBLISHED = "none; Bleeker & de Rijke 2022 count each model by its own loss"
DIFFERS = "nothing published to compare with"
INPUTS = inputs()
SIZE, PRINTED = (7.0, 5.0), True
WHEN = {"early": "early", "end": "at the end"}
BASELINES = {"rsum_val": "validation rsum", "rsum_train": "training rsum", "loss": "training loss"}
COUNTS = {
    "contributing": "own count",
    "effective": "own effective number",
    "idle": "own idle queries",
    "idle by ntxent": "idle queries by NT-Xent",
    "idle by triplet": "idle queries by triplet or by SH",  # the same: no negative is within the margin
    "idle by smoothap": "idle queries by SmoothAP",
    "share of positives by ntxent": "share of positives by NT-Xent",
}
ROW_LENGTH = 19  # characters of a line of the name of a row


def data(progress):
    """Read the correlations of every predictor at both checkpoints."""
    parts, found = {}, findings()
    for name in SETS:
        for when in WHEN:
            each = found[name]["predictions"][when]
            rows = {f"{base} alone": each["baselines"][base] for base in BASELINES}
            for count in COUNTS:
                one = each["counts"][count]
                rows |= {f"{count} {kind}": one[kind] for kind in ("alone", "within")}
                beyond = one["beyond"]["rsum_val"]
                rows[f"{count} beyond"] = {"mean": beyond["difference"]} | {
                    key: beyond[key] for key in ("low", "high", "p")
                }
            part = numbers(rows)
            parts[f"{name}_{when}"] = part.assign_attrs(step=each["step"])
    return parts


def _said(one, key="rho"):
    """A number with its interval, or that it is undecided."""
    if np.isnan(one[key]):
        return "undefined"
    interval = f"[{one['low']:+.2f}, {one['high']:+.2f}]"
    clear = resolved(one) if key == "rho" else one["low"] > 0 or one["high"] < 0
    return f"{one[key]:+.2f} {interval}" if clear else f"undecided {interval}"


def _ahead(part):
    """Counts that predict better than validation recall at the same step."""
    return [name for name in COUNTS if row(part, f"{name} beyond")["low"] > 0]


def title(parts):
    """The claim: early in the training, over the settings of all losses."""
    first, second = (parts[f"{name}_early"] for name in SETS)
    if _ahead(first) or _ahead(second):
        told = ", ".join(COUNTS[name] for part in (first, second) for name in _ahead(part))
        return f"Early in training some counts predict final recall better than validation recall: {told}"
    if all(row(first, f"{name} beyond")["high"] < 0 for name in COUNTS):
        return (
            f"Early in training, across losses, validation recall predicts final recall better than every count "
            f"({SETS[0]}); on "
            f"{SETS[1]} no count is better"
        )
    return "Early in training no count predicts final recall better than validation recall"


def alt(parts):
    """One sentence."""
    return (
        "Rank correlations of counts and of baselines with final test recall, early and at the end of training, with "
        "intervals, for captions and emoji."
    )


def agrees(parts):
    """Every correlation of the captions and emoji over all settings, and the comparisons with validation recall."""
    told = []
    for name in SETS:
        for when, word in WHEN.items():
            part = parts[f"{name}_{when}"]
            rows = [f"{label} {_said(row(part, f'{key} alone'))}" for key, label in (BASELINES | COUNTS).items()]
            number = int(row(part, "rsum_val alone")["number"])
            told.append(f"{name}, {word} (step {part.attrs['step']}, n = {number} settings): {', '.join(rows)}")
    early = parts["captions_early"]
    away = ", ".join(f"{COUNTS[name]} {_said(row(early, f'{name} beyond'), 'mean')}" for name in COUNTS)
    apart = holds(
        "rsum_val within" not in keys(early), "Within a loss nothing is compared: validation rsum has no row there."
    )
    return (
        f"Spearman's ρ with final test rsum over the settings of all losses. {'. '.join(told)}. Captions, early: size "
        f"of the correlation less that of validation rsum, paired bootstrap: {away}. {apart} Exploratory, not adjusted "
        "for the number of rows."
    )


def draw(parts, figure):
    """Draw the correlations of all predictors, a column for each data set and checkpoint."""
    blue, labels = sns.color_palette("colorblind")[0], BASELINES | COUNTS
    axes = figure.subplots(1, len(parts), sharex=True)
    for (name, part), ax in zip(parts.items(), axes, strict=True):
        ax.axvline(0, color="black", linewidth=0.9, zorder=1)
        ax.axhspan(-0.6, len(BASELINES) - 0.5, color="0.94", zorder=0, linewidth=0)
        for place, key in enumerate(labels):
            for kind, marker, offset in (("alone", "o", -0.14), ("within", "s", 0.2)):
                if f"{key} {kind}" not in keys(part):
                    continue
                one = row(part, f"{key} {kind}")
                colour = blue if resolved(one) else UNRESOLVED_GREY
                at, thick = place + offset, kind == "alone"
                ax.plot((one["low"], one["high"]), (at, at), color=colour, linewidth=2.4 if thick else 1.2,
                        alpha=1 if thick else 0.6, solid_capstyle="butt")  # fmt: skip
                ax.plot(one["rho"], at, marker, color=colour, markersize=5.5 if thick else 4, markeredgecolor="white",
                        markeredgewidth=0.8 if thick else 0)  # fmt: skip
        data, when = name.split("_")
        ax.set(yticks=[], xlim=(-1.05, 1.05), ylim=(len(labels) - 0.4, -0.6), xlabel="Spearman's ρ")
        ax.set_title(f"{data}, {WHEN[when]}\n(step {part.attrs['step']})", fontsize="medium")
        sns.despine(ax=ax, left=True)
    for place, label in enumerate(labels.values()):  # as texts: ticks of a column this narrow have no room for them
        axes[0].text(
            -1.15,
            place,
            textwrap.fill(label, ROW_LENGTH, break_on_hyphens=False),
            ha="right",
            va="center",
            size="small",
        )
    entries = [
        Line2D([], [], color=blue, marker="o", linewidth=2.4, label="settings of\nall losses"),
        Line2D([], [], color=blue, marker="s", markersize=4, linewidth=1.2, label="settings of\none loss"),
        Line2D(
            [],
            [],
            color=UNRESOLVED_GREY,
            marker="o",
            linewidth=2.4,
            label="interval includes 0 or\npermutation p ≥ 0.05",
        ),
        Line2D([], [], color="0.9", linewidth=8, label="baselines"),
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=len(entries), frameon=False)
    figure.suptitle(title(parts))
