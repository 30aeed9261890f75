"""BEIR folders: `corpus.jsonl`, `queries.jsonl`, and the judgements of each split in `qrels/*.tsv`."""

from dataclasses import replace
from pathlib import Path

import torch

from cocos.base.errors import InputError, nearest
from cocos.data import tables
from cocos.data.pairs import Example, paired_texts
from cocos.data.training_set import Side, TrainingSet

HEADER = ("query-id", "corpus-id", "score")
MAX_CORPUS = 1_000_000  # documents; `evaluate` encodes a larger corpus only in part: MS MARCO has 8.8 million


def find_texts(path: Path, name: str) -> Path | None:
    """Return the file of the texts of one side, which may be gzipped."""
    return next((file for end in ("", ".gz") if (file := path / f"{name}.jsonl{end}").is_file()), None)


def sniff(path: Path) -> bool:
    """Return whether a folder has the texts of both sides and judgements."""
    return all(find_texts(path, name) for name in ("corpus", "queries")) and bool(splits(path))


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits, which are the files of judgements."""
    return tuple(sorted(file.stem for file in (path / "qrels").glob("*.tsv")))


def load(split: str, path: Path) -> TrainingSet:
    """Read the judged pairs of a split.

    Relevant documents are positives, documents with a grade of at most 0 are hard negatives. The text of a document is
    its title and its text, as the benchmark joins them. The other documents are `corpus`, which `evaluate` ranks.
    """
    if split not in splits(path):
        raise InputError(nearest(f"split of {path}", split, splits(path)))
    judgements = path / "qrels" / f"{split}.tsv"
    grades: dict[str, dict[str, float]] = {}
    for row, (query, document, grade) in enumerate(tables.read_fields(judgements, HEADER, header=1)):
        try:
            grades.setdefault(query, {})[document] = float(grade)
        except ValueError:
            raise InputError(f"{judgements}, row {row}: grade {grade[:40]!r}, expected a number") from None
    queries, documents = read_texts(path, "queries"), read_texts(path, "corpus")
    unknown, examples = [], []
    for query, by_document in grades.items():
        positives, negatives = [], []
        for document, grade in by_document.items():
            if query not in queries:
                unknown.append(f"query {query[:40]!r}, which queries.jsonl does not have")
            elif document not in documents:
                unknown.append(f"document {document[:40]!r}, which corpus.jsonl does not have")
            else:
                (positives if grade > 0 else negatives).append(documents[document])
        if positives:
            examples.append(Example(f"query {query}", [queries[query]], positives, negatives))
    if len(unknown) == sum(map(len, grades.values())):
        raise InputError(f"{judgements}: no judgement has a query of queries.jsonl and a document of corpus.jsonl")
    training = paired_texts(examples, path.name, split, equal_texts_match=False)
    notes = list(training.notes)
    if unknown:
        notes.append(f"judgements of unknown ids are skipped: {len(unknown)}, such as {unknown[0]}")
    if own := sum(query in documents for query in grades):
        notes.append(
            f"{path.name}, {split}: {own} of {len(grades)} queries have the id of a document, which is ranked like any "
            "other; BEIR and MTEB remove it from the ranking of its query, trec_eval does not"
        )
    judged = set(training.candidate.items)
    unjudged = tuple(text for text in dict.fromkeys(documents.values()) if text not in judged)
    if len(unjudged) > MAX_CORPUS:
        notes.append(
            f"{path.name}, {split}: only {MAX_CORPUS:,} of {len(unjudged):,} documents without judgement are ranked by "
            "evaluate"
        )
        unjudged = unjudged[:MAX_CORPUS]
    first = 1 + int(max(training.query.group.max(), training.candidate.group.max()))
    corpus = Side(unjudged, "text", torch.arange(first, first + len(unjudged))) if unjudged else None
    return replace(training, notes=tuple(notes), corpus=corpus)


def read_texts(path: Path, name: str) -> dict[str, str]:
    """Return the texts of one side by id."""
    file = find_texts(path, name)
    table = tables.read(file)
    for column in ("_id", "text"):
        if column not in table.names:
            raise InputError(f"{file}: no field {column!r}, expected _id, text and optionally title")
    titles = table.column("title") if "title" in table.names else [""] * table.rows
    texts = {}
    for key, *parts in zip(table.column("_id"), titles, table.column("text"), strict=True):
        stripped = (str(part).strip() for part in parts if not tables.missing(part))
        texts[str(key)] = " ".join(part for part in stripped if part)
    return texts
