"""`cocos decompose`."""

from cocos.commands._answer import Answer, checked, notes_of, opened, saved
from cocos.commands._options import (
    Batches,
    Dtype,
    File,
    Gradient,
    Out,
    Precision,
    SameGroup,
    SameGroupRows,
    Sampling,
    Source,
)
from cocos.commands._program import command
from cocos.commands._progress import progress

__all__ = ["decompose"]


@command("Look at a file", 3)
def decompose(
    file: File,
    gradient: Gradient,
    sampling: Sampling,
    source: Source,
    batches: Batches = None,
    same_group: SameGroupRows = SameGroup.ignore,
    dtype: Precision = Dtype.float64,
    out: Out = None,
):
    """Decompose each query's gradient: the pull, the push, the part that cancels, the part that normalising removes."""
    from cocos import measures
    from cocos.reports import table

    checked(out, file, source.data)
    frozen, loss, origin = opened(file, gradient.loss, gradient.parameters, source)
    options = {"batches": batches, "same_group": same_group, "dtype": dtype}
    with progress() as start:
        found = measures.decomposition(frozen, loss, gradient.eps, **vars(sampling), **options, progress=start)
    return Answer(
        text=lambda: table("decomposition", found),
        document=lambda: measures.document("decomposition", found),
        about=[f"{file} ({frozen.format}): loss {found.attrs['loss']}, {origin}"],
        notes=[*frozen.notes, *notes_of(found)],
        wrote=saved(found, out),
    )
