"""Gradients of a loss of one batch of pairs: of every row, and of every row along every other one."""

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

# Length of the coordinate of its own that a row gets, in parts of its norm: a power of two, exact in bfloat16.
OWN_COORDINATE = 2.0**-8
# Width and noise of synthetic batches: at temperature 0.1 most negatives of a query have a weight that is not tiny.
SYNTHETIC_WIDTH, SYNTHETIC_NOISE = 24, 0.9
# Coordinates of synthetic rows that their teacher sees, and number of grades of synthetic pairs.
TAUGHT_WIDTH, GRADES = 12, 5
# Sizes of the groups of a batch in which queries have several positives, in turn.
GROUP_SIZES = (1, 2, 3, 4)
# Rows around one direction where cosines fill their range, and the least and largest distance from it.
CLOSE_ROWS, CLOSE_NOISE = 4, (0.02, 1.0)
# Smallest number of pairs in which rows, mini-batches and processes can be told apart.
FEWEST_PAIRS = 4
# Kinds of rows that a gradient reaches.
ENDS = ("queries", "candidates", "hard negatives")
# Kinds of pairs: a query and its candidate, and the sources of negatives, of which one is another one transposed.
PAIR_KINDS = ("positives", *(name for name in SOURCES if name != "candidate-query"))

