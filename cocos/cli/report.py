"""`cocos report`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cocos.cli import options, output
from cocos.cli.app import Command, app
from cocos.cli.options import option

if TYPE_CHECKING:
    from cocos.checkpoints import Checkpoint


@app.command(cls=Command, epilog="Example: cocos report embeddings.npz --loss ntxent --out report.html")
def report(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Checkpoint or file of embeddings, or two of them; folders of runs, monitor stores (.jsonl) or "
            "results (.nc).",
        ),
    ],
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
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
    out: Annotated[Path, option("Write the page to this file (.html).", default=True, panel=options.OUTPUT)] = Path(
        "report.html"
    ),
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Write a self-contained HTML report."""
    parameters = options.read_parameters(param, quiet)

    from cocos import measures, results
    from cocos.base import writing
    from cocos.checkpoints import series
    from cocos.reports import page

    page.writable(out)
    writing.apart(out, *files, data)
    own = {"eps": 0.01, "batch_size": 128, "seed": 0, "split": "train", "device": device} | options.given(
        eps=eps, batch_size=options.read_batch_size(batch_size), batches=options.read_batches(batches),
        queries=queries, sample=sample, per_group=per_group, copies=copies, same_group=same_group, seed=seed,
        dtype=dtype, split=split,
    )  # fmt: skip
    sources: list[Any] = []
    losses: list[Any] = []
    with output.progress(quiet) as start:
        for path in files:
            chosen = None
            source: Any
            if path.suffix == ".jsonl":
                source = measures.run(path)
            elif path.suffix == ".nc" and not path.is_dir():
                source = results.open(path)
            elif path.is_dir() and series.is_run(path):

                def opener(member: Path) -> "Checkpoint":
                    return options.open_file(member, data, model, dims)

                source = measures.run(path, loss, parameters=parameters, opener=opener, progress=start, **own)
            else:
                source, chosen, _ = options.open_with_loss(path, loss, parameters, data, model, dims)
                if batch_size is None and len(files) == 1:
                    own["batch_size"] = source.batch_size or own["batch_size"]
            sources.append(source)
            losses.append(chosen)
        results_only = all(each is None for each in losses)
        html = page.report(
            *sources, loss=losses, start=start, typed=partial(output.complete, context=context),
            files=files if results_only else [], **own,
        )  # fmt: skip
    path = html.save(out)
    output.print_result(lambda: html.verdict, html.document, as_json=json, quiet=quiet, notes=html.missing, wrote=path)
