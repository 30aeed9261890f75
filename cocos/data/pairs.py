"""Tables of texts: pairs with hard negatives, or texts with labels (JSON lines, CSV, TSV, parquet, also gzipped)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError, nearest
from cocos.data import tables
from cocos.data.tables import Table, missing
from cocos.data.training_set import Side, TrainingSet

OPTIONS = ("columns",)
# Column names of each role, in order of precedence.
COLUMNS = {
    "query": ("anchor", "query", "question", "sentence1", "sentence_1", "sentence_A", "text1", "premise", "source"),
    "positive": (
        *("positive", "pos", "candidate", "passage", "answer", "document", "context", "response", "sentence2"),
        *("sentence_2", "sentence_B", "text2", "hypothesis", "target"),
    ),
    "text": ("text", "sentence", "content", "captions", "set", "texts", "sentences", "paraphrases"),
    "label": ("label", "labels", "class", "category", "group", "group_id", "cluster", "intent", "label_text"),
    "match": ("match", "is_match", "is_duplicate", "label", "score", "similarity", "similarity_score", "gold_label"),
    "group": ("group", "group_id"),
}
ROLES = (*COLUMNS, "negative")
NEGATIVE = re.compile(r"(hard_?)?neg(ative)?s?(_?\d+)?|contradiction", re.IGNORECASE)
# A file named for its split, alone or with the number of a shard: train-00000-of-00002.parquet.
SPLIT_FILE = re.compile(
    r"(?P<split>train|training|val|valid|validation|dev|eval|test)([-_.]\d+(-of-\d+)?)?"
    r"\.(jsonl|ndjson|json|csv|tsv|parquet)(\.gz)?"
)
ALL_ROWS = "all"  # split with the rows of all others
MATCHES = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}

Columns = Mapping[str, Sequence[str]]  # role -> column names


@dataclass(frozen=True)
class Example:
    """The texts of one row.

    Args:
        where: its position, for messages.
        queries: texts that ask, or texts with a label.
        positives: texts that match each query.
        negatives: texts that do not.
        group: rows with the same group match; None if only equal texts do.
    """

    where: str
    queries: list[str]
    positives: list[str] = field(default_factory=list)
    negatives: list[str] = field(default_factory=list)
    group: str | None = None


class Groups:
    """Disjoint sets of texts: union-find with path halving."""

    def __init__(self) -> None:
        self.index: dict[Any, int] = {}
        self.parent: list[int] = []

    def root(self, key: Any) -> int:
        """Return the number of the set of a text, which is added if it is new."""
        node = self.index.setdefault(key, len(self.parent))
        if node == len(self.parent):
            self.parent.append(node)
        while self.parent[node] != node:
            self.parent[node] = node = self.parent[self.parent[node]]
        return node

    def join(self, key: Any, other: Any) -> None:
        """Unite the sets of two texts."""
        first, second = sorted((self.root(key), self.root(other)))
        self.parent[second] = first


def paired_texts(examples: Iterable[Example], name: str, split: str, *, equal_texts_match: bool = True) -> TrainingSet:
    """Build a training set of pairs.

    Every text is one row of its side, however often it occurs. Texts of a pair are one group, and so are pairs that
    share a text or a group. Hard negatives are candidates. With `equal_texts_match=False`, a query and a candidate with
    the same text are not a pair, unless they are one of the examples.
    """

    def key(query: str) -> Any:  # of a query among the texts
        return query if equal_texts_match else ("query", query)

    rows, groups, pairs = list(examples), Groups(), 0
    queries: dict[str, int] = {}
    candidates: dict[str, int] = {}
    for row in rows:
        for query in row.queries:
            queries.setdefault(query, len(queries))
            groups.root(key(query))
            for positive in row.positives:
                candidates.setdefault(positive, len(candidates))
                groups.join(key(query), positive)
                pairs += 1
    if not pairs:
        raise InputError(f"{name}, {split}: no row has a positive")
    for row in rows:
        if row.group is not None:
            for query in row.queries:
                groups.join(key(query), ("group", row.group))
    group = {text: groups.root(text) for text in groups.index}
    repeats, notes = (pairs - len(queries), pairs - len(candidates)), []
    if any(repeats):
        texts = dict.fromkeys([*map(key, queries), *candidates])
        sizes = torch.tensor([group[text] for text in texts]).unique(return_counts=True)[1]
        notes.append(
            f"{name}, {split}: {pairs} pairs: {repeats[0]} repeat a query and {repeats[1]} a positive; pairs that "
            f"share a text are one group ({len(sizes)} groups, the largest with {int(sizes.max())} texts)"
        )
    hard: dict[int, dict[int, None]] = {}
    conflicts: list[str] = []
    for row in rows:
        for query in row.queries:
            negatives = hard.setdefault(queries[query], {})
            for text in row.negatives:
                if group.get(text) == group[key(query)]:
                    conflicts.append(row.where)
                    continue
                group.setdefault(text, len(groups.parent) + len(group))
                negatives[candidates.setdefault(text, len(candidates))] = None
    if conflicts:
        notes.append(
            f"{name}, {split}: {len(conflicts)} hard negatives are left out, since they are in the group of their "
            f"query (the first: {conflicts[0]})"
        )

    query = Side(tuple(queries), "text", torch.tensor([group[key(text)] for text in queries]))
    candidate = Side(tuple(candidates), "text", torch.tensor([group[text] for text in candidates]))
    negatives = negative_rows(hard, len(queries))
    return TrainingSet(query, candidate, name, split, negatives=negatives, notes=tuple(notes))


def negative_rows(hard: dict[int, dict[int, None]], queries: int) -> Tensor | None:
    """Return the candidate rows of the hard negatives of each query, (Q, K), -1 for none; None without any."""
    width = max(map(len, hard.values()), default=0)
    rows = torch.full((queries, width), -1)
    for query, candidates in hard.items():
        rows[query, : len(candidates)] = torch.tensor(list(candidates), dtype=torch.int64)
    return rows if width else None


def labelled_texts(examples: Iterable[Example], name: str, split: str) -> TrainingSet:
    """Build a labelled set of texts."""
    texts: list[str] = []
    labels: list[int] = []
    number: dict[str | None, int] = {}
    first_label: dict[str, int] = {}
    conflicts: list[str] = []
    for row in examples:
        label = number.setdefault(row.group, len(number))
        for text in row.queries:
            if first_label.setdefault(text, label) != label:
                conflicts.append(row.where)
            texts.append(text)
            labels.append(label)
    notes = ()
    if conflicts:
        notes = (
            f"{name}, {split}: {len(conflicts)} texts have several labels, and are negatives of themselves "
            f"(the first: {conflicts[0]})",
        )
    return TrainingSet(Side(tuple(texts), "text", torch.tensor(labels)), None, name, split, notes=notes)


def split_files(path: Path) -> dict[str, list[Path]]:
    """Return the files of each split in a folder or its folder `data`; a single file has the key ""."""
    if not path.is_dir():
        return {"": [path]}
    for folder in (path, path / "data"):
        files: dict[str, list[Path]] = {}
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            if (match := SPLIT_FILE.fullmatch(file.name)) and file.is_file():
                files.setdefault(match["split"], []).append(file)
        if files:
            return files
    return {}


def sniff(path: Path) -> bool:
    """Return whether a path is a table, or a folder of tables named for their splits."""
    return bool(split_files(path)) if path.is_dir() else path.is_file() and bool(tables.column_names(path))


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits: files of a folder or values of the column `split`, and `all` if there are several."""
    files = split_files(path)
    if "" not in files:
        return with_all(files)
    table = tables.read(path)
    values = table.column("split") if "split" in table.names else []
    return with_all(str(value) for value in values if not missing(value)) or ("train",)


