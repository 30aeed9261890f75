"""Weight of a negative and of a positive against their own scores, for nine losses of different families.

The query has one positive at three quarters of the range of scores (dotted) and eight more negatives below the middle
(ticks at the bottom). Weights are in units of each loss.
"""

import numpy as np
import seaborn as sns
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from cocos import measures, plots
from cocos.plots.labels import below
from cocos.reports.captions import holds

PUBLISHED = "none; curves of the formulas in the source of each loss (see cocos losses NAME)"
DIFFERS = "nothing published to compare with"
LOSSES = (
    "triplet",
    "ntxent",
    "smoothap",
    "multi_similarity",
    "circle",
    "contrastive_cosine",
    "arcface",
    "proxynca_pp",
    "warped_softmax",
)
NAMES = dict(
    zip(
        LOSSES,
        ("triplet", "NT-Xent", "SmoothAP", "multi-similarity", "circle", "contrastive", "ArcFace", "ProxyNCA++",
         "warped softmax"),
        strict=True,
    )
)  # fmt: skip
# Largest weight on the axis of a loss whose weights are small.
OWN_AXES = {"smoothap": 0.2}
# Largest weight that is drawn, in units of each loss.
LARGEST_WEIGHT = 1.6
SIZE, PRINTED = (7.0, 6.2), True


def data(progress):
    """One curve a loss."""
    return {name: measures.weight_curve(name, points=241) for name in LOSSES}


def title(parts):
    """The claim."""
    flat = len(np.unique(parts["triplet"]["negative"].values.round(9))) == 2
    return holds(
        flat,
        "Triplet and contrastive losses switch a negative on, NT-Xent fades it in, SmoothAP weighs it only near the "
        "positive",
    )


def alt(parts):
    """One sentence."""
    return f"Weight of a negative and of a positive against their own score, for {len(parts)} losses."


def agrees(parts):
    """The shapes in numbers."""
    narrow = parts["smoothap"]["negative"]
    near = narrow["score"].where(narrow > 0.01 * narrow.max(), drop=True)
    tops = ", ".join(f"{NAMES[name]} {float(part['negative'].max()):.3g}" for name, part in parts.items())
    grows = parts["circle"]["negative"].values
    return (
        f"SmoothAP weights a negative above one percent of its largest weight only from a score of "
        f"{float(near.min()):.2f} to {float(near.max()):.2f}. "
        + holds(grows.argmax() == grows.size - 1, "The weight of the circle loss keeps growing with the score.")
        + f" Largest weights: {tops}; each loss has its own unit. Closed forms: no sample, no interval."
    )


def draw(parts, figure):
    """Draw one panel per loss, in units of each loss, on one axis of weights but for SmoothAP; larger ones are cut."""
    orange = sns.color_palette("colorblind")[1]
    panels = figure.subplots(3, 3)
    key = [
        Line2D(
            [], [], color="0.6", linewidth=0.8, linestyle=":", label="score of the positive, where a negative moves"
        ),
        Line2D([], [], color="0.35", marker="|", linestyle="", label="scores of the other negatives"),
    ]
    for (name, part), ax in zip(parts.items(), panels.flat, strict=True):
        plots.weight_curve(part, ax=ax)
        below(ax, lines=3, handles=[*ax.get_legend_handles_labels()[0], *key])
        own, unit = OWN_AXES.get(name), part.attrs["weight_unit"]
        most = own or LARGEST_WEIGHT
        ax.set(title=f"{NAMES[name]}, unit {unit:.3g}", ylim=(-most, most), ylabel="weight / unit\n(below 0: pull)")
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.yaxis.set_major_locator(FixedLocator((-own / 2, 0, own / 2) if own else (-1, 0, 1)))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "−"))
        ax.set_xlabel(f"score ({part.attrs['metric'].replace('_', ' ')})")
        least = min(float(part[each].min()) for each in ("negative", "positive")) / unit
        if least < -most:
            said = f"▼ to {least:.3g}".replace("-", "−")
            ax.annotate(said, (0.03, 0.08), xycoords="axes fraction", color=orange)
        if own:
            ax.annotate(f"axis of its own,\n{LARGEST_WEIGHT / own:g} times as large", (0.03, 0.97), va="top",
                        xycoords="axes fraction", fontsize="small", color="0.3")  # fmt: skip
        if ax.get_subplotspec().colspan.start:
            ax.set_ylabel("")
            ax.tick_params(labelleft=bool(own))
    figure.suptitle(title(parts))
