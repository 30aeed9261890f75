"""Options that several commands share, and readers of their text.

A command lists the options it takes as parameters. None means that an option was not given: the measure has the
default, which the help repeats.
"""

import contextlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from cocos.base import terminal
from cocos.base.errors import InputError, nearest

if TYPE_CHECKING:
    from cocos.checkpoints import Checkpoint
    from cocos.monitor.detectors import Detector

Sample = StrEnum("Sample", ["pairs", "groups"])
Copies = StrEnum("Copies", ["once", "keep"])
SameGroup = StrEnum("SameGroup", ["ignore", "negative"])
Dtype = StrEnum("Dtype", ["float32", "float64"])
Convention = StrEnum("Convention", ["standard", "ecir2022"])

# Panels of the help.
LOSS, BATCHES, MODEL, DETECTORS, OUTPUT = "Loss", "Batches", "File and model", "Detectors", "Output"
# Digits of an integer on the command line: more than any file has rows.
MAX_DIGITS = 15
# Temperatures from here on are more likely scales: training scales start at 10, temperatures stay below 1.
MIN_SCALE = 10
# Names of all detectors, without importing any.
DETECTOR_NAMES = tuple(sorted(path.stem for path in Path(__file__).parents[1].glob("monitor/detectors/[!_]*.py")))


def option(
    help: str, *flags: str, default: str | bool = False, panel: str | None = None, metavar: str | None = None
) -> Any:
    """Return an option with its help, the default that the help shows, and its panel."""
    help = f"{help} \\[default: {default}]" if isinstance(default, str) else help  # `[` is markup to rich
    return Option(*flags, help=help, show_default=default is True, rich_help_panel=panel, metavar=metavar)


