"""`cocos whatif`: replay batches (--what), solve for a parameter (--effective), find equilibria (--settles)."""

from functools import partial
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option

QUESTION = "Question"  # panel of the help
WHAT_HELP = (
    "Setting to change, repeatable: a parameter of the loss (temperature, margin, ...), loss, batch_size, eps, or a "
    "mining rule (top_k, skip_k, semi_hard)."
)
WHAT_DEFAULT = "half and twice the sharpness and batch size, mining rules, another loss"
BY_HELP = "Quantity to compare: contributing, idle, relative, effective, push or hardest_share."
EFFECTIVE_HELP = "Find the temperature, scale or margin with this effective number of negatives."
SETTLES_HELP = "Find where a learned temperature settles, by batch size."
SIZE_HELP = "Pairs or queries per batch, or `all`; with --settles several, separated by commas."


@app.command(epilog="Example: cocos whatif embeddings.npz --loss ntxent --what temperature=0.02,0.05")
def whatif(
    context: typer.Context,
    file: options.File,
    what: Annotated[list[str] | None, option(WHAT_HELP, WHAT_DEFAULT, QUESTION, metavar="NAME=VALUES")] = None,
    by: Annotated[str | None, option(BY_HELP, "contributing", QUESTION)] = None,
    effective: Annotated[float | None, option(EFFECTIVE_HELP, "", QUESTION)] = None,
    settles: Annotated[bool, option(SETTLES_HELP, "", QUESTION, "--settles")] = False,
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
    batch_size: Annotated[
        str | None, option(SIZE_HELP, "128; with --settles 32,128,512,2048", options.BATCHES, metavar="NUMBERS")
    ] = None,
    batches: options.NumberOfBatches = None,
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
    """Recount with a different temperature, margin, batch size, mining rule or loss.

    Without --effective and --settles, the same batches are replayed with the changes of --what.
    """
    measure = "temperature" if settles else "replay" if effective is None else "solve"
    for name in options.chosen(context, "what", "by", "eps") if measure != "replay" else ():
        raise InputError(f"--{name} does not go with {'--settles' if settles else '--effective'}")
    values = options.chosen(context, "what", "by", "effective", "eps", *options.SAMPLING)
    sizes = [options.read_count(size) for size in (batch_size.split(",") if batch_size else ())]
    if len(sizes) > 1 and not settles:
        raise InputError(f"--batch-size {batch_size}: several sizes require --settles")
    if sizes:
        values.pop("batch_size")
        values |= {"batch_sizes": sizes} if settles else {"batch_size": sizes[0]}
    suffixes = output.RESULTS if measure == "solve" else output.RESULTS + output.FIGURES
    output.check_output(out, file, data, suffixes=suffixes)
    if width is not None and (out is None or out.suffix == ".nc"):
        raise InputError(f"--width {width}: no figure to draw, expected --out with a suffix such as .png")

    from cocos import measures
    from cocos.plots import saving
    from cocos.reports import drawing

    saving.inches(width)
    checkpoint, chosen, origin = options.open_with_loss(context, file)
    if not settles:
        origin = options.add_batch_size(values, checkpoint, origin)
    with output.progress(quiet) as start:
        dataset = getattr(measures, measure)(checkpoint, chosen, progress=start, **values)
    name = dataset.attrs["loss_repr" if measure == "replay" else "loss"]
    about = [f"{file} ({checkpoint.format}): loss {name}, {origin}"]
    draw = None if measure == "solve" else partial(drawing.draw, measure, [dataset], width=width)
    output.show(context, dataset, about=about, notes=checkpoint.notes, draw=draw)
