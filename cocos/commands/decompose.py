"""`cocos decompose`."""

from typing import Annotated

from typer import Option

from cocos.commands._answer import Answer, notes_of, opened, saved
from cocos.commands._options import (
    AsJson,
    Batches,
    BatchSize,
    Data,
    Device,
    Drawn,
    Dtype,
    Eps,
    File,
    LossName,
    Model,
    Out,
    Param,
    PerGroup,
    Quiet,
    SameGroup,
    SameGroupRows,
    Seed,
    Split,
    Trust,
    named_values,
    row_count,
)
from cocos.commands._program import command
from cocos.commands._progress import progress

__all__ = ["decompose"]


@command("Look at a file", 3)
def decompose(
    file: File,
    loss: LossName = None,
    param: Param = None,
    eps: Eps = 0.01,
    batch_size: BatchSize = "128",
    batches: Batches = None,
    sample: Drawn = None,
    per_group: PerGroup = None,
    same_group: SameGroupRows = SameGroup.ignore,
    seed: Seed = 0,
    dtype: Annotated[Dtype, Option(help="Dtype of the computation.")] = Dtype.float64,
    device: Device = "auto",
    split: Split = "train",
    data: Data = None,
    model: Model = None,
    trust: Trust = False,
    as_json: AsJson = False,
    out: Out = None,
    quiet: Quiet = False,
):
    """Decompose each query's gradient: the pull, the push, the part that cancels, the part that normalising removes."""
    parameters = named_values(param)
    from cocos import measures, results
    from cocos.reports import table

    frozen, chosen, origin = opened(file, loss, parameters, out, data, model, trust)
    with progress(quiet) as start:
        found = measures.decomposition(
            frozen,
            chosen,
            eps,
            batches=batches,
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
    return Answer(
        text=lambda: table("decomposition", found),
        document=lambda: results.decomposed(found),
        about=[f"{file} ({frozen.format}): loss {found.attrs['loss']}, {origin}"],
        notes=[*frozen.notes, *notes_of(found)],
        wrote=saved(found, out),
    )
