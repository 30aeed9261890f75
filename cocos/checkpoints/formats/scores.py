"""Scores without vectors: a matrix in .npz or .safetensors; a long table; a TREC run.

A table has the columns `query, candidate, score, label[, logq]`. A run has lines `query Q0 candidate rank score tag`.
Its judgements are next to it or given as `--data`: TREC's `query 0 candidate grade`, the folder of a BEIR data set, or
one of its `qrels` files.
"""

import math
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError, nearest
from cocos.checkpoints.checkpoint import Checkpoint, holding
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import embeddings
from cocos.data import tables
from cocos.embeddings.scores import NO_BATCHES, Scores

ARRAYS = ("scores", "positive", "negative", "query_group", "candidate_group", "logq", "reference", "grade")
TABLE_COLUMNS, OPTIONAL_COLUMNS = ("query", "candidate", "score", "label"), ("logq", "reference", "grade")
TEXT_KINDS = ("text", "gzip", "unknown")  # of tables and runs; parquet is unknown
RUN, QRELS = ("query", "Q0", "candidate", "rank", "score", "tag"), ("query", "iteration", "candidate", "grade")
# First line of the judgements of a BEIR data set.
BEIR = ("query-id", "corpus-id", "score")
# Judgements in the folder of a run or of a data set, in the order of the search.
SPLITS = ("test.tsv", "dev.tsv", "train.tsv")
JUDGEMENTS = (*(f"qrels/{name}" for name in SPLITS), "qrels", "qrels.txt", *SPLITS)


@dataclass(frozen=True, eq=False)
class ListedNames:
    """Names of queries and candidates."""

    queries: Sequence[str]
    candidates: Sequence[str]

    def texts(self, direction: str) -> tuple[Callable[[int], str], Callable[[int], str]]:
        """Return functions that map a row to the name of a query and of a candidate."""
        return self.queries.__getitem__, self.candidates.__getitem__

    def pictures(self, direction: str) -> tuple[None, None]:
        """Return no pictures."""
        return None, None


def sniff(file: File) -> bool:
    """Recognise an array `scores`, a table with a column of scores, or a TREC run."""
    if file.kind in {"npz", "safetensors"} or (file.kind == "torch" and isinstance(file.content, dict)):
        names = set(embeddings.names_in(file))
        return "scores" in names and not {"query", "candidate", "embeddings"} & names
    if file.kind not in TEXT_KINDS:
        return False
    columns = tables.column_names(file.path)
    return is_run(file) or ("score" in columns and bool({"query", "candidate"} & set(columns)))


def is_run(file: File) -> bool:
    """Return whether the first line of a text is one of a TREC run."""
    fields = first_line(file.path).split() if file.kind in TEXT_KINDS else []
    return len(fields) == len(RUN) and fields[1].upper() == "Q0"


def first_line(path: Path) -> str:
    """Return the first line of a text, which may be gzipped; empty if it cannot be unpacked."""
    try:
        return tables.read_bytes(path, 2**16).partition(b"\n")[0].decode("utf-8-sig", "replace")
    except (OSError, EOFError, zlib.error):
        return ""


def load(file: File, data=None) -> Checkpoint:
    """Read scores; `data` are the judgements of a run."""
    run = is_run(file)
    if data is not None and not run:
        raise InputError(f"data {data}: {file.path} contains scores with their labels and needs no data")
    try:
        scores = read_run(file, data) if run else read_table(file) if file.kind in TEXT_KINDS else read_matrix(file)
    except InputError as error:
        raise error if str(file.path) in str(error) else type(error)(f"{file.path}: {error}") from None
    return Checkpoint.of(
        file,
        "scores",
        {
            "queries": len(scores.scores),
            "longest list": scores.scores.shape[1],
            "kind": "TREC run" if run else "scores",
        },
        embedder=holding(file.path, "scores", lambda: scores, ("train", "test") if run else ("train",)),
        rows=lambda _: scores.names and ListedNames(*scores.names),
        begin_with="logq_softmax" if scores.logq is not None else "ntxent",
    )


def read_matrix(file: File) -> Scores:
    """Read a matrix of scores, and its masks, groups and other arrays."""
    names = embeddings.names_in(file)
    for name in names:
        if name not in ARRAYS:
            raise InputError(nearest("array", str(name)[:40], ARRAYS))
    arrays = embeddings.arrays_of(file, names)
    return Scores(**{name: embeddings.tensor(file, name, array) for name, array in arrays.items()})


