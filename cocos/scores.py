"""Scores of queries and candidates, and which pairs are positive. Higher is closer, always."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cocos.batches import Batch, matches
from cocos.embeddings import UNGIVEN, Embeddings
from cocos.errors import InputError, nearest, rows

__all__ = [
    "METRICS",
    "SAME_GROUP",
    "Pairs",
    "check",
    "cosine",
    "cosine_dot",
    "dot",
    "euclidean",
    "length",
    "logsumexp",
    "mahalanobis",
    "pairs",
    "softmax",
    "squared_euclidean",
]


def logsumexp(values: Tensor, mask: Tensor, dim: int | tuple[int, ...] = 1) -> Tensor:
    """Log of the summed exponentials of the values in the mask, dims kept; -inf where it is empty."""
    return values.masked_fill(~mask, -torch.inf).logsumexp(dim=dim, keepdim=True)


def softmax(values: Tensor, mask: Tensor, dim: int | tuple[int, ...] = 1) -> Tensor:
    """Softmax over the values in the mask, 0 outside of it, and 0 throughout where it is empty."""
    return torch.where(mask, (values - logsumexp(values, mask, dim)).exp(), 0)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Input of a loss: scores, and which of them belong to positives and to negatives.

    Args:
        scores: (Q, C) floating point; higher is closer.
        positive: (Q, C) bool.
        negative: (Q, C) bool, disjoint from `positive`; None means "not positive". A pair in neither mask
            (the query itself, padding) takes no part.
        candidate_group: (C,) class of each candidate, for losses with several proxies a class.
        query_norm: (Q,) norms of the raw queries, for losses that read them.
        candidate_norm: (C,) norms of the raw candidates.
        embeddings: the rows that were scored, for your own losses that read them, and for forces.

    Raises:
        InputError: wrong shape or dtype, masks that overlap, scores that are NaN or infinite.

    Examples:
        The pairs that are not positive are negative, unless a mask says otherwise:

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> pairs.negative
        tensor([[False,  True,  True]])
    """

    scores: Tensor
    positive: Tensor
    negative: Tensor = UNGIVEN
    candidate_group: Tensor | None = None
    query_norm: Tensor | None = None
    candidate_norm: Tensor | None = None
    embeddings: Embeddings | None = None

    def __post_init__(self) -> None:
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
                mask = self.__dict__["negative"] = ~self.positive
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

    def __repr__(self) -> str:
        dtype = str(self.scores.dtype).removeprefix("torch.")
        sizes = f"{int(self.positive.sum())} positive, {int(self.negative.sum())} negative"
        optional = ("candidate_group", "query_norm", "candidate_norm", "embeddings")
        beside = [name for name in optional if getattr(self, name) is not None]
        more = f", with {', '.join(beside)}" if beside else ""
        return f"Pairs(scores={tuple(self.scores.shape)}, {dtype} on {self.scores.device}, {sizes}{more})"

    def slots(self) -> tuple[Tensor, Tensor]:
        """Columns of the positives of each query, (Q, K) with K >= 1 their largest number, and which are filled."""
        most = max(1, int(self.positive.sum(dim=1).max()))
        place = self.positive.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
        return place, self.positive.gather(1, place)

    def positives(self) -> Tensor:
        """Number of positives of each query, at least 1, (Q, 1), in the dtype of the scores."""
        return self.positive.sum(dim=1, keepdim=True).clamp(min=1).to(self.scores.dtype)

    def classes(self) -> tuple[Tensor, int]:
        """Class of each pair, (Q, C), and the number of classes; the last class is each query's own.

        The positives of a query are its own class. Its other candidates have the classes of `candidate_group`; without
        groups each is a class of its own.
        """
        columns = torch.arange(self.scores.shape[1], device=self.positive.device)
        own = len(columns)
        if self.candidate_group is not None:
            groups, columns = self.candidate_group.unique(return_inverse=True)
            own = len(groups)
        return torch.where(self.positive, own, columns), own + 1

    def norms(self) -> tuple[Tensor, Tensor]:
        """Norms of the queries, (Q, 1), and of the candidates, (1, C); 1 where they are not given."""
        query, candidate = (self.scores.new_ones(number) for number in self.scores.shape)
        query = query if self.query_norm is None else self.query_norm
        candidate = candidate if self.candidate_norm is None else self.candidate_norm
        return query[:, None], candidate[None, :]

    def flip(self) -> "Pairs":
        """The same pairs with queries and candidates exchanged; not checked again.

        Raises:
            TypeError: the pairs have no embeddings, which contain the groups of the queries.
        """
        if self.embeddings is None:
            raise TypeError("pairs.embeddings is None: give the rows that were scored, as cocos.scores.pairs does")
        other, turned = object.__new__(Pairs), self.embeddings.flip()
        masks = {name: getattr(self, name).T.contiguous() for name in ("scores", "positive", "negative")}
        norms = {"query_norm": self.candidate_norm, "candidate_norm": self.query_norm}
        other.__dict__.update(self.__dict__ | masks | norms, embeddings=turned, candidate_group=turned.candidate_group)
        return other

    def first(self, number: int) -> "Pairs":
        """The same pairs of the first queries, with all of their candidates; not checked again."""
        if len(self.scores) <= number:
            return self
        other = object.__new__(Pairs)
        cut = {name: getattr(self, name)[:number] for name in ("scores", "positive", "negative")}
        cut["query_norm"] = None if self.query_norm is None else self.query_norm[:number]
        if self.embeddings is not None:
            query, candidate = (
                torch.arange(size, device=self.scores.device) for size in (number, self.scores.shape[1])
            )
            cut["embeddings"] = self.embeddings.rows(query, candidate)
        other.__dict__.update(self.__dict__ | cut)
        return other

    def with_scores(self, scores: Tensor, query_norm: Tensor | None = None) -> "Pairs":
        """The same pairs with other scores (and query norms), of the same shape; not checked, for torch.func."""
        other = object.__new__(Pairs)
        other.__dict__.update(self.__dict__, scores=scores)
        if query_norm is not None:
            other.__dict__["query_norm"] = query_norm
        return other

    def with_negative(self, negative: Tensor) -> "Pairs":
        """The same pairs of which other pairs are negative, (Q, C) bool; not checked, for torch.func."""
        other = object.__new__(Pairs)
        other.__dict__.update(self.__dict__, negative=negative)
        return other

    def cross_entropy(self, logits: Tensor, negative: Tensor | None = None) -> Tensor:
        r"""Cross-entropy of each positive against all negatives, summed over the positives of a query, (Q,), in nats.

        .. math:: \sum_{p \in P} -\log \frac{e^{z_p}}{e^{z_p} + \sum_{n \in N} e^{z_n}}

        With one positive this is the softmax cross-entropy. It is 0 for a query without a positive or a negative.

        Args:
            logits: (Q, C), z above.
            negative: (Q, C) bool, the negatives that take part; None: all.
        """
        total = logsumexp(logits, self.negative if negative is None else negative)
        each = torch.logaddexp(total - logits, torch.zeros_like(logits))
        return torch.where(self.positive, each, 0).sum(dim=1)

    def residual(self, logits: Tensor, negative: Tensor | None = None) -> Tensor:
        r"""Closed form of ∂ Σ cross-entropy / ∂ logits, (Q, C): softmax minus target where there is one positive.

        With :math:`m_p` the probability that positive p leaves to the negatives: positives :math:`-m_p`, negatives
        :math:`(\sum_p m_p) \, \mathrm{softmax}_N(z)`. Each row sums to zero.
        """
        negative = self.negative if negative is None else negative
        total = logsumexp(logits, negative)
        missing = torch.where(self.positive, (total - logits).sigmoid(), 0)
        return missing.sum(dim=1, keepdim=True) * torch.where(negative, (logits - total).exp(), 0) - missing

    def hinge(self, margin: float) -> Tensor:
        r"""Hinges of all triplets of a query, (Q,): :math:`\sum_{p \in P} \sum_{n \in N} [\alpha - s_p + s_n]_+`."""
        total = self.scores.new_zeros(self.scores.shape[0])
        for index, filled in zip(*(part.split(1, dim=1) for part in self.slots()), strict=True):
            each = (margin - self.scores.gather(1, index) + self.scores).relu()
            total = total + torch.where(self.negative & filled, each, 0).sum(dim=1)
        return total

    def violations(self, margin: float) -> Tensor:
        r"""Closed form of ∂ Σ hinge / ∂ score, (Q, C), whole numbers; a tie does not count.

        :math:`w_n = \#\{p : s_p - s_n < \alpha\}`, :math:`w_p = -\#\{n : s_p - s_n < \alpha\}`, counted with two
        sorts a query, so that no (positive, negative) pair is ever listed.
        """
        scores, inf = self.scores, torch.inf
        bar = (scores - margin).contiguous()  # a negative contributes above it, strictly
        bars = bar.masked_fill(~self.positive, inf).sort(dim=1).values
        negatives = scores.masked_fill(~self.negative, inf).sort(dim=1).values
        violated = torch.searchsorted(bars, scores.contiguous())
        below = torch.searchsorted(negatives, bar, right=True)
        violators = self.negative.sum(dim=1, keepdim=True) - below
        push = torch.where(self.negative, violated, 0)
        pull = torch.where(self.positive, violators, 0)
        return (push - pull).to(scores.dtype)


