"""Find the score matrix inside a loss of embeddings, by the inputs its matrices depend on, not by their formula."""

import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cocos.base.errors import InputError
from cocos.embeddings.scores import METRICS

See = Callable[[Tensor], Tensor]
Call = Callable[[Tensor, Tensor, See], Tensor]  # queries, candidates (the same object in a labelled set) -> loss

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
# Relative difference of equal matrices in float16 and bfloat16, which have 11 and 8 bits of precision.
HALF_TOLERANCE = 2e-2
RECOGNISED_METRICS = ("cosine", "dot", "euclidean", "squared_euclidean", "cosine_dot")


@contextmanager
def seeded(device: torch.device) -> Generator[None]:
    """Seed the generators of Python, NumPy and PyTorch, so that a loss draws the same in every call."""
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    module = torch.get_device_module(device)
    own = [device] if hasattr(module, "get_rng_state") else []  # the generator of the host is kept in any case
    with torch.random.fork_rng(devices=own, device_type=device.type):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        torch.random.default_generator.manual_seed(0)
        for each in own:
            with module.device(each):
                module.manual_seed(0)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002


class Watch(TorchFunctionMode):
    """Show every (query, candidate) matrix that PyTorch computes to a function, and replace it by the result.

    Args:
        shape: (Q, C).
        see: called with each matrix of that shape or its transpose; its result replaces the matrix.
    """

    def __init__(self, shape: tuple[int, int], see: See):
        super().__init__()
        self.shapes, self.see = {tuple(shape), tuple(shape)[::-1]}, see

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function of PyTorch and look at its result."""
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, Tensor) or not result.is_floating_point() or tuple(result.shape) not in self.shapes:
            return result
        seen = self.see(result)
        name = getattr(func, "__name__", "")
        if seen is not result and name.endswith("_") and not name.endswith("__"):
            return result.copy_(seen)  # the caller may go on with the tensor that was changed in place
        return seen


@dataclass(frozen=True)
class Cut:
    """The one matrix of scores that a loss of embeddings reads.

    Args:
        places: positions of the matrix in the order of computation, and whether candidates are its rows; a loss may
            compute it several times.
        sign: -1 for distances.
        metric: of `cocos.scores.METRICS`, where `sign * matrix` is `factor * metric + offset`; None: none of them.
        factor: above 0; 1 where the metric is none of them.
        offset: see `metric`.
        also_read: what else of the embeddings the loss reads: "", "lengths", or "rows".
    """

    places: tuple[tuple[int, bool], ...]
    sign: int
    metric: str | None
    factor: float
    offset: float
    also_read: str

    def moved(self, change: Tensor, scores: Tensor, name: str) -> See:
        """A function that adds a change of the scores to the matrix, (Q, C), in units of the metric.

        Raises:
            InputError: when it is called: the matrix is not where it was.
        """
        turned, place = dict(self.places), -1

        def see(matrix: Tensor) -> Tensor:
            nonlocal place
            place += 1
            if place not in turned:
                return matrix
            own = matrix.T if turned[place] else matrix
            if self.metric and not _close(self.sign * own, self.factor * scores + self.offset, HALF_TOLERANCE):
                raise InputError(f"{name}: it computes its scores in this batch in another way than in the first one")
            own = own + self.sign * self.factor * change
            return own.T if turned[place] else own

        return see


def _close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Whether two matrices agree up to a part of the largest finite entry; masked entries may be infinite."""
    finite = torch.where(b.isfinite(), b, 0).detach().abs()
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance * max(finite.max().item(), 1e-30), equal_nan=True)


