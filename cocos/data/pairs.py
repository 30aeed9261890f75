"""Tables of texts: pairs with hard negatives, or texts with labels."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

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
MATCHES = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


class Example(NamedTuple):
    """The texts of one row."""

    where: str  # its position, for messages
    queries: list[str]  # texts that ask, or texts with a label
    positives: Sequence[str] = ()  # texts that match each query
    negatives: Sequence[str] = ()  # texts that do not
    group: str | None = None  # rows with the same group match; None if only equal texts do


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
    queries = tuple(dict.fromkeys(query for example in examples for query in example.queries))
    positives = dict.fromkeys(text for example in examples for text in example.positives)
    if not positives:
        raise InputError(f"{name}, {split}: no row has a positive")
    # Nodes of a graph with an edge from each query to its positives and its group.
    texts = [node for row in examples for query in row.queries for node in (key(query), *row.positives)]
    groups = [("group", example.group) for example in examples if example.group is not None]
    nodes = {node: number for number, node in enumerate(dict.fromkeys([*texts, *groups]))}
    edges = []
    for example in examples:
        targets = [*example.positives, *([] if example.group is None else [("group", example.group)])]
        edges += [(nodes[key(query)], nodes[target]) for query in example.queries for target in targets]
    graph = coo_array((np.ones(len(edges)), np.array(edges).T), shape=(len(nodes), len(nodes)))
    components = connected_components(graph, directed=False)[1]
    first_nodes = np.unique(components, return_index=True)[1]
    group = dict(zip(nodes, first_nodes[components].tolist(), strict=True))
    pairs = sum(len(example.queries) * len(example.positives) for example in examples)
    if pairs > min(len(queries), len(positives)):
        sizes = Counter(group[text] for text in {*map(key, queries), *positives})
        notes.append(
            f"{name}, {split}: {pairs} pairs: {pairs - len(queries)} repeat a query and {pairs - len(positives)} a "
            f"positive; pairs that share a text are one group ({len(sizes)} groups, the largest with "
            f"{max(sizes.values())} texts)"
        )
    candidates = {text: row for row, text in enumerate(positives)}
    negatives: dict[str, dict[int, None]] = {query: {} for query in queries}
    conflicts: list[str] = []
    for example in examples:
        for query in example.queries:
            for text in example.negatives:
                if group.get(text) == group[key(query)]:
                    conflicts.append(example.where)
                    continue
                group.setdefault(text, len(nodes) + len(group))
                negatives[query][candidates.setdefault(text, len(candidates))] = None
    if conflicts:
        notes.append(
            f"{name}, {split}: {len(conflicts)} hard negatives are left out, since they are in the group of their "
            f"query (the first: {conflicts[0]})"
        )
    width = max(map(len, negatives.values()))
    rows = [[*numbers, *[-1] * (width - len(numbers))] for numbers in negatives.values()]
    return TrainingSet(
        Side(queries, "text", torch.tensor([group[key(text)] for text in queries])),
        Side(tuple(candidates), "text", torch.tensor([group[text] for text in candidates])),
        name,
        split,
        negatives=torch.tensor(rows) if width else None,
        notes=tuple(notes),
    )


def labelled_texts(examples: Iterable[Example], name: str, split: str) -> TrainingSet:
    """Build a labelled set of texts."""
    texts, labels = zip(*((text, example.group) for example in examples for text in example.queries), strict=True)
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return TrainingSet(Side(texts, "text", torch.tensor([numbers[label] for label in labels])), None, name, split)


def split_files(path: Path) -> dict[str, list[Path]]:
    """Return the files of each split of a folder or its folder `data`; a single file has the key "".

    A saved dataset of Hugging Face is a folder, with one folder per split if it has several.
    """
    if not path.is_dir():
        return {"": [path]}
    if (path / "dataset_dict.json").is_file():
        with tables.readable(path):
            names = json.loads(tables.read_text(path / "dataset_dict.json"))["splits"]
            return {name: [path / name] for name in names}
    if (path / "dataset_info.json").is_file() and any(path.glob("*.arrow")):
        return {"train": [path]}
    for folder in (path, path / "data"):
        files: dict[str, list[Path]] = {}
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            if (match := SPLIT_FILE.fullmatch(file.name)) and file.is_file():
                files.setdefault(match["split"], []).append(file)
        if files:
            return files
    return {}


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits: files of a folder, or values of the column `split`; empty if a file is not a table."""
    files = split_files(path)
    if "" not in files:
        return tuple(files)
    names = tables.column_names(path)
    values = tables.read(path).column("split") if "split" in names else ["train"] if names else []
    return tuple(dict.fromkeys(str(value) for value in values))


