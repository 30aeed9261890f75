"""Weights ∂ loss / ∂ score of arbitrary code: the scores of its rows are known, so that they are identified by value.

A tensor with the values of the scores is the score matrix, whichever functions computed it. A zero is added to it, and
the gradient with respect to this zero is the weight of each pair.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cocos.base.errors import InputError
from cocos.embeddings.similarities import METRICS, NORMALISED_SIDES

Run = Callable[[Tensor, Tensor], Tensor]  # queries, candidates (the same object in a labelled set) -> loss, (Q,) or ()

# Metrics that fit the same call, as of unit rows: the first one is taken.
METRICS_BY_PRIORITY = ("euclidean", "chord", "cosine", "squared_euclidean", "projection", "dot", "cosine_dot")
# Largest relative difference of equal scores, and of the gradient of the rows from the chain rule.
SAME_SCORES = {torch.float64: 1e-9, torch.float32: 1e-5}
SAME_GRADIENT = {torch.float64: 1e-5, torch.float32: 1e-3}
TRIANGLES = (torch.triu, torch.tril)
UNIT_ROWS = 1e-6  # largest deviation of the norm of a unit row from 1
PROBE_SEEDS = (0, 1)  # of the random rows on which the scores are located
UNEXPLAINED = (
    "it reads its embeddings in other ways than by scores of its queries and candidates, which leave {:.2g} % of its "
    "largest gradient unexplained, so that its pairs have no weights"
)
PROBE_WIDTH = 3  # dimensions of the random rows, in which cosines are uniform in [-1, 1]


@dataclass(frozen=True)
class Match:
    """A tensor of scores: the index of the score in each entry, Q · C if there is none, and its factor.

    `mirrored` has the indices with query and candidate exchanged if the entries fit both.
    """

    index: Tensor
    factor: Tensor | float
    mirrored: Tensor | None = None


@dataclass(frozen=True)
class Reading:
    """Scores that a loss reads.

    Args:
        metric: of the scores.
        pieces: whether pieces of the matrix are matched, too.
        matches: by number of the call, on random rows.
        symmetrised: whether queries and candidates of some scores in a labelled set cannot be told apart, so that
            each has half of the weight.
        triangular: whether one triangle of the scores of a labelled set is read, so that all have.
    """

    metric: str
    pieces: bool = False
    matches: dict[int, Match] = field(default_factory=dict)
    symmetrised: bool = False
    triangular: bool = False


@dataclass(frozen=True)
class Weighed:
    """Weights of one batch.

    Args:
        value: of the loss, (Q,) or ().
        weights: ∂ Σ value / ∂ score, (Q, C); in a labelled set with the score of each row with itself.
        gap: largest difference of the gradient of the rows from the chain rule, relative to the largest entry.
        reads_lengths: whether the loss depends on the lengths of its rows in addition to the scores.
        matches: by number of the call.
        dtype: of the scores.
    """

    value: Tensor
    weights: Tensor
    gap: float
    reads_lengths: bool
    matches: dict[int, Match]
    dtype: torch.dtype = torch.float64

    @property
    def explained(self) -> bool:
        """Whether the weights are the whole gradient of the rows."""
        return bool(self.matches) and self.gap <= SAME_GRADIENT[self.dtype]


@dataclass
class AddChange(TorchFunctionMode):
    """Add a change to each tensor that contains the scores, unless it depends on the change already.

    Args:
        scores: (Q, C) float64.
        change: zeros, (Q, C), with a gradient.
        shared: queries and candidates are the same rows; scores of a row with itself are not compared.
        pieces: also identify rows, columns and entries of the scores.
        replayed: matches by number of the call, which replace the comparison of values.
    """

    scores: Tensor
    change: Tensor
    shared: bool
    pieces: bool
    replayed: dict[int, Match] | None = None
    matches: dict[int, Match] = field(default_factory=dict)
    dtype: torch.dtype = torch.float64
    calls: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        self.dependent: set[Any] = set()  # nodes of the graph with and without a path to the change
        self.independent: set[Any] = set()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, and return its result with the change of the scores in it."""
        result = function(*args, **(kwargs or {}))
        self.calls += 1
        if not isinstance(result, Tensor) or not result.requires_grad or result.dtype not in SAME_SCORES:
            return result
        match = self._match(result)
        if match is None:
            return result
        self.matches[self.calls] = match
        if result.dtype != torch.float64:
            self.dtype = torch.float32
        change = torch.cat([self.change.flatten(), self.change.new_zeros(1)])
        added = change[match.index]
        if match.mirrored is not None:
            added = (added + change[match.mirrored]) / 2
        changed = result + (match.factor * added).to(result.dtype)
        name = getattr(function, "__name__", "")
        return result.copy_(changed) if name.endswith("_") and not name.endswith("__") else changed

    def _match(self, result: Tensor) -> Match | None:
        if self.replayed is not None:
            match = self.replayed.get(self.calls)
            return match if match is not None and match.index.shape == result.shape else None
        size, values = self.scores.numel(), result.detach().double()
        if values.numel() < 2 or (values.numel() != size and not self.pieces) or self._depends_on_change(result):
            return None
        if not bool(values.isfinite().all()):
            return None
        room = SAME_SCORES[result.dtype]
        match = match_matrix(values, self.scores, room, shared=self.shared) if values.numel() == size else None
        if match is None and self.pieces:
            match = match_lines(values, self.scores, room, shared=self.shared)
            match = match or match_entries(values, self.scores, room, shared=self.shared)
        return match

    def _depends_on_change(self, result: Tensor) -> bool:
        """Search the graph, which also covers tuples, keywords and custom functions."""
        nodes, visited = [result.grad_fn], set()
        while nodes:
            node = nodes.pop()
            if node is None or node in visited or node in self.independent:
                continue
            if node in self.dependent or getattr(node, "variable", None) is self.change:
                self.dependent.add(result.grad_fn)
                return True
            visited.add(node)
            nodes += [parent for parent, _ in node.next_functions]
        self.independent |= visited
        return False


