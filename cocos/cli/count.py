"""`cocos count`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option

EXAMPLE = "Example: cocos count embeddings.npz --loss ntxent -p temperature=0.07 --batch-size 256 --out counts.nc"
LOSS_HELP = "Loss to analyse, repeatable, with parameters -p LOSS.NAME=VALUE; see `cocos losses`."
CONVENTION_HELP = "Counting convention. `ecir2022` reproduces the published tables, including their bugs."
OUT_HELP = "Write the Dataset (.nc), or the published columns in LaTeX (.tex), to this file."


@app.command(epilog=EXAMPLE)
def count(
    context: typer.Context,
    file: options.File,
    loss: Annotated[list[str] | None, option(LOSS_HELP, "from the checkpoint, else ntxent", options.LOSS)] = None,
    param: options.Param = None,
    eps: options.Eps = None,
    convention: Annotated[
        Literal["standard", "ecir2022"] | None, option(CONVENTION_HELP, "standard", options.LOSS)
    ] = None,
    metrics: Annotated[bool, option("Add retrieval metrics of the whole set.", "", None, "--metrics")] = False,
    n90: Annotated[bool, option("Add the number of negatives with 90 % of the push.", "", None, "--n90")] = False,
    jobs: options.Jobs = None,
    dask: options.Dask = None,
    batch_size: options.BatchSize = None,
    batches: options.Batches = None,
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
    out: Annotated[Path | None, option(OUT_HELP, "", options.OUTPUT)] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Count the negatives that contribute to the gradient of each query."""
    names = loss or [None]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--loss {name}: given {names.count(name)} times, expected once")
    by_loss = options.split_parameters(options.read_parameters(context), names)
    output.check_output(out, file, data, suffixes=(".nc", ".tex"))

    from cocos import losses, measures, reports
    from cocos.base import writing
    from cocos.measures.shared import executors
    from cocos.reports import count as report

    for name, parameters in zip(names, by_loss, strict=True):
        if name is not None:
            losses.load(name, parameters)  # refuse a wrong loss before the file is opened
    checkpoint = options.open_source(context, file)
    loaded, origins = zip(*map(checkpoint.loss, names, by_loss), strict=True)
    values = options.chosen(context, "eps", "convention", "metrics", "n90", *options.SAMPLING)
    origins = [options.add_batch_size(values, checkpoint, origin) for origin in origins]
    with output.progress(quiet) as start, executors.connect(jobs, dask) as executor:
        losses_or_loss = list(loaded) if len(loaded) > 1 else loaded[0]
        dataset = measures.count(checkpoint, losses_or_loss, executor=executor, progress=start, **values)
    named_origins = zip([one.name for one in loaded], origins, strict=True)
    if out is not None and out.suffix == ".tex":
        writing.write(out, report.latex(dataset, file.name).encode() + b"\n")
    else:
        output.save(dataset, out)
    for single, origin in zip(dataset.values() if len(loaded) > 1 else [dataset], origins, strict=True):
        single.attrs["loss_origin"] = origin  # for the table
    output.print_result(
        context,
        lambda: [report.table(dataset)],
        lambda: reports.document("count", dataset),
        about=[f"{file} ({checkpoint.format}): loss {name}, {origin}" for name, origin in named_origins],
        notes=[*checkpoint.notes, *output.read_notes(dataset)],
        wrote=out,
    )