def with_all(names: Iterable[str]) -> tuple[str, ...]:
    """Return each split once, and `all` if there are several."""
    unique = tuple(dict.fromkeys(names))
    return unique if len(unique) < 2 or ALL_ROWS in unique else (*unique, ALL_ROWS)


def load(split: str, path: Path, columns: Mapping[str, Any] | str | None = None) -> TrainingSet:
    """Load the texts of one split.

    Args:
        split: one of `splits`; `all` for every row, unless a split has that name.
        path: of the file, or of a folder with one file per split.
        columns: role -> column name (several for `negative`), or text such as query=title,negative=wrong_1,wrong_2;
            roles are query, positive, negative, match (1 if the texts of a row match), group; or text, label.

    Returns:
        Queries and candidates (`q2c`, `c2q`), or a labelled set (`s2s`).
    """
    files = split_files(path)
    if split == ALL_ROWS and ALL_ROWS not in files:
        paths = [file for group in files.values() for file in group]
    else:
        paths = files.get(split, files.get("", []))
    if not paths:
        raise InputError(nearest(f"split of {path}", split, files))
    name = path.name if path.is_dir() else path.name.partition(".")[0]
    return load_tables([tables.read(file) for file in paths], path, name, split, columns, by_column="" in files)


def load_tables(
    parts: Sequence[Table],
    path: Path,
    name: str,
    split: str,
    columns: Mapping[str, Any] | str | None,
    *,
    by_column: bool = False,
) -> TrainingSet:
    """Build a training set from tables with the same columns; `by_column`: the column `split` selects the rows."""
    names = tuple(dict.fromkeys(column for table in parts for column in table.names))
    named = parse_columns(columns)
    for column in (column for group in named.values() for column in group):
        if column not in names:
            raise InputError(nearest(f"column of {path}", column, names))
    chosen = choose_columns(names, named)
    if chosen is None:
        raise InputError(
            f"{path}: columns {', '.join(map(str, names[:12])) or 'none'}, expected one of "
            f"{', '.join(COLUMNS['query'][:3])}, ... and one of {', '.join(COLUMNS['positive'][:5])}, ...; or one of "
            f"{', '.join(COLUMNS['text'][:3])}, ... and one of {', '.join(COLUMNS['label'][:3])}, ...; others: "
            "cocos encode --columns query=NAME,positive=NAME or text=NAME,label=NAME"
        )
    selected = [(table, select_rows(table, split) if by_column else range(table.rows)) for table in parts]
    if not any(rows for _, rows in selected):
        raise InputError(f"{parts[0].path}, {split}: no row, expected at least two")
    examples = (example for table, rows in selected for example in read_examples(table, rows, chosen))
    training = (paired_texts if "query" in chosen else labelled_texts)(examples, name, split)
    notes = list(training.notes)
    if not named:
        words = [f"{role}={','.join(group)}" for role, group in chosen.items()]
        notes.append(f"{name}: columns {','.join(words)}, chosen by name")
    if unused := [column for column in names if column not in sum(chosen.values(), ("split",))]:
        notes.append(f"{name}: columns not used: {', '.join(unused[:8])}")
    total, count = sum(table.rows for table in parts), sum(len(rows) for _, rows in selected)
    if count < total:
        notes.append(f"{name}: {count} of {total} rows are in split {split} (column split); --split {ALL_ROWS} for all")
    return replace(training, notes=tuple(notes))