def match_matrix(values: Tensor, scores: Tensor, room: float, *, shared: bool) -> Match | None:
    """Match a tensor with the whole score matrix or its transpose, of any number of dimensions, up to a linear map."""
    index, squeezed = torch.arange(scores.numel(), device=scores.device).view(scores.shape), values.squeeze()
    diagonal = torch.eye(*scores.shape, dtype=torch.bool, device=scores.device)
    compared = ~diagonal if shared else torch.ones_like(diagonal)
    for transposed in (False,) if shared else (False, True):
        shape = scores.T.shape if transposed else scores.shape
        if squeezed.ndim not in (1, 2) or (squeezed.ndim == 2 and squeezed.shape != shape):
            continue
        matrix = squeezed.reshape(shape).T if transposed else squeezed.reshape(shape)
        centred, target = scores[compared] - scores[compared].mean(), matrix[compared] - matrix[compared].mean()
        factor = float((centred * target).sum() / centred.square().sum().clamp(min=1e-300))
        factor = math.copysign(1.0, factor) if abs(abs(factor) - 1) < room else factor
        largest = abs(factor) * float(scores.abs().max())
        if factor and float((target - factor * centred).abs().max()) <= 10 * room * largest:
            return Match((index.T if transposed else index).reshape(values.shape), factor)
    return None


def match_lines(values: Tensor, scores: Tensor, room: float, *, shared: bool) -> Match | None:
    """Match each row of a matrix with a row or a column of the scores, up to its own factor and offset."""
    matrix = values.squeeze()
    if matrix.ndim != 2:
        return None
    index = torch.arange(scores.numel(), device=scores.device).view(scores.shape)
    rows, columns = (scores, index), (scores.T, index.T)
    for transposed, (source, indices) in ((False, rows), (False, columns), (True, columns), (True, rows)):
        lines = matrix.T if transposed else matrix
        # Three numbers can be a linear map of other ones by chance. A symmetric matrix has the same rows and columns.
        if lines.shape[1] != source.shape[1] or source.shape[1] < 4 or (shared and lines.shape == source.shape):
            continue
        centred, target = (block - block.mean(dim=1, keepdim=True) for block in (source, lines))
        length = target.norm(dim=1, keepdim=True)
        if float(length.min()) <= 1e-9 * float(length.max()):
            continue
        norm = centred.norm(dim=1, keepdim=True).clamp(min=1e-300)
        correlation, line = ((target / length.clamp(min=1e-300)) @ (centred / norm).T).abs().max(dim=1)
        if float(correlation.min()) < 1 - 10 * room:
            continue
        factor = (target * centred[line]).sum(dim=1, keepdim=True) / norm[line].square()
        rest = (target - factor * centred[line]).abs().max()
        if float(rest) > 100 * room * float(scores.abs().max()) * float(factor.abs().max()):
            continue
        place, slope = indices[line], factor.expand_as(lines)
        place, slope = (place.T, slope.T) if transposed else (place, slope)
        return Match(place.reshape(values.shape), slope.reshape(values.shape))
    return None


