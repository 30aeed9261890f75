"""What does the model retrieve for some queries?"""

from collections.abc import Sequence
from typing import Annotated, Unpack

import torch
import xarray as xr

from cocos import engine, results
from cocos.base.errors import InputError
from cocos.base.ranges import checked, whole
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.embeddings.options import SOURCE_DEFAULTS, SourceOptions, fill_options
from cocos.engine import readers
from cocos.measures.shared import retrieval
from cocos.measures.shared.queries import asked


@checked
def retrievals(
    embeddings: Embeddings | Checkpoint,
    loss=None,
    *,
    queries: int | Sequence[int] = 6,
    k: Annotated[int, whole(1, 1000)] = 5,
    direction: str | None = None,
    **asking: Unpack[SourceOptions],
) -> xr.Dataset:
    """The nearest candidates of some queries, which of them are positive, and the rank of the best positive.

    A negative that ties with a positive ranks above it. The rank of the best positive is 1 plus the number of
    negatives at or above it.

    Args:
        embeddings: embeddings, or a checkpoint (a split of its data is encoded).
        loss: a loss, or its name: its metric is taken; None: cosines.
        queries: how many are drawn, or their rows, in the order in which they are shown; as text, a comma behind a
            single row (`3,`) tells it from a number.
        k: candidates of each.
        direction: one of the embeddings' directions; None: the first.
        **asking: options of the queries, see `Queries`.

    Returns:
        Of each query (query,): its row `query_index`, `best_rank` and `best_score` of its best positive (NaN without
        any), the row of that positive, `best_candidate` (-1 without any), and the number of its `positives`. Of each
        place (query, rank): the row `candidate` (-1 where there is none), its `score`, and whether it is `positive`.

    Source: example retrievals, Veit & Wilber 2020, arXiv:2011.08824.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.measures.retrievals(embeddings, queries=[0, 2], k=1)["candidate"].values.ravel().tolist()
        [0, 2]
    """
    asking = fill_options("retrievals", asking, SOURCE_DEFAULTS)
    if queries is None:
        raise InputError("queries: None, expected an integer, or rows of queries")
    seen = asked(embeddings, loss, queries=queries, one=True, direction=direction, **asking)
    (direction,) = seen.sides
    view = seen.view(direction)
    found, ranks = engine.run(view, [readers.Neighbours(int(k)), readers.Ranks()])
    ranked, number = ranks[0], len(view.sides[0])
    best = retrieval.best_ranks(number, torch.arange(number), ranked)
    top = torch.full((number,), -torch.inf, dtype=torch.float64, device=view.device)
    top, there = top.scatter_reduce(0, ranked.query, ranked.score, "amax"), ~best.isnan().to(view.device)
    # of each query the positive with the highest score, and of equal ones the first row
    order = ranked.score.argsort(descending=True, stable=True)
    order = order[ranked.query[order].argsort(stable=True)]
    first = torch.searchsorted(ranked.query[order], torch.arange(number, device=view.device))
    missed = torch.full((number,), -1, device=view.device)
    missed[there] = ranked.candidate[order[first[there]]]
    rows, places = view.sides[0].unsorted(view.sides[0].order), ("query", "rank")
    score = torch.where(found.candidate >= 0, found.score, torch.nan)
    variables = {
        "query_index": ("query", rows, "row of the query in the embeddings", "1"),
        "candidate": (places, found.candidate, "row of the candidate in the embeddings", "1"),
        "score": (places, score, "score of the candidate", "score"),
        "positive": (places, found.positive, "positive", "1"),
        "best_rank": ("query", best, "rank of the best positive", "rank"),
        "best_score": ("query", torch.where(there, top, torch.nan), "score of the best positive", "score"),
        "best_candidate": ("query", missed, "row of the best positive in the embeddings", "1"),
        "positives": ("query", view.sides[0].unsorted(view.counted(0)), "positives of the query", "candidates"),
        "rank": ("rank", range(1, score.shape[1] + 1), "rank by score", "rank"),
    }
    attrs = seen.attrs | {"title": "Nearest candidates of some queries", "direction": direction}
    return results.labelled(variables, attrs, measure="retrievals")
