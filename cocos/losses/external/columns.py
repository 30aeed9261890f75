"""A batch as columns, (query, candidate of it), as other libraries receive it; and where its scores show up."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from cocos.errors import Unfit
from cocos.losses.external.cut import HALF_TOLERANCE, TOLERANCE
from cocos.scores import METRICS, Pairs, length

Pick = Callable[[Tensor], Tensor]  # a change of all scores, (Q, C) -> the part of it that stands in one tensor


@dataclass(frozen=True, eq=False)
class BatchColumns:
    """Rows of a batch in the form of a training set: row i of each column belongs to row i of the others.

    Args:
        query: (Q, D).
        documents: (Q, D) each, the positives first.
    """

    query: Tensor
    documents: tuple[Tensor, ...]

    def detached(self) -> "BatchColumns":
        """The same rows, through which no gradient flows."""
        return BatchColumns(self.query.detach(), tuple(rows.detach() for rows in self.documents))


@dataclass(frozen=True, eq=False)
class Place:
    """A tensor of scores that a library may compute.

    Args:
        values: the scores, of any shape.
        pick: the part of a change of the pairs' scores that belongs to it.
    """

    values: Tensor
    pick: Pick


def columns(spelling: str, pairs: Pairs, *, unit: bool) -> BatchColumns:
    """The columns of pairs of which query i matches candidate i.

    Args:
        spelling: name of the loss, for the sentence.
        pairs: with embeddings.
        unit: divide the rows by their norms.

    Raises:
        Unfit: there are no embeddings, or query i does not match candidate i.
    """
    part = pairs.embeddings
    if part is None:
        raise Unfit(f"{spelling}: it reads embeddings, and these pairs are scores alone")
    queries, candidates = pairs.positive.shape
    if part.shared or queries != candidates or not bool(pairs.positive.diagonal().all()):
        raise Unfit(
            f"{spelling}: it receives no labels, so query i must match candidate i, and here it does not; "
            "draw pairs of two sides (--sample pairs)"
        )
    query, candidate = (rows / length(rows)[:, None] if unit else rows for rows in (part.query, part.candidate))
    return BatchColumns(query, (candidate,))


def places(given: BatchColumns, metric: str) -> list[Place]:
    """Matrices of scores of the columns, with the part of a change of the pairs' scores that each has."""
    score, (candidate,) = METRICS[metric], given.documents
    forth = score(given.query, candidate)
    return [Place(forth, lambda change: change), Place(forth.T, lambda change: change.T)]


@dataclass
class ScoreWatch(TorchFunctionMode):
    """Add a change of the scores to the tensors in which a library computes them.

    A tensor is recognised by its values, up to `factor`. One that the change has reached already is left alone: the
    rows themselves have no gradient.

    Args:
        places: the tensors to look for.
        change: (Q, C), to be added to the scores; it requires a gradient.
        factor: of the library's scores.
    """

    places: list[Place]
    change: Tensor
    factor: float = 1.0
    found: dict[int, int] = field(default_factory=dict)  # place -> number of times that it was seen

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function of PyTorch and look at its result."""
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, Tensor) or not result.is_floating_point() or result.requires_grad:
            return result
        like = [
            (number, factor)
            for number, place in enumerate(self.places)
            for factor in dict.fromkeys((1.0, self.factor))
            if self._equal(result, place.values, factor)
        ]
        if not like:
            return result
        number, factor = min(like, key=lambda each: self.found.get(each[0], 0))
        self.found[number] = self.found.get(number, 0) + 1
        return result + factor * self.places[number].pick(self.change).to(result)

    def _equal(self, result: Tensor, values: Tensor, factor: float) -> bool:
        if result.shape != values.shape:
            return False
        room = TOLERANCE.get(result.dtype, HALF_TOLERANCE) * factor
        off: Tensor = (result.detach() - factor * values.to(result)).abs().max()
        return bool(off <= room * values.abs().max())
