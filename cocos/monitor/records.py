"""The store of a training run: a JSON line per record, appended as a whole, so a killed run loses at most the last.

The first line of a store, and of each part that a resumed run appends, is a header with the version, the loss and eps.
Every other line is a record, the numbers of one step, as `cocos.Monitor` takes them. A resumed run supersedes the
records of earlier parts from its first step on. A last line that a killed process left unfinished is dropped.
"""

import json
import math
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cocos import results
from cocos.base.errors import InputError, unreachable
from cocos.counting.statistics import BATCH_NUMBERS, Number
from cocos.embeddings import sources

Record = Mapping[str, Any]
SUFFIX = ".jsonl"
# Maximum number of bytes of one line: a record has about two thousand.
MOST_LINE = 2**20
# Maximum number of bytes of a store that is read: about a million records.
MOST_BYTES = 2**31
# Settings of a header in which all parts of a store must agree.
AGREED = ("loss", "loss_parameters", "eps")
# Numbers by the unit of a loss, and the numbers by the part of the push that are shown where the unit is unknown.
BY_PUSH = {"contributing": "relative", "idle": "unpushed"}
# Numbers of a direction that every Dataset of a training run has, NaN where they are unknown.
ALWAYS_RECORDED = ("relative", "unpushed", "contributing", "idle", "queries")
# Maximum number of values of a training run: 1 GiB, two million records of two directions.
MOST_VALUES = 2**27
# First bytes of every header.
FIRST_BYTES = b'{"cocos"'

# Sources of negatives by the ends of their names in a record.
SOURCE_KEYS = {each.key: each.label for each in sources.TABLE}
# Numbers of one direction and one source: long name with a place for the source, and units.
SOURCE_METRICS = {
    "push": ("push fraction of {}", "1"),
    "pulled": ("pulled {}, mean over all queries", "candidates"),
    "negatives": ("{}, mean over all queries", "candidates"),
}


# Numbers of one direction of a record by name, those of a count among them. A mean is over all queries, or over those
# with any push; a sum and a value are of the batch. Those in `BY_UNIT` are by the natural unit of the loss, and absent
# where it is unknown.
DIRECTION_NUMBERS = {
    each.record or each.name: each
    for each in (
        BATCH_NUMBERS["relative"],
        Number("unpushed", "queries without pushed negatives", "queries", how="sum"),
        *(each for each in BATCH_NUMBERS.values() if each.record),
        Number("weight_negative", "share of the negatives, mean over all queries", "share"),
        Number("pulled_negatives", "pulled negatives, mean over all queries", "candidates"),
        Number("pushed_positives", "pushed positives, mean over all queries", "candidates"),
        Number("hub_share", "largest push fraction of one candidate, mean over queries with push", "1",
               over="pushed"),
        Number("push_own", "push fraction of candidates of this process", "1", how="value"),
        Number("pull_own", "pull fraction of candidates of this process", "1", how="value"),
        Number("positives", "positives, mean over all queries", "candidates"),
        Number("queries", "queries of the batch", "queries", how="sum"),
        Number("candidates", "candidates of the batch", "candidates", how="sum"),
        *(
            Number(f"{name}_{key}", text.format(source), units, how="value")
            for name, (text, units) in SOURCE_METRICS.items()
            for key, source in SOURCE_KEYS.items()
        ),
    )
}  # fmt: skip
# The same: long name and units.
DIRECTION_METRICS = {name: (each.label, each.units) for name, each in DIRECTION_NUMBERS.items()}
BY_UNIT = ("contributing", "idle", "weight_positive", "weight_negative")
# Directions of a labelled set, whose rows are the candidates as well, or class vectors are; and the latter alone.
LABELLED, OF_CLASSES = ("s2s", "s2p"), ("s2p",)
# Numbers of a whole record: long name and units.
STEP_METRICS = {
    "scale": ("factor between cosine and score", "1"),
    "value": ("value of the loss", "loss"),
    "duplicates": ("candidates equal to another one", "candidates"),
    "near_duplicates": ("candidates with a cosine above 0.999 to another one", "candidates"),
    "copies": ("queries with a copy of the positive in the batch, up to noise such as dropout", "queries"),
    "repeated_inputs": ("input rows equal to another one in the batch", "rows"),
    "unreached": ("fraction of trained parameters without any gradient so far", "1"),
    "outranked": ("fraction of negatives above the positive, mean over queries", "1"),
    "ahead": ("fraction of queries with less than 10 % of the negatives above the positive", "1"),
    "behind": ("fraction of queries with more than 50 % of the negatives above the positive", "1"),
    "far_behind": ("fraction of queries with more than 75 % of the negatives above the positive", "1"),
    "agreement": ("correlation between cosines of queries and cosines of their positives", "1"),
    "similarity": ("mean cosine of different candidates", "1"),
    "similarity_negative": ("mean cosine of queries and their negatives", "1"),
    "alignment": ("mean squared distance of positive pairs on the unit sphere", "1"),
    "uniformity": ("log of the mean Gaussian potential of different candidates", "nats"),
    "rank": ("effective rank of the candidates", "dimensions"),
    "subnormal": ("push fraction of gradients below the smallest normal number of half precision", "1"),
    "zero": ("fraction of negatives with a weight of 0", "1"),
    "lost": ("fraction of pairs without a gradient", "1"),
    "overhead": ("time of the monitor so far", "percent"),
    "alarm": ("detectors that fire", "detectors"),
}


