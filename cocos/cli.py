"""The command `cocos`: parse, call a measure, save, show. Heavy imports wait until a command runs."""

import _thread
import atexit
import errno
import functools
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

import cocos
from cocos import processes, usage, writing
from cocos.errors import InputError, UnsafeFile, unreachable
from cocos.reports import terminal

__all__ = ["app", "main"]

app = typer.Typer(
    cls=usage.Program,
    help="Count the negatives that contribute to the gradient of a frozen metric-learning model.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_show_locals=False,
    epilog="Exit codes: 0 done, 1 verify found a fault, 2 unusable input, 3 refused as unsafe, 130 interrupted, "
    "143 terminated. --debug, anywhere: the traceback of your own code as well.",
)
PATIENCE = 2.0  # seconds before progress is shown
LARGEST = 15  # digits of a whole number on the command line: more are no number of rows
GRACE = 3.0  # seconds that an interrupted run has to clean up
SURROUNDINGS = {  # errors of the machine, not of this program
    *(errno.ENAMETOOLONG, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
}
AGAIN = 0.02  # seconds until a signal that was swallowed is sent again
EVERY = 5.0  # seconds between lines of progress where stderr is not a terminal

Convention = StrEnum("Convention", ["standard", "ecir2022"])
Sample = StrEnum("Sample", ["pairs", "groups"])
SameGroup = StrEnum("SameGroup", ["ignore", "negative"])
Dtype = StrEnum("Dtype", ["float32", "float64"])
Format = StrEnum("Format", ["table", "latex", "json"])

File = Annotated[Path, Argument(help="Frozen checkpoint, or a file of embeddings.", show_default=False)]
Data = Annotated[Path | None, Option(help="Folder of the training data, where the checkpoint does not carry it.")]
Model = Annotated[
    list[str] | None,
    Option(
        help="Your own file.py:function or package.module:function, called with (content, data, split, device); "
        "repeatable, for files and folders that it needs."
    ),
]
Trust = Annotated[bool, Option("--trust", help="Read unknown classes as inert placeholders, for --model.")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress and no notes on stderr.")]
LossName = Annotated[str | None, Option(help="Whose gradient: see `cocos losses`. [the checkpoint's own, or ntxent]")]
Param = Annotated[list[str] | None, Option("--param", "-p", help="A loss parameter, NAME=VALUE; repeatable.")]
Eps = Annotated[float, Option(help="A negative above it contributes: a probability for softmax losses.")]
BatchSize = Annotated[str, Option(help="Pairs or queries in a batch; all makes one batch of the whole set.")]
Batches = Annotated[int | None, Option(help="How many. [one pass over the training set]")]
Drawn = Annotated[Sample | None, Option(help="Draw pairs, or queries with their groups. [as the loss is trained]")]
PerGroup = Annotated[int | None, Option(help="Candidates of a query, or samples of a class, in a batch of groups.")]
Seed = Annotated[int, Option(help="Seed of everything that is drawn at random.")]
Unused = Annotated[int, Option("--seed", help="Seed of everything that is drawn at random; nothing is, here.")]
Split = Annotated[str, Option(help="Split of the checkpoint's data to encode.")]
AsJson = Annotated[bool, Option("--json", help="One JSON document on stdout, and nothing else.")]
Out = Annotated[Path | None, Option(help="Write the Dataset here (.nc).")]
Width = Annotated[
    str | None, Option(help="Of the picture: one or two columns of a paper (3.3, 6.9 inches; 8 pt text), or inches.")
]


def _say(text: str, *, quiet: bool = False) -> None:
    """One line on stderr; control characters of a stranger's file do not reach the terminal."""
    if not quiet:
        terminal.say(text)


def _print(text: str) -> None:
    """The result on stdout, each line of it clean.

    Raises:
        InputError: it cannot be written there.
    """
    if sys.stdout is None:
        raise InputError("the output cannot be written (stdout is closed)")
    try:
        print("\n".join(map(terminal.clean, text.split("\n"))), flush=True)
    except BrokenPipeError:
        os._exit(0)  # the reader has seen enough, as `head` does
    except OSError as error:
        terminal.silent(1)
        raise InputError(f"the output cannot be written ({error.strerror})") from None


def _starved(error: BaseException | None) -> bool:
    """Whether a process without file descriptors is behind an error: what imports or opens says so in many ways."""
    seen = []
    while error is not None and error not in seen:
        if getattr(error, "errno", None) in {errno.EMFILE, errno.ENFILE} or os.strerror(errno.EMFILE) in str(error):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


def _closed() -> int:
    """Say that no descriptor is left, and give the exit code."""
    _say(f"cocos: {processes.turn()}no file can be opened any more: raise the limit of open files (ulimit -n)")
    return 2


@contextmanager
def _sentences(*, shared: bool = False) -> Generator[None]:
    """What the user can put right is one sentence on stderr, never a traceback.

    Args:
        shared: the command can share its work with other processes.

    Raises:
        InputError: it cannot, and torchrun started several.
        Exit: with the code that says why.
    """
    try:
        if not shared and (size := processes.launched().size) > 1:
            raise InputError(f"{size} processes: only cocos count shares its work; start this command without torchrun")
        yield
    except InputError as error:
        turn = processes.turn()
        if usage.debug.get() and error.__cause__ is not None:
            for line in "".join(traceback.format_exception(error.__cause__)).splitlines():
                _say(line)
        _say(f"cocos: {turn}{error}")
        raise typer.Exit(3 if isinstance(error, UnsafeFile) else 2) from None
    except (KeyboardInterrupt, _Signalled) as signalled:
        raise typer.Exit(_ended(signalled)) from None
    except typer.Exit:
        raise
    except Exception as error:
        if _starved(error):
            raise typer.Exit(_closed()) from None
        if isinstance(error, OSError) and error.errno in SURROUNDINGS:
            where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
            _say(f"cocos: {processes.turn()}{where}{unreachable(error)}")
            raise typer.Exit(2) from None
        processes.turn()
        raise


@contextmanager
def _progress(quiet: bool) -> Generator[Callable[[str], Callable[[int, int], None]]]:
    """A source of progress callbacks that show nothing for work of under two seconds; the work begins here."""
    gc.enable()
    logging.getLogger("cocos").setLevel(logging.ERROR if quiet else logging.WARNING)  # notes of the library
    bar, tasks, shown = None, {}, time.monotonic()

    def start(what: str) -> Callable[[int, int], None]:
        begun = time.monotonic()
        what = terminal.bounded(terminal.clean(what), 60).replace("[", "(")  # nothing that rich takes for markup

        def report(done: int, total: int) -> None:
            nonlocal bar, shown
            now = time.monotonic()
            if quiet or now - begun < PATIENCE:
                return
            if not sys.stderr.isatty():
                if now - shown > EVERY:
                    shown = now
                    _say(f"{what}: {done} of {total}")
                return
            if bar is None:
                from rich.console import Console
                from rich.progress import Progress

                bar = Progress(console=Console(stderr=True), transient=True)
                bar.start()
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, visible=done < total)

        return report

    try:
        yield start
    finally:
        if bar:
            bar.stop()


def _parameters(given: list[str], what: str = "parameter", example: str = "temperature=0.07") -> dict[str, str]:
    pairs = [item.partition("=") for item in given]
    for item, (name, sign, value) in zip(given, pairs, strict=True):
        if not (name.strip() and sign and value.strip()):
            raise InputError(f"{what} {item!r}: write it as NAME=VALUE, like {example}")
    chosen = {name.strip(): value.strip() for name, _, value in pairs}
    if len(chosen) < len(given):
        raise InputError(f"{what}s {', '.join(given)}: one of them is given twice")
    return chosen


def _whole(batch_size: str) -> int | str:
    """A batch size as a number where it is one; what else it may be, the batches know.

    Raises:
        InputError: a number that no set is as large as.
    """
    text = batch_size.strip()
    if not text.lstrip("-").isdecimal():
        return text
    if len(text) > LARGEST:
        raise InputError(f"batch size: {text}, expected at most {LARGEST} digits, or all")
    return int(text)


def _opened(
    file: Path,
    loss: str | None,
    parameters: dict,
    out: Path | None,
    data: Path | None,
    model: list[str] | None,
    trust: bool,
) -> tuple:
    """The checkpoint, the loss, and where its parameters come from; what is cheap to refuse is refused first."""
    from cocos import checkpoints, losses, results

    if loss is not None:
        losses.load(loss, parameters)
    if out is not None:
        results.writable(out)
    writing.apart(out, file, data)
    frozen = checkpoints.open(file, data=data, model=model or None, trust=trust)
    return frozen, *frozen.loss(loss, parameters)


def _picture(out: Path, *inputs: Path | str | None) -> bool:
    """Whether a picture is to be written, and not the Dataset; what can be neither, or is an input, is refused.

    Raises:
        InputError: it cannot be written.
    """
    from cocos import results
    from cocos.reports import drawing

    picture = out.suffix != ".nc"
    drawing.drawable(out, ".nc") if picture else results.writable(out)
    writing.apart(out, *inputs)
    return picture


def _show(table) -> None:
    """A table on stdout, no wider than the terminal."""
    from cocos.reports import tables

    _print(tables.plain(table, terminal.room()))


@app.command(
    epilog="Example: cocos count embeddings.npz --loss ntxent -p temperature=0.07 --batch-size 256 --out counts.nc"
)
def count(
    file: File,
    loss: LossName = None,
    param: Param = None,
    eps: Eps = 0.01,
    batch_size: BatchSize = "128",
    batches: Batches = None,
    sample: Drawn = None,
    per_group: PerGroup = None,
    same_group: Annotated[
        SameGroup | None, Option(help="Other rows of a query's group in a batch of pairs. [as the convention]")
    ] = None,
    seed: Seed = 0,
    convention: Annotated[
        Convention, Option(help="How to count; ecir2022 as published, faults included.")
    ] = Convention.standard,
    dtype: Annotated[
        Dtype | None, Option(help="Of the scores. [float64; larger batches: float32, decided in float64]")
    ] = None,
    metrics: Annotated[bool, Option("--metrics", help="Retrieval metrics of the whole set as well.")] = False,
    n90: Annotated[
        bool, Option("--n90", help="Count the negatives that hold 90 % of the push as well; sorts all scores.")
    ] = False,
    device: Device = "auto",
    split: Split = "train",
    data: Data = None,
    model: Model = None,
    trust: Trust = False,
    format: Annotated[Format, Option(help="table, latex (the published columns) or json.")] = Format.table,
    as_json: AsJson = False,
    out: Out = None,
    quiet: Quiet = False,
):
    """Count the negatives that contribute to each query's gradient."""  # noqa: DOC501
    with _sentences(shared=True):
        parameters = _parameters(param or [])
        if as_json and format is Format.latex:
            raise InputError("--json and --format latex: choose one of them")
        from cocos import measures, results
        from cocos.reports import tables

        processes.join(device)
        first = processes.first()
        frozen, chosen, origin = _opened(file, loss, parameters, out if first else None, data, model, trust)
        with _progress(quiet or not first) as progress:
            counted = measures.count(
                frozen,
                chosen,
                eps,
                batches=batches,
                batch_size=_whole(batch_size),
                sample=sample and sample.value,
                per_group=per_group,
                same_group=same_group and same_group.value,
                seed=seed,
                convention=convention.value,
                dtype=dtype and dtype.value,
                metrics=metrics,
                n90=n90,
                split=split,
                device=device,
                progress=progress,
            )
        processes.close()
        if not first:
            return
        if out is not None:
            results.save(counted, out)
        name = counted.attrs["loss"]
        _say(f"{file} ({frozen.format}): loss {name}, {origin}", quiet=quiet)
        for note in (*frozen.notes, *filter(None, counted.attrs["notes"].splitlines())):
            _say(f"note: {note}", quiet=quiet)
        if as_json or format is Format.json:
            _print(json.dumps(results.summary(counted), allow_nan=False))
        elif format is Format.latex:
            _print(tables.latex(counted, file.name))
        else:
            _show(tables.count(counted))
        if out is not None:
            _say(f"wrote {out}", quiet=quiet)


@app.command()
def decompose(
    file: File,
    loss: LossName = None,
    param: Param = None,
    eps: Eps = 0.01,
    batch_size: BatchSize = "128",
    batches: Batches = None,
    sample: Drawn = None,
    per_group: PerGroup = None,
    same_group: Annotated[
        SameGroup, Option(help="Other rows of a query's group in a batch of pairs.")
    ] = SameGroup.ignore,
    seed: Seed = 0,
    dtype: Annotated[Dtype, Option(help="Of the computation.")] = Dtype.float64,
    device: Device = "auto",
    split: Split = "train",
    data: Data = None,
    model: Model = None,
    trust: Trust = False,
    as_json: AsJson = False,
    out: Out = None,
    quiet: Quiet = False,
):
    """Take each query's gradient apart: what pulls, what pushes, what cancels, what the normalisation removes."""
    with _sentences():
        parameters = _parameters(param or [])
        from cocos import measures, results
        from cocos.reports import tables

        frozen, chosen, origin = _opened(file, loss, parameters, out, data, model, trust)
        with _progress(quiet) as progress:
            found = measures.decomposition(
                frozen,
                chosen,
                eps,
                batches=batches,
                batch_size=_whole(batch_size),
                sample=sample and sample.value,
                per_group=per_group,
                same_group=same_group.value,
                seed=seed,
                dtype=dtype.value,
                split=split,
                device=device,
                progress=progress,
            )
        if out is not None:
            results.save(found, out)
        _say(f"{file} ({frozen.format}): loss {found.attrs['loss']}, {origin}", quiet=quiet)
        for note in (*frozen.notes, *filter(None, found.attrs["notes"].splitlines())):
            _say(f"note: {note}", quiet=quiet)
        if as_json:
            _print(json.dumps(results.decomposed(found), allow_nan=False))
        else:
            _show(tables.decomposition(found))
        if out is not None:
            _say(f"wrote {out}", quiet=quiet)


def _numbers(given: str, option: str, example: str) -> tuple[int, ...]:
    """Whole numbers, separated by commas.

    Raises:
        InputError: anything else.
    """
    parts = [part.strip() for part in given.split(",")]
    if any(part.lstrip("-").isdecimal() and len(part) > LARGEST for part in parts):
        raise InputError(f"{option} {given!r}: expected whole numbers of at most {LARGEST} digits, like {example}")
    try:
        return tuple(map(int, parts))
    except ValueError:
        raise InputError(f"{option} {given!r}: write it as whole numbers, like {example}") from None


@app.command()
def evaluate(
    file: File,
    k: Annotated[str, Option(help="Cut-offs of R@k and mAP@k.")] = "1,5,10",
    folds: Annotated[int, Option(help="Cut the set into so many parts: 5 is the 1k protocol of COCO.")] = 1,
    distractors: Annotated[
        Path | None, Option(help="A second file of embeddings: its candidates match no query.")
    ] = None,
    metric: Annotated[str, Option(help="How pairs are scored: cosine, dot, euclidean, ...")] = "cosine",
    seed: Seed = 0,
    split: Annotated[str | None, Option(help="Split of the checkpoint's data. [test, val, dev or train]")] = None,
    device: Device = "auto",
    data: Data = None,
    model: Model = None,
    trust: Trust = False,
    as_json: AsJson = False,
    out: Out = None,
    quiet: Quiet = False,
):
    """Retrieval metrics, in every direction: R@k, median and mean rank, MRR, mAP, mAP@R, R-precision, PR-AUC, NMI.

    A negative that ties with a positive stands above it. Everything is in percent, ranks aside.
    """
    with _sentences():
        ks = _numbers(k, "--k", "1,5,10")
        from cocos import checkpoints, measures, results
        from cocos.reports import tables

        if out is not None:
            results.writable(out)
        writing.apart(out, file, data, distractors)
        frozen = checkpoints.open(file, data=data, model=model or None, trust=trust)
        more = None if distractors is None else checkpoints.open(distractors)
        with _progress(quiet) as progress:
            found = measures.evaluate(
                frozen,
                metric=metric,
                ks=ks,
                folds=folds,
                distractors=more,
                seed=seed,
                split=split,
                device=device,
                progress=progress,
            )
        if out is not None:
            results.save(found, out)
        for note in (*frozen.notes, *(more.notes if more else ()), *filter(None, found.attrs["notes"].splitlines())):
            _say(f"note: {note}", quiet=quiet)
        if as_json:
            _print(json.dumps(results.evaluated(found), allow_nan=False))
        else:
            _show(tables.evaluate(found))
        if out is not None:
            _say(f"wrote {out}", quiet=quiet)


@app.command()
def inspect(
    file: File,
    data: Data = None,
    seed: Unused = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
):
    """Say what a checkpoint is, what it recorded of its training, and what to type next. Nothing in it is run."""
    with _sentences():
        from cocos import checkpoints
        from cocos.reports import tables

        about = checkpoints.inspect(file, data)
        for note in about["notes"]:
            _say(f"note: {note}", quiet=quiet)
        if as_json:
            _print(json.dumps(about, allow_nan=False))
            return
        _show(tables.contents(about))


@app.command()
def losses(
    name: Annotated[str | None, Argument(help="One loss: its card.", show_default=False)] = None,
    out: Annotated[Path | None, Option(help="With NAME: draw its weight against the score here (.png, .pdf).")] = None,
    seed: Unused = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
):
    """List the losses, or show the card of one: formula, parameters, what counts, what it equals, its weight."""  # noqa: DOC501
    from cocos import losses as shelf
    from cocos.reports import cards, tables

    with _sentences():
        if name is None:
            if out is not None:
                raise InputError(f"--out {out}: it draws one loss; name it, like cocos losses ntxent --out {out}")
            entries = [cards.entry(each) for each in shelf.names()]
            if as_json:
                _print(json.dumps(entries))
            else:
                _show(tables.losses(entries, shelf.UNSPECIFIED))
            return
        from cocos import measures, plots
        from cocos.reports import drawing

        if shelf.canonical(name) not in shelf.names():
            raise InputError(
                f"loss {name!r}: only losses of the shelf have a card; cocos verify --loss {name} checks it"
            )
        loss = shelf.load(name)
        if out is not None:
            drawing.drawable(out)
        curve, equal = measures.weight_curve(loss), measures.equivalences(loss)
        if out is not None:
            drawing.draw(plots.weight_curve, curve, out)
        if as_json:
            _print(json.dumps(cards.entry(name) | {"equal_to": cards.equal_to(equal)}))
        else:
            _print(cards.card(name, curve, equal, terminal.room()))
        if out is not None:
            _say(f"wrote {out}", quiet=quiet)


@app.command()
def landscape(
    file: Annotated[
        Path | None,
        Argument(help="A checkpoint or a file of embeddings: its candidates are the proxies.", show_default=False),
    ] = None,
    f1: Annotated[
        str | None, Option(help="Of the distance to the own proxy: t, t^2, sqrt, t^1.5, 0.97, warp, or yours. [t]")
    ] = None,
    f2: Annotated[str | None, Option(help="Of the distance to the others. [f1; t for the warp and factors]")] = None,
    alpha: Annotated[float | None, Option(help="The warp's boundary. [3]")] = None,
    k1: Annotated[float | None, Option(help="The warp's slope inside. [0.65]")] = None,
    k2: Annotated[float | None, Option(help="The warp's slope outside. [1.5]")] = None,
    scale: Annotated[float | None, Option(help="What the exponents are multiplied by. [1]")] = None,
    loss: Annotated[str | None, Option(help="A loss of the shelf, in the place of f1 and f2.")] = None,
    param: Param = None,
    proxies: Annotated[int | None, Option(help="How many, in a regular polygon. [2]")] = None,
    distance: Annotated[float | None, Option(help="Between two of them. [10]")] = None,
    rows: Annotated[
        str | None, Option(help="With a FILE: two or three of its candidates, the own one first. [0,1,2]")
    ] = None,
    surface: Annotated[bool, Option("--surface", help="In three dimensions.")] = False,
    split: Annotated[str | None, Option(help="Split of the checkpoint's data to encode. [train]")] = None,
    data: Data = None,
    model: Model = None,
    trust: Trust = False,
    out: Annotated[Path, Option(help="The picture (.png, .pdf, .svg), or the Dataset (.nc).")] = Path("landscape.png"),
    width: Width = None,
    seed: Unused = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
):
    """Draw the loss around its proxies: where it wants an embedding to be, as predicted and as found."""  # noqa: DOC501
    with _sentences():
        parameters = _parameters(param or [])
        if parameters and loss is None:
            raise InputError("parameters, but no --loss: give those of the warp as --alpha, --k1 and --k2")
        warp = {name: value for name, value in (("alpha", alpha), ("k1", k1), ("k2", k2)) if value is not None}
        curves = {"f1": f1, "f2": f2, "scale": scale} | warp
        polygon = {"proxies": proxies, "distance": distance}
        of_file = {"rows": rows, "split": split, "data": data, "model": model or None, "trust": trust or None}
        curves, polygon, of_file = (
            {name: value for name, value in group.items() if value is not None} for group in (curves, polygon, of_file)
        )
        if loss is not None and curves:
            raise InputError(f"--{next(iter(curves))} and --loss {loss}: a loss stands in the place of f1 and f2")
        if warp and "warp" not in {(f1 or "").strip(), (f2 or "").strip()}:
            raise InputError(f"--{next(iter(warp))}: it is of the warp, and neither --f1 nor --f2 is warp")
        if file is None and of_file:
            raise InputError(f"--{next(iter(of_file))}: it is of a FILE, and none is given")
        if file is not None and polygon:
            raise InputError(f"--{next(iter(polygon))} and {file}: the proxies are its own; choose them with --rows")
        asked = {} if rows is None else {"rows": _numbers(rows, "--rows", "0,1,2")}
        from cocos import checkpoints, measures, plots, results
        from cocos import losses as shelf
        from cocos.reports import drawing, tables

        picture = _picture(out, file, data)
        chosen = None if loss is None else shelf.load(loss, parameters)
        embeddings = None
        if file is not None:
            with _progress(quiet) as progress:
                frozen = checkpoints.open(file, data=data, model=model or None, trust=trust)
                embeddings = frozen.embed(split=split or "train", progress=progress("encoding"))
        found = measures.landscape(loss=chosen, embeddings=embeddings, **curves, **polygon, **asked)
        if picture:
            flat = None if not surface else "3d"
            drawing.draw(plots.landscape, found, out, size=(6.6, 5.2), width=width, projection=flat)
        else:
            results.save(found, out)
        if file is not None:
            _say(f"{file} ({frozen.format}): its candidates are the proxies", quiet=quiet)
            for note in frozen.notes:
                _say(f"note: {note}", quiet=quiet)
        if as_json:
            _print(json.dumps(results.minimum(found), allow_nan=False))
        else:
            _show(tables.landscape(found))
        _say(f"wrote {out}", quiet=quiet)


@app.command()
def query(
    file: File,
    row: Annotated[int, Option(help="Of the query, among the embeddings of the side that asks.")],
    direction: Annotated[str | None, Option(help="Which side asks, like q2c. [the first one]")] = None,
    loss: LossName = None,
    param: Param = None,
    eps: Eps = 0.01,
    batch_size: BatchSize = "128",
    sample: Drawn = None,
    per_group: PerGroup = None,
    same_group: Annotated[
        SameGroup, Option(help="Other rows of a query's group in a batch of pairs.")
    ] = SameGroup.ignore,
    seed: Seed = 0,
    top: Annotated[int, Option(help="How many candidates to list.")] = 20,
    dtype: Annotated[Dtype, Option(help="Of the computation.")] = Dtype.float64,
    device: Device = "auto",
    split: Split = "train",
    data: Data = None,
    model: Model = None,
    trust: Trust = False,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, Option(help="Draw the shares here (.png, .pdf, .svg), or write the Dataset (.nc).")
    ] = None,
    width: Width = None,
    quiet: Quiet = False,
):
    """List the candidates that make up the gradient of one query, in the first batch that has it."""
    with _sentences():
        parameters = _parameters(param or [])
        from cocos import measures, plots, results
        from cocos.plots.contributors import size as sized
        from cocos.reports import drawing, tables
        from cocos.reports.kinds import find

        picture = out is not None and _picture(out, file, data)
        frozen, chosen, origin = _opened(file, loss, parameters, None if picture else out, data, model, trust)
        with _progress(quiet) as progress:
            found = measures.contributors(
                frozen,
                chosen,
                eps,
                row=row,
                direction=direction,
                top=top,
                batch_size=_whole(batch_size),
                sample=sample and sample.value,
                per_group=per_group,
                same_group=same_group.value,
                seed=seed,
                dtype=dtype.value,
                split=split,
                device=device,
                progress=progress,
            )
        words = find("contributors").words(found, frozen.items(split))
        labels, said = words.get("labels"), words.get("query")
        if picture:
            draw = functools.partial(plots.contributors, **words)
            drawing.draw(draw, found, out, size=sized(found), width=width)
        elif out is not None:
            results.save(found, out)
        _say(f"{file} ({frozen.format}): loss {found.attrs['loss']}, {origin}", quiet=quiet)
        for note in (*frozen.notes, *filter(None, found.attrs["notes"].splitlines())):
            _say(f"note: {note}", quiet=quiet)
        if as_json:
            _print(json.dumps(results.contributed(found, labels, said), allow_nan=False))
        else:
            _show(tables.contributors(found, labels, said))
        if out is not None:
            _say(f"wrote {out}", quiet=quiet)


