"""`cocos losses`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option

OUT_HELP = "With NAME: plot its weight against the score to this file (.png, .pdf, .svg)."


@app.command()
def losses(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Loss to describe.", show_default="list all")] = None,
    out: Annotated[Path | None, option(OUT_HELP, "", options.OUTPUT)] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """List the built-in losses, or describe one: formula, parameters, natural unit, equivalent losses, weight."""
    from cocos import losses as catalogue
    from cocos.reports import cards

    if name is None:
        if out is not None:
            raise InputError(f"--out {out}: plots one loss, such as cocos losses ntxent --out {out}")
        entries = [cards.entry(each) for each in catalogue.names()]
        table = partial(cards.losses_table, entries, catalogue.UNCOUNTABLE)
        return output.print_result(context, lambda: [table()], lambda: entries)

    from cocos import measures, plots
    from cocos.plots import saving

    if catalogue.canonical(name) not in catalogue.names():
        raise InputError(f"loss {name!r}: not a built-in loss; cocos verify --loss {name} checks it")
    output.check_output(out, suffixes=output.FIGURES)
    if out is not None:
        curve = measures.weight_curve(catalogue.load(name))
        saving.save_panels([partial(plots.weight_curve, curve)], out)
    output.print_result(context, lambda: [cards.card(name)], lambda: cards.entry(name), wrote=out)
