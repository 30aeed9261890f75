"""Ways of computing a loss of a batch: `@cached=32`, `@chunks=32`, `@ranks=2`, `@accumulate=4`, `@dtype=bfloat16`."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError, nearest
from cocos.losses.external.cached import Cached
from cocos.losses.external.sides import Sides

Batch = tuple[Tensor, Tensor, Tensor | None]  # queries (N, D), candidates (N, D), hard negatives (N, K, D) or None
WAY_DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}
# Ways of which a spelling has one at most, with the meaning of their number.
WAYS = {
    "cached": "gradient caching in chunks of so many rows",
    "chunks": "chunks of so many queries, each against all candidates",
    "ranks": "so many processes, whose gradients are averaged",
    "accumulate": "so many mini-batches, whose gradients are averaged",
}
# What processes gather, with or without its gradient, and of which queries each computes the loss.
GATHERS, SCOPES, REDUCTIONS = ("grad", "detached", "none"), ("local", "global"), ("mean", "sum")
EXAMPLE = "ntxent, ntxent@temperature=0.05, ntxent@cached=32 or ntxent@ranks=2,gather=detached"


@dataclass(frozen=True, eq=False)
class Way:
    """A loss, and how it is computed.

    Args:
        spelling: as it was written.
        loss: of one batch.
        way: one of `WAYS`, or None: the whole batch at once.
        number: of the way.
        gather: of `ranks`: `grad`, `detached` or `none`.
        scope: of `ranks`: `local` queries, or `global`.
        reduction: `mean` over the queries, or `sum`.
        dtype: of the computation; None: that of the embeddings.
        parameters: that were given to the loss.
        scaling: parameters of the loss with their values, where they are known.
        scale: factor of the scores in the softmax of the loss, where it is known.
    """

    spelling: str
    loss: Sides
    way: str | None = None
    number: int = 1
    gather: str = "grad"
    scope: str = "local"
    reduction: str = "mean"
    dtype: torch.dtype | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    scaling: dict[str, Any] = field(default_factory=dict)
    scale: float | None = None

    def __call__(self, query: Tensor, candidate: Tensor, negatives: Tensor | None) -> Tensor:
        """The loss whose gradient a step of the training has, ()."""
        batch = query, candidate, negatives
        if self.dtype is not None:
            batch = tuple(None if each is None else each.to(self.dtype) for each in batch)  # type: ignore[assignment]
        value = COMPUTATIONS[self.way](self, batch)
        return value * len(query) if self.reduction == "sum" else value

    @property
    def whole(self) -> bool:
        """Whether the loss sees the whole batch."""
        return self.way in {None, "cached"}

    def fits(self, number: int) -> None:
        """Refuse a batch that does not divide into the mini-batches or processes."""
        if self.loss.reads and not self.whole:
            raise InputError(
                f"{self.spelling}: {self.way} cuts the batch, and its loss reads {' and '.join(self.loss.reads)} of "
                "the whole batch; compare it whole, or cached"
            )
        if self.way in {"ranks", "accumulate"} and (number % self.number or number < 2 * self.number):
            raise InputError(
                f"{self.spelling}: {number} rows do not make {self.number} equal parts of at least 2; take a batch "
                f"size that is a multiple of {self.number}"
            )


def _some(batch: Batch, rows: slice) -> Batch:
    query, candidate, negatives = batch
    return query[rows], candidate[rows], None if negatives is None else negatives[rows]


def _parts(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def _whole(way: Way, batch: Batch) -> Tensor:
    return way.loss(*batch)


def _cached(way: Way, batch: Batch) -> Tensor:
    """Gradient caching with towers that leave their rows as they are."""

    def tower(rows: Tensor) -> Tensor:
        return rows.clone()

    query, candidate, negatives = batch
    hard = None if negatives is None else (tower, negatives.flatten(0, 1))
    return Cached(way.loss, way.number)((tower, query), (tower, candidate), hard)


def _chunked(way: Way, batch: Batch) -> Tensor:
    query, candidate, negatives = batch
    parts = _parts(len(query), way.number)
    means = [way.loss.block(rows, query[rows], candidate, negatives) * len(query[rows]) for rows in parts]
    return torch.stack(means).sum() / len(query)


def _accumulated(way: Way, batch: Batch) -> Tensor:
    parts = _parts(len(batch[0]), len(batch[0]) // way.number)
    return torch.stack([way.loss(*_some(batch, rows)) for rows in parts]).mean()


def _ranked(way: Way, batch: Batch) -> Tensor:
    """Mean over the processes of the loss of each, as DistributedDataParallel averages their gradients.

    A process holds its own rows. What it gathers with gradients passes them back to the process whose rows they are,
    where they are summed, as `torch.distributed.nn.all_gather` does; gathered rows that are detached pass back nothing,
    but its own rows, which it puts in their place, do.
    """
    values = []
    for rows in _parts(len(batch[0]), len(batch[0]) // way.number):

        def gathered(side: Tensor | None, rows: slice = rows) -> Tensor | None:
            if side is None or way.gather == "grad":
                return side
            return torch.cat([side[: rows.start].detach(), side[rows], side[rows.stop :].detach()])

        own = _some(batch, rows)
        if way.gather == "none":
            values.append(way.loss(*own))
            continue
        query, candidate, negatives = (gathered(side) for side in batch)
        if way.scope == "global":
            values.append(way.loss(query, candidate, negatives))
        else:
            values.append(way.loss.block(rows, own[0], candidate, negatives))
    return torch.stack(values).mean()


COMPUTATIONS: dict[str | None, Callable[[Way, Batch], Tensor]] = {
    None: _whole,
    "cached": _cached,
    "chunks": _chunked,
    "ranks": _ranked,
    "accumulate": _accumulated,
}


def _choice(spelling: str, name: str, value: str, known: tuple[str, ...]) -> str:
    """One of the values of an option of a way."""
    if value not in known:
        raise InputError(f"{spelling}: {name}={value}, expected one of {', '.join(known)}")
    return value


def _number(spelling: str, name: str, value: str) -> int:
    """The number of a way."""
    if not value.isdecimal() or not 1 <= int(value) <= 10**9:
        raise InputError(f"{spelling}: {name}={value}, expected a whole number of at least 1: {WAYS[name]}")
    return int(value)


def _options(spelling: str, text: str) -> dict[str, str]:
    """The options after `@`, by name."""
    found: dict[str, str] = {}
    for item in text.replace("@", ",").split(","):
        name, sign, value = (part.strip() for part in item.partition("="))
        if not (name and sign and value):
            raise InputError(f"{spelling}: {item.strip()!r} after @, expected NAME=VALUE, like {EXAMPLE}")
        if name in found:
            raise InputError(f"{spelling}: {name} is given twice")
        found[name] = value
    return found


def way(given: Any, parameters: dict[str, Any] | None = None) -> Way:
    """Read a loss and its way of computing.

    Args:
        given: `LOSS` or `LOSS@NAME=VALUE,...`, where a name is a way, one of its options, `dtype`, `reduction`, or a
            parameter of the loss; or a loss or function itself.
        parameters: of the loss, for those of them that it has.
    """
    if not isinstance(given, str):
        loss = losses.sides(given)
        return Way(loss.name, loss)
    name, _, text = given.strip().partition("@")
    chosen = _options(given, text) if text or "@" in given else {}
    ways = [each for each in WAYS if each in chosen]
    if len(ways) > 1:
        raise InputError(f"{given}: {' and '.join(ways)} are given; one way of computing at a time")
    own = {each: value for each, value in chosen.items() if each not in {*WAYS, *WAY_OPTIONS}}
    taken = _taken(given, name, own, parameters or {})
    made = Way(given, losses.sides(name, taken), parameters=taken)
    if losses.reader_of(name.strip()) is None:
        loss = losses.load(name, taken)
        made = replace(made, scaling=losses.parameters(loss), scale=losses.traits(loss).softmax_scale)
    for each, value in chosen.items():
        if each in WAYS:
            made = replace(made, way=each, number=_number(given, each, value))
        elif each in WAY_OPTIONS:
            place, values = WAY_OPTIONS[each]
            made = replace(made, **{place: _choice(given, each, value, values)})
    if isinstance(made.dtype, str):
        made = replace(made, dtype=WAY_DTYPES[made.dtype])
    if {"gather", "loss"} & chosen.keys() and made.way != "ranks":
        raise InputError(f"{given}: gather and loss belong to ranks, like {name}@ranks=2,gather=detached")
    if made.gather == "none" and "loss" in chosen:
        raise InputError(f"{given}: with gather=none each process has its own rows alone, so loss= has no meaning")
    return made


# Options of a spelling: the field of `Way`, and its values.
WAY_OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "gather": ("gather", GATHERS),
    "loss": ("scope", SCOPES),
    "reduction": ("reduction", REDUCTIONS),
    "dtype": ("dtype", tuple(WAY_DTYPES)),
}


def _taken(spelling: str, name: str, own: dict[str, str], shared: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a spelling, and the shared ones that its loss has."""
    if not name.strip():
        raise InputError(f"{spelling!r}: no loss before @; write it like {EXAMPLE}")
    known = losses.known(name)
    if known is not None:
        for each in own:
            if each not in known:
                raise InputError(nearest(f"way or parameter of {name}", each, {*known, *WAYS, *WAY_OPTIONS}))
        shared = {each: value for each, value in shared.items() if each in known}
    return {**shared, **own}
