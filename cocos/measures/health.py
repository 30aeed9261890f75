"""Do the embeddings tell rows apart, and does the gradient of a loss reach them?"""

import contextlib
import functools
import json
from collections.abc import Callable, Sequence
from typing import Unpack

import numpy as np
import torch
import xarray as xr

from cocos import results
from cocos.base.errors import InputError
from cocos.base.ranges import checked
from cocos.checkpoints import Checkpoint
from cocos.counting import health as counted
from cocos.embeddings import Embeddings
from cocos.embeddings.options import DEFAULTS, Sampling, fill_options
from cocos.embeddings.sampling import Batch, select
from cocos.embeddings.scores import Pairs, Scores
from cocos.embeddings.similarities import SYMMETRIC
from cocos.measures.shared.prepared import Run, prepare

SIDE_LABELS = {
    "rows": ("rows of the side", "rows"),
    "sampled": ("rows that spread and rank are taken of", "rows"),
    "dimensions": ("width of the embeddings", "dimensions"),
    "spread": ("root mean square distance from the mean / root mean square length", "1"),
    "effective_rank": ("effective rank (exp of the entropy of the singular values)", "dimensions"),
    "uniformity": ("uniformity (log of the mean potential of two unit rows)", "nats"),
    "duplicates": ("rows that repeat another one exactly", "rows"),
    "near_duplicates": ("rows that repeat another one up to rounding", "rows"),
    "at_one_point": ("fraction of rows within rounding of one point", "1"),
    "collapsed": ("the side is one point up to rounding", "1"),
}
ALIGNMENT_LABELS = {
    "alignment": ("alignment (mean squared distance of unit rows of positives)", "1"),
    "alignment_queries": ("queries whose positives are taken", "queries"),
}
DIRECTION_LABELS = {
    "queries": ("queries whose pull and push are added up", "queries"),
    "candidates": ("candidates that take part", "candidates"),
    "cancellation": ("fraction of pull and push that cancels", "1"),
    "reaching": ("fraction of pull and push that reaches the embeddings", "1"),
    "tied": ("queries whose best positive ties with a negative", "1"),
}


@checked
def health(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Measure how far embeddings are from one point, and how much of pull and push reaches them in a training batch.

    `count` has the same numbers in its attribute `health`, and in the JSON of `cocos count`.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss, or its name; spread and rank are of directions where its metric reads these.
        **sampling: options of the batches, see `Sampling`.

    Returns:
        The quantities of `cocos.counting.health.side` and `cocos.counting.health.felt`, (side,) and (direction,);
        a side is `query` or `candidate`, and a labelled set has one. `alignment` of the set. Quantities that are not
        known are missing.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.health(embeddings, batch_size="all")
        >>> sorted(data.sizes)
        ['direction', 'side']
    """
    sampling = fill_options("health", sampling, DEFAULTS)
    run = prepare(embeddings, loss, **sampling)
    attrs = run.provenance(title=f"Health of the embeddings, {run.loss.name}")
    (found,) = reports([run])
    variables = {}
    for dim, entries, labels in (
        ("side", found["sides"], SIDE_LABELS),
        ("direction", found["directions"], DIRECTION_LABELS),
    ):
        for name, about in labels.items():
            values = [np.nan if each is None else each[name] for each in entries.values()]
            kind = bool if name == "collapsed" else np.float64
            variables[name] = (dim, np.array([np.nan if value is None else value for value in values], kind), *about)
        variables[dim] = (dim, list(entries))
    for name, about in ALIGNMENT_LABELS.items():
        variables[name] = ((), np.nan if found[name] is None else found[name], *about)
    return results.labelled(variables, attrs | {"health": json.dumps(found)}, measure="health")


def reports(runs: Sequence[Run]) -> list[dict]:
    """Health of the embeddings of each run as plain data: spread of both sides, and pull and push of the first batch.

    Rows are scored once for losses that see the same batches and metric.
    """
    scored: dict[tuple, Callable[[str, int], Pairs]] = {}
    return [_report(run, scored.setdefault(_key(run), _scored(run))) for run in runs]


def _key(run: Run) -> tuple:
    """All that the scores of the rows that are weighed depend on; rows of pairs are the same for all losses."""
    first = run.plan.batches[0]
    rows = None if first.paired and first.flip().paired else run.loss.couples == "query"
    return id(run.embeddings), id(run.plan.batches), run.loss.metric, run.same_group, rows


def _scored(run: Run) -> Callable[[str, int], Pairs]:
    """Pairs of a number of queries of the first batch in float64, by direction; none are scored again."""
    batch, (first, *_) = run.plan.batches[0], run.embeddings.directions

    @functools.cache
    def pairs(direction: str, number: int) -> Pairs:
        if number < counted.FELT_ROWS:
            return pairs(direction, counted.FELT_ROWS).first(number)
        _, side, second = run.side(direction)
        if second and batch.paired and batch.square and run.loss.metric in SYMMETRIC:
            return pairs(first, number).flip()
        part, own = select(side, _some(run, side, batch.flip() if second else batch))
        return run.block(part, run.seen(own), slice(None))

    return pairs


def _report(run: Run, scored: Callable[[str, int], Pairs]) -> dict:
    """Health of one run, from pairs by direction; of scores alone, whether they tell any candidate from another."""
    if isinstance(run.embeddings, Scores):
        return counted.report({}, {}, {})
    directions: dict[str, dict | None] = dict.fromkeys(run.embeddings.directions)
    graded = run.loss.graded and run.embeddings.grades is not None  # a weight is of no query and candidate
    if not graded:
        number = counted.FELT_QUERIES if run.loss.couples == "query" else counted.FELT_ROWS
        for name in directions:
            with contextlib.suppress(InputError):  # a loss of yours may read whole batches only
                pairs = scored(name, number)
                narrow = pairs.narrow()
                weights = run.weighed(pairs)[0][:, : narrow.scores.shape[1]]
                directions[name] = counted.felt(weights, narrow, run.loss.metric)
    aligned = counted.alignment(run.narrow) | counted.pairing(run.narrow, run.loss.metric)
    embeddings = run.embeddings
    alone = embeddings.proxies and torch.equal(embeddings.query, embeddings.candidate)
    return counted.report(run.spread, aligned, directions) | ({"no_samples": True} if alone else {})


def _some(run: Run, embeddings: Embeddings, batch: Batch) -> Batch:
    """Select few rows of a batch, with the positives of its first queries, so that weighing them costs little."""
    query, candidate, most = batch.query_index, batch.candidate_index, counted.FELT_ROWS
    if batch.paired:
        return Batch(query[:most], candidate[: len(query)][:most], paired=True)
    query = query[: counted.FELT_QUERIES if run.loss.couples == "query" else most]
    kept = torch.isin(embeddings.candidate_group[candidate], embeddings.query_group[query])
    kept[: counted.FELT_CANDIDATES] = True
    return Batch(query, candidate[kept], paired=False)