@dataclass(frozen=True, eq=False)
class Lists:
    """Lists of candidates, one per query, padded to the longest.

    Args:
        names: of the queries and of the candidates, in the order of their first rows.
        query: (rows,) query of each row of the file.
        place: (rows,) position of each row in the list of its query.
        candidate_index: (Q, C) candidate at each position, -1 for padding; None if all lists have the same candidates
            in the same order.
    """

    names: tuple[list[str], list[str]]
    query: Tensor
    place: Tensor
    candidate_index: Tensor | None

    @classmethod
    def of(cls, lines: Sequence[str], queries: Sequence[str], candidates: Sequence[str]) -> "Lists":
        """Sort rows into lists; `lines` are their positions in the file, for messages."""
        query_numbers = {name: number for number, name in enumerate(dict.fromkeys(queries))}
        candidate_numbers = {name: number for number, name in enumerate(dict.fromkeys(candidates))}
        lengths: Counter[str] = Counter()
        places, pairs = [], set()
        for line, query, candidate in zip(lines, queries, candidates, strict=True):
            if (query, candidate) in pairs:
                raise InputError(f"{line}: query {query[:40]!r} and candidate {candidate[:40]!r} are paired twice")
            pairs.add((query, candidate))
            places.append(lengths[query])
            lengths[query] += 1
        query_of_row = torch.tensor([query_numbers[name] for name in queries])
        lists = cls((list(query_numbers), list(candidate_numbers)), query_of_row, torch.tensor(places), None)
        index = lists.pad([candidate_numbers[name] for name in candidates], -1).long()
        same = torch.equal(index, torch.arange(index.shape[1]).expand_as(index))
        return lists if same else cls(lists.names, lists.query, lists.place, index)

    def pad(self, values: Sequence[float], padding: float = 0) -> Tensor:
        """Return one value per row as (Q, C) in float64."""
        shape = len(self.names[0]), int(self.place.max()) + 1
        matrix = torch.full(shape, float(padding), dtype=torch.float64)
        matrix[self.query, self.place] = torch.tensor(values, dtype=torch.float64)
        return matrix


def read_table(file: File) -> Scores:
    """Read a table with a row for each query and candidate."""
    table = tables.read(file.path)
    if missing := [name for name in TABLE_COLUMNS if name not in table.names]:
        expected = ", ".join(TABLE_COLUMNS)
        raise InputError(f"{file.path}: there is no column {missing[0]!r}, expected {expected} and optionally logq")
    if not table.rows:
        raise InputError(f"{file.path} has no rows, expected one for each query and candidate")
    lines = [f"{file.path}, {table.line(row)}" for row in range(table.rows)]
    names = ("score", "label", *(name for name in OPTIONAL_COLUMNS if name in table.names))
    columns = {name: read_numbers(lines, name, table.column(name)) for name in names}
    pairs = list(zip(table.column("query"), table.column("candidate"), strict=True))
    for line, pair, label in zip(lines, pairs, columns["label"], strict=True):
        if any(map(tables.missing, pair)):
            raise InputError(f"{line}: query or candidate is empty")
        if label not in {0, 1}:
            raise InputError(f"{line}: label {label:g}, expected 1 or 0")
    candidates = [str(candidate) for _, candidate in pairs]
    lists = Lists.of(lines, [str(query) for query, _ in pairs], candidates)
    matrices = {name: lists.pad(values) for name, values in columns.items() if name in {"reference", "grade"}}
    if "logq" in columns:
        logq: dict[str, float] = {}
        for line, candidate, value in zip(lines, candidates, columns["logq"], strict=True):
            if logq.setdefault(candidate, value) != value:
                raise InputError(f"{line}: logq {value:g} of candidate {candidate[:40]!r}, before {logq[candidate]:g}")
        matrices["logq"] = torch.tensor([logq[name] for name in lists.names[1]], dtype=torch.float64)
    labels = lists.pad(columns["label"], -1)
    if lonely := (~(labels == 1).any(dim=1)).nonzero().flatten().tolist():
        queries = ", ".join(repr(lists.names[0][row][:40]) for row in lonely[:3])
        raise InputError(f"{file.path}: query without any positive: {queries}: no row has label 1 ({len(lonely)} such)")
    return Scores(
        lists.pad(columns["score"]),
        labels == 1,
        negative=labels == 0,
        candidate_index=lists.candidate_index,
        names=lists.names,
        **matrices,
    )