def _shelf() -> str:
    """Names of all plots, without importing any."""
    found = sorted(path.stem for path in (Path(__file__).parent / "plots").glob("[!_]*.py"))
    return ", ".join(found)


@app.command()
def plot(
    kind: Annotated[str | None, Argument(help=f"What to draw: {_shelf()}. [list them]", show_default=False)] = None,
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
        Option(help="Whose gradient; repeatable where KIND takes several. [the checkpoint's own, or ntxent]"),
    ] = None,
    param: Param = None,
    eps: Annotated[str | None, Option(help="Smallest share that contributes; for a curve several.")] = None,
    batch_size: Annotated[str | None, Option(help="Pairs or queries in a batch; all: of the whole set.")] = None,
    batches: Batches = None,
    sample: Drawn = None,
    per_group: PerGroup = None,
    same_group: Annotated[SameGroup | None, Option(help="Other rows of a query's group in a batch of pairs.")] = None,
    queries: Annotated[str | None, Option(help="How many are drawn, all, or their rows, like 3,17,40.")] = None,
    direction: Annotated[str | None, Option(help="Which side asks, like q2c. [every one, side by side]")] = None,
    seed: Annotated[int | None, Option(help="Seed of everything that is drawn at random. [0]")] = None,
    dtype: Annotated[Dtype | None, Option(help="Of the computation.")] = None,
    more: Annotated[
        list[str] | None, Option("--set", help="What else KIND takes, NAME=VALUE; repeatable: see its card.")
    ] = None,
    device: Annotated[str | None, Option(help="auto, cpu or cuda. [auto]")] = None,
    split: Annotated[str | None, Option(help="Split of the checkpoint's data to encode. [train]")] = None,
    data: Data = None,
    model: Model = None,
    trust: Trust = False,
    as_json: AsJson = False,
    out: Annotated[
        Path | None,
        Option(help="The picture (.png, .pdf, .svg), or the Dataset (.nc). [KIND.png; nothing with --json]"),
    ] = None,
    width: Width = None,
    quiet: Quiet = False,
):
    """Draw what a measure finds in a checkpoint, and print its numbers; without KIND, list what can be drawn."""  # noqa: DOC501
    with _sentences():
        given = {
            "loss": loss or None,
            "eps": eps,
            "batch_size": batch_size,
            "batches": batches,
            "sample": sample and sample.value,
            "per_group": per_group,
            "same_group": same_group and same_group.value,
            "queries": queries,
            "direction": direction,
            "seed": seed,
            "dtype": dtype and dtype.value,
            "device": device,
            "split": split,
        }
        flags = {name: f"--{name.replace('_', '-')}" for name in given}
        given = {name: value for name, value in given.items() if value is not None}
        extra, parameters = _parameters(more or [], "option", "bins=50"), _parameters(param or [])
        extra = {name.replace("-", "_"): value for name, value in extra.items()}
        from cocos import losses as shelf
        from cocos import results, summaries
        from cocos.reports import drawing, kinds, tables

        def spelled(name: str) -> str:
            return flags.get(name, f"--set {name}=")

        if kind is None:
            if given or extra or parameters or out or as_json:
                raise InputError("options, but no KIND: name one before them; cocos plot alone lists the kinds")
            _show(tables.kinds([(each.name, each.command, each.sentence) for each in kinds.kinds()]))
            return
        chosen = kinds.find(kind)
        if twice := given.keys() & extra.keys():
            raise InputError(f"{spelled(min(twice))} and --set {min(twice)}: give one of them")
        options = chosen.chosen(given | extra, spelled)
        if parameters and "loss" not in chosen.takes:
            raise InputError(f"{chosen.name} does not take -p: it reads no loss")
        if not files and not (given or extra or parameters or out or as_json):
            _show(tables.kind(chosen.name, chosen.sentence, chosen.command, chosen.card(spelled)))
            return
        reads = chosen.reads == "embeddings"
        if reads != bool(files):
            what = "name a FILE" if reads else f"it is of a loss, not of a file like {files[0]}"
            raise InputError(f"{chosen.name}: {what}: {chosen.command}")
        default = chosen.options["loss"].default if "loss" in chosen.options else None
        wanted = loss or [extra.get("loss")]
        if parameters and wanted == [None] and default is None:
            raise InputError(f"{chosen.name}: parameters, but no --loss; without one it reads cosines")
        drawing.inches(width)
        runs = [(file, name) for file in files or [None] for name in wanted]
        if len(set(runs)) < len(runs):
            raise InputError(f"{chosen.name}: a file or a loss is named twice")
        if len(runs) > 1 and not chosen.combines:
            several = ", ".join(each.name for each in kinds.kinds() if each.combines)
            raise InputError(f"{chosen.name}: it draws one loss of one file; these draw several: {several}")
        given_to = dict(zip(wanted, kinds.parted(parameters, wanted), strict=True))
        target = out or (None if as_json else Path(f"{chosen.name}.png"))
        picture = target is not None and _picture(target, *(files or ()), data)
        for name in wanted if len(runs) > 1 else ():
            shelf.load(name or default, given_to[name])
        opened, found, said, notes = {}, [], {}, {}
        with _progress(quiet) as progress:
            for file, name in runs:
                frozen, weighed, origin = None, None, ""
                if reads and file in opened:
                    frozen = opened[file]
                    weighed, origin = frozen.loss(name, given_to[name])
                elif reads:
                    frozen, weighed, origin = _opened(file, name, given_to[name], None, data, model, trust)
                    frozen = opened[file] = kinds.once(frozen)
                else:
                    weighed = shelf.load(name or default, given_to[name])
                if name is None and default is None:
                    weighed = None
                found += chosen.measured(frozen, weighed, options, progress)
                if reads:
                    metric = found[-1].attrs["metric"].replace("_", " ")
                    about = f"loss {found[-1].attrs['loss']}, {origin}" if default else f"{metric} scores"
                    said[f"{file} ({frozen.format}): {about}"] = None
                    notes |= dict.fromkeys(frozen.notes)
        notes |= dict.fromkeys(line for each in found for line in each.attrs.get("notes", "").splitlines() if line)
        items = frozen.items(split or "train") if reads and chosen.shows else None
        words = [chosen.words(each, items) for each in found]
        names = kinds.called(runs) if len(runs) > 1 else None
        if picture:
            chosen.draw(found, options, target, words, names=names, width=width)
        elif target is not None and names:
            raise InputError(f"--out {target}: it holds one loss of one file, not {len(runs)}")
        elif target is not None and len(found) > 1:
            sides = ", ".join(each.attrs["direction"] for each in found)
            raise InputError(f"--out {target}: it holds one of the directions {sides}; name it with --direction")
        elif target is not None:
            results.save(found[0], target)
        for line in said:
            _say(line, quiet=quiet)
        for note in notes:
            _say(f"note: {note}", quiet=quiet)
        if as_json:
            _print(json.dumps(summaries.document(chosen.name, found, names), allow_nan=False))
        else:
            for place, (each, told) in enumerate(zip(found, words, strict=True)):
                if place:
                    _print("")
                if names:
                    _print(f"{names[place]}:")
                _show(chosen.table(each, told))
        if target is not None:
            _say(f"wrote {target}", quiet=quiet)