def parse_columns(columns: Mapping[str, Any] | str | None) -> dict[str, tuple[str, ...]]:
    """Return the columns that the user named, by role."""
    if not isinstance(columns, Mapping | str | None):
        raise InputError(f"columns: {str(columns)[:60]}, expected names by role, such as query=NAME")
    named: dict[str, tuple[str, ...]] = {}
    if isinstance(columns, str):
        role = ""
        for part in columns.split(","):
            before, sign, after = part.partition("=")
            role = before.strip() if sign else role
            named[role] = (*named.get(role, ()), (after if sign else part).strip())
    else:
        for role, names in (columns or {}).items():
            named[role] = tuple(names) if isinstance(names, list | tuple) else (names,)
    for role, names in named.items():
        if not isinstance(role, str) or not all(isinstance(name, str) for name in names):
            raise InputError(f"columns: {str(role)[:40]} is {str(names)[:60]}, expected a name")
        if role not in ROLES:
            raise InputError(nearest("role of a column", role, ROLES) + "; write it as query=NAME")
        if len(names) != 1 and role != "negative":
            raise InputError(f"columns: {role} is {', '.join(names) or 'no column'}, expected one name")
    return named


def choose_columns(names: Sequence[str], named: Columns) -> dict[str, tuple[str, ...]] | None:
    """Return the columns of each role, those that were named first; None if the table has no texts."""
    lower = {name.lower(): name for name in reversed(names)}

    def column(role: str) -> tuple[str, ...] | None:
        by_name = (lower[name.lower()] for name in COLUMNS[role] if name.lower() in lower)
        return tuple(named[role]) if role in named else next(((name,) for name in by_name), None)

    if column("query") and column("positive") and "text" not in named:
        negatives = tuple(named.get("negative", [name for name in names if NEGATIVE.fullmatch(name)]))
        names_both = {"query", "positive"} <= named.keys()
        optional = {
            "negative": negatives,
            "match": named.get("match") if names_both else column("match"),
            "group": column("group"),
        }
        chosen = {"query": column("query"), "positive": column("positive"), **optional}
    elif column("text") and not {"query", "positive"} & named.keys():
        chosen = {"text": column("text"), "label": column("label")}
    else:
        return None
    return {role: tuple(group) for role, group in chosen.items() if group}


