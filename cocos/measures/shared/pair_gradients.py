"""Gradients of a loss of one batch of pairs: of each row, and of each pair of rows."""

import math
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from cocos.base import user_code
from cocos.base.errors import InputError
from cocos.embeddings import Embeddings
from cocos.embeddings.sources import SOURCES
from cocos.embeddings.teachers import Teacher
from cocos.losses.foreign import seeded
from cocos.measures.shared.pair_losses import Annotations

OWN_COORDINATE = 2.0**-8  # length of the added coordinate of a row, over its norm: a power of two, exact in bfloat16
# Width and noise of synthetic batches: at temperature 0.1 most negatives of a query have a sizeable weight.
SYNTHETIC_WIDTH, SYNTHETIC_NOISE = 24, 0.9
# Coordinates of synthetic rows that their teacher reads, and number of grades of synthetic pairs.
TAUGHT_WIDTH, GRADES = 12, 5
GROUP_SIZES = (1, 2, 3, 4)  # of groups with several positives, in turn
# Rows around one direction if cosines fill their range, and the least and largest distance from it.
CLOSE_ROWS, CLOSE_NOISE = 4, (0.02, 1.0)
FEWEST_PAIRS = 4  # in which rows, mini-batches and processes can be distinguished
ENDS = ("queries", "candidates", "hard negatives")  # kinds of rows with a gradient
# Kinds of pairs: a query and its candidate, and the sources of negatives, one of which is the transpose of another.
PAIR_KINDS = ("positives", *(name for name in SOURCES if name != "candidate-query"))

