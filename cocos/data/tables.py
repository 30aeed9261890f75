"""Tables in files: JSON lines, CSV, TSV and parquet, also gzipped, and saved datasets of Hugging Face."""

import contextlib
import csv
import gzip
import importlib
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cocos.base.errors import InputError

HEAD = 2**20  # bytes read to recognise a table
DELIMITERS = ("\t", ",", ";")
LIST_OF_OBJECTS = re.compile(r"\s*\[\s*\{")  # one JSON document, unlike a row that is a list
LIST_COLUMNS = ("anchor", "positive")  # names of the first two entries of a row that is a list; negatives follow


@dataclass(frozen=True, eq=False)
class Table:
    """A table in a file."""

    path: Path
    names: tuple[str, ...]  # of the columns
    rows: int
    column: Callable[[str], list[Any]]  # name -> one value per row
    line: Callable[[int], str]  # row -> its position in the file, such as `line 3`


def missing(value: Any) -> bool:
    """Return whether a cell has no value: null, NaN or empty text."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def require(*packages: str, path: Path) -> list[Any]:
    """Import the optional packages that read a file."""
    try:
        return [importlib.import_module(package) for package in packages]
    except ImportError:
        name = packages[0].partition(".")[0]
        raise InputError(f"{path}: reading it takes {name}: pip install 'cocos-metric[data]'") from None


@contextlib.contextmanager
def readable(path: Path | str, problem: str = "cannot be read", advice: str = "copy it again") -> Generator[None]:
    """Turn the errors of reading a file into one message with its path."""
    try:
        yield
    except InputError as error:
        raise error if str(path) in str(error) else type(error)(f"{path}: {error}") from None
    except UnicodeDecodeError as error:
        line = 1 + error.object[: error.start].count(b"\n")
        raise InputError(f"{path}, line {line}: not UTF-8 ({error.reason} at byte {error.start})") from None
    except Exception as error:  # libraries raise many types for a damaged file
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        raise InputError(f"{path}: {problem} ({reason}); {advice}") from None


def read_bytes(path: Path, size: int = -1) -> bytes:
    """Read the first bytes of a file, or all, decompressed if it is gzipped."""
    with open(path, "rb") as stream:
        is_gzip = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        return gzip.open(stream).read(size) if is_gzip else stream.read(size)


def read_text(path: Path) -> str:
    """Read a UTF-8 text file, which may be gzipped."""
    with readable(path):
        return read_bytes(path).decode("utf-8-sig")


def delimiter_of(head: bytes) -> str | None:
    """Return the delimiter in the first line of a text, or None."""
    line = head.partition(b"\n")[0].decode("utf-8-sig", "replace").rstrip("\r")
    if not line.replace("\t", " ").isprintable():
        return None
    return next((delimiter for delimiter in DELIMITERS if delimiter in line), None)


def column_names(path: Path) -> tuple[str, ...]:
    """Return the column names of a table, or the fields of its first row; empty if the file is not a table."""
    try:
        head = read_bytes(path, HEAD)
    except (OSError, EOFError, zlib.error):
        return ()
    if head.startswith(b"PAR1"):
        return read_parquet(path).names
    text = head.decode("utf-8-sig", "ignore").lstrip()
    with contextlib.suppress(csv.Error, ValueError, RecursionError):
        if text[:1] not in {"{", "["}:
            delimiter = delimiter_of(head)
            fields = next(csv.reader([text.partition("\n")[0]], delimiter=delimiter)) if delimiter else ()
            return tuple(field.strip() for field in fields)
        is_list = LIST_OF_OBJECTS.match(text) is not None
        row, end = json.JSONDecoder().raw_decode(text, text.index("{") if is_list else 0)
        if is_list or text[end:].strip():  # a single object is a setting
            return tuple(list_row(row) if isinstance(row, list) else row)
    return ()


def list_row(row: list) -> dict[str, Any]:
    """Name the entries of a row that is a list: an anchor, its positive, and hard negatives."""
    return {LIST_COLUMNS[k] if k < len(LIST_COLUMNS) else f"negative_{k - 1}": text for k, text in enumerate(row)}


def read_fields(path: Path, names: Sequence[str], *, header: int = 0) -> Iterator[tuple[str, ...]]:
    """Yield the named fields of each line of a text separated by blanks, after the line `header` with the names."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        fields = tuple(line.split())
        if number == header and fields != tuple(names):
            raise InputError(f"{path}, line {number}: {line.strip()[:60]!r}, expected the header {' '.join(names)}")
        if number <= header or not fields:
            continue
        if len(fields) != len(names):
            raise InputError(f"{path}, line {number}: {len(fields)} fields, expected {len(names)} ({', '.join(names)})")
        yield fields


