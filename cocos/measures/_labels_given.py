"""Labels of suspected pairs that a person has filled in, in a list that `cocos audit --out` wrote."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.base.writing import text_of
from cocos.checkpoints.tables import Columns, missing, read
from cocos.embeddings import Embeddings
from cocos.embeddings.marks import Mark, of

# Rule of the pairs that are labelled as belonging together.
LABELLED_RULE = "labelled"
LABELLED_COLUMNS = ("query", "candidate", "label")
# Spellings of a label: the pair belongs together, or does not.
YES, NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")


def given(labels: Path | str | Sequence | None, embeddings: Embeddings) -> tuple[dict[str, Mark], Mark | None]:
    """Marks of the pairs that belong together, and the mark of those that do not; none of pairs without a label.

    Args:
        labels: path of a list with columns query, candidate and label (1, 0 or empty), or rows of these.
        embeddings: whose rows are named, as the first direction has them.
    """
    if labels is None:
        return {}, None
    pairs: dict[bool, list[list[int]]] = {True: [], False: []}
    for where, query, candidate, label in _rows(labels):
        said = "" if label is None or missing(label) else text_of(str(label).strip()).lower()
        if said and said not in (*YES, *NO):
            raise InputError(f"{where}: label {str(label)[:40]!r}, expected 1, 0 or nothing")
        if said:
            pairs[said in YES].append([_number(where, query), _number(where, candidate)])
    if not (pairs[True] or pairs[False]):
        raise InputError("labels: no pair has a label; write 1 beside pairs that belong together, and 0 beside others")
    sizes = len(embeddings.query), len(embeddings.candidate)
    made = {belongs: of(LABELLED_RULE, _pairs(rows), *sizes) for belongs, rows in pairs.items() if rows}
    return ({LABELLED_RULE: made[True]} if True in made else {}), made.get(False)


def _pairs(rows: list[list[int]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 2)


def _rows(labels: Path | str | Sequence) -> list[tuple[str, Any, Any, Any]]:
    """Place, query, candidate and label of every row."""
    if isinstance(labels, str | Path):
        table: Columns = read(Path(labels))
        if lacking := [name for name in LABELLED_COLUMNS if name not in table.names]:
            raise InputError(
                f"labels {labels}: there is no column {lacking[0]}, expected {', '.join(LABELLED_COLUMNS)}"
            )
        columns = [table.column(name) for name in LABELLED_COLUMNS]
        where = [f"labels {labels}, {table.line(row)}" for row in range(len(columns[0]))]
        return list(zip(where, *columns, strict=True))
    try:
        triples = [tuple(map(int, each)) for each in labels]
    except (TypeError, ValueError):
        triples = [()]
    if any(len(each) != len(LABELLED_COLUMNS) for each in triples):
        raise InputError("labels: expected rows of a query, a candidate and a label, 1 or 0")
    return [(f"labels, row {row}", *each) for row, each in enumerate(triples)]


def _number(where: str, value: Any) -> int:
    """A row number as a table has it."""
    text = text_of(str(value).strip())
    if not text.isdecimal() or len(text) > 15:
        raise InputError(f"{where}: row {text[:40]!r}, expected the number of a row")
    return int(text)
