"""`cocos losses`."""

from typing import Annotated

import typer

import cocos
from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app


@app.command()
def losses(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Loss to describe.", show_default="list all")] = None,
    out: options.JsonOut = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """List the built-in losses, or describe one: formula, parameters, natural unit, equivalent losses, weight."""
    output.check_output(out, suffixes=(".json",))
    if name is None:
        entries = [cocos.reports.cards.entry(loss) for loss in cocos.losses.names()]
        return output.print_result(context, [cocos.reports.cards.losses_table(entries)], entries)
    if cocos.losses.canonical(name) not in cocos.losses.names():
        raise InputError(f"loss {name!r}: not a built-in loss; cocos verify --loss {name} checks it")
    output.print_result(context, [cocos.reports.cards.card(name)], cocos.reports.cards.entry(name))