def _boundaries(given: list[str], names: list[str]) -> dict[str, float]:
    """Alpha of the runs, as it is given: of all, or by their names.

    Raises:
        InputError: no number, a name that is no run, or one that is given twice.
    """
    from cocos.errors import nearest

    found = {}
    for item in given:
        name, sign, value = item.rpartition("=")
        if sign and name not in names:
            raise InputError(nearest("run", name, names))
        try:
            number = float(value)
        except ValueError:
            raise InputError(f"--alpha {item!r}: write it as a number, or as RUN=NUMBER like warp=3") from None
        if not 0 < number < float("inf"):
            raise InputError(f"--alpha {item!r}: expected a finite number above 0")
        for each in [name] if sign else names:
            if each in found:
                raise InputError(f"--alpha {item!r}: the run {each!r} has one already")
            found[each] = number
    return found


@app.command()
def dtp(
    run: Annotated[list[Path], Argument(help="The checkpoints of one run, or a folder for each run.")],
    alpha: Annotated[
        list[str] | None, Option(help="Boundary of the warp, of all runs or RUN=NUMBER; repeatable. [as recorded]")
    ] = None,
    metric: Annotated[str, Option(help="euclidean (eq. 9), squared_euclidean or cosine.")] = "euclidean",
    steps: Annotated[
        str | None, Option(help="Of the checkpoints, like 1,5,10. [the numbers in their names, or 0, 1, 2, ...]")
    ] = None,
    device: Device = "auto",
    split: Split = "train",
    data: Data = None,
    model: Model = None,
    trust: Trust = False,
    seed: Unused = 0,
    as_json: AsJson = False,
    out: Annotated[Path, Option(help="The picture (.png, .pdf, .svg), or the Dataset (.nc).")] = Path("dtp.png"),
    width: Width = None,
    quiet: Quiet = False,
):
    """Distance to proxy over the checkpoints of runs: how far the samples of a class come to rest from its proxy."""
    with _sentences():
        given = None if steps is None else _numbers(steps, "--steps", "1,5,10")
        from cocos import checkpoints, measures, plots, results
        from cocos.checkpoints import series
        from cocos.measures.dtp import same_classes
        from cocos.reports import drawing, tables

        found = series.files(run)
        picture = _picture(out, data, *(each for files in found.values() for each in files))
        bounds = _boundaries(alpha or [], list(found))
        at = series.steps(found) if given is None else given
        opener = functools.partial(checkpoints.open, data=data, model=model or None, trust=trust)
        notes = []
        if at is None:
            notes.append(series.unnumbered(found))
        elif given is None:
            steps = ", ".join(map(str, at))
            notes.append(f"steps {steps}: the numbers" if len(at) > 1 else f"step {steps}: the number")
            notes[-1] += " in the names of the files"
        for name, files in found.items():
            last = opener(files[-1])
            if name not in bounds and (recorded := series.recorded_alpha(last)) is not None:
                bounds[name] = recorded
                notes.append(f"alpha of {name}: {recorded:g}, recorded in {files[-1]}")
            notes += last.notes
        with _progress(quiet) as progress:
            opened = {
                name: series.Series(files, opener, split, device, progress(f"measuring {name}"))
                for name, files in found.items()
            }
            measured = measures.dtp(opened, steps=at, alpha=bounds, metric=metric)
        same_classes(measured)
        seen = [pair for each in opened.values() for pair in each.seen]
        measured = measured.assign_attrs(
            checkpoint_path="\n".join(path for path, _ in seen), checkpoint_sha256="\n".join(sha for _, sha in seen)
        )
        if picture:
            drawing.draw(plots.dtp, measured, out, size=(7.2, 4.6), width=width)
        else:
            results.save(measured, out)
        for note in (*notes, *filter(None, measured.attrs["notes"].splitlines())):
            _say(f"note: {note}", quiet=quiet)
        if as_json:
            _print(json.dumps(results.distances(measured), allow_nan=False))
        else:
            _show(tables.dtp(measured))
        _say(f"wrote {out}", quiet=quiet)


