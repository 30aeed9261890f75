"""`cocos count`."""

import functools
import json
from typing import Annotated

from typer import Option

from cocos import processes
from cocos.commands._answer import Answer, notes_of, opened, saved
from cocos.commands._options import (
    AsJson,
    Batches,
    BatchSize,
    Convention,
    Data,
    Device,
    Drawn,
    Dtype,
    Eps,
    File,
    Format,
    LossName,
    Model,
    Out,
    Param,
    PerGroup,
    Quiet,
    SameGroup,
    Seed,
    Split,
    Trust,
    named_values,
    row_count,
)
from cocos.commands._program import command
from cocos.commands._progress import progress
from cocos.errors import InputError

__all__ = ["count"]


@command(
    "Look at a file",
    2,
    epilog="Example: cocos count embeddings.npz --loss ntxent -p temperature=0.07 --batch-size 256 --out counts.nc",
    shared=True,
)
def count(
    file: File,
    loss: LossName = None,
    param: Param = None,
    eps: Eps = 0.01,
    batch_size: BatchSize = "128",
    batches: Batches = None,
    sample: Drawn = None,
    per_group: PerGroup = None,
    same_group: Annotated[
        SameGroup | None,
        Option(help="How to treat other rows of a query's group in a batch drawn by pairs. [as the convention]"),
    ] = None,
    seed: Seed = 0,
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
    device: Device = "auto",
    split: Split = "train",
    data: Data = None,
    model: Model = None,
    trust: Trust = False,
    format: Annotated[Format, Option(help="Output: table, latex (the published columns) or json.")] = Format.table,
    as_json: AsJson = False,
    out: Out = None,
    quiet: Quiet = False,
):
    """Count the negatives that contribute to each query's gradient."""  # noqa: DOC501
    parameters = named_values(param)
    if as_json and format == "latex":
        raise InputError("--json and --format latex: choose one of them")
    from cocos import measures, results
    from cocos.reports import table
    from cocos.reports.latex import latex

    processes.join(device)
    first = processes.first()
    frozen, chosen, origin = opened(file, loss, parameters, out if first else None, data, model, trust)
    with progress(quiet or not first) as start:
        counted = measures.count(
            frozen,
            chosen,
            eps,
            batches=batches,
            batch_size=row_count(batch_size),
            sample=sample,
            per_group=per_group,
            same_group=same_group,
            seed=seed,
            convention=convention,
            dtype=dtype,
            metrics=metrics,
            n90=n90,
            split=split,
            device=device,
            progress=start,
        )
    processes.close()
    if not first:
        return None
    document = functools.partial(results.summary, counted)
    shown = {
        "table": lambda: table("count", counted),
        "latex": lambda: latex(counted, file.name),
        "json": lambda: json.dumps(document(), allow_nan=False),
    }
    return Answer(
        text=shown[format],
        document=document,
        about=[f"{file} ({frozen.format}): loss {counted.attrs['loss']}, {origin}"],
        notes=[*frozen.notes, *notes_of(counted)],
        wrote=saved(counted, out),
    )
