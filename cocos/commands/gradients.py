"""`cocos gradients`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from cocos.base.errors import InputError
from cocos.commands._answer import answer, checked, lines, opened, progress
from cocos.commands._options import (
    Batches,
    BatchOptions,
    File,
    LossName,
    Opening,
    Param,
    SameGroupRows,
    Width,
    named_values,
    split_parameters,
)
from cocos.commands._program import command


@command(
    "Look at a file",
    8,
    epilog="Example: cocos gradients embeddings.npz --loss ntxent --against triplet --against smoothap",
)
def gradients(
    file: File,
    sampling: BatchOptions,
    source: Opening,
    loss: LossName = None,
    against: Annotated[
        list[str] | None, Option(help="Another loss to compare with; repeatable. [triplet and smoothap]")
    ] = None,
    param: Param = None,
    disagree: Annotated[int, Option(help="Queries to list that the losses disagree on most.")] = 5,
    level: Annotated[float, Option(help="Level of the confidence intervals.")] = 0.95,
    batches: Batches = None,
    same_group: SameGroupRows = "ignore",  # type: ignore[assignment]
    out: Annotated[
        Path | None, Option(help="Write the Dataset (.nc), or draw the comparison (.png, .pdf, .svg), to this file.")
    ] = None,
    width: Width = None,
):
    """Compare the gradients of several losses at this checkpoint, query by query: do they agree?"""
    from cocos import losses, measures
    from cocos.reports import plot_kinds
    from cocos.reports.gradients import disagreeing

    figure = checked(out, file, source.data, figures=True)
    others = against or [name for name in ("triplet", "smoothap") if name != loss]
    names = [loss, *others]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--against {name}: it is named {names.count(name)} times, expected once")
    given = named_values(param)
    own, *rest = split_parameters(given, names) if against else [given, *({} for _ in others)]
    for name, values in zip(others, rest, strict=True):
        losses.load(name, values)
    frozen, chosen, origin = opened(file, loss, own, source)
    compared = [frozen.loss(name, values)[0] for name, values in zip(others, rest, strict=True)]
    with progress() as start:
        found = measures.gradients(
            frozen,
            chosen,
            compared,
            disagree=disagree,
            level=level,
            batches=batches,
            same_group=same_group,
            progress=start,
            **vars(sampling),
        )
    kind = plot_kinds.find("gradients")
    draw = (lambda path: kind.draw([found], {}, path, [{}], width=width)) if figure else None
    about = [f"{file} ({frozen.format}): {found.attrs['loss_repr']}, {origin}"]
    made = answer("gradients", found, out, draw=draw, about=about, notes=frozen.notes)
    listed = disagreeing(found)
    return replace(made, text=lambda: "\n\n".join([lines(made.text()), *([lines(listed)] if listed else [])]))