@app.command()
def verify(
    target: Annotated[
        str | None,
        Argument(help="A checkpoint or a file of embeddings, or a loss. [synthetic input]", show_default=False),
    ] = None,
    loss: Annotated[str | None, Option(help="Which loss: see `cocos losses`. [all, or the checkpoint's own]")] = None,
    param: Param = None,
    against: Annotated[
        str | None, Option(help="Another loss that it should equal, with the parameters of the same name.")
    ] = None,
    batches: Annotated[int, Option(help="Real batches to look at.")] = 2,
    batch_size: Annotated[int, Option(help="Pairs or queries in a real batch.")] = 128,
    seed: Seed = 0,
    device: Device = "auto",
    split: Split = "train",
    data: Data = None,
    model: Model = None,
    trust: Trust = False,
    as_json: AsJson = False,
    out: Annotated[Path | None, Option(help="Write the Dataset of one loss here (.nc).")] = None,
    quiet: Quiet = False,
):
    """Check the weights of one loss or all: closed form, torch.func, finite differences, four dtypes; 1 if wrong."""  # noqa: DOC501
    with _sentences():
        from cocos import checkpoints, measures, results
        from cocos import losses as shelf
        from cocos.reports import tables

        parameters = _parameters(param or [])
        if target is not None and loss is None and not Path(target).exists():
            if ":" in target or not Path(target).suffix:  # `cocos verify ntxent`
                target, loss = None, target
        elif target is not None and loss is not None and not Path(target).exists() and not Path(target).suffix:
            raise InputError(f"{target!r} and --loss {loss!r}: a file that is not there, or two losses; name one loss")
        if loss is None and target is None and (parameters or against):
            raise InputError("parameters or --against, but no loss: name it with --loss")
        if out is not None:
            results.writable(out)
        writing.apart(out, target, data)
        frozen = None
        if target is not None:
            frozen = checkpoints.open(Path(target), data=data, model=model or None, trust=trust)
        if loss is not None or frozen is not None:
            chosen = [frozen.loss(loss, parameters)[0] if frozen else shelf.load(loss, parameters)]
        else:
            chosen = [shelf.load(name) for name in shelf.names()]
        if out is not None and len(chosen) > 1:
            raise InputError(f"--out {out}: it holds one loss; name it with --loss")
        found = []
        with _progress(quiet) as progress:
            for each in chosen:
                found.append(
                    measures.verify(
                        each,
                        frozen,
                        against=against,
                        batches=batches,
                        batch_size=batch_size,
                        seed=seed,
                        split=split,
                        device=device,
                        progress=progress,
                    )
                )
        if out is not None:
            results.save(found[0], out)
        if as_json:
            _print(json.dumps([results.verdict(one) for one in found], allow_nan=False))
        else:
            _show(tables.verify(found))
        if out is not None:
            _say(f"wrote {out}", quiet=quiet)
        if any(one.attrs["faults"] for one in found):
            raise typer.Exit(1)


