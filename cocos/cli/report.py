"""`cocos report`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option

FILES_HELP = (
    "Checkpoint or file of embeddings, or two of them; folders of runs, monitor stores (.jsonl) or results (.nc)."
)


@app.command(epilog="Example: cocos report embeddings.npz --loss ntxent --out report.html")
def report(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=FILES_HELP)],
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
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
    out: Annotated[Path, option("Write the page to this file (.html).", "report.html", options.OUTPUT)] = Path(
        "report.html"
    ),
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Write a self-contained HTML report."""
    parameters = options.read_parameters(context)

    from cocos import measures, results
    from cocos.base import writing
    from cocos.checkpoints import runs as training_runs
    from cocos.reports import page

    page.writable(out)
    writing.apart(out, *files, data)
    counted = {"eps": 0.01, "batch_size": 128, "seed": 0, "split": "train"}
    counted |= options.chosen(context, "eps", *options.SAMPLING)
    sources, losses = [], []
    with output.progress(quiet) as start:
        for path in files:
            chosen = None
            if path.suffix == ".jsonl":
                source = measures.run(path)
            elif path.suffix == ".nc" and not path.is_dir():
                source = results.open(path)
            elif path.is_dir() and training_runs.is_run(path):
                opener = partial(options.open_source, context)
                source = measures.run(path, loss, parameters=parameters, opener=opener, progress=start, **counted)
            else:
                source, chosen, _ = options.open_with_loss(context, path)
                if batch_size is None and len(files) == 1:
                    counted["batch_size"] = source.settings.batch_size or counted["batch_size"]
            sources.append(source)
            losses.append(chosen)
        results_only = all(each is None for each in losses)
        html = page.report(
            *sources,
            loss=losses,
            start=start,
            typed=partial(output.complete, context=context),
            files=files if results_only else [],
            **counted,
        )
    path = html.save(out)
    output.print_result(context, lambda: [html.verdict], html.document, notes=html.missing, wrote=path)
