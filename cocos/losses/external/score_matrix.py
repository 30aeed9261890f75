"""Find the matrix of scores inside foreign code by what gradients reach, whatever functions compute it."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cocos.base.errors import InputError
from cocos.embeddings.scores import METRICS
from cocos.losses.external.guard import seeded

See = Callable[[Tensor], Tensor]  # a matrix that the code computes -> the matrix with which the code goes on
Call = Callable[[Tensor, Tensor, See], Tensor]  # queries, candidates (the same object in a labelled set) -> loss

# Relative difference of matrices that are equal up to rounding.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
# The same in float16 and bfloat16, which have 11 and 8 bits of precision.
HALF_TOLERANCE = 2e-2
RECOGNISED_METRICS = ("cosine", "dot", "euclidean", "squared_euclidean", "cosine_dot")


class Watch(TorchFunctionMode):
    """Show every floating-point tensor that PyTorch computes to a function, and replace it by the result.

    Args:
        see: called with each tensor and the arguments from which it was computed; its result replaces the tensor.
    """

    def __init__(self, see: Callable[[Tensor, tuple[Any, ...]], Tensor]):
        super().__init__()
        self.see = see

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function of PyTorch and look at its result."""
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, Tensor) or not result.is_floating_point():
            return result
        seen = self.see(result, args)
        name = getattr(func, "__name__", "")
        if seen is not result and name.endswith("_") and not name.endswith("__"):
            return result.copy_(seen)  # the caller may go on with the tensor that was changed in place
        return seen


def watch_matrices(shape: tuple[int, int], see: See) -> Watch:
    """Watch the matrices of a shape (Q, C), and of its transpose."""
    shapes = {tuple(shape), tuple(shape)[::-1]}
    return Watch(lambda tensor, _: see(tensor) if tuple(tensor.shape) in shapes else tensor)


def equal_sizes(query: Tensor, candidate: Tensor) -> tuple[bool, bool, bool]:
    """Which sizes of a batch are equal, so that matrices of other things have the shape of the scores."""
    queries, candidates, width = len(query), len(candidate), query.shape[1]
    return queries == candidates, queries == width, candidates == width


@dataclass(frozen=True)
class ScoreMatrix:
    """The one matrix of scores that a loss of embeddings reads.

    Args:
        positions: among the matrices of the shape of the scores, in the order of computation, with whether candidates
            are the rows; a loss may compute the matrix several times.
        detached: positions at which it was computed from detached rows: through them no gradient flows.
        sign: -1 for distances.
        metric: of `cocos.scores.METRICS`, where `sign * matrix` is `factor * metric + offset`; None: none of them.
        factor: above 0; 1 where the metric is none of them.
        offset: see `metric`.
        also_read: what else of the embeddings the loss reads: "", "lengths", or "rows".
        equal_sizes: those of the batch in which it was found: in other batches the positions are others.
    """

    positions: tuple[tuple[int, bool], ...]
    detached: frozenset[int]
    sign: int
    metric: str | None
    factor: float
    offset: float
    also_read: str
    equal_sizes: tuple[bool, bool, bool]

    def adding(self, change: Tensor, scores: Tensor, name: str) -> See:
        """Make a function that adds a change of the scores to the matrix, (Q, C), in units of the metric.

        It raises an InputError where the matrix is not at its positions.
        """
        transposed, position = dict(self.positions), -1

        def see(matrix: Tensor) -> Tensor:
            nonlocal position
            position += 1
            if position not in transposed:
                return matrix
            found = matrix.T if transposed[position] else matrix
            if self.metric and not _close(self.sign * found, self.factor * scores + self.offset, HALF_TOLERANCE):
                raise InputError(f"{name}: it computes its scores in this batch in another way than in the first one")
            found = found + self.sign * self.factor * (change.detach() if position in self.detached else change)
            return found.T if transposed[position] else found

        return see


