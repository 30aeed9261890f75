"""How does the count depend on the threshold? COCOS(eps)."""

from collections.abc import Iterator, Sequence
from typing import Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.engine import Tally, Tile, View, devices
from cocos.engine.prepared import Run, passes, prepare
from cocos.engine.readers.lines import Lines
from cocos.engine.sampling import Sampling, ladder, sampled

# Lowest bits of a share that the grid drops: 2**(52 - CELL_BITS) cells from a number to its double.
CELL_BITS = 44
# Refusal of a loss without shares.
NO_SHARES = "{}: the natural unit of this loss is not known, so that no share is above an eps; give it, -p unit="


@devices.threads(1)
@sampled()
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
        **sampling: options of the batches, see `cocos.sampling.Sampling`.

    Returns:
        `contributing_all` (direction, eps), mean count over all queries of the run, and `idle_fraction` (direction,
        eps), the part of the queries without any.

    Raises:
        InputError: an option or an embedding that cannot be used.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> ntxent = cocos.losses.load("ntxent", {"temperature": 1})
        >>> data = cocos.measures.eps_curve(embeddings, ntxent, eps=[0.01, 0.5], batch_size="all")
        >>> data["contributing_all"].values.tolist()
        [[2.0, 0.0], [2.0, 0.0]]
    """
    grid = np.logspace(-6, 0, 61) if eps is None else ladder("eps", eps, zero=True)
    run = prepare(embeddings, loss, visits=Lines.reads, **sampling)
    report = sampling["progress"] and sampling["progress"]("counting")
    steps = _Ladder(torch.from_numpy(grid).to(run.embeddings.query.device))
    sums: dict[str, tuple] = {name: (0, 0, 0) for name, _, _ in run.sides}
    for name, *found in (_visited if run.visited else _held)(run, steps, report):
        sums[name] = tuple(one + other for one, other in zip(sums[name], found, strict=True))
    total, some = (np.stack([each[k].cpu().numpy() / queries for queries, *each in sums.values()]) for k in range(2))
    attrs = run.provenance(
        title=f"COCOS against eps, {losses.name_of(run.loss)}",
        batches=len(run.plan.batches),
    )
    variables = {
        "contributing_all": (("direction", "eps"), total, "contributing negatives per query", "candidates"),
        "idle_fraction": (("direction", "eps"), 1 - some, "part of the queries without any contributing negative", "1"),
        "direction": ("direction", list(sums)),
        "eps": ("eps", grid, "smallest share that contributes", "share"),
    }
    return results.labelled(variables, attrs)


def _held(run: Run, steps: "_Ladder", report) -> Iterator[tuple[str, int, Tensor, Tensor]]:
    """Yield direction, queries, shares above each eps and queries that have one, for each block of weights."""
    for done, batch in enumerate(run.plan.batches):
        for (name, _, _), (_, blocks) in zip(run.sides, run.sided(batch, whole=False), strict=True):
            for pairs, weights, unit in blocks:
                if unit.isnan().any():
                    raise InputError(NO_SHARES.format(losses.name_of(run.loss)))
                share = torch.where(pairs.negative, weights.abs() / unit, 0).double()
                yield name, len(share), steps.above(share), steps.above(share.amax(dim=1))
        if report:
            report(done + 1, len(run.plan.batches))


def _visited(run: Run, steps: "_Ladder", report) -> Iterator[tuple[str, int, Tensor, Tensor]]:
    """The same of each stack of batches, seen line by line."""

    def reader(view: View) -> list:
        return [[_Steps(Lines(view, run.loss), steps)]]

    for names, asking, (found,) in passes(run, reader, report, lines=Lines.tile):
        for name, index, (above, some) in zip(names, asking, found, strict=True):
            yield name, sum(map(len, index)), above, some


class _Steps:
    """Reader: shares above each eps, and queries that have one, (J,) each, of each direction."""

    whole_lines = True

    def __init__(self, of: Lines, ladder: "_Ladder"):
        self.of, self.ladder = of, ladder

    def start(self, view: View) -> Tally:
        """Nothing yet."""
        return Tally(lists={f"{name}{k}": [] for k in view.directions for name in ("above", "hardest")})

    def see(self, state: Tally, tile: Tile) -> None:
        """Take in one tile."""
        for k, _, weight, share in self.of.weighed(tile):
            shares = weight.double().mul_(share[:, None])
            state.lists[f"above{k}"].append(self.ladder.above(shares))
            state.lists[f"hardest{k}"].append(shares.amax(dim=1))

    def done(self, state: Tally) -> list[tuple[Tensor, Tensor]]:
        """The sums over all tiles."""
        lists = [[state.lists[f"{name}{k}"] for name in ("above", "hardest")] for k in self.of.view.directions]
        return [(torch.stack(above).sum(dim=0), self.ladder.above(torch.cat(hardest))) for above, hardest in lists]


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
