"""`cocos diff`."""

import contextlib
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import command
from cocos.cli.options import option

FIRST_HELP = "Checkpoint, file of embeddings, or result (.nc)."
CHANGED_HELP = "Number of most changed queries to list per direction."


@command(epilog="Example: cocos diff before.pt after.pt --loss ntxent -p temperature=0.07")
def diff(
    context: typer.Context,
    first: Annotated[Path, typer.Argument(metavar="FILE", help=FIRST_HELP)],
    second: Annotated[Path, typer.Argument(metavar="OTHER", help="Another one of the same data.")],
    by: Annotated[str | None, option("Value that ranks the changed queries.", "MRR, else contributing")] = None,
    changed: Annotated[int | None, option(CHANGED_HELP, "5")] = None,
    level: options.Level = None,
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
    batch_size: options.BatchSize = None,
    queries: options.Queries = None,
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
    device: options.Device = "auto",
    out: options.FigureOut = None,
    width: options.Width = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Compare two results, or two models on the same data, query by query."""
    names = distinct_names(first, second)
    output.check_output(out, first, second, data, suffixes=(*output.RESULTS, *output.FIGURES))
    stored = [path.suffix in (".nc", ".jsonl") and not path.is_dir() for path in (first, second)]
    if any(stored) and not all(stored):
        wrong = second if stored[0] else first
        raise InputError(f"{wrong}: not a result like the other file; expected two of one type")
    if any(stored) and (loss or param):
        raise InputError(f"--loss: {first} is a result with its own loss; pass the files of embeddings instead")
    compared = options.chosen(context, "by", "changed", "level", "queries")

    from cocos import measures, results
    from cocos.plots import saving
    from cocos.reports import drawing

    saving.inches(width)
    about, notes = [], []
    with output.progress(quiet) as start:
        if all(stored):
            dataset = measures.diff(results.open(first), results.open(second), names=names, **compared)
        else:
            opened = [options.open_with_loss(context, file) for file in (first, second)]
            for checkpoint, chosen, origin in opened:
                about.append(f"{checkpoint.path} ({checkpoint.format}): {chosen!r}, {origin}")
                notes += checkpoint.notes
            checkpoints, losses, _ = zip(*opened, strict=True)
            ranked = loss is None and all(checkpoint.format == "scores" for checkpoint in checkpoints)
            dataset = measures.diff(
                *checkpoints,
                None if ranked else losses,
                names=names,
                progress=start,
                **compared,
                **options.chosen(context, "eps", *options.SAMPLING),
            )
    draw = partial(drawing.draw, "diff", [dataset], width=width)
    output.show(context, dataset, about=about, notes=notes, draw=draw)


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
