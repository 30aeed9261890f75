"""Options that several commands share, and the reading of their text."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from cocos.errors import InputError

__all__ = [
    "AsJson",
    "BatchSize",
    "Batches",
    "Convention",
    "Data",
    "Device",
    "Drawn",
    "Dtype",
    "Eps",
    "File",
    "Format",
    "LossName",
    "Model",
    "Out",
    "Param",
    "PerGroup",
    "Picture",
    "Quiet",
    "SameGroup",
    "SameGroupRows",
    "Seed",
    "Split",
    "Trust",
    "Unused",
    "Width",
    "named_values",
    "row_count",
    "whole_numbers",
]

# Digits of a whole number on the command line; a longer one exceeds the number of rows of any file.
MOST_DIGITS = 15

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
Device = Annotated[str, Option(help="Device for the computation: auto, cpu or cuda.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress and no notes on stderr.")]
LossName = Annotated[
    str | None, Option(help="Loss whose gradient is studied: see `cocos losses`. [the checkpoint's own, or ntxent]")
]
Param = Annotated[list[str] | None, Option("--param", "-p", help="A loss parameter, NAME=VALUE; repeatable.")]
Eps = Annotated[float, Option(help="Smallest share of a negative that contributes: a probability for softmax losses.")]
BatchSize = Annotated[str, Option(help="Pairs or queries in a batch; all makes one batch of the whole set.")]
Batches = Annotated[int | None, Option(help="Number of batches. [one pass over the training set]")]
Drawn = Annotated[Sample | None, Option(help="Draw pairs, or queries with their groups. [as the loss is trained]")]
PerGroup = Annotated[int | None, Option(help="Candidates per query, or samples per class, in a batch drawn by groups.")]
SameGroupRows = Annotated[
    SameGroup, Option(help="How to treat other rows of a query's group in a batch drawn by pairs.")
]
Seed = Annotated[int, Option(help="Seed for drawing batches and everything else that is random.")]
Unused = Annotated[int, Option("--seed", help="Accepted by every command; this one draws nothing at random.")]
Split = Annotated[str, Option(help="Split of the checkpoint's data to encode.")]
AsJson = Annotated[bool, Option("--json", help="One JSON document on stdout, and nothing else.")]
Out = Annotated[Path | None, Option(help="Write the Dataset to this file (.nc).")]
Picture = Annotated[Path, Option(help="Write the picture (.png, .pdf, .svg) or the Dataset (.nc) to this file.")]
Width = Annotated[
    str | None,
    Option(help="Width of the picture: one or two columns of a paper (3.3, 6.9 inches; 8 pt text), or inches."),
]


def named_values(given: list[str] | None, kind: str = "parameter", example: str = "temperature=0.07") -> dict[str, str]:
    """Read a repeatable option NAME=VALUE.

    Args:
        given: the texts.
        kind: of option, for the message.
        example: a right one, for the message.

    Raises:
        InputError: one is not of that form, or a name is given twice.
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


def row_count(batch_size: str) -> int | str:
    """Read a batch size as a number; other text, such as `all`, is left to the sampler.

    Raises:
        InputError: a number that exceeds the rows of any file.
    """
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

    Raises:
        InputError: the text is anything else.
    """
    parts = [part.strip() for part in given.split(",")]
    if any(part.lstrip("-").isdecimal() and len(part) > MOST_DIGITS for part in parts):
        raise InputError(f"{option} {given!r}: expected whole numbers of at most {MOST_DIGITS} digits, like {example}")
    try:
        return tuple(map(int, parts))
    except ValueError:
        raise InputError(f"{option} {given!r}: write it as whole numbers, like {example}") from None