@dataclass(frozen=True)
class History:
    """A store that was read: its last header, and its records in order, those that were superseded left out."""

    header: Record
    records: tuple[dict[str, Any], ...]


def log_names(record: Record, directions: tuple[str, ...], widest: int | None) -> dict[str, float]:
    """Name the numbers of a record for a tracker.

    Args:
        record: of one step.
        directions: those of the run, in order: the first one has the short names.
        widest: largest width of the run; a smaller one is named.
    """
    width = record.get("width")
    prefix = "cocos/" if widest in {None, width} else f"cocos/width_{width}/"
    named = {f"{prefix}{name}": record[name] for name in STEP_METRICS if name in record}
    for k, direction in enumerate(directions):
        values = record.get("directions", {}).get(direction, {})
        start = prefix if k == 0 else f"{prefix}{direction}/"
        named |= {f"{start}{name}": values[name] for name in DIRECTION_METRICS if name in values}
    named[f"{prefix}alarm"] = len(record.get("alarms", ()))
    return {name: float(value) for name, value in named.items()}


def is_store(path: Path | str) -> bool:
    """Whether a path names a store, by its suffix."""
    return Path(path).suffix == SUFFIX


def path_of(store: Path | str) -> Path:
    """Check the path of a store before the training starts."""
    if not isinstance(store, str | os.PathLike):
        raise InputError(f"store: {type(store).__name__}, expected a path like run.jsonl")
    path = Path(store)
    if path.suffix != SUFFIX:
        raise InputError(f"store {path}: suffix {path.suffix!r}, expected {SUFFIX} (one JSON line per record)")
    try:
        if not path.parent.is_dir():
            raise InputError(f"store {path}: there is no folder {path.parent}; create it first")
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"store {path} is no regular file; name another one")
    except OSError as error:
        raise InputError(f"store {path}: {unreachable(error)}") from None
    return path


