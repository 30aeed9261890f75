"""Marks: labels of pairs of a query and a candidate, such as near-duplicates, or the sources of candidates.

A mark has a name and one kind or several, and gives the kind of each pair of rows in both directions. Groups are
separate: the reader decides what a mark means among the positives.
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

MOST_KINDS = 16  # largest number of kinds of one mark
UNMARKED = -1  # kind of the pairs without a mark
FindKinds = Callable[[Tensor, Tensor], Tensor]  # kinds of pairs, (q, c), of queries (q,) and candidates (c,)


@dataclass(frozen=True, eq=False)
class Mark:
    """A mark on pairs of a query and a candidate.

    Args:
        name: of the mark.
        kinds: names of its kinds.
        forward: returns the kinds of pairs; None if unknown in this direction.
        backward: the same in the other direction.

    Examples:
        Rows with equal labels are marked:

        >>> mark = cocos.marks.of("look-alike", ([1, 2], [2, 1, 3]), 2, 3)
        >>> mark.pairs(torch.tensor([0, 1]), torch.tensor([0, 1, 2])).tolist()
        [[-1, 0, -1], [0, -1, -1]]
    """

    name: str
    kinds: tuple[str, ...]
    forward: FindKinds | None
    backward: FindKinds | None

    @property
    def labels(self) -> list[str]:
        """A label for each kind: the name of the mark, with the name of the kind if there are several."""
        return [self.name] if self.kinds == (self.name,) else [f"{self.name}: {kind}" for kind in self.kinds]

    def pairs(self, query: Tensor, candidate: Tensor) -> Tensor | None:
        """Return the kind of each pair of rows, (q, c) int64, -1 for none; None if unknown."""
        return None if self.forward is None else self.forward(query.cpu(), candidate.cpu()).to(query.device)

    def flip(self) -> "Mark":
        """Return the mark of the other direction."""
        return replace(self, forward=self.backward, backward=self.forward)


def each(labels: Mapping[str, Any] | None, queries: int, candidates: int) -> dict[str, Mark]:
    """Make marks by their names: see `of`."""
    if labels is not None and not isinstance(labels, Mapping):
        raise InputError(f"marks: {type(labels).__name__}, expected a dict of name: mark (cocos.marks.of)")
    return {name: of(name, label, queries, candidates) for name, label in (labels or {}).items()}


def of(name: str, label: Any, queries: int, candidates: int) -> Mark:
    """Make a mark of labels, a matrix, rows, or sources.

    Args:
        name: of the mark.
        label: a pair of labels of all rows, (of the queries, of the candidates), integers or text: equal ones mark a
            pair, and a number below 0 or an empty text marks none. Or a bool matrix (Q, C). Or rows (n, 2) of the
            queries and candidates of the marked pairs. Or the sources of candidates: a dict with one text for each
            `candidate`, and for each `query` as a candidate of the other direction.
        queries: number of queries.
        candidates: number of candidates.

    Examples:
        >>> cocos.marks.of("source", {"candidate": ["in-batch", "hard", "hard"]}, 2, 3).labels
        ['source: hard', 'source: in-batch']
    """
    title, sizes = f"marks, {name}", {"query": queries, "candidate": candidates}
    if not (isinstance(name, str) and name.strip() and name.isprintable()):
        raise InputError(f"marks: {name!r}, expected a name of printable text")
    if isinstance(label, Mark):
        return replace(label, name=name, kinds=(name,) if label.kinds == (label.name,) else label.kinds)
    if isinstance(label, Mapping):
        return _mark_sources(name, label, sizes)
    if isinstance(label, tuple) and len(label) == 2:
        ids = dict(zip((f"{title} of query", f"{title} of candidate"), label, strict=True))
        first, second = (
            annotations.groups(key, values, side, sizes[side]).cpu()
            for (key, values), side in zip(annotations.number_texts(ids, empty=UNMARKED).items(), sizes, strict=True)
        )
        return Mark(name, (name,), partial(_compare_labels, first, second), partial(_compare_labels, second, first))
    expected = f"labels of both sides, a bool matrix ({queries}, {candidates}), or rows of both sides, (n, 2)"
    pairs = annotations.as_tensor(title, np.asarray(label) if isinstance(label, list) else label, expected).cpu()
    if pairs.dtype == torch.bool and tuple(pairs.shape) == (queries, candidates):
        pairs = pairs.nonzero()
    pairs = annotations.integers(title, pairs, expected)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InputError(f"{title}: shape {tuple(pairs.shape)}, expected {expected}")
    wrong = ((pairs < 0) | (pairs >= torch.tensor([queries, candidates]))).any(dim=1).nonzero().flatten().tolist()
    if wrong:
        pair = tuple(pairs[wrong[0]].tolist())
        expected = f"rows of {queries} queries, {candidates} candidates"
        raise InputError(f"{title}: {pair} in {rows(wrong)}, expected {expected}")
    find_forward = partial(_find_pairs, (pairs @ torch.tensor([candidates, 1])).sort().values, candidates)
    back = partial(_find_pairs, (pairs @ torch.tensor([1, queries])).sort().values, queries)
    return Mark(name, (name,), find_forward, back)


def _mark_sources(name: str, texts_by_side: Mapping[str, Any], sizes: Mapping[str, int]) -> Mark:
    """Make a mark whose kinds are texts of the candidates, and of the queries in the other direction."""
    title = f"marks, {name}"
    if "candidate" not in texts_by_side or not set(texts_by_side) <= set(sizes):
        raise InputError(f"{title}: {', '.join(map(str, texts_by_side))}, expected candidate, and query if you like")
    texts = [annotations.names(f"{title} of {side}", texts_by_side.get(side), size) for side, size in sizes.items()]
    kinds = sorted({text for side in texts for text in side or () if text})
    if not 1 <= len(kinds) <= MOST_KINDS:
        raise InputError(f"{title}: {len(kinds)} kinds, expected 1 to {MOST_KINDS}")
    number = {kind: place for place, kind in enumerate(kinds)} | {"": UNMARKED}
    backward, forward = (
        None if side is None else partial(_look_up_candidates, torch.tensor([number[text] for text in side]))
        for side in texts
    )
    return Mark(name, tuple(kinds), forward, backward)


def _compare_labels(query_labels: Tensor, candidate_labels: Tensor, query: Tensor, candidate: Tensor) -> Tensor:
    """Mark the pairs with equal labels of at least 0."""
    left, right = query_labels[query][:, None], candidate_labels[candidate][None]
    return torch.where((left == right) & (left >= 0), 0, UNMARKED)


def _find_pairs(keys: Tensor, width: int, query: Tensor, candidate: Tensor) -> Tensor:
    """Mark the pairs with row of the query * width + row of the candidate among the sorted keys."""
    return torch.where(within(query[:, None] * width + candidate, keys), 0, UNMARKED)


def within(values: Tensor, sorted_values: Tensor) -> Tensor:
    """Return whether values are among sorted ones."""
    if not len(sorted_values):
        return torch.zeros_like(values, dtype=torch.bool)
    place = torch.searchsorted(sorted_values, values).clamp(max=len(sorted_values) - 1)
    return sorted_values[place] == values


def _look_up_candidates(kinds: Tensor, query: Tensor, candidate: Tensor) -> Tensor:
    """Return the kind of each candidate, for all queries."""
    return kinds[candidate].expand(len(query), -1)
