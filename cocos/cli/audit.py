"""`cocos audit`."""

from pathlib import Path
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import command
from cocos.cli.options import option

EXAMPLE = "Example: cocos audit embeddings.npz --loss ntxent -p temperature=0.05 --out suspects.csv"
RULES_HELP = "Rules that suspect a pair, repeatable."
FILTER_HELP = "Filter to test, with its thresholds, such as self=0,0.1; repeatable. Also relative_margin."
FILTERS = "guide, self, percent, factor"
AGAINST_HELP = "Rules that the filters are compared with, repeatable."
OUT_HELP = "Write all suspected pairs (.csv, .jsonl) or the Dataset (.nc) to this file."


@command(epilog=EXAMPLE)
def audit(
    context: typer.Context,
    file: options.File,
    loss: options.Loss = None,
    param: options.Param = None,
    top: Annotated[int, option("Number of suspected pairs to print.", "10")] = 10,
    rules: Annotated[list[str] | None, option(RULES_HELP, "all that the data permit")] = None,
    filters: Annotated[
        list[str] | None, option(FILTER_HELP, FILTERS, None, "--filter", metavar="NAME=THRESHOLDS")
    ] = None,
    against: Annotated[list[str] | None, option(AGAINST_HELP, "by data")] = None,
    neighbours: Annotated[int | None, option("Nearest neighbours that the rule `neighbours` reads.", "1")] = None,
    direction: Annotated[str | None, option("Direction of retrieval, such as q2c.", "all")] = None,
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
    device: options.Device = "auto",
    out: Annotated[Path | None, option(OUT_HELP, "", options.OUTPUT)] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """List likely false negatives, ranked by push, and test filters against them."""
    if top < 0:
        raise InputError(f"top: {top}, expected an integer of at least 0")
    thresholds = read_filters(filters or ())
    output.check_output(out, file, data, suffixes=(".nc", ".csv", ".jsonl"))

    from cocos import measures, reports
    from cocos.reports import suspects

    checkpoint, chosen, origin = options.open_with_loss(context, file)
    values = options.chosen(context, "neighbours", *options.SAMPLING)
    origin = options.add_batch_size(values, checkpoint, origin)
    with output.progress(quiet) as start:
        dataset = measures.audit(
            checkpoint,
            chosen,
            rules=options.read_names(rules),
            filters=thresholds or None,
            against=options.read_names(against),
            only=direction,
            progress=start,
            **values,
        )
    items = checkpoint.items(split or "train")
    texts = items and items.texts(dataset.attrs["asks"])
    if out is not None and out.suffix != ".nc":
        suspects.write(out, dataset, texts)
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


def read_filters(texts: "list[str] | tuple[str, ...]") -> dict[str, list[float]]:
    """Read filters with their thresholds, none for the usual ones."""
    filters: dict[str, list[float]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        if name.strip() in filters:
            raise InputError(f"--filter {', '.join(texts)}: {name.strip()} is given twice")
        try:
            filters[name.strip()] = [float(value) for value in values.split(",") if value.strip()]
        except ValueError:
            raise InputError(f"--filter {text!r}: expected NAME, or NAME=NUMBERS such as self=0,0.1") from None
    return filters
