"""`cocos temperature`."""

import functools
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from cocos.base.errors import InputError
from cocos.commands._answer import answer, checked, opened, progress
from cocos.commands._options import (
    MOST_DIGITS,
    Batches,
    CopiedRows,
    Device,
    Drawn,
    File,
    LossName,
    Opening,
    Param,
    PerGroup,
    Seed,
    Split,
    Width,
    named_values,
)
from cocos.commands._program import command


@dataclass(frozen=True)
class SeveralSizes:
    """How batches of several sizes are drawn and encoded."""

    sample: Drawn = None
    per_group: PerGroup = None
    copies: CopiedRows = None
    seed: Seed = 0
    device: Device = "auto"
    split: Split = "train"


@command(
    "Look at a file",
    7,
    epilog="Example: cocos temperature embeddings.npz --batch-size 32,128,512 --out temperature.png",
)
def temperature(
    file: File,
    sampling: SeveralSizes,
    source: Opening,
    loss: LossName = None,
    param: Param = None,
    batch_size: Annotated[
        list[str] | None,
        Option(
            help="Pairs or queries in a batch; repeatable, or numbers separated by commas; all is the whole set. "
            "[32, 128, 512 and 2048, as far as the set fills them]"
        ),
    ] = None,
    effective: Annotated[
        float | None, Option(help="Find the temperature with this effective number of negatives as well.")
    ] = None,
    clip: Annotated[float, Option(help="Largest scale that training allows: CLIP's is 100.")] = 100.0,
    batches: Batches = None,
    out: Annotated[
        Path | None, Option(help="Write the Dataset (.nc) or the figure (.png, .pdf, .svg) to this file.")
    ] = None,
    width: Width = None,
):
    """Find where a learned temperature, and SigLIP's bias, settle on frozen embeddings, for each batch size."""
    sizes = _sizes(batch_size)
    if width is not None and (out is None or out.suffix == ".nc"):
        raise InputError(f"--width {width}: there is no figure; name one with --out, like temperature.png")
    from cocos import measures, plots
    from cocos.base import ranges
    from cocos.counting import equilibrium
    from cocos.reports import saving

    figure = checked(out, file, source.data, figures=True)
    saving.inches(width)
    ranges.check(inspect.signature(measures.temperature), {"effective": effective, "clip": clip})
    frozen, chosen, origin = opened(file, loss, named_values(param), source)
    equilibrium.names(chosen)
    with progress() as start:
        options = {"effective": effective, "clip": clip, "batches": batches, "progress": start}
        found = measures.temperature(frozen, chosen, sizes, **options, **vars(sampling))
    draw = functools.partial(saving.save_plot, plots.temperature, found, size=(6.4, 4.4), width=width)
    about = [f"{file} ({frozen.format}): loss {found.attrs['loss']}, {origin}"]
    return answer("temperature", found, out, draw=draw if figure else None, about=about, notes=frozen.notes)


def _sizes(given: list[str] | None) -> list[int | str] | None:
    """Read batch sizes, one or several in each text."""
    parts = [part.strip() for text in given or () for part in text.split(",")]
    for part in parts:
        if not part or len(part) > MOST_DIGITS:
            raise InputError(f"--batch-size {part!r}: write it as numbers like 32,128, or all")
    return [int(part) if part.lstrip("-").isdecimal() else part for part in parts] or None
