"""The candidates that make up the gradient of an image query and of a caption query under NT-Xent.

Each query is in a batch of 128 pairs; its fourteen largest shares are shown with their captions or images.
"""

from matplotlib.patches import Patch

import cocos
from cocos import measures, plots
from cocos.data import emoji_captions
from cocos.plots.contributors import OTHERS_GREY
from cocos.plots.labels import below, tiny_points

SIZE = (7.0, 6.8)
ASKS = {"i2t": "image query", "t2i": "caption query"}
ROWS = {"i2t": 58, "t2i": 11090}
# Captions per image in the data.
CAPTIONS = 5


def data():
    """Find the contributors in the first batch of seed 0 that contains the query, one query per direction."""
    frozen = cocos.open("example")
    about = frozen.identity()
    embeddings = frozen.embed(device="cpu")
    loss = frozen.loss("ntxent", {})[0]
    return {
        direction: measures.contributors(
            embeddings, loss, row=row, direction=direction, top=14, sample="pairs"
        ).assign_attrs(about)
        for direction, row in ROWS.items()
    }


def _held(part):
    """Percent of the push that the contributing negatives carry."""
    return 100 * float(part["part"].where(part["contributes"] & ~part["positive"]).sum())


def _cut(part):
    """Percent of the push that a negative with the smallest share that contributes carries."""
    one = part.isel(candidate=int(part["contributes"].values.argmax()))
    return 100 * part.attrs["eps"] * float(one["part"] / one["share"])


def title(parts):
    """The claim."""
    counts = " and ".join(f"{part.attrs['contributing']}" for part in parts.values())
    held = " and ".join(f"{_held(part):.0f} %" for part in parts.values())
    return f"{counts} contributing negatives carry only {held} of the push of two queries"


def draw(parts, figure):
    """An image that asks above, a caption that asks below."""
    items = emoji_captions.load("train")
    above, below_it = figure.subplots(2, 1)

    def picture(row):
        return items.query.items[row].permute(1, 2, 0).numpy()

    plots.contributors(parts["i2t"], labels=items.candidate.items.__getitem__, image=picture(ROWS["i2t"]), ax=above)
    plots.contributors(
        parts["t2i"],
        labels=lambda row: items.candidate.items[CAPTIONS * row],
        pictures=picture,
        query=items.candidate.items[ROWS["t2i"]],
        ax=below_it,
    )
    most = max(ax.get_xlim()[1] for ax in (above, below_it))
    for ax, (name, part) in zip((above, below_it), parts.items(), strict=True):
        ax.set_xticks(above.get_xticks())
        ax.set_xlim(min(each.get_xlim()[0] for each in (above, below_it)), most)
        counted, cut = f"{part.attrs['contributing']} of {part.attrs['negatives']}", _cut(part)
        ax.title.set_text(
            f"NT-Xent, {ASKS[name]}: {counted} negatives contribute, with {_held(part):.0f} % of the push"
        )
        ax.axvline(cut, color="black", linestyle="--", linewidth=0.9)
        said = f"contributes from here: probability {100 * part.attrs['eps']:g} %,\n{cut:.1f} % of the push"
        ax.annotate(said, (cut, int(part["contributes"].sum()) + 1), xytext=(24, 0), textcoords="offset points",
                    va="center", fontsize=tiny_points(),
                    arrowprops={"arrowstyle": "->", "linewidth": 0.8, "color": "black"})  # fmt: skip
        handles = [*ax.get_legend().legend_handles, Patch(facecolor=OTHERS_GREY, label="all other negatives together")]
        below(ax, handles=handles)