def _close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Whether two matrices agree up to a part of the largest finite entry; masked entries may be infinite."""
    finite = torch.where(b.isfinite(), b, 0).detach().abs()
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance * max(finite.max().item(), 1e-30), equal_nan=True)


Position = tuple[int, bool]  # number of a matrix in the order of computation, and whether candidates are its rows


class _Trial:
    """A run of a loss on random embeddings with the norms of the given ones, where hinges are unlikely to be inactive.

    What a matrix, or the loss, depends on is what its gradient reaches. With `near` the embeddings are near the given
    ones, for a loss that fails on random ones.
    """

    def __init__(self, call: Call, query: Tensor, candidate: Tensor, *, near: bool):
        self.call, self.near = call, near
        self.shared, self.shape = candidate is query, (len(query), len(candidate))
        self.equal_sizes = equal_sizes(query, candidate)
        self.generator = torch.Generator().manual_seed(0)
        self.tolerance = TOLERANCE.get(query.dtype, HALF_TOLERANCE)
        sides = (query,) if self.shared else (query, candidate)
        self.leaves = [self._random_like(each).requires_grad_() for each in sides]
        self.rows = self.leaves[0].detach(), self.leaves[-1].detach()
        self.matrices: list[Tensor] = []
        self.of_pairs: list[Position] = []
        self.without_gradient: list[Position] = []
        self.gradient = self.reached(self.run(self._look))

    def _random_like(self, rows: Tensor) -> Tensor:
        """Draw other embeddings with the norms of these."""
        drawn = torch.randn(rows.shape, generator=self.generator, dtype=torch.float64).to(rows)
        lengths: Tensor = rows.norm(dim=1, keepdim=True)
        drawn = rows + 0.05 * lengths * drawn if self.near else drawn
        size: Tensor = drawn.norm(dim=1, keepdim=True)
        return drawn / size * lengths

    def run(self, see: See, first: Tensor | None = None) -> Tensor:
        """Compute the loss with a graph; `first` replaces the first query."""
        rows = [each.clone() for each in self.leaves]  # which the loss may change in place
        if first is not None:
            rows[0] = torch.cat([first[None], rows[0][1:]])
        with torch.enable_grad(), seeded(rows[0].device):
            return self.call(rows[0], rows[-1], see)

    def reached(self, value: Tensor) -> Tensor:
        """Compute the gradient of a value in all embeddings, the queries first; 0 where it has none."""
        if not value.requires_grad:
            return torch.zeros_like(torch.cat(self.leaves))
        found = torch.autograd.grad(
            value.sum(), self.leaves, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return torch.cat(found).nan_to_num()

    def _look(self, matrix: Tensor) -> Tensor:
        """Keep a matrix; it may hold the scores if each entry depends on its own query and candidate alone."""
        for transposed in (False,) if self.shared else (False, True):
            scores = matrix.T if transposed else matrix
            if tuple(scores.shape) == self.shape and not matrix.requires_grad:
                self.without_gradient.append((len(self.matrices), transposed))
            elif tuple(scores.shape) == self.shape and self._is_of_pairs(scores):
                self.of_pairs.append((len(self.matrices), transposed))
                break
        self.matrices.append(matrix.detach().clone())
        return matrix

    def _is_of_pairs(self, scores: Tensor) -> bool:
        """Whether two entries of a matrix, at opposite corners, depend on their own query and candidate alone."""
        (queries, candidates), behind = self.shape, 0 if self.shared else self.shape[0]
        for i, j in ((0, candidates - 1), (queries - 1, 0)):
            if self.reached(scores[i, j]).any(dim=1).nonzero().flatten().tolist() != sorted((i, behind + j)):
                return False
        return True

    def scores(self, position: int, transposed: bool) -> Tensor:
        return self.matrices[position].T if transposed else self.matrices[position]

    def also_read(self, same: list[Position]) -> str | None:
        """What the gradient reaches beside equal matrices: nothing, "", the lengths alone, "lengths", or more, None."""
        positions, position = {each for each, _ in same}, itertools.count()
        rest = self.reached(self.run(lambda matrix: matrix.detach() if next(position) in positions else matrix))
        along = torch.nn.functional.normalize(torch.cat(self.leaves).detach())
        room = 1e3 * self.tolerance * self.gradient.abs().max()
        if rest.abs().max() <= room:
            return ""
        return "lengths" if (rest - (rest * along).sum(dim=1, keepdim=True) * along).abs().max() <= room else None

    def follow(self, changed: list[Position]) -> list[bool]:
        """Whether each matrix is computed from one of these: whether it moves where they are changed."""
        transposed, moved = dict(changed), list[bool]()
        bump = torch.rand(self.shape, generator=self.generator, dtype=torch.float64).to(self.leaves[0])
        bump = bump * max(1e-4, 30 * self.tolerance)  # small: what the loss does with its scores may have bounds

        def see(matrix: Tensor) -> Tensor:
            position = len(moved)
            old = self.matrices[position] if position < len(self.matrices) else None
            same = old is not None and old.shape == matrix.shape and _close(matrix.detach(), old, self.tolerance)
            moved.append(not same)
            return matrix + (bump.T if transposed[position] else bump) if position in transposed else matrix

        self.run(see)
        return moved + [True] * (len(self.matrices) - len(moved))

    def sign(self, position: Position) -> int:
        """-1 if the first query has the lowest entry of its row where it is close to the longest candidate, else 1."""
        lengths = self.rows[1].norm(dim=1)
        j = int(lengths[self.shared :].argmax()) + self.shared
        close = 0.99 * self.rows[1][j] + 0.01 * self.rows[0][0]
        found: list[Tensor] = []

        def keep(matrix: Tensor) -> Tensor:
            found.append(matrix.detach().clone())
            return matrix

        self.run(keep, close * lengths[j] / close.norm())
        row = (found[position[0]].T if position[1] else found[position[0]])[0]
        others = torch.arange(len(row), device=row.device) != j
        others[:1] &= not self.shared
        return -1 if (row[j] < row[others]).all() else 1

    def recognised(self, scores: Tensor) -> tuple[str | None, float, float]:
        """Recognise scores as factor * metric + offset."""
        eye = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
        pairs = ~eye if self.shared else torch.ones_like(scores) > 0
        values = scores[pairs]
        for name in RECOGNISED_METRICS:
            metric = METRICS[name](*self.rows)[pairs]
            centred = metric - metric.mean()
            factor = (((values - values.mean()) * centred).sum() / centred.square().sum()).item()
            factor = 1.0 if abs(factor - 1) < self.tolerance else factor
            offset = (values - factor * metric).mean().item()
            offset = 0.0 if abs(offset) < self.tolerance * metric.abs().max().item() else offset
            if factor > 0 and _close(factor * metric + offset, values, 10 * self.tolerance):
                return name, factor, offset
        return None, 1.0, 0.0

    def matrix(self, same: list[Position], also_read: str) -> ScoreMatrix:
        """Combine equal matrices to the one that the loss reads."""
        first, positions = self.scores(*same[0]), [same[0]]
        same_dtype = (each for each in self.without_gradient if self.scores(*each).dtype == first.dtype)
        detached = [each for each in same_dtype if _close(self.scores(*each), first, self.tolerance)]
        alike = sorted([*same[1:], *detached])
        while alike:  # copies of a matrix follow it; those that are computed anew do not
            follows = self.follow(positions)
            alike = [each for each in alike if not follows[each[0]]]
            positions += alike[:1]
            alike = alike[1:]
        signed = ((sign, *self.recognised(sign * first)) for sign in (1, -1))
        known = next((each for each in signed if each[1]), None) or (self.sign(same[0]), None, 1.0, 0.0)
        detached_positions = frozenset(position for position, _ in detached)
        return ScoreMatrix(tuple(positions), detached_positions, *known, also_read, self.equal_sizes)


def find(call: Call, query: Tensor, candidate: Tensor) -> ScoreMatrix | None:
    """Find the matrix of scores through which a loss reads its embeddings; None where there is none, or several.

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
        return _found_by(_Trial(call, query, candidate, near=False))
    except InputError:
        return _found_by(_Trial(call, query, candidate, near=True))


def _found_by(trial: _Trial) -> ScoreMatrix | None:
    groups: list[list[Position]] = []  # of equal matrices
    for each in trial.of_pairs:
        same = (g for g in groups if _close(trial.scores(*each), trial.scores(*g[0]), trial.tolerance))
        equal = next(same, None)
        if equal is None:
            groups.append([each])
        else:
            equal.append(each)
    if not groups or not trial.gradient.any():
        return None
    found = []
    for group in groups:
        also_read = trial.also_read(group)
        if also_read is not None:
            found.append(trial.matrix(group, also_read))
            if found[-1].metric and not also_read:
                return found[-1]
    if found:
        return min(found, key=lambda matrix: (matrix.metric is None, matrix.also_read))
    follows = trial.follow(groups[0])
    return trial.matrix(groups[0], "rows") if all(follows[group[0][0]] for group in groups[1:]) else None
