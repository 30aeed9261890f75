"""Scores without vectors: a matrix in .npz, .npy or .safetensors; a long table; a TREC run.

A table has the columns `query, candidate, score, label[, logq]`. A run has lines `query Q0 candidate rank score tag`,
and its judgements lie beside it or are named with `--data`: TREC's `query 0 candidate grade`, the folder of a BEIR data
set, or a file of its `qrels`.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cocos.base.errors import InputError, nearest
from cocos.checkpoints.checkpoint import Checkpoint, holding
from cocos.checkpoints.files import File, reading
from cocos.checkpoints.formats import embeddings
from cocos.data import tables
from cocos.data.tables import Table, missing
from cocos.embeddings.matrices import npy_header
from cocos.embeddings.scored import NO_BATCHES, Scores

ARRAYS = ("scores", "positive", "negative", "query_group", "candidate_group", "logq", "reference", "grade")
LONG, MORE = ("query", "candidate", "score", "label"), ("logq", "reference", "grade")
RUN, QRELS = ("query", "Q0", "candidate", "rank", "score", "tag"), ("query", "iteration", "candidate", "grade")
# First line of the judgements of a BEIR data set, and its splits in the order of preference.
BEIR = ("query-id", "corpus-id", "score")
SPLITS = ("test", "dev", "train")
# Names under which judgements may lie beside a run.
BESIDE = ("qrels", "qrels.txt", "qrels.tsv", "qrels.trec")
# Places of all lists together, padded to the longest: 2 GiB in float64.
MOST_PLACES = 2**28


@dataclass(frozen=True, eq=False)
class ListedNames:
    """Names of queries and of candidates, as the file has them."""

    queries: Sequence[str]
    candidates: Sequence[str]

    def texts(self, direction: str) -> tuple[Callable[[int], str], Callable[[int], str]]:
        """Return functions of a row that give the name of a query and of a candidate."""
        return self.queries.__getitem__, self.candidates.__getitem__

    def pictures(self, direction: str) -> tuple[None, None]:
        """There are none."""
        return None, None


def sniff(file: File) -> bool:
    """Scores of queries and candidates: an array, a table, or the lines of a TREC run."""
    if file.kind in {"npz", "safetensors"} or (file.kind == "torch" and isinstance(file.content, dict)):
        names = set(embeddings.names_in(file))
        return "scores" in names and not {"query", "candidate", "embeddings"} & names
    if file.kind == "npy":
        # Candidate i can be the positive of query i; an array that is not square is one side of embeddings.
        with open(file.path, "rb") as stream:
            try:
                shape, _, dtype = npy_header(stream)
            except Exception:  # numpy has several for a damaged header
                return False
        return len(shape) == 2 and shape[0] == shape[1] and dtype.kind in "fiu"
    return file.kind in {"text", "gzip", "unknown"} and (_is_run(file) or _is_table(file))


def _first(file: File) -> str:
    """The first line of text; empty of anything else."""
    with open(file.path, "rb") as stream:
        try:
            return stream.readline(2**16).decode("utf-8-sig").strip()
        except UnicodeDecodeError:
            return ""


def _is_run(file: File) -> bool:
    fields = _first(file).split()
    return len(fields) == len(RUN) and fields[1].upper() == "Q0" and _is_number(fields[4])


def _is_number(value: Any) -> bool:
    """Whether a field is a number, also one that is not finite: that is refused where it is read."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)


def _is_table(file: File) -> bool:
    """Columns of scores."""
    first = _first(file)
    if first.startswith("{"):
        try:
            row = json.loads(first)
        except ValueError:
            return False
        names = set(row) if isinstance(row, dict) else set()
    elif file.kind == "unknown" and not first:
        with open(file.path, "rb") as stream:
            names = set(tables.column_names(file.path)) if stream.read(4) == b"PAR1" else set()
    else:
        names = set(tables.column_names(file.path))
    return "score" in names and bool({"query", "candidate"} & names)


def load(file: File, data=None) -> Checkpoint:
    """Read scores; `data` are the judgements of a run."""
    if run := file.kind in {"text", "gzip", "unknown"} and _is_run(file):
        found, judged = _run(file, data), True
    elif data is not None:
        raise InputError(f"data {data}: {file.path} holds scores with their labels and needs no data")
    else:
        judged = False
        try:
            found = _matrix(file) if file.kind not in {"text", "gzip", "unknown"} else _table(file)
        except InputError as error:
            raise error if str(file.path) in str(error) else type(error)(f"{file.path}: {error}") from None

    contents = {
        "queries": len(found.scores),
        "longest list": found.scores.shape[1],
        "kind": "TREC run" if run else "scores",
    }
    return Checkpoint.of(
        file,
        "scores",
        contents,
        embedder=holding(file.path, "scores", lambda: found, ("train", "test") if judged else ("train",)),
        rows=lambda _: found.names and ListedNames(*found.names),
        begin_with="logq_softmax" if found.logq is not None else "ntxent",
    )