Call = Callable[[Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True, eq=False)
class PairRows:
    """A batch of pairs, with hard negatives of each query.

    Args:
        query: (N, D).
        candidate: (N, D); candidate i belongs to query i alone.
        negatives: (N, K, D) or None.
        beside: grades of the pairs, scores of a teacher and groups of several positives, for losses that read them.
        beyond: its cosines fill the range from -1 to 1, whatever those of the data do.
    """

    query: Tensor
    candidate: Tensor
    negatives: Tensor | None
    beside: Annotations = Annotations()
    beyond: bool = False

    @property
    def several(self) -> bool:
        """Whether queries have several positives."""
        return self.beside.groups is not None

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
        """The same batch with other rows, (R, D)."""
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
            row i; 0 on the diagonal. None where the loss cannot be asked for it.
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
        own = torch.arange(self.number)
        return torch.cat([own, own, own.repeat_interleave(self.hard)]).to(self.device)

    @cached_property
    def kind(self) -> Tensor:
        """Index into `PAIR_KINDS` of each pair of rows, (R, R), symmetric."""
        query = self.end == 0
        own = self.pair[:, None] == self.pair[None, :]
        hard = (self.end[:, None] == 2) | (self.end[None, :] == 2)
        mixed = query[:, None] != query[None, :]
        kind = torch.where(query[:, None] & query[None, :], 4, 5)
        crossed = torch.where(hard, torch.where(own, 2, 3), torch.where(own, 0, 1))
        return torch.where(mixed, crossed, kind)

    def rows(self, end: int) -> slice:
        """Rows of one end."""
        sizes = (0, self.number, 2 * self.number, (2 + self.hard) * self.number)
        return slice(sizes[end], sizes[end + 1])


@contextmanager
def _explained(name: str) -> Generator[None]:
    """Add to an error on dtypes how the loss is computed in that of training."""
    try:
        yield
    except InputError as error:
        if not isinstance(error.__cause__, RuntimeError) or not {"Double", "Float"} & {*re.split(r"\W+", str(error))}:
            raise
        join = "," if "@" in name else "@"
        raise InputError(f"{error}; in the dtype of training it is {name}{join}dtype=float32") from error.__cause__


def _gradient(name: str, call: Call, rows: PairRows) -> tuple[float, Tensor]:
    """Value, and gradient of every row, (R, D), by autograd."""
    leaf = rows.matrix.detach().clone().requires_grad_()
    batch = rows.like(leaf)
    with torch.enable_grad(), _explained(name), user_code.reported(name), seeded(leaf.device):
        value = call(batch.query, batch.candidate, batch.negatives)
        if not value.requires_grad:
            raise InputError(f"{name}: its result has no gradient; it is detached, or computed without PyTorch")
        (found,) = torch.autograd.grad(value, leaf, allow_unused=True, materialize_grads=True)
    return float(value.detach()), found.double()


def gradients(name: str, call: Call, rows: PairRows, rounded: torch.dtype | None = None) -> PairGradients:
    """Gradients of a loss on a batch.

    The derivative with respect to a single pair does not follow from the code of a loss, which may compute its scores
    in any way, nor from the gradient of a row, which is a sum over pairs. So each row gets a coordinate of its own: row
    j becomes (√(1 - δ²) x_j, δ ‖x_j‖ e_j). Norms stay, cosines of different rows are multiplied by 1 - δ², and the
    gradient of row i has in coordinate j what the pair (i, j) alone contributes to it.

    Args:
        name: of the loss, for messages.
        call: the loss.
        rows: the batch.
        rounded: dtype to which the rows are rounded first, so that both of two losses read the same numbers.
    """

    def read(matrix: Tensor) -> PairRows:
        return rows.like(matrix if rounded is None else matrix.to(rounded).to(matrix.dtype))

    matrix = rows.matrix
    value, plain = _gradient(name, call, read(matrix))
    norms: Tensor = matrix.norm(dim=1, keepdim=True)
    apart = lifted((1 - OWN_COORDINATE**2) ** 0.5 * matrix, OWN_COORDINATE * norms[:, 0])
    try:
        _, found = _gradient(name, call, read(apart))
    except InputError:  # it has parameters of the width of the embeddings
        return PairGradients(value, plain, None)
    pairs = found[:, matrix.shape[1] :] * norms.double() / OWN_COORDINATE
    return PairGradients(value, plain, pairs.fill_diagonal_(0))


def lifted(rows: Tensor, own: Tensor) -> Tensor:
    """Rows with a coordinate of its own for each, (N, D + N): `own`, (N,), in which every other row is 0."""
    return torch.cat([rows, own.diag()], dim=1)


def synthetic(number: int, hard: int, seed: int, device: torch.device) -> PairRows:
    """A batch of unit vectors: candidates and hard negatives are noisy copies of their query.

    Grades are five levels in turn; the teacher scores the rows by their first coordinates.
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, SYNTHETIC_WIDTH, generator=generator, dtype=torch.float64)

    query = drawn(number)
    candidate = query + SYNTHETIC_NOISE * drawn(number)
    negatives = query[:, None] + 2 * SYNTHETIC_NOISE * drawn(number, hard) if hard else None
    query, candidate, negatives = (
        None if each is None else (each / each.norm(dim=-1, keepdim=True)).to(device)
        for each in (query, candidate, negatives)
    )
    made = PairRows(query, candidate, negatives)
    guide = made.matrix[:, :TAUGHT_WIDTH]
    grades = torch.arange(number, device=device) % GRADES
    return replace(made, beside=Annotations(grades, Teacher(guide=(guide[:number], guide[number:]))))


def grouped(number: int, seed: int, device: torch.device) -> PairRows:
    """A synthetic batch in which the candidates of a group are positives of all of its queries."""
    rows, sizes = synthetic(number, 0, seed, device), torch.tensor(GROUP_SIZES)
    groups = torch.arange(len(sizes) * number).repeat_interleave(sizes.repeat(number))[:number]
    return replace(rows, beside=replace(rows.beside, groups=groups.to(device)))


def stretched(number: int, seed: int, device: torch.device) -> PairRows:
    """A synthetic batch of unit vectors whose cosines fill the range: close queries, candidates on both sides of them.

    Of the rows around one direction the first candidates lie beside it, one opposite to it, and one anywhere.
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(rows: int) -> Tensor:
        found = torch.randn(rows, SYNTHETIC_WIDTH, generator=generator, dtype=torch.float64)
        return found / found.norm(dim=1, keepdim=True)

    place = torch.arange(number)
    centre = drawn(-(-number // CLOSE_ROWS))[place // CLOSE_ROWS]
    low, high = map(math.log, CLOSE_NOISE)
    noise = torch.linspace(low, high, number, dtype=torch.float64).exp()[:, None]
    query, candidate = centre + noise * drawn(number), centre + noise * drawn(number)
    candidate = torch.where((place % CLOSE_ROWS == CLOSE_ROWS - 2)[:, None], -candidate, candidate)
    candidate = torch.where((place % CLOSE_ROWS == CLOSE_ROWS - 1)[:, None], drawn(number), candidate)
    query, candidate = ((each / each.norm(dim=1, keepdim=True)).to(device) for each in (query, candidate))
    return PairRows(query, candidate, None, beyond=True)


def drawn_groups(embeddings: Embeddings, number: int, seed: int) -> PairRows | None:
    """Draw a batch in which queries have several positives, as many as `GROUP_SIZES` in turn; None: no group has two.

    A query stands in it once for each candidate of its group that is drawn, where the group has fewer queries.
    """
    generator = torch.Generator().manual_seed(seed)
    asking, asked = (group.cpu() for group in (embeddings.query_group, embeddings.candidate_group))
    places: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
    for held, groups in zip(places, (asking, asked), strict=True):
        for row in torch.randperm(len(groups), generator=generator).tolist():
            held.setdefault(int(groups[row]), []).append(row)
    rows: list[int] = []
    columns: list[int] = []
    for turn, (group, asks) in enumerate(places[0].items()):
        queries, others = asks, places[1].get(group, [])
        if embeddings.shared:  # a sample is a query or a candidate
            queries, others = asks[: len(asks) // 2], asks[len(asks) // 2 :]
        take = min(len(others), GROUP_SIZES[turn % len(GROUP_SIZES)], number - len(rows)) if queries else 0
        rows += [queries[each % len(queries)] for each in range(take)]
        columns += others[:take]
    index = torch.tensor(rows, dtype=torch.int64), torch.tensor(columns, dtype=torch.int64)
    groups = asking[index[0]]
    number_of_groups = len(groups.unique())
    if len(rows) < FEWEST_PAIRS or not 1 < number_of_groups < len(rows):
        return None
    place, other = (each.to(embeddings.query.device) for each in index)
    found = PairRows(embeddings.query[place], embeddings.candidate[other], None)
    if not bool((found.matrix != 0).any(dim=1).all()):
        return None
    return replace(found, beside=Annotations(groups=groups.unique(return_inverse=True)[1].to(place.device)))


def drawn(embeddings: Embeddings, number: int, hard: bool, seed: int) -> PairRows:
    """Draw a batch of pairs: rows of different groups, each with one of its candidates and its hard negatives.

    Args:
        embeddings: a training set.
        number: of pairs, at most; fewer where there are fewer groups.
        hard: whether the hard negatives that queries name are drawn with them.
        seed: for drawing.
    """
    generator, named = torch.Generator().manual_seed(seed), embeddings.negatives
    asking, asked = (group.cpu() for group in (embeddings.query_group, embeddings.candidate_group))
    place: dict[int, list[int]] = {}
    for row in torch.randperm(len(asked), generator=generator).tolist():
        place.setdefault(int(asked[row]), []).append(row)
    pairs, seen = [], set()
    for row in torch.randperm(len(asking), generator=generator).tolist():
        group = int(asking[row])
        others = [each for each in place.get(group, []) if not (embeddings.shared and each == row)]
        whole = not hard or named.is_floating_point() or bool((named[row] >= 0).all())
        if group not in seen and others and whole:
            seen.add(group)
            pairs.append((row, others[0]))
        if len(pairs) == number:
            break
    if len(pairs) < FEWEST_PAIRS:
        raise InputError(
            f"{len(pairs)} groups have a query and a candidate of its own, expected at least {FEWEST_PAIRS}"
        )
    rows, columns = (torch.tensor(each, device=embeddings.query.device) for each in zip(*pairs, strict=True))
    negatives = None
    if hard:
        negatives = named[rows] if named.is_floating_point() else embeddings.candidate[named[rows]]
    found = PairRows(embeddings.query[rows], embeddings.candidate[columns], negatives)
    teacher = embeddings.teacher
    if teacher is not None:
        every = torch.cat([columns, named[rows].flatten()]) if hard else columns
        teacher = teacher.rows(rows, every)
    grades = None if embeddings.grades is None else embeddings.grades[rows]
    found = replace(found, beside=Annotations(grades, teacher))
    if not bool((found.matrix != 0).any(dim=1).all()):
        raise InputError("a row that was drawn is a zero vector, which has no direction; remove it")
    return found
