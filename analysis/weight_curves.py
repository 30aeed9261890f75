"""Weight of a negative and of a positive against their own scores, for nine losses of different families.

The query has one positive at three quarters of the range of scores (dotted) and eight more negatives below the middle.
"""

from matplotlib.ticker import MaxNLocator

from cocos import measures, plots

PUBLISHED = "none; the pictures behind the formulae that each loss's source gives (see cocos losses NAME)"
AGREES = (
    "Steps at the margins of the triplet and the contrastive loss; the sigmoids of the softmax losses; SmoothAP "
    "weighs a negative only within a few temperatures of the positive; the circle loss goes on growing with the "
    "score; the weight of the positive of ArcFace jumps where its angle and the margin reach 180 degrees, and that of "
    "the warped softmax at its boundary, a distance of 3. Scales of the axes differ, since each loss has a unit of "
    "its own."
)
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
SIZE = (14.4, 11.4)


def data(progress):
    """One curve a loss."""
    return {name: measures.weight_curve(name, points=241) for name in LOSSES}


def draw(parts, figure):
    """One panel a loss; axes differ, since every loss has units of its own."""
    for part, ax in zip(parts.values(), figure.subplots(3, 3).flat, strict=True):
        plots.weight_curve(part, ax=ax)
        ax.set_title(part.attrs["loss"])
        low, high = ax.get_ylim()
        ax.set(ylabel="weight", ylim=(low, high + 0.14 * (high - low)))
        ax.xaxis.set_major_locator(MaxNLocator(5))
        if ax.get_subplotspec().colspan.start or ax.get_subplotspec().rowspan.start:
            ax.get_legend().remove()
