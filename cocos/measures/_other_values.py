"""One set of batches weighed by several losses, such as one loss with several values of a parameter."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError
from cocos.counting import statistics
from cocos.engine import readers
from cocos.engine.prepared import OUT_OF_RANGE, Run, passes

# Losses that one pass reads: each reader notes up to 16 MiB a thread.
VALUES_IN_A_PASS = 11
# Sums over all queries: the effective number, queries with any push, the count, idle queries, queries, and
# candidates too near eps to tell.
SUMS = ("effective", "pushed", "counted", "idle", "queries", "uncertain")


def sums(run: Run, others: Sequence[losses.Loss], eps: float, report: Callable | None) -> dict[str, Tensor]:
    """Weigh the batches of a run by other losses of the same scores.

    Args:
        run: the batches, and how they are scored.
        others: the losses.
        eps: smallest share that contributes.
        report: called with (done, in all).

    Returns:
        Of each direction `SUMS`, (SUMS, losses).
    """
    found = {name: torch.zeros(len(SUMS), len(others), dtype=torch.float64) for name, _, _ in run.sides}
    for name, each in (_visited if run.visited else _held)(run, list(others), eps, report):
        found[name] += each
    return found


def _sums(effective: Tensor, above: Tensor, uncertain: Tensor | int = 0) -> list[float]:
    """Sums over the queries: see `SUMS`."""
    none = torch.where(above.isnan(), torch.nan, (above == 0).double())
    pushed, idle, whole = (effective > 0).sum(), none.sum(), effective.sum(dtype=torch.float64)
    return [float(each) for each in (whole, pushed, above.sum(), idle, len(above), uncertain)]


def _held(run: Run, others: list, eps: float, report: Callable | None) -> Iterator[tuple[str, Tensor]]:
    """Yield direction and sums, (SUMS, values), of each batch from its weights."""
    names, runs = [name for name, _, _ in run.sides], [replace(run, loss=loss) for loss in others]
    for done, batch in enumerate(run.plan.batches):
        found = {name: [] for name in names}
        for other in runs:
            for name, (_, blocks) in zip(names, other.sided(batch, whole=False), strict=True):
                parts = []
                for pairs, weights, unit in blocks:
                    effective = statistics.effective(statistics.spread(weights, pairs))
                    parts.append(_sums(effective, statistics.contributing(weights.abs() / unit, pairs, eps)))
                found[name].append([sum(each) for each in zip(*parts, strict=True)])
        for name, each in found.items():
            yield name, torch.tensor(each, dtype=torch.float64).T
        if report:
            report(done + 1, len(run.plan.batches))


def _visited(run: Run, others: list, eps: float, report: Callable | None) -> Iterator[tuple[str, Tensor]]:
    """The same of each stack of batches, seen by a reader for each value, some in one pass."""
    every = [readers.of(loss, eps) for loss in others]
    groups = [every[a : a + VALUES_IN_A_PASS] for a in range(0, len(every), VALUES_IN_A_PASS)]
    for names, _, found in passes(run, lambda view: groups, report):
        for k, name in enumerate(names):
            for loss, sides in zip(others, found, strict=True):
                if not sides[k]["push"].isfinite().all():
                    raise InputError(OUT_OF_RANGE.format(loss, "float64"))
            keys = ("effective", "contributing", "uncertain")
            parts = [[sides[k][key] for key in keys] for sides in found]
            sums = [_sums(effective, above, uncertain.sum()) for effective, above, uncertain in parts]
            yield name, torch.tensor(sums, dtype=torch.float64).T
