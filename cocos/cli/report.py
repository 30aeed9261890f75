"""`cocos report`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import cocos
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option

FILES_HELP = "Checkpoint or embeddings, or two of them; folders of runs, monitor stores (.jsonl) or results (.nc)."


@app.command(epilog="Example: cocos report embeddings.npz --loss ntxent --out report.html")
def report(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=FILES_HELP)],
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
    batch_size: options.BatchSize = None,
    batches: options.NumberOfBatches = None,
    data: options.Data = None,
    model: options.Model = None,
    split: options.Split = None,
    out: Annotated[Path, option("Write the page (.html).", "report.html", options.OUTPUT)] = Path("report.html"),
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Write a self-contained HTML report."""
    output.check_output(out, *files, data, suffixes=(".html",))
    values = {"eps": 0.01, "batch_size": 128, "seed": 0, "split": "train"}
    values |= options.chosen(context, "eps", *options.SAMPLING)
    opener = partial(options.open_source, context)
    sources, losses = [], []
    with output.progress(quiet) as start:
        for path in files:
            chosen = None
            if path.suffix == ".nc":
                source = cocos.results.open(path)
            elif path.suffix == ".jsonl" or cocos.checkpoints.runs.is_run(path):
                parameters = options.read_parameters(context)
                source = cocos.measures.run(path, loss, parameters=parameters, opener=opener, progress=start, **values)
            else:
                source, (chosen,), recorded, _ = options.open_with_losses(context, path)
                values |= recorded
            sources.append(source)
            losses.append(chosen)
        typed = partial(output.complete, context=context)
        named = [] if any(losses) else files
        html = cocos.report(*sources, out=out, loss=losses, start=start, typed=typed, files=named, **values)
    output.print_result(context, [html.verdict], html.document(), html.missing)
