"""`cocos diff`."""

from pathlib import Path
from typing import Annotated

import typer

import cocos
from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app


@app.command(epilog="Example: cocos diff before.pt after.pt --loss ntxent -p temperature=0.07")
def diff(
    context: typer.Context,
    first: Annotated[Path, typer.Argument(metavar="FILE", help="Checkpoint, embeddings, or result (.nc).")],
    second: Annotated[Path, typer.Argument(metavar="OTHER", help="Another one of the same data.")],
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
    batch_size: options.BatchSize = None,
    data: options.Data = None,
    model: options.Model = None,
    split: options.Split = None,
    out: options.FigureOut = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Compare two results, or two models on the same data, query by query."""
    output.check_output(out, first, second, data, suffixes=output.RESULTS + output.FIGURES)
    stored = [path.suffix == ".nc" for path in (first, second)]
    if any(stored) and (not all(stored) or loss or param):
        raise InputError(f"{first}, {second}: expected two models, or two results (.nc) without --loss and -p")
    names = (first.stem, second.stem) if first.stem != second.stem else (str(first), str(second))
    with output.progress(quiet) as start:
        if all(stored):
            dataset = cocos.measures.diff(*map(cocos.results.open, (first, second)), names=names)
        else:
            sources = [options.open_with_losses(context, file) for file in (first, second)]
            checkpoints, losses, (values, _), _ = zip(*sources, strict=True)
            values |= options.chosen(context, "eps")
            losses = tuple(chosen for (chosen,) in losses)
            if loss is None and all(checkpoint.format == "scores" for checkpoint in checkpoints):
                losses = None  # compare their ranks
            dataset = cocos.measures.diff(*checkpoints, losses, names=names, progress=start, **values)
    output.show(context, dataset)
