"""Scores without vectors: a matrix in .npz, .safetensors or a torch file; a long table; a TREC run.

A table has the columns `query, candidate, score, label[, logq]`. A run has lines `query Q0 candidate rank score tag`.
Its judgements are next to it or given as `--data`: TREC's `query 0 candidate grade`, the folder of a BEIR data set, or
one of its `qrels` files.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError, nearest, prefixed
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats.embeddings import read_arrays
from cocos.data import tables
from cocos.embeddings.scores import NO_BATCHES, Scores

ARRAYS = ("scores", "positive", "negative", "query_group", "candidate_group", "logq", "reference", "grade")
TABLE_COLUMNS, OPTIONAL_COLUMNS = ("query", "candidate", "score", "label"), ("logq", "reference", "grade")
TEXT_KINDS = ("text", "gzip", "unknown")  # of tables and runs; parquet is unknown
RUN, QRELS = ("query", "Q0", "candidate", "rank", "score", "tag"), ("query", "iteration", "candidate", "grade")
# First line of the judgements of a BEIR data set.
BEIR = ("query-id", "corpus-id", "score")
# Judgements in the folder of a run or of a data set, in the order of the search.
JUDGEMENTS = ("qrels/test.tsv", "qrels/dev.tsv", "qrels", "qrels.txt", "test.tsv")


def sniff(file: File) -> bool:
    """Recognise an array `scores`, a table with a column of scores, or a TREC run."""
    if file.kind not in TEXT_KINDS:
        return "scores" in file.arrays and not {"query", "candidate", "embeddings"} & set(file.arrays)
    columns = tables.column_names(file.path)
    return is_run(file) or ("score" in columns and bool({"query", "candidate"} & set(columns)))


def is_run(file: File) -> bool:
    """Return whether the first line of a text is one of a TREC run."""
    fields = first_fields(file.path) if file.kind == "text" else []
    return len(fields) == len(RUN) and fields[1].upper() == "Q0"


def first_fields(path: Path) -> list[str]:
    """Return the fields of the first line of a text."""
    with open(path, encoding="utf-8-sig", errors="replace") as stream:
        return stream.readline(2**16).split()


def load(file: File, data=None) -> Checkpoint:
    """Read scores; `data` are the judgements of a run."""
    run = is_run(file)
    if data is not None and not run:
        raise InputError(f"data {data}: {file.path} contains scores with their labels and needs no data")
    with prefixed(str(file.path)):
        scores = read_run(file, data) if run else read_table(file) if file.kind in TEXT_KINDS else read_matrix(file)
    texts = tuple(names.__getitem__ for names in scores.names or ())
    rows = SimpleNamespace(texts=lambda direction: texts, pictures=lambda direction: (None, None)) if texts else None
    contents = {"queries, longest list": list(scores.scores.shape), "kind": "TREC run" if run else "scores"}
    options = {"rows": lambda: rows, "first_loss": "ntxent" if scores.logq is None else "logq_softmax"}
    return Checkpoint(file.path, file.sha256, "scores", contents, lambda *_: scores, **options)


def read_matrix(file: File) -> Scores:
    """Read a matrix of scores, and its masks, groups and other arrays."""
    if unknown := [name for name in file.arrays if name not in ARRAYS]:
        raise InputError(nearest("array", str(unknown[0])[:40], ARRAYS))
    return Scores(**read_arrays(file, {name: name for name in file.arrays}))


@dataclass(frozen=True, eq=False)
class Lists:
    """Lists of candidates, one per query, padded to the longest."""

    names: tuple[list[str], list[str]]  # of the queries and of the candidates, in the order of their first rows
    query: np.ndarray  # (rows,) query of each row of the file
    candidate: np.ndarray  # (rows,) candidate of each row
    position: np.ndarray  # (rows,) of each row in the list of its query

    @classmethod
    def read(cls, queries: Sequence[Any], candidates: Sequence[Any]) -> "Lists":
        """Sort rows into lists."""
        names, index = [], []
        for column in (queries, candidates):
            texts = list(map(str, column))
            numbers = {name: number for number, name in enumerate(dict.fromkeys(texts))}
            names.append(list(numbers))
            index.append(np.fromiter(map(numbers.__getitem__, texts), np.int64, len(texts)))
        query, candidate = index
        pair = query * len(names[1]) + candidate
        order = np.argsort(pair, kind="stable")
        if len(repeated := order[1:][np.diff(pair[order]) == 0]):
            row = int(repeated.min())
            raise InputError(f"query {queries[row]!r} and candidate {candidates[row]!r} are paired twice")
        order, lengths = np.argsort(query, kind="stable"), np.bincount(query)
        position = np.empty_like(query)
        position[order] = np.arange(len(query)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return cls((names[0], names[1]), query, candidate, position)

    def pad(self, values: Any, padding: float = 0) -> Tensor:
        """Return one value per row as (Q, C) in float64."""
        matrix = np.full((len(self.names[0]), int(self.position.max()) + 1), float(padding))
        matrix[self.query, self.position] = values
        return torch.from_numpy(matrix)

    def scores(self, columns: dict[str, Any], **options: Any) -> Scores:
        """Return the scores of the lists; `columns` of all rows are `score`, `label` (1 or 0) and others."""
        index = self.pad(self.candidate, -1).long()
        is_one_list = torch.equal(index, torch.arange(index.shape[1]).expand_as(index))
        labels = self.pad(columns["label"], -1)
        matrices = {name: self.pad(values) for name, values in columns.items() if name not in {"score", "label"}}
        options |= {"candidate_index": None if is_one_list else index, "names": self.names}
        return Scores(self.pad(columns["score"]), labels == 1, negative=labels == 0, **matrices, **options)


def read_numbers(line: Callable[[int], str], name: str, column: Sequence[Any]) -> np.ndarray:
    """Convert a column to finite numbers."""
    try:
        numbers = np.array(column, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: {error}, expected finite numbers") from None
    if len(wrong := np.flatnonzero(~np.isfinite(numbers))):
        raise InputError(f"{line(wrong[0])}: {name} {column[wrong[0]]!r}, expected a finite number")
    return numbers


def read_table(file: File) -> Scores:
    """Read a table with a row for each query and candidate."""
    table = tables.read(file.path)
    if missing := [name for name in TABLE_COLUMNS if name not in table.names or not table.rows]:
        raise InputError(f"there is no column {missing[0]!r}, expected {', '.join(TABLE_COLUMNS)}, optionally logq")
    names = ("score", "label", *(name for name in OPTIONAL_COLUMNS if name in table.names))
    columns = {name: read_numbers(table.line, name, table.column(name)) for name in names}
    label = columns["label"]
    if len(wrong := np.flatnonzero((label != 0) & (label != 1))):
        raise InputError(f"{table.line(wrong[0])}: label {label[wrong[0]]:g}, expected 1 or 0")
    lists = Lists.read(table.column("query"), table.column("candidate"))
    logq = None
    if "logq" in columns:
        logq = torch.empty(len(lists.names[1]), dtype=torch.float64)
        logq[lists.candidate] = torch.from_numpy(columns.pop("logq"))
    return lists.scores(columns, logq=logq)


def read_run(file: File, data: Any) -> Scores:
    """Read a TREC run and the judgements of its queries."""
    path, judgements = read_judgements(file.path, data)
    order = {query: number for number, query in enumerate(judgements)}  # two runs then have their queries in one order
    rows = [fields for fields in tables.read_fields(file.path, RUN) if fields[0] in order]
    if not rows:
        raise InputError(f"none of its queries is judged in {path}")
    queries, _, candidates, _, scores, _ = zip(*sorted(rows, key=lambda row: order[row[0]]), strict=True)
    lists, pairs = Lists.read(queries, candidates), list(zip(queries, candidates, strict=True))
    grade = np.array([judgements[query].get(candidate, 0) for query, candidate in pairs], dtype=np.float64)
    score = read_numbers("row {} of the judged queries".format, "score", scores)
    unjudged = lists.pad([candidate not in judgements[query] for query, candidate in pairs]).nonzero()
    for query, candidate in pairs:
        judgements[query].pop(candidate, None)
    unlisted = [[grade for grade in judgements[query].values() if grade > 0] for query in lists.names[0]]
    width = max(1, *map(len, unlisted))
    note = f"{len(lists.names[0])} of {len(judgements)} queries judged in {path} are in the run"
    return lists.scores(
        {"score": score, "label": grade > 0, "grade": grade.clip(0)},
        unlisted=torch.tensor([grades + [0.0] * (width - len(grades)) for grades in unlisted], dtype=torch.float64),
        marks={"unjudged": unjudged} if len(unjudged) else None,
        notes=(NO_BATCHES, note),
    )


def read_judgements(run: Path, data: Any) -> tuple[Path, dict[str, dict[str, float]]]:
    """Return the path of the judgements, and the grades by query and candidate."""
    path = run.parent if data is None else Path(data)
    if path.is_dir():
        path = next((path / name for name in JUDGEMENTS if (path / name).is_file()), path / "qrels.txt")
    if not path.is_file():
        raise InputError(f"{run} is a TREC run without judgements: there is no {path}; add --data QRELS")
    if tuple(first_fields(path)) == BEIR:
        rows = list(tables.read_fields(path, BEIR, header=1))
    else:
        rows = [(query, candidate, grade) for query, _, candidate, grade in tables.read_fields(path, QRELS)]
    grades = read_numbers(f"{path}, row {{}}".format, "grade", [grade for _, _, grade in rows])
    judgements: dict[str, dict[str, float]] = {}
    for (query, candidate, _), grade in zip(rows, grades.tolist(), strict=True):
        judgements.setdefault(query, {})[candidate] = grade
    return path, judgements
