"""`cocos verify`."""

from pathlib import Path
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option

TARGET_HELP = "Checkpoint, file of embeddings, or loss."
AGAINST_HELP = "Loss that should be equal, given the parameters of the same name."
SAME_AS_HELP = (
    "Compare the gradients of two losses. Each is a name, your file.py:function of (query, candidate), or "
    "LOSS@STRATEGY: @chunks=32, @ranks=2\\[,gather=detached|none]\\[,loss=global], @accumulate=4, @dtype=bfloat16, "
    "@reduction=sum, @temperature=0.05."
)
OUT_HELP = "Write the Dataset of one loss to this file (.nc)."


@app.command()
def verify(
    context: typer.Context,
    target: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help=TARGET_HELP, show_default="synthetic input")
    ] = None,
    loss: Annotated[str | None, option("Loss to verify.", "all, or from the checkpoint", options.LOSS)] = None,
    param: options.Param = None,
    against: Annotated[str | None, option(AGAINST_HELP, "", options.LOSS)] = None,
    same_as: Annotated[tuple[str, str] | None, option(SAME_AS_HELP, "", options.LOSS, metavar="A B")] = None,
    batch_size: Annotated[int | None, option("Pairs or queries per batch.", "128; 64", options.BATCHES)] = None,
    batches: Annotated[int | None, option("Number of real batches to test.", "2", options.BATCHES)] = None,
    seed: options.Seed = None,
    data: options.Data = None,
    model: options.Model = None,
    dims: options.Dims = None,
    split: options.Split = None,
    device: options.Device = None,
    out: Annotated[Path | None, option(OUT_HELP, "", options.OUTPUT)] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Check gradient weights against autograd, or compare two losses (--same-as). Exits with 1 on a difference."""
    parameters = options.read_parameters(context)
    if target is not None and loss is None and target != "example" and not Path(target).exists():
        if same_as is None and (":" in target or not Path(target).suffix):
            target, loss = None, target  # cocos verify ntxent
    if same_as is not None and (loss is not None or against is not None):
        raise InputError("--same-as names both losses; leave out --loss and --against")
    if same_as is None and loss is None and target is None and (parameters or against):
        raise InputError("parameters or --against without a loss, expected --loss")
    output.check_output(out, target, data)

    from cocos import losses as catalogue
    from cocos import measures, reports

    checkpoint = None if target is None else options.open_source(context, Path(target))
    notes = [] if checkpoint is None else checkpoint.notes
    values = {"batch_size": 128 if same_as is None else 64, "batches": 2}
    values |= options.chosen(context, "batch_size", "batches", "seed", "split", "device")
    if same_as is not None:
        with output.progress(quiet) as start:
            dataset = measures.same_gradient(*same_as, checkpoint, parameters=parameters, progress=start, **values)
        output.show(context, dataset, notes=notes)
        raise typer.Exit(1 - dataset.attrs["same"])
    if checkpoint is not None:
        chosen = [checkpoint.loss(loss, parameters)[0]]
    else:
        chosen = [catalogue.load(loss, parameters)] if loss else [catalogue.load(name) for name in catalogue.names()]
    if out is not None and len(chosen) > 1:
        raise InputError(f"--out {out}: contains one loss, expected --loss")
    with output.progress(quiet) as start:
        datasets = [measures.verify(one, checkpoint, against=against, progress=start, **values) for one in chosen]
    output.save(datasets[0], out)
    output.print_result(
        context,
        lambda: reports.tables("verify", datasets),
        lambda: [reports.document("verify", dataset) for dataset in datasets],
        notes=notes,
        wrote=out,
    )
    if any(dataset.attrs["faults"] for dataset in datasets):
        raise typer.Exit(1)
