"""`cocos query`."""

import functools
from pathlib import Path
from typing import Annotated

from typer import Option

from cocos.commands._answer import Answer, notes_of, opened, picture_asked, saved
from cocos.commands._options import (
    AsJson,
    BatchSize,
    Data,
    Device,
    Drawn,
    Dtype,
    Eps,
    File,
    LossName,
    Model,
    Param,
    PerGroup,
    Quiet,
    SameGroup,
    SameGroupRows,
    Seed,
    Split,
    Trust,
    Width,
    named_values,
    row_count,
)
from cocos.commands._program import command
from cocos.commands._progress import progress

__all__ = ["query"]


@command("Look at a file", 5)
def query(
    file: File,
    row: Annotated[int, Option(help="Row of the query among the embeddings of its side.")],
    direction: Annotated[str | None, Option(help="Direction of retrieval, like q2c. [the first one]")] = None,
    loss: LossName = None,
    param: Param = None,
    eps: Eps = 0.01,
    batch_size: BatchSize = "128",
    sample: Drawn = None,
    per_group: PerGroup = None,
    same_group: SameGroupRows = SameGroup.ignore,
    seed: Seed = 0,
    top: Annotated[int, Option(help="Number of candidates to list.")] = 20,
    dtype: Annotated[Dtype, Option(help="Dtype of the computation.")] = Dtype.float64,
    device: Device = "auto",
    split: Split = "train",
    data: Data = None,
    model: Model = None,
    trust: Trust = False,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, Option(help="Draw the shares (.png, .pdf, .svg) or write the Dataset (.nc) to this file.")
    ] = None,
    width: Width = None,
    quiet: Quiet = False,
):
    """List the candidates that make up the gradient of one query, in the first batch that contains it."""
    parameters = named_values(param)
    from cocos import measures, plots, results
    from cocos.plots.contributors import size
    from cocos.reports import saving, table
    from cocos.reports.plot_kinds import find

    picture = out is not None and picture_asked(out, file, data)
    frozen, chosen, origin = opened(file, loss, parameters, None if picture else out, data, model, trust)
    with progress(quiet) as start:
        found = measures.contributors(
            frozen,
            chosen,
            eps,
            row=row,
            direction=direction,
            top=top,
            batch_size=row_count(batch_size),
            sample=sample,
            per_group=per_group,
            same_group=same_group,
            seed=seed,
            dtype=dtype,
            split=split,
            device=device,
            progress=start,
        )
    words = find("contributors").row_texts(found, frozen.items(split))
    labels, said = words.get("labels"), words.get("query")
    plot = functools.partial(plots.contributors, **words)
    draw = functools.partial(saving.save_plot, plot, found, size=size(found), width=width)
    return Answer(
        text=lambda: table("contributors", found, labels=labels, query=said),
        document=lambda: results.contributed(found, labels, said),
        about=[f"{file} ({frozen.format}): loss {found.attrs['loss']}, {origin}"],
        notes=[*frozen.notes, *notes_of(found)],
        wrote=saved(found, out, draw if picture else None),
    )