class _Trial:
    """A loss on random embeddings scaled to the given norms, so that hinges are unlikely to be inactive.

    With `near` they are near the given ones, for a loss that fails on random ones or on other lengths.
    """

    def __init__(self, call: Call, query: Tensor, candidate: Tensor, *, near: bool):
        self.call, self.query, self.candidate, self.near = call, query, candidate, near
        self.shared, self.shape = candidate is query, (len(query), len(candidate))
        self.generator = torch.Generator().manual_seed(0)
        self.tolerance = TOLERANCE.get(query.dtype, HALF_TOLERANCE)
        self.base = self.fresh()
        self.kept: list[Tensor] = []
        self.value = self.run(self.base, self._keep).detach()

    def _keep(self, matrix: Tensor) -> Tensor:
        self.kept.append(matrix.detach().clone())
        return matrix

    def run(self, rows: tuple[Tensor, Tensor], see: See) -> Tensor:
        with torch.no_grad(), seeded(self.query.device):
            return self.call(*rows, see)

    def fresh(self, *, stretched: bool = False) -> tuple[Tensor, Tensor]:
        """Draw other embeddings, of equal or of stretched lengths; those near the given ones keep their lengths."""

        def like(rows: Tensor) -> Tensor:
            ways = torch.randn(rows.shape, generator=self.generator, dtype=torch.float64).to(rows)
            lengths: Tensor = rows.norm(dim=1, keepdim=True)
            if self.near:
                ways = rows + 0.05 * lengths * ways
            elif stretched:
                lengths = lengths * (
                    0.8 + 0.4 * torch.rand(lengths.shape, generator=self.generator, dtype=torch.float32).to(rows)
                )
            size: Tensor = ways.norm(dim=1, keepdim=True)
            return ways / size * lengths

        query = like(self.query)
        return (query, query) if self.shared else (query, like(self.candidate))

    def with_row(self, side: int, index: int, row: Tensor) -> tuple[Tensor, Tensor]:
        """The embeddings with one query (side 0) or candidate (side 1) replaced."""
        changed = self.base[side].clone()
        changed[index] = row
        if self.shared:
            return changed, changed
        return (changed, self.base[1]) if side == 0 else (self.base[0], changed)

    def changes(self, rows: tuple[Tensor, Tensor], see: See | None = None) -> list[Tensor | None]:
        """Entries of each matrix that change with these embeddings, or under `see`; None for a matrix not made."""
        found: list[Tensor | None] = []

        def look(matrix: Tensor) -> Tensor:
            place = len(found)
            if place < len(self.kept) and self.kept[place].shape == matrix.shape:
                old = self.kept[place]
                size = torch.where(old.isfinite(), old, 0).abs().max().item()
                same = torch.isclose(matrix, old, rtol=self.tolerance, atol=self.tolerance * size, equal_nan=True)
                found.append(~same)
            else:
                found.append(None)
            return see(matrix) if see else matrix

        self.run(rows, look)
        return found + [None] * (len(self.kept) - len(found))

    def own(self, place: int, turned: bool) -> Tensor:
        return self.kept[place].T if turned else self.kept[place]

    def candidates(self) -> list[tuple[int, bool]]:
        """Matrices whose entries each depend on their own query and candidate alone."""
        i, j = 0, self.shape[1] - 1
        other = self.fresh()
        by_query = self.changes(self.with_row(0, i, other[0][i]))
        by_candidate = self.changes(self.with_row(1, j, other[1][j]))
        row = torch.zeros(self.shape, dtype=torch.bool, device=self.query.device)
        column = row.clone()
        row[i], column[:, j] = True, True
        if self.shared:
            row[:, i], column[j] = True, True
        found = []
        for place, (a, b) in enumerate(zip(by_query, by_candidate, strict=False)):
            for turned in (False,) if self.shared else (False, True):
                if a is None or b is None or tuple(a.shape) != (self.shape[::-1] if turned else self.shape):
                    continue
                first, second = (a.T, b.T) if turned else (a, b)
                inside = not (first & ~row).any() and not (second & ~column).any()
                if inside and first[i, j] and second[i, j]:
                    found.append((place, turned))
                    break
        return found

    def held(self, group: list[tuple[int, bool]], *, stretched: bool = True) -> bool:
        """Whether the loss is unchanged by new embeddings when these score matrices are kept fixed."""
        places, place = {p for p, _ in group}, -1

        def see(matrix: Tensor) -> Tensor:
            nonlocal place
            place += 1
            hold = place in places and self.kept[place].shape == matrix.shape
            return self.kept[place].clone() if hold else matrix

        value = self.run(self.fresh(stretched=stretched), see)
        return value.shape == self.value.shape and _close(value, self.value, 1e3 * self.tolerance)

    def moved_by(self, group: list[tuple[int, bool]]) -> list[bool]:
        """Whether each matrix is computed from these."""
        turned, place = dict(group), -1
        bump = torch.rand(self.shape, generator=self.generator, dtype=torch.float64).to(self.query)
        bump = bump * max(1e-4, 30 * self.tolerance)  # small: what the loss does with its scores may have bounds

        def see(matrix: Tensor) -> Tensor:
            nonlocal place
            place += 1
            return matrix + (bump.T if turned[place] else bump) if place in turned else matrix

        return [change is None or bool(change.any()) for change in self.changes(self.base, see)]

    def sign(self, place: tuple[int, bool]) -> int:
        """-1 if a query close to the longest candidate has the lowest entry of its row there, else 1."""
        j = int(self.base[1].norm(dim=1).argmax())
        i = 0 if j or not self.shared else 1
        longest = self.base[1][j]
        close = 0.99 * longest + 0.01 * self.base[0][i]
        close = close * longest.norm() / close.norm()
        found: list[Tensor] = []

        def keep(matrix: Tensor) -> Tensor:
            found.append(matrix.detach().clone())
            return matrix

        self.run(self.with_row(0, i, close), keep)
        row = (found[place[0]].T if place[1] else found[place[0]])[i]
        others = torch.arange(len(row), device=row.device) != j
        if self.shared:
            others[i] = False
        return -1 if (row[j] < row[others]).all() else 1

    def named(self, own: Tensor) -> tuple[str | None, float, float]:
        """Recognise scores as factor * metric + offset."""
        off = ~torch.eye(len(own), dtype=torch.bool, device=own.device) if self.shared else torch.ones_like(own) > 0
        values = own[off]
        for name in RECOGNISED_METRICS:
            metric = METRICS[name](*self.base)[off]
            centred = metric - metric.mean()
            factor = (((values - values.mean()) * centred).sum() / centred.square().sum()).item()
            factor = 1.0 if abs(factor - 1) < self.tolerance else factor
            offset = (values - factor * metric).mean().item()
            offset = 0.0 if abs(offset) < self.tolerance * metric.abs().max().item() else offset
            if factor > 0 and _close(factor * metric + offset, values, 10 * self.tolerance):
                return name, factor, offset
        return None, 1.0, 0.0

    def cut(self, group: list[tuple[int, bool]], also_read: str) -> Cut:
        """Combine equal matrices to the one that the loss reads."""
        places = [group[0]]  # copies of a matrix follow it; those that are computed anew do not
        while apart := [each for each in group if each not in places and not self.moved_by(places)[each[0]]]:
            places.append(apart[0])
        sign = self.sign(group[0])
        return Cut(tuple(places), sign, *self.named(sign * self.own(*group[0])), also_read)


