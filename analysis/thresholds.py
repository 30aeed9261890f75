"""What one cut-off means for each query: some get more than a hundred candidates from it, and others none."""

from cocos import demo, measures, plots

PUBLISHED = (
    "Not a figure of a paper; Veit & Wilber 2020, arXiv:2011.08824, ask for scores that mean the same everywhere"
)
AGREES = (
    "Not compared with any published number. On the training split of the embedded example the cut-off "
    "with a precision of 10 % over all pairs (cosine 0.712, L2 0.758) gives one image in twenty at least 127 "
    "captions, and 3 % of the images and 18 % of the captions nothing. A precision of 50 % costs nearly all of "
    "the recall."
)
INPUTS = (demo.checkpoint().path,)
SIZE = (8.6, 5.8)


def data(progress):
    """Cut-offs of four precisions over all pairs of the training split."""
    frozen = demo.checkpoint()
    about = {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    precisions = (0.05, 0.1, 0.2, 0.3, 0.5)
    return {"train": measures.thresholds(frozen, precisions=precisions, device="cpu").assign_attrs(about)}


def draw(parts, figure):
    """One panel."""
    plots.thresholds(parts["train"], ax=figure.subplots())
