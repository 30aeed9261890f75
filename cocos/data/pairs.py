"""Tables of texts: pairs with hard negatives, or texts with labels (JSON lines, CSV, TSV, parquet; also .gz)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from cocos.base.errors import InputError, nearest
from cocos.data import Side, TrainingSet
from cocos.data.tables import Columns, looks_like_one, missing, read

# Names of columns by their role, in the order in which they are tried.
KNOWN = {
    "query": ("anchor", "query", "question", "sentence1", "sentence_1", "sentence_A", "text1", "premise", "source"),
    "positive": (
        *("positive", "pos", "passage", "answer", "document", "context", "response", "sentence2", "sentence_2"),
        *("sentence_B", "text2", "hypothesis", "target"),
    ),
    "text": ("text", "sentence", "content", "captions", "set", "texts", "sentences", "paraphrases"),
    "label": ("label", "labels", "class", "category", "group", "group_id", "cluster", "intent", "label_text"),
    "match": ("match", "is_match", "is_duplicate", "label", "score", "similarity", "similarity_score", "gold_label"),
    "split": ("split",),
}
NEGATIVE = re.compile(r"(hard_?)?neg(ative)?s?(_?\d+)?|contradiction", re.IGNORECASE)
# Splits that a file can be named for, alone or with the number of a shard, like train-00000-of-00002.parquet.
SPLIT_FILES = re.compile(
    r"(?P<split>train|training|val|valid|validation|dev|eval|test)([-_.]\d+(-of-\d+)?)?"
    r"\.(jsonl|ndjson|json|csv|tsv|parquet)(\.gz)?"
)
# Split that is all rows, of data with several splits.
ALL_ROWS = "all"
MATCHES = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


@dataclass(frozen=True)
class Examples:
    """The texts of one row of a table.

    Args:
        where: the row stands, for messages.
        queries: texts that ask, or texts with a label.
        positives: texts that match each of them.
        negatives: texts that do not.
        label: of a row of a labelled set.
    """

    where: str
    queries: list[str]
    positives: list[str] = field(default_factory=list)
    negatives: list[str] = field(default_factory=list)
    label: str = ""


class _Joined:
    """Texts by number, and which of them are joined (union-find with path halving)."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self.parent: list[int] = []

    def of(self, text: str) -> int:
        """Number a text, equal texts alike."""
        found = self.number.setdefault(text, len(self.parent))
        if found == len(self.parent):
            self.parent.append(found)
        return found

    def root(self, place: int) -> int:
        """Find the number that stands for the group of a text."""
        while self.parent[place] != place:
            self.parent[place] = place = self.parent[self.parent[place]]
        return place

    def join(self, one: str, other: str) -> None:
        """Put two texts into one group."""
        first, second = sorted((self.root(self.of(one)), self.root(self.of(other))))
        self.parent[second] = first


def paired(examples: Iterable[Examples], name: str, split: str) -> TrainingSet:
    """Make a training set of pairs: each text is one row of its side, and hard negatives are candidates."""
    joined, rows = _Joined(), list(examples)
    queries: dict[str, int] = {}
    candidates: dict[str, int] = {}
    pairs = 0
    for row in rows:
        for query in row.queries:
            queries.setdefault(query, len(queries))
            joined.of(query)
            for positive in row.positives:
                candidates.setdefault(positive, len(candidates))
                joined.join(query, positive)
                pairs += 1
    if not pairs:
        raise InputError(f"{name}, {split}: no row has a positive")
    group = {text: joined.root(place) for text, place in joined.number.items()}
    repeats = pairs - len(queries), pairs - len(candidates)
    wrong: dict[int, dict[int, None]] = {}
    refused: list[str] = []
    for row in rows:
        for query in row.queries:
            own = wrong.setdefault(queries[query], {})
            for text in row.negatives:
                if group.get(text) == group[query]:
                    refused.append(row.where)
                    continue
                group.setdefault(text, len(joined.parent) + len(group))
                own[candidates.setdefault(text, len(candidates))] = None
    most = max(map(len, wrong.values()), default=0)
    negatives = torch.full((len(queries), most), -1)
    for place, own in wrong.items():
        negatives[place, : len(own)] = torch.tensor(list(own), dtype=torch.int64)
    notes = []
    if any(repeats):
        sizes = torch.tensor([group[text] for text in {**queries, **candidates} if joined.number.get(text) is not None])
        largest = int(sizes.unique(return_counts=True)[1].max())
        notes.append(
            f"{name}, {split}: {pairs} pairs: {repeats[0]} repeat a query and {repeats[1]} a positive; pairs that "
            f"share a text are one group ({len(sizes.unique())} groups, the largest with {largest} texts)"
        )
    if refused:
        notes.append(
            f"{name}, {split}: {len(refused)} hard negatives are left out, since they are in the group of their query "
            f"(the first: {refused[0]})"
        )

    def side(texts: dict[str, int]) -> Side:
        return Side(tuple(texts), "text", torch.tensor([group[text] for text in texts]))

    held = negatives if most else None
    return TrainingSet(side(queries), side(candidates), name, split, negatives=held, notes=tuple(notes))


