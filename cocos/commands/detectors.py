"""`cocos detectors`."""

from cocos.commands._answer import Answer
from cocos.commands._options import SHARED
from cocos.commands._program import command


@command(
    "Training runs",
    99,
    options={
        "detector": SHARED["detector"],
    },
)
def detectors(detector) -> Answer:
    """List the detectors, which say in a sentence what is wrong with a training run: thresholds, and what to try."""
    from cocos.monitor import detectors as shelf
    from cocos.reports import cards

    rows = shelf.table(shelf.chosen(shelf.settings(detector or ())))
    return Answer(text=lambda: cards.detectors(rows), document=lambda: rows)
