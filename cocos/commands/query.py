"""`cocos query`."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from cocos.commands._answer import answer, checked, opened, progress
from cocos.commands._options import (
    BatchOptions,
    Dtype,
    File,
    Gradient,
    Opening,
    Precision,
    SameGroup,
    SameGroupRows,
    Width,
)
from cocos.commands._program import command


@command("Look at a file", 5)
def query(
    file: File,
    row: Annotated[int, Option(help="Row of the query among the embeddings of its side.")],
    gradient: Gradient,
    sampling: BatchOptions,
    source: Opening,
    direction: Annotated[str | None, Option(help="Direction of retrieval, like q2c. [the first one]")] = None,
    same_group: SameGroupRows = SameGroup.ignore,
    top: Annotated[int, Option(help="Number of candidates to list.")] = 20,
    dtype: Precision = Dtype.float64,
    out: Annotated[
        Path | None, Option(help="Draw the shares (.png, .pdf, .svg) or write the Dataset (.nc) to this file.")
    ] = None,
    width: Width = None,
):
    """List the candidates that make up the gradient of one query, in the first batch that contains it."""
    from cocos import measures, plots
    from cocos.measures.contributors import document
    from cocos.plots.contributors import size
    from cocos.reports import saving, table
    from cocos.reports.plot_kinds import find

    figure = checked(out, file, source.data, figures=True)
    frozen, loss, origin = opened(file, gradient.loss, gradient.parameters, source)
    options = {"row": row, "direction": direction, "top": top, "same_group": same_group, "dtype": dtype}
    with progress() as start:
        found = measures.contributors(frozen, loss, gradient.eps, **vars(sampling), **options, progress=start)
    words = find("contributors").row_texts(found, frozen.items(sampling.split))
    labels, said = words.get("labels"), words.get("query")
    plot = functools.partial(plots.contributors, **words)
    draw = functools.partial(saving.save_plot, plot, found, size=size(found), width=width)
    about = [f"{file} ({frozen.format}): loss {found.attrs['loss']}, {origin}"]
    made = answer("contributors", found, out, draw=draw if figure else None, about=about, notes=frozen.notes)
    return replace(
        made,
        text=lambda: table("contributors", found, labels=labels, query=said),
        document=lambda: document(found, labels, said),
    )
