"""`cocos inspect`."""

import json as encoder
from pathlib import Path
from typing import Annotated

import typer

from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option


@app.command()
def inspect(
    context: typer.Context,
    file: options.File,
    data: options.Data = None,
    out: Annotated[Path | None, option("Write the JSON document to this file (.json).", "", options.OUTPUT)] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Identify a file, show its recorded settings and suggest the next command. Never executes code from the file."""
    output.check_output(out, file, data, suffixes=(".json",))

    from cocos import checkpoints
    from cocos.base import writing
    from cocos.reports import cards

    about = checkpoints.inspect(file, data)
    if out is not None:
        writing.write(out, encoder.dumps(about, allow_nan=False, indent=1).encode() + b"\n")
    output.print_result(context, lambda: [cards.contents(about)], lambda: about, notes=about["notes"], wrote=out)
