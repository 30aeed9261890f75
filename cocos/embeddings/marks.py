"""Marks on pairs of a query and a candidate, such as look-alikes, or the sources that candidates come from.

A mark has a name and one kind or several. It says of each pair of rows which kind it is, or none, in both directions,
and nothing of groups: what a mark means among the positives is left to the reader.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError, rows
from cocos.embeddings import annotations

__all__ = ["Mark", "each", "of"]

# Largest number of kinds of one mark.
MOST_KINDS = 16
# Number of a pair that is of no kind.
UNMARKED = -1
# Gives the kinds of some pairs, (q, c), from rows of the queries, (q,), and of the candidates, (c,).
Finds = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Mark:
    """A mark on pairs of a query and a candidate.

    Args:
        name: of the mark.
        kinds: names of its kinds.
        there: gives the kinds of some pairs; None: nothing is known where the queries ask.
        back: the same where the candidates ask.

    Examples:
        Labels mark the pairs that have the same one:

        >>> mark = cocos.marks.of("look-alike", ([1, 2], [2, 1, 3]), 2, 3)
        >>> mark.pairs(torch.tensor([0, 1]), torch.tensor([0, 1, 2])).tolist()
        [[-1, 0, -1], [0, -1, -1]]
    """

    name: str
    kinds: tuple[str, ...]
    there: Finds | None
    back: Finds | None

    @property
    def labels(self) -> list[str]:
        """A label for each kind: the name of the mark, with that of the kind where there are several."""
        return [self.name] if self.kinds == (self.name,) else [f"{self.name}: {kind}" for kind in self.kinds]

    def pairs(self, query: Tensor, candidate: Tensor) -> Tensor | None:
        """Number of the kind of each pair of some rows, (q, c) int64, -1 for none; None where nothing is known."""
        return None if self.there is None else self.there(query.cpu(), candidate.cpu()).to(query.device)

    def flip(self) -> "Mark":
        """The same mark where the candidates ask."""
        return replace(self, there=self.back, back=self.there)


def each(labels: Mapping[str, Any] | None, queries: int, candidates: int) -> dict[str, Mark]:
    """Make marks by their names: see `of`."""
    if labels is not None and not isinstance(labels, Mapping):
        raise InputError(f"marks: {type(labels).__name__}, expected a dict of name: mark (cocos.marks.of)")
    return {name: of(name, label, queries, candidates) for name, label in (labels or {}).items()}


def of(name: str, label: Any, queries: int, candidates: int) -> Mark:
    """Make a mark of labels, a matrix, rows, or sources.

    Args:
        name: of the mark.
        label: a pair of labels of all rows, (of the queries, of the candidates), whole numbers or text: equal ones mark
            a pair, and a number below 0 or an empty text marks none. Or a bool matrix (Q, C). Or rows (n, 2) of the
            queries and candidates of the marked pairs. Or a dict with a text for each `candidate`, and likewise for
            each `query` where queries are candidates of the other direction: the sources that they come from.
        queries: number of queries.
        candidates: number of candidates.

    Examples:
        >>> cocos.marks.of("source", {"candidate": ["in-batch", "hard", "hard"]}, 2, 3).labels
        ['source: hard', 'source: in-batch']
    """
    title = f"marks, {name}"
    if not (isinstance(name, str) and name.strip() and name.isprintable()):
        raise InputError(f"marks: {name!r}, expected a name of printable text")
    if isinstance(label, Mark):
        return replace(label, name=name, kinds=(name,) if label.kinds == (label.name,) else label.kinds)
    if isinstance(label, Mapping):
        return _sources(name, label, {"query": queries, "candidate": candidates})
    if isinstance(label, tuple) and len(label) == 2:
        ids = annotations.number_texts(
            {f"{title} of query": label[0], f"{title} of candidate": label[1]}, empty=UNMARKED
        )
        sides = [
            annotations.groups(key, values, side, length).cpu()
            for (key, values), side, length in zip(
                ids.items(), ("query", "candidate"), (queries, candidates), strict=True
            )
        ]
        return Mark(name, (name,), partial(_of_equal_labels, *sides), partial(_of_equal_labels, *sides[::-1]))
    try:
        pairs = torch.as_tensor(np.asarray(label) if isinstance(label, list | tuple) else label).cpu()
    except (TypeError, ValueError, RuntimeError):
        pairs = torch.zeros(())
    if pairs.dtype == torch.bool and tuple(pairs.shape) == (queries, candidates):
        pairs = pairs.nonzero()
    whole = not (pairs.is_floating_point() or pairs.is_complex() or pairs.dtype == torch.bool)
    if not whole or pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InputError(
            f"{title}: {pairs.dtype} of shape {tuple(pairs.shape)}, expected labels of both sides, a bool matrix "
            f"({queries}, {candidates}), or rows of queries and candidates, (n, 2)"
        )
    pairs = pairs.long()
    wrong = ((pairs < 0) | (pairs >= torch.tensor([queries, candidates]))).any(dim=1).nonzero().flatten().tolist()
    if wrong:
        pair = tuple(pairs[wrong[0]].tolist())
        raise InputError(
            f"{title}: {pair} in {rows(wrong)}, expected rows of {queries} queries, {candidates} candidates"
        )
    there, back = (pairs @ torch.tensor(factors) for factors in ((candidates, 1), (1, queries)))
    return Mark(
        name,
        (name,),
        partial(_of_listed_pairs, there.sort().values, candidates),
        partial(_of_listed_pairs, back.sort().values, queries),
    )


def _sources(name: str, texts_by_side: Mapping[str, Any], sizes: Mapping[str, int]) -> Mark:
    """Make a mark whose kinds are texts of the candidates, and of the queries where they are candidates."""
    title = f"marks, {name}"
    if "candidate" not in texts_by_side or not set(texts_by_side) <= set(sizes):
        raise InputError(
            f"{title}: a dict of {', '.join(map(str, texts_by_side))}, expected candidate, and query if you like"
        )
    texts = [annotations.names(f"{title} of {side}", texts_by_side.get(side), size) for side, size in sizes.items()]
    kinds = sorted({text for side in texts for text in side or () if text})
    if not 1 <= len(kinds) <= MOST_KINDS:
        raise InputError(f"{title}: {len(kinds)} kinds, expected 1 to {MOST_KINDS}")
    number = {kind: place for place, kind in enumerate(kinds)} | {"": UNMARKED}
    query, candidate = (
        None if side is None else partial(_of_candidate, torch.tensor([number[text] for text in side]))
        for side in texts
    )
    return Mark(name, tuple(kinds), candidate, query)


def _of_equal_labels(query_labels: Tensor, candidate_labels: Tensor, query: Tensor, candidate: Tensor) -> Tensor:
    """0 where the labels of both rows are equal and none is below 0."""
    left, right = query_labels[query][:, None], candidate_labels[candidate][None]
    return torch.where((left == right) & (left >= 0), 0, UNMARKED)


def _of_listed_pairs(keys: Tensor, width: int, query: Tensor, candidate: Tensor) -> Tensor:
    """0 where row of the query * width + row of the candidate is among the sorted keys."""
    return torch.where(within(query[:, None] * width + candidate, keys), 0, UNMARKED)


def within(values: Tensor, sorted_values: Tensor) -> Tensor:
    """Whether values are among sorted ones."""
    if not len(sorted_values):
        return torch.zeros_like(values, dtype=torch.bool)
    place = torch.searchsorted(sorted_values, values).clamp(max=len(sorted_values) - 1)
    return sorted_values[place] == values


def _of_candidate(kinds: Tensor, query: Tensor, candidate: Tensor) -> Tensor:
    """The kind of each candidate, whoever asks."""
    return kinds[candidate].expand(len(query), -1)
