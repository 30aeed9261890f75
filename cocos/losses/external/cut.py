"""Find the score matrix inside a loss of embeddings, by what gradients reach, not by the formula of the matrix."""

import itertools
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
        still: those of them whose rows were detached: through them no gradient flows.
        sign: -1 for distances.
        metric: of `cocos.scores.METRICS`, where `sign * matrix` is `factor * metric + offset`; None: none of them.
        factor: above 0; 1 where the metric is none of them.
        offset: see `metric`.
        also_read: what else of the embeddings the loss reads: "", "lengths", or "rows".
    """

    places: tuple[tuple[int, bool], ...]
    still: frozenset[int]
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
            own = own + self.sign * self.factor * (change.detach() if place in self.still else change)
            return own.T if turned[place] else own

        return see


def _close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Whether two matrices agree up to a part of the largest finite entry; masked entries may be infinite."""
    finite = torch.where(b.isfinite(), b, 0).detach().abs()
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance * max(finite.max().item(), 1e-30), equal_nan=True)


class _Trial:
    """A loss on random embeddings scaled to the given norms, so that hinges are unlikely to be inactive.

    What a matrix, or the loss, depends on is what its gradient reaches. With `near` the embeddings are near the given
    ones, for a loss that fails on random ones.
    """

    def __init__(self, call: Call, query: Tensor, candidate: Tensor, *, near: bool):
        self.call, self.query, self.near = call, query, near
        self.shared, self.shape = candidate is query, (len(query), len(candidate))
        self.generator = torch.Generator().manual_seed(0)
        self.tolerance = TOLERANCE.get(query.dtype, HALF_TOLERANCE)
        self.leaves = [self._like(each).requires_grad_() for each in ((query,) if self.shared else (query, candidate))]
        self.base = self.leaves[0].detach(), self.leaves[-1].detach()
        self.kept: list[Tensor] = []
        self.found: list[tuple[int, bool]] = []
        self.still: list[tuple[int, bool]] = []
        self.gradient = self.reached(self.run(self._look))

    def _like(self, rows: Tensor) -> Tensor:
        """Other embeddings of the lengths of these."""
        ways = torch.randn(rows.shape, generator=self.generator, dtype=torch.float64).to(rows)
        lengths: Tensor = rows.norm(dim=1, keepdim=True)
        ways = rows + 0.05 * lengths * ways if self.near else ways
        size: Tensor = ways.norm(dim=1, keepdim=True)
        return ways / size * lengths

    def run(self, see: See, first: Tensor | None = None) -> Tensor:
        """The loss with a graph; `first` replaces the first query."""
        rows = [each.clone() for each in self.leaves]  # which the loss may change in place
        if first is not None:
            rows[0] = torch.cat([first[None], rows[0][1:]])
        with torch.enable_grad(), seeded(self.query.device):
            return self.call(rows[0], rows[-1], see)

    def reached(self, value: Tensor) -> Tensor:
        """Its gradient in all embeddings, the queries first; 0 where it has none."""
        if not value.requires_grad:
            return torch.zeros_like(torch.cat(self.leaves))
        found = torch.autograd.grad(value.sum(), self.leaves, retain_graph=True, allow_unused=True)
        none = (torch.zeros_like(each) for each in self.leaves)
        return torch.cat([
            zeros if each is None else each for each, zeros in zip(found, none, strict=True)
        ]).nan_to_num()

    def _look(self, matrix: Tensor) -> Tensor:
        """Keep a matrix; it may be that of the scores if each entry depends on its own query and candidate alone."""
        for turned in (False,) if self.shared else (False, True):
            own = matrix.T if turned else matrix
            if tuple(own.shape) == self.shape and not matrix.requires_grad:
                self.still.append((len(self.kept), turned))
            elif tuple(own.shape) == self.shape and self._of_pairs(own):
                self.found.append((len(self.kept), turned))
                break
        self.kept.append(matrix.detach().clone())
        return matrix

    def _of_pairs(self, own: Tensor) -> bool:
        """Whether two entries of a matrix, at opposite corners, depend on their own query and candidate alone."""
        (queries, candidates), behind = self.shape, 0 if self.shared else self.shape[0]
        for i, j in ((0, candidates - 1), (queries - 1, 0)):
            if self.reached(own[i, j]).any(dim=1).nonzero().flatten().tolist() != sorted((i, behind + j)):
                return False
        return True

    def own(self, place: int, turned: bool) -> Tensor:
        return self.kept[place].T if turned else self.kept[place]

    def beside(self, group: list[tuple[int, bool]]) -> str | None:
        """What the gradient reaches beside these matrices: nothing, "", the lengths alone, "lengths", or more, None."""
        places, place = {p for p, _ in group}, itertools.count()
        rest = self.reached(self.run(lambda matrix: matrix.detach() if next(place) in places else matrix))
        way = torch.nn.functional.normalize(torch.cat(self.leaves).detach())
        room = 1e3 * self.tolerance * self.gradient.abs().max()
        if rest.abs().max() <= room:
            return ""
        return "lengths" if (rest - (rest * way).sum(dim=1, keepdim=True) * way).abs().max() <= room else None

    def moved_by(self, group: list[tuple[int, bool]]) -> list[bool]:
        """Whether each matrix is computed from these."""
        turned, found = dict(group), list[bool]()
        bump = torch.rand(self.shape, generator=self.generator, dtype=torch.float64).to(self.query)
        bump = bump * max(1e-4, 30 * self.tolerance)  # small: what the loss does with its scores may have bounds

        def see(matrix: Tensor) -> Tensor:
            place = len(found)
            old = self.kept[place] if place < len(self.kept) else None
            same = old is not None and old.shape == matrix.shape and _close(matrix.detach(), old, self.tolerance)
            found.append(not same)
            return matrix + (bump.T if turned[place] else bump) if place in turned else matrix

        self.run(see)
        return found + [True] * (len(self.kept) - len(found))

    def sign(self, place: tuple[int, bool]) -> int:
        """-1 if the first query has the lowest entry of its row where it is close to the longest candidate, else 1."""
        lengths = self.base[1].norm(dim=1)
        j = int(lengths[self.shared :].argmax()) + self.shared
        close = 0.99 * self.base[1][j] + 0.01 * self.base[0][0]
        found: list[Tensor] = []

        def keep(matrix: Tensor) -> Tensor:
            found.append(matrix.detach().clone())
            return matrix

        self.run(keep, close * lengths[j] / close.norm())
        row = (found[place[0]].T if place[1] else found[place[0]])[0]
        others = torch.arange(len(row), device=row.device) != j
        others[:1] &= not self.shared
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
        first, places = self.own(*group[0]), [group[0]]
        same_dtype = (each for each in self.still if self.own(*each).dtype == first.dtype)
        still = [each for each in same_dtype if _close(self.own(*each), first, self.tolerance)]
        alike = sorted([*group[1:], *still])
        while alike:  # copies of a matrix follow it; those that are computed anew do not
            follows = self.moved_by(places)
            alike = [each for each in alike if not follows[each[0]]]
            places += alike[:1]
            alike = alike[1:]
        signed = ((sign, *self.named(sign * self.own(*group[0]))) for sign in (1, -1))
        known = next((each for each in signed if each[1]), None) or (self.sign(group[0]), None, 1.0, 0.0)
        return Cut(tuple(places), frozenset(place for place, _ in still), *known, also_read)


def find(call: Call, query: Tensor, candidate: Tensor) -> Cut | None:
    """The matrix of scores through which a loss reads its embeddings; None where there is none, or several.

    The loss is run on random embeddings. The gradient of an entry of a score matrix reaches its own query and candidate
    alone, and that of the loss reaches no embedding where the matrix is cut out of its graph. So the functions that
    compute the scores do not matter. A matrix that is a metric of cocos is preferred, even if the loss reads the
    lengths of its embeddings as well.

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
    for each in trial.found:
        same = (g for g in groups if _close(trial.own(*each), trial.own(*g[0]), trial.tolerance))
        equal = next(same, None)
        if equal is None:
            groups.append([each])
        else:
            equal.append(each)
    if not groups or not trial.gradient.any():
        return None
    cuts = []
    for group in groups:
        also_read = trial.beside(group)
        if also_read is not None:
            cuts.append(trial.cut(group, also_read))
            if cuts[-1].metric and not also_read:
                return cuts[-1]
    if cuts:
        return min(cuts, key=lambda cut: (cut.metric is None, cut.also_read))
    follows = trial.moved_by(groups[0])
    return trial.cut(groups[0], "rows") if all(follows[group[0][0]] for group in groups[1:]) else None
