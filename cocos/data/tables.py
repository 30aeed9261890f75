"""Tables in files: JSON lines, delimited text and parquet, each row known by its line. Nothing in them is executed."""

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, Any, cast

from cocos.base.errors import InputError, unreachable
from cocos.base.untrusted import parsed

HEAD = 2**16  # bytes by which a file is recognised
DELIMITERS = ("\t", ",", ";")
# Names of the places of a row that is a list: an anchor, its positive, and its hard negatives.
PLACES = ("anchor", "positive")


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of one table.

    Args:
        path: of the file.
        names: of the columns.
        rows: number of rows.
        column: name -> its values, one a row.
        line: row -> where it stands in the file, such as `line 3`.
    """

    path: Path
    names: tuple[str, ...]
    rows: int
    column: Callable[[str], list[Any]]
    line: Callable[[int], str]


def missing(value: Any) -> bool:
    """Whether a cell has no value: null, NaN, or empty text."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


@contextmanager
def _readable(path: Path) -> Generator[None]:
    """Turn the errors of a damaged file into one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({unreachable(error) if error.strerror else error})") from None
    except (EOFError, zlib.error) as error:
        raise InputError(f"{path} is damaged ({error}); write or copy it again") from None


@contextmanager
def _unpacked(path: Path) -> Generator[IO[bytes]]:
    """Open the content of a file, which may be compressed."""
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        yield cast(IO[bytes], gzip.open(raw)) if packed else raw


def _head(path: Path) -> bytes:
    """Read the first bytes of a file, unpacked."""
    with _unpacked(path) as stream:
        return stream.read(HEAD)


def _form(head: bytes) -> str | None:
    """Tell the form of a table by the head of its file; None for anything else."""
    begin = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"PAR1"):
        return "parquet"
    if begin[:1] == b"{" or (begin[:1] == b"[" and begin[1:].lstrip()[:1] != b"{"):
        return "lines"
    if begin[:1] == b"[":
        return "list"
    first = begin.partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r")
    if first.isprintable() or first.replace("\t", " ").isprintable():
        return next((delimiter for delimiter in DELIMITERS if delimiter in first), None)
    return None


def looks_like_one(path: Path) -> bool:
    """Whether a file looks like a table: parquet, JSON lines, or text with a delimiter in its first line."""
    try:
        head = _head(path)
        form = _form(head)
        if form == "lines" and len(head) < HEAD:  # the whole file is here
            first, _, rest = head.strip().partition(b"\n")
            if isinstance(parsed(first), dict) and not rest:
                return False  # one object, such as a configuration: one row has no other that could be its negative
        return form is not None
    except (OSError, EOFError, zlib.error, ValueError):
        return False


def first_line(path: Path) -> tuple[str, ...]:
    """Read the fields of the first line of delimited text; none where a file is anything else."""
    try:
        head = _head(path)
        if (delimiter := _form(head)) not in DELIMITERS:
            return ()
        line = head.partition(b"\n")[0].decode("utf-8-sig").rstrip("\r")
        return tuple(each.strip() for each in next(csv.reader([line], delimiter=str(delimiter))))
    except (OSError, EOFError, zlib.error, csv.Error, ValueError):
        return ()


def fields(path: Path, names: Sequence[str], *, header: int = 0) -> Iterator[tuple[str, ...]]:
    """Yield the fields of each line of text in which blanks separate them.

    Args:
        path: of the file.
        names: of the fields; every line must have as many.
        header: number of the line that must hold the names, behind which the rows begin; 0: there is none.
    """
    with _readable(path):
        for number, text in enumerate(_text(path, _lines(path)), 1):
            found = tuple(text.split())
            if number == header and found != tuple(names):
                raise InputError(f"{path}, line {number}: {text.strip()[:60]!r}, expected the header {' '.join(names)}")
            if number <= header or not found:
                continue
            if len(found) != len(names):
                raise InputError(
                    f"{path}, line {number}: {len(found)} fields, expected {len(names)} ({', '.join(names)})"
                )
            yield found


def read(path: Path, names: Sequence[str] = ()) -> Columns:
    """Read a table: JSON lines (also a list of objects), text with a header, or parquet; text may be gzipped.

    Args:
        path: of the file.
        names: of the columns, where text has no header; its fields are then never quoted.
    """
    with _readable(path):
        head = _head(path)
        form = _form(head)
        if not head.strip():
            raise InputError(f"{path} is empty; expected a table with a row for each pair or text")
        if form is None:
            raise InputError(f"{path} is no table: expected JSON lines, text with a header (CSV, TSV) or parquet")
        if form == "parquet":
            return _parquet(path)
        if form in DELIMITERS:
            return _delimited(path, form, names)
        return _objects(path, _parsed(path) if form == "lines" else _listed(path))


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, unpacked."""
    with _unpacked(path) as stream:
        yield from stream