def dot(query: Tensor, candidate: Tensor) -> Tensor:
    """Inner products, (Q, C)."""
    return query @ candidate.T


def _scale(rows: Tensor) -> Tensor:
    """Largest power of two in each row, (N, 1); the squares of rows divided by it neither overflow nor underflow."""
    largest = rows.detach().abs().amax(dim=1, keepdim=True)
    return torch.ldexp(torch.ones_like(largest), largest.frexp().exponent - 1)


def length(rows: Tensor) -> Tensor:
    """Euclidean lengths of the rows, (N,), accurate over the whole range of the dtype."""
    scale = _scale(rows)
    found: Tensor = (rows / scale).norm(dim=1) * scale[:, 0]
    return found


def _unit(rows: Tensor) -> Tensor:
    rows = rows / _scale(rows)
    found: Tensor = rows / rows.norm(dim=1, keepdim=True)
    return found


def cosine(query: Tensor, candidate: Tensor) -> Tensor:
    """Cosine similarities, (Q, C). Not defined for zero vectors: see `check`."""
    return _unit(query) @ _unit(candidate).T


def cosine_dot(query: Tensor, candidate: Tensor) -> Tensor:
    """Inner products of unit queries and raw candidates, (Q, C). Not defined for a zero query: see `check`."""
    return _unit(query) @ candidate.T


