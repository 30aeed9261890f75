"""Consequences of one cut-off for each query: candidates returned, precision, recall, and queries without any."""

from cocos import measures, plots
from cocos.commands import demo

PUBLISHED = "none; Veit & Wilber 2020, arXiv:2011.08824, ask for scores that mean the same for every query"
DIFFERS = "nothing published to compare with"
ASKED = "best F1"
INPUTS = (demo.checkpoint().path,)
SIZE, PRINTED = (7.0, 5.6), True


def data(progress):
    """Cut-offs of four recalls and of the best F1 over all pairs of the training split."""
    frozen = demo.checkpoint()
    about = {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    found = measures.thresholds(frozen, device="cpu").assign_attrs(about)
    return {"train": found.drop_vars(["returned", "precision", "recall"])}


def _one(parts):
    """The cut-off that the caption is about."""
    data = parts["train"]
    return data.isel(cutoff=data["chosen"].values.tolist().index(ASKED))


def title(parts):
    """The claim."""
    cut = _one(parts)
    many, none = float(cut["returned_band"].sel(direction="i2t", percentile=95)), cut["none_returned"]
    return (
        f"The best single cut-off returns at least {many:.0f} captions to one image in twenty, and nothing to "
        f"{float(none.sel(direction='i2t')):.0f} % of the images and {float(none.sel(direction='t2i')):.0f} % of the "
        "captions"
    )


def alt(parts):
    """One sentence."""
    return "Candidates returned per query, queries without any, precision and recall, against the cut-off of the score."


def agrees(parts):
    """Position of the cut-off, with its precision and recall."""
    cut, data = _one(parts), parts["train"]
    n = data.sizes["query"]
    return (
        f"The claim is about the cut-off of the {ASKED} over all pairs: cosine {float(cut['cutoff']):.3f}, L2 "
        f"{float(cut['distance']):.3f}, precision {100 * float(cut['global_precision']):.0f} % and recall "
        f"{100 * float(cut['global_recall']):.0f} %. n = {n:,} queries per direction for the bands, all pairs for "
        "the cut-offs; one model."
    )


def draw(parts, figure):
    """Draw one panel."""
    plots.thresholds(parts["train"], ax=figure.subplots()).title.set_text(title(parts))
