"""Prepare a measure of single queries: check and encode, draw the queries, and view the scores of a direction."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Unpack

import torch
from torch import Tensor

from cocos import engine, results
from cocos.base.errors import InputError, rows
from cocos.checkpoints import Checkpoint
from cocos.counting import findings, health
from cocos.embeddings import Embeddings, similarities
from cocos.embeddings.options import Queries
from cocos.embeddings.sampling import Batch, check_options
from cocos.engine import readers
from cocos.measures.shared import retrieval
from cocos.measures.shared.prepared import embedded, loss_for

QUERY_PERCENTILES = (5, 50, 95)  # the band of Veit & Wilber 2020, arXiv:2011.08824, and its median
NO_POSITIVE = "no query has any positive: there is nothing to retrieve"


@dataclass(frozen=True, eq=False)
class Asked:
    """Queries, rows of `index`, of every direction in `sides`, against all candidates."""

    sides: dict[str, Embeddings]
    index: dict[str, Tensor]
    metric: str
    attrs: dict

    def view(self, name: str) -> engine.View:
        """Return the scores of the queries of a direction, in float64."""
        side = self.sides[name]
        everything = torch.arange(len(side.candidate), device=side.candidate.device)
        batch = Batch(self.index[name], everything, paired=False)
        return engine.view(side, batch, metric=self.metric, product="float64")

    def whole(self, *, matched: bool = False) -> engine.View:
        """Return the scores of all pairs, of the first direction; `matched` leaves out queries without a positive.

        Raises:
            InputError: no query has a positive.
        """
        side = next(iter(self.sides.values()))
        rows, columns = (torch.arange(len(values), device=values.device) for values in (side.query, side.candidate))
        if matched and not len(rows := with_positives(side, rows)):
            raise InputError(NO_POSITIVE)
        return engine.view(side, Batch(rows, columns, paired=False), metric=self.metric)


def with_positives(embeddings: Embeddings, rows: Tensor) -> Tensor:
    """Keep the rows of queries with a positive in the set.

    Examples:
        >>> labelled = cocos.Embeddings.labelled(torch.eye(3), [5, 7, 5])
        >>> cocos.measures.shared.queries.with_positives(labelled, torch.arange(3))
        tensor([0, 2])
    """
    groups = embeddings.groups
    number = groups.queries - 1 if embeddings.shared else groups.candidates
    return rows[(number[groups.query] > 0).to(rows.device)[rows]]


def asked(
    embeddings: Embeddings | Checkpoint,
    loss,
    *,
    one: bool = False,
    direction: str | None = None,
    **asking: Unpack[Queries],
) -> Asked:
    """Check everything, encode, and draw the queries of every direction.

    Args:
        embeddings: embeddings, or a checkpoint.
        loss: a loss, or its name: its metric is taken; None: cosines.
        one: read only one direction.
        direction: this direction; None: the first one.
        **asking: see `Queries`; `queries` may be their rows.
    """
    queries, seed, split = asking["queries"], asking["seed"], asking["split"]
    count = isinstance(queries, Integral)
    if isinstance(queries, bool) or (count and queries < 1):
        other = "the rows of the queries" if one else "all (None in Python)"
        raise InputError(f"queries: {queries}, expected an integer of at least 1, or {other}")
    check_options(seed=seed)
    checkpoint = embeddings if isinstance(embeddings, Checkpoint) else None
    metric = "cosine" if loss is None else loss_for(loss, embeddings).metric
    attrs = results.versions() | {"metric": metric, "seed": seed}
    if checkpoint:
        attrs |= checkpoint.identity() | ({"split": split} if checkpoint.splits else {})
    embeddings = embedded(embeddings, split, asking["device"], asking["progress"])
    similarities.check(embeddings, metric, checkpoint and checkpoint.path)
    if notes := (*health.collapse(embeddings, metric), *embeddings.notes):
        attrs |= findings.attributes(notes)
    sides = {}
    for k, name in enumerate(embeddings.directions):
        sides[name] = (embeddings.flip() if k else embeddings).single(name)
    if one:
        direction = results.direction(direction, embeddings.directions)
        sides = {direction: sides[direction]}
    index = {}
    for name, side in sides.items():
        number = len(side.query)
        if queries is not None and not count:
            index[name] = _checked_queries(queries, number, name)
        elif queries is None or queries >= number:
            index[name] = torch.arange(number)
        else:  # on the CPU, so that a seed means the same everywhere
            order = torch.randperm(number, generator=torch.Generator().manual_seed(seed))
            index[name] = order[:queries].sort().values
    device = embeddings.query.device
    attrs["device"] = device.type
    return Asked(sides, {name: rows.to(device) for name, rows in index.items()}, metric, attrs)


def _checked_queries(queries: Sequence[int], number: int, name: str) -> Tensor:
    """Check the rows of queries, and return them, (n,)."""
    index = list(queries)
    if not index or not all(isinstance(row, Integral) and not isinstance(row, bool) for row in index):
        raise InputError(f"queries: {index}, expected an integer, or rows of queries")
    if wrong := [row for row in index if not 0 <= row < number]:
        raise InputError(f"queries: {rows(wrong)}, expected rows from 0 to {number - 1} of {name}")
    if len(set(index)) < len(index):
        raise InputError(f"queries: {index}, expected each row once")
    return torch.tensor(index)


def steps(curve: readers.PrecisionRecallCurve) -> tuple[Tensor, Tensor, Tensor]:
    """Return the steps of recall: score, positive and negative pairs at or above it, (S,), by falling score."""
    positives = torch.searchsorted(-curve.score, retrieval.TIED_SCORES - curve.score, right=True)
    last = torch.cat([positives[1:] != positives[:-1], positives.new_ones(min(1, len(positives)), dtype=torch.bool)])
    return curve.score[last], positives[last], curve.negatives[last]