def euclidean(query: Tensor, candidate: Tensor) -> Tensor:
    """Minus the Euclidean distances, (Q, C), from differences: exact for near duplicates."""
    scale = torch.maximum(_scale(query).amax(), _scale(candidate).amax())
    return -torch.cdist(query / scale, candidate / scale, compute_mode="donot_use_mm_for_euclid_dist") * scale


def squared_euclidean(query: Tensor, candidate: Tensor) -> Tensor:
    """Minus the squared Euclidean distances, (Q, C)."""
    return -euclidean(query, candidate).square()


def mahalanobis(query: Tensor, candidate: Tensor, variance: Tensor | None = None) -> Tensor:
    r"""Minus the squared Mahalanobis distances :math:`\sum_d (q_d - c_d)^2 / \sigma^2_d`, (Q, C).

    Args:
        query: (Q, D).
        candidate: (C, D), the means.
        variance: (C, D), above 0; None: 1 throughout, the squared Euclidean distance.
    """
    if variance is None:
        return squared_euclidean(query, candidate)
    rows = [-((query - mean).square() / own).sum(dim=1) for mean, own in zip(candidate, variance, strict=True)]
    return torch.stack(rows, dim=1)  # one candidate at a time: (Q, C, D) differences would not fit


METRICS = {
    "cosine": cosine,
    "cosine_dot": cosine_dot,
    "dot": dot,
    "euclidean": euclidean,
    "mahalanobis": mahalanobis,
    "squared_euclidean": squared_euclidean,
}
NORMALISED_SIDES = {
    "cosine": ("query", "candidate"),
    "cosine_dot": ("query",),
}  # sides that the metric divides by their norms
SAME_GROUP = ("ignore", "negative")


def check(embeddings: Embeddings, metric: str, file: Path | None = None) -> None:
    """Refuse embeddings for which the metric is not defined.

    Args:
        embeddings: the whole set.
        metric: one of `METRICS`.
        file: their file, named in the message.

    Raises:
        InputError: an unknown metric, or zero vectors where the metric has directions only (the rows are named).
    """
    if metric not in METRICS:
        raise InputError(nearest("metric", metric, METRICS))
    for side in NORMALISED_SIDES.get(metric, ()):
        matrix, norms = getattr(embeddings, side), embeddings.norms[side == "candidate"]
        open_ = (norms == 0).nonzero().flatten()  # squares of tiny entries are 0 too
        zero = open_[(matrix[open_] == 0).all(dim=1)].tolist() if len(open_) else []
        if zero:
            where = f"{file}: {side}" if file else side
            raise InputError(f"{where}: zero vector in {rows(zero)}; its cosine similarity is not defined, remove it")


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
        metric: one of `METRICS`.
        same_group: in a batch of pairs, a candidate of the query's group that is not its own pair: `ignore` leaves
            it out of the gradient, `negative` keeps it as a negative.
        block: only these queries of the batch.

    Raises:
        InputError: an unknown metric or rule, or a batch of pairs whose rows are no pairs.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.scores.pairs(embeddings).scores
        tensor([[1., 0., 0.],
                [0., 1., 0.],
                [0., 0., 1.]])
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
    matches(embeddings, batch)
    query_index = batch.query_index[block or slice(None)]
    part = embeddings.rows(query_index, batch.candidate_index)
    same = part.query_group[:, None] == part.candidate_group[None, :]
    positive, negative = same, ~same
    if batch.paired:
        place = torch.arange(len(batch.candidate_index), device=same.device)
        positive = place[: len(batch.query_index)][block or slice(None)][:, None] == place[None, :]
        negative = ~positive if same_group == "negative" else ~(same | positive)
    elif embeddings.shared:
        positive = same & (query_index[:, None] != batch.candidate_index[None, :])
    variance = (part.candidate_variance,) if metric == "mahalanobis" else ()
    return Pairs(
        METRICS[metric](part.query, part.candidate, *variance),
        positive,
        negative,
        candidate_group=part.candidate_group,
        query_norm=length(part.query),
        candidate_norm=length(part.candidate),
        embeddings=part,
    )
