"""Options that several commands share, and readers of their text.

A command lists its options as parameters, and `chosen` collects them by name. None means that an option was not given:
the measure has the default, which the help repeats.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Context, Option

from cocos.base import terminal
from cocos.base.errors import InputError

if TYPE_CHECKING:
    from cocos.checkpoints import Checkpoint

# Panels of the help.
LOSS, BATCHES, MODEL, DETECTORS, OUTPUT = "Loss", "Batches", "File and model", "Detectors", "Output"
# Options that decide which batches are drawn and where they are scored.
SAMPLING = ("batch_size", "batches", "sample", "per_group", "copies", "same_group", "seed", "dtype", "split", "device")
# Digits of an integer on the command line: more than any file has rows.
MAX_DIGITS = 15
# Temperatures from here on are more likely scales: training scales start at 10, temperatures stay below 1.
MIN_SCALE = 10


def option(
    help: str,
    default: str = "",
    panel: str | None = None,
    *flags: str,
    metavar: str | None = None,
    parser: Callable[[str], Any] | None = None,
) -> Any:
    """Return an option with its help, the default that the help shows, its panel and the reader of its text."""
    text = f"{help} \\[default: {default}]" if default else help  # `[` is markup to rich
    shown = "NUMBERS" if parser else None
    return Option(*flags, help=text, show_default=False, rich_help_panel=panel, metavar=metavar or shown, parser=parser)


def read_integer(text: str) -> int:
    """Read an integer of at most `MAX_DIGITS` digits."""
    if not text.strip().lstrip("-").isdecimal() or len(text) > MAX_DIGITS:
        raise InputError(f"expected an integer of at most {MAX_DIGITS} digits")
    return int(text)


def read_count(text: str) -> int | str:
    """Read an integer; other text, such as `all` or the slice 40:80, is left to the measure."""
    return read_integer(text) if text.strip().lstrip("-").isdecimal() else text.strip()


def read_integers(text: str) -> tuple[int, ...]:
    """Read integers separated by commas."""
    try:
        return tuple(read_integer(part) for part in text.removesuffix(",").split(","))
    except InputError:
        raise InputError(f"expected integers of at most {MAX_DIGITS} digits, such as 1,5,10") from None


def read_rows(text: str) -> str | int | tuple[int, ...]:
    """Read `all`, an integer, or integers separated by commas; `5,` is a tuple."""
    return text if text == "all" else read_integers(text) if "," in text else read_integer(text)


def read_number(name: str, text: str) -> float:
    """Read the number of an option; the error has its name."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name} {text!r}: expected a number") from None


def read_numbers(text: str) -> float | tuple[float, ...]:
    """Read a number, or numbers separated by commas."""
    try:
        numbers = tuple(float(part) for part in text.removesuffix(",").split(","))
    except ValueError:
        raise InputError("expected a number, or numbers separated by commas") from None
    return numbers if "," in text else numbers[0]


