"""Metrics of scored and judged rankings, by the definitions of trec_eval, as fractions from 0 to 1.

Candidates are ordered by their scores in float32, and equal ones by their names, the last one first, as in trec_eval;
without names a negative that ties with a positive ranks above it. Relevant candidates outside of a ranking count as
missed.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from cocos.embeddings.scores import Scores

TREC_ORDER = "scores that are equal in float32 are ordered by the name of the candidate, the last one first (trec_eval)"


def metrics(scores: Scores, ks: Iterable[int] = (1, 5, 10)) -> dict[str, np.ndarray]:
    r"""Return the metrics of every query, (Q,) each, as fractions.

    With :math:`g_i` the grade at rank i, 0 for an irrelevant candidate, and R the number of relevant candidates:

    - `R@k`: whether any is among the first k. `recall@k`: how many of the R are.
    - `MRR`, `MRR@k`: 1 over the rank of the first one; 0 if it is not listed, or beyond k.
    - `nDCG@k`: :math:`\sum_{i \le k} g_i / \log_2(i + 1)`, over the same of the best order of all judged candidates.
    - `MAP`: :math:`\frac1R \sum_i [g_i > 0]` times the relevant fraction of the first i.
    - `tied`: whether the best positive has the score of a negative.

    A query without any relevant candidate has 0. `best_rank` is NaN if none is listed.

    Args:
        scores: rankings; `grade` are the gains, `unlisted` those of candidates that are not listed.
        ks: cut-offs.

    Source: trec_eval 9.0 (measures ndcg_cut, recip_rank, recall, map), https://github.com/usnistgov/trec_eval.

    Examples:
        The right one of three is second:

        >>> from cocos.measures.shared import rankings
        >>> scores = cocos.Scores(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0]]))
        >>> metrics = rankings.metrics(scores, [1, 3])
        >>> metrics["MRR"].tolist(), metrics["R@1"].tolist(), round(metrics["nDCG@3"].item(), 4)
        ([0.5], [0.0], 0.6309)
    """
    ks = tuple(ks)
    rows = [_of_query(grades, missed, tied, ks) for grades, missed, tied in _rankings(scores)]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _rankings(scores: Scores) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
    """Yield for each query: grades in the order of the ranking, further grades, whether the best positive ties."""
    values = scores.scores.cpu().numpy().astype(np.float32)
    positive, negative = scores.positive.cpu().numpy(), scores.negative.cpu().numpy()
    grade = positive.astype(float) if scores.grade is None else np.where(positive, scores.grade.cpu().numpy(), 0.0)
    names = scores.names and scores.names[1]
    if names:
        order = sorted(range(len(names)), key=lambda place: str(names[place]).encode())
        last = np.empty(len(names), dtype=np.int64)
        last[order] = np.arange(len(names))
    for row in range(len(values)):
        columns = np.flatnonzero(positive[row] | negative[row])
        row_scores, right = values[row, columns], positive[row, columns]
        tie_order = right.astype(np.int64)
        if names:
            index = columns if scores.candidate_index is None else scores.candidate_index[row].cpu().numpy()[columns]
            tie_order = -last[index]
        ranked = np.lexsort((tie_order, -row_scores))
        missed = np.zeros(0) if scores.unlisted is None else scores.unlisted[row].cpu().numpy().astype(float)
        tied = bool(right.any()) and bool((row_scores[~right] == row_scores[right].max()).any())
        yield grade[row, columns][ranked], missed[missed > 0], tied


def _of_query(grades: np.ndarray, missed: np.ndarray, tied: bool, ks: tuple[int, ...]) -> dict[str, float]:
    """Return the metrics of one ranking."""
    hits = grades > 0
    number, places = int(hits.sum()) + len(missed), np.flatnonzero(hits) + 1
    best = float(places[0]) if len(places) else np.nan
    ideal = np.sort(np.concatenate([grades[hits], missed]))[::-1]
    metrics = {f"R@{k}": float(best <= k) for k in ks}
    metrics["MRR"] = 1 / best if len(places) else 0.0
    metrics |= {f"MRR@{k}": 1 / best if best <= k else 0.0 for k in ks}
    metrics |= {f"recall@{k}": float(hits[:k].sum()) / number if number else 0.0 for k in ks}
    for k in ks:
        most = _gain(ideal[:k])
        metrics[f"nDCG@{k}"] = _gain(grades[:k]) / most if most else 0.0
    precision = np.arange(1, len(places) + 1) / places
    metrics["MAP"] = float(np.cumsum(precision)[-1]) / number if len(places) else 0.0
    return metrics | {"tied": float(tied), "best_rank": best}


def _gain(grades: np.ndarray) -> float:
    """Return the discounted cumulative gain, summed rank by rank."""
    if not len(grades):
        return 0.0
    return float(np.cumsum(grades / np.log2(np.arange(2, len(grades) + 2)))[-1])
