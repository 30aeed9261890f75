"""Batches whose scores are kept, and weighed again by one loss with other scales and biases."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from cocos import losses
from cocos.counting import equilibrium, statistics
from cocos.counting.equilibrium import Equilibrium
from cocos.embeddings.batches import Batch
from cocos.embeddings.scores import Pairs
from cocos.engine.prepared import Run

# Scores of both directions that stay in memory between two weighings: 128 MiB in float64.
HELD_SCORES = 2**24
# Standard errors on each side of a 95 % interval.
NORMAL_95 = 1.959964
# Relative step of the differences that give the curvature.
CURVATURE_STEP = 1e-4


@dataclass(frozen=True)
class Rescored:
    """The batches of one size, with their scores while they fit."""

    run: Run

    @cached_property
    def _held(self) -> list[list[tuple[str, list[Pairs]]]] | None:
        total = sum(math.prod(batch.sizes) for batch in self.run.plan.batches) * len(self.run.sides)
        return [self._of(batch) for batch in self.run.plan.batches] if total <= HELD_SCORES else None

    def _of(self, batch: Batch) -> list[tuple[str, list[Pairs]]]:
        names = [name for name, _, _ in self.run.sides]
        return [(names[second], list(blocks)) for second, blocks in self.run.scored(batch, whole=False)]

    def pairs(self) -> Iterator[tuple[int, str, Pairs]]:
        """Yield batch, direction, and Pairs of some queries."""
        for k, batch in enumerate(self.run.plan.batches):
            for name, blocks in self._of(batch) if self._held is None else self._held[k]:
                for pairs in blocks:
                    yield k, name, pairs

    def weighed(self, loss: losses.Loss) -> Iterator[tuple[str, Pairs, Tensor]]:
        """Yield direction, Pairs and weights of some queries."""
        run = replace(self.run, loss=loss)
        for _, name, pairs in self.pairs():
            yield name, pairs, run.weighed(pairs)[0]

    def derivatives(self, loss: losses.Loss) -> dict[str, Tensor]:
        """Derivatives of every query with respect to the scale, and the bias if any, (queries, ...), by direction."""
        found: dict[str, list[Tensor]] = {name: [] for name, _, _ in self.run.sides}
        for name, pairs, weight in self.weighed(loss):
            found[name].append(equilibrium.of_weights(weight, pairs, *equilibrium.values(loss)))
        return {name: torch.cat(some) for name, some in found.items()}

    def means(self, loss: losses.Loss) -> dict[str, float]:
        """Effective number, push and pull: mean over the queries (with any push), then over the directions."""
        found: dict[str, list[Tensor]] = {name: [] for name, _, _ in self.run.sides}
        for name, pairs, weight in self.weighed(loss):
            effective = statistics.effective(statistics.spread(weight, pairs))
            sums = [statistics.push(weight), statistics.pull(weight), effective, effective > 0]
            found[name].append(torch.stack([each.double().sum() for each in sums]))
        push, pull, effective, pushed = torch.stack([sum(some) for some in found.values()]).T.cpu()
        return {
            "effective": float((effective[pushed > 0] / pushed[pushed > 0]).mean()),
            "push_over_pull": float(push.sum() / pull.sum()),
        }

    def rows(self) -> dict[str, Tensor]:
        """Number of every query: of its group in batches of pairs, which both directions share, and else of its row."""
        found, offset = {}, 0
        for name, side, second in self.run.sides:
            rows = [(batch.flip() if second else batch).query_index for batch in self.run.plan.batches]
            index = torch.cat(rows).cpu()
            if self.run.plan.sample == "pairs" and len(self.run.sides) == 2:
                found[name] = side.groups.query[index]
            else:
                found[name], offset = index + offset, offset + len(side.query)
        return found

    def not_first(self) -> dict[str, tuple[int, int]]:
        """Queries with a negative that scores as high as one of their positives, and all queries, by direction."""
        found = {name: [0, 0] for name, _, _ in self.run.sides}
        for _, name, pairs in self.pairs():
            best = pairs.scores.masked_fill(~pairs.negative, -torch.inf).amax(dim=1)
            worst = pairs.scores.masked_fill(~pairs.positive, torch.inf).amin(dim=1)
            found[name][0] += int((best >= worst).sum())
            found[name][1] += len(best)
        return {name: (first, whole) for name, (first, whole) in found.items()}


def mean(derivatives: dict[str, Tensor]) -> Tensor:
    """Mean over the queries of each direction, then over the directions, (k,)."""
    return torch.stack([each.mean(dim=0) for each in derivatives.values()]).mean(dim=0)


def interval(scored: Rescored, found: Equilibrium) -> tuple[float, float]:
    """95 % interval of the temperature of an equilibrium, from the scatter of the queries; NaN for fewer than two.

    With g_r the derivatives of the queries of row r, summed over directions, and H the curvature of the mean loss, the
    equilibrium has the covariance H^-1 (sum g_r g_r') H^-1 / n^2 (a sandwich, as for any M-estimator), and the interval
    is symmetric in the logarithm.
    """
    assert found.loss is not None and found.scale is not None
    scale, bias = equilibrium.values(found.loss)
    steps = [(CURVATURE_STEP * scale, 0.0)] + ([] if bias is None else [(0.0, CURVATURE_STEP)])
    columns = []
    for step in steps:
        ends = []
        for sign in (1, -1):
            other = None if bias is None else bias + sign * step[1]
            ends.append(mean(scored.derivatives(equilibrium.at(found.loss, scale + sign * step[0], other))))
        columns.append((ends[0] - ends[1]) / (2 * max(step)))
    curvature = torch.stack(columns, dim=1).cpu().numpy()
    sums: dict[int, np.ndarray] = {}
    there, rows = scored.derivatives(found.loss), scored.rows()
    for name, each in there.items():
        own = each.cpu().numpy() / (len(rows[name]) * len(there))
        for row, value in zip(rows[name].tolist(), own, strict=True):
            sums[row] = sums.get(row, 0) + value
    score = np.stack(list(sums.values()))
    if len(score) < 2 or not np.isfinite(curvature).all() or np.linalg.matrix_rank(curvature) < len(curvature):
        return math.nan, math.nan
    inverse = np.linalg.inv(curvature)
    error = math.sqrt((inverse @ (score.T @ score) @ inverse.T)[0, 0]) / scale
    reach = math.exp(min(NORMAL_95 * error, math.log(equilibrium.REACH)))
    return 1 / (scale * reach), reach / scale
