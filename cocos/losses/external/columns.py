"""Arrange a batch in columns, (query, positive, hard negatives), as other libraries take it, and find its scores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError, Unfit
from cocos.embeddings import UNGIVEN, Embeddings
from cocos.embeddings.scores import METRICS, Pairs, length
from cocos.embeddings.sources import DIRECTIONS, OTHERS_HARD, OWN_HARD, SOURCES
from cocos.losses.external.guard import rows_of
from cocos.losses.external.score_matrix import HALF_TOLERANCE, TOLERANCE

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
    def column_index(self) -> Tensor:
        """Candidates of the pairs in the order of the documents, column by column, (Q (1 + K),)."""
        return self.index.T.flatten()


@dataclass(frozen=True, eq=False)
class ScoreBlock:
    """A tensor of scores that a library may compute.

    Args:
        name: of the block; the library computes each block once, or as often as each other one.
        values: the scores, of any shape.
        pick: selects the part of a change of the pairs' scores that belongs to it.
    """

    name: str
    values: Tensor
    pick: Pick


def columns(spelling: str, pairs: Pairs, directions: Sequence[str], *, unit: bool, graded: bool) -> BatchColumns:
    """Arrange pairs of which query i matches candidate i as columns.

    Args:
        spelling: name of the loss, for the sentences.
        pairs: with embeddings.
        directions: blocks of columns that the pairs have.
        unit: divide the rows by their norms.
        graded: the loss compares graded pairs.
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
    index = _document_index(spelling, pairs, candidates)
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


def _document_index(spelling: str, pairs: Pairs, candidates: int) -> Tensor:
    """Number the candidates that are the positive and the own hard negatives of each query, (Q, 1 + K)."""
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


def first_columns(given: BatchColumns, directions: Sequence[str]) -> dict[str, int]:
    """Number the first column of the pairs of each direction."""
    found, start = {}, 0
    for name in directions:
        found[name] = start
        start += given.candidates if name.endswith("candidate") else len(given.query)
    return found


def score_blocks(
    given: BatchColumns,
    metric: str,
    directions: Sequence[str],
    *,
    column_by_column: bool,
    transposed: Sequence[str] = (),
) -> list[ScoreBlock]:
    """List the tensors of scores of the columns, with the part of a change of the pairs' scores that each has.

    Args:
        given: the columns.
        metric: of the scores.
        directions: blocks of columns that the pairs have.
        column_by_column: the library scores each column of documents by itself; otherwise all in one matrix.
        transposed: blocks of which the library computes the transpose, which values cannot tell of a symmetric one.
    """
    score, first = METRICS[metric], first_columns(given, directions)
    query, positives, every = given.query, given.documents[0], torch.cat(given.documents)
    rows = torch.arange(len(query), device=query.device)

    def both(name: str, values: Tensor, start: int, index: Tensor) -> list[ScoreBlock]:
        """The block and its transpose, in the order in which the library is expected to have them."""
        plain = ScoreBlock(name, values, lambda change: change[:, start + index])
        turned = ScoreBlock(name, values.T, lambda change: change[:, start + index].T)
        return [turned, plain] if name in transposed else [plain, turned]

    found: list[ScoreBlock] = []
    if column_by_column:
        for number, (document, index) in enumerate(zip(given.documents, given.index.T, strict=True)):
            found += both(f"{DIRECTIONS[0]} {number}", score(query, document), 0, index)
    else:
        found += both(DIRECTIONS[0], score(query, every), 0, given.column_index)
    documents = (positives, given.index[:, 0]) if column_by_column else (every, given.column_index)
    sides = {"query": (query, rows), "candidate": documents}
    for name in (each for each in DIRECTIONS[1:] if each in first):
        asking, asked = name.split("-")
        candidates, index = sides[asked]
        found += both(name, score(query if asking == "query" else positives, candidates), first[name], index)
    return found


def own_document_scores(given: BatchColumns, metric: str) -> list[ScoreBlock]:
    """List the scores of each query with its own row of a column of documents, (Q,), for libraries without others."""
    score, rows = METRICS[metric], torch.arange(len(given.query), device=given.query.device)

    def block(number: int, document: Tensor, index: Tensor) -> ScoreBlock:
        values = torch.cat([score(a[None], b[None])[0] for a, b in zip(given.query, document, strict=True)])
        return ScoreBlock(f"own {number}", values, lambda change: change[rows, index])

    return [block(k, *each) for k, each in enumerate(zip(given.documents, given.index.T, strict=True))]


