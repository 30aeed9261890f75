"""`cocos audit`."""

from pathlib import Path
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import Command, app
from cocos.cli.options import option


@app.command(
    cls=Command, epilog="Example: cocos audit embeddings.npz --loss ntxent -p temperature=0.05 --out suspects.csv"
)
def audit(
    context: typer.Context,
    file: options.File,
    loss: options.Loss = None,
    param: options.Param = None,
    top: Annotated[int, option("Number of suspected pairs to print.", default=True)] = 10,
    rules: Annotated[
        list[str] | None, option("Rules that suspect a pair, repeatable.", default="all that the data permit")
    ] = None,
    filters: Annotated[
        list[str] | None,
        option(
            "Filter to test, with its thresholds, such as self=0,0.1; repeatable. Also relative_margin.",
            "--filter",
            default="guide, self, percent, factor",
            metavar="NAME=THRESHOLDS",
        ),
    ] = None,
    against: Annotated[
        list[str] | None, option("Rules that the filters are compared with, repeatable.", default="by data")
    ] = None,
    neighbours: Annotated[
        int | None, option("Nearest neighbours that the rule `neighbours` reads.", default="1")
    ] = None,
    direction: Annotated[str | None, option("Direction of retrieval, such as q2c.", default="all")] = None,
    batch_size: options.BatchSize = None,
    batches: options.NumberOfBatches = None,
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
        option("Write all suspected pairs (.csv, .jsonl) or the Dataset (.nc) to this file.", panel=options.OUTPUT),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """List likely false negatives, ranked by push, and test filters against them."""
    parameters = options.read_parameters(param, quiet)
    if top < 0:
        raise InputError(f"top: {top}, expected an integer of at least 0")
    thresholds = None if not filters else read_filters(filters)
    output.check_output(out, file, data, suffixes=(".nc", ".csv", ".jsonl"))
    sampling = options.given(
        batch_size=options.read_batch_size(batch_size), batches=batches, sample=sample,
        per_group=per_group, copies=copies, same_group=same_group, seed=seed, dtype=dtype, split=split, device=device,
    )  # fmt: skip

    from cocos import measures, reports
    from cocos.reports import suspects

    checkpoint, chosen, origin = options.open_with_loss(file, loss, parameters, data, model, dims)
    origin = options.add_batch_size(sampling, checkpoint, origin)
    with output.progress(quiet) as start:
        dataset = measures.audit(
            checkpoint, chosen, rules=options.read_names(rules), filters=thresholds,
            against=options.read_names(against), only=direction, progress=start,
            **options.given(neighbours=neighbours), **sampling,
        )  # fmt: skip
    items = checkpoint.items(split or "train")
    texts = items and items.texts(dataset.attrs["asks"])
    listed = {"texts": texts, "top": top}
    if out is not None and out.suffix != ".nc":
        suspects.write(out, dataset, texts)
    else:
        output.save(dataset, out)
    output.print_result(
        lambda: "\n\n".join(output.render(table, context) for table in reports.tables("audit", dataset, **listed)),
        lambda: reports.document("audit", dataset),
        as_json=json,
        quiet=quiet,
        about=[f"{file} ({checkpoint.format}): loss {dataset.attrs['loss']}, {origin}"],
        notes=[*checkpoint.notes, *output.read_notes(dataset)],
        wrote=out,
    )


def read_filters(texts: list[str]) -> dict[str, list[float]]:
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