def labelled(examples: Iterable[Examples], name: str, split: str) -> TrainingSet:
    """Make a labelled set of texts."""
    texts: list[str] = []
    labels: list[int] = []
    number: dict[str, int] = {}
    seen: dict[str, int] = {}
    twice: list[str] = []
    for row in examples:
        label = number.setdefault(row.label, len(number))
        for text in row.queries:
            if seen.setdefault(text, label) != label:
                twice.append(row.where)
            texts.append(text)
            labels.append(label)
    notes = [
        f"{name}, {split}: {len(twice)} texts stand under more than one label, where they are negatives of themselves "
        f"(the first: {each})"
        for each in twice[:1]
    ]
    return TrainingSet(Side(tuple(texts), "text", torch.tensor(labels)), None, name, split, notes=tuple(notes))


@dataclass(frozen=True)
class Roles:
    """Names of the columns that are read.

    Args:
        query: of the texts that ask; None: texts with labels.
        positive: of the texts that match them.
        negatives: of their hard negatives.
        match: says of each row whether its texts match; None: all do.
        text: of the texts with labels.
        label: of their labels; None: each row is a list of texts that belong together.
    """

    query: str | None = None
    positive: str | None = None
    negatives: tuple[str, ...] = ()
    match: str | None = None
    text: str | None = None
    label: str | None = None


def _files(path: Path) -> dict[str, list[Path]]:
    """Find the files of each split in a folder, or in its folder `data`; one file is a split by itself."""
    if not path.is_dir():
        return {"": [path]}
    found: dict[str, list[Path]] = {}
    for folder in (path, path / "data"):
        for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
            if (name := SPLIT_FILES.fullmatch(entry.name)) and entry.is_file():
                found.setdefault(name["split"], []).append(entry)
        if found:
            break
    return found


def recognises(path: Path) -> bool:
    """A table, or a folder with tables that are named for their splits."""
    return bool(_files(path)) if path.is_dir() else path.is_file() and looks_like_one(path)


