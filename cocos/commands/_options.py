"""Options that several commands share, alone or in bundles, and the reading of their text.

A bundle is a frozen dataclass whose fields are options. A command that takes a bundle has its options on the command
line; see `cocos.commands._program.command`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cocos.base.errors import InputError, nearest

if TYPE_CHECKING:
    from cocos.checkpoints import Checkpoint
    from cocos.monitor.detectors import Detector

# Digits of a whole number on the command line; a longer one exceeds the number of rows of any file.
MOST_DIGITS = 15
# Name that stands for all detectors in `--fail-on`.
ANY = "any"

Sample = StrEnum("Sample", ["pairs", "groups"])
Copies = StrEnum("Copies", ["once", "keep"])
SameGroup = StrEnum("SameGroup", ["ignore", "negative"])
Dtype = StrEnum("Dtype", ["float32", "float64"])

File = Annotated[
    Path,
    Argument(help="Frozen checkpoint or folder, file of embeddings, or training data (--model).", show_default=False),
]
Data = Annotated[
    str | None,
    Option(help="Training data, where FILE does not name them: a file, a folder, or your own file.py:function."),
]
Model = Annotated[
    list[str] | None,
    Option(
        help="A checkpoint or folder that encodes FILE, or your own file.py:function or package.module:function; "
        "repeatable, for files and folders that it needs."
    ),
]
Recipe = Annotated[Path | None, Option(help="TOML file that names model, data and loss, where no option does.")]
Names = Annotated[
    Path | None,
    Option(help="Table of names and pictures for rows that have none: query_name, candidate_name, query_image, ..."),
]
Trust = Annotated[bool, Option("--trust", help="Read unknown classes as inert placeholders, for --model.")]
Device = Annotated[str, Option(help="Device for the computation: auto, cpu or cuda.")]
LossName = Annotated[
    str | None, Option(help="Loss whose gradient is studied: see `cocos losses`. [as the checkpoint says, or ntxent]")
]
Param = Annotated[list[str] | None, Option("--param", "-p", help="A loss parameter, NAME=VALUE; repeatable.")]
Eps = Annotated[float, Option(help="Smallest share of a negative that contributes: a probability for softmax losses.")]
BatchSize = Annotated[str, Option(help="Pairs or queries in a batch; all makes one batch of the whole set.")]
Batches = Annotated[int | None, Option(help="Number of batches. [one pass over the training set]")]
Drawn = Annotated[Sample | None, Option(help="Draw pairs, or queries with their groups. [as the loss is trained]")]
PerGroup = Annotated[int | None, Option(help="Candidates per query, or samples per class, in a batch drawn by groups.")]
CopiedRows = Annotated[
    Copies | None,
    Option(
        help="A row drawn with several partners is a candidate of a batch of pairs once, or keeps a copy for each, as "
        "many loaders do. [once, unless rows of a group are negatives]"
    ),
]
SameGroupRows = Annotated[
    SameGroup, Option(help="How to treat other rows of a query's group in a batch drawn by pairs.")
]
Precision = Annotated[Dtype, Option(help="Dtype of the computation.")]
Seed = Annotated[int, Option(help="Seed for drawing batches and everything else that is random.")]
Unused = Annotated[int, Option("--seed", help="Accepted by every command; this one draws nothing at random.")]
Split = Annotated[str, Option(help="Split of the checkpoint's data to encode.")]
AsJson = Annotated[bool, Option("--json", help="One JSON document on stdout, and nothing else.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress and no notes on stderr.")]
Out = Annotated[Path | None, Option(help="Write the Dataset to this file (.nc).")]
Figure = Annotated[Path, Option(help="Write the figure (.png, .pdf, .svg) or the Dataset (.nc) to this file.")]
Width = Annotated[
    str | None,
    Option(help="Width of the figure: one or two columns of a paper (3.3, 6.9 inches; 8 pt text), or inches."),
]
DetectorSettings = Annotated[
    list[str] | None,
    Option("--detector", help="NAME=off, or NAME.THRESHOLD=VALUE; repeatable: see `cocos detectors`."),
]
FailOn = Annotated[
    str | None, Option(help="Exit with 1 if one of these detectors fires: names separated by commas, or any.")
]


@dataclass(frozen=True)
class Opening:
    """How to open a checkpoint."""

    data: Data = None
    model: Model = None
    trust: Trust = False
    recipe: Recipe = None
    names: Names = None

    def open(self, file: Path) -> "Checkpoint":
        """The checkpoint, or the embeddings, of a file."""
        from cocos import checkpoints
        from cocos.checkpoints import data as shelf

        data = self.data if self.data is None or shelf.is_own(self.data) else Path(self.data)
        given = {"trust": self.trust, "recipe": self.recipe, "names": self.names}
        return checkpoints.open(file, data=data, model=self.model or None, **given)


@dataclass(frozen=True)
class Gradient:
    """Whose gradient is studied, and from which share on a negative contributes."""

    loss: LossName = None
    param: Param = None
    eps: Eps = 0.01

    def __post_init__(self):
        _ = self.parameters

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the loss, as text."""
        return named_values(self.param)