@app.command()
def figures(
    names: Annotated[list[str] | None, Argument(help="Which ones. [all]", show_default=False)] = None,
    analysis: Annotated[Path, Option(help="Folder of the scripts.")] = Path("analysis"),
    out: Annotated[Path, Option(help="Folder of the figures.")] = Path("figures"),
    fresh: Annotated[bool, Option("--fresh", help="Compute all data anew.")] = False,
    seed: Unused = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
):
    """Make the figures of the repository again: their data where an input has changed, the pictures, the index."""
    with _sentences():
        from cocos.reports import figures as every
        from cocos.reports import tables

        begun = time.monotonic()
        with _progress(quiet) as progress:
            made = every.run(names or [], analysis=analysis, folder=out, fresh=fresh, progress=progress)
        if as_json:
            entries = [{"name": e.name, "computed": e.computed, "files": list(map(str, e.files))} for e in made]
            _print(json.dumps(entries))
        else:
            _show(tables.figures([(each.name, each.computed, len(each.files)) for each in made]))
        number = sum(len(each.files) for each in made)
        _say(f"wrote {number} files and {out / 'README.md'} in {time.monotonic() - begun:.0f} s", quiet=quiet)


@app.command()
def demo(
    out: Annotated[Path, Option(help="Folder for the Dataset and the figure.")] = Path("cocos-demo"),
    device: Device = "auto",
    seed: Seed = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
):
    """Count on the embedded example: a real frozen model, its real training data, four losses."""
    with _sentences():
        from cocos import demo as example
        from cocos import results
        from cocos.reports import tables

        with _progress(quiet) as progress:
            datasets, files = example.run(out, device=device, seed=seed, progress=progress)
        if as_json:
            _print(json.dumps([results.summary(data) for data in datasets], allow_nan=False))
        else:
            _show(tables.overview(datasets))
        for path in files:
            _say(f"wrote {path}", quiet=quiet)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, Option("--version", help="Print the version and stop.")] = False,
):
    if version:
        with _sentences():
            _print(f"cocos {cocos.__version__}")
        raise typer.Exit


