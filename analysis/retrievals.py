"""Retrievals of the embedded example in its test split: captions for six emoji, and emoji for six captions."""

import functools

import cocos
from cocos import data as shelf
from cocos import measures, plots

PUBLISHED = "Veit & Wilber 2020, Fig. 5"
CONFIDENT, NEAREST = 0.6, 3
SIZE = (7.0, 5.3)


def data():
    """Retrieve with the same seed in both directions."""
    frozen = cocos.open("example")
    return {
        name: measures.retrievals(frozen, k=NEAREST, direction=name, split="test", device="cpu")
        for name in ("i2t", "t2i")
    }


def title(parts):
    """The claim."""
    first = [int((part["best_rank"] == 1).sum()) for part in parts.values()]
    asked = parts["i2t"].sizes["query"]
    return f"A positive comes first for {first[0]} of {asked} images and {first[1]} of {asked} captions"


def draw(parts, figure):
    """Draw one panel per direction, with the images and captions themselves."""
    items = shelf.load("emoji_captions", "test")

    def pictures(side, row, *, images):
        return items.query.items[row].permute(1, 2, 0).numpy() if side == images else items.candidate.items[row]

    for (name, part), ax in zip(parts.items(), figure.subplots(1, 2), strict=True):
        images = "query" if name == "i2t" else "candidate"
        show = functools.partial(pictures, images=images)
        plots.retrievals(part, pictures=show, confident=CONFIDENT, ax=ax)
