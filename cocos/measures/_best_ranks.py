"""The rank of the best positive of every query, over the folds of an evaluation."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from cocos.embeddings import Embeddings
from cocos.engine.readers import PositiveRanks

RANK_LABELS = {
    "best_rank": ("rank of the best positive of a query, without distractors", "rank"),
    "query_index": ("row of the query in the embeddings", "1"),
    "query_group": ("group of the query, numbered in ascending order", "1"),
}


def best(number: int, asking: Tensor, ranked: PositiveRanks) -> Tensor:
    """Rank of the best positive of each of some rows, (number,) float64; NaN for a row that has none or does not ask.

    Args:
        number: of rows.
        asking: (n,) rows that ask.
        ranked: the ranks, whose queries are places among these.
    """
    found = torch.full((number,), torch.inf, dtype=torch.float64, device=ranked.query.device)
    rank = (1 + ranked.above + ranked.ties).double()
    found = found.scatter_reduce(0, asking.to(ranked.query.device)[ranked.query], rank, "amin")
    return torch.where(found.isinf(), torch.nan, found).cpu()


def variables(
    embeddings: Embeddings, found: Mapping[str, Sequence[tuple[Tensor, PositiveRanks]]]
) -> dict[str, tuple[tuple[str, ...], np.ndarray, str, str]]:
    """Variables over (direction, query), as `results.labelled` takes them, NaN behind the last row of a side.

    Args:
        embeddings: of the set.
        found: direction -> for each fold, the rows that ask and their ranks.
    """
    groups = (embeddings.groups.query, embeddings.groups.candidate)
    width = max(len(group) for group in groups[: len(found)])
    made = {name: np.full((len(found), width), np.nan) for name in RANK_LABELS}
    for k, (group, folds) in enumerate(zip(groups, found.values(), strict=False)):
        made["query_index"][k, : len(group)], made["query_group"][k, : len(group)] = np.arange(len(group)), group
        for asking, ranked in folds:
            rank = best(len(group), asking, ranked).numpy()
            made["best_rank"][k, : len(group)] = np.fmin(made["best_rank"][k, : len(group)], rank)
    return {name: (("direction", "query"), each, *RANK_LABELS[name]) for name, each in made.items()}
