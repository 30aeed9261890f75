"""`cocos diff`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app

FIRST_HELP = "Checkpoint, file of embeddings, or result (.nc)."


@app.command(epilog="Example: cocos diff before.pt after.pt --loss ntxent -p temperature=0.07")
def diff(
    context: typer.Context,
    first: Annotated[Path, typer.Argument(metavar="FILE", help=FIRST_HELP)],
    second: Annotated[Path, typer.Argument(metavar="OTHER", help="Another one of the same data.")],
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
    batch_size: options.BatchSize = None,
    sample: options.Sample = None,
    per_group: options.PerGroup = None,
    copies: options.Copies = None,
    same_group: options.SameGroup = None,
    seed: options.Seed = None,
    dtype: options.Dtype = None,
    data: options.Data = None,
    model: options.Model = None,
    dims: options.Dims = None,
    split: options.Split = None,
    device: options.Device = None,
    out: options.FigureOut = None,
    width: options.Width = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Compare two results, or two models on the same data, query by query."""
    if first.resolve() == second.resolve():
        raise InputError(f"{first} and {second} are the same file; expected two different ones")
    output.check_output(out, first, second, data, suffixes=(*output.RESULTS, *output.FIGURES))
    stored = [path.suffix in (".nc", ".jsonl") and not path.is_dir() for path in (first, second)]
    if stored[0] != stored[1]:
        wrong = second if stored[0] else first
        raise InputError(f"{wrong}: not a result like the other file; expected two of one type")
    if all(stored) and (loss or param):
        raise InputError(f"--loss: {first} is a result with its own loss; pass the files of embeddings instead")

    from cocos import measures, results
    from cocos.plots import saving
    from cocos.reports import drawing

    saving.inches(width)
    names = (first.stem, second.stem) if first.stem != second.stem else (str(first), str(second))
    about, notes = [], []
    with output.progress(quiet) as start:
        if all(stored):
            dataset = measures.diff(results.open(first), results.open(second), names=names)
        else:
            opened = [options.open_with_loss(context, file) for file in (first, second)]
            for checkpoint, chosen, origin in opened:
                about.append(f"{checkpoint.path} ({checkpoint.format}): {chosen!r}, {origin}")
                notes += checkpoint.notes
            checkpoints, losses, _ = zip(*opened, strict=True)
            ranked = loss is None and all(checkpoint.format == "scores" for checkpoint in checkpoints)
            values = options.chosen(context, "eps", *options.SAMPLING)
            dataset = measures.diff(*checkpoints, None if ranked else losses, names=names, progress=start, **values)
    draw = partial(drawing.draw, "diff", [dataset], width=width)
    output.show(context, dataset, about=about, notes=notes, draw=draw)
