"""`cocos audit`."""

from pathlib import Path
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option

EXAMPLE = "Example: cocos audit embeddings.npz --loss ntxent -p temperature=0.05 --out suspects.csv"
FILTER_HELP = "Filter to test, with its thresholds, such as self=0,0.1; repeatable. Also relative_margin."
FILTERS = "guide, self, percent, factor"
OUT_HELP = "Write all suspected pairs (.csv) or the Dataset (.nc) to this file."


@app.command(epilog=EXAMPLE)
def audit(
    context: typer.Context,
    file: options.File,
    loss: options.Loss = None,
    param: options.Param = None,
    top: Annotated[int, option("Number of suspected pairs to print.", "10")] = 10,
    rules: Annotated[list[str] | None, option("Rules that suspect a pair, repeatable.", "all that apply")] = None,
    filters: Annotated[
        list[str] | None, option(FILTER_HELP, FILTERS, None, "--filter", metavar="NAME=THRESHOLDS")
    ] = None,
    batch_size: options.BatchSize = None,
    batches: options.NumberOfBatches = None,
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
    """List likely false negatives, ranked by push, and test filters against them."""
    if top < 0:
        raise InputError(f"top: {top}, expected an integer of at least 0")
    thresholds: dict[str, list[float]] = {}
    for text in filters or ():
        name, _, numbers = (part.strip() for part in text.partition("="))
        if name in thresholds:
            raise InputError(f"--filter {text!r}: {name} is given twice")
        thresholds[name] = [options.read_number(f"--filter {name}", number) for number in numbers.split(",") if number]
    output.check_output(out, file, data, suffixes=(".nc", ".csv"))

    from cocos import measures, reports
    from cocos.reports.layouts import write_suspects

    checkpoint, chosen, origin = options.open_with_loss(context, file)
    values = options.chosen(context, *options.SAMPLING)
    origin = options.add_batch_size(values, checkpoint, origin)
    names = options.read_names(rules)
    with output.progress(quiet) as start:
        dataset = measures.audit(checkpoint, chosen, rules=names, filters=thresholds or None, progress=start, **values)
    items = checkpoint.items(split or "train")
    texts = items and items.texts(dataset.attrs["asks"])
    if out is not None and out.suffix != ".nc":
        write_suspects(out, dataset, texts)
    else:
        output.save(dataset, out)
    output.print_result(
        context,
        lambda: reports.tables("audit", dataset, texts=texts, top=top),
        lambda: reports.document("audit", dataset),
        about=[f"{file} ({checkpoint.format}): loss {dataset.attrs['loss']}, {origin}"],
        notes=[*checkpoint.notes, *output.read_notes(dataset)],
        wrote=out,
    )
