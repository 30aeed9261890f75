"""`cocos count`."""

from pathlib import Path
from typing import Annotated

import typer

import cocos
from cocos.base import writing
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import LOSS, OUTPUT, option


@app.command(epilog="Example: cocos count embeddings.npz --loss ntxent -p temperature=0.07 --out counts.nc")
def count(
    context: typer.Context,
    file: options.File,
    loss: Annotated[list[str] | None, option("Loss, repeatable; see `cocos losses`.", "as recorded", LOSS)] = None,
    param: options.Param = None,
    eps: options.Eps = None,
    convention: options.Convention = "standard",
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
    out: Annotated[Path | None, option("Write the Dataset (.nc) or the published columns (.tex).", "", OUTPUT)] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Count the negatives that contribute to the gradient of each query."""
    output.check_output(out, file, data, suffixes=(".nc", ".tex"))
    checkpoint, losses, values, origins = options.open_with_losses(context, file)
    values |= options.chosen(context, "eps", "convention", "metrics", "n90")
    with output.progress(quiet) as start, cocos.measures.shared.executors.connect(jobs, dask) as executor:
        chosen = losses if len(losses) > 1 else losses[0]
        dataset = cocos.measures.count(checkpoint, chosen, executor=executor, progress=start, **values)
    for single, origin in zip(dataset.values() if len(losses) > 1 else [dataset], origins, strict=True):
        single.attrs["loss_origin"] = origin  # for the table
    if out is not None and out.suffix == ".tex":
        writing.write(out, cocos.reports.layouts.latex(dataset, file.name).encode() + b"\n")
    output.show(context, dataset)
