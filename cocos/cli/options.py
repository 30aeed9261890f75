"""Options that several commands share, and readers of their text.

A command lists its options as parameters, and `chosen` collects them by name. None means that an option was not given:
the measure has the default, which the help repeats.
"""

import math
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Context, Option

import cocos
from cocos.base import terminal
from cocos.base.errors import InputError

LOSS, BATCHES, MODEL, OUTPUT = "Loss", "Batches", "File and model", "Output"  # panels of the help
# Options that decide which batches are drawn and where they are scored.
SAMPLING = ("batch_size", "batches", "sample", "per_group", "copies", "same_group", "seed", "dtype", "split", "device")
# Temperatures from here on are more likely scales: training scales start at 10, temperatures stay below 1.
MIN_SCALE = 10


def option(help: str, default: str = "", panel: str | None = None, *flags: str, metavar: str = "", parser=None):
    """Return an option with its help, the default that the help shows, its panel and the reader of its text."""
    text = f"{help} \\[default: {default}]" if default else help  # `[` is markup to rich
    metavar = "NUMBER" if parser else metavar or None
    return Option(*flags, help=text, show_default=False, rich_help_panel=panel, metavar=metavar, parser=parser)


def read_size(text: str) -> int | str:
    """Read an integer; other text, such as `all` or the slice 40:80, is left to the measure."""
    return int(text) if text.isdecimal() and len(text) < 10 else text


def read_numbers(flag: str, text: str, kind: type = float) -> tuple:
    """Read numbers separated by commas."""
    try:
        return tuple(map(kind, text.split(",")))
    except ValueError:
        raise InputError(f"{flag} {text!r}: expected numbers separated by commas, such as 1,5,10") from None


File = Annotated[Path, Argument(metavar="FILE", help="Checkpoint, embeddings, scores or training data, or `example`.")]
Loss = Annotated[str | None, option("Loss to analyse; see `cocos losses`.", "from the checkpoint, else ntxent", LOSS)]
Param = Annotated[list[str] | None, option("Loss parameter, NAME=VALUE, repeatable.", "", LOSS, "--param", "-p")]
Eps = Annotated[float | None, option("Threshold on the share of a negative.", "0.01", LOSS)]
Convention = Annotated[Literal["standard", "ecir2022"], option("As published: ecir2022.", "standard", LOSS)]
# An `Any` is the integer or text of `read_size`.
BatchSize = Annotated[Any, option("Pairs or queries per batch, or `all`.", "128", BATCHES, parser=read_size)]
Batches = Annotated[Any, option("Number of batches, or a slice A:B.", "one pass", BATCHES, parser=read_size)]
Jobs = Annotated[int | None, option("Count in this many processes.")]
Dask = Annotated[str | None, option("Address of a dask scheduler to count on, such as tcp://host:8786.")]
NumberOfBatches = Annotated[int | None, option("Number of batches.", "one pass", BATCHES)]
Sample = Annotated[Literal["pairs", "groups"] | None, option("Pairs, or queries with groups.", "by loss", BATCHES)]
PerGroup = Annotated[int | None, option("Candidates per query, or samples per class, of a group.", "by loss", BATCHES)]
Copies = Annotated[Literal["once", "keep"] | None, option("Repeated candidates in a batch.", "once", BATCHES)]
SameGroup = Annotated[Literal["ignore", "negative"] | None, option("Rows of the same group.", "by convention", BATCHES)]
Seed = Annotated[int | None, option("Random seed.", "0", BATCHES)]
Dtype = Annotated[Literal["float32", "float64"] | None, option("Score dtype.", "by measure and batch size", BATCHES)]
Split = Annotated[str | None, option("Split of the checkpoint's data.", "train", MODEL)]
Data = Annotated[str | None, option("Training data: a file, a folder or file.py:function.", "as recorded", MODEL)]
Model = Annotated[str | None, option("Model that encodes FILE: a checkpoint, a folder or file.py:function.", "", MODEL)]
Dims = Annotated[int | None, option("Keep the first dimensions of each embedding (Matryoshka models).", "all", MODEL)]
Device = Annotated[str | None, option("auto, cpu or cuda.", "auto", MODEL)]
CutOffs = Annotated[str | None, option("Cut-offs of R@k and mAP@k.", "1,5,10", metavar="NUMBERS")]
Out = Annotated[Path | None, option("Write the Dataset to this file (.nc).", "", OUTPUT)]
FigureOut = Annotated[Path | None, option("Write the Dataset (.nc) or figure (.png, .pdf, .svg).", "", OUTPUT)]
JsonOut = Annotated[Path | None, option("Write the JSON document to this file (.json).", "", OUTPUT)]
Json = Annotated[bool, option("Print one JSON document to stdout.", "", OUTPUT, "--json")]
Quiet = Annotated[bool, option("Print no progress and no notes to stderr.", "", OUTPUT, "--quiet", "-q")]


