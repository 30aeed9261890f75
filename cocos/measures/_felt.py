"""Health of the embeddings of a run: both sides, and the pull and push that reach rows of the first batch."""

import contextlib
import functools
from collections.abc import Callable, Sequence

import torch

from cocos import losses
from cocos.base.errors import InputError
from cocos.counting import health
from cocos.embeddings import Embeddings, batches
from cocos.embeddings.batches import Batch
from cocos.embeddings.scores import Pairs
from cocos.embeddings.similarities import SYMMETRIC
from cocos.engine.prepared import Run


def report(run: Run) -> dict:
    """Spread of both sides, and the part of pull and push that reaches rows of the first batch, as plain data."""
    return reports([run])[0]


def reports(runs: Sequence[Run]) -> list[dict]:
    """As `report`, for several losses; rows are scored once for losses that see the same batches and metric."""
    scored: dict[tuple, Callable[[str, int], Pairs]] = {}
    return [_report(run, scored.setdefault(_key(run), _scored(run))) for run in runs]


def _key(run: Run) -> tuple:
    """All that the scores of the rows that are weighed depend on; rows of pairs are the same for all losses."""
    first = run.plan.batches[0]
    rows = None if first.paired and first.turned is None else run.loss.couples == "query"
    return id(run.embeddings), id(run.plan.batches), run.loss.metric, run.same_group, rows


def _scored(run: Run) -> Callable[[str, int], Pairs]:
    """Pairs of a number of queries of the first batch in float64, by direction; none are scored again."""
    batch, (first, *_) = run.plan.batches[0], run.embeddings.directions

    @functools.cache
    def pairs(direction: str, number: int) -> Pairs:
        if number < health.FELT_ROWS:
            return pairs(direction, health.FELT_ROWS).first(number)
        _, side, second = run.side(direction)
        if second and batch.paired and batch.square and run.loss.metric in SYMMETRIC:
            return pairs(first, number).flip()
        part, own = batches.alone(side, _some(run, side, batch.flip() if second else batch))
        return run.block(part, run.seen(own), slice(None))

    return pairs


def _report(run: Run, scored: Callable[[str, int], Pairs]) -> dict:
    """As `report`, from pairs by direction."""
    directions: dict[str, dict | None] = dict.fromkeys(run.embeddings.directions)
    traits = losses.traits(run.loss)
    graded = traits.graded and run.embeddings.grades is not None  # a weight is of no query and candidate
    if traits.weights != "influence" and not (traits.own_scores or graded):
        number = health.FELT_QUERIES if run.loss.couples == "query" else health.FELT_ROWS
        for name in directions:
            with contextlib.suppress(InputError):  # a loss of yours may read whole batches only
                pairs = scored(name, number)
                narrow = pairs.narrow()
                weights = run.weighed(pairs)[0][:, : narrow.scores.shape[1]]
                directions[name] = health.felt(weights, narrow, run.loss.metric)
    aligned = health.alignment(run.embeddings) | health.pairing(run.embeddings, run.loss.metric)
    return health.report(run.spread, aligned, directions)


def _some(run: Run, embeddings: Embeddings, batch: Batch) -> Batch:
    """Select few rows of a batch, with the positives of its first queries, so that weighing them costs little."""
    query, candidate, most = batch.query_index, batch.candidate_index, health.FELT_ROWS
    if batch.paired:
        return Batch(query[:most], candidate[: len(query)][:most], paired=True)
    query = query[: health.FELT_QUERIES if run.loss.couples == "query" else most]
    kept = torch.isin(embeddings.candidate_group[candidate], embeddings.query_group[query])
    kept[: health.FELT_CANDIDATES] = True
    return Batch(query, candidate[kept], paired=False)