@dataclass(frozen=True)
class Gradients:
    """Whose gradients are studied, of one loss or of several, and from which share on a negative contributes."""

    loss: Annotated[
        list[str] | None,
        Option(
            help="Loss whose gradient is studied; repeatable: see `cocos losses`. [as the checkpoint says, or ntxent]"
        ),
    ] = None
    param: Annotated[
        list[str] | None,
        Option("--param", "-p", help="A loss parameter, NAME=VALUE, or LOSS.NAME=VALUE of several losses; repeatable."),
    ] = None
    eps: Eps = 0.01

    def __post_init__(self):
        _ = self.by_loss
        for name in self.names:
            if self.names.count(name) > 1:
                raise InputError(f"--loss {name}: it is given {self.names.count(name)} times, expected once")

    @property
    def names(self) -> list[str | None]:
        """Names of the losses; None: the one that the file was trained with."""
        return list(self.loss or [None])

    @property
    def by_loss(self) -> list[dict[str, str]]:
        """The parameters of each loss, as text."""
        return split_parameters(named_values(self.param), self.names)


@dataclass(frozen=True)
class DetectorOptions:
    """Which detectors are on, with their thresholds, and which of them fail the command."""

    detector: DetectorSettings = None
    fail_on: FailOn = None

    def __post_init__(self):
        from cocos.monitor import detectors

        rows = {row["name"]: row["on"] for row in detectors.table(self.chosen)}
        for name in self._failing - {ANY}:
            if name not in rows:
                raise InputError(f"--fail-on: {nearest('detector', name, [*rows, ANY])}")
            if not rows[name]:
                raise InputError(f"--fail-on {name}: this detector is off; leave out one of the two options")

    @property
    def chosen(self) -> tuple["Detector", ...]:
        """The detectors that are on."""
        from cocos.monitor import detectors

        return detectors.chosen(detectors.settings(self.detector or ()))

    @property
    def _failing(self) -> set[str]:
        given = [] if self.fail_on is None else self.fail_on.split(",")
        return {name.strip().lower().replace("-", "_") for name in given}

    def code(self, fired: Iterable[str]) -> int:
        """Exit code of a command, from the names of the detectors that fired."""
        fired = set(fired)
        return int(bool(fired & self._failing) or (ANY in self._failing and bool(fired)))


@dataclass(frozen=True)
class BatchOptions:
    """How batches are drawn and encoded."""

    batch_size: BatchSize = "128"
    sample: Drawn = None
    per_group: PerGroup = None
    copies: CopiedRows = None
    seed: Seed = 0
    device: Device = "auto"
    split: Split = "train"

    def __post_init__(self):
        object.__setattr__(self, "batch_size", _row_count(self.batch_size))


def named_values(given: list[str] | None, kind: str = "parameter", example: str = "temperature=0.07") -> dict[str, str]:
    """Read a repeatable option NAME=VALUE.

    Args:
        given: the texts.
        kind: of option, for the message.
        example: a right one, for the message.
    """
    given = given or []
    pairs = [item.partition("=") for item in given]
    for item, (name, sign, value) in zip(given, pairs, strict=True):
        if not (name.strip() and sign and value.strip()):
            raise InputError(f"{kind} {item!r}: write it as NAME=VALUE, like {example}")
    chosen = {name.strip(): value.strip() for name, _, value in pairs}
    if len(chosen) < len(given):
        raise InputError(f"{kind}s {', '.join(given)}: one of them is given twice")
    return chosen


def split_parameters(parameters: Mapping[str, str], losses: Sequence[str | None]) -> list[dict[str, str]]:
    """Split parameters by loss; with several losses, each is named LOSS.NAME, like `ntxent.temperature`."""
    if len(losses) < 2:
        return [dict(parameters)]
    found: list[dict[str, str]] = [{} for _ in losses]
    for name, value in parameters.items():
        of = [k for k, loss in enumerate(losses) if name.startswith(f"{loss}.")]
        if not of:
            raise InputError(
                f"parameter {name}={value}: with several losses, name the loss as well, like {losses[0]}.{name}={value}"
            )
        for k in of:
            found[k][name.removeprefix(f"{losses[k]}.")] = value
    return found


def _row_count(batch_size: str) -> int | str:
    """Read a batch size as a number; other text, such as `all`, is left to the sampler."""
    text = batch_size.strip()
    if not text.lstrip("-").isdecimal():
        return text
    if len(text) > MOST_DIGITS:
        raise InputError(f"batch size: {text}, expected at most {MOST_DIGITS} digits, or all")
    return int(text)


def whole_numbers(given: str, option: str, example: str) -> tuple[int, ...]:
    """Read whole numbers separated by commas.

    Args:
        given: the text.
        option: its name, for the message.
        example: a right value, for the message.
    """
    parts = [part.strip() for part in given.split(",")]
    if any(part.lstrip("-").isdecimal() and len(part) > MOST_DIGITS for part in parts):
        raise InputError(f"{option} {given!r}: expected whole numbers of at most {MOST_DIGITS} digits, like {example}")
    try:
        return tuple(map(int, parts))
    except ValueError:
        raise InputError(f"{option} {given!r}: write it as whole numbers, like {example}") from None
