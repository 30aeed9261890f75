"""Retrievals of the embedded example in its test split: captions for six emoji, and emoji for six captions."""

import functools
import importlib.resources

from cocos import checkpoints, measures, plots
from cocos.checkpoints import data as shelf

PUBLISHED = (
    "Veit & Wilber 2020, arXiv:2011.08824, Fig. 5 (example retrievals, with an outline for scores of at least .6). We "
    "did not have the figure itself, so layout and choice of queries are ours"
)
DIFFERS = (
    "another model (two small towers trained with NT-Xent) and other data (emoji with captions in four languages); "
    "nothing here was trained with the losses of the paper (see cross_example)"
)
EXAMPLE = importlib.resources.files("cocos") / "example"
INPUTS = (checkpoints.EXAMPLE_FILE, EXAMPLE / "images.webp", EXAMPLE / "captions.jsonl.gz")
CONFIDENT, NEAREST = 0.6, 3
SIZE, PRINTED = (7.0, 5.3), True


def data(progress):
    """Retrieve with the same seed in both directions."""
    frozen = checkpoints.open(checkpoints.EXAMPLE_FILE)
    about = {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    return {
        name: measures.retrievals(frozen, k=NEAREST, direction=name, split="test", device="cpu").assign_attrs(about)
        for name in ("i2t", "t2i")
    }


def title(parts):
    """The claim."""
    first = [int((part["best_rank"] == 1).sum()) for part in parts.values()]
    asked = parts["i2t"].sizes["query"]
    return f"A positive comes first for {first[0]} of {asked} images and {first[1]} of {asked} captions"


def alt(parts):
    """One sentence."""
    return f"The {parts['i2t'].sizes['rank']} nearest candidates of some emoji and captions, with positives framed."


def agrees(parts):
    """Ranks of the best positives."""
    ranks = [
        f"{name}: {', '.join(f'{int(rank)}' for rank in part['best_rank'].values)}" for name, part in parts.items()
    ]
    sure = [
        f"{name}: {int((part['score'] >= CONFIDENT).sum())} of {int((part['candidate'] >= 0).sum())}"
        for name, part in parts.items()
    ]
    return (
        f"Ranks of the best positive, {'; '.join(ranks)}. {', '.join(sure)} candidates shown have a score of at least "
        f"{CONFIDENT}. n = {parts['i2t'].sizes['query']} queries per direction, "
        "drawn at random from the test split; these are examples, not an estimate."
    )


def draw(parts, figure):
    """Draw one panel per direction, with the images and captions themselves."""
    items = shelf.load("emoji_captions", "test")

    def pictures(side, row, *, images):
        return items.query.items[row].permute(1, 2, 0).numpy() if side == images else items.candidate.items[row]

    for (name, part), ax in zip(parts.items(), figure.subplots(1, 2), strict=True):
        images = "query" if name == "i2t" else "candidate"
        show = functools.partial(pictures, images=images)
        plots.retrievals(part, pictures=show, confident=CONFIDENT, ax=ax)