File = Annotated[
    Path,
    Argument(
        metavar="FILE",
        help="Checkpoint or folder, file of embeddings or scores, or training data (--model). `example` is a small "
        "model included in the package.",
    ),
]
Loss = Annotated[
    str | None, option("Loss to analyse. See `cocos losses`.", default="from the checkpoint, else ntxent", panel=LOSS)
]
Losses = Annotated[
    list[str] | None,
    option(
        "Loss to analyse, repeatable. See `cocos losses`.",
        "--loss",
        default="from the checkpoint, else ntxent",
        panel=LOSS,
    ),
]
Param = Annotated[
    list[str] | None,
    option(
        "Loss parameter, repeatable. With several losses: LOSS.NAME=VALUE.",
        "--param",
        "-p",
        default="as recorded, else the loss's own",
        panel=LOSS,
        metavar="NAME=VALUE",
    ),
]
Eps = Annotated[
    float | None,
    option(
        "Threshold on the share of a negative. For softmax losses, the share is a probability.",
        default="0.01",
        panel=LOSS,
    ),
]
BatchSize = Annotated[
    str | None,
    option("Pairs or queries per batch, or `all` for a single batch.", default="128", panel=BATCHES, metavar="NUMBER"),
]
Batches = Annotated[
    str | None,
    option(
        "Number of batches, or a slice A:B of them.", default="one pass over the set", panel=BATCHES, metavar="NUMBER"
    ),
]
NumberOfBatches = Annotated[
    int | None, option("Number of batches.", "--batches", default="one pass over the set", panel=BATCHES)
]
Sampling = Annotated[
    Sample | None,
    option("Draw pairs, or queries with their groups.", "--sample", default="as the loss is trained", panel=BATCHES),
]
PerGroup = Annotated[
    int | None,
    option("Candidates per query, or samples per class, in batches drawn by groups.", default="by loss", panel=BATCHES),
]
RepeatedCandidates = Annotated[
    Copies | None,
    option(
        ("Repeated candidates in a batch: `once` deduplicates them, `keep` keeps every copy, like many DataLoaders."),
        "--copies",
        default="once, or keep if group rows are negatives",
        panel=BATCHES,
    ),
]
GroupRows = Annotated[
    SameGroup | None,
    option(
        "Other rows from the query's group: `ignore` or `negative`.",
        "--same-group",
        default="by convention or measure",
        panel=BATCHES,
    ),
]
Seed = Annotated[int | None, option("Random seed.", default="0", panel=BATCHES)]
Precision = Annotated[
    Dtype | None, option("Score dtype.", "--dtype", default="by measure and batch size", panel=BATCHES)
]
Split = Annotated[str | None, option("Split of the checkpoint's data.", default="train", panel=MODEL)]
Data = Annotated[
    str | None, option("Training data, if not recorded in FILE: a file, a folder or file.py:function.", panel=MODEL)
]
Model = Annotated[
    str | None,
    option(
        "Model that encodes FILE: a checkpoint or folder, file.py:function or package.module:function.", panel=MODEL
    ),
]
Dims = Annotated[
    int | None, option("Keep the first dimensions of each embedding (Matryoshka models).", default="all", panel=MODEL)
]
Device = Annotated[str, option("auto, cpu or cuda.", default=True, panel=MODEL)]
Level = Annotated[float | None, option("Confidence level of the intervals.", default="0.95", panel=OUTPUT)]
Steps = Annotated[
    str | None,
    option(
        "Steps of the checkpoints, such as 1,5,10.",
        default="numbers in the file names, else 0, 1, 2",
        panel=MODEL,
        metavar="INTEGERS",
    ),
]
CutOffs = Annotated[
    str | None, option("Cut-offs of R@k and mAP@k, such as 1,5,10.", "--k", default="1,5,10", metavar="INTEGERS")
]
Detectors = Annotated[
    list[str] | None,
    option(
        f"Switch a detector off, or set NAME.THRESHOLD=VALUE, repeatable. Detectors: {', '.join(DETECTOR_NAMES)}.",
        "--detector",
        panel=DETECTORS,
        metavar="NAME=off",
    ),
]
FailOn = Annotated[
    str | None,
    option(
        "Exit with 1 if one of these detectors fires: names separated by commas, or any.",
        panel=DETECTORS,
        metavar="NAMES",
    ),
]
Out = Annotated[Path | None, option("Write the Dataset to this file (.nc).", panel=OUTPUT)]
FigureOut = Annotated[
    Path | None, option("Write the Dataset (.nc) or the figure (.png, .pdf, .svg) to this file.", "--out", panel=OUTPUT)
]
Width = Annotated[
    str | None,
    option(
        "Figure width: `one` or `two` columns of a paper (3.3 or 6.9 inches, 8 pt text), or inches.",
        default="by plot",
        panel=OUTPUT,
    ),
]
Json = Annotated[bool, option("Print one JSON document to stdout.", "--json", panel=OUTPUT)]
Quiet = Annotated[bool, option("Print no progress and no notes to stderr.", "--quiet", "-q", panel=OUTPUT)]


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given, members of enumerations as their values."""
    return {name: getattr(value, "value", value) for name, value in options.items() if value is not None}


def open_file(file: Path, data: str | None = None, model: str | None = None, dims: int | None = None) -> "Checkpoint":
    """Open a checkpoint, or a file of embeddings or scores."""
    from cocos import checkpoints
    from cocos.data import is_own

    source = data if data is None or is_own(data) else Path(data)
    checkpoint = checkpoints.open(file, data=source, model=model)
    return checkpoint if dims is None else checkpoint.truncate(dims)


def open_with_loss(
    file: Path, loss: str | None, parameters: dict[str, str], data: str | None, model: str | None, dims: int | None
) -> tuple:
    """Open a file, and return its checkpoint, the loss and the origin of its parameters.

    A wrong loss is refused before the file is opened.
    """
    from cocos import losses

    if loss is not None:
        losses.load(loss, parameters)
    checkpoint = open_file(file, data, model, dims)
    return checkpoint, *checkpoint.loss(loss, parameters)


def read_parameters(texts: Sequence[str] | None, quiet: bool = False) -> dict[str, str]:
    """Read loss parameters, each NAME=VALUE; print a hint for a temperature that looks like a scale."""
    parameters = {}
    for text in texts or ():
        name, sign, value = (part.strip() for part in text.partition("="))
        if not (name and sign and value):
            raise InputError(f"parameter {text!r}: expected NAME=VALUE, such as temperature=0.07")
        if name in parameters:
            raise InputError(f"parameters {', '.join(texts or ())}: {name} is given twice")
        parameters[name] = value
        if name.rpartition(".")[2] == "temperature" and not quiet:
            with contextlib.suppress(ValueError):  # refused by the loss
                if (number := float(value)) >= MIN_SCALE:
                    terminal.say(f"hint: temperature {value} is high; if it is a scale, use {name}={1 / number:.4g}")
    return parameters


def split_parameters(parameters: Mapping[str, str], losses: Sequence[str | None]) -> list[dict[str, str]]:
    """Split parameters by loss. With several losses, each is named LOSS.NAME, such as `ntxent.temperature`."""
    if len(losses) < 2:
        return [dict(parameters)]
    by_loss: list[dict[str, str]] = [{} for _ in losses]
    for name, value in parameters.items():
        positions = [position for position, loss in enumerate(losses) if name.startswith(f"{loss}.")]
        if not positions:
            raise InputError(
                f"parameter {name}={value}: with several losses, expected LOSS.NAME=VALUE, such as "
                f"{losses[0]}.{name}={value}"
            )
        for position in positions:
            by_loss[position][name.removeprefix(f"{losses[position]}.")] = value
    return by_loss


def read_batch_size(text: str | None) -> int | str | None:
    """Read a batch size. Text other than an integer, such as `all`, is left to the sampler."""
    text = text and text.strip()
    if not text or not text.lstrip("-").isdecimal():
        return text
    if len(text) > MAX_DIGITS:
        raise InputError(f"batch size: {text}, expected at most {MAX_DIGITS} digits, or 'all'")
    return int(text)


def add_batch_size(options: dict[str, Any], checkpoint: Any, origin: str) -> str:
    """Let a recorded batch size be the default, and return the origin of the loss parameters with its own."""
    if "batch_size" in options or getattr(checkpoint, "batch_size", None) is None:
        return origin
    options["batch_size"] = checkpoint.batch_size
    return f"{origin}, batch size {checkpoint.batch_size} (recorded in {checkpoint.recorder})"


def read_batches(text: str | None) -> int | str | None:
    """Read a number of batches. Other text, such as the slice 40:80, is left to the measure."""
    text = text and text.strip()
    return int(text) if text and text.lstrip("-").isdecimal() and len(text) <= MAX_DIGITS else text


def read_integers(text: str | None, option: str, example: str) -> tuple[int, ...] | None:
    """Read integers separated by commas."""
    if text is None:
        return None
    parts = [part.strip() for part in text.removesuffix(",").split(",")]
    if not all(part.lstrip("-").isdecimal() and len(part) <= MAX_DIGITS for part in parts):
        raise InputError(
            f"{option} {text!r}: expected integers of at most {MAX_DIGITS} digits, separated by commas, such as "
            f"{example}"
        )
    return tuple(map(int, parts))


def read_numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    """Read numbers separated by commas."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.removesuffix(",").split(","))
    except ValueError:
        raise InputError(f"{option} {text!r}: expected a number, or numbers separated by commas") from None


def read_names(texts: Sequence[str] | str | None) -> list[str] | None:
    """Read names from a repeatable option, or separated by commas."""
    if texts is None:
        return None
    texts = [texts] if isinstance(texts, str) else texts
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def read_detectors(texts: Sequence[str] | None, fail_on: str | None) -> "tuple[tuple[Detector, ...], set[str]]":
    """Return the active detectors, and the names of those that make the command fail."""
    from cocos.monitor import detectors

    active = detectors.chosen(detectors.settings(texts or ()))
    states = {row["name"]: row["on"] for row in detectors.table(active)}
    names = [] if fail_on is None else fail_on.split(",")
    failing = {name.strip().lower().replace("-", "_") for name in names}
    for name in failing - {"any"}:
        if name not in states:
            raise InputError(f"--fail-on: {nearest('detector', name, [*states, 'any'])}")
        if not states[name]:
            raise InputError(f"--fail-on {name}: this detector is off; leave out one of the two options")
    return active, set(states) if "any" in failing else failing
