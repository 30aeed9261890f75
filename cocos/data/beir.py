"""Folders of the benchmark BEIR: `corpus.jsonl`, `queries.jsonl`, and judgements of each split in `qrels/*.tsv`."""

from collections.abc import Container, Iterator
from dataclasses import replace
from pathlib import Path

from cocos.base.errors import InputError, nearest
from cocos.data import TrainingSet
from cocos.data.pairs import Examples, paired
from cocos.data.tables import fields, missing, read

HEADER = ("query-id", "corpus-id", "score")


def _texts_file(path: Path, name: str) -> Path | None:
    """The file of the texts of one side, which may be gzipped."""
    return next((each for end in ("", ".gz") if (each := path / f"{name}.jsonl{end}").is_file()), None)


def recognises(path: Path) -> bool:
    """A folder with the texts of both sides and a folder of judgements."""
    return all(_texts_file(path, name) for name in ("corpus", "queries")) and bool(splits(path))


def splits(path: Path) -> tuple[str, ...]:
    """List the splits, which are the files of judgements."""
    return tuple(sorted(each.stem for each in (path / "qrels").glob("*.tsv")))


def load(split: str, path: Path) -> TrainingSet:
    """Read the judged pairs of a split: relevant documents are positives, and those judged at most 0 hard negatives.

    The text of a document is its title and its text, as the benchmark joins them. Documents that nobody judged are left
    out.
    """
    if split not in splits(path):
        raise InputError(nearest(f"split of {path}", split, splits(path)))
    place = path / "qrels" / f"{split}.tsv"
    judged: dict[str, dict[str, float]] = {}
    for row, (query, document, grade) in enumerate(fields(place, HEADER, header=1)):
        try:
            judged.setdefault(query, {})[document] = float(grade)
        except ValueError:
            raise InputError(f"{place}, row {row}: grade {grade[:40]!r}, expected a number") from None
    queries = _texts(path, "queries", judged.keys())
    documents = _texts(path, "corpus", {each for own in judged.values() for each in own})
    unknown = [each for query, own in judged.items() for each in _unknown(query, own, queries, documents)]
    if len(unknown) == sum(map(len, judged.values())):
        raise InputError(f"{place}: no judgement names a query of queries.jsonl and a document of corpus.jsonl")
    examples = []
    for query, own in judged.items():
        known = {each: grade for each, grade in own.items() if query in queries and each in documents}
        sides: tuple[list[str], list[str]] = ([], [])
        for each, grade in known.items():
            sides[grade <= 0].append(documents[each])
        if sides[0]:
            examples.append(Examples(f"query {query}", [queries[query]], *sides))
    found = paired(examples, path.name, split)
    if not unknown:
        return found
    first = f"judgements of unknown ids are left out: {len(unknown)}, such as {unknown[0]}"
    return replace(found, notes=(*found.notes, first))


def _unknown(query: str, own: dict[str, float], queries: dict[str, str], documents: dict[str, str]) -> Iterator[str]:
    """Yield in words each judgement of a query whose texts are not there."""
    for document in own:
        if query not in queries:
            yield f"query {query[:40]!r}, which queries.jsonl does not have"
        elif document not in documents:
            yield f"document {document[:40]!r}, which corpus.jsonl does not have"


def _texts(path: Path, name: str, wanted: Container[str]) -> dict[str, str]:
    """The texts of one side by their ids, of those that are judged."""
    place = _texts_file(path, name)
    if place is None:
        raise InputError(f"{path} has no {name}.jsonl")
    table = read(place)
    for column in ("_id", "text"):
        if column not in table.names:
            raise InputError(f"{place}: there is no field {column!r}, expected _id, text and optionally title")
    titles = table.column("title") if "title" in table.names else [""] * table.rows
    found = {}
    for own, title, text in zip(table.column("_id"), titles, table.column("text"), strict=True):
        if str(own) in wanted:
            parts = (str(each).strip() for each in (title, text) if not missing(each))
            found[str(own)] = " ".join(part for part in parts if part)
    return found
