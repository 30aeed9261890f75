"""Effective negatives, contributing negatives and idle queries of the same embeddings at other temperatures of NT-Xent.

A small temperature puts the push on one negative. A large one spreads it until no share is above eps: then all
negatives push according to the effective number, and none contributes according to the count.
"""

from matplotlib import rc_context

from cocos import checkpoints, measures, plots
from cocos.reports.captions import holds

PUBLISHED = (
    "none; that a small temperature puts the push on the hardest negatives is from Wang & Liu 2021, arXiv:2012.09740"
)
DIFFERS = "the embeddings are fixed: a model trained with another temperature would have other embeddings"
INPUTS = (checkpoints.EXAMPLE_FILE,)
SIZE, PRINTED = (7.0, 3.6), True


def data(progress):
    """Weigh 24 batches at 33 temperatures."""
    frozen = checkpoints.open(checkpoints.EXAMPLE_FILE)
    about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    embeddings = frozen.embed(device="cpu")
    loss = frozen.loss("ntxent", {})[0]
    return {"ntxent": measures.temperature_curve(embeddings, loss, batches=24, sample="pairs").assign_attrs(about)}


def _means(parts):
    """Effective number, count and idle queries against the temperature, both directions together."""
    mean = parts["ntxent"].mean("direction")
    return mean["effective"], mean["contributing_all"], 100 * mean["idle_fraction"]


def title(parts):
    """The claim."""
    effective, count, _ = _means(parts)
    peak = float(count["value"][int(count.values.argmax())])
    return (
        f"A higher temperature spreads the push of NT-Xent ({float(effective[0]):.1f} to {float(effective[-1]):.0f} "
        f"effective negatives), while the count peaks at {float(count.max()):.0f} near a temperature of {peak:.2f}"
    )


def alt(parts):
    """One sentence."""
    return "Effective and contributing negatives, and idle queries, against the temperature."


def agrees(parts):
    """Ends and peaks of the curves."""
    effective, count, idle = _means(parts)
    low, high = (float(effective["value"][place]) for place in (0, -1))
    grows = holds(bool((effective.diff("value") > 0).all()), "The effective number grows throughout")
    return (
        f"{grows}, from {float(effective[0]):.1f} to {float(effective[-1]):.1f}, while the count falls to "
        f"{float(count[-1]):.1f} at {high:g}, where no probability is above eps. Idle queries are of two kinds: "
        f"{float(idle[0]):.0f} % at {low:.2g}, solved, and {float(idle[-1]):.0f} % at {high:g}, their push spread "
        f"thin. n = {parts['ntxent'].attrs['batches']} batches of {parts['ntxent'].attrs['batch_size']} pairs of one "
        "model."
    )


def draw(parts, figure):
    """Draw numbers of negatives on the left, idle queries on the right."""
    left, right = figure.subplots(1, 2)
    with rc_context({"legend.handlelength": 4}):  # so that dashes show beside the marks
        plots.temperature_curve(parts["ntxent"], ax=left)
        plots.temperature_curve(parts["ntxent"], show="idle", ax=right)
    for ax in (left, right):
        for text in ax.texts:
            text.set_text(text.get_text().replace(" as it is", ": as trained"))
        ax.set_xlabel("temperature (log axis; embeddings frozen)")
    left.set_title("negatives: effective number and count")
    right.set_title("queries without a contributing negative")
    figure.suptitle(title(parts))
