"""Tables of texts: pairs with hard negatives, or texts with labels (JSON lines, CSV, TSV, parquet, also gzipped)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cocos.base.errors import InputError, nearest
from cocos.data import tables
from cocos.data.tables import Table, missing
from cocos.data.training_set import Side, TrainingSet

OPTIONS = ("columns",)
# Column names of each role, in order of precedence.
COLUMNS = {
    "query": ("anchor", "query", "question", "sentence1", "premise"),
    "positive": ("positive", "pos", "candidate", "passage", "answer", "document", "sentence2", "hypothesis"),
    "text": ("text", "sentence", "texts", "sentences", "set"),
    "label": ("label", "labels", "class", "category", "group", "cluster", "intent"),
    "match": ("match", "is_duplicate", "label", "score"),
    "group": ("group",),
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


def paired_texts(examples: Iterable[Example], name: str, split: str, *, equal_texts_match: bool = True) -> TrainingSet:
    """Build a training set of pairs.

    Every text is one row of its side, however often it occurs. Texts of a pair are one group, and so are pairs that
    share a text or a group. Hard negatives are candidates. With `equal_texts_match=False`, a query and a candidate with
    the same text are not a pair, unless they are one of the examples.
    """
    from scipy.sparse import coo_array  # slow to import, and only pairs need it
    from scipy.sparse.csgraph import connected_components

    def key(query: str) -> Any:
        return query if equal_texts_match else ("query", query)

    examples, notes = list(examples), []
    queries: dict[str, int] = {}
    candidates: dict[str, int] = {}
    nodes: dict[Any, int] = {}  # of the graph with an edge from each query to its positives and its group
    edges: list[tuple[int, int]] = []
    for example in examples:
        for query in example.queries:
            queries.setdefault(query, len(queries))
            node = nodes.setdefault(key(query), len(nodes))
            for positive in example.positives:
                candidates.setdefault(positive, len(candidates))
                edges.append((node, nodes.setdefault(positive, len(nodes))))
    if not edges:
        raise InputError(f"{name}, {split}: no row has a positive")
    repeats = len(edges) - len(queries), len(edges) - len(candidates)
    pairs = f"{name}, {split}: {len(edges)} pairs: {repeats[0]} repeat a query and {repeats[1]} a positive"
    for example in examples:
        if example.group is not None:
            node = nodes.setdefault(("group", example.group), len(nodes))
            edges += [(nodes[key(query)], node) for query in example.queries]
    graph = coo_array((np.ones(len(edges)), np.array(edges).T), shape=(len(nodes), len(nodes)))
    components = connected_components(graph, directed=False)[1]
    first_nodes = np.unique(components, return_index=True)[1]
    group = dict(zip(nodes, first_nodes[components].tolist(), strict=True))
    if any(repeats):
        sizes = Counter(group[text] for text in {*map(key, queries), *candidates})
        notes.append(
            f"{pairs}; pairs that share a text are one group ({len(sizes)} groups, the largest with "
            f"{max(sizes.values())} texts)"
        )

    negatives: list[dict[int, None]] = [{} for _ in queries]
    conflicts: list[str] = []
    for example in examples:
        for query in example.queries:
            for text in example.negatives:
                if group.get(text) == group[key(query)]:
                    conflicts.append(example.where)
                    continue
                group.setdefault(text, len(nodes) + len(group))
                negatives[queries[query]][candidates.setdefault(text, len(candidates))] = None
    if conflicts:
        notes.append(
            f"{name}, {split}: {len(conflicts)} hard negatives are left out, since they are in the group of their "
            f"query (the first: {conflicts[0]})"
        )
    width = max(map(len, negatives))
    return TrainingSet(
        Side(tuple(queries), "text", torch.tensor([group[key(text)] for text in queries])),
        Side(tuple(candidates), "text", torch.tensor([group[text] for text in candidates])),
        name,
        split,
        negatives=torch.tensor([[*rows, *[-1] * (width - len(rows))] for rows in negatives]) if width else None,
        notes=tuple(notes),
    )


def labelled_texts(examples: Iterable[Example], name: str, split: str) -> TrainingSet:
    """Build a labelled set of texts."""
    rows = [(text, example.group) for example in examples for text in example.queries]
    number = {label: index for index, label in enumerate(dict.fromkeys(label for _, label in rows))}
    labels = torch.tensor([number[label] for _, label in rows])
    return TrainingSet(Side(tuple(text for text, _ in rows), "text", labels), None, name, split)


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


def load(split: str, path: Path, columns: str | None = None) -> TrainingSet:
    """Load the texts of one split.

    Args:
        split: one of `splits`; `all` for every row, unless a split has that name.
        path: of the file, or of a folder with one file per split.
        columns: of each role, such as `query=title,negative=wrong_1,wrong_2`; roles are query, positive, negative,
            match (1 if the texts of a row match), group; or text, label.

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
    parts: Sequence[Table], path: Path, name: str, split: str, columns: str | None, *, by_column: bool = False
) -> TrainingSet:
    """Build a training set from tables with the same columns; `by_column`: the column `split` selects the rows."""
    names = tuple(dict.fromkeys(column for table in parts for column in table.names))
    named = parse_columns(columns)
    if unknown := [column for group in named.values() for column in group if column not in names]:
        raise InputError(nearest(f"column of {path}", unknown[0], names))
    chosen = choose_columns(names, named)
    if chosen is None:
        raise InputError(
            f"{path}: columns {', '.join(names[:12]) or 'none'}, expected query and positive, or text and label; name "
            "others: cocos encode --columns query=NAME,positive=NAME or text=NAME,label=NAME"
        )
    selected = [(table, select_rows(table, split) if by_column else range(table.rows)) for table in parts]
    count, total = sum(len(rows) for _, rows in selected), sum(table.rows for table in parts)
    if not count:
        raise InputError(f"{path}, {split}: no row, expected at least two")
    examples = (example for table, rows in selected for example in read_examples(table, rows, chosen))
    training = (paired_texts if "query" in chosen else labelled_texts)(examples, name, split)
    notes = list(training.notes)
    if not named:
        words = [f"{role}={','.join(group)}" for role, group in chosen.items()]
        notes.append(f"{name}: columns {','.join(words)}, chosen by name")
    if unused := [column for column in names if column not in sum(chosen.values(), ("split",))]:
        notes.append(f"{name}: columns not used: {', '.join(unused[:8])}")
    if count < total:
        notes.append(f"{name}: {count} of {total} rows are in split {split} (column split); --split {ALL_ROWS} for all")
    return replace(training, notes=tuple(notes))


