"""A batch as columns, (query, positive, hard negatives), as other libraries receive it; and where its scores stand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cocos.base.errors import InputError, Unfit
from cocos.embeddings import UNGIVEN, Embeddings
from cocos.embeddings.scores import METRICS, Pairs, length
from cocos.embeddings.sources import DIRECTIONS, OTHERS_HARD, OWN_HARD, SOURCES
from cocos.losses.external.cut import HALF_TOLERANCE, TOLERANCE
from cocos.losses.external.guard import rows_of

Pick = Callable[[Tensor], Tensor]  # a change of all scores, (Q, W) -> the part of it that stands in one tensor


@dataclass(frozen=True, eq=False)
class BatchColumns:
    """Rows of a batch in the form of a training set: row i of each column belongs to row i of the others.

    Args:
        query: (Q, D).
        documents: (Q, D) each, the positives first, then hard negatives.
        index: (Q, 1 + K) the candidate of the pairs that each document is; None: each is one of its own.
        candidates: number of candidates of the pairs; None: of the documents.
        teacher: (Q, 1 + K) scores of a teacher; or None.
        guide: rows of a guide, of the queries and then of each column of documents, (Q, G) each; or None.
        grades: (Q,) of graded pairs; or None.
    """

    query: Tensor
    documents: tuple[Tensor, ...]
    index: Tensor = UNGIVEN
    candidates: int = UNGIVEN
    teacher: Tensor | None = None
    guide: tuple[Tensor, ...] | None = None
    grades: Tensor | None = None

    def __post_init__(self) -> None:
        if self.index is None:
            rows = torch.arange(len(self.query) * len(self.documents), device=self.query.device)
            self.__dict__.update(index=rows.reshape(len(self.documents), -1).T, candidates=len(rows))

    @property
    def place(self) -> Tensor:
        """Candidates of the pairs in the order of the documents, column by column, (Q (1 + K),)."""
        return self.index.T.flatten()


@dataclass(frozen=True, eq=False)
class Place:
    """A tensor of scores that a library may compute.

    Args:
        block: its name; the library computes each block once, or as often as each other one.
        values: the scores, of any shape.
        pick: the part of a change of the pairs' scores that belongs to it.
    """

    block: str
    values: Tensor
    pick: Pick


def columns(spelling: str, pairs: Pairs, directions: Sequence[str], *, unit: bool, graded: bool) -> BatchColumns:
    """The columns of pairs of which query i matches candidate i.

    Args:
        spelling: name of the loss, for the sentences.
        pairs: with embeddings.
        directions: blocks of columns that the pairs have.
        unit: divide the rows by their norms.
        graded: the loss compares graded pairs.

    Raises:
        InputError: queries have different numbers of hard negatives, or there are no grades.
        Unfit: there are no embeddings, or query i does not match candidate i alone.
    """
    part = rows_of(spelling, pairs)
    queries, candidates = len(part.query), len(part.candidate)
    width = sum({"query": queries, "candidate": candidates}[name.split("-")[1]] for name in directions)
    if pairs.scores.shape[1] != width:
        raise Unfit(f"{spelling}: it reads {' and '.join(directions)}, and these pairs have other columns")
    own = torch.eye(queries, candidates, dtype=torch.bool, device=pairs.positive.device)
    matched = not part.shared and candidates >= queries and torch.equal(pairs.positive[:, :candidates], own)
    if not matched or (not graded and not (own | pairs.negative[:, :candidates]).all()):
        raise Unfit(
            f"{spelling}: it receives no labels, so query i must match candidate i and no other, and here it does not; "
            "draw pairs of two sides (--sample pairs)"
        )
    if graded and part.grades is None:
        raise InputError(f"{spelling}: it compares graded pairs, and these have no grades; add the array grades")
    index = _documents(spelling, pairs, candidates)
    if rest := candidates - len(index.unique()):
        raise Unfit(f"{spelling}: {rest} candidates of the batch are neither a positive nor a hard negative of a query")
    query, candidate = (rows / length(rows)[:, None] if unit else rows for rows in (part.query, part.candidate))
    guide = None
    if part.teacher is not None and part.teacher.guide is not None:
        guide = (part.teacher.guide[0], *(part.teacher.guide[1][each] for each in index.T))
    return BatchColumns(
        query,
        tuple(candidate[each] for each in index.T),
        index,
        candidates,
        teacher=None if pairs.teacher is None else pairs.teacher.gather(1, index),
        guide=guide,
        grades=part.grades,
    )


def _documents(spelling: str, pairs: Pairs, candidates: int) -> Tensor:
    """Candidates that are the positive and the own hard negatives of each query, (Q, 1 + K)."""
    first = torch.arange(len(pairs.scores), device=pairs.scores.device)[:, None]
    if pairs.source is None:
        return first
    own = pairs.source[:, :candidates] == OWN_HARD
    number = own.sum(dim=1)
    if not bool((number == number[0]).all()):
        raise InputError(
            f"{spelling}: it takes as many hard negatives of each query, and there are {int(number.min())} to "
            f"{int(number.max())} in a batch; fill up the array negatives, or leave some out"
        )
    rest = own.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(number[0])]
    return torch.cat([first, rest], dim=1)


def starts(given: BatchColumns, directions: Sequence[str]) -> dict[str, int]:
    """First column of the pairs of each direction."""
    found, at = {}, 0
    for name in directions:
        found[name] = at
        at += given.candidates if name.endswith("candidate") else len(given.query)
    return found


def places(
    given: BatchColumns,
    metric: str,
    directions: Sequence[str],
    *,
    column_by_column: bool,
    transposed: Sequence[str] = (),
) -> list[Place]:
    """Tensors of scores of the columns, with the part of a change of the pairs' scores that each has.

    Args:
        given: the columns.
        metric: of the scores.
        directions: blocks of columns that the pairs have.
        column_by_column: the library scores each column of documents by itself; otherwise all in one matrix.
        transposed: blocks of which the library computes the transpose, which values cannot tell of a symmetric one.
    """
    score, at = METRICS[metric], starts(given, directions)
    query, first, every = given.query, given.documents[0], torch.cat(given.documents)
    rows = torch.arange(len(query), device=query.device)

    def both(block: str, values: Tensor, start: int, place: Tensor) -> list[Place]:
        """The block and its transpose, in the order in which the library is expected to have them."""
        plain = Place(block, values, lambda change: change[:, start + place])
        other = Place(block, values.T, lambda change: change[:, start + place].T)
        return [other, plain] if block in transposed else [plain, other]

    found: list[Place] = []
    if column_by_column:
        for number, (document, place) in enumerate(zip(given.documents, given.index.T, strict=True)):
            found += both(f"{DIRECTIONS[0]} {number}", score(query, document), 0, place)
    else:
        found += both(DIRECTIONS[0], score(query, every), 0, given.place)
    documents = (first, given.index[:, 0]) if column_by_column else (every, given.place)
    sides = {"query": (query, rows), "candidate": documents}
    for name in (each for each in DIRECTIONS[1:] if each in at):
        asking, asked = name.split("-")
        columns_of, place = sides[asked]
        found += both(name, score(query if asking == "query" else first, columns_of), at[name], place)
    return found


def pairwise(given: BatchColumns, metric: str) -> list[Place]:
    """Scores of each query with its own row of a column of documents, (Q,), for libraries that compute no others."""
    score, rows = METRICS[metric], torch.arange(len(given.query), device=given.query.device)

    def one(number: int, document: Tensor, place: Tensor) -> Place:
        values = torch.cat([score(a[None], b[None])[0] for a, b in zip(given.query, document, strict=True)])
        return Place(f"own {number}", values, lambda change: change[rows, place])

    return [one(k, *each) for k, each in enumerate(zip(given.documents, given.index.T, strict=True))]


def expanded(
    given: BatchColumns, pairs: Pairs, directions: Sequence[str], *, column_by_column: bool
) -> tuple[Pairs, Tensor]:
    """The pairs as a library sees them, (Q, E), where a document of two queries stands twice; and where they are from.

    Returns:
        The pairs, without rows, and the column of the given ones of each of their columns, (E,).
    """
    at, own = starts(given, directions), torch.eye(len(given.query), dtype=torch.bool, device=pairs.scores.device)
    rows, more = torch.arange(len(own), device=own.device), given.index.shape[1] - 1
    none, documents = torch.zeros_like(own), torch.cat([own] * (1 + more), dim=1)
    hard = torch.where(own, OWN_HARD, OTHERS_HARD)
    blocks = [(given.place, torch.cat([own, *[none] * more], 1), torch.cat([~own, *[~none] * more], 1))]
    source = [torch.zeros_like(hard), *[hard] * more]
    for name in directions[1:]:
        start = at[name]
        if name == "candidate-candidate":
            place, mine = (given.index[:, 0], own) if column_by_column else (given.place, documents)
            blocks.append((start + place, torch.zeros_like(mine), ~mine))
        else:
            blocks.append((start + rows, own if name == "candidate-query" else none, ~own))
        source.append(torch.full_like(blocks[-1][1], SOURCES.index(name), dtype=hard.dtype))
    place = torch.cat([each for each, _, _ in blocks])
    made = Pairs(
        pairs.scores[:, place],
        torch.cat([positive for _, positive, _ in blocks], dim=1),
        torch.cat([negative for _, _, negative in blocks], dim=1),
        teacher=None if pairs.teacher is None else pairs.teacher[:, place],
        source=torch.cat(source, dim=1).to(torch.int8),
    )
    return made, place


def rescored(part: Embeddings, metric: str, directions: Sequence[str], *, graded: bool) -> Tensor:
    """Scores of the pairs, as a function of their rows: (Q, W), or (Q, Q) of graded pairs."""
    score, query, candidate = METRICS[metric], part.query, part.candidate
    if graded:
        each = [score(a[None], b[None])[0] for a, b in zip(query, candidate, strict=True)]
        return torch.cat(each).expand(len(query), -1)
    sides = {"query": query, "candidate": candidate}
    found = []
    for name in directions:
        asking, asked = name.split("-")
        found.append(score(query if asking == "query" else candidate[: len(query)], sides[asked]))
    return torch.cat(found, dim=1)


@dataclass
class ScoreWatch(TorchFunctionMode):
    """Add a change of the scores to the tensors in which a library computes them.

    A tensor is recognised by its values, up to `factor`. One that the change has reached already is left alone: the
    rows themselves have no gradient.

    Args:
        places: the tensors to look for.
        change: (Q, W), to be added to the scores; it requires a gradient.
        factor: of the library's scores.
        found: block -> number of times that it was seen.
        copies: tensors without a gradient that were computed from tensors with one, like penalties.
    """

    places: list[Place]
    change: Tensor
    factor: float = 1.0
    found: dict[str, int] = field(default_factory=dict)
    copies: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function of PyTorch and look at its result."""
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, Tensor) or not result.is_floating_point():
            return result
        if result.requires_grad:
            return result
        if any(map(self._reached, args)):
            self.copies.append(result)
            return result
        like = [
            (place, factor)
            for place in self.places
            for factor in dict.fromkeys((1.0, self.factor))
            if _equal(result, place.values, factor)
        ]
        if not like:
            return result
        place, factor = min(like, key=lambda each: self.found.get(each[0].block, 0))
        self.found[place.block] = self.found.get(place.block, 0) + 1
        return result + factor * place.pick(self.change).to(result)

    def _reached(self, value: Any) -> bool:
        """Whether the change has reached a tensor, or one that its values were copied to without a gradient."""
        if not isinstance(value, Tensor):
            return isinstance(value, list | tuple) and any(map(self._reached, value))
        return value.requires_grad or any(value is each for each in self.copies)


def _equal(result: Tensor, values: Tensor, factor: float) -> bool:
    """Whether a tensor is that of the scores, times a factor, up to rounding."""
    if result.shape != values.shape:
        return False
    room = TOLERANCE.get(result.dtype, HALF_TOLERANCE) * abs(factor)
    off: Tensor = (result.detach() - factor * values.to(result)).abs().max()
    return bool(off <= room * values.abs().max())
