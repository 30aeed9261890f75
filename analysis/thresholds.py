"""Consequences of one cut-off for each query: candidates returned, precision, recall, and queries without any."""

import cocos
from cocos import measures, plots
from cocos.plots.labels import dark, palette

ASKED = "best F1"
SIZE = (7.0, 5.6)


def data():
    """Cut-offs of four recalls and of the best F1 over all pairs of the training split."""
    frozen = cocos.open("example")
    found = measures.thresholds(frozen, device="cpu")
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


def draw(parts, figure):
    """Draw the curves, and on the line of the one cut-off the numbers of the title."""
    data, cut = parts["train"], _one(parts)
    ax = plots.thresholds(data.isel(cutoff=data["chosen"].values == ASKED), ax=figure.subplots())
    ax.title.set_text(title(parts))
    many, idle, _ = ax.child_axes
    place, colours = float(cut["cutoff"]), dict(zip(data["direction"].values, palette(2), strict=True))
    most = float(cut["returned_band"].sel(direction="i2t", percentile=95))
    told = [(many, most, f"{most:.0f}", colours["i2t"], 4)]
    for name, colour in colours.items():
        none = float(cut["none_returned"].sel(direction=name))
        told.append((idle, none, f"{none:.0f} %", colour, 6 if name == "t2i" else -6))
    for strip, high, text, colour, shift in told:
        strip.plot(place, high, "o", color=colour, markeredgecolor="black", markersize=6, zorder=5)
        strip.annotate(text, (place, high), xytext=(-6 if shift > 4 else 6, shift), textcoords="offset points",
                       ha="right" if shift > 4 else "left", va="center", fontsize="small", color=dark(colour),
                       fontweight="bold")  # fmt: skip