def splits(path: Path, columns: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """List the splits: files of a folder, or values of the column `split`; `train` where there is none.

    Where there are several, `all` is their rows together.
    """
    files = _files(path)
    if "" not in files:
        return with_all(files)
    table = read(path)
    column = columns_of(columns).get("split", ["split"])[0]
    if column not in table.names:
        return ("train",)
    return with_all(str(each) for each in table.column(column) if not missing(each)) or ("train",)


def with_all(names: Iterable[str]) -> tuple[str, ...]:
    """Each name of a split once, and `all` behind several."""
    found = tuple(dict.fromkeys(names))
    return found if len(found) < 2 or ALL_ROWS in found else (*found, ALL_ROWS)


def load(split: str, path: Path, columns: Mapping[str, Any] | str | None = None) -> TrainingSet:
    """Load the texts of one split.

    Every text is one row, however often it occurs. Texts of a pair are one group, and so are all pairs that share a
    text: a duplicate is then no false negative. A hard negative is a candidate, and a row of `negatives`.

    Args:
        split: one of `splits`; `all` for every row, where no split has that name.
        path: of the file, or of a folder with a file for each split.
        columns: role -> name of a column (several for `negative`), where the names are not the usual ones; roles are
            `query`, `positive`, `negative`, `match` (1 where the texts of a row match), or `text`, `label`; `split`.

    Returns:
        Queries and candidates (`q2c`, `c2q`), or a labelled set (`s2s`).
    """
    path, given = Path(path), columns_of(columns)
    files = _files(path)
    whole = split == ALL_ROWS and ALL_ROWS not in files
    named = [each for some in files.values() for each in some] if whole else files.get(split, files.get("", []))
    tables = [(each, read(each)) for each in named]
    if not tables:
        raise InputError(nearest(f"split of {path}", split, files))
    name = path.name if path.is_dir() else path.name.partition(".")[0]
    chosen = roles(tables[0][1].names, given, path)
    column = None if "" not in files else given.get("split", ["split"])[0]
    found = training_set([table for _, table in tables], chosen, name=name, split=split, column=column)
    notes = [] if given else [_said(chosen, found.name)]
    rows, kept = (
        sum(each)
        for each in zip(*((table.rows, len(_of_split(table, split, column))) for _, table in tables), strict=True)
    )
    if kept < rows:
        notes.append(
            f"{found.name}: {kept} of {rows} rows are in split {split} (column {column}); --split {ALL_ROWS} takes all"
        )
    return replace(found, notes=(*found.notes, *notes))


def _said(chosen: Roles, name: str) -> str:
    """Say which columns were chosen, as the user would name them."""
    one = {"query": chosen.query, "positive": chosen.positive, "match": chosen.match}
    if chosen.text is not None:
        one = {"text": chosen.text, "label": chosen.label}
    words = [f"{role}={column}" for role, column in one.items() if column is not None]
    words += [f"negative={','.join(chosen.negatives)}"] if chosen.negatives else []
    return f"{name}: columns {','.join(words)}, told by their names"


def columns_of(columns: Mapping[str, Any] | str | None) -> dict[str, list[str]]:
    """Read the columns that the user names, as a mapping or as text such as query=title,negative=wrong_1,wrong_2."""
    if not isinstance(columns, Mapping | str | None):
        raise InputError(f"columns: {str(columns)[:60]}, expected names by role, such as query=NAME")
    if isinstance(columns, str):
        found: dict[str, list[str]] = {}
        role = ""
        for part in columns.split(","):
            before, sign, after = part.partition("=")
            role = before.strip() if sign else role
            found.setdefault(role, []).append((after if sign else part).strip())
    else:
        found = {
            role: list(each) if isinstance(each, list | tuple) else [each] for role, each in (columns or {}).items()
        }
    for role, names in found.items():
        if not isinstance(role, str) or not all(isinstance(name, str) for name in names):
            raise InputError(f"columns: {str(role)[:40]} is {str(names)[:60]}, expected a name")
        if role not in {*KNOWN, "negative"}:
            raise InputError(nearest("role of a column", role, [*KNOWN, "negative"]) + "; write it as query=NAME")
        if len(names) != 1 and role != "negative":
            raise InputError(f"columns: {role} is {', '.join(names) or 'no column'}, expected one name")
    return found


def roles(names: Sequence[str], given: Mapping[str, Sequence[str]], path: Path) -> Roles:
    """Choose columns: those that are named (role -> names), then those with a usual name."""
    for chosen in given.values():
        for name in chosen:
            if name not in names:
                raise InputError(nearest(f"column of {path}", name, names))
    by_name = {name.lower(): name for name in reversed(names)}

    def usual(role: str) -> str | None:
        return next((by_name[each.lower()] for each in KNOWN[role] if each.lower() in by_name), None)

    def named(role: str) -> str | None:
        return given[role][0] if role in given else None

    query, positive = named("query") or usual("query"), named("positive") or usual("positive")
    text = named("text") or usual("text")
    if named("text") is None and query and positive:
        negatives = tuple(given.get("negative", [name for name in names if NEGATIVE.fullmatch(name)]))
        explicit = {"query", "positive"} <= given.keys()
        return Roles(query, positive, negatives, match=named("match") or (None if explicit else usual("match")))
    if text and not {"query", "positive"} & given.keys():
        return Roles(text=text, label=named("label") or usual("label"))
    raise InputError(
        f"{path}: none of its columns is known ({', '.join(map(str, names[:12])) or 'there is none'}); name them: "
        f"cocos encode --columns query=NAME,positive=NAME or text=NAME,label=NAME"
    )


def training_set(
    tables: Sequence[Columns], chosen: Roles, *, name: str, split: str, column: str | None = None
) -> TrainingSet:
    """Make a training set of the rows of tables with the same columns.

    `column` names the split of each row; None: all rows are of this one.
    """
    make = paired if chosen.query else labelled
    kept = [(table, _of_split(table, split, column)) for table in tables]
    if not any(rows for _, rows in kept):
        raise InputError(f"{tables[0].path}, {split}: no row; expected at least two")
    examples = (example for table, rows in kept for example in _examples(table, rows, chosen))
    return make(examples, name, split)


def _of_split(table: Columns, split: str, column: str | None) -> Sequence[int]:
    if column is None or column not in table.names:
        return range(table.rows)
    found = [row for row, each in enumerate(table.column(column)) if str(each) == split]
    return range(table.rows) if split == ALL_ROWS and not found else found


def _examples(table: Columns, rows: Sequence[int], chosen: Roles) -> Iterator[Examples]:
    """Yield the texts of each row, by their role."""
    if chosen.text is not None:
        texts = table.column(chosen.text)
        labels = table.column(chosen.label) if chosen.label else None
        for row in rows:
            where = f"{table.path}, {table.line(row)}"
            label = _label(labels[row], f"{where}: {chosen.label}") if labels else where
            yield Examples(where, _texts(texts[row], f"{where}: {chosen.text}", many=labels is None), label=label)
        return
    query, positive = table.column(chosen.query or ""), table.column(chosen.positive or "")
    match = table.column(chosen.match) if chosen.match else None
    negatives = [(each, table.column(each)) for each in chosen.negatives if each in table.names]
    for row in rows:
        where = f"{table.path}, {table.line(row)}"
        asks, found = (
            _texts(query[row], f"{where}: {chosen.query}"),
            _texts(positive[row], f"{where}: {chosen.positive}"),
        )
        wrong = [text for each, values in negatives for text in _texts(values[row], f"{where}: {each}", empty=True)]
        if match is not None and not _is_match(match[row], f"{where}: {chosen.match}"):
            found, wrong = [], [*found, *wrong]
        yield Examples(where, asks, found, wrong)


def _texts(value: Any, where: str, *, empty: bool = False, many: bool = False) -> list[str]:
    """Read a text, or a list of texts; it may be `empty`, or has to be a list, for `many`."""
    if empty and missing(value):
        return []
    texts = value if isinstance(value, list) else [value]
    if many and not isinstance(value, list):
        raise InputError(
            f"{where} is one text, and no column has labels; name one: cocos encode --columns text=NAME,label=NAME"
        )
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{where} is {str(value)[:60]!r}, expected text; correct the row or leave it out")
    return texts


def _label(value: Any, where: str) -> str:
    """Read a label: text or a whole number."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if missing(value) or not isinstance(value, str | int) or str(value).strip().lower() == "nan":
        raise InputError(f"{where} is {str(value)[:60]!r}, expected text or a whole number; correct or remove the row")
    return str(value)


def _is_match(value: Any, where: str) -> bool:
    """Read whether the texts of a row match: 1 or 0."""
    found = MATCHES.get(str(value).strip().lower())
    if found is None:
        raise InputError(
            f"{where} is {str(value)[:60]!r}, expected 1 where the texts of a row match and 0 where they do not; to "
            "count every row as a match, name both: cocos encode --columns query=NAME,positive=NAME"
        )
    return found
