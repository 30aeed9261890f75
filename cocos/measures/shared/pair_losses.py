"""A loss as a function of embeddings, (query, candidate, negatives) -> one number, as a training loop calls it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cocos import losses
from cocos.base import user_code
from cocos.base.errors import InputError, nearest
from cocos.embeddings import Embeddings, Side
from cocos.embeddings.sampling import Batch
from cocos.embeddings.scores import pairs
from cocos.embeddings.teachers import Teacher
from cocos.losses.foreign import ROLES, ForeignLoss, parameters_of, takes_any
from cocos.losses.libraries import VERSIONS
from cocos.losses.parameters import literal

# Names of a parameter of a function for the hard negatives of its queries, (Q, K, D).
NEGATIVES = ("negatives", "negative", "hard_negatives", "hard_negative")


@dataclass(frozen=True, eq=False)
class Annotations:
    """What a loss may read of a batch beside its rows.

    Args:
        grades: (Q,) of graded pairs, or None.
        teacher: scores of the queries with the candidates and, behind them, all hard negatives, or None.
        groups: (Q,) of the pairs: candidates of a query's group are its positives; None: candidate i alone.
    """

    grades: Tensor | None = None
    teacher: Teacher | None = None
    groups: Tensor | None = None


def _batch_of(
    query: Tensor, candidate: Tensor, negatives: Tensor | None, annotations: Annotations
) -> tuple[Embeddings, Batch]:
    """Make a batch of pairs whose rows autograd follows, and number its rows; nothing is checked."""
    every = candidate if negatives is None else torch.cat([candidate, negatives.flatten(0, 1)])
    row, column = (torch.arange(number, device=query.device) for number in (len(query), len(every)))
    given, groups = annotations.groups, (row, column)
    if given is not None:
        groups = given, torch.cat([given, column[len(candidate) :] + int(given.max()) + 1])
    named = None
    if negatives is not None:
        named = column[len(candidate) : len(candidate) + len(query) * negatives.shape[1]].reshape(len(query), -1)
    first, second = Side(query, groups[0], negatives=named), Side(every, groups[1])
    part = Embeddings.from_sides(first, second, teacher=annotations.teacher, grades=annotations.grades)
    if given is not None:
        return part, Batch(row, column, paired=False)
    return part, Batch(row, column, paired=True, extra=len(every) - len(query))


@dataclass(frozen=True, eq=False)
class Sides:
    """A loss of one batch of embeddings: (query, candidate, negatives) -> ().

    Args:
        name: its spelling.
        call: receives the queries (Q, D), the candidates (C, D) with C >= Q, of which candidate i belongs to query i,
            the hard negatives (C, K, D) or None, of which the first Q rows belong to the queries, and `annotations`.
        columns: whether it takes hard negatives.
        needed: whether it cannot do without them.
        reads: fields of `Annotations` that it cannot do without.
        several: whether it takes several positives of a query, and whether they can be given here: `groups`, `labels`
            that are one for each pair, or None.
        annotations: what it reads beside the rows.
    """

    name: str
    call: Callable[[Tensor, Tensor, Tensor | None, Annotations], Any]
    columns: bool
    needed: bool = False
    reads: tuple[str, ...] = ()
    several: str | None = None
    annotations: Annotations = Annotations()

    def __call__(self, query: Tensor, candidate: Tensor, negatives: Tensor | None = None) -> Tensor:
        """Average the loss over the queries, ()."""
        for name in self.reads:
            if getattr(self.annotations, name) is None:
                raise InputError(f"{self.name}: it reads {name} beside the embeddings, which are missing here")
        if negatives is None and self.needed:
            raise InputError(f"{self.name}: hard negatives are required")
        if negatives is not None and not self.columns:
            raise InputError(
                f"{self.name}: it takes no hard negatives; give its function a parameter {NEGATIVES[0]!r}, (Q, K, D)"
            )
        value = self.call(query, candidate, negatives, self.annotations)
        if not isinstance(value, Tensor) or value.ndim > 1 or not value.is_floating_point():
            kind = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"{self.name}: it returns {kind}, expected one number, or one per query")
        return value.mean()

    def block(self, rows: slice, query: Tensor, candidate: Tensor, negatives: Tensor | None) -> Tensor:
        """Average the loss over some queries, (), against all candidates, their own candidates being put first.

        Args:
            rows: rows of the candidates that belong to the queries.
            query: (q, D) these queries.
            candidate: (C, D).
            negatives: (C, K, D) or None.
        """

        def first(side: Tensor) -> Tensor:
            return torch.cat([side[rows], side[: rows.start], side[rows.stop :]])

        return self(query, first(candidate), None if negatives is None else first(negatives))


def _of_shelf(loss: Any, name: str) -> Sides:
    """Make it of a loss of scores: of the candidates and the columns of its further directions, or of graded pairs."""
    options: dict[str, Any] = {"metric": loss.metric, "same_group": "negative", "graded": loss.graded}

    def call(query: Tensor, candidate: Tensor, negatives: Tensor | None, annotations: Annotations) -> Tensor:
        part, batch = _batch_of(query, candidate, negatives, annotations)
        value: Tensor = loss(pairs(part, batch, directions=loss.directions, **options))
        return value

    reads = (*loss.requires, *(["grades"] if loss.graded else []))
    several = None if reads or len(loss.directions) > 1 else "groups"
    return Sides(name, call, columns=not loss.graded, reads=reads, several=several)


def _of_foreign(loss: ForeignLoss, name: str) -> Sides:
    """Make it of a third-party loss, which runs as in training."""

    def call(query: Tensor, candidate: Tensor, negatives: Tensor | None, annotations: Annotations) -> Any:
        part, batch = _batch_of(query, candidate, negatives, annotations)
        batch_pairs = pairs(part, batch, metric=loss.metric, same_group="negative")
        return loss.run(batch_pairs)(query, part.candidate) if loss.reads == "embeddings" else loss.value(batch_pairs)

    several = "groups" if loss.reads == "scores" else "labels" if "labels" in loss.roles else None
    return Sides(name, call, columns=True, several=several)


def _of_function(target: Any, name: str, given: dict[str, Any]) -> Sides:
    """Make it of a function of (query, candidate), and of hard negatives where it has a parameter for them."""
    fields = parameters_of(target)
    keyword = next((each for each in NEGATIVES if each in fields), None)

    def call(query: Tensor, candidate: Tensor, negatives: Tensor | None, annotations: Annotations) -> Any:
        hard = {} if keyword is None or negatives is None else {keyword: negatives}
        return target(query, candidate, **given, **hard)

    needed = keyword is not None and fields[keyword].default is fields[keyword].empty
    return Sides(name, call, columns=keyword is not None, needed=needed)


def _two_sided(target: Any) -> bool:
    """Whether it is called with queries and candidates: by the names of its first two parameters, or by their number.

    A function of embeddings and labels, or of scores and masks, is a loss of another kind.
    """
    if isinstance(target, type) or not callable(target):
        return False
    required = [n for n, p in parameters_of(target).items() if p.default is p.empty and n not in NEGATIVES]
    roles = [ROLES.get(each.lower()) for each in required[:2]]
    others = {"labels", "positive", "negative", "pairs", "scores"}
    return len(required) == 2 and not others & {*roles}


def sides(loss: Any, given: dict[str, Any] | None = None) -> Sides:
    """Make a function of embeddings of a loss.

    Args:
        loss: a loss, its name for `cocos.losses.load`, or a function or module of (query, candidate) or of (query,
            candidate, negatives) that returns one number, or one per query, of which the mean is taken.
        given: its parameters, with a name.

    Raises:
        InputError: there is no such loss, or a parameter is unknown.

    Examples:
        >>> loss = sides("triplet", {"margin": 0.5})
        >>> loss(torch.eye(2), torch.eye(2).flip(0))  # both pairs are the wrong way round
        tensor(1.5000)
    """
    given = dict(given or {})
    if isinstance(loss, Sides):
        return loss
    if isinstance(loss, str):
        return _named(loss.strip(), given)
    if isinstance(loss, losses.Loss):
        name = loss.name
        return _of_foreign(loss, name) if isinstance(loss, ForeignLoss) else _of_shelf(loss, name)
    if _two_sided(loss):
        return _of_function(loss, getattr(loss, "__name__", type(loss).__name__), given)
    return sides(losses.as_loss(loss))


def _named(spelling: str, given: dict[str, Any]) -> Sides:
    """Make it of a name: code of the user's that has two sides is called as it is."""
    if ":" not in spelling or spelling.partition(":")[0].lower() in VERSIONS or set("+*(") & set(spelling):
        return sides(losses.load(spelling, given))
    target, left = user_code.load(spelling, "loss"), given
    if isinstance(target, type):
        fields = parameters_of(target)
        chosen = {name: literal(value) for name, value in given.items() if name in fields}
        left = {name: value for name, value in given.items() if name not in fields}
        with user_code.reported(spelling):
            target = target(**chosen)
    if not _two_sided(target):
        return sides(losses.load(spelling, given))
    fields = parameters_of(target)
    for name in left:
        if name not in fields and not takes_any(target):
            raise InputError(nearest(f"parameter of {spelling}", name, set(fields) - {*ROLES, *NEGATIVES}))
    return _of_function(target, spelling, {name: literal(value) for name, value in left.items()})
