"""Names and pictures for the rows of a file of embeddings, from a table beside it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from cocos.base.errors import InputError, nearest
from cocos.checkpoints._checkpoint import Checkpoint
from cocos.checkpoints.data import AnnotatedRows
from cocos.checkpoints.data._image_files import inside
from cocos.checkpoints.data._tables import Columns, missing, read
from cocos.embeddings import Embeddings

__all__ = ["named"]

# Columns of the table: of the queries, or of the samples of a labelled set; and of the candidates.
QUERY_COLUMNS = {"name": ("query_name", "name"), "image": ("query_image", "image")}
CANDIDATE_COLUMNS = {"name": ("candidate_name",), "image": ("candidate_image",)}
KNOWN_COLUMNS = ("query_name", "candidate_name", "query_image", "candidate_image", "name", "image")


def named(found: Checkpoint, path: Path) -> Checkpoint:
    """Give the rows of a file of embeddings the names and pictures of a table.

    Args:
        found: the file of embeddings.
        path: of the table: JSON lines, CSV or parquet, whose row k belongs to row k of each side. Its columns are
            `query_name`, `candidate_name`, and `query_image`, `candidate_image` with paths inside its folder; `name`
            and `image` stand for those of the queries, or of the samples of a labelled set.
    """
    if found.encoder is not None:
        raise InputError(
            f"names {path}: rows of {found.path} ({found.format}) are named by its data; leave --names out"
        )
    table = read(path)
    if not set(table.names) & set(KNOWN_COLUMNS):
        close = nearest("column", str(table.names[0]) if table.names else "", KNOWN_COLUMNS)
        raise InputError(f"names {path}: {close}; it has {', '.join(map(str, table.names[:8])) or 'no columns'}")

    def embedder(split: str, device: str, progress: Any) -> Embeddings:
        return _annotated(found.embed(split, device, progress), table)

    def rows(split: str) -> AnnotatedRows:
        return AnnotatedRows(embedder(split, "cpu", None), None)

    contents = found.contents | {"names": str(path)}
    return replace(found, embedder=embedder, rows=rows, contents=contents)


def _annotated(embeddings: Embeddings, table: Columns) -> Embeddings:
    """The embeddings with the names and pictures of a table, where it has them."""
    sides = (QUERY_COLUMNS, len(embeddings.query)), (CANDIDATE_COLUMNS, len(embeddings.candidate))
    given: dict[str, Any] = {}
    for field, what in (("names", "name"), ("pictures", "image")):
        held = getattr(embeddings, field) or (None, None)
        new = [_values(table, columns[what], number, what == "image") for columns, number in sides]
        both = [each if each is not None else old for each, old in zip(new, held, strict=True)]
        given[field] = (both[0], both[0]) if embeddings.shared else tuple(both)
    return replace(embeddings, **given)


def _values(table: Columns, names: tuple[str, ...], number: int, paths: bool) -> list[str] | None:
    """Read the values of a column, one for each row of a side; None where the table has no such column."""
    name = next((each for each in names if each in table.names), None)
    if name is None:
        return None
    values = table.column(name)
    while len(values) > number and missing(values[-1]):
        values = values[:-1]
    if len(values) != number:
        raise InputError(f"{table.path}: {len(values)} values of {name}, expected {number}, one for each row")
    found = []
    for row, value in enumerate(values):
        where = f"{table.path}, {table.line(row)}: {name}"
        if not missing(value) and (isinstance(value, list | dict | bytes) or (paths and not isinstance(value, str))):
            raise InputError(f"{where} is {str(value)[:60]!r}, expected text")
        said = "" if missing(value) else str(value)
        found.append(inside(table.path.parent, said, where) if paths and said else said)
    return found