def select_rows(table: Table, split: str) -> Sequence[int]:
    """Return the rows with a value of the column `split`; all rows without that column."""
    if "split" not in table.names:
        return range(table.rows)
    rows = [row for row, value in enumerate(table.column("split")) if str(value) == split]
    return range(table.rows) if split == ALL_ROWS and not rows else rows


def read_examples(table: Table, rows: Sequence[int], chosen: Columns) -> Iterator[Example]:
    """Yield the texts of each row."""
    values = {name: table.column(name) for group in chosen.values() for name in group if name in table.names}

    def cell(role: str, row: int) -> Any:
        return values[chosen[role][0]][row]

    for row in rows:
        where = f"{table.path}, {table.line(row)}"
        at = {role: f"{where}: {group[0]}" for role, group in chosen.items()}
        if "text" in chosen and "label" in chosen:
            yield Example(
                where, read_texts(cell("text", row), at["text"]), group=read_label(cell("label", row), at["label"])
            )
            continue
        if "text" in chosen:
            texts = cell("text", row)
            if not isinstance(texts, list):
                raise InputError(
                    f"{at['text']} is one text without a label, expected a list of texts, or a column of labels: "
                    "cocos encode --columns text=NAME,label=NAME"
                )
            yield Example(where, read_texts(texts, at["text"]), group=where)
            continue
        queries, positives = (read_texts(cell(role, row), at[role]) for role in ("query", "positive"))
        negatives = []
        for name in chosen.get("negative", ()):
            if name in values and not missing(values[name][row]):
                negatives += read_texts(values[name][row], f"{where}: {name}")
        if "match" in chosen and not read_match(cell("match", row), at["match"]):
            positives, negatives = [], [*positives, *negatives]
        group = None
        if "group" in chosen and not missing(cell("group", row)):
            group = read_label(cell("group", row), at["group"])
        yield Example(where, queries, positives, negatives, group)


def read_texts(value: Any, where: str) -> list[str]:
    """Return a text, or a list of texts, as a list."""
    texts = value if isinstance(value, list) else [value]
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{where} is {str(value)[:60]!r}, expected text; correct or remove the row")
    return texts


def read_label(value: Any, where: str) -> str:
    """Return a label, text or an integer, as text."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if missing(value) or not isinstance(value, str | int) or str(value).strip().lower() == "nan":
        raise InputError(f"{where} is {str(value)[:60]!r}, expected text or an integer; correct or remove the row")
    return str(value)


def read_match(value: Any, where: str) -> bool:
    """Return whether the texts of a row match: 1 or 0."""
    match = MATCHES.get(str(value).strip().lower())
    if match is None:
        raise InputError(
            f"{where} is {str(value)[:60]!r}, expected 1 if the texts of a row match and 0 if they do not; to count "
            "every row as a match, name both: cocos encode --columns query=NAME,positive=NAME"
        )
    return match