class Store:
    """Append records to a file; each is one write of a whole line.

    Its attribute `earlier` is the last step that the file has already; None: it has none.

    Args:
        path: of the file.
        header: of this run; the first line that is written.

    Raises:
        InputError: the file cannot be written, is no store, or belongs to another loss or eps.
    """

    def __init__(self, path: Path | str, header: Record):
        self.path, self.header, self._file, self._started = path_of(path), dict(header), -1, False
        there = self.path.exists() and self.path.stat().st_size > 0
        found: tuple[Record | None, list[dict[str, Any]]] = _read(self.path) if there else (None, [])
        if found[0] is not None:
            for name in AGREED:
                if found[0].get(name) != self.header.get(name):
                    raise InputError(
                        f"store {self.path} has records with {name} {found[0].get(name)!r:.200}, and this run has "
                        f"{self.header.get(name)!r}; name another file, or give this run the same {name}"
                    )
        self.earlier: int | None = max((each["step"] for each in found[1]), default=None)
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
            reason = unreachable(error) if isinstance(error, OSError) else str(error)
            raise InputError(f"store {self.path}: cannot be written ({reason})") from None
        self._open_line = there and not self._ends_a_line()

    def _ends_a_line(self) -> bool:
        with open(self.path, "rb") as stream:
            stream.seek(-1, os.SEEK_END)
            return stream.read(1) == b"\n"

    def append(self, record: Record) -> None:
        """Write one record, and before the first one the header."""
        lines = [record] if self._started else [self.header, record]
        for each in lines:
            line = json.dumps(each, allow_nan=False, separators=(",", ":")).encode() + b"\n"
            line = b"\n" + line if self._open_line else line
            self._started = False  # a line that fails is followed by a header, so that it can be told from damage
            self._open_line = os.write(self._file, line) < len(line)
            if self._open_line:
                raise OSError("the disk is full")
            self._started = True

    def close(self) -> None:
        """Close the file; a second time nothing happens."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _parse(line: bytes) -> dict[str, Any] | None:
    """The header or record of a line; None where it is neither."""
    with suppress(ValueError, RecursionError):
        found = json.loads(line, parse_constant=_refuse_constant)
        if isinstance(found, dict) and (_is_header(found) or _is_record(found)):
            return found
    return None


def _begins(line: bytes) -> bool:
    """Whether a line is the beginning of a header, possibly unfinished."""
    return line.startswith(FIRST_BYTES[: len(line.rstrip())])


def _is_header(found: dict[str, Any]) -> bool:
    return isinstance(found.get("cocos"), str)


def _is_record(found: dict[str, Any]) -> bool:
    """Whether a line is a record: what is read of it by its type is of that type."""
    directions, alarms = found.get("directions", {}), found.get("alarms", [])
    numbers = [found.get("step"), found.get("call", 0), 0 if found.get("width") is None else found["width"]]
    whole = all(isinstance(each, int) and not isinstance(each, bool) and abs(each) < 2**63 for each in numbers)
    named = isinstance(directions, dict) and all(isinstance(each, dict) for each in directions.values())
    return whole and named and isinstance(alarms, list) and all(isinstance(each, dict) for each in alarms)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as stream:
            if (size := os.fstat(stream.fileno()).st_size) > MOST_BYTES:
                raise InputError(f"{path} has {size:,} bytes, expected at most {MOST_BYTES:,} of a store")
            while line := stream.readline(MOST_LINE):
                yield _complete(path, line)
    except FileNotFoundError:
        raise InputError(f"{path}: file not found") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({unreachable(error)})") from None


def _complete(path: Path, line: bytes) -> bytes:
    """Refuse a line that is too long to end."""
    if len(line) == MOST_LINE and not line.endswith(b"\n"):
        raise InputError(f"{path} is no store of cocos: a line has {MOST_LINE:,} bytes or more")
    return line


def read(path: Path | str) -> History:
    """Read a store.

    A resumed run supersedes the records of earlier parts from its first step on. A line that a killed run left
    unfinished is dropped: the last one, or one before the header of a resumed run.

    Raises:
        InputError: file not found, or it is no store, or a damaged one.
    """
    path = Path(path)
    header, records = _read(path)
    if header is None:
        raise InputError(f"{path} is no store of cocos: it has no header")
    return History(header, tuple(records))


def _read(path: Path) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Read the last header of a store and its records; no header where the first line was never finished."""
    header: dict[str, Any] | None = None
    parts: list[list[dict[str, Any]]] = []
    torn = 0
    for number, line in enumerate(_lines(path), start=1):
        found = _parse(line)
        if header is None and found is not None and not _is_header(found):
            found = None
        if torn and not (_is_header(found) if found else _begins(line)):
            raise InputError(f"{path} is no store of cocos, or a damaged one: line {torn} is no record")
        torn = number if found is None else 0
        if header is None and not _begins(line):
            raise InputError(f"{path} is no store of cocos: it begins without a header")
        if found is not None and _is_header(found):
            header = found
            parts.append([])
        elif found is not None and header is not None:
            parts[-1].append(found)
    kept: list[dict[str, Any]] = []
    for part in parts:
        if part:
            kept = [each for each in kept if each["step"] < part[0]["step"]] + part
    return header, kept