def match_entries(values: Tensor, scores: Tensor, room: float, *, shared: bool) -> Match | None:
    """Match each entry with a score or its negative: positives apart, queues, gathered triplets.

    In a labelled set the scores of (i, j) and (j, i) are equal: a matrix with one row in common per line has its role,
    other entries belong to both.
    """
    size, width = scores.numel(), scores.shape[1]
    if values.numel() > 4 * size:
        return None
    flat, tolerance = scores.flatten(), 20 * room * float(scores.abs().max())
    diagonal = torch.eye(*scores.shape, dtype=torch.bool, device=scores.device).flatten()
    places = (~diagonal if shared else torch.ones_like(diagonal)).nonzero()[:, 0]
    ordered, order = flat[places].sort()
    if float((ordered.diff() > 0).double().mean()) < 0.4:  # too many equal scores
        return None
    for factor in (1.0, -1.0):
        entries = (factor * values).flatten().contiguous()
        upper = torch.searchsorted(ordered, entries).clamp(max=len(ordered) - 1)
        lower = (upper - 1).clamp(min=0)
        nearest = torch.where((ordered[upper] - entries).abs() <= (ordered[lower] - entries).abs(), upper, lower)
        close = (ordered[nearest] - entries).abs() <= tolerance
        with_itself = torch.zeros_like(close)
        if shared:
            distance, row = (entries[:, None] - scores.diagonal()[None]).abs().min(dim=1)
            with_itself = ~close & (distance <= tolerance)
        if not bool((close | with_itself).all()) or int(close.sum()) < max(2, len(entries) // 4):
            continue
        if len(nearest[close].unique()) < min(3, len(entries)):
            continue
        index = torch.where(close, places[order[nearest]], size)
        if not shared:
            return Match(index.reshape(values.shape), factor)
        if float(scores.diagonal().std()) > 1e-6 * float(scores.abs().max()):  # else all rows have the same
            index = torch.where(with_itself, row * (width + 1), index)
        matrix = values.squeeze()
        if matrix.ndim == 2:
            directed = direct(index.reshape(matrix.shape), width)
            if directed is not None:
                return Match(directed.reshape(values.shape), factor)
        mirrored = torch.where(index == size, size, index % width * width + index // width)
        return Match(index.reshape(values.shape), factor, mirrored.reshape(values.shape))
    return None


def direct(index: Tensor, rows: int) -> Tensor | None:
    """Return the indices with the row that all entries of a line have in common as query; None without one."""
    empty = rows * rows
    for transposed in (False, True):
        lines = index.T if transposed else index
        if lines.shape[1] < 2:
            continue
        absent = lines == empty
        first, second = torch.where(absent, rows, lines // rows), torch.where(absent, rows, lines % rows)
        count = torch.zeros(len(lines), rows + 1, device=index.device)
        for ends, weight in ((first, ~absent), (second, ~absent & (first != second))):
            count.scatter_add_(1, ends, weight.float())
        most, common = count[:, :rows].max(dim=1, keepdim=True)
        if bool((most[:, 0] == (~absent).sum(dim=1)).all()):
            partner = torch.where(first == common, second, first)
            directed = torch.where(absent, empty, common * rows + partner)
            return directed.T if transposed else directed
    return None


def attempt(run: Run, query: Tensor, candidate: Tensor, reading: Reading, *, replay: bool = False) -> Weighed:
    """Return the weights of one batch, in float64, and compare the gradient of the rows with the chain rule.

    Args:
        run: the loss.
        query: (Q, D).
        candidate: (C, D), the same object in a labelled set.
        reading: the metric to search for.
        replay: take the scores at the calls of `reading.matches`, whatever their values.
    """
    shared, metric = candidate is query, METRICS[reading.metric]
    leaves = [query.detach().double().clone().requires_grad_()]
    leaves += [] if shared else [candidate.detach().double().clone().requires_grad_()]
    with torch.no_grad():
        scores = metric(leaves[0], leaves[-1])
    change = torch.zeros_like(scores).requires_grad_()
    mode = AddChange(scores, change, shared, reading.pieces, reading.matches if replay else None)
    rows = [leaf.clone() for leaf in leaves]
    with torch.enable_grad(), mode:
        value = run(rows[0], rows[-1])
    if not value.requires_grad:
        return Weighed(value, torch.zeros_like(scores), math.inf, False, {})
    weights, *gradients = torch.autograd.grad(value.sum(), [change, *leaves], allow_unused=True, materialize_grads=True)
    with torch.enable_grad():
        expected = torch.autograd.grad((metric(leaves[0], leaves[-1]) * weights).sum(), leaves)
    all_rows, gradient = torch.cat(leaves).detach(), torch.cat(gradients)
    difference, norms = gradient - torch.cat(expected), all_rows.norm(dim=1, keepdim=True)
    radial = (difference * all_rows).sum(dim=1, keepdim=True) * all_rows / norms.square()
    unit = bool(((norms - 1).abs() < UNIT_ROWS).all())
    tangential = unit or len(NORMALISED_SIDES.get(reading.metric, ())) == 2  # the scores do not depend on lengths
    difference = difference - radial if tangential else difference
    # Where gradients cancel, as in a collapsed batch, they are rounding errors of the weights.
    steepest = float(weights.abs().max() * torch.maximum(norms.max(), 1 / norms.min()))
    largest = max(float(gradient.abs().max()), 1e-6 * steepest, 1e-300)
    return Weighed(
        value.detach(),
        (weights + weights.T) / 2 if reading.triangular else weights,
        float(difference.abs().max()) / largest,
        tangential and not unit and float(radial.abs().max()) > SAME_GRADIENT[mode.dtype] * largest,
        mode.matches,
        mode.dtype,
    )


def weigh(run: Run, query: Tensor, candidate: Tensor, reading: Reading) -> Weighed:
    """Return the weights of one batch, with the scores of `find`.

    If the scores of the batch are not identified by value, since they are all equal for example, they are expected
    where the loss computes them on random rows.

    Raises:
        InputError: the weights do not explain the gradient of the rows.
    """
    weighed = attempt(run, query, candidate, reading)
    if not weighed.explained and not math.isinf(weighed.gap):
        weighed = attempt(run, query, candidate, find(run, query, candidate), replay=True)
        if not weighed.explained:
            raise InputError(UNEXPLAINED.format(100 * min(1, weighed.gap)))
    return weighed


def probes(query: Tensor, candidate: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return random queries and candidates in float64, the same object if the given ones are.

    They have the norms of the given rows, and cosines over their whole range.
    """
    width, size = min(PROBE_WIDTH, query.shape[1]), query.shape[1]
    basis = torch.linalg.qr(torch.randn(size, width, generator=torch.Generator().manual_seed(0)).double())[0]

    def draw(rows: Tensor, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        directions = torch.randn(len(rows), width, generator=generator, dtype=torch.float64) @ basis.T
        directions = directions.to(rows.device)
        return directions / directions.norm(dim=1, keepdim=True) * rows.detach().double().norm(dim=1, keepdim=True)

    queries = draw(query, 2 * seed)
    return queries, queries if candidate is query else draw(candidate, 2 * seed + 1)


def find(run: Run, query: Tensor, candidate: Tensor) -> Reading:
    """Return the scores that a loss reads, on random rows with the norms of the given ones.

    Raises:
        InputError: it reads no scores of a metric, or its rows in other ways too.
    """
    gaps, has_gradient = [], False
    for pieces in (False, True):
        for seed in PROBE_SEEDS:
            rows = probes(query, candidate, seed)
            readings = []
            for metric in METRICS_BY_PRIORITY:
                weighed = attempt(run, *rows, Reading(metric, pieces))
                has_gradient |= not math.isinf(weighed.gap)
                gaps += [weighed.gap] if weighed.matches else []
                if weighed.explained and bool(weighed.weights.any()):
                    weights = weighed.weights
                    triangular = candidate is query and any(torch.equal(half(weights), weights) for half in TRIANGLES)
                    mirrored = any(match.mirrored is not None for match in weighed.matches.values())
                    readings.append(Reading(metric, pieces, weighed.matches, triangular or mirrored, triangular))
            if readings:  # a distance follows the products of which it is computed
                return max(readings, key=lambda reading: min(reading.matches))
    if not has_gradient:
        raise InputError("its result has no gradient; it is detached somewhere, or computed without PyTorch")
    if not gaps:
        raise InputError(
            "no scores were found in it, expected inner products, cosines or distances of its queries and candidates"
        )
    raise InputError(UNEXPLAINED.format(100 * min(1, *gaps)))
