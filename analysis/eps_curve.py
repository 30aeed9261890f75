"""COCOS(eps): contributing negatives against the threshold, for four losses, with each loss's own eps marked.

The triplet losses count every weight that is not zero, which is any eps below 1: their curves are flat.
"""

import numpy as np

from cocos import demo, measures, plots

PUBLISHED = (
    "none as a curve; Bleeker & de Rijke 2022 count at eps = 0.01 for NT-Xent and SmoothAP, and every weight other "
    "than 0 for the triplet losses"
)
AGREES = (
    "The triplet losses do not depend on eps. NT-Xent does: 6 negatives at 0.01, 75 at 0.0001 and 126 at 0.000001, so "
    "its count means nothing without its eps. SmoothAP falls by 0.14 to 0.18 for each factor of ten, and no share "
    "reaches 0.13. Both directions agree closely."
)
INPUTS = tuple((demo.checkpoint().path,))
SIZE = (9.6, 6.8)
EPS = (*np.logspace(-6, 0, 61)[:-1], 0.9999, 1)  # the left end stands for 0


def data(progress):
    """Count one pass over the training set at 62 thresholds for each loss."""
    frozen = demo.checkpoint()
    about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    embeddings = frozen.embed(device="cpu")
    return {
        name: measures.eps_curve(embeddings, frozen.loss(name, {})[0], EPS, sample="pairs").assign_attrs(about)
        for name in demo.LOSSES
    }


def draw(parts, figure):
    """One panel a loss."""
    for name, ax in zip(parts, figure.subplots(2, 2).flat, strict=True):
        plots.eps_curve(parts[name], mark=EPS[0] if name.startswith("triplet") else 0.01, ax=ax)
        ax.set_ylim(0, 1.15 * ax.get_ylim()[1])
        if name.startswith("triplet"):
            ax.texts[0].set_text("eps = 0: any weight")
    figure.suptitle("COCOS against eps in batches of 128 pairs: one frozen model, four losses")