Call = Callable[[Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True, eq=False)
class PairRows:
    """A batch of pairs, with hard negatives of each query.

    Args:
        query: (N, D).
        candidate: (N, D); candidate i belongs to query i alone.
        negatives: (N, K, D) or None.
        annotations: grades of the pairs, scores of a teacher and groups of several positives, if a loss reads them.
        beyond: its cosines fill the range from -1 to 1, unlike the data.
    """

    query: Tensor
    candidate: Tensor
    negatives: Tensor | None
    annotations: Annotations = Annotations()
    beyond: bool = False

    @property
    def several(self) -> bool:
        """Whether queries have several positives."""
        return self.annotations.groups is not None

    @property
    def number(self) -> int:
        """Pairs, N."""
        return len(self.query)

    @property
    def hard(self) -> int:
        """Hard negatives of each query, K."""
        return 0 if self.negatives is None else self.negatives.shape[1]

    @property
    def matrix(self) -> Tensor:
        """All rows: queries, candidates, hard negatives query by query, (R, D)."""
        hard = [] if self.negatives is None else [self.negatives.flatten(0, 1)]
        return torch.cat([self.query, self.candidate, *hard])

    def like(self, matrix: Tensor) -> "PairRows":
        """Return the batch with other rows, (R, D)."""
        number = self.number
        hard = None if not self.hard else matrix[2 * number :].unflatten(0, (number, self.hard))
        return replace(self, query=matrix[:number], candidate=matrix[number : 2 * number], negatives=hard)


@dataclass(frozen=True, eq=False)
class PairGradients:
    """Gradients of one loss, in float64.

    Args:
        value: of the loss.
        rows: of each row, (R, D).
        pairs: (R, R), entry (i, j) the derivative of the loss with respect to the cosine of rows i and j, as it reaches
            row i; 0 on the diagonal. None if the loss does not accept wider rows.
    """

    value: float
    rows: Tensor
    pairs: Tensor | None


@dataclass(frozen=True, eq=False)
class RowKinds:
    """Kinds of the rows of a batch, and of its pairs: `number` queries, their candidates, `hard` negatives of each."""

    number: int
    hard: int
    device: torch.device

    @cached_property
    def end(self) -> Tensor:
        """Index into `ENDS` of each row, (R,)."""
        sizes = torch.tensor([self.number, self.number, self.number * self.hard])
        return torch.repeat_interleave(torch.arange(3), sizes).to(self.device)

    @cached_property
    def pair(self) -> Tensor:
        """Number of the pair that each row belongs to, (R,)."""
        pair = torch.arange(self.number)
        return torch.cat([pair, pair, pair.repeat_interleave(self.hard)]).to(self.device)

    @cached_property
    def kind(self) -> Tensor:
        """Index into `PAIR_KINDS` of each pair of rows, (R, R), symmetric."""
        query = self.end == 0
        same = self.pair[:, None] == self.pair[None, :]
        hard = (self.end[:, None] == 2) | (self.end[None, :] == 2)
        mixed = query[:, None] != query[None, :]
        kind = torch.where(query[:, None] & query[None, :], 4, 5)
        crossed = torch.where(hard, torch.where(same, 2, 3), torch.where(same, 0, 1))
        return torch.where(mixed, crossed, kind)

    def rows(self, end: int) -> slice:
        """Return the rows of one end."""
        sizes = (0, self.number, 2 * self.number, (2 + self.hard) * self.number)
        return slice(sizes[end], sizes[end + 1])


@contextmanager
def _explained(name: str) -> Generator[None]:
    """Add to an error on dtypes the option for the dtype of training."""
    try:
        yield
    except InputError as error:
        if not isinstance(error.__cause__, RuntimeError) or not {"Double", "Float"} & {*re.split(r"\W+", str(error))}:
            raise
        join = "," if "@" in name else "@"
        raise InputError(f"{error}; in the dtype of training it is {name}{join}dtype=float32") from error.__cause__


def _gradient(name: str, call: Call, rows: PairRows) -> tuple[float, Tensor]:
    """Return the value, and the gradient of every row, (R, D), by autograd."""
    leaf = rows.matrix.detach().clone().requires_grad_()
    batch = rows.like(leaf)
    with torch.enable_grad(), _explained(name), user_code.reported(name), seeded(leaf.device):
        value = call(batch.query, batch.candidate, batch.negatives)
        if not value.requires_grad:
            raise InputError(f"{name}: its result has no gradient; it is detached, or computed without PyTorch")
        (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True, materialize_grads=True)
    return float(value.detach()), gradient.double()


def gradients(name: str, call: Call, rows: PairRows, rounded: torch.dtype | None = None) -> PairGradients:
    """Return the gradients of a loss on a batch.

    The derivative with respect to a single pair does not follow from the code of a loss, which may compute its scores
    in any way, nor from the gradient of a row, which is a sum over pairs. So a coordinate is added for each row: row
    j becomes (√(1 - δ²) x_j, δ ‖x_j‖ e_j). Norms are unchanged, cosines of different rows are multiplied by 1 - δ², and
    coordinate j of the gradient of row i is the contribution of the pair (i, j).

    Args:
        name: of the loss, for messages.
        call: the loss.
        rows: the batch.
        rounded: dtype to which the rows are rounded first, so that two losses read the same numbers.
    """

    def read(matrix: Tensor) -> PairRows:
        return rows.like(matrix if rounded is None else matrix.to(rounded).to(matrix.dtype))

    matrix = rows.matrix
    value, gradient = _gradient(name, call, read(matrix))
    norms: Tensor = matrix.norm(dim=1, keepdim=True)
    wide = lifted((1 - OWN_COORDINATE**2) ** 0.5 * matrix, OWN_COORDINATE * norms[:, 0])
    try:
        _, wide_gradient = _gradient(name, call, read(wide))
    except InputError:  # it has parameters of the width of the embeddings
        return PairGradients(value, gradient, None)
    pairs = wide_gradient[:, matrix.shape[1] :] * norms.double() / OWN_COORDINATE
    return PairGradients(value, gradient, pairs.fill_diagonal_(0))


def lifted(rows: Tensor, lengths: Tensor) -> Tensor:
    """Add a coordinate for each row, (N, D + N): its entry of `lengths`, (N,), and 0 in all other rows."""
    return torch.cat([rows, lengths.diag()], dim=1)


def synthetic(number: int, hard: int, seed: int, device: torch.device) -> PairRows:
    """Return a batch of unit vectors: candidates and hard negatives are noisy copies of their query.

    Grades are five levels in turn; the teacher scores the rows by their first coordinates.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, SYNTHETIC_WIDTH, generator=generator, dtype=torch.float64)

    query = normal(number)
    candidate = query + SYNTHETIC_NOISE * normal(number)
    negatives = query[:, None] + 2 * SYNTHETIC_NOISE * normal(number, hard) if hard else None
    query, candidate, negatives = (
        None if vectors is None else (vectors / vectors.norm(dim=-1, keepdim=True)).to(device)
        for vectors in (query, candidate, negatives)
    )
    rows = PairRows(query, candidate, negatives)
    guide = rows.matrix[:, :TAUGHT_WIDTH]
    grades = torch.arange(number, device=device) % GRADES
    return replace(rows, annotations=Annotations(grades, Teacher(guide=(guide[:number], guide[number:]))))


def grouped(number: int, seed: int, device: torch.device) -> PairRows:
    """Return a synthetic batch in which the candidates of a group are positives of all of its queries."""
    rows, sizes = synthetic(number, 0, seed, device), torch.tensor(GROUP_SIZES)
    groups = torch.arange(len(sizes) * number).repeat_interleave(sizes.repeat(number))[:number]
    return replace(rows, annotations=replace(rows.annotations, groups=groups.to(device)))


def stretched(number: int, seed: int, device: torch.device) -> PairRows:
    """Return a synthetic batch of unit vectors with cosines of the whole range: close queries, and distant candidates.

    Of the rows around one direction the first candidates are close to it, one is opposite, and one is random.
    """
    generator = torch.Generator().manual_seed(seed)

    def unit(rows: int) -> Tensor:
        vectors = torch.randn(rows, SYNTHETIC_WIDTH, generator=generator, dtype=torch.float64)
        return vectors / vectors.norm(dim=1, keepdim=True)

    place = torch.arange(number)
    centre = unit(-(-number // CLOSE_ROWS))[place // CLOSE_ROWS]
    low, high = map(math.log, CLOSE_NOISE)
    noise = torch.linspace(low, high, number, dtype=torch.float64).exp()[:, None]
    query, candidate = centre + noise * unit(number), centre + noise * unit(number)
    candidate = torch.where((place % CLOSE_ROWS == CLOSE_ROWS - 2)[:, None], -candidate, candidate)
    candidate = torch.where((place % CLOSE_ROWS == CLOSE_ROWS - 1)[:, None], unit(number), candidate)
    query, candidate = ((vectors / vectors.norm(dim=1, keepdim=True)).to(device) for vectors in (query, candidate))
    return PairRows(query, candidate, None, beyond=True)


def drawn_groups(embeddings: Embeddings, number: int, seed: int) -> PairRows | None:
    """Draw a batch in which queries have several positives, as many as `GROUP_SIZES` in turn; None: no group has two.

    If a group has fewer queries than drawn candidates, its queries are repeated.
    """
    generator = torch.Generator().manual_seed(seed)
    asking, asked = (group.cpu() for group in (embeddings.query_group, embeddings.candidate_group))
    places: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
    for rows_by_group, groups in zip(places, (asking, asked), strict=True):
        for row in torch.randperm(len(groups), generator=generator).tolist():
            rows_by_group.setdefault(int(groups[row]), []).append(row)
    rows: list[int] = []
    columns: list[int] = []
    for turn, (group, asks) in enumerate(places[0].items()):
        queries, candidates = asks, places[1].get(group, [])
        if embeddings.shared:  # a sample is a query or a candidate
            queries, candidates = asks[: len(asks) // 2], asks[len(asks) // 2 :]
        take = min(len(candidates), GROUP_SIZES[turn % len(GROUP_SIZES)], number - len(rows)) if queries else 0
        rows += [queries[k % len(queries)] for k in range(take)]
        columns += candidates[:take]
    index = torch.tensor(rows, dtype=torch.int64), torch.tensor(columns, dtype=torch.int64)
    groups = asking[index[0]]
    number_of_groups = len(groups.unique())
    if len(rows) < FEWEST_PAIRS or not 1 < number_of_groups < len(rows):
        return None
    query_index, candidate_index = (side.to(embeddings.query.device) for side in index)
    batch = PairRows(embeddings.query[query_index], embeddings.candidate[candidate_index], None)
    if not bool((batch.matrix != 0).any(dim=1).all()):
        return None
    groups = groups.unique(return_inverse=True)[1].to(query_index.device)
    return replace(batch, annotations=Annotations(groups=groups))


def drawn(embeddings: Embeddings, number: int, hard: bool, seed: int) -> PairRows:
    """Draw a batch of pairs: rows of different groups, each with one of its candidates and its hard negatives.

    Args:
        embeddings: a training set.
        number: largest number of pairs; there is one per group.
        hard: whether hard negatives are drawn with their queries.
        seed: for drawing.
    """
    generator, negatives_of = torch.Generator().manual_seed(seed), embeddings.negatives
    asking, asked = (group.cpu() for group in (embeddings.query_group, embeddings.candidate_group))
    place: dict[int, list[int]] = {}
    for row in torch.randperm(len(asked), generator=generator).tolist():
        place.setdefault(int(asked[row]), []).append(row)
    pairs, groups = [], set()
    for row in torch.randperm(len(asking), generator=generator).tolist():
        group = int(asking[row])
        candidates = [candidate for candidate in place.get(group, []) if not (embeddings.shared and candidate == row)]
        complete = not hard or bool((negatives_of[row] >= 0).all())
        if group not in groups and candidates and complete:
            groups.add(group)
            pairs.append((row, candidates[0]))
        if len(pairs) == number:
            break
    if len(pairs) < FEWEST_PAIRS:
        raise InputError(
            f"{len(pairs)} groups have a query and a candidate of its own, expected at least {FEWEST_PAIRS}"
        )
    rows, columns = (torch.tensor(index, device=embeddings.query.device) for index in zip(*pairs, strict=True))
    negatives = embeddings.candidate[negatives_of[rows]] if hard else None
    teacher = embeddings.teacher
    if teacher is not None:
        teacher = teacher.rows(rows, torch.cat([columns, negatives_of[rows].flatten()]) if hard else columns)
    grades = None if embeddings.grades is None else embeddings.grades[rows]
    annotations = Annotations(grades, teacher)
    batch = PairRows(embeddings.query[rows], embeddings.candidate[columns], negatives, annotations)
    if not bool((batch.matrix != 0).any(dim=1).all()):
        raise InputError("a row that was drawn is a zero vector, which has no direction; remove it")
    return batch
