"""`cocos count`."""

import json
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from typer import Option

from cocos.base import processes
from cocos.base.errors import InputError
from cocos.commands._answer import answer, checked, opened, progress
from cocos.commands._options import AsJson, Batches, BatchOptions, Dtype, File, Gradients, Opening, Out, SameGroup
from cocos.commands._program import command

Convention = StrEnum("Convention", ["standard", "ecir2022"])
Format = StrEnum("Format", ["table", "latex", "json"])


@command(
    "Look at a file",
    2,
    epilog="Example: cocos count embeddings.npz --loss ntxent -p temperature=0.07 --batch-size 256 --out counts.nc",
    shared=True,
)
def count(
    file: File,
    gradient: Gradients,
    sampling: BatchOptions,
    source: Opening,
    batches: Batches = None,
    same_group: Annotated[
        SameGroup | None,
        Option(help="How to treat other rows of a query's group in a batch drawn by pairs. [as the convention]"),
    ] = None,
    convention: Annotated[
        Convention, Option(help="Rules of counting; ecir2022 repeats the published tables, faults included.")
    ] = Convention.standard,
    dtype: Annotated[
        Dtype | None,
        Option(help="Dtype of the scores. [float64; larger batches: float32, close calls decided in float64]"),
    ] = None,
    metrics: Annotated[bool, Option("--metrics", help="Add retrieval metrics of the whole set.")] = False,
    n90: Annotated[
        bool, Option("--n90", help="Add the number of negatives that carry 90 % of the push; sorts all scores.")
    ] = False,
    explain: Annotated[
        bool, Option("--explain", help="Define every row of the table, and add the health of the embeddings.")
    ] = False,
    format: Annotated[Format, Option(help="Output: table, latex (the published columns) or json.")] = Format.table,
    as_json: AsJson = False,
    out: Out = None,
):
    """Count the negatives that contribute to each query's gradient."""
    if as_json and format == "latex":
        raise InputError("--json and --format latex: choose one of them")
    from cocos import losses, measures
    from cocos.reports import count as report
    from cocos.reports.latex import latex

    processes.join(sampling.device)
    speaking = processes.first()
    checked(out if speaking else None, file, source.data)
    (name, own), *others = zip(gradient.names, gradient.by_loss, strict=True)
    for each, given in others:
        losses.load(each, given)
    frozen, *first = opened(file, name, own, source)
    asked = [tuple(first), *(frozen.loss(each, given) for each, given in others)]
    several = [loss for loss, _ in asked]
    with progress() as start:
        counted = measures.count(
            frozen,
            several if others else several[0],
            gradient.eps,
            **vars(sampling),
            batches=batches,
            same_group=same_group,
            convention=convention,
            dtype=dtype,
            metrics=metrics,
            n90=n90,
            progress=start,
        )
    processes.close()
    if not speaking:
        return None
    about = [f"{file} ({frozen.format}): loss {losses.name_of(loss)}, {origin}" for loss, origin in asked]
    made = answer("count", counted, out, about=about, notes=frozen.notes)
    shown = {
        "table": lambda: report.table(counted, explain=explain),
        "latex": lambda: latex(counted, file.name),
        "json": lambda: json.dumps(made.document(), allow_nan=False),
    }
    return replace(made, text=shown[format])
