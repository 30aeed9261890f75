"""Which candidates make up the gradient of two queries in a batch of 128 pairs, under NT-Xent: an image, and a caption.

The fourteen largest shares of each, with the captions and the images that they belong to.
"""

from cocos import measures, plots
from cocos.commands import demo
from cocos.data import emoji_captions
from cocos.reports.captions import holds

PUBLISHED = "none; asked for by users"
DIFFERS = "nothing published to compare with"
INPUTS = tuple((demo.checkpoint().path,))
SIZE = (9.6, 11.4)
ROWS = {"i2t": 58, "t2i": 11090}
CAPTIONS = 5  # of an image


def data(progress):
    """The contributors in the first batch of seed 0 that has the query, one query a direction."""
    frozen = demo.checkpoint()
    about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    embeddings = frozen.embed(device="cpu")
    loss = frozen.loss("ntxent", {})[0]
    return {
        direction: measures.contributors(
            embeddings, loss, row=row, direction=direction, top=14, sample="pairs"
        ).assign_attrs(about)
        for direction, row in ROWS.items()
    }


def _held(part):
    """Percent of the push that the negatives above eps hold."""
    return 100 * float(part["part"].where(part["contributes"] & ~part["positive"]).sum())


def title(parts):
    """The claim."""
    counts = " and ".join(f"{part.attrs['contributing']}" for part in parts.values())
    held = " and ".join(f"{_held(part):.0f} %" for part in parts.values())
    return (
        f"{counts} negatives above eps hold {held} of the push of two queries: what the count leaves out is not nothing"
    )


def alt(parts):
    """One sentence."""
    shown = parts["i2t"].sizes["candidate"]
    return f"Bars of the {shown} largest parts of the gradient of an image query and of a caption query."


def agrees(parts):
    """Counts and parts of the push of the two queries."""
    told = [
        f"{name}: {part.attrs['contributing']} of {part.attrs['negatives']} negatives have a softmax probability above "
        f"{part.attrs['eps']:g} and hold {_held(part):.0f} % of the push"
        for name, part in parts.items()
    ]
    even = all(abs(part.attrs["push"] - part.attrs["pull"]) < 1e-9 * part.attrs["push"] for part in parts.values())
    twice = parts["t2i"].attrs["repeated"]
    return (
        f"{'; '.join(told)}. "
        + holds(even, "The positive pulls as much as all negatives push, as the formula says.")
        + f" Candidates that were drawn more than once, with several of their captions (t2i): {twice}. n = one "
        "query a direction."
    )


def draw(parts, figure):
    """An image that asks above, a caption that asks below."""
    items = emoji_captions.load("train")
    above, below = figure.subplots(2, 1)

    def picture(row):
        return items.images[row].permute(1, 2, 0).numpy()

    plots.contributors(parts["i2t"], labels=items.captions.__getitem__, image=picture(ROWS["i2t"]), ax=above)
    plots.contributors(
        parts["t2i"],
        labels=lambda row: items.captions[CAPTIONS * row],
        pictures=picture,
        query=items.captions[ROWS["t2i"]],
        ax=below,
    )
