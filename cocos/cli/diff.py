"""`cocos diff`."""

import contextlib
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import Command, app
from cocos.cli.options import option


@app.command(cls=Command, epilog="Example: cocos diff before.pt after.pt --loss ntxent -p temperature=0.07")
def diff(
    context: typer.Context,
    first: Annotated[Path, typer.Argument(metavar="FILE", help="Checkpoint, file of embeddings, or result (.nc).")],
    second: Annotated[Path, typer.Argument(metavar="OTHER", help="Another one of the same data.")],
    by: Annotated[
        str | None, option("Value that ranks the most changed queries.", default="MRR, else contributing")
    ] = None,
    changed: Annotated[int | None, option("Number of most changed queries to list per direction.", default="5")] = None,
    level: options.Level = None,
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
    batch_size: options.BatchSize = None,
    queries: Annotated[
        int | None,
        option("Compare this many queries against all candidates instead of batches.", panel=options.BATCHES),
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
    out: options.FigureOut = None,
    width: options.Width = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Compare two results, or two models on the same data, query by query."""
    parameters = options.read_parameters(param, quiet)
    names = distinct_names(first, second)
    output.check_output(out, first, second, data, suffixes=(*output.RESULTS, *output.FIGURES))
    stored = [path.suffix in (".nc", ".jsonl") and not path.is_dir() for path in (first, second)]
    if any(stored) and not all(stored):
        raise InputError(
            f"{second if stored[0] else first}: not a result like the other file; expected two of one type"
        )
    if any(stored) and (loss or param):
        raise InputError(f"--loss: {first} is a result with its own loss; pass the files of embeddings instead")
    compared = options.given(by=by, changed=changed, level=level, queries=queries)

    from cocos import measures, plots, reports, results
    from cocos.plots import saving
    from cocos.plots.diff import SIZE

    saving.inches(width)
    about, notes = [], []
    with output.progress(quiet) as start:
        if all(stored):
            dataset = measures.diff(results.open(first), results.open(second), names=names, **compared)
        else:
            opened = [options.open_with_loss(file, loss, parameters, data, model, dims) for file in (first, second)]
            for checkpoint, chosen, origin in opened:
                about.append(f"{checkpoint.path} ({checkpoint.format}): {chosen!r}, {origin}")
                notes += checkpoint.notes
            checkpoints, losses, _ = zip(*opened, strict=True)
            ranked = loss is None and all(checkpoint.format == "scores" for checkpoint in checkpoints)
            dataset = measures.diff(
                *checkpoints, None if ranked else losses, names=names, progress=start, **compared,
                **options.given(
                    eps=eps, batch_size=options.read_batch_size(batch_size), sample=sample, per_group=per_group,
                    copies=copies, same_group=same_group, seed=seed, dtype=dtype, split=split, device=device,
                ),
            )  # fmt: skip
    output.save(dataset, out, partial(saving.save_plot, plots.diff, dataset, size=SIZE, width=width))
    output.print_result(
        lambda: "\n\n".join(output.render(table, context) for table in reports.tables("diff", dataset)),
        lambda: reports.document("diff", dataset),
        as_json=json,
        quiet=quiet,
        about=about,
        notes=dict.fromkeys(notes),
        wrote=out,
    )


def distinct_names(first: Path, second: Path) -> tuple[str, str]:
    """Name two files by their stems, or by as many of their last folders as distinguish them."""
    with contextlib.suppress(OSError):
        if first.exists() and second.exists() and first.samefile(second):
            raise InputError(f"{first} and {second} are the same file; expected two different ones")
    parts = [path.resolve().with_suffix("").parts for path in (first, second)]
    for number in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-number:]) for each in parts]
        if names[0] != names[1]:
            return names[0], names[1]
    return first.name, second.name