def _text(path: Path, lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start})") from None
        if "\0" in text:
            raise InputError(f"{path}, line {number}: a zero character")
        yield text


def _json(path: Path, where: str, text: str) -> Any:
    try:
        return parsed(text)
    except ValueError as error:
        raise InputError(f"{path}, {where}: no JSON ({error}): {text.strip()[:60]!r}") from None


def _parsed(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the row of each line, with the name of the line."""
    for number, text in enumerate(_text(path, _lines(path)), 1):
        if text.strip():
            yield f"line {number}", _json(path, f"line {number}", text)


def _listed(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of one JSON list, each with its number."""
    rows = _json(path, "the list in it", "".join(_text(path, _lines(path))))
    return ((f"row {place}", row) for place, row in enumerate(rows))


def _objects(path: Path, found: Iterator[tuple[str, Any]]) -> Columns:
    """Make a table of JSON objects, or of lists of an anchor, its positive and its negatives."""
    names: dict[str, None] = {}
    rows, places = [], []
    for place, each in found:
        row = each
        if isinstance(each, list):
            row = {PLACES[k] if k < len(PLACES) else f"negative_{k - 1}": text for k, text in enumerate(each)}
        if not isinstance(row, dict):
            raise InputError(f"{path}, {place}: {str(row)[:60]!r}, expected an object such as {{'query': ..., ...}}")
        names |= dict.fromkeys(row)
        rows.append(row)
        places.append(place)
    return Columns(path, tuple(names), len(rows), lambda name: [row.get(name) for row in rows], places.__getitem__)


def _delimited(path: Path, delimiter: str, names: Sequence[str]) -> Columns:
    """Read text with a header, or with columns of these names."""
    quoting = csv.QUOTE_NONE if names else csv.QUOTE_MINIMAL
    found = _fields(path, csv.reader(_text(path, _lines(path)), delimiter=delimiter, quoting=quoting))
    header = list(names) or [name.strip() for name in next(found)[1]]
    rows, places = [], []
    for number, row in found:
        rows.append(row)
        places.append(number)
        if len(row) != len(header):
            held = f"{len(row)} fields, expected {len(header)} ({', '.join(header[:8])})"
            raise InputError(f"{path}, line {number}: {held}; quote a field that holds {delimiter!r}")
    if twice := [name for name in header if header.count(name) > 1][:1]:
        raise InputError(f"{path}: column {twice[0]!r} stands twice in the first line, which names the columns")
    place = {name: k for k, name in enumerate(header)}
    return Columns(
        path,
        tuple(header),
        len(rows),
        lambda name: [row[place[name]] for row in rows],
        lambda row: f"line {places[row]}",
    )


def _fields(path: Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of delimited text with the numbers of their last lines; empty lines are left out."""
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}; is a quotation mark missing?") from None


def reason(error: Exception) -> str:
    """Shorten a library's error on a damaged file to one line."""
    said = " ".join(str(error).split())[:120] or type(error).__name__
    return "".join(each for each in said if each.isprintable())


def pyarrow(what: str, module: str = "pyarrow") -> ModuleType:
    """Import pyarrow, or a module of it, which reads columns; `what` is to be read, for the message."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"{what}: reading it takes pyarrow: pip install 'cocos-metric[data]'") from None


def _parquet(path: Path) -> Columns:
    """Open a parquet file; a column is read when it is asked for."""
    parquet, arrow = pyarrow(str(path), "pyarrow.parquet"), pyarrow(str(path))
    damaged = (arrow.ArrowException, OSError, ValueError)
    try:
        file = parquet.ParquetFile(path)
        names = tuple(file.schema_arrow.names)
    except damaged as error:
        raise InputError(f"{path} is a damaged parquet file ({reason(error)}); write it again") from None

    def column(name: str) -> list[Any]:
        try:
            values = file.read([name]).column(0).to_pylist()
        except damaged as error:
            raise InputError(f"{path}, {name}: damaged ({reason(error)}); write it again") from None
        if len(values) != file.metadata.num_rows:
            rows = file.metadata.num_rows
            raise InputError(f"{path}, {name}: damaged ({len(values)} values in {rows} rows); write it again")
        return values

    return Columns(path, names, file.metadata.num_rows, column, lambda row: f"row {row}")