def expanded(
    given: BatchColumns, pairs: Pairs, directions: Sequence[str], *, column_by_column: bool
) -> tuple[Pairs, Tensor]:
    """Lay the pairs out as a library sees them, (Q, E): a document of two queries stands twice.

    Returns:
        The pairs, without rows, and the column of the given ones of each of their columns, (E,).
    """
    first = first_columns(given, directions)
    own = torch.eye(len(given.query), dtype=torch.bool, device=pairs.scores.device)
    rows, more = torch.arange(len(own), device=own.device), given.index.shape[1] - 1
    none, documents = torch.zeros_like(own), torch.cat([own] * (1 + more), dim=1)
    hard = torch.where(own, OWN_HARD, OTHERS_HARD)
    blocks = [(given.column_index, torch.cat([own, *[none] * more], 1), torch.cat([~own, *[~none] * more], 1))]
    source = [torch.zeros_like(hard), *[hard] * more]
    for name in directions[1:]:
        start = first[name]
        if name == "candidate-candidate":
            index, mine = (given.index[:, 0], own) if column_by_column else (given.column_index, documents)
            blocks.append((start + index, torch.zeros_like(mine), ~mine))
        else:
            blocks.append((start + rows, own if name == "candidate-query" else none, ~own))
        source.append(torch.full_like(blocks[-1][1], SOURCES.index(name), dtype=hard.dtype))
    index = torch.cat([each for each, _, _ in blocks])
    made = Pairs(
        pairs.scores[:, index],
        torch.cat([positive for _, positive, _ in blocks], dim=1),
        torch.cat([negative for _, _, negative in blocks], dim=1),
        teacher=None if pairs.teacher is None else pairs.teacher[:, index],
        source=torch.cat(source, dim=1).to(torch.int8),
    )
    return made, index


def scores_of_rows(part: Embeddings, metric: str, directions: Sequence[str], *, graded: bool) -> Tensor:
    """Compute the scores of the pairs as a function of their rows: (Q, W), or (Q, Q) of graded pairs."""
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
class AddedChange:
    """Add a change of the scores to the tensors in which a library computes them, which `Watch` shows.

    A tensor is recognised by its values, up to `factor`. One that the change has reached already is left alone: the
    rows themselves have no gradient.

    Args:
        blocks: the tensors to look for.
        change: (Q, W), to be added to the scores; it requires a gradient.
        factor: of the library's scores.
        seen: name of a block -> number of times that it was seen.
        copies: tensors without a gradient that were computed from tensors with one, like penalties.
    """

    blocks: list[ScoreBlock]
    change: Tensor
    factor: float = 1.0
    seen: dict[str, int] = field(default_factory=dict)
    copies: list[Tensor] = field(default_factory=list)

    def see(self, tensor: Tensor, arguments: tuple[Any, ...]) -> Tensor:
        """Return a tensor that was computed from these arguments, with the change where it holds scores."""
        if tensor.requires_grad:
            return tensor
        if any(map(self._is_reached, arguments)):
            self.copies.append(tensor)
            return tensor
        like = [
            (block, factor)
            for block in self.blocks
            for factor in dict.fromkeys((1.0, self.factor))
            if _equal(tensor, block.values, factor)
        ]
        if not like:
            return tensor
        block, factor = min(like, key=lambda each: self.seen.get(each[0].name, 0))
        self.seen[block.name] = self.seen.get(block.name, 0) + 1
        return tensor + factor * block.pick(self.change).to(tensor)

    def _is_reached(self, value: Any) -> bool:
        """Whether the change has reached a tensor, or one that its values were copied to without a gradient."""
        if not isinstance(value, Tensor):
            return isinstance(value, list | tuple) and any(map(self._is_reached, value))
        return value.requires_grad or any(value is each for each in self.copies)


def _equal(result: Tensor, values: Tensor, factor: float) -> bool:
    """Whether a tensor is that of the scores, times a factor, up to rounding."""
    if result.shape != values.shape:
        return False
    room = TOLERANCE.get(result.dtype, HALF_TOLERANCE) * abs(factor)
    off: Tensor = (result.detach() - factor * values.to(result)).abs().max()
    return bool(off <= room * values.abs().max())
