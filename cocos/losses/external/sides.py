"""A loss as a function of embeddings, (query, candidate, negatives) -> one number, as a training loop calls it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from cocos import losses
from cocos.embeddings import Embeddings
from cocos.errors import InputError, nearest
from cocos.losses.external import own
from cocos.losses.external.embedded import Embedded
from cocos.losses.external.guard import guarded
from cocos.losses.external.signature import ROLE_OF, literal, named, signature_of, takes_any
from cocos.scores import METRICS, Pairs, length

# Names of a parameter of a function for the hard negatives of its queries, (Q, K, D).
NEGATIVES = ("negatives", "negative", "hard_negatives", "hard_negative")


def _value(name: str, found: Any) -> Tensor:
    """The mean over the queries, (), of a loss that returns one number per query or one number.

    Raises:
        InputError: it returns anything else.
    """
    if not isinstance(found, Tensor) or found.ndim > 1 or not found.is_floating_point():
        said = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise InputError(f"{name}: it returns {said}, expected one number, or one per query")
    return found.mean()


def _every(candidate: Tensor, negatives: Tensor | None) -> Tensor:
    """Candidates and, below them, all hard negatives, (C + N K, D)."""
    return candidate if negatives is None else torch.cat([candidate, negatives.flatten(0, 1)])


def _places(queries: int, candidates: int, negatives: Tensor | None) -> Tensor | None:
    """Rows of the candidates that are the hard negatives of each query, (Q, K), as `_every` puts them."""
    if negatives is None:
        return None
    number = negatives.shape[1]
    return candidates + torch.arange(queries * number, device=negatives.device).reshape(queries, number)


def _pairs(metric: str, query: Tensor, candidate: Tensor, negatives: Tensor | None) -> Pairs:
    """Pairs of one batch, scored so that autograd follows: query i matches candidate i alone."""
    every = _every(candidate, negatives)
    row, column = (torch.arange(number, device=query.device) for number in (len(query), len(every)))
    positive = row[:, None] == column[None, :]
    part = object.__new__(Embeddings)
    plain = {each: None for each in ("candidate_variance", "names", "pictures", "candidate_negatives")}
    part.__dict__.update(plain, query=query, candidate=every, query_group=row, candidate_group=column)
    part.__dict__["negatives"] = _places(len(query), len(candidate), negatives)
    part.__dict__.update(directions=("q2c",), shared=False, notes=(), mapped=(), marks={}, _kept={})
    return Pairs(
        METRICS[metric](query, every),
        positive,
        ~positive,
        candidate_group=column,
        query_norm=length(query),
        candidate_norm=length(every),
        embeddings=part,
    )


@dataclass(frozen=True, eq=False)
class Sides:
    """A loss of one batch of embeddings: (query, candidate, negatives) -> ().

    Args:
        name: its spelling.
        call: receives the queries (Q, D), the candidates (C, D) with C >= Q, of which candidate i belongs to query i,
            and the hard negatives (C, K, D) or None, of which the first Q rows belong to the queries.
        columns: whether it takes hard negatives.
    """

    name: str
    call: Callable[[Tensor, Tensor, Tensor | None], Any]
    columns: bool

    def __call__(self, query: Tensor, candidate: Tensor, negatives: Tensor | None = None) -> Tensor:
        """Mean over the queries, ().

        Raises:
            InputError: it returns anything but numbers, or takes no hard negatives and some are given.
        """
        if negatives is not None and not self.columns:
            raise InputError(
                f"{self.name}: it takes no hard negatives; give its function a parameter {NEGATIVES[0]!r}, (Q, K, D)"
            )
        return _value(self.name, self.call(query, candidate, negatives))

    def block(self, rows: slice, query: Tensor, candidate: Tensor, negatives: Tensor | None) -> Tensor:
        """Mean over some queries, (), against all candidates, their own candidates being put first.

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
    def call(query: Tensor, candidate: Tensor, negatives: Tensor | None) -> Tensor:
        value: Tensor = loss(_pairs(loss.metric, query, candidate, negatives))
        return value

    return Sides(name, call, columns=True)


def _of_library(loss: Embedded, name: str) -> Sides:
    """The code of others as it runs in a training: its own number, before anything is looked at in it."""

    def call(query: Tensor, candidate: Tensor, negatives: Tensor | None) -> Any:
        part = cast(Embeddings, _pairs("dot", query, candidate, negatives).embeddings)
        return loss.calls[0](part, query, part.candidate, lambda matrix: matrix)

    return Sides(name, call, columns=True)


def _of_function(target: Any, name: str, given: dict[str, Any]) -> Sides:
    """A function or module of (query, candidate), and of hard negatives where it has a parameter for them."""
    fields = named(signature_of(target))
    keyword = next((each for each in NEGATIVES if each in fields), None)

    def call(query: Tensor, candidate: Tensor, negatives: Tensor | None) -> Any:
        beside = {} if keyword is None or negatives is None else {keyword: negatives}
        return target(query, candidate, **given, **beside)

    return Sides(name, call, columns=keyword is not None)


def _two_sided(target: Any) -> bool:
    """Whether it is called with queries and candidates: by the names of its first two parameters, or by their number.

    A function of embeddings and labels, or of scores and masks, is a loss of another kind.
    """
    if isinstance(target, type) or not callable(target):
        return False
    signature = signature_of(target)
    required = [n for n, p in named(signature).items() if p.default is p.empty and n not in NEGATIVES]
    roles = [ROLE_OF.get(each.lower()) for each in required[:2]]
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
        >>> loss = cocos.losses.sides("triplet", {"margin": 0.5})
        >>> loss(torch.eye(2), torch.eye(2).flip(0))  # both pairs are the wrong way round
        tensor(1.5000)
    """
    given = dict(given or {})
    if isinstance(loss, Sides):
        return loss
    if isinstance(loss, str):
        return _named(loss.strip(), given)
    if all(hasattr(loss, each) for each in losses.CONTRACT) and not isinstance(loss, type):
        name = losses.name_of(loss)
        return _of_library(loss, name) if isinstance(loss, Embedded) else _of_shelf(loss, name)
    if _two_sided(loss):
        return _of_function(loss, getattr(loss, "__name__", type(loss).__name__), given)
    return sides(losses.of(loss))


def _named(spelling: str, given: dict[str, Any]) -> Sides:
    """The function of embeddings of a name: code of the user's that has two sides is called as it is.

    Raises:
        InputError: there is no such loss, or a parameter is unknown.
    """
    if losses.reader_of(spelling) != "own":
        return sides(losses.load(spelling, given))
    target, left = own.located(spelling), given
    if isinstance(target, type):
        fields = named(signature_of(target))
        chosen = {name: literal(value) for name, value in given.items() if name in fields}
        left = {name: value for name, value in given.items() if name not in fields}
        with guarded(spelling):
            target = target(**chosen)
    if not _two_sided(target):
        return sides(losses.load(spelling, given))
    signature = signature_of(target)
    for name in left:
        if name not in named(signature) and not takes_any(signature):
            raise InputError(nearest(f"parameter of {spelling}", name, set(named(signature)) - {*ROLE_OF, *NEGATIVES}))
    return _of_function(target, spelling, {name: literal(value) for name, value in left.items()})