def dataset(history: History) -> xr.Dataset:
    """Make a Dataset of the records of a training run: dims step and direction, and width where there are several.

    A number that a record lacks is NaN. A step that has several records, as in gradient accumulation, stands there as
    often.
    """
    found = history.records
    widths = list(dict.fromkeys(each["width"] for each in found if each.get("width") is not None)) or [None]
    rows: list[dict[int | None, Mapping]] = []  # by width; one that is not finite may have none
    last = None
    for each in found:
        call, width = (each["step"], each.get("call")), each.get("width") or widths[0]
        if call != last or width in rows[-1]:
            rows.append({})
        rows[-1][width] = each
        last = call
    names = list(dict.fromkeys(name for each in found for name in each.get("directions", ())))
    values = len(rows) * len(widths) * (len(STEP_METRICS) + len(names) * len(DIRECTION_METRICS))
    if values > MOST_VALUES:
        raise InputError(
            f"{len(rows):,} records with {len(names):,} directions and {len(widths):,} widths make {values:,} numbers, "
            f"expected at most {MOST_VALUES:,}"
        )
    steps = [next(iter(row.values()))["step"] for row in rows]
    several = len(widths) > 1
    dims, sizes = ("step", "width") if several else ("step",), (len(rows), len(widths)) if several else (len(rows),)
    made: dict[str, tuple] = {"step": ("step", np.array(steps, dtype=np.int64), "training step", "steps")}
    made["direction"] = ("direction", np.array(names or ["q2c"], dtype=str))
    if several:
        made["width"] = ("width", widths, "dimensions", "dimensions")
    whole = {name: np.full(sizes, np.nan) for name in STEP_METRICS}
    parts = {name: np.full((*sizes, len(names or [""])), np.nan) for name in DIRECTION_METRICS}
    for k, record in enumerate(rows):
        for width, numbers in record.items():
            at = (k, widths.index(width)) if several else (k,)
            for name, array in whole.items():
                array[at] = _finite(
                    len(numbers["alarms"]) if name == "alarm" and "alarms" in numbers else numbers.get(name)
                )
            for d, direction in enumerate(names):
                for name, array in parts.items():
                    array[(*at, d)] = _finite(numbers.get("directions", {}).get(direction, {}).get(name))
    for name, array in whole.items():
        if not np.isnan(array).all():
            made[name] = (dims, array, *STEP_METRICS[name])
    for name, array in parts.items():
        if name in ALWAYS_RECORDED or not np.isnan(array).all():
            made[name] = ((*dims, "direction"), array, *DIRECTION_METRICS[name])
    attrs = {name: value for name, value in history.header.items() if isinstance(value, str | int | float)}
    shares = [str(each["share"]) for each in found if isinstance(each.get("share"), str)]
    attrs["share"] = shares[-1] if shares else attrs.get("share", "unknown")
    return results.labelled(made, attrs, measure="monitor")


def _finite(value) -> float:
    """A finite number of a record; NaN for anything else."""
    return float(value) if isinstance(value, int | float) and abs(value) <= sys.float_info.max else math.nan
