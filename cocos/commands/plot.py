"""`cocos plot`."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from cocos.base.errors import InputError
from cocos.commands._answer import Answer, checked, lines, opened, progress, saved
from cocos.commands._options import (
    EVERYWHERE,
    SHARED,
    Opening,
    argument,
    named_values,
    option,
    shared,
    split_parameters,
)
from cocos.commands._program import command
from cocos.commands._questions import QUESTION_ROWS, instead

if TYPE_CHECKING:
    import xarray as xr

    from cocos.checkpoints import Checkpoint
    from cocos.reports.plot_kinds import PlotKind

# Maximum number of losses and files that are drawn side by side.
MOST_RUNS = 6
# Kinds whose questions are rows of their own, and the argument of each.
QUESTIONS = {"landscape": "file", "dtp": "run"}


def _options(question: str) -> dict[str, tuple[Any, Any]]:
    """Options of a question alone, without its file and the shared ones."""
    left = {*shared("source"), QUESTIONS[question], "loss", "param", "out", "width"}
    return {name: each for name, each in QUESTION_ROWS[question].options().items() if name not in left}


# Options that a kind may take; every other one of its options is written --set NAME=VALUE.
ASKED = {
    "loss": option(
        list[str] | None,
        "Loss whose gradient is studied; repeatable for some kinds. [as the checkpoint says, or ntxent]",
    ),
    "eps": option(str | None, "Smallest share that contributes; several for a curve."),
    "confident": option(float | None, "Of retrievals: outline candidates with at least this score, like 0.6."),
    "queries": option(str | None, "Number of queries to draw, all, or their rows, like 3,17,40."),
    "row": option(int | None, "Of contributors: row of the query among the embeddings of its side. [a median one]"),
}
ASKED |= {
    name: (SHARED[name][0], None)
    for name in (
        *("batch_size", "batches", "sample", "per_group", "copies", "same_group", "direction", "seed", "dtype"),
        *("device", "split"),
    )
}
ASKED |= {name: each for name, each in (_options("landscape") | _options("dtp")).items() if name not in ASKED}
ASKED |= {
    "alpha": option(
        list[str] | None,
        "Boundary of the warp. Of landscape: several, like 3,6, have a panel each. [3] Of dtp: for all runs or as "
        "RUN=NUMBER; 28,34@600 changes at step 600, 0:3,1:5 is by class; repeatable. [as recorded]",
    ),
    "metric": option(str | None, "Score or distance of a pair: cosine, dot, euclidean, ... [as the kind has it]"),
}


def _names() -> str:
    """Names of all plots, without importing any."""
    house = Path(__file__).parent.parent
    shelves = ({path.stem for path in (house / room).glob("[!_]*.py")} for room in ("plots", "measures"))
    return ", ".join(sorted(set.intersection(*shelves)))


def _spelled(name: str) -> str:
    """How an option is written on the command line."""
    return f"--{name.replace('_', '-')}" if name in ASKED else f"--set {name}="


def _by_question(
    name: str, files: list[Path], asked: dict[str, Any], extra: dict[str, str], out: Path | None, *, bare: bool
) -> Answer | None:
    """Let the question of a kind draw it, or list its options where nothing is asked of it."""
    from cocos.base.layout import Table
    from cocos.reports import plot_kinds

    several, loss = QUESTIONS[name] == "run", asked["loss"] or []
    if bare and not files:
        rows = [
            (_spelled(each), plot_kinds.written(default), get_args(kind)[1].help)
            for each, (kind, default) in _options(name).items()
        ]
        head = f"{name}: {plot_kinds.every()[name].sentence}", plot_kinds.every()[name].command
        return Answer(text=lambda: Table(("option", "default", ""), tuple(rows), head, left=True))
    if extra:
        raise InputError(f"{name} does not take --set {min(extra)}: its options are --{', --'.join(_options(name))}")
    if len(files) > 1 and not several:
        raise InputError(f"{name}: {len(files)} files, expected at most one")
    if several and not files:
        raise InputError(f"{name}: name the checkpoints of a run, or a folder for each run")
    if len(loss) > 1:
        raise InputError(f"{name}: {len(loss)} losses, expected at most one")
    changes: dict[str, object] = dict.fromkeys(("kind", "files", "more")) | {"loss": loss[0] if loss else None}
    if files:
        changes[QUESTIONS[name]] = files if several else files[0]
    if not several and asked["alpha"]:
        changes["alpha"] = ",".join(asked["alpha"])
    return instead(name, f"cocos plot {name}", **changes, out=out)


def _default(kind: "PlotKind") -> str | None:
    """The loss of a kind where none is given; None: it reads scores then."""
    return kind.options["loss"].default if "loss" in kind.options else None


def _runs(
    kind: "PlotKind", files: list[Path], losses: list[str | None], parameters: dict[str, str]
) -> list[tuple[Path | None, str | None]]:
    """Every file with every loss; no file for a plot of a loss alone, no name for the loss that the file has."""
    runs = [(file, name) for file in files or [None] for name in losses]
    if (kind.reads == "embeddings") != bool(files):
        what = f"it is of a loss, not of a file like {files[0]}" if files else "name a FILE"
        raise InputError(f"{kind.name}: {what}: {kind.command}")
    if parameters and losses == [None] and _default(kind) is None:
        raise InputError(f"{kind.name}: parameters, but no --loss; without one it reads cosines")
    if len(set(runs)) < len(runs):
        raise InputError(f"{kind.name}: a file or a loss is named twice")
    if len(runs) > MOST_RUNS and not kind.combines:
        raise InputError(
            f"{kind.name}: {len(runs)} losses and files, expected at most {MOST_RUNS}: each has a panel of its own, "
            f"for {kind.alone}"
        )
    return runs


@dataclass(frozen=True)
class _PlottedRun:
    """A Dataset of a run: its checkpoint (None: it is of a loss alone), the place of the run, and a line about it."""

    data: "xr.Dataset"
    frozen: "Checkpoint | None"
    place: int
    about: str | None


def _measured(
    kind: "PlotKind", runs: list, by_loss: dict, against: list[str], options: dict, source: Opening, start
) -> list[_PlottedRun]:
    """Measure all runs, some in each direction by itself; each file is encoded once."""
    from cocos import losses as shelf
    from cocos.reports import plot_kinds

    found, checkpoints, frozen, about = [], {}, None, None
    for place, (file, name) in enumerate(runs):
        if file is None:
            loss = shelf.load(name or _default(kind), by_loss[name])
        elif file in checkpoints:
            frozen = checkpoints[file]
            loss, origin = frozen.loss(name, by_loss[name])
        else:
            frozen, loss, origin = opened(file, name, by_loss[name], source)
            frozen = checkpoints[file] = plot_kinds.once(frozen)
        compared = [frozen.loss(each, by_loss[each])[0] for each in against]
        reads_scores = name is None and _default(kind) is None
        own = options | ({"against": compared} if compared else {})
        made = kind.measured(frozen, None if reads_scores else loss, own, start)
        if file is not None:
            attrs = made[-1].attrs
            read = (
                f"loss {attrs['loss']}, {origin}" if _default(kind) else f"{attrs['metric'].replace('_', ' ')} scores"
            )
            about = f"{file} ({frozen.format}): {read}"
        found += [_PlottedRun(data, frozen, place, about) for data in made]
    return found


@command(
    options=ASKED
    | {
        "kind": argument(str | None, f"Kind of plot: {_names()}. [list them]", None, metavar=None),
        "files": argument(
            list[Path] | None,
            "Frozen checkpoint or file of embeddings; several where KIND takes them. [the card of KIND]",
            None,
            metavar="[FILE]...",
        ),
        "param": SHARED["param"],
        "more": option(
            list[str] | None, "Another option of KIND, NAME=VALUE; repeatable: see its card.", None, "--set"
        ),
        "as_json": EVERYWHERE["as_json"],
        "out": option(
            Path | None,
            "Write the figure (.png, .pdf, .svg) or the Dataset (.nc) here. [KIND.png; nothing with --json]",
        ),
        "width": SHARED["width"],
    },
    first="row direction",
)
def plot(source, kind, files, param, more, as_json, out, width, **asked) -> Answer | None:
    """Draw what a measure finds in a checkpoint, and print its numbers; without KIND, list the kinds."""
    given = {name: value for name, value in asked.items() if value not in (None, [], False)}
    extra = {name.replace("-", "_"): value for name, value in named_values(more, "option", "bins=50").items()}
    parameters = named_values(param)
    from cocos import losses as shelf
    from cocos import reports, results
    from cocos.reports import plot_kinds, saving

    bare = not (given or extra or parameters or out or as_json)
    if (own := (kind or "").replace("-", "_")) in QUESTIONS:
        target = out or (None if as_json else Path(f"{own}.png"))
        return _by_question(own, files or [], asked, extra, target, bare=bare)
    if kind is None:
        if not bare:
            raise InputError("options, but no KIND: name one before them; cocos plot alone lists the kinds")
        return Answer(text=plot_kinds.table)
    if Path(kind).exists() and kind.replace("-", "_") not in plot_kinds.every():
        raise InputError(f"{kind} is a file, and the KIND of plot comes first: cocos plot count {shlex.quote(kind)}")
    chosen = plot_kinds.find(kind)
    if twice := given.keys() & extra.keys():
        raise InputError(f"{_spelled(min(twice))} and --set {min(twice)}: give one of them")
    options = chosen.chosen(given | extra, _spelled)
    if parameters and "loss" not in chosen.takes:
        raise InputError(f"{chosen.name} does not take -p: it reads no loss")
    if not files and bare:
        return Answer(text=lambda: chosen.card(_spelled))
    wanted = asked["loss"] or [extra.get("loss")]
    own, against = (wanted[:1], wanted[1:]) if "against" in chosen.options.keys() - options.keys() else (wanted, [])
    runs = _runs(chosen, files or [], own, parameters)
    saving.inches(width)
    by_loss = dict(zip(wanted, split_parameters(parameters, wanted), strict=True))
    target = out or (None if as_json else Path(f"{chosen.name}.png"))
    figure = checked(target, *(files or []), source.data, figures=True)
    names = plot_kinds.names_of(runs) if len(runs) > 1 else None
    for name in wanted if len(wanted) > 1 or names else ():
        if asked_for := name or _default(chosen):  # a kind may read scores alone
            shelf.load(asked_for, by_loss[name])
    with progress() as start:
        measured = _measured(chosen, runs, by_loss, against, options, source, start)
    found, split = [each.data for each in measured], options.get("split") or "train"
    items = [each.frozen.items(split) if each.frozen and chosen.shows else None for each in measured]
    words = list(map(chosen.row_texts, found, items))
    names = names and [names[each.place] for each in measured]
    if target is not None and not figure and len(runs) > 1:
        raise InputError(f"--out {target}: it holds one loss of one file, not {len(runs)}")
    if target is not None and not figure and len(found) > 1:
        sides = ", ".join(each.attrs["direction"] for each in found)
        raise InputError(f"--out {target}: it holds one of the directions {sides}; name it with --direction")
    notes = [note for each in measured if each.frozen for note in each.frozen.notes]
    notes += [note for data in found for note in results.lines(data.attrs)]

    def draw(path: Path) -> None:
        chosen.draw(found, options, path, words, names=names, width=width)

    told = [{key: one[key] for key in ("labels", "query") if key in one} for one in words]

    def text() -> str:
        tables = [
            "\n\n".join(map(lines, reports.tables(chosen.name, data, **texts)))
            for data, texts in zip(found, told, strict=True)
        ]
        return "\n\n".join(f"{names[place]}:\n{table}" if names else table for place, table in enumerate(tables))

    return Answer(
        text=text,
        document=lambda: chosen.document(found, told, names),
        about=dict.fromkeys(each.about for each in measured if each.about),
        notes=dict.fromkeys(notes),
        wrote=saved(found[0], target, draw),
    )
