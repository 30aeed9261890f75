"""Tables of texts: pairs with hard negatives, or texts with labels."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
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
SPLITS = "train|training|val|valid|validation|dev|eval|test"
SPLIT_FILE = re.compile(rf"(?P<split>{SPLITS})([-_.]\d+(-of-\d+)?)?\.(jsonl|ndjson|json|csv|tsv|parquet)(\.gz)?")
MATCHES = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


class Pair(NamedTuple):
    """A query with the texts that match it, and those that do not."""

    where: str  # its position, for messages
    query: str
    positives: list[str]
    negatives: list[str]
    group: str | None = None  # pairs of one group match as well


def paired_texts(pairs: list[Pair], name: str, split: str, *, equal_texts_match: bool = True) -> TrainingSet:
    """Build a training set of pairs.

    Every text is one row of its side, however often it occurs. Texts of a pair are one group, and so are pairs that
    share a text or a group. Hard negatives are candidates. With `equal_texts_match=False`, a query and a candidate with
    the same text are not a pair, unless they are one of `pairs`.
    """
    from scipy.sparse import coo_array  # slow to import, and only pairs need it
    from scipy.sparse.csgraph import connected_components

    def key(query: str) -> Any:
        return query if equal_texts_match else ("query", query)

    queries = tuple(dict.fromkeys(pair.query for pair in pairs))
    positives = tuple(dict.fromkeys(text for pair in pairs for text in pair.positives))
    if not positives:
        raise InputError(f"{name}, {split}: no row has a positive")
    # A graph with an edge from each query to its positives and its group.
    edges = [(key(pair.query), text) for pair in pairs for text in pair.positives]
    number = len(edges)
    edges += [(key(pair.query), ("group", pair.group)) for pair in pairs if pair.group is not None]
    texts = [node for pair in pairs for node in (key(pair.query), *pair.positives)]
    nodes = {node: k for k, node in enumerate(dict.fromkeys([*texts, *(target for _, target in edges[number:])]))}
    ends = np.array([(nodes[query], nodes[target]) for query, target in edges]).T
    graph = coo_array((np.ones(len(edges)), ends), shape=(len(nodes), len(nodes)))
    components = connected_components(graph, directed=False)[1]
    first_nodes = np.unique(components, return_index=True)[1]
    group = dict(zip(nodes, first_nodes[components].tolist(), strict=True))
    candidates = {text: row for row, text in enumerate(positives)}
    negatives: dict[str, dict[int, None]] = {query: {} for query in queries}
    conflicts, notes = [], []
    for pair in pairs:
        for text in pair.negatives:
            if group.get(text) == group[key(pair.query)]:
                conflicts.append(pair.where)
            else:
                group.setdefault(text, len(nodes) + len(group))
                negatives[pair.query][candidates.setdefault(text, len(candidates))] = None
    if number > min(len(queries), len(positives)):
        sizes = Counter(group[text] for text in {*map(key, queries), *positives})
        repeats = f"{number - len(queries)} repeat a query and {number - len(positives)} a positive"
        groups = f"{len(sizes)} groups, the largest with {max(sizes.values())} texts"
        notes.append(f"{name}, {split}: {number} pairs: {repeats}; pairs that share a text are one group ({groups})")
    if conflicts:
        left_out = "hard negatives are left out, since they are in the group of their query, first in"
        notes.append(f"{name}, {split}: {len(conflicts)} {left_out} {conflicts[0]}")
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
    files: dict[str, list[Path]] = {}
    for file in [*sorted(path.glob("*")), *sorted(path.glob("data/*"))]:
        if match := SPLIT_FILE.fullmatch(file.name):
            files.setdefault(match["split"], []).append(file)
    return files


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits: files of a folder, or values of the column `split`; empty if a file is not a table."""
    files = split_files(path)
    if "" not in files:
        return tuple(files)
    names = tables.column_names(path)
    is_header = not re.fullmatch(r"[-+.\deE]*", "".join(names))  # rather than a row of numbers
    values = tables.read(path).column("split") if "split" in names else ["train"] if is_header else []
    return tuple(dict.fromkeys(str(value) for value in values))


