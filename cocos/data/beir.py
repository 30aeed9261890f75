"""BEIR folders: `corpus.jsonl`, `queries.jsonl`, and the judgements of each split in `qrels/*.tsv`."""

from dataclasses import replace
from pathlib import Path

import torch

from cocos.base.errors import InputError
from cocos.data import tables
from cocos.data.pairs import Pair, paired_texts
from cocos.data.training_set import Side, TrainingSet

HEADER = ("query-id", "corpus-id", "score")


def find_texts(path: Path, name: str) -> Path | None:
    """Return the file of the texts of one side, which may be gzipped."""
    return next((file for end in ("", ".gz") if (file := path / f"{name}.jsonl{end}").is_file()), None)


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits, which are the files of judgements of a folder with the texts of both sides."""
    has_texts = all(find_texts(path, name) for name in ("corpus", "queries"))
    return tuple(sorted(file.stem for file in (path / "qrels").glob("*.tsv"))) if has_texts else ()


def load(split: str, path: Path) -> TrainingSet:
    """Read the judged pairs of a split.

    Relevant documents are positives, documents with a grade of at most 0 are hard negatives. The text of a document is
    its title and its text, as the benchmark joins them. The other documents are `corpus`, which `evaluate` ranks.
    """
    judgements = path / "qrels" / f"{split}.tsv"
    queries, documents = read_texts(find_texts(path, "queries")), read_texts(find_texts(path, "corpus"))
    relevant: dict[str, tuple[list[str], list[str]]] = {}  # query -> positives, negatives
    unknown = []
    with tables.readable(judgements):
        for query, document, grade in tables.read_fields(judgements, HEADER, header=1):
            if query in queries and document in documents:
                relevant.setdefault(query, ([], []))[float(grade) <= 0].append(documents[document])
            else:
                unknown.append(f"{query} {document}")
    if not relevant:
        raise InputError(f"{judgements}: no judgement has a query of queries.jsonl and a document of corpus.jsonl")
    pairs = [Pair(f"query {query}", queries[query], *texts) for query, texts in relevant.items() if texts[0]]
    training = paired_texts(pairs, path.name, split, equal_texts_match=False)
    notes = list(training.notes)
    if unknown:
        notes.append(f"{judgements}: {len(unknown)} judgements of unknown ids are skipped, such as {unknown[0]}")
    if equal := sum(query in documents for query in relevant):
        notes.append(
            f"{path.name}, {split}: {equal} of {len(relevant)} queries have the id of a document, which is ranked like "
            "any other; BEIR and MTEB remove it from the ranking of its query, trec_eval does not"
        )
    judged = set(training.candidate.items)
    unjudged = tuple(text for text in dict.fromkeys(documents.values()) if text not in judged)
    first = 1 + int(max(training.query.group.max(), training.candidate.group.max()))
    corpus = Side(unjudged, "text", torch.arange(first, first + len(unjudged))) if unjudged else None
    return replace(training, notes=tuple(notes), corpus=corpus)


def read_texts(file: Path) -> dict[str, str]:
    """Return the texts of one side by id: `_id`, `text` and optionally `title`."""
    table = tables.read(file)
    if missing := {"_id", "text"} - set(table.names):
        raise InputError(f"{file}: no field {min(missing)!r}, expected _id, text and optionally title")
    columns = [table.column(name) for name in ("title", "text") if name in table.names]
    texts = {}
    for key, *parts in zip(table.column("_id"), *columns, strict=True):
        stripped = (str(part).strip() for part in parts if not tables.missing(part))
        texts[str(key)] = " ".join(part for part in stripped if part)
    return texts