def parse_columns(columns: str | None) -> dict[str, tuple[str, ...]]:
    """Return the columns that the user named, by role: `query=title,negative=wrong_1,wrong_2`."""
    named: dict[str, tuple[str, ...]] = {}
    role = ""
    for part in columns.split(",") if columns else ():
        before, sign, after = part.partition("=")
        role = before.strip() if sign else role
        named[role] = (*named.get(role, ()), (after if sign else part).strip())
    for role, names in named.items():
        if role not in ROLES:
            raise InputError(nearest("role of a column", role, ROLES) + "; write it as query=NAME")
        if len(names) > 1 and role != "negative":
            raise InputError(f"columns: {role} is {', '.join(names)}, expected one name")
    return named


def choose_columns(names: Sequence[str], named: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]] | None:
    """Return the columns of each role, those that were named first; None if the table has no texts."""
    lower = {name.lower(): name for name in reversed(names)}

    def column(role: str) -> tuple[str, ...]:
        by_name = ((lower[name],) for name in COLUMNS[role] if name in lower)
        return named.get(role) or next(by_name, ())

    if column("query") and column("positive") and "text" not in named:
        negatives = named.get("negative", tuple(name for name in names if NEGATIVE.fullmatch(name)))
        # A column that is named like `match` is read only if the columns of the texts are not named by the user.
        match = named.get("match", ()) if {"query", "positive"} <= named.keys() else column("match")
        chosen = {"query": column("query"), "positive": column("positive"), "negative": negatives, "match": match}
        chosen["group"] = column("group")
    elif column("text") and not {"query", "positive"} & named.keys():
        chosen = {"text": column("text"), "label": column("label")}
    else:
        return None
    return {role: group for role, group in chosen.items() if group}


def select_rows(table: Table, split: str) -> Sequence[int]:
    """Return the rows with a value of the column `split`; all rows without that column."""
    if "split" not in table.names:
        return range(table.rows)
    rows = [row for row, value in enumerate(table.column("split")) if str(value) == split]
    return range(table.rows) if split == ALL_ROWS and not rows else rows


def read_examples(table: Table, rows: Sequence[int], columns: dict[str, tuple[str, ...]]) -> Iterator[Example]:
    """Yield the texts of each row."""
    cells = {
        name: table.column(name) if name in table.names else [None] * table.rows
        for names in columns.values()
        for name in names
    }
    for row in rows:
        where = f"{table.path}, {table.line(row)}"
        values = {role: [(f"{where}: {name}", cells[name][row]) for name in names] for role, names in columns.items()}
        texts = {
            role: [text for place, value in values.get(role, ()) for text in read_texts(value, place)]
            for role in ("text", "query", "positive")
        }
        negatives = [
            text
            for place, value in values.get("negative", ())
            if not missing(value)
            for text in read_texts(value, place)
        ]
        if "text" in columns:
            place, value = values["text"][0]
            if "label" not in columns and not isinstance(value, list):
                raise InputError(f"{place} has no label, expected a list of texts, or --columns text=NAME,label=NAME")
            yield Example(where, texts["text"], group=read_label(*values["label"][0]) if "label" in columns else where)
            continue
        positives = texts["positive"]
        if "match" in columns:
            place, value = values["match"][0]
            match = MATCHES.get(str(value).strip().lower())
            if match is None:
                raise InputError(
                    f"{place} is {str(value)[:60]!r}, expected 1 if the texts of a row match and 0 if they do not; to "
                    "count every row as a match, name both: cocos encode --columns query=NAME,positive=NAME"
                )
            positives, negatives = (positives, negatives) if match else ([], [*positives, *negatives])
        has_group = "group" in columns and not missing(values["group"][0][1])
        group = read_label(*values["group"][0]) if has_group else None
        yield Example(where, texts["query"], positives, negatives, group)


def read_texts(value: Any, where: str) -> list[str]:
    """Return a text, or a list of texts, as a list."""
    texts = value if isinstance(value, list) else [value]
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{where} is {str(value)[:60]!r}, expected text; correct or remove the row")
    return texts


def read_label(where: str, value: Any) -> str:
    """Return a label, text or an integer, as text."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if missing(value) or not isinstance(value, str | int) or str(value).strip().lower() == "nan":
        raise InputError(f"{where} is {str(value)[:60]!r}, expected text or an integer; correct or remove the row")
    return str(value)