def load(split: str, path: Path, columns: str | None = None) -> TrainingSet:
    """Load the texts of one split.

    `columns` name those of each role, such as `query=title,negative=wrong_1,wrong_2`. Roles are query, positive,
    negative, match (1 if the texts of a row match), group; or text, label.
    """
    files = split_files(path)
    parts = [tables.read(file) for file in files.get(split, files.get("", []))]
    names = tuple(dict.fromkeys(column for table in parts for column in table.names))
    named = parse_columns(columns)
    if unknown := [column for group in named.values() for column in group if column not in names]:
        raise InputError(nearest(f"column of {path}", unknown[0], names))
    chosen = choose_columns(names, named)
    if chosen is None:
        expected = "expected query and positive, or text and label; name others: cocos encode --columns query=NAME,"
        raise InputError(f"{path}: columns {', '.join(names[:12])}, {expected}positive=NAME or text=NAME,label=NAME")
    read, texts = (read_pairs if "query" in chosen else read_labels), []
    for table in parts:
        rows = range(table.rows)
        if "" in files and "split" in table.names:
            rows = [row for row, value in enumerate(table.column("split")) if str(value) == split]
        texts += read(table, rows, chosen)
    if not texts:
        raise InputError(f"{path}, {split}: no row, expected at least two")
    name = path.name if path.is_dir() else path.name.partition(".")[0]
    if "query" in chosen:
        training = paired_texts(texts, name, split)
    else:
        items, labels = zip(*texts, strict=True)
        numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
        groups = torch.tensor([numbers[label] for label in labels])
        training = TrainingSet(Side(items, "text", groups), None, name, split)
    words = ",".join(f"{role}={','.join(group)}" for role, group in chosen.items())
    unused = [column for column in names if column not in sum(chosen.values(), ("split",))]
    notes = [] if named else [f"{name}: columns {words}, chosen by name"]
    notes += [f"{name}: columns not used: {', '.join(unused[:8])}"] if unused else []
    return replace(training, notes=(*training.notes, *notes))


def parse_columns(columns: str | None) -> dict[str, tuple[str, ...]]:
    """Return the columns that the user named, by role: `query=title,negative=wrong_1,wrong_2`."""
    named: dict[str, tuple[str, ...]] = {}
    role = ""
    for part in columns.split(",") if columns else ():
        before, sign, after = part.partition("=")
        role = before.strip() if sign else role
        if role not in ROLES:
            raise InputError(nearest("role of a column", role, ROLES))
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


def read_pairs(table: Table, rows: Sequence[int], columns: dict[str, tuple[str, ...]]) -> Iterator[Pair]:
    """Yield the pair of each row."""
    cells = {name: table.column(name) for names in columns.values() for name in names}
    for row in rows:
        where = f"{table.path}, {table.line(row)}"
        values = {role: {name: cells[name][row] for name in names} for role, names in columns.items()}
        query, positives = read_texts(values["query"], where)[0], read_texts(values["positive"], where)
        negatives = {name: value for name, value in values.get("negative", {}).items() if not missing(value)}
        negatives = read_texts(negatives, where)
        for name, value in values.get("match", {}).items():
            match = MATCHES.get(str(value).strip().lower())
            if match is None:
                expected = "expected 1 if the texts match and 0 if not, or --columns query=NAME,positive=NAME"
                raise InputError(f"{where}: {name} is {str(value)[:60]!r}, {expected}")
            positives, negatives = (positives, negatives) if match else ([], [*positives, *negatives])
        has_group = not all(map(missing, values.get("group", {}).values()))
        yield Pair(where, query, positives, negatives, read_label(values["group"], where) if has_group else None)


def read_labels(table: Table, rows: Sequence[int], columns: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Yield each text with its label; without labels, the texts of a row belong together."""
    (name, texts), *labels = ((name, table.column(name)) for names in columns.values() for name in names)
    for row in rows:
        where = f"{table.path}, {table.line(row)}"
        if not labels and not isinstance(texts[row], list):
            raise InputError(f"{where} has no label, expected a list of texts, or --columns text=NAME,label=NAME")
        label = read_label({key: values[row] for key, values in labels}, where) if labels else where
        yield from ((text, label) for text in read_texts({name: texts[row]}, where))


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
