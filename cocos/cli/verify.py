"""`cocos verify`."""

from pathlib import Path
from typing import Annotated

import typer

import cocos
from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import BATCHES, LOSS, option

SAME_AS_HELP = """Compare the gradients of two losses. Each is a name, your file.py:function of (query, candidate), or
LOSS@STRATEGY: @chunks=32, @ranks=2\\[,gather=detached|none]\\[,loss=global], @accumulate=4, @dtype=bfloat16,
@reduction=sum, @temperature=0.05."""


@app.command()
def verify(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="[FILE]", help="File or loss.", show_default="synthetic input")] = "",
    loss: Annotated[str | None, option("Loss to verify.", "all, or from the checkpoint", LOSS)] = None,
    param: options.Param = None,
    same_as: Annotated[tuple[str, str] | None, option(SAME_AS_HELP, "", LOSS, metavar="A B")] = None,
    batch_size: Annotated[int | None, option("Pairs or queries per batch.", "128; 64", BATCHES)] = None,
    batches: Annotated[int | None, option("Number of real batches to test.", "2", BATCHES)] = None,
    data: options.Data = None,
    model: options.Model = None,
    split: options.Split = None,
    out: Annotated[Path | None, option("Write the Dataset of one loss to this file (.nc).", "", options.OUTPUT)] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Check gradient weights against autograd, or compare two losses (--same-as). Exits with 1 on a difference."""
    typed = options.read_parameters(context)
    output.check_output(out, target, data)
    if target not in ("", "example") and not Path(target).exists() and not Path(target).suffix:
        target, loss = "", target  # cocos verify ntxent
    if same_as is not None and loss is not None:
        raise InputError(f"--loss {loss}: --same-as names both losses, expected no other")
    checkpoint = options.open_source(context, Path(target)) if target else None
    values = options.chosen(context, "batch_size", "batches", "split")
    if same_as is not None:
        with output.progress(quiet) as start:
            dataset = cocos.measures.same_gradient(*same_as, checkpoint, parameters=typed, progress=start, **values)
        output.show(context, dataset)
        raise typer.Exit(1 - dataset.attrs["same"])
    if checkpoint is None and values:
        flag = next(iter(values)).replace("_", "-")
        raise InputError(f"--{flag}: expected with a FILE; without one, losses are verified on synthetic input")
    names = [loss] if loss else cocos.losses.names()
    chosen = [checkpoint.loss(loss, typed)[0]] if checkpoint else [cocos.losses.load(name, typed) for name in names]
    if out is not None and len(chosen) > 1:
        raise InputError(f"--out {out}: contains one loss, expected --loss")
    with output.progress(quiet) as start:
        datasets = [cocos.measures.verify(one, checkpoint, progress=start, **values) for one in chosen]
    if out is not None:
        cocos.results.save(datasets[0], out)
    documents = [cocos.reports.document("verify", dataset) for dataset in datasets]
    output.print_result(context, cocos.reports.tables("verify", datasets), documents)
    if any(dataset.attrs["faults"] for dataset in datasets):
        raise typer.Exit(1)
