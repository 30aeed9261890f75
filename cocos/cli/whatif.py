"""`cocos whatif`: replay batches (--what), solve for a parameter (--effective), find equilibria (--settles)."""

from typing import Annotated

import typer

import cocos
from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option

WHAT_HELP = "Setting to change, repeatable: loss parameter, loss, batch_size, eps, top_k, skip_k or semi_hard."
SIZE_HELP = "Pairs or queries per batch, or `all`; with --settles several, such as 32,128,512."


@app.command(epilog="Example: cocos whatif embeddings.npz --loss ntxent --what temperature=0.02,0.05")
def whatif(
    context: typer.Context,
    file: options.File,
    what: Annotated[list[str] | None, option(WHAT_HELP, "several of each", metavar="NAME=VALUES")] = None,
    by: Annotated[str | None, option("Quantity to compare, such as idle or effective.", "contributing")] = None,
    effective: Annotated[float | None, option("Find the parameter with this effective number of negatives.")] = None,
    settles: Annotated[bool, option("Find where a learned temperature settles.", "", None, "--settles")] = False,
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
    batch_size: Annotated[str | None, option(SIZE_HELP, "128", options.BATCHES, metavar="NUMBERS")] = None,
    batches: options.NumberOfBatches = None,
    sample: options.Sample = None,
    per_group: options.PerGroup = None,
    seed: options.Seed = None,
    dtype: options.Dtype = None,
    data: options.Data = None,
    model: options.Model = None,
    split: options.Split = None,
    device: options.Device = None,
    out: options.FigureOut = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Recount the same batches with a different temperature, margin, batch size, mining rule or loss."""
    compares = effective is None and not settles
    if not compares and (what or by):
        raise InputError("--what and --by do not go with --settles and --effective")
    output.check_output(out, file, data, suffixes=output.RESULTS + (output.FIGURES if compares or settles else ()))
    checkpoint, (chosen,), values, _ = options.open_with_losses(context, file)
    values |= options.chosen(context, "effective", "settles", *(("what", "by", "eps") if compares else ()))
    if batch_size:
        del values["batch_size"]
        sizes = [options.read_size(size) for size in batch_size.split(",")]
        values |= {"batch_sizes": sizes} if settles else {"batch_size": sizes[0] if len(sizes) == 1 else batch_size}
    with output.progress(quiet) as start:
        dataset = cocos.measures.whatif(checkpoint, chosen, progress=start, **values)
    output.show(context, dataset)
