"""Options that several commands share, and the reading of their text."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from cocos.base.errors import InputError, nearest
from cocos.base.signatures import REQUIRED

if TYPE_CHECKING:
    from cocos.checkpoints import Checkpoint
    from cocos.monitor.detectors import Detector

# Digits of a whole number on the command line; a longer one exceeds the number of rows of any file.
MOST_DIGITS = 15
# Names of all detectors, without importing any.
DETECTOR_NAMES = ", ".join(
    sorted(path.stem for path in (Path(__file__).parents[1] / "monitor" / "detectors").glob("[!_]*.py"))
)
# Name that stands for all detectors in `--fail-on`.
ANY = "any"

Sample = StrEnum("Sample", ["pairs", "groups"])
Copies = StrEnum("Copies", ["once", "keep"])
SameGroup = StrEnum("SameGroup", ["ignore", "negative"])
Dtype = StrEnum("Dtype", ["float32", "float64"])


def option(kind: Any, words: str, default: Any = None, *flags: str, **settings: Any) -> tuple[Any, Any]:
    """An option: its type with its help, and its value where it is not given."""
    return Annotated[kind, Option(*flags, help=words, **settings)], default


def argument(kind: Any, words: str, default: Any = REQUIRED, metavar: str | None = "FILE") -> tuple[Any, Any]:
    """An argument: its type with its help, and its value where it is not given."""
    return Annotated[kind, Argument(metavar=metavar, help=words, show_default=False)], default


SEVERAL_LOSSES = option(
    list[str] | None,
    "Loss whose gradient is studied; repeatable: see `cocos losses`. [as the checkpoint says, or ntxent]",
)
PARAMS_OF_LOSSES = option(
    list[str] | None,
    "A loss parameter, NAME=VALUE, or LOSS.NAME=VALUE of several losses; repeatable.",
    None,
    *("--param", "-p"),
)
# Options of every command.
EVERYWHERE: dict[str, tuple[Any, Any]] = {
    "seed": option(int, "Accepted by every command; this one draws nothing at random.", 0),
    "as_json": option(bool, "One JSON document on stdout, and nothing else.", False, "--json"),
    "quiet": option(bool, "No progress and no notes on stderr.", False, "--quiet", "-q"),
}
# Name of an option that several commands share -> its type with its help, and its value where it is not given.
SHARED: dict[str, tuple[Any, Any]] = {
    "file": argument(
        Path,
        "Frozen checkpoint or folder, file of embeddings, training data (--model); `example` is the embedded one.",
    ),
    "loss": option(
        str | None, "Loss whose gradient is studied: see `cocos losses`. [as the checkpoint says, or ntxent]"
    ),
    "param": option(list[str] | None, "A loss parameter, NAME=VALUE; repeatable.", None, "--param", "-p"),
    "eps": option(float, "Smallest share of a negative that contributes: a probability for softmax losses.", 0.01),
    "batch_size": option(str, "Pairs or queries in a batch; all makes one batch of the whole set.", "128"),
    "batches": option(int | None, "Number of batches. [one pass over the training set]"),
    "sample": option(Sample | None, "Draw pairs, or queries with their groups. [as the loss is trained]"),
    "per_group": option(int | None, "Candidates per query, or samples per class, in a batch drawn by groups."),
    "copies": option(
        Copies | None,
        "A row drawn with several partners is a candidate of a batch of pairs once, or keeps a copy for each, as many "
        "loaders do. [once, unless rows of a group are negatives]",
    ),
    "same_group": option(SameGroup | None, "How to treat other rows of a query's group in a batch drawn by pairs."),
    "seed": option(int, "Seed for drawing batches and everything else that is random.", 0),
    "dtype": option(Dtype | None, "Dtype of the computation."),
    "device": option(str, "Device for the computation: auto, cpu or cuda.", "auto"),
    "split": option(str, "Split of the checkpoint's data to encode.", "train"),
    "data": option(
        str | None,
        "Training data, where FILE does not name them: a file, a folder, or your own file.py:function.",
    ),
    "model": option(
        str | None,
        "A checkpoint or folder that encodes FILE, or your own file.py:function or package.module:function.",
    ),
    "dims": option(int | None, "Keep the first dimensions of each embedding, as of a Matryoshka model. [all]"),
    "direction": option(str | None, "Direction of retrieval, like q2c. [all]"),
    "level": option(float, "Level of the confidence intervals.", 0.95),
    "steps": option(str | None, "Steps of the checkpoints, like 1,5,10. [the numbers in their names, or 0, 1, 2, ...]"),
    "k": option(str, "Cut-offs of R@k and mAP@k.", "1,5,10"),
    "detector": option(
        list[str] | None,
        f"NAME=off, or NAME.THRESHOLD=VALUE; repeatable. NAME: {DETECTOR_NAMES}.",
        None,
        "--detector",
    ),
    "fail_on": option(str | None, "Exit with 1 if one of these detectors fires: names separated by commas, or any."),
    "out": option(Path | None, "Write the Dataset to this file (.nc)."),
    "width": option(
        str | None, "Width of the figure: one or two columns of a paper (3.3, 6.9 inches; 8 pt text), or inches."
    ),
}
DRAWN = option(Path | None, "Write the Dataset (.nc) or the figure (.png, .pdf, .svg) to this file.")
# Names that stand for several of them.
BUNDLES = {
    "source": ("data", "model", "dims"),
    "loss": ("loss", "param"),
    "figure": ("out", "width"),
}


def shared(names: str) -> dict[str, tuple[Any, Any]]:
    """Options by their names, or by that of a bundle, separated by spaces."""
    found = {one: SHARED[one] for name in names.split() for one in BUNDLES.get(name, (name,))}
    return found | ({"out": DRAWN} if "figure" in names.split() else {})


@dataclass(frozen=True)
class Opening:
    """How to open a checkpoint."""

    data: str | None = None
    model: str | None = None
    dims: int | None = None

    def open(self, file: Path) -> "Checkpoint":
        """The checkpoint, or the embeddings, of a file."""
        from cocos import checkpoints
        from cocos.checkpoints import data as shelf

        data = self.data if self.data is None or shelf.is_own(self.data) else Path(self.data)
        found = checkpoints.open(file, data=data, model=self.model)
        return found if self.dims is None else found.truncate(self.dims)


@dataclass(frozen=True)
class DetectorOptions:
    """Which detectors are on, with their thresholds, and which of them fail the command."""

    detector: list[str] | None = None
    fail_on: str | None = None

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


def named_values(given: list[str] | None, kind: str = "parameter", example: str = "temperature=0.07") -> dict[str, str]:
    """Read a repeatable option NAME=VALUE."""
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


def row_count(batch_size: str) -> int | str:
    """Read a batch size as a number; other text, such as `all`, is left to the sampler."""
    text = batch_size.strip()
    if not text.lstrip("-").isdecimal():
        return text
    if len(text) > MOST_DIGITS:
        raise InputError(f"batch size: {text}, expected at most {MOST_DIGITS} digits, or all")
    return int(text)


def batch_count(batches: str) -> int | str:
    """Read a number of batches; other text, such as the slice 40:80, is left to the count."""
    text = batches.strip()
    return int(text) if text.lstrip("-").isdecimal() and len(text) <= MOST_DIGITS else text


def whole_numbers(given: str, option: str, example: str) -> tuple[int, ...]:
    """Read whole numbers separated by commas."""
    parts = [part.strip() for part in given.split(",")]
    if any(part.lstrip("-").isdecimal() and len(part) > MOST_DIGITS for part in parts):
        raise InputError(f"{option} {given!r}: expected whole numbers of at most {MOST_DIGITS} digits, like {example}")
    try:
        return tuple(map(int, parts))
    except ValueError:
        raise InputError(f"{option} {given!r}: write it as whole numbers, like {example}") from None


def listed(given: str | list[str] | None) -> list[str]:
    """Names that are given one by one, or separated by commas."""
    texts = [given] if isinstance(given, str) else given or []
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def as_help(meaning: str) -> str:
    """Make the help of an option from the docstring of its parameter: the first sentence, and the meaning of None.

    Examples:
        >>> from cocos.commands._options import as_help
        >>> as_help("number of rows. None: all. At least 2, and `seed` draws them")
        'Number of rows. [all]'
    """
    parts = re.sub(r"[,:;]? see `[^`]*`", "", meaning).partition(" None: ")[::2]
    text, default = (re.split(r"\. (?=[A-Z`])", each)[0].replace("`", "").rstrip(";:,. ") for each in parts)
    return f"{text[:1].upper()}{text[1:]}." + (f" [{default}]" if default else "")
