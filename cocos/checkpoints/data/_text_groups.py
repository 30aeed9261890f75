"""Groups of texts: equal texts are one row, and pairs that share a text are one group."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from cocos.base.errors import InputError
from cocos.checkpoints.data import Side, TrainingSet

__all__ = ["Examples", "labelled", "paired"]


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
    """Make a training set of pairs: each text is one row of its side, and hard negatives are candidates.

    Args:
        examples: the rows.
        name: of the data.
        split: of the data.
    """
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
    """Make a labelled set of texts.

    Args:
        examples: the rows.
        name: of the data.
        split: of the data.
    """
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
