"""`cocos decompose`."""

from cocos.commands._answer import answer, checked, opened, progress
from cocos.commands._options import (
    Batches,
    BatchOptions,
    Dtype,
    File,
    Gradient,
    Opening,
    Out,
    Precision,
    SameGroup,
    SameGroupRows,
)
from cocos.commands._program import command


@command("Look at a file", 3)
def decompose(
    file: File,
    gradient: Gradient,
    sampling: BatchOptions,
    source: Opening,
    batches: Batches = None,
    same_group: SameGroupRows = SameGroup.ignore,
    dtype: Precision = Dtype.float64,
    out: Out = None,
):
    """Decompose each query's gradient: the pull, the push, the part that cancels, the part that normalising removes."""
    from cocos import measures

    checked(out, file, source.data)
    frozen, loss, origin = opened(file, gradient.loss, gradient.parameters, source)
    options = {"batches": batches, "same_group": same_group, "dtype": dtype}
    with progress() as start:
        found = measures.decomposition(frozen, loss, gradient.eps, **vars(sampling), **options, progress=start)
    about = [f"{file} ({frozen.format}): loss {found.attrs['loss']}, {origin}"]
    return answer("decomposition", found, out, about=about, notes=frozen.notes)
