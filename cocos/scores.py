"""Scores of queries and candidates, and which pairs are positive. Higher is closer, always."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.batches import Batch
from cocos.embeddings import Embeddings
from cocos.errors import InputError, nearest, rows

__all__ = [
    "METRICS",
    "SAME_GROUP",
    "Pairs",
    "check",
    "cosine",
    "dot",
    "euclidean",
    "pairs",
    "squared_euclidean",
]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Everything a loss may look at: scores, and which of them belong to positives and to negatives.

    Args:
        scores: (Q, C) floating point; higher is closer.
        positive: (Q, C) bool.
        negative: (Q, C) bool, disjoint from `positive`; None means "not positive". A pair in neither mask
            (the query itself, padding) takes no part.
        candidate_group: (C,) class of each candidate, for losses with several proxies a class.
        query_norm: (Q,) norms of the raw queries, for losses that read them.
        candidate_norm: (C,) norms of the raw candidates.

    Raises:
        InputError: wrong shape or dtype, masks that overlap, scores that are NaN or infinite.
    """

    scores: Tensor
    positive: Tensor
    negative: Tensor | None = None
    candidate_group: Tensor | None = None
    query_norm: Tensor | None = None
    candidate_norm: Tensor | None = None

    def __post_init__(self):
        for name in ("scores", "positive"):
            if not isinstance(getattr(self, name), Tensor):
                raise InputError(f"{name}: {type(getattr(self, name)).__name__}, expected a torch.Tensor")
        shape = tuple(self.scores.shape)
        if len(shape) != 2 or 0 in shape or not self.scores.is_floating_point():
            raise InputError(
                f"scores: {self.scores.dtype} of shape {shape}, expected floating point (queries, candidates)"
            )
        bad = (~self.scores.isfinite()).any(dim=1).nonzero().flatten().tolist()
        if bad:
            raise InputError(f"scores: NaN or infinity in {rows(bad)}; leave a pair out with the masks instead")
        for name in ("positive", "negative"):
            mask = getattr(self, name)
            if mask is None and name == "negative":
                mask = ~self.positive
                object.__setattr__(self, name, mask)
            if not isinstance(mask, Tensor):
                raise InputError(f"{name}: {type(mask).__name__}, expected a torch.Tensor")
            if mask.dtype != torch.bool or tuple(mask.shape) != shape:
                raise InputError(f"{name}: {mask.dtype} of shape {tuple(mask.shape)}, expected bool of shape {shape}")
        both = (self.positive & self.negative).nonzero()
        if len(both):
            raise InputError(f"pair {tuple(both[0].tolist())} is both positive and negative ({len(both)} such pairs)")
        for name, length in (
            ("candidate_group", shape[1]),
            ("query_norm", shape[0]),
            ("candidate_norm", shape[1]),
        ):
            values = getattr(self, name)
            if values is not None and tuple(values.shape) != (length,):
                raise InputError(f"{name}: shape {tuple(values.shape)}, expected ({length},)")

    def slots(self) -> tuple[Tensor, Tensor]:
        """Places of the positives of each query, (Q, K) with K >= 1 the largest number, and which are filled."""
        most = max(1, int(self.positive.sum(dim=1).max()))
        place = self.positive.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
        return place, self.positive.gather(1, place)

    def with_scores(self, scores: Tensor) -> "Pairs":
        """The same pairs with other scores of the same shape; not checked, so that it works under torch.func."""
        other = object.__new__(Pairs)
        for name in ("positive", "negative", "candidate_group", "query_norm", "candidate_norm"):
            object.__setattr__(other, name, getattr(self, name))
        object.__setattr__(other, "scores", scores)
        return other


def dot(query: Tensor, candidate: Tensor) -> Tensor:
    """Inner products, (Q, C)."""
    return query @ candidate.T


def _unit(rows: Tensor) -> Tensor:
    rows = rows / rows.abs().amax(dim=1, keepdim=True)  # squares of very small or large entries leave the range
    return rows / rows.norm(dim=1, keepdim=True)


def cosine(query: Tensor, candidate: Tensor) -> Tensor:
    """Cosine similarities, (Q, C). Not defined for zero vectors: see `check`."""
    return _unit(query) @ _unit(candidate).T


def euclidean(query: Tensor, candidate: Tensor) -> Tensor:
    """Minus the Euclidean distances, (Q, C), from differences: exact for near duplicates."""
    return -torch.cdist(query, candidate, compute_mode="donot_use_mm_for_euclid_dist")


def squared_euclidean(query: Tensor, candidate: Tensor) -> Tensor:
    """Minus the squared Euclidean distances, (Q, C)."""
    return -euclidean(query, candidate).square()


METRICS = {"cosine": cosine, "dot": dot, "euclidean": euclidean, "squared_euclidean": squared_euclidean}
SAME_GROUP = ("ignore", "negative")


def check(embeddings: Embeddings, metric: str) -> None:
    """Refuse embeddings that the metric is not defined for.

    Raises:
        InputError: an unknown metric, or zero vectors under cosine (the rows are named).
    """
    if metric not in METRICS:
        raise InputError(nearest("metric", metric, METRICS))
    if metric != "cosine":
        return
    for side in ("query", "candidate"):
        zero = (getattr(embeddings, side) == 0).all(dim=1).nonzero().flatten().tolist()
        if zero:
            raise InputError(f"{side}: zero vector in {rows(zero)}; its cosine similarity is not defined, remove it")


def pairs(
    embeddings: Embeddings,
    batch: Batch | None = None,
    *,
    metric: str = "cosine",
    same_group: str = "ignore",
    block: slice | None = None,
) -> Pairs:
    """Score the queries of a batch against its candidates.

    Args:
        embeddings: the whole set. Scores have its dtype and device.
        batch: the rows seen together; None is the whole set.
        metric: `cosine`, `dot`, `euclidean` or `squared_euclidean`.
        same_group: in a batch of pairs, a candidate of the query's group that is not its own pair (two captions
            of one image): `ignore` leaves it out of the gradient, `negative` keeps it as a negative.
        block: only these queries of the batch.

    Raises:
        InputError: an unknown metric or rule.
    """
    if metric not in METRICS:
        raise InputError(nearest("metric", metric, METRICS))
    if same_group not in SAME_GROUP:
        raise InputError(f"same group: {same_group!r}, expected one of {', '.join(SAME_GROUP)}")
    if batch is None:
        device = embeddings.query.device
        batch = Batch(
            torch.arange(len(embeddings.query), device=device),
            torch.arange(len(embeddings.candidate), device=device),
            paired=False,
        )
    query_index = batch.query_index[block or slice(None)]
    query, candidate = embeddings.query[query_index], embeddings.candidate[batch.candidate_index]
    candidate_group = embeddings.candidate_group[batch.candidate_index]
    same = embeddings.query_group[query_index][:, None] == candidate_group[None, :]
    positive, negative = same, ~same
    if batch.paired:
        place = torch.arange(len(batch.query_index), device=same.device)
        positive = place[block or slice(None)][:, None] == place[None, :]
        negative = ~positive if same_group == "negative" else ~(same | positive)
    elif embeddings.shared:
        positive = same & (query_index[:, None] != batch.candidate_index[None, :])
    return Pairs(
        METRICS[metric](query, candidate),
        positive,
        negative,
        candidate_group=candidate_group,
        query_norm=query.norm(dim=1),
        candidate_norm=candidate.norm(dim=1),
    )