def read_names(texts: Sequence[str] | None) -> list[str] | None:
    """Read names from a repeatable option, or separated by commas."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()] if texts else None


# An option's `Any` is the value that its parser reads.
FILE_HELP = "Checkpoint or folder, file of embeddings or scores, or training data (--model); `example`: a small model."
SAME_GROUP_HELP = "Other rows from the query's group: `ignore` or `negative`."
COPIES_DEFAULT = "once, or keep if group rows are negatives"
DATA_HELP = "Training data, if not recorded in FILE: a file, a folder or file.py:function."
MODEL_HELP = "Model that encodes FILE: a checkpoint or folder, file.py:function or package.module:function."
DETECTOR_HELP = "Switch a detector off, or set NAME.THRESHOLD=VALUE, repeatable. Detectors: "
DETECTOR_NAMES = ", ".join(sorted(path.stem for path in Path(__file__).parents[1].glob("monitor/detectors/[!_]*.py")))
FAIL_HELP = "Exit with 1 if one of these detectors fires: names separated by commas, or any."
FIGURE_HELP = "Write the Dataset (.nc) or the figure (.png, .pdf, .svg) to this file."
WIDTH_HELP = "Figure width: `one` or `two` columns of a paper (3.3 or 6.9 inches, 8 pt text), or inches."

File = Annotated[Path, Argument(metavar="FILE", help=FILE_HELP)]
Loss = Annotated[str | None, option("Loss to analyse; see `cocos losses`.", "from the checkpoint, else ntxent", LOSS)]
Param = Annotated[
    list[str] | None,
    option("Loss parameter, repeatable.", "as recorded, else by loss", LOSS, "--param", "-p", metavar="NAME=VALUE"),
]
Eps = Annotated[float | None, option("Threshold on the share of a negative.", "0.01", LOSS)]
BatchSize = Annotated[Any, option("Pairs or queries per batch, or `all`.", "128", BATCHES, parser=read_count)]
Batches = Annotated[Any, option("Number of batches, or a slice A:B.", "one pass", BATCHES, parser=read_count)]
Jobs = Annotated[int | None, option("Count in this many processes.")]
Dask = Annotated[
    str | None, option("Count on the workers of a dask scheduler, such as tcp://host:8786.", metavar="ADDRESS")
]
NumberOfBatches = Annotated[int | None, option("Number of batches.", "one pass", BATCHES, "--batches")]
Sample = Annotated[
    Literal["pairs", "groups"] | None, option("Draw pairs, or queries with their groups.", "by loss", BATCHES)
]
PerGroup = Annotated[int | None, option("Candidates per query, or samples per class, of a group.", "by loss", BATCHES)]
Copies = Annotated[Literal["once", "keep"] | None, option("Repeated candidates in a batch.", COPIES_DEFAULT, BATCHES)]
SameGroup = Annotated[Literal["ignore", "negative"] | None, option(SAME_GROUP_HELP, "by convention", BATCHES)]
Seed = Annotated[int | None, option("Random seed.", "0", BATCHES)]
Dtype = Annotated[Literal["float32", "float64"] | None, option("Score dtype.", "by measure and batch size", BATCHES)]
Split = Annotated[str | None, option("Split of the checkpoint's data.", "train", MODEL)]
Data = Annotated[str | None, option(DATA_HELP, "", MODEL)]
Model = Annotated[str | None, option(MODEL_HELP, "", MODEL)]
Dims = Annotated[int | None, option("Keep the first dimensions of each embedding (Matryoshka models).", "all", MODEL)]
Device = Annotated[str | None, option("auto, cpu or cuda.", "auto", MODEL)]
Steps = Annotated[
    Any, option("Steps of the checkpoints, such as 1,5,10.", "by file names", MODEL, parser=read_integers)
]
CutOffs = Annotated[Any, option("Cut-offs of R@k and mAP@k.", "1,5,10", None, "--k", parser=read_integers)]
Detectors = Annotated[
    list[str] | None,
    option(f"{DETECTOR_HELP}{DETECTOR_NAMES}.", "", DETECTORS, "--detector", metavar="NAME=off"),
]
FailOn = Annotated[str | None, option(FAIL_HELP, "", DETECTORS, metavar="NAMES")]
Out = Annotated[Path | None, option("Write the Dataset to this file (.nc).", "", OUTPUT)]
FigureOut = Annotated[Path | None, option(FIGURE_HELP, "", OUTPUT, "--out")]
Width = Annotated[str | None, option(WIDTH_HELP, "by plot", OUTPUT)]
Json = Annotated[bool, option("Print one JSON document to stdout.", "", OUTPUT, "--json")]
Quiet = Annotated[bool, option("Print no progress and no notes to stderr.", "", OUTPUT, "--quiet", "-q")]


def chosen(context: Context, *names: str) -> dict[str, Any]:
    """Return the named options that were given."""
    values = {name: context.params.get(name) for name in names}
    return {name: value for name, value in values.items() if value not in (None, (), [])}


def open_file(file: Path, data: str | None, model: str | None, dims: int | None) -> "Checkpoint":
    """Open a checkpoint, or a file of embeddings or scores."""
    from cocos import checkpoints
    from cocos.data import is_user_data

    source = data if data is None or is_user_data(data) else Path(data)
    checkpoint = checkpoints.open(file, data=source, model=model)
    return checkpoint if dims is None else checkpoint.truncate(dims)


def open_source(context: Context, file: Path) -> "Checkpoint":
    """Open a file with the options --data, --model and --dims."""
    return open_file(file, *(context.params[name] for name in ("data", "model", "dims")))


def open_with_loss(context: Context, file: Path) -> tuple:
    """Open a file, and return its checkpoint, the loss of --loss and -p, and the origin of its parameters.

    A wrong loss is refused before the file is opened.
    """
    from cocos import losses

    loss, parameters = context.params["loss"], read_parameters(context)
    if loss is not None:
        losses.load(loss, parameters)
    checkpoint = open_source(context, file)
    return checkpoint, *checkpoint.loss(loss, parameters)


def add_batch_size(values: dict[str, Any], checkpoint: "Checkpoint", origin: str) -> str:
    """Let a recorded batch size be the default, and return the origin of the loss parameters with its own."""
    settings = checkpoint.settings
    if "batch_size" in values or settings.batch_size is None:
        return origin
    values["batch_size"] = settings.batch_size
    return f"{origin}, batch size {settings.batch_size} (recorded in {settings.source})"


def read_parameters(context: Context) -> dict[str, str]:
    """Read the loss parameters of -p, each NAME=VALUE; print a hint for a temperature that looks like a scale."""
    parameters: dict[str, str] = {}
    for text in context.params["param"] or ():
        name, sign, value = (part.strip() for part in text.partition("="))
        if not (name and sign and value):
            raise InputError(f"parameter {text!r}: expected NAME=VALUE, such as temperature=0.07")
        if name in parameters:
            raise InputError(f"parameter {name}: {parameters[name]} and {value}, expected one value")
        parameters[name] = value
        if name.rpartition(".")[2] == "temperature" and not context.params["quiet"]:
            with contextlib.suppress(ValueError):  # refused by the loss
                if (number := float(value)) >= MIN_SCALE:
                    terminal.say(f"hint: temperature {value} is high; if it is a scale, use {name}={1 / number:.4g}")
    return parameters


def split_parameters(parameters: Mapping[str, str], losses: Sequence[str | None]) -> list[dict[str, str]]:
    """Split parameters by loss. With several losses, each is named LOSS.NAME, such as `ntxent.temperature`."""
    if len(losses) < 2:
        return [dict(parameters)]
    by_loss: dict[str | None, dict[str, str]] = {loss: {} for loss in losses}
    for name, value in parameters.items():
        loss = next((loss for loss in losses if name.startswith(f"{loss}.")), None)
        if loss is None:
            problem = f"parameter {name}={value}: with several losses, expected LOSS.NAME=VALUE"
            raise InputError(f"{problem}, as in {losses[0]}.{name}={value}")
        by_loss[loss][name.removeprefix(f"{loss}.")] = value
    return list(by_loss.values())
