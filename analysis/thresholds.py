"""What one cut-off means for each query: candidates returned, precision, recall, and queries that get nothing."""

from cocos import demo, measures, plots

PUBLISHED = (
    "Not a figure of a paper; Veit & Wilber 2020, arXiv:2011.08824, ask for scores that mean the same everywhere"
)
DIFFERS = "nothing published to compare with"
ASKED = 0.1
INPUTS = (demo.checkpoint().path,)
SIZE = (8.6, 5.8)


def data(progress):
    """Cut-offs of four precisions over all pairs of the training split."""
    frozen = demo.checkpoint()
    about = {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    precisions = (0.05, 0.1, 0.2, 0.3, 0.5)
    return {"train": measures.thresholds(frozen, precisions=precisions, device="cpu").assign_attrs(about)}


def _one(parts):
    """The cut-off with the precision that the caption speaks of."""
    data = parts["train"]
    return data.isel(cutoff=int(abs(data["target"] - ASKED).values.argmin()))


def title(parts):
    """The claim."""
    cut = _one(parts)
    many, none = float(cut["returned_band"].sel(direction="i2t", percentile=95)), cut["none_returned"]
    return (
        f"One cut-off gives one image in twenty at least {many:.0f} captions, and nothing to "
        f"{float(none.sel(direction='i2t')):.0f} % of the images and {float(none.sel(direction='t2i')):.0f} % of "
        "the captions"
    )


def alt(parts):
    """One sentence."""
    return f"Candidates returned per query at {parts['train'].sizes['cutoff']} cut-offs of the score."


def agrees(parts):
    """The cut-off in question, and what the strictest one costs."""
    cut, last = _one(parts), parts["train"].isel(cutoff=-1)
    return (
        f"The claim is of the cut-off with a precision of {100 * float(cut['target']):.0f} % over all pairs: cosine "
        f"{float(cut['cutoff']):.3f}, L2 {float(cut['distance']):.3f}. A precision of "
        f"{100 * float(last['target']):.0f} % "
        f"leaves {float(last['global_recall']):.1g} % of the recall. n = {cut.sizes['query']:,} queries a "
        "direction "
        "drawn for the bands, all pairs for the cut-offs; one model."
    )


def draw(parts, figure):
    """One panel."""
    plots.thresholds(parts["train"], ax=figure.subplots())
