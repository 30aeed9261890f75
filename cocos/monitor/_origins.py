"""Where the candidates of a matrix come from: the batch, own hard negatives or others', other directions."""

import torch
from torch import Tensor

from cocos.embeddings.sources import DIRECTIONS, IN_BATCH, OTHERS_HARD, OWN_HARD, SOURCES
from cocos.monitor._pieces import Piece, same_rows


def of(piece: Piece, positive: Tensor) -> Tensor | None:
    """Place of each candidate in `cocos.sources.SOURCES`, (Q, C) int8; None where all are of the batch, or unknown.

    A block of columns is known by its rows: queries against themselves, candidates against the queries, candidates
    against themselves. Among the candidates, columns that are the positive of no query are hard negatives, and own ones
    by their order. Columns that compare each query with candidates of its own are own hard negatives.

    Args:
        piece: the matrix.
        positive: (Q, C) bool.
    """
    square = len(piece.parts) == 1 and positive.shape[0] == positive.shape[1]
    if not piece.own and (square or piece.head or not piece.candidate.shape[1]):
        return None
    found = torch.full(positive.shape, IN_BATCH, dtype=torch.int8, device=positive.device)
    for first, last in piece.own:
        found[:, first:last] = OWN_HARD
    if piece.own:
        return found if bool((found != IN_BATCH)[~positive].any()) else None
    start, query = 0, piece.query
    for rows, columns in piece.parts:
        stop = start + len(columns)
        asks = "query" if same_rows(rows, query) else "candidate"
        asked = "query" if same_rows(columns[: len(query)], query) else "candidate"
        name = f"{asks}-{asked}"
        further = start > 0 or name == DIRECTIONS[1]
        if further and len(piece.parts) > 1 and name != DIRECTIONS[0]:
            found[:, start:stop] = DIRECTIONS.index(name) + OTHERS_HARD
        elif name == DIRECTIONS[0]:
            hard = _hard(positive[:, start:stop], piece.scores[:, start:stop])
            if hard is None:
                return None
            found[:, start:stop] = hard
        start = stop
    return found if bool((found != IN_BATCH).any()) else None


def again(sources: Tensor) -> Tensor:
    """Entries of a candidate against its own query, which is its pair once more, (Q, C) bool."""
    columns = sources == SOURCES.index("candidate-query")
    rows = torch.arange(len(sources), device=sources.device)
    place = columns.cumsum(dim=1) - 1
    return columns & (place == rows[:, None])


def _hard(positive: Tensor, scores: Tensor) -> Tensor | None:
    """Sources of the candidates of one block; None where their order says nothing of whose they are."""
    queries, number = positive.shape
    found = torch.full_like(positive, IN_BATCH, dtype=torch.int8)
    each, rest = number // queries - 1, number - queries
    if not rest:
        return found
    belongs = positive.any(dim=0)
    if belongs.all() or not belongs.any():
        return found
    if number % queries or int(belongs.sum()) != queries or not bool((positive.sum(dim=1) == 1).all()):
        return found if not bool(belongs.any()) else None
    rows, place = torch.arange(queries, device=positive.device), positive.int().argmax(dim=1)
    beside = place[:, None] + torch.arange(1, each + 1, device=positive.device)
    behind = torch.arange(each, device=positive.device)
    layouts = [queries + each * rows[:, None] + behind, queries + rows[:, None] + queries * behind]
    if torch.equal(place, rows * (each + 1)):
        layouts = [beside]
    elif not torch.equal(place, rows):
        return None
    mine = max(layouts, key=lambda columns: float(scores.gather(1, columns).float().mean()))
    found[:, ~belongs] = OTHERS_HARD
    return found.scatter(1, mine, OWN_HARD)