def find(call: Call, query: Tensor, candidate: Tensor) -> Cut | None:
    """The matrix of scores through which a loss reads its embeddings; None where there is none, or several.

    The loss is run on random embeddings. An entry of a score matrix changes with its own query and candidate alone, and
    the loss does not change when all embeddings do while the matrix is kept fixed. So the functions that compute the
    scores do not matter, and gradients are not needed. A matrix that is a metric of cocos is preferred, even if the
    loss reads the lengths of its embeddings as well.

    Args:
        call: the loss as a function of queries, candidates and `see`, which it calls with its matrices.
        query: (Q, D).
        candidate: (C, D), the same object in a labelled set.
    """
    if len(candidate) < 2:
        return None
    try:
        return _cut(_Trial(call, query, candidate, near=False))
    except InputError:
        return _cut(_Trial(call, query, candidate, near=True))


def _cut(trial: _Trial) -> Cut | None:
    groups: list[list[tuple[int, bool]]] = []
    for each in trial.candidates():
        same = (g for g in groups if _close(trial.own(*each), trial.own(*g[0]), trial.tolerance))
        equal = next(same, None)
        if equal is None:
            groups.append([each])
        else:
            equal.append(each)
    if not groups or trial.held([]):
        return None
    cuts = []
    for group in groups:
        also_read = "" if trial.held(group) else "lengths" if trial.held(group, stretched=False) else None
        if also_read is not None:
            cuts.append(trial.cut(group, also_read))
            if cuts[-1].metric and not also_read:
                return cuts[-1]
    if cuts:
        return min(cuts, key=lambda cut: (cut.metric is None, cut.also_read))
    follows = trial.moved_by(groups[0])
    return trial.cut(groups[0], "rows") if all(follows[group[0][0]] for group in groups[1:]) else None
