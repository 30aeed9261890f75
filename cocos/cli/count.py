"""`cocos count`."""

from pathlib import Path
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import Command, app
from cocos.cli.options import option


@app.command(
    cls=Command,
    epilog="Example: cocos count embeddings.npz --loss ntxent -p temperature=0.07 --batch-size 256 --out counts.nc",
)
def count(
    context: typer.Context,
    file: options.File,
    loss: options.Losses = None,
    param: options.Param = None,
    eps: options.Eps = None,
    convention: Annotated[
        options.Convention | None,
        option(
            "Counting convention. `ecir2022` reproduces the published tables, including their bugs.",
            default="standard",
            panel=options.LOSS,
        ),
    ] = None,
    metrics: Annotated[bool, option("Add retrieval metrics of the whole set.", "--metrics")] = False,
    n90: Annotated[bool, option("Add the number of negatives with 90 % of the push.", "--n90")] = False,
    batch_size: options.BatchSize = None,
    batches: options.Batches = None,
    queries: Annotated[
        int | None, option("Count this many queries against all candidates instead of batches.", panel=options.BATCHES)
    ] = None,
    sample: options.Sampling = None,
    per_group: options.PerGroup = None,
    copies: options.RepeatedCandidates = None,
    same_group: options.GroupRows = None,
    seed: options.Seed = None,
    dtype: options.Precision = None,
    data: options.Data = None,
    model: options.Model = None,
    dims: options.Dims = None,
    split: options.Split = None,
    device: options.Device = "auto",
    out: Annotated[
        Path | None,
        option(
            "Write the Dataset (.nc), or the published columns in LaTeX (.tex), to this file.", panel=options.OUTPUT
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Count the negatives that contribute to the gradient of each query."""
    names = loss or [None]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--loss {name}: given {names.count(name)} times, expected once")
    by_loss = options.split_parameters(options.read_parameters(param, quiet), names)
    output.check_output(out, file, data, suffixes=(".nc", ".tex"))
    sampling = options.given(
        batch_size=options.read_batch_size(batch_size), batches=options.read_batches(batches), sample=sample,
        per_group=per_group, copies=copies, same_group=same_group, seed=seed, dtype=dtype, split=split, device=device,
    )  # fmt: skip

    from cocos import losses, measures, reports
    from cocos.reports import count as report

    for name, parameters in zip(names, by_loss, strict=True):
        if name is not None:
            losses.load(name, parameters)  # refuse a wrong loss before the file is opened
    checkpoint = options.open_file(file, data, model, dims)
    chosen = [checkpoint.loss(name, parameters) for name, parameters in zip(names, by_loss, strict=True)]
    if queries is None:
        chosen = [(each, options.add_batch_size(sampling, checkpoint, origin)) for each, origin in chosen]
    every, origins = [each for each, _ in chosen], [origin for _, origin in chosen]
    with output.progress(quiet) as start:
        dataset = measures.count(
            checkpoint, every if len(every) > 1 else every[0], metrics=metrics, n90=n90, progress=start,
            **options.given(eps=eps, convention=convention, queries=queries), **sampling,
        )  # fmt: skip
    if out is not None and out.suffix == ".tex":
        from cocos.base import writing

        writing.write(out, report.latex(dataset, file.name).encode() + b"\n")
    else:
        output.save(dataset, out)
    output.print_result(
        lambda: output.render(report.table(report.with_origins(dataset, origins)), context),
        lambda: reports.document("count", dataset),
        as_json=json,
        quiet=quiet,
        about=[f"{file} ({checkpoint.format}): loss {losses.name_of(each)}, {origin}" for each, origin in chosen],
        notes=[*checkpoint.notes, *output.read_notes(dataset)],
        wrote=out,
    )
