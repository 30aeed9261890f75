"""One call of a loss: its directions with scores and weights, and the rows of its inputs that repeat."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from cocos import losses
from cocos.base.errors import InputError
from cocos.counting import shares, weights
from cocos.embeddings import Embeddings, scores
from cocos.embeddings.sampling import Batch, with_queues
from cocos.embeddings.scores import Pairs
from cocos.embeddings.similarities import SYMMETRIC

# Names of the inputs of networks, as Transformers and sentence-transformers have them, by their ends.
NAMES = ("input_ids", "pixel_values", "input_values", "input_features")
# Parts of the names of tensors beside them, in which rows repeat without a fault.
NOT_INPUTS = ("mask", "type", "position", "label", "target", "offset", "index", "length")
# Number of inputs that are compared: queries and candidates.
SIDES = 2
# Number of values of a row from which on some of them, evenly apart, are looked at first.
MANY_VALUES = 4096
# Difference of the projections of equal rows at most, in parts of their largest number times their number of values.
LINE_ROUNDING = 1e-7
# What is known of a mask of positives, as long as there is one.
_FIRST_POSITIVES = WeakIdKeyDictionary()


@dataclass(frozen=True, eq=False)
class Seen:
    """One direction of one call of a loss: its scores, and the weights that the backward pass gave them."""

    direction: str  # `q2c` or `c2q`, or `s2s` and `s2p` of a labelled set
    scores: Tensor  # (Q, C) as the loss computed them, detached
    weights: Tensor  # (Q, C) ∂ returned loss / ∂ scores
    positive: Tensor  # (Q, C) bool
    negative: Tensor  # (Q, C) bool
    unit: Tensor | None = (
        None  # natural size of one weight, broadcastable to (Q, C); None: unknown, there are no shares
    )
    share: str | None = None  # kind of a share, as `cocos.counting.shares.share` names it
    query: Tensor | None = None  # (Q, D) rows that were scored, detached; None: unknown
    candidate: Tensor | None = None  # (C, D) likewise
    scale: float | None = None  # factor from a cosine to what the loss reads; None: it is not one number
    stretch: float | None = None  # factor from a cosine to a score, where `scale` is known
    sources: Tensor | None = None  # (Q, C) int8, place of each candidate in `SOURCES`; None: all are of the batch
    kind: str | None = None  # `softmax`, `sigmoid` or `hinge`, from the functions that the loss called
    local: Tensor | None = None  # (C,) bool, candidates of this process; None: nothing was gathered
    value: Tensor | None = None  # the loss that was returned, ()
    width: int | None = None  # D of the product
    factor: Tensor | None = None  # gradient that arrived at the loss, (); None: 1
    origin: str = "backward pass"  # or `closed form`
    own_candidates: bool = False  # each query meets candidates of its own alone, so that others may repeat
    # the side without a gradient while the other one has one: `queries`, `candidates`, or neither
    no_gradient: str = ""
    notes: tuple[str, ...] = ()  # remarks for the user, one sentence each
    plain: bool = False  # the weights are those of a softmax with one positive of each query
    extra: Callable[[float], dict[str, Tensor]] | None = None  # eps -> statistics of the loss's own; None: it has none


@dataclass(frozen=True, eq=False)
class FirstPositives:
    """The first positives of the queries of a mask."""

    places: Tensor  # (Q,) their columns
    known: Tensor  # (Q,) bool, whether a query has any
    ordered: bool  # every candidate is that of its own row; found out on a CPU alone


def first_positives(positive: Tensor) -> FirstPositives:
    """Find the first positives of a mask, (Q, C); those of the mask of the last call are known."""
    if (found := _FIRST_POSITIVES.get(positive)) is None:
        known, places = positive.view(torch.uint8).max(dim=1)
        square = len(positive) == positive.shape[1] and positive.device.type == "cpu"
        ordered = square and torch.equal(places, torch.arange(len(places)))
        _FIRST_POSITIVES[positive] = found = FirstPositives(places, known > 0, ordered)
    first: FirstPositives = found
    return first


def _tensor(name: str, value: Any) -> Tensor:
    """Check the rows of one side; return them without their graph, in float32 at least."""
    try:
        rows = torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: {type(value).__name__}, expected a tensor of shape (rows, width)") from None
    if rows.ndim != 2 or 0 in rows.shape or not rows.is_floating_point():
        shape = tuple(rows.shape)
        raise InputError(f"{name}: {rows.dtype} of shape {shape}, expected floating point (rows, width)")
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


def embeddings_of(
    query: Any, candidate: Any, groups: Any, negatives: Any = None, queue: Any = None
) -> Embeddings | None:
    """Make embeddings of a batch; None where a number is not finite.

    Args:
        query: (Q, D).
        candidate: (C, D); the same object as `query`, or None: a labelled set.
        groups: (Q,) ids for both sides, or a tuple of the ids of the queries and of the candidates; None: row i
            matches row i.
        negatives: own hard negatives, (Q, K, D); None: there are none.
        queue: rows of earlier steps (K, D), or (rows, group (K,)); None: there are none.
    """
    shared = candidate is None or candidate is query
    rows = _tensor("query", query)
    others = rows if shared else _tensor("candidate", candidate)
    if rows.shape[1] != others.shape[1]:
        raise InputError(
            f"query has width {rows.shape[1]} and candidate has width {others.shape[1]}, expected the same"
        )
    if rows.device != others.device:
        raise InputError(f"query is on {rows.device} and candidate on {others.device}, expected the same device")
    if groups is None and shared:
        raise InputError("groups: None for a labelled batch; give the class of each row")
    if groups is None and len(rows) != len(others):
        raise InputError(
            f"query has {len(rows)} rows and candidate {len(others)}: row i matches row i without groups; "
            "give groups=(ids of the queries, ids of the candidates)"
        )
    sides = groups if isinstance(groups, tuple) else (groups, groups)
    if len(sides) != 2:
        raise InputError(f"groups: a tuple of {len(sides)}, expected ids of both sides, or (of queries, of candidates)")
    if not (rows.isfinite().all() and (shared or others.isfinite().all())):
        return None
    hard = None if negatives is None else torch.as_tensor(negatives).detach().to(rows)
    if hard is not None and not hard.isfinite().all():
        return None
    if shared and hard is None:
        return Embeddings.labelled(rows, sides[0], queue=queue)
    return Embeddings(rows, others, *sides, negatives=hard, queue=queue)


@dataclass(frozen=True, eq=False)
class Named:
    """A loss of the shelf, and the rule by which a batch is read."""

    loss: losses.Loss

    def seen(self, embeddings: Embeddings) -> list[Seen]:
        """Read both directions of a batch, or the one of a labelled set."""
        drawn = embeddings.without_queue()
        index = [torch.arange(len(side), device=side.device) for side in (drawn.query, drawn.candidate)]
        groups = drawn.query_group, drawn.candidate_group
        extra = 0
        if embeddings.negatives is not None:  # vectors stand behind the candidates, in groups of their own
            extra = int((~torch.isin(groups[1], groups[0])).sum())
        by_rows = self.loss.matching != "labels" and self.loss.sample == "pairs" and not embeddings.shared
        paired = by_rows and not embeddings.proxies and torch.equal(groups[0], groups[1][: len(groups[1]) - extra])
        batch = Batch(index[0], index[1], paired=paired, extra=extra)
        batch = with_queues(batch, embeddings) if embeddings.is_queued else batch
        same_group = "negative" if self.loss.matching == "rows" else "ignore"

        def of(side: Embeddings, rows: Batch) -> Pairs:
            options: dict[str, Any] = {"same_group": same_group, "directions": self.loss.directions}
            return scores.pairs(side, rows, metric=self.loss.metric, **options)

        first, names = of(embeddings, batch), embeddings.directions
        if embeddings.queue is not None:
            if len(names) == 1:
                return [self.of_pairs(names[0], first)]
            return [self.of_pairs(names[0], first), self.of_pairs(names[1], of(embeddings.flip(), batch.flip()))]
        if len(names) == 1:
            return [self.of_pairs(names[0], first)]
        square = self.loss.metric in SYMMETRIC and batch.square and len(self.loss.directions) == 1
        second = first.flip() if square else of(embeddings.flip(), batch.flip())
        return [self.of_pairs(name, pairs) for name, pairs in zip(names, (first, second), strict=True)]

    def of_pairs(self, direction: str, pairs: Pairs) -> Seen:
        """Read one direction of a batch from its pairs."""
        loss = weights.bound(self.loss, pairs)
        weight, part = loss.weight(pairs), pairs.embeddings
        kind = "softmax" if loss.softmax_scale is not None else "hinge" if loss.hinge else None
        scale = loss.logistic[0] if loss.logistic else loss.softmax_scale
        kind = "sigmoid" if loss.logistic else kind
        known = loss.unit_from != "unknown"
        sourced = pairs.source is not None and bool((pairs.source > 0).any())
        return Seen(
            direction,
            pairs.scores,
            weight,
            pairs.positive,
            pairs.negative,
            unit=loss.unit(pairs) if known else None,
            share=shares.share(loss) if known else None,
            query=part.query if part else None,
            candidate=part.candidate if part else None,
            scale=scale if loss.metric == "cosine" else None,
            stretch=1.0 if loss.metric == "cosine" else None,
            sources=pairs.source if sourced else None,
            kind=kind,
            value=loss(pairs).detach().mean(),
            width=part.query.shape[1] if part else None,
            origin="closed form",
            extra=partial(loss.extra, pairs) if loss.adds_statistics else None,
        )


@dataclass(eq=False)
class Call:
    """One call of a module that is read, from its forward pass to the end of its backward pass."""

    token: Any  # with which it is delivered
    number: int
    arguments: list[Tensor]  # dropped after the forward pass
    groups: Any = None  # of the rows, as the user gave them
    labels: list[Tensor] = field(default_factory=list)  # whole numbers among the arguments
    given: list[Tensor] = field(default_factory=list)  # (n, D) matrices among the arguments
    local: list[Tensor] | None = None  # other matrices that this process computed; None: there is one process
    repeated: Tensor | None = None
    rank: int = 0
    roots: list[Any] = field(default_factory=list)  # tensors whose backward pass is read
    value: Tensor | None = None  # () the loss
    seconds: float = 0.0
    queued: bool = False


def repeated(batch: Any, *, named: bool = False) -> Tensor | None:
    """Count the rows of inputs that equal an earlier one, on the side with most, (); None: there are no inputs.

    Args:
        batch: what a network or a loss is called with: tensors in lists, tuples and mappings, in any depth.
        named: whether only tensors under the names of inputs count; else, where none has such a name, all of two
            dimensions or more do.
    """
    found = [each for name, each in leaves(batch) if name.endswith(NAMES)]
    if not found and not named:
        found = [each for name, each in leaves(batch) if not any(part in name.lower() for part in NOT_INPUTS)]
    sides = [each.detach() for each in found if each.ndim > 1 and len(each) > 1][:SIDES]
    return torch.stack([equal_rows(each) for each in sides]).amax() if sides else None


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of nested lists, tuples and mappings, with the name under which it stands."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(each, str(key))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each, name)


def equal_rows(rows: Tensor) -> Tensor:
    """Number of rows that equal another one exactly and come after it, ().

    Equal rows stand beside each other in the order of their projections on one line; on a CPU only those are compared
    whose projections are equal but for rounding.

    Args:
        rows: (n, ...) of any dtype.
    """
    rows = rows.reshape(len(rows), -1)
    some = rows[:, :: max(1, rows.shape[1] // MANY_VALUES)].float()
    line = torch.linspace(1, 2, some.shape[1], device=rows.device, dtype=torch.float32).cos()
    places = some @ line
    order = places.argsort()
    if rows.device.type == "cpu":
        ordered = places[order]
        apart = (ordered[1:] - ordered[:-1]) > LINE_ROUNDING * float(some.abs().amax()) * some.shape[1]
        near = (~apart).nonzero()[:, 0]
        return (rows[order[near]] == rows[order[near + 1]]).all(dim=1).sum()
    rows = rows[order]
    return (rows[1:] == rows[:-1]).all(dim=1).sum()
