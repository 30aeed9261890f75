"""`cocos plot`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cocos.commands._answer import Answer, checked, lines, notes_of, opened, saved
from cocos.commands._options import (
    AsJson,
    Batches,
    Drawn,
    Dtype,
    Param,
    PerGroup,
    SameGroup,
    Source,
    Width,
    named_values,
)
from cocos.commands._program import command
from cocos.commands._progress import progress
from cocos.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

    from cocos.checkpoints import Checkpoint
    from cocos.reports.plot_kinds import PlotKind

__all__ = ["plot"]

# Options of the command that a kind may take; every other one is written --set NAME=VALUE.
FLAGS = (
    *("loss", "eps", "batch_size", "batches", "sample", "per_group", "same_group"),
    *("queries", "direction", "seed", "dtype", "device", "split"),
)


def _names() -> str:
    """Names of all plots, without importing any."""
    shelf = Path(__file__).parent.parent / "plots"
    return ", ".join(sorted(path.stem for path in shelf.glob("[!_]*.py")))


def _spelled(name: str) -> str:
    """How an option is written on the command line."""
    return f"--{name.replace('_', '-')}" if name in FLAGS else f"--set {name}="


@dataclass(frozen=True)
class _Request:
    """The runs that are to be drawn, one for each file and loss, and how to open them.

    Args:
        kind: of plot.
        options: of the measure and the plot.
        default: the kind's own loss; None: without a loss it reads scores.
        runs: file and name of the loss; None stands for the file, or the loss, that the kind does without.
        parameters: of each loss, by its name.
        source: how to open a file.
    """

    kind: "PlotKind"
    options: dict
    default: str | None
    runs: list[tuple[Path | None, str | None]]
    parameters: dict
    source: Source

    @property
    def reads_files(self) -> bool:
        """Whether the kind reads embeddings, and not a loss alone."""
        return self.kind.reads == "embeddings"


@dataclass
class _Found:
    """What the runs gave: Datasets, lines and notes for stderr, and the last checkpoint."""

    datasets: "list[xr.Dataset]" = field(default_factory=list)
    about: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    checkpoint: "Checkpoint | None" = None


def _runs(
    chosen: "PlotKind", files: list[Path] | None, wanted: list[str | None]
) -> list[tuple[Path | None, str | None]]:
    """Every file with every loss.

    Raises:
        InputError: one is named twice, or the kind draws one at a time.
    """
    from cocos.reports import plot_kinds

    runs = [(file, name) for file in files or [None] for name in wanted]
    if len(set(runs)) < len(runs):
        raise InputError(f"{chosen.name}: a file or a loss is named twice")
    if len(runs) > 1 and not chosen.combines:
        several = ", ".join(each.name for each in plot_kinds.plot_kinds() if each.combines)
        raise InputError(f"{chosen.name}: it draws one loss of one file; these draw several: {several}")
    return runs


def _loss_asked(chosen: "PlotKind", files: list[Path] | None, wanted: list[str | None], parameters: dict) -> str | None:
    """The kind's own loss, after refusing files and parameters that the kind cannot use.

    Raises:
        InputError: naming what is missing or too much.
    """
    reads = chosen.reads == "embeddings"
    if reads != bool(files):
        what = "name a FILE" if reads else f"it is of a loss, not of a file like {files[0]}"
        raise InputError(f"{chosen.name}: {what}: {chosen.command}")
    default = chosen.options["loss"].default if "loss" in chosen.options else None
    if parameters and wanted == [None] and default is None:
        raise InputError(f"{chosen.name}: parameters, but no --loss; without one it reads cosines")
    return default


def _measured(request: _Request, start) -> _Found:
    """Measure every run; a file that several losses share is opened and encoded once."""
    from cocos import losses as shelf
    from cocos.reports import plot_kinds

    found, checkpoints = _Found(), {}
    for file, name in request.runs:
        parameters, default = request.parameters[name], request.default
        frozen, loss, origin = None, None, ""
        if not request.reads_files:
            loss = shelf.load(name or default, parameters)
        elif file in checkpoints:
            frozen = checkpoints[file]
            loss, origin = frozen.loss(name, parameters)
        else:
            frozen, loss, origin = opened(file, name, parameters, request.source)
            frozen = checkpoints[file] = plot_kinds.once(frozen)
        if name is None and default is None:
            loss = None
        found.datasets += request.kind.measured(frozen, loss, request.options, start)
        if request.reads_files:
            attrs = found.datasets[-1].attrs
            about = f"loss {attrs['loss']}, {origin}" if default else f"{attrs['metric'].replace('_', ' ')} scores"
            found.about[f"{file} ({frozen.format}): {about}"] = None
            found.notes |= dict.fromkeys(frozen.notes)
        found.checkpoint = frozen
    for data in found.datasets:
        found.notes |= dict.fromkeys(notes_of(data))
    return found


def _one(target: Path, found: "list[xr.Dataset]", names: list[str] | None) -> "xr.Dataset":
    """The Dataset that an output file holds.

    Raises:
        InputError: there are several.
    """
    if names:
        raise InputError(f"--out {target}: it holds one loss of one file, not {len(names)}")
    if len(found) > 1:
        sides = ", ".join(each.attrs["direction"] for each in found)
        raise InputError(f"--out {target}: it holds one of the directions {sides}; name it with --direction")
    return found[0]


def _answer(request: _Request, found: _Found, target: Path | None, figure: bool, width: str | None) -> Answer:
    """Write the figure or the Dataset, and make the tables of all Datasets."""
    from cocos.reports import plot_kinds

    kind, split = request.kind, request.options.get("split") or "train"
    items = found.checkpoint.items(split) if request.reads_files and kind.shows else None
    words = [kind.row_texts(each, items) for each in found.datasets]
    names = plot_kinds.names_of(request.runs) if len(request.runs) > 1 else None

    def draw(path: Path) -> None:
        kind.draw(found.datasets, request.options, path, words, names=names, width=width)

    def text() -> str:
        tables = [lines(kind.table(each, told)) for each, told in zip(found.datasets, words, strict=True)]
        return "\n\n".join(f"{names[place]}:\n{table}" if names else table for place, table in enumerate(tables))

    one = None if figure or target is None else _one(target, found.datasets, names)
    return Answer(
        text=text,
        document=lambda: kind.document(found.datasets, names),
        about=found.about,
        notes=found.notes,
        wrote=saved(one, target, draw if figure else None),
    )


@command("Plots", 1)
def plot(
    source: Source,
    kind: Annotated[str | None, Argument(help=f"Kind of plot: {_names()}. [list them]", show_default=False)] = None,
    files: Annotated[
        list[Path] | None,
        Argument(
            metavar="[FILE]...",
            help="Frozen checkpoint or file of embeddings; several where KIND takes them. [the card of KIND]",
            show_default=False,
        ),
    ] = None,
    loss: Annotated[
        list[str] | None,
        Option(help="Loss whose gradient is studied; repeatable for some kinds. [the checkpoint's own, or ntxent]"),
    ] = None,
    param: Param = None,
    eps: Annotated[str | None, Option(help="Smallest share that contributes; several for a curve.")] = None,
    batch_size: Annotated[
        str | None, Option(help="Pairs or queries in a batch; all makes one batch of the whole set.")
    ] = None,
    batches: Batches = None,
    sample: Drawn = None,
    per_group: PerGroup = None,
    same_group: Annotated[
        SameGroup | None, Option(help="How to treat other rows of a query's group in a batch drawn by pairs.")
    ] = None,
    queries: Annotated[str | None, Option(help="Number of queries to draw, all, or their rows, like 3,17,40.")] = None,
    direction: Annotated[str | None, Option(help="Direction of retrieval, like q2c. [all, side by side]")] = None,
    seed: Annotated[int | None, Option(help="Seed for drawing batches and everything else that is random. [0]")] = None,
    dtype: Annotated[Dtype | None, Option(help="Dtype of the computation.")] = None,
    more: Annotated[
        list[str] | None, Option("--set", help="Another option of KIND, NAME=VALUE; repeatable: see its card.")
    ] = None,
    device: Annotated[str | None, Option(help="Device for the computation: auto, cpu or cuda. [auto]")] = None,
    split: Annotated[str | None, Option(help="Split of the checkpoint's data to encode. [train]")] = None,
    as_json: AsJson = False,
    out: Annotated[
        Path | None,
        Option(help="Write the figure (.png, .pdf, .svg) or the Dataset (.nc) here. [KIND.png; nothing with --json]"),
    ] = None,
    width: Width = None,
):
    """Draw what a measure finds in a checkpoint, and print its numbers; without KIND, list the kinds."""  # noqa: DOC501
    asked = (loss or None, eps, batch_size, batches, sample, per_group, same_group, queries, direction, seed, dtype)
    given = dict(zip(FLAGS, (*asked, device, split), strict=True))
    given = {name: value for name, value in given.items() if value is not None}
    extra = {name.replace("-", "_"): value for name, value in named_values(more, "option", "bins=50").items()}
    parameters = named_values(param)
    from cocos import losses as shelf
    from cocos.reports import plot_kinds, saving

    bare = not (given or extra or parameters or out or as_json)
    if kind is None:
        if not bare:
            raise InputError("options, but no KIND: name one before them; cocos plot alone lists the kinds")
        return Answer(text=plot_kinds.table)
    chosen = plot_kinds.find(kind)
    if twice := given.keys() & extra.keys():
        raise InputError(f"{_spelled(min(twice))} and --set {min(twice)}: give one of them")
    options = chosen.chosen(given | extra, _spelled)
    if parameters and "loss" not in chosen.takes:
        raise InputError(f"{chosen.name} does not take -p: it reads no loss")
    if not files and bare:
        return Answer(text=lambda: chosen.card(_spelled))
    wanted = loss or [extra.get("loss")]
    default = _loss_asked(chosen, files, wanted, parameters)
    saving.inches(width)
    runs = _runs(chosen, files, wanted)
    by_loss = dict(zip(wanted, plot_kinds.split_parameters(parameters, wanted), strict=True))
    target = out or (None if as_json else Path(f"{chosen.name}.png"))
    figure = checked(target, *(files or ()), source.data, figures=True)
    for name in wanted if len(runs) > 1 else ():
        shelf.load(name or default, by_loss[name])
    request = _Request(chosen, options, default, runs, by_loss, source)
    with progress() as start:
        found = _measured(request, start)
    return _answer(request, found, target, figure, width)
