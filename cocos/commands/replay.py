"""`cocos replay`."""

from pathlib import Path
from typing import Annotated

from typer import Option

from cocos.commands._answer import answer, checked, opened, progress
from cocos.commands._options import (
    Batches,
    BatchOptions,
    Eps,
    File,
    LossName,
    Opening,
    Param,
    SameGroup,
    Width,
    named_values,
)
from cocos.commands._program import command


@command(
    "Look at a file",
    7,
    epilog="Example: cocos replay embeddings.npz --loss ntxent --what temperature=0.02,0.05 --what top_k=1,16 "
    "--what batch_size=64,256 --what loss=triplet",
)
def replay(
    file: File,
    sampling: BatchOptions,
    source: Opening,
    what: Annotated[
        list[str] | None,
        Option(
            help="What to change, NAME=VALUE,VALUE; repeatable. NAME is a parameter of the loss (temperature, margin, "
            "...), loss, batch_size, eps, or a mining rule: top_k, random_k, skip_k, semi_hard. "
            "[half and twice the sharpness and the batch size, mining rules, another loss]"
        ),
    ] = None,
    loss: LossName = None,
    param: Param = None,
    eps: Eps = 0.01,
    by: Annotated[
        str,
        Option(help="Value whose change is shown: contributing, idle, relative, effective, push or hardest_share."),
    ] = "contributing",
    level: Annotated[float, Option(help="Level of the confidence intervals.")] = 0.95,
    batches: Batches = None,
    same_group: Annotated[
        SameGroup | None, Option(help="How to treat other rows of a query's group in a batch drawn by pairs. [ignore]")
    ] = None,
    out: Annotated[
        Path | None, Option(help="Write the Dataset (.nc), or draw the changes (.png, .pdf, .svg), to this file.")
    ] = None,
    width: Width = None,
):
    """Replay the same batches with another temperature, margin, batch size, mining rule or loss: a what-if."""
    from cocos import measures
    from cocos.engine import settings
    from cocos.reports import plot_kinds

    figure = checked(out, file, source.data, figures=True)
    asked = settings.read(what) if what else None
    frozen, chosen, origin = opened(file, loss, named_values(param), source)
    with progress() as start:
        found = measures.replay(
            frozen,
            chosen,
            asked,
            eps=eps,
            by=by,
            level=level,
            batches=batches,
            same_group=same_group,
            progress=start,
            **vars(sampling),
        )
    kind = plot_kinds.find("replay")
    draw = (lambda path: kind.draw([found], {}, path, [{}], width=width)) if figure else None
    about = [f"{file} ({frozen.format}): {found.attrs['loss_repr']}, {origin}"]
    return answer("replay", found, out, draw=draw, about=about, notes=frozen.notes)