def load(split: str, path: Path, columns: str | None = None) -> TrainingSet:
    """Load the texts of one split.

    Args:
        split: one of `splits`.
        path: of the file, or of a folder with one file per split.
        columns: of each role, such as `query=title,negative=wrong_1,wrong_2`; roles are query, positive, negative,
            match (1 if the texts of a row match), group; or text, label.
    """
    files = split_files(path)
    parts = [tables.read(file) for file in files.get(split, files.get("", []))]
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
    examples = []
    for table in parts:
        rows = range(table.rows)
        if "" in files and "split" in table.names:
            rows = [row for row, value in enumerate(table.column("split")) if str(value) == split]
        examples += read_rows(table, rows, chosen)
    if not examples:
        raise InputError(f"{path}, {split}: no row, expected at least two")
    name = path.name if path.is_dir() else path.name.partition(".")[0]
    training = (paired_texts if "query" in chosen else labelled_texts)(examples, name, split)
    notes = list(training.notes)
    if not named:
        words = ",".join(f"{role}={','.join(group)}" for role, group in chosen.items())
        notes.append(f"{name}: columns {words}, chosen by name")
    if unused := [column for column in names if column not in sum(chosen.values(), ("split",))]:
        notes.append(f"{name}: columns not used: {', '.join(unused[:8])}")
    if len(examples) < (total := sum(table.rows for table in parts)):
        notes.append(f"{name}: {len(examples)} of {total} rows are in split {split} (column split)")
    return replace(training, notes=tuple(notes))


def parse_columns(columns: str | None) -> dict[str, tuple[str, ...]]:
    """Return the columns that the user named, by role: `query=title,negative=wrong_1,wrong_2`."""
    named: dict[str, tuple[str, ...]] = {}
    role = ""
    for part in columns.split(",") if columns else ():
        before, sign, after = part.partition("=")
        role = before.strip() if sign else role
        if role not in ROLES:
            raise InputError(nearest("role of a column", role, ROLES) + "; write it as query=NAME")
        named[role] = (*named.get(role, ()), (after if sign else part).strip())
        if len(named[role]) > 1 and role != "negative":
            raise InputError(f"columns: {role} is {', '.join(named[role])}, expected one name")
    return named


def choose_columns(names: Sequence[str], named: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]] | None:
    """Return the columns of each role, those that were named first; None if the table has no texts."""
    lower = {name.lower(): name for name in reversed(names)}
    chosen = {
        role: next(((lower[column],) for column in columns if column in lower), ()) for role, columns in COLUMNS.items()
    }
    chosen["negative"] = tuple(name for name in names if NEGATIVE.fullmatch(name))
    if {"query", "positive"} <= named.keys():  # a column that is named like `match` is not one
        chosen["match"] = ()
    chosen |= named
    if chosen["query"] and chosen["positive"] and "text" not in named:
        roles = ("query", "positive", "negative", "match", "group")
    elif chosen["text"] and not {"query", "positive"} & named.keys():
        roles = ("text", "label")
    else:
        return None
    return {role: chosen[role] for role in roles if chosen[role]}


def read_rows(table: Table, rows: Sequence[int], columns: dict[str, tuple[str, ...]]) -> Iterator[Example]:
    """Yield the texts of each row."""
    names = [name for group in columns.values() for name in group]
    cells = {name: table.column(name) if name in table.names else [None] * table.rows for name in names}
    for row in rows:
        where = f"{table.path}, {table.line(row)}"
        values = {role: {name: cells[name][row] for name in group} for role, group in columns.items()}
        if "text" in columns:
            texts = read_texts(values["text"], where)
            if "label" not in columns and not any(isinstance(value, list) for value in values["text"].values()):
                raise InputError(f"{where} has no label, expected a list of texts, or --columns text=NAME,label=NAME")
            yield Example(where, texts, group=read_label(values["label"], where) if "label" in columns else where)
            continue
        queries, positives = read_texts(values["query"], where), read_texts(values["positive"], where)
        negatives = {name: value for name, value in values.get("negative", {}).items() if not missing(value)}
        negatives = read_texts(negatives, where)
        for name, value in values.get("match", {}).items():
            match = MATCHES.get(str(value).strip().lower())
            if match is None:
                raise InputError(
                    f"{where}: {name} is {str(value)[:60]!r}, expected 1 if the texts of a row match and 0 if not; to "
                    "count every row as a match, name both: cocos encode --columns query=NAME,positive=NAME"
                )
            positives, negatives = (positives, negatives) if match else ([], [*positives, *negatives])
        has_group = not all(map(missing, values.get("group", {}).values()))
        yield Example(where, queries, positives, negatives, read_label(values["group"], where) if has_group else None)


def read_texts(cells: dict[str, Any], where: str) -> list[str]:
    """Return the texts in the columns of a role: a cell is a text, or a list of texts."""
    texts = []
    for name, value in cells.items():
        texts += value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise InputError(f"{where}: {name} is {str(value)[:60]!r}, expected text; correct or remove the row")
    return texts


def read_label(cells: dict[str, Any], where: str) -> str:
    """Return the label in a column, text or an integer, as text."""
    ((name, value),) = cells.items()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if missing(value) or not isinstance(value, str | int):
        raise InputError(f"{where}: {name} is {str(value)[:60]!r}, expected text or an integer; correct the row")
    return str(value)
