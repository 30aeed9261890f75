"""`cocos diff`."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cocos.base.errors import InputError
from cocos.commands._answer import Answer, checked, lines, opened, progress, saved
from cocos.commands._options import BatchOptions, Gradient, Opening, SameGroup, Width
from cocos.commands._program import command

if TYPE_CHECKING:
    import xarray as xr

# Suffixes of results of cocos, and of stores of a monitor.
RESULT_SUFFIXES = (".nc", ".jsonl")


def _read(file: Path, step: int | None, name: str) -> "xr.Dataset":
    """Read a result or a store, or the queries of one checkpoint of a run."""
    from cocos import measures, results
    from cocos.measures.diff import at_step, step_axis

    data = measures.run(file) if file.suffix == ".jsonl" else results.open(file)
    if step is None:
        return data
    if step_axis(data) is None:
        raise InputError(f"--step: {file} is of no run; leave it out")
    return at_step(data, step, name)


def _results(
    files: tuple[Path, Path], names: tuple[str, str], gradient: Gradient, step: int | None
) -> "list[xr.Dataset] | None":
    """Two results or stores; None for files of embeddings and checkpoints."""
    known = [each.suffix in RESULT_SUFFIXES and not each.is_dir() for each in files]
    if not any(known):
        return None
    if not all(known):
        other = files[known.index(False)]
        raise InputError(f"{other} is no result of cocos as the other file is; give two of the same kind")
    if gradient.loss or gradient.param:
        raise InputError(f"--loss: {files[0]} is a result, whose loss is fixed; give the files of embeddings instead")
    return [_read(file, step, name) for file, name in zip(files, names, strict=True)]


def _runs(
    files: tuple[Path, Path], gradient: Gradient, sampling: BatchOptions, source: Opening, start
) -> "list[xr.Dataset] | None":
    """Measure the checkpoints of two folders of runs; None where they are something else."""
    from cocos import measures
    from cocos.checkpoints import series

    if not all(each.is_dir() for each in files):
        return None
    found = [next(iter(series.files([each]).values())) for each in files]
    if all(len(members) == 1 and members[0].step is None for members in found):
        return None
    options = vars(sampling) | {"opener": source.open, "progress": start}
    return [
        measures.run(each, gradient.loss, gradient.eps, parameters=gradient.parameters, **options) for each in files
    ]


def _members(files: tuple[Path, Path], step: int | None) -> tuple[Path, Path]:
    """The checkpoints of two folders of runs at one step; the files themselves where no step is given."""
    from cocos.checkpoints import series

    if step is None:
        return files
    chosen = []
    for file in files:
        members = next(iter(series.files([file]).values())) if file.is_dir() else []
        known = {each.step: each.path for each in members if each.step is not None}
        if step not in known:
            there = f"checkpoints at the steps {', '.join(map(str, known))}" if known else "no steps"
            raise InputError(f"--step {step}: {file} has {there}")
        chosen.append(known[step])
    return chosen[0], chosen[1]


def _named(files: tuple[Path, Path]) -> tuple[str, str]:
    """Names of two files: their stems, or as many of their last folders as tell them apart."""
    first, second = (each.resolve().with_suffix("") for each in files)
    for number in range(1, max(len(first.parts), len(second.parts)) + 1):
        names = ["/".join(each.parts[-number:]) for each in (first, second)]
        if names[0] != names[1]:
            return names[0], names[1]
    return files[0].name, files[1].name


def _apart(files: tuple[Path, Path]) -> None:
    """Refuse the same file twice."""
    try:
        same = files[0].exists() and files[1].exists() and files[0].samefile(files[1])
    except OSError:
        same = False
    if same:
        raise InputError(f"{files[0]} and {files[1]} are the same file: no query can differ; name two")


@command(
    "Training runs",
    2,
    results=(
        "first",
        "second",
    ),
    epilog="Example: cocos diff before.pt after.pt --loss ntxent -p temperature=0.07",
)
def diff(
    first: Annotated[
        Path,
        Argument(
            help="Checkpoint, file of embeddings, result (.nc), folder of a run, or store of cocos.Monitor (.jsonl).",
            show_default=False,
        ),
    ],
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
    step: Annotated[
        int | None, Option(help="Of two runs: compare the queries of their checkpoints at this step. [all steps]")
    ] = None,
    out: Annotated[
        Path | None, Option(help="Write the Dataset (.nc), or draw the changes (.png, .pdf, .svg), to this file.")
    ] = None,
    width: Width = None,
):
    """Compare two results, or two models on the same data, query by query: what changed, and who pushes now."""
    from cocos import measures, plots
    from cocos.measures.diff import document
    from cocos.plots.diff import size
    from cocos.reports import saving
    from cocos.reports.diff import tables

    files = (first, second)
    _apart(files)
    figure = checked(out, first, second, source.data, figures=True)
    options = {"names": _named(files), "by": by, "changed": changed, "top": top, "level": level}
    about, notes = [], []
    with progress() as start:
        pair = _results(files, _named(files), gradient, step)
        if pair is None and step is None:
            pair = _runs(files, gradient, sampling, source, start)
        if pair is not None:
            found = measures.diff(*pair, **options)
        else:
            opened_files = [opened(each, gradient.loss, gradient.parameters, source) for each in _members(files, step)]
            for one, loss, origin in opened_files:
                about.append(f"{one.path} ({one.format}): {loss!r}, {origin}")
                notes += one.notes
            frozen, losses, _ = zip(*opened_files, strict=True)
            found = measures.diff(*frozen, losses, gradient.eps, **vars(sampling), same_group=same_group,
                                  progress=start, **options)  # fmt: skip
    draw = functools.partial(saving.save_plot, plots.diff, found, size=size(found), width=width)
    return Answer(
        text=lambda: "\n\n".join(lines(each) for each in tables(found)),
        document=lambda: document(found),
        about=about,
        notes=dict.fromkeys(notes),
        wrote=saved(found, out, draw if figure else None),
    )
