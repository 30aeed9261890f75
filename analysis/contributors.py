"""Which candidates make up the gradient of two queries in a batch of 128 pairs, under NT-Xent: an image, and a caption.

The fourteen largest shares of each, with the captions and the images that they belong to.
"""

from cocos import demo, measures, plots
from cocos.data import emoji_captions

PUBLISHED = "none; asked for by users"
AGREES = (
    "The positive pulls as much as all negatives push, as the formula says. Of the 127 negatives 10 and 8 are above "
    "eps, and they hold 66 % and 72 % of the push: what is left out of the count is not nothing. One picture appears "
    "twice on the right, since it was drawn with two of its captions."
)
INPUTS = tuple((demo.checkpoint().path,))
SIZE = (13.4, 5.4)
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


def draw(parts, figure):
    """Captions on the left, pictures on the right."""
    items = emoji_captions.load("train")
    left, right = figure.subplots(1, 2)

    def named(row):
        return items.captions[CAPTIONS * row]

    def picture(row):
        return items.images[row].permute(1, 2, 0).numpy()

    plots.contributors(parts["i2t"], labels=items.captions.__getitem__, ax=left)
    plots.contributors(parts["t2i"], labels=named, pictures=picture, ax=right)
    asked = {"i2t": f'the image "{named(ROWS["i2t"])}"', "t2i": f'the caption "{items.captions[ROWS["t2i"]]}"'}
    for ax, (direction, part) in zip((left, right), parts.items(), strict=True):
        about = part.attrs
        ax.set_title(f"{asked[direction]}\n{about['contributing']} of {about['negatives']} negatives contribute")
    figure.suptitle(f"{parts['i2t'].attrs['loss_repr']}: what makes up the gradient of two queries")
