"""How does the count depend on the threshold? COCOS(eps)."""

from collections.abc import Sequence
from typing import Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import results
from cocos.base.ranges import checked
from cocos.checkpoints import Checkpoint
from cocos.counting.statistics import BATCH_NUMBERS
from cocos.embeddings import Embeddings
from cocos.embeddings.options import DEFAULTS, Sampling, fill_options, ladder
from cocos.engine import devices
from cocos.engine.readers.lines import Lines
from cocos.measures.shared.negatives import OfLines, OfPairs, numbers
from cocos.measures.shared.prepared import prepare

# Lowest bits of a share that the grid drops: 2**(52 - CELL_BITS) cells from a number to its double.
CELL_BITS = 44


@devices.threads(1)
@checked
def eps_curve(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    eps: Sequence[float] | None = None,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Count the contributing negatives for many thresholds from one look at each batch.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss, or its name.
        eps: ascending shares; None: 61 of them from 1e-6 to 1, evenly spaced in the exponent.
        **sampling: options of the batches, see `Sampling`.

    Returns:
        `contributing_all` (direction, eps), mean count over all queries of the run, and `idle_fraction` (direction,
        eps), the part of the queries without any.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> ntxent = cocos.losses.load("ntxent", {"temperature": 1})
        >>> data = cocos.measures.eps_curve(embeddings, ntxent, eps=[0.01, 0.5], batch_size="all")
        >>> data["contributing_all"].values.tolist()
        [[2.0, 0.0], [2.0, 0.0]]
    """
    sampling = fill_options("eps_curve", sampling, DEFAULTS)
    grid = np.logspace(-6, 0, 61) if eps is None else ladder("eps", eps, zero=True)
    run = prepare(embeddings, loss, visits=Lines.reads, **sampling)
    report = sampling["progress"] and sampling["progress"]("counting")
    steps = _Ladder(torch.from_numpy(grid).to(run.embeddings.query.device))

    def counted(queries: OfPairs | OfLines) -> tuple[Tensor, Tensor]:
        """Shares above each eps, (1, J), and the largest share of each query."""
        shares = queries.shares()
        return steps.above(shares)[None], shares.amax(dim=1)

    sums: dict[str, list] = {name: [0, 0, 0] for name, _, _ in run.sides}
    for name, found in numbers(run, counted, ("above", "largest"), report):
        new = len(found["largest"]), found["above"].sum(dim=0), steps.above(found["largest"])
        sums[name] = [one + other for one, other in zip(sums[name], new, strict=True)]
    total, some = (np.stack([each[k].cpu().numpy() / queries for queries, *each in sums.values()]) for k in range(2))
    attrs = run.provenance(
        title=f"COCOS against eps, {run.loss.name}",
        batches=len(run.plan.batches),
    )
    variables = {
        "contributing_all": (("direction", "eps"), total, "contributing negatives per query", "candidates"),
        "idle_fraction": (("direction", "eps"), 1 - some, *BATCH_NUMBERS["idle_fraction"].about),
        "direction": ("direction", list(sums)),
        "eps": ("eps", grid, "smallest share that contributes", "share"),
    }
    return results.labelled(variables, attrs, measure="eps_curve")


class _Ladder:
    """Counts of values above each of J numbers, all at least 0.

    Floating-point numbers of at least 0 ascend as the integers of their bits do. So the upper bits are a grid; only
    values that share a cell with a step are compared with it.

    Args:
        steps: (J,) float64, ascending.
    """

    def __init__(self, steps: Tensor):
        self.zero = int(steps[0] == 0)  # whose cell all small numbers would share
        self.steps = steps[self.zero :]
        step = self.steps.view(torch.int64) >> CELL_BITS
        self.low, self.cells = (int(step[0]) - 1, int(step[-1] - step[0]) + 3) if len(step) else (0, 1)
        self.mixed = torch.zeros(self.cells, dtype=torch.bool, device=steps.device)
        self.mixed[step - self.low] = True
        cell = torch.arange(self.low, self.low + self.cells, device=steps.device)
        self.reached = torch.searchsorted(step, cell)  # steps below each cell; the first and last hold all beyond

    def above(self, values: Tensor) -> Tensor:
        """Values above each step, (J,) int64."""
        values = values.flatten()
        cell = ((values.view(torch.int64) >> CELL_BITS) - self.low).clamp_(0, self.cells - 1)
        number = torch.bincount(cell, minlength=self.cells).masked_fill_(self.mixed, 0)
        near = torch.searchsorted(self.steps, values[self.mixed[cell]])
        below = torch.bincount(near, minlength=len(self.steps) + 1).index_add_(0, self.reached, number)
        above = below.flip(0).cumsum(0).flip(0)[1:]
        return torch.cat([torch.count_nonzero(values)[None], above]) if self.zero else above
