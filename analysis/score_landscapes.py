"""Weight of a negative (colour) and loss (lines) over the scores of one positive and one negative."""

import numpy as np

from cocos import measures, plots
from cocos.plots.score_landscape import bar
from cocos.reports.captions import holds

PUBLISHED = "none; requested by users. The ntxent panel has the weights of Bleeker & de Rijke 2022, eq. 6"
DIFFERS = "nothing published to compare with"
LOSSES = ("triplet", "ntxent", "circle", "contrastive_cosine")
NAMES = dict(zip(LOSSES, ("triplet", "NT-Xent", "circle", "contrastive"), strict=True))
SIZE, PRINTED = (7.0, 6.0), True


def data(progress):
    """Compute a landscape for each loss, in single precision."""
    found = {name: measures.score_landscape(name, points=200).drop_vars("pull") for name in LOSSES}
    return {name: part.assign({each: part[each].astype("float32") for each in part}) for name, part in found.items()}


def title(parts):
    """The claim."""
    values = np.unique(parts["triplet"]["push"].values.round(5))
    smooth = np.unique(parts["ntxent"]["push"].values.round(5))
    return holds(
        len(values) == 2 and len(smooth) > 100,
        "The triplet loss weights a negative fully or not at all, NT-Xent fades it in; the circle loss also depends on "
        "the level of the scores",
    )


def alt(parts):
    """One sentence."""
    return (
        f"Weight of a negative as colour and the loss as lines over the scores of a positive and a negative, for "
        f"{len(parts)} losses."
    )


def agrees(parts):
    """Range of the weights, and their dependence on the two scores."""
    told = []
    for name, part in parts.items():
        top = float(part["push"].max())
        told.append(f"{NAMES[name]} from {float(part['push'].min()):.2g} to {top:.3g}")
    alike = parts["ntxent"]["push"].values
    return (
        f"Weight of the negative: {'; '.join(told)}. "
        + holds(
            np.allclose(np.diagonal(alike), np.diagonal(alike)[0], rtol=1e-5),
            "NT-Xent depends on the difference of the scores only",
        )
        + holds(
            np.ptp(np.diagonal(parts["circle"]["push"].values)) > 0.1,
            ", the circle loss also on the scores themselves.",
        )
        + " Closed forms on a grid: no sample, no interval."
    )


def draw(parts, figure):
    """Draw one panel per loss, on one scale."""
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for (name, part), ax in zip(parts.items(), panels.flat, strict=True):
        plots.score_landscape(part, share=True, ax=ax)
        ax.set_title(f"{NAMES[name]}, unit {part.attrs['unit']:g}")
        ax.label_outer()
    bar(figure, list(panels.flat), "weight of the negative / unit of the loss", shrink=0.7)
    figure.suptitle(title(parts))
