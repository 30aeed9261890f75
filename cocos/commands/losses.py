"""`cocos losses`."""

from pathlib import Path

from cocos.base import terminal
from cocos.base.errors import InputError
from cocos.commands._answer import Answer, saved
from cocos.commands._options import argument, option
from cocos.commands._program import command


@command(
    options={
        "name": argument(str | None, "The loss whose card is shown.", None, metavar=None),
        "out": option(Path | None, "With NAME: draw its weight against the score to this file (.png, .pdf)."),
    },
)
def losses(name, out) -> Answer:
    """List the losses, or show the card of one: formula, parameters, natural unit, equal losses, weight."""
    from cocos import losses as shelf
    from cocos.reports import cards

    if name is None:
        if out is not None:
            raise InputError(f"--out {out}: it draws one loss; name it, like cocos losses ntxent --out {out}")
        entries = [cards.entry(each) for each in shelf.names()]
        return Answer(
            text=lambda: cards.table(entries, shelf.UNSPECIFIED, shelf.BEYOND_SCORES), document=lambda: entries
        )
    from cocos import measures, plots
    from cocos.reports import saving

    if shelf.canonical(name) not in shelf.names():
        raise InputError(f"loss {name!r}: only losses of the shelf have a card; cocos verify --loss {name} checks it")
    loss = shelf.load(name)
    if out is not None:
        saving.writable(out)
    curve, equal = measures.weight_curve(loss), measures.equivalences(loss)
    return Answer(
        text=lambda: cards.card(name, curve, equal, terminal.room()),
        document=lambda: cards.entry(name) | {"equal_to": cards.equal_to(equal)},
        wrote=saved(curve, out, lambda path: saving.save_plot(plots.weight_curve, curve, path)),
    )