def chosen(context: Context, *names: str) -> dict[str, Any]:
    """Return the named options that were given."""
    values = {name: context.params.get(name) for name in names}
    return {name: value for name, value in values.items() if value is not None and value is not False and value != ()}


def open_file(file: Path, data: str | None, model: str | None) -> "cocos.Checkpoint":
    """Open a checkpoint, or a file of embeddings or scores."""
    return cocos.open(file, data=data if data is None or cocos.data.is_user_data(data) else Path(data), model=model)


def open_source(context: Context, file: Path) -> "cocos.Checkpoint":
    """Open a file with the options --data, --model and --dims; its notes are printed with the result."""
    checkpoint, dims = open_file(file, *map(context.params.get, ("data", "model"))), context.params.get("dims")
    add_notes(context, *(f"note: {note}" for note in checkpoint.notes))
    return checkpoint if dims is None else checkpoint.truncate(dims)


def add_notes(context: Context, *notes: str) -> None:
    """Keep lines on the input, which `output.print_result` prints to stderr."""
    context.obj = [*(context.obj or ()), *notes]


def open_with_losses(context: Context, file: Path) -> tuple:
    """Open a file with the losses of --loss and -p; a wrong loss is refused before the file is opened.

    Returns:
        The checkpoint, its losses, the options of the batches that were given or that the file recorded, and the origin
        of the parameters of each loss.
    """
    loss, parameters = context.params["loss"], read_parameters(context)
    names = list(dict.fromkeys(loss)) if isinstance(loss, list) else [loss or None]
    by_loss = {name: parameters for name in names}
    if len(names) > 1:  # parameters are named LOSS.NAME
        by_loss = {name: {} for name in names}
        for key, value in parameters.items():
            name = next((name for name in names if key.startswith(f"{name}.")), None)
            if name is None:
                raise InputError(f"parameter {key}: with several losses, expected LOSS.NAME, as in {names[0]}.{key}")
            by_loss[name][key.removeprefix(f"{name}.")] = value
    for name, values in by_loss.items():
        if name is not None:
            cocos.losses.load(name, values)
    checkpoint = open_source(context, file)
    loaded, origins = map(list, zip(*(checkpoint.loss(*entry) for entry in by_loss.items()), strict=True))
    values, settings = chosen(context, *SAMPLING), checkpoint.settings
    if settings.batch_size is not None and not chosen(context, "batch_size", "settles"):
        values["batch_size"] = settings.batch_size
        recorded = f"batch size {settings.batch_size} (recorded in {settings.source})"
        origins = [f"{origin}, {recorded}" for origin in origins]
    for loss, origin in zip(loaded, origins, strict=True):
        add_notes(context, f"{file} ({checkpoint.format}): loss {loss.name}, {origin}")
    return checkpoint, loaded, values, origins


def read_parameters(context: Context) -> dict[str, str]:
    """Read the loss parameters of -p, each NAME=VALUE; print a hint for a temperature that looks like a scale."""
    parameters: dict[str, str] = {}
    for text in context.params["param"] or ():
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value:
            raise InputError(f"parameter {text!r}: expected NAME=VALUE, such as temperature=0.07")
        if name in parameters:
            raise InputError(f"parameter {name}: {parameters[name]} and {value}, expected one value")
        parameters[name] = value
        if name.endswith("temperature") and not context.params["quiet"]:
            with suppress(ValueError):  # the loss refuses other text
                if MIN_SCALE <= (number := float(value)) < math.inf:
                    terminal.say(f"hint: temperature {value} is high; if it is a scale, use {name}={1 / number:.4g}")
    return parameters
