"""Weight of a negative (colour) and loss (lines) over the scores of one positive and one negative."""

import numpy as np

from cocos import measures, plots
from cocos.captions import holds

PUBLISHED = "none; asked for by users. The triplet panel is the picture behind Bleeker & de Rijke 2022, eqs. 1 and 6"
DIFFERS = "nothing published to compare with"
LOSSES = ("triplet", "ntxent", "circle", "contrastive_cosine")
SIZE = (10.4, 8.6)


def data(progress):
    """A landscape for each loss."""
    return {name: measures.score_landscape(name, points=101) for name in LOSSES}


def title(parts):
    """The claim."""
    values = np.unique(parts["triplet"]["push"].values.round(9))
    smooth = np.unique(parts["ntxent"]["push"].values.round(9))
    return holds(
        len(values) == 2 and len(smooth) > 100,
        "A triplet weighs all or nothing, with an edge at the margin; softmax losses fade",
    )


def alt(parts):
    """One sentence."""
    return (
        f"Weight of a negative as colour and the loss as lines over the scores of a positive and a negative, for "
        f"{len(parts)} losses."
    )


def agrees(parts):
    """How the weights depend on the two scores."""
    told = []
    for name, part in parts.items():
        top = float(part["push"].max())
        told.append(f"{name} from {float(part['push'].min()):.2g} to {top:.3g}")
    alike = parts["ntxent"]["push"].values
    return (
        f"Weight of the negative: {'; '.join(told)}. "
        + holds(
            np.allclose(np.diagonal(alike), np.diagonal(alike)[0]),
            "NT-Xent depends on the difference of the scores only",
        )
        + holds(
            np.ptp(np.diagonal(parts["circle"]["push"].values)) > 0.1, ", the circle loss also on where a score stands."
        )
        + " Closed forms on a grid: no sample, no interval."
    )


def draw(parts, figure):
    """A panel each."""
    for part, ax in zip(parts.values(), figure.subplots(2, 2).flat, strict=True):
        plots.score_landscape(part, ax=ax)