for each in app.registered_commands:
    each.cls = usage.Command


class _Signalled(BaseException):
    """A signal asked the run to end, which unwinds and cleans up. Its argument is the signal."""


def _ended(signalled: BaseException) -> int:
    """Say that the run was ended, and give the exit code: 130 after Ctrl-C, 143 after SIGTERM."""
    number = signalled.args[0] if isinstance(signalled, _Signalled) else signal.SIGINT
    word = "interrupted" if number == signal.SIGINT else "terminated"
    launched = processes.launched()  # torchrun terminates the others where one fails, and says why
    _say(f"cocos: {word}", quiet=launched.rank > 0 or (number == signal.SIGTERM and launched.size > 1))
    return 128 + number


def _signalled(number: int, frame) -> None:
    """Unwind and clean up. A library that is being imported may swallow that: then a timer ends the run.

    A second SIGTERM ends it at once.

    Raises:
        _Signalled: always.
    """
    timer = threading.Timer(GRACE, os._exit, [128 + number])
    timer.daemon = True
    timer.start()
    if number == signal.SIGTERM:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise _Signalled(number)


def _unraisable(problem) -> None:
    """A signal that met a finaliser, which may not raise: it is sent again, in place of a traceback."""
    if isinstance(problem.exc_value, _Signalled):
        number = problem.exc_value.args[0]
        signal.signal(number, _signalled)
        again = threading.Timer(AGAIN, _thread.interrupt_main, [number])
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(problem)


def main() -> None:
    """Run the command; Ctrl-C ends it with exit code 130, SIGTERM with 143.

    The garbage collector rests while modules are imported and while the interpreter ends: to walk the objects of
    PyTorch's modules, of which none is garbage, takes a third of the time of its import.
    """
    gc.disable()  # until `_progress`
    atexit.register(gc.freeze)
    heard = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, _signalled)
    sys.unraisablehook = _unraisable
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ± shows ? in its place
    try:
        try:
            sys.exit(app(standalone_mode=processes.launched().rank == 0))  # other ranks leave bad options to the first
        finally:
            for number in heard:  # all is written: a signal ends what is left, the end of the interpreter, at once
                signal.signal(number, signal.SIG_DFL)
    except usage.UsageError as error:
        _say(f"cocos: {processes.turn()}{error.format_message()}")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, _Signalled) as signalled:
        sys.exit(_ended(signalled))
    except Exception as error:
        if not _starved(error):
            raise
        sys.exit(_closed())