def read_numbers(lines: Sequence[str], name: str, column: Sequence[Any]) -> list[float]:
    """Convert a column to finite numbers."""
    numbers = []
    for line, value in zip(lines, column, strict=True):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise InputError(f"{line}: {name} {str(value)[:40]!r}, expected a finite number")
        numbers.append(number)
    return numbers


def read_run(file: File, data: Any) -> Scores:
    """Read a TREC run and the judgements of its queries."""
    path, judgements = read_judgements(file.path, data)
    rows = [(f"{file.path}, row {row}", *fields) for row, fields in enumerate(tables.read_fields(file.path, RUN))]
    order = {query: number for number, query in enumerate(judgements)}  # two runs then have their queries in one order
    rows = sorted((row for row in rows if row[1] in order), key=lambda row: order[row[1]])
    if not rows:
        raise InputError(f"{file.path}: none of its queries is judged in {path}, such as {next(iter(order))[:40]!r}")
    lines, queries, _, candidates, _, scores, _ = (list(column) for column in zip(*rows, strict=True))
    lists = Lists.of(lines, queries, candidates)
    pairs = list(zip(queries, candidates, strict=True))
    grade = lists.pad([judgements[query].get(candidate, 0) for query, candidate in pairs])
    is_padding = lists.pad([0] * len(rows), 1).bool()
    unjudged = lists.pad([candidate not in judgements[query] for query, candidate in pairs]).nonzero()
    listed = set(pairs)
    unlisted = [
        [grade for candidate, grade in judgements[query].items() if grade > 0 and (query, candidate) not in listed]
        for query in lists.names[0]
    ]
    width = max(1, *map(len, unlisted))
    note = f"{len(lists.names[0])} queries of the run are judged in {path}"
    if absent := len(judgements) - len(lists.names[0]):
        note += f"; {absent} judged queries are not in the run"
    notes = [NO_BATCHES, note]
    if same := sum(query == candidate for query, candidate in pairs):
        notes.append(
            f"{same} of {len(lists.names[0])} queries rank a document with their own id, which counts like any other, "
            "as in trec_eval; BEIR and MTEB remove it"
        )
    return Scores(
        lists.pad(read_numbers(lines, "score", scores)),
        (grade > 0) & ~is_padding,
        negative=(grade <= 0) & ~is_padding,
        grade=grade.clamp(min=0),
        unlisted=torch.tensor([grades + [0.0] * (width - len(grades)) for grades in unlisted], dtype=torch.float64),
        marks={"unjudged": unjudged} if len(unjudged) else None,
        candidate_index=lists.candidate_index,
        names=lists.names,
        notes=tuple(notes),
    )


def read_judgements(run: Path, data: Any) -> tuple[Path, dict[str, dict[str, float]]]:
    """Return the path of the judgements, and the grades by query and candidate."""
    path = run.parent if data is None else Path(data)
    if path.is_dir():
        files = [path / name for name in JUDGEMENTS if (path / name).is_file()]
        if not files:
            expected = "qrels.txt or qrels/test.tsv; add --data QRELS or the folder of a BEIR data set"
            raise InputError(f"{run} is a TREC run without judgements: {path} has no {expected}")
        path = files[0]
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    if tuple(first_line(path).split()) == BEIR:
        rows = list(tables.read_fields(path, BEIR, header=1))
    else:
        rows = [(query, candidate, grade) for query, _, candidate, grade in tables.read_fields(path, QRELS)]
    lines = [f"{path}, row {row}" for row in range(len(rows))]
    grades = read_numbers(lines, "grade", [grade for _, _, grade in rows])
    judgements: dict[str, dict[str, float]] = {}
    for line, (query, candidate, _), grade in zip(lines, rows, grades, strict=True):
        if candidate in judgements.setdefault(query, {}):
            raise InputError(f"{line}: query {query[:40]!r} and candidate {candidate[:40]!r} are judged twice")
        judgements[query][candidate] = grade
    if not judgements:
        raise InputError(f"{path} contains no judgements")
    return path, judgements
