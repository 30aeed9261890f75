"""`cocos diff`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cocos.commands._answer import Answer, checked, lines, notes_of, opened, progress, saved
from cocos.commands._options import BatchOptions, Gradient, Opening, Out, SameGroup
from cocos.commands._program import command
from cocos.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

    from cocos.checkpoints import Checkpoint

# Suffix of a result of cocos.
RESULT_SUFFIX = ".nc"


def _results(files: tuple[Path, Path], gradient: Gradient) -> "list[xr.Dataset]":
    """Two results.

    Raises:
        InputError: one is none, or a loss is given, which a result already has.
    """
    from cocos import results

    other = next((each for each in files if each.suffix != RESULT_SUFFIX), None)
    if other is not None:
        raise InputError(f"{other} is no result (.nc) of cocos as the other file is; give two of the same kind")
    if gradient.loss or gradient.param:
        raise InputError(f"--loss: {files[0]} is a result, whose loss is fixed; give the files of embeddings instead")
    return [results.open(each) for each in files]


def _named(files: tuple[Path, Path]) -> tuple[str, str]:
    """Names of two files: their stems, or as many of their last folders as tell them apart."""
    first, second = (each.resolve().with_suffix("") for each in files)
    for number in range(1, max(len(first.parts), len(second.parts)) + 1):
        names = ["/".join(each.parts[-number:]) for each in (first, second)]
        if names[0] != names[1]:
            return names[0], names[1]
    return files[0].name, files[1].name


@command("Look at a file", 6)
def diff(
    first: Annotated[Path, Argument(help="A result (.nc), a file of embeddings, or a checkpoint.", show_default=False)],
    second: Annotated[Path, Argument(help="Another one of the same data.", show_default=False)],
    gradient: Gradient,
    sampling: BatchOptions,
    source: Opening,
    same_group: Annotated[
        SameGroup | None, Option(help="How to treat other rows of a query's group in a batch drawn by pairs. [ignore]")
    ] = None,
    by: Annotated[
        str | None, Option(help="Value by which the queries that changed most are chosen. [MRR, or contributing]")
    ] = None,
    changed: Annotated[int, Option(help="Number of the queries that changed most to list, of each direction.")] = 5,
    top: Annotated[int, Option(help="Number of candidates to list for each of them.")] = 3,
    level: Annotated[float, Option(help="Level of the confidence intervals.")] = 0.95,
    out: Out = None,
):
    """Compare two results, or two models on the same data, query by query: what changed, and who pushes now."""  # noqa: DOC501
    from cocos import measures
    from cocos.measures.diff import document
    from cocos.reports.diff import tables

    files = (first, second)
    try:
        same = first.exists() and second.exists() and first.samefile(second)
    except OSError:
        same = False
    if same:
        raise InputError(f"{first} and {second} are the same file: no query can differ; name two")
    checked(out, first, second, source.data)
    options = {"names": _named(files), "by": by, "changed": changed, "top": top, "level": level}
    about, notes = [], []
    if RESULT_SUFFIX in {each.suffix for each in files}:
        found = measures.diff(*_results(files, gradient), **options)
    else:
        frozen: list[Checkpoint] = []
        used = []
        for file in files:
            one, loss, origin = opened(file, gradient.loss, gradient.parameters, source)
            frozen.append(one)
            used.append(loss)
            about.append(f"{file} ({one.format}): {loss!r}, {origin}")
            notes += one.notes
        with progress() as start:
            found = measures.diff(*frozen, tuple(used), gradient.eps, **vars(sampling), same_group=same_group,
                                  progress=start, **options)  # fmt: skip
    return Answer(
        text=lambda: "\n\n".join(lines(each) for each in tables(found)),
        document=lambda: document(found),
        about=about,
        notes=dict.fromkeys([*notes, *([] if about else notes_of(found))]),
        wrote=saved(found, out),
    )
