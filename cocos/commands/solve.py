"""`cocos solve`."""

import inspect
from typing import Annotated

from typer import Option

from cocos.commands._answer import answer, checked, opened, progress
from cocos.commands._options import Batches, BatchOptions, File, LossName, Opening, Out, Param, named_values
from cocos.commands._program import command


@command(
    "Look at a file",
    6,
    epilog="Example: cocos solve embeddings.npz --loss ntxent --effective 20 --batches 20",
)
def solve(
    file: File,
    sampling: BatchOptions,
    source: Opening,
    effective: Annotated[
        float | None,
        Option(help="Wanted effective number of negatives, mean over the queries. [an eighth of those of a batch]"),
    ] = None,
    loss: LossName = None,
    param: Param = None,
    parameter: Annotated[
        str | None, Option(help="Parameter to solve for. [the one that sets the sharpness: temperature, scale, margin]")
    ] = None,
    batches: Batches = None,
    out: Out = None,
):
    """Find the temperature, scale or margin that gives a wanted effective number of negatives."""
    from cocos import measures
    from cocos.base import ranges
    from cocos.counting import sharpness

    checked(out, file, source.data)
    ranges.check(inspect.signature(measures.solve), {"effective": effective})
    frozen, chosen, origin = opened(file, loss, named_values(param), source)
    sharpness.parameter_of(chosen, parameter)
    with progress() as start:
        options = {"effective": effective, "parameter": parameter, "batches": batches, "progress": start}
        found = measures.solve(frozen, chosen, **options, **vars(sampling))
    about = [f"{file} ({frozen.format}): loss {found.attrs['loss']}, {origin}"]
    return answer("solve", found, out, about=about, notes=frozen.notes)
