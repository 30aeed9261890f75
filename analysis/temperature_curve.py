"""What another temperature would do to the same embeddings under NT-Xent: negatives that push, that count, idle ones.

A small temperature puts the push on one negative. A large one spreads it until no share is above eps: the effective
number then says that all negatives push, and the count that none contributes.
"""

from cocos import demo, measures, plots

PUBLISHED = (
    "none; that a small temperature puts the push on the hardest negatives is from Wang & Liu 2021, arXiv:2012.09740"
)
AGREES = (
    "The effective number only grows, from 1.1 to 126.6 of 127, while the count has a maximum of 25.5 near 0.36 and "
    "falls to 0.2 at 3: there all negatives push alike, each with a share below 0.01. So idle queries are of two "
    "kinds, those that are solved (small temperatures, 88 %) and those whose push is spread thin (large ones, 83 %). "
    "It is a what-if: a model trained with another temperature has other embeddings."
)
INPUTS = tuple((demo.checkpoint().path,))
SIZE = (10.8, 4.6)


def data(progress):
    """Weigh 24 batches at 33 temperatures."""
    frozen = demo.checkpoint()
    about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    embeddings = frozen.embed(device="cpu")
    loss = frozen.loss("ntxent", {})[0]
    return {"ntxent": measures.temperature_curve(embeddings, loss, batches=24, sample="pairs").assign_attrs(about)}


def draw(parts, figure):
    """Numbers of negatives on the left, idle queries on the right."""
    left, right = figure.subplots(1, 2)
    plots.temperature_curve(parts["ntxent"], ax=left)
    plots.temperature_curve(parts["ntxent"], show="idle", ax=right)
    left.set_title("how many negatives share the push")
    right.set_title("how many queries are counted as idle")
    figure.suptitle("NT-Xent with other temperatures, on embeddings trained with 0.1")
