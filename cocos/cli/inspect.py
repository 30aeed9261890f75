"""`cocos inspect`."""

import typer

import cocos
from cocos.cli import options, output
from cocos.cli.app import app


@app.command()
def inspect(
    context: typer.Context,
    file: options.File,
    data: options.Data = None,
    out: options.JsonOut = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Identify a file, show its recorded settings and suggest the next command. Never executes code from the file."""
    output.check_output(out, file, data, suffixes=(".json",))
    content = cocos.checkpoints.inspect(file, data)
    output.print_result(context, [cocos.reports.cards.contents(content)], content, content["notes"])