def _matrix(file: File) -> Scores:
    """Scores of an array, with masks, groups and more beside it."""
    if file.kind == "npy":
        return Scores(_npy(file))
    names = embeddings.names_in(file)
    for name in names:
        if name not in ARRAYS:
            raise InputError(f"{file.path}: {nearest('array', str(name)[:40], ARRAYS)}")
    arrays = embeddings.npz(file, names) if file.kind == "npz" else dict(file.content)
    return Scores(**{name: embeddings.tensor(file, name, value) for name, value in arrays.items()})


def _npy(file: File) -> torch.Tensor:
    with reading(file):
        values = np.load(file.path, allow_pickle=False)
        return torch.from_numpy(np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="))))


def _table(file: File) -> Scores:
    table = tables.read(file.path)
    if lacking := [name for name in LONG if name not in table.names]:
        raise InputError(
            f"{file.path}: there is no column {lacking[0]!r}, expected {', '.join(LONG)} and optionally logq"
        )
    if not table.rows:
        raise InputError(f"{file.path} has no rows, expected one for each query and candidate")
    labels = _numbers(file.path, table, "label")
    for row, label in enumerate(labels):
        if label not in {0, 1}:
            raise InputError(f"{file.path}, {table.line(row)}: label {label:g}, expected 1 or 0")
    lists = _Lists()
    more = {name: _numbers(file.path, table, name) for name in MORE if name in table.names}
    keys = zip(table.column("query"), table.column("candidate"), _numbers(file.path, table, "score"), strict=True)
    logq: dict[int, float] = {}
    for row, (query, candidate, score) in enumerate(keys):
        where = f"{file.path}, {table.line(row)}"
        if missing(query) or missing(candidate):
            raise InputError(f"{where}: query or candidate is empty")
        index = lists.add(where, str(query), str(candidate), score, row)
        if "logq" in more and logq.setdefault(index, more["logq"][row]) != more["logq"][row]:
            raise InputError(
                f"{where}: logq {more['logq'][row]:g} of candidate {str(candidate)[:40]!r}, before {logq[index]:g}"
            )
    rows = lists.padded(file.path, [place for own in lists.rows for place in own], -1).long()
    there, at = rows >= 0, rows.clamp(min=0)
    label = torch.tensor(labels)[at].bool()
    given = {name: torch.tensor(more[name], dtype=torch.float64)[at] for name in ("reference", "grade") if name in more}
    if more.get("logq"):
        given["logq"] = torch.tensor([logq[k] for k in range(len(logq))], dtype=torch.float64)
    lonely = (~(label & there).any(dim=1)).nonzero().flatten().tolist()
    if lonely:
        some = ", ".join(repr(list(lists.queries)[row][:40]) for row in lonely[:3])
        raise InputError(
            f"{file.path}: query without any positive: {some}: no row of it has label 1 ({len(lonely)} such)"
        )
    return Scores(
        lists.padded(file.path, [score for own in lists.scores for score in own], 0.0),
        label & there,
        negative=~label & there,
        candidate_index=lists.index(file.path),
        names=lists.names,
        **given,
    )


def _numbers(path: Path, table: Table, name: str) -> list[float]:
    """The values of a column as finite numbers."""
    found = []
    for row, value in enumerate(table.column(name)):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise InputError(f"{path}, {table.line(row)}: {name} {str(value)[:40]!r}, expected a finite number")
        found.append(number)
    return found


class _Lists:
    """Lists of candidates, one a query, in the order of their rows."""

    def __init__(self) -> None:
        self.queries: dict[str, int] = {}
        self.candidates: dict[str, int] = {}
        self.scores: list[list[float]] = []
        self.rows: list[list[int]] = []
        self.listed: list[dict[int, int]] = []

    def add(self, where: str, query: str, candidate: str, score: float, row: int) -> int:
        """Add a pair, and return the number of its candidate; a pair that is there already is refused."""
        place = self.queries.setdefault(query, len(self.queries))
        if place == len(self.scores):
            self.scores.append([])
            self.rows.append([])
            self.listed.append({})
        index = self.candidates.setdefault(candidate, len(self.candidates))
        if index in self.listed[place]:
            raise InputError(f"{where}: query {query[:40]!r} and candidate {candidate[:40]!r} are paired a second time")
        self.listed[place][index] = len(self.scores[place])
        self.scores[place].append(score)
        self.rows[place].append(row)
        return index

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Names of the queries and of the candidates."""
        return list(self.queries), list(self.candidates)

    def padded(self, path: Path, values: Sequence[float], empty: float) -> torch.Tensor:
        """Values of all lists, one list behind the other, as (Q, C) in float64."""
        sizes = [len(own) for own in self.scores]
        if len(sizes) * max(sizes) > MOST_PLACES:
            raise InputError(
                f"{path}: {len(sizes)} lists of up to {max(sizes)} candidates, which is more than memory has"
            )
        made = torch.full((len(sizes), max(sizes)), float(empty), dtype=torch.float64)
        made[torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]] = torch.tensor(values, dtype=torch.float64)
        return made

    def index(self, path: Path) -> torch.Tensor | None:
        """Which candidate each place is, -1 for none; None where every list has the same ones in one order."""
        made = self.padded(path, [index for own in self.listed for index in own], -1).long()
        return None if torch.equal(made, torch.arange(made.shape[1]).expand_as(made)) else made


def _run(file: File, data: Any) -> Scores:
    """Scores of a TREC run, with the judgements of its queries."""
    path, lists = file.path, _Lists()
    where, judged = _judgements(file.path, data)
    found: dict[str, list[tuple[int, str, float]]] = {}
    for row, (query, _, candidate, _, score, _) in enumerate(tables.read_fields(path, RUN)):
        if not _is_number(score) or not math.isfinite(float(score)):
            raise InputError(f"{file.path}, row {row}: score {score[:40]!r}, expected a finite number")
        if query in judged:
            found.setdefault(query, []).append((row, candidate, float(score)))
    for query in judged:  # in their order, so that the rows of two runs are those of the same queries
        for row, candidate, value in found.get(query, ()):
            lists.add(f"{file.path}, row {row}", query, candidate, value, row)
    if not lists.queries:
        raise InputError(
            f"{file.path}: none of its queries is judged in {where}, which has {next(iter(judged))[:40]!r}"
        )
    grades, known, unlisted = [], [], []
    names = list(lists.candidates)
    for query, own in zip(lists.queries, lists.listed, strict=True):
        said = judged[query]
        grades += [said.get(names[index], 0) for index in own]
        known += [names[index] in said for index in own]
        there = {names[index] for index in own}
        unlisted.append([grade for candidate, grade in said.items() if grade > 0 and candidate not in there])
    grade = lists.padded(file.path, grades, 0)
    there = lists.padded(file.path, [1] * len(grades), 0).bool()
    missed = torch.zeros(len(unlisted), max(1, *map(len, unlisted)), dtype=torch.float64)
    for row, own in enumerate(unlisted):
        missed[row, : len(own)] = torch.tensor(own)
    unjudged = (there & ~lists.padded(file.path, known, 0).bool()).nonzero()
    note = f"{len(lists.queries)} queries of the run are judged in {where}"
    absent = len(judged) - len(lists.queries)
    notes = [NO_BATCHES, note + (f"; {absent} judged queries are not in the run" if absent else "")]
    listed = zip(lists.queries, lists.listed, strict=True)
    if own := sum(query in {names[index] for index in rows} for query, rows in listed):
        notes.append(
            f"{own} of {len(lists.queries)} queries rank a document with their own id, which counts like any other, as "
            "in trec_eval; BEIR and MTEB remove it"
        )
    return Scores(
        lists.padded(file.path, [score for own in lists.scores for score in own], 0.0),
        (grade > 0) & there,
        negative=(grade <= 0) & there,
        grade=grade.clamp(min=0),
        unlisted=missed,
        marks={"unjudged": unjudged} if len(unjudged) else None,
        candidate_index=lists.index(file.path),
        names=lists.names,
        notes=tuple(notes),
    )


def _judgements(run: Path, data: Any) -> tuple[Path, dict[str, dict[str, float]]]:
    """Grades by query and candidate, and the file that has them."""
    place = (
        Path(data)
        if data is not None
        else next((run.parent / name for name in BESIDE if (run.parent / name).exists()), None)
    )
    if place is None:
        raise InputError(
            f"{run} is a TREC run without judgements: name them, --data QRELS or the folder of a BEIR data set"
        )
    if place.is_dir():
        folder = place / "qrels" if (place / "qrels").is_dir() else place
        found = next((each for name in SPLITS if (each := folder / f"{name}.tsv").is_file()), None)
        if found is None:
            raise InputError(f"{place} has no qrels/test.tsv, dev.tsv or train.tsv")
        place = found
    judged: dict[str, dict[str, float]] = {}
    for row, (query, candidate, grade) in _judged(place):
        if not _is_number(grade) or not math.isfinite(float(grade)):
            raise InputError(f"{place}, row {row}: grade {grade[:40]!r}, expected a number")
        if candidate in judged.setdefault(query, {}):
            raise InputError(
                f"{place}, row {row}: query {query[:40]!r} and candidate {candidate[:40]!r} are judged twice"
            )
        judged[query][candidate] = float(grade)
    if not judged:
        raise InputError(f"{place} holds no judgements")
    return place, judged


def _judged(path: Path) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """Yield the judgements of a file: those of BEIR, or those of TREC."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    with open(path, "rb") as stream:
        first = stream.readline(2**16).decode("utf-8-sig", "replace")
    if tuple(first.split()) == BEIR:
        for row, (query, candidate, grade) in enumerate(tables.read_fields(path, BEIR, header=1)):
            yield row, (query, candidate, grade)
        return
    for row, (query, _, candidate, grade) in enumerate(tables.read_fields(path, QRELS)):
        yield row, (query, candidate, grade)
