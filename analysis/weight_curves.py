"""Weight of a negative and of a positive against their own scores, for nine losses of different families.

The query has one positive at three quarters of the range of scores (dotted) and eight more negatives below the middle
(ticks at the bottom). Weights are divided by the unit of each loss.
"""

import numpy as np
from matplotlib.ticker import MaxNLocator

from cocos import measures, plots
from cocos.reports.captions import holds

PUBLISHED = "none; the pictures behind the formulae that each loss's source gives (see cocos losses NAME)"
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
LIMIT = 1.6  # weights that are drawn, in units of each loss
SIZE = (12.4, 10.4)


def data(progress):
    """One curve a loss."""
    return {name: measures.weight_curve(name, points=241) for name in LOSSES}


def title(parts):
    """The claim."""
    flat = len(np.unique(parts["triplet"]["negative"].values.round(9))) == 2
    return holds(
        flat,
        "Hinges switch a negative on at once, softmax losses fade it in, SmoothAP weighs it near the positive only",
    )


def alt(parts):
    """One sentence."""
    return f"Weight of a negative and of a positive against their own score, for {len(parts)} losses."


def agrees(parts):
    """The shapes in numbers."""
    narrow = parts["smoothap"]["negative"]
    near = narrow["score"].where(narrow > 0.01 * narrow.max(), drop=True)
    tops = ", ".join(f"{name} {float(part['negative'].max()):.3g}" for name, part in parts.items())
    grows = parts["circle"]["negative"].values
    return (
        f"SmoothAP weighs a negative by more than a hundredth of its largest weight from a score of "
        f"{float(near.min()):.2f} to {float(near.max()):.2f}. "
        + holds(grows.argmax() == grows.size - 1, "The circle loss goes on growing with the score.")
        + f" Largest weights: {tops}; "
        "each loss has a unit of its own. Closed forms: no sample, no interval."
    )


def draw(parts, figure):
    """One panel a loss, all with one axis of weights, in units of each loss; what is larger is cut."""
    for part, ax in zip(parts.values(), figure.subplots(3, 3, sharey=True).flat, strict=True):
        plots.weight_curve(part, ax=ax)
        ax.set(title=part.attrs["loss"], ylim=(-LIMIT, LIMIT))
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.set_xlabel(f"score ({part.attrs['metric'].replace('_', ' ')})")
        if ax.get_subplotspec().colspan.start:
            ax.set_ylabel("")
    figure.suptitle(title(parts))