def read(path: Path) -> Table:
    """Read a table: JSON lines, a JSON list of objects, CSV or TSV with a header, parquet, or a saved dataset."""
    if path.is_dir():
        return read_saved(path)
    with readable(path):
        head = read_bytes(path, HEAD)
    if head.startswith(b"PAR1"):
        return read_parquet(path)
    text = read_text(path)
    if text.lstrip()[:1] in {"{", "["}:
        return read_objects(path, text)
    if (delimiter := delimiter_of(head)) is None:
        raise InputError(f"{path}: not a table, expected JSON lines, text with a header (CSV, TSV) or parquet")
    return read_delimited(path, text, delimiter)


def read_parquet(path: Path) -> Table:
    """Open a parquet file, whose columns are read on demand."""
    (parquet,) = require("pyarrow.parquet", path=path)

    def column(name: str) -> list[Any]:
        with readable(path):
            return file.read([name]).column(0).to_pylist()

    with readable(path):
        file = parquet.ParquetFile(path)
    return Table(path, tuple(file.schema_arrow.names), file.metadata.num_rows, column, "row {}".format)


def read_saved(path: Path) -> Table:
    """Open a dataset that was saved with `save_to_disk`, whose columns are read on demand."""
    (datasets,) = require("datasets", path=path)
    with readable(path):
        rows = datasets.load_from_disk(str(path))
        return Table(path, tuple(rows.column_names), len(rows), lambda name: list(rows[name]), "row {}".format)


def read_objects(path: Path, text: str) -> Table:
    """Read JSON lines, or one JSON list, of objects or of lists of an anchor, its positive and its negatives."""
    rows: dict[str, Any] = {}
    if LIST_OF_OBJECTS.match(text):
        with readable(path):
            rows = {f"row {number}": row for number, row in enumerate(json.loads(text))}
    else:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                with readable(f"{path}, line {number}"):
                    rows[f"line {number}"] = json.loads(line)
    objects = [list_row(row) if isinstance(row, list) else row for row in rows.values()]
    for line, row in zip(rows, objects, strict=True):
        if not isinstance(row, dict):
            raise InputError(f"{path}, {line}: {str(row)[:60]!r}, expected an object such as {{'query': ..., ...}}")
    names = tuple(dict.fromkeys(name for row in objects for name in row))
    return Table(path, names, len(rows), lambda name: [row.get(name) for row in objects], list(rows).__getitem__)


def read_delimited(path: Path, text: str, delimiter: str) -> Table:
    """Read CSV or TSV."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        lines = [(f"line {reader.line_num}", row) for row in reader if row]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}; is a quotation mark missing?") from None
    header = [name.strip() for name in lines.pop(0)[1]]
    for line, row in lines:
        if len(row) != len(header):
            expected = f"expected {len(header)} ({', '.join(header[:8])})"
            raise InputError(f"{path}, {line}: {len(row)} fields, {expected}; quote a field with {delimiter!r}")
    columns = {name: [row[index] for _, row in lines] for index, name in enumerate(header)}
    empty = [""] * len(lines)
    return Table(path, tuple(header), len(lines), lambda name: columns.get(name, empty), lambda row: lines[row][0])
