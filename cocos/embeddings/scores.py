"""Scores of queries and candidates, and which pairs are positive. Higher is closer, always."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from cocos.base.errors import InputError, Unfit, nearest, rows
from cocos.embeddings import UNGIVEN, Embeddings, annotations, marks, sources
from cocos.embeddings.annotations import Groups
from cocos.embeddings.sampling import SAME_GROUP, Batch, Plan, check_pairs
from cocos.embeddings.similarities import METRICS, length
from cocos.embeddings.teachers import Teacher

PAIR_MATRICES = ("scores", "positive", "negative", "teacher", "source")  # fields with an entry for each pair
NO_BATCHES = "each row is a query as it stands, with its own candidates: no batches are drawn from scores"


def logsumexp(values: Tensor, mask: Tensor, dim: int | tuple[int, ...] = 1) -> Tensor:
    """Return the log of the summed exponentials of the values in the mask, dims kept; -inf if it is empty."""
    return values.masked_fill(~mask, -torch.inf).logsumexp(dim=dim, keepdim=True)


def softmax(values: Tensor, mask: Tensor, dim: int | tuple[int, ...] = 1) -> Tensor:
    """Return the softmax over the values in the mask; 0 outside of it, and everywhere if it is empty."""
    if not isinstance(dim, int):
        return torch.where(mask, (values - logsumexp(values, mask, dim)).exp(), 0)
    # The least finite number, not -inf, so that a row without any value in the mask has no NaN, nor has its gradient.
    return values.masked_fill(~mask, torch.finfo(values.dtype).min).softmax(dim) * mask


def _check_pairs(scores: Tensor, positive: Tensor, negative: Tensor) -> None:
    """Reject masks that overlap, and scores that are not finite."""
    overlap = (positive & negative).nonzero()
    if len(overlap):
        raise InputError(f"pair {tuple(overlap[0].tolist())} is both positive and negative ({len(overlap)} such pairs)")
    # A finite sum has only finite terms, and is read much faster.
    if not scores.sum().isfinite() and not scores.isfinite().all():
        wrong = (~scores.isfinite()).any(dim=1).nonzero().flatten().tolist()
        raise InputError(f"scores: NaN or infinity in {rows(wrong)}; leave a pair out with the masks instead")


def _check_logq(logq: Tensor) -> None:
    """Reject sampling probabilities of candidates, (C,) or (Q, C), that are not logarithms."""
    wrong = (~(logq.isfinite() & (logq <= 0))).nonzero()
    if len(wrong):
        value = f"{float(logq[tuple(wrong[0])]):g} of candidate {int(wrong[0, -1])}"
        raise InputError(f"logq: {value}, expected the log of a probability, finite and at most 0")


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
        teacher: (Q, C) scores of a teacher or guide, NaN if unknown, for losses that read them.
        source: (Q, C) source of each candidate, a place in `cocos.sources.SOURCES`; None: the batch.
        logq: (C,) log of the probability with which each candidate is sampled, for losses that correct it, or (Q, C)
            if queries have their own lists; None: all equal.

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
    teacher: Tensor | None = None
    source: Tensor | None = None
    logq: Tensor | None = None

    def __post_init__(self) -> None:
        shape = tuple(self.scores.shape) if isinstance(self.scores, Tensor) else ()
        if len(shape) != 2 or 0 in shape or not self.scores.is_floating_point():
            size = f"{self.scores.dtype} of shape {shape}" if shape else type(self.scores).__name__
            raise InputError(f"scores: {size}, expected a floating-point tensor (queries, candidates)")
        for name in ("positive", "negative"):
            if name == "negative" and self.negative is None:
                vars(self)["negative"] = ~self.positive
            mask = getattr(self, name)
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool or tuple(mask.shape) != shape:
                size = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
                raise InputError(f"{name}: {size}, expected a bool tensor of shape {shape}")
        _check_pairs(self.scores, self.positive, self.negative)
        sizes = {"candidate_group": shape[1:], "query_norm": shape[:1], "candidate_norm": shape[1:]}
        sizes |= {"teacher": shape, "source": shape}
        if self.logq is not None:
            sizes["logq"] = shape if self.logq.ndim == 2 else shape[1:]  # of all queries, or of each
            _check_logq(self.logq)
        for name, expected in sizes.items():
            values = getattr(self, name)
            if values is not None and tuple(values.shape) != expected:
                raise InputError(f"{name}: shape {tuple(values.shape)}, expected {expected}")

    def __repr__(self) -> str:
        sizes = f"{int(self.positive.sum())} positive, {int(self.negative.sum())} negative"
        return f"Pairs(scores={tuple(self.scores.shape)}, {sizes})"

    def slots(self) -> tuple[Tensor, Tensor]:
        """Return columns of each query, ascending, (Q, K) with K >= 1, and a mask of them: all of its positives."""
        most = max(1, int(self.positive.sum(dim=1).max()))
        columns = self.positive.to(torch.int8).topk(most, dim=1).indices.sort(dim=1).values
        return columns, self.positive.gather(1, columns)

    def positives(self) -> Tensor:
        """Return the number of positives of each query, at least 1, (Q, 1), in the dtype of the scores."""
        return self.positive.sum(dim=1, keepdim=True).clamp(min=1).to(self.scores.dtype)

    def classes(self) -> tuple[Tensor, int]:
        """Return the class of each pair, (Q, C), and the number of classes; the last class is each query's own.

        The positives of a query are its own class. Its other candidates have the classes of `candidate_group`; without
        groups each is a class of its own.
        """
        columns = torch.arange(self.scores.shape[1], device=self.positive.device)
        positive_class = len(columns)
        if self.candidate_group is not None:
            groups, columns = self.candidate_group.unique(return_inverse=True)
            positive_class = len(groups)
        return torch.where(self.positive, positive_class, columns), positive_class + 1

    def norms(self) -> tuple[Tensor, Tensor]:
        """Return the norms of the queries, (Q, 1), and of the candidates, (1, C); 1 by default."""
        query, candidate = (self.scores.new_ones(number) for number in self.scores.shape)
        query = query if self.query_norm is None else self.query_norm
        candidate = candidate if self.candidate_norm is None else self.candidate_norm
        return query[:, None], candidate[None, :]

    def flip(self) -> "Pairs":
        """Return the same pairs with queries and candidates exchanged; not checked again.

        Raises:
            TypeError: the pairs have no embeddings, which contain the groups of the queries.
            InputError: they have a logq that their embeddings lack, so that it describes the candidates alone.
        """
        if self.embeddings is None:
            raise TypeError("pairs.embeddings: None, expected the scored rows, as cocos.scores.pairs sets them")
        if self.logq is not None and self.embeddings.logq is None:
            raise InputError("logq: it describes the sampling of candidates; leave it out of pairs that are flipped")
        embeddings = self.embeddings.flip()
        matrices = {name: getattr(self, name) for name in PAIR_MATRICES}
        return self.unchecked(
            embeddings=embeddings,
            query_norm=self.candidate_norm,
            candidate_norm=self.query_norm,
            candidate_group=embeddings.candidate_group,
            logq=None if embeddings.logq is None else embeddings.logq.to(self.scores.dtype),
            **{name: None if values is None else values.T.contiguous() for name, values in matrices.items()},
        )

    def first(self, number: int) -> "Pairs":
        """Return the pairs of the first queries, with all of their candidates; not checked again."""
        if len(self.scores) <= number:
            return self
        part = self.part(slice(number), slice(None))
        if self.embeddings is None:
            return part
        sizes = (number, len(self.embeddings.candidate))
        query, candidate = (torch.arange(size, device=self.scores.device) for size in sizes)
        return part.unchecked(embeddings=self.embeddings.rows(query, candidate))

    def narrow(self) -> "Pairs":
        """Return the pairs without the columns of further directions; not checked again."""
        if self.embeddings is None or len(self.embeddings.candidate) == self.scores.shape[1]:
            return self
        return self.part(slice(None), slice(len(self.embeddings.candidate)))

    def part(self, queries: slice | Tensor, candidates: slice | Tensor) -> "Pairs":
        """Select queries and candidates by slices or indices; the embeddings are unchanged."""
        parts = {}
        for name in (*PAIR_MATRICES, "query_norm", "candidate_group", "candidate_norm", "logq"):
            values = getattr(self, name)
            if values is not None and values.ndim == 2:
                parts[name] = values[queries][:, candidates]
            elif values is not None:
                parts[name] = values[queries if name == "query_norm" else candidates]
        return self.unchecked(**parts)

    def with_scores(self, scores: Tensor, query_norm: Tensor | None = None) -> "Pairs":
        """Replace the scores (and query norms) by others of the same shape; not checked, for torch.func."""
        return self.unchecked(scores=scores, **({} if query_norm is None else {"query_norm": query_norm}))

    def unchecked(self, **values: Any) -> "Pairs":
        """Replace fields; not checked, for torch.func."""
        pairs = object.__new__(Pairs)
        pairs.__dict__.update(self.__dict__ | values)
        return pairs

    def cross_entropy(self, logits: Tensor, negative: Tensor | None = None) -> Tensor:
        r"""Return the cross-entropy of each positive against all negatives, summed over positives, (Q,), in nats.

        .. math:: \sum_{p \in P} -\log \frac{e^{z_p}}{e^{z_p} + \sum_{n \in N} e^{z_n}}

        With one positive this is the softmax cross-entropy. It is 0 for a query without a positive or a negative.

        Args:
            logits: (Q, C), z above.
            negative: (Q, C) bool, the negatives that take part; None: all.
        """
        total = logsumexp(logits, self.negative if negative is None else negative)
        terms = torch.logaddexp(total - logits, torch.zeros_like(logits))
        return torch.where(self.positive, terms, 0).sum(dim=1)

    def residual(self, logits: Tensor, negative: Tensor | None = None) -> Tensor:
        r"""Return ∂ Σ cross-entropy / ∂ logits, (Q, C): softmax minus target if there is one positive.

        With :math:`m_p` the probability that positive p leaves to the negatives: positives :math:`-m_p`, negatives
        :math:`(\sum_p m_p) \, \mathrm{softmax}_N(z)`. Each row sums to zero.
        """
        negative = self.negative if negative is None else negative
        total = logsumexp(logits, negative)
        missing = torch.where(self.positive, (total - logits).sigmoid(), 0)
        return missing.sum(dim=1, keepdim=True) * torch.where(negative, (logits - total).exp(), 0) - missing

    def hinge(self, margin: float) -> Tensor:
        r"""Return the summed hinges of all triplets of a query, (Q,).

        .. math:: \sum_{p \in P} \sum_{n \in N} [\alpha - s_p + s_n]_+
        """
        total = self.scores.new_zeros(self.scores.shape[0])
        for index, filled in zip(*(part.split(1, dim=1) for part in self.slots()), strict=True):
            terms = (margin - self.scores.gather(1, index) + self.scores).relu()
            total = total + torch.where(self.negative & filled, terms, 0).sum(dim=1)
        return total

    def violations(self, margin: float) -> Tensor:
        r"""Return ∂ Σ hinge / ∂ score, (Q, C), integers; a tie does not count.

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


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of queries and candidates, and which pairs are positive, for every measure that needs no vectors.

    Each row is a query with its own candidates: no batches are drawn.

    Args:
        scores: (Q, C) floating point, in the units of the loss that reads them; higher is better.
        positive: (Q, C) bool, or 0 and 1. Without it groups define it, and without these row i matches column i.
        query_group: (Q,) integers or text: ids that a query shares with its positives.
        candidate_group: (C,) likewise.
        logq: (C,) log of the probability with which each candidate is sampled, at most 0.
        negative: (Q, C) bool, disjoint from `positive`; None: all that are not positive. A pair in neither mask takes
            no part, and its score may be NaN: lists of different lengths are padded in this way.
        reference: (Q, C) scores of a reference model, a teacher or a guide, NaN if unknown.
        grade: (Q, C) graded relevance, finite, for nDCG, and for losses that read grades as scores of a teacher
            (RankNet, ListMLE) if there is no `reference`; None: 1 for a positive.
        unlisted: (Q, U) grades of relevant candidates that a ranking does not list, 0 for none.
        candidate_index: (Q, C) candidate at each place of a list, -1 for padding; None: column j is candidate j.
        names: (of the queries, of the candidates), one text each; either may be None.
        notes: sentences to report with every result.
        marks: labels of pairs by name, such as (n, 2) rows and columns of unjudged pairs: `cocos.marks.of`.

    Raises:
        Unfit: a query without any positive, unless it has some that are unlisted.

    Examples:
        A ranker gives three documents 2, 1 and 0, and the first one is right:

        >>> scores = cocos.Scores(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[True, False, False]]))
        >>> cocos.measures.count(scores, cocos.losses.load("ntxent", temperature=1))["contributing"].item()
        2.0
    """

    scores: Tensor
    positive: Tensor = UNGIVEN
    query_group: Tensor | None = None
    candidate_group: Tensor | None = None
    logq: Tensor | None = None
    negative: Tensor = UNGIVEN
    reference: Tensor | None = None
    grade: Tensor | None = None
    unlisted: Tensor | None = None
    candidate_index: Tensor | None = None
    names: tuple[Sequence[str] | None, Sequence[str] | None] | None = None
    notes: tuple[str, ...] = (NO_BATCHES,)
    marks: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        scores = annotations.as_tensor("scores", self.scores, "an array of numbers")
        scores = scores if scores.is_floating_point() else scores.double()
        if scores.ndim != 2 or 0 in scores.shape:
            raise InputError(f"scores: shape {tuple(scores.shape)}, expected (queries, candidates)")
        shape, values = (scores.shape[0], scores.shape[1]), dict[str, Any]()
        for name in ("reference", "grade", "candidate_index", "positive", "negative", "unlisted", "logq"):
            if getattr(self, name) is not None:
                values[name] = annotations.as_tensor(name, getattr(self, name), "an array of numbers").to(scores.device)
                if name not in {"unlisted", "logq"} and tuple(values[name].shape) != shape:
                    raise InputError(f"{name}: shape {tuple(values[name].shape)}, expected {shape}, as the scores")
        for name in values.keys() & {"positive", "negative"}:
            if ((values[name] != 0) & (values[name] != 1)).any():
                raise InputError(f"{name}: {values[name].max().item():g}, expected True and False, or 1 and 0")
            values[name] = values[name].bool()
        if "positive" not in values:
            if self.query_group is None and self.candidate_group is None and shape[0] != shape[1]:
                raise InputError(
                    f"scores of {shape[0]} queries and {shape[1]} candidates, and neither positive nor groups: give "
                    "positive (queries, candidates), or query_group and candidate_group"
                )
            query, candidate = annotations.both_groups(self.query_group, self.candidate_group, *shape)
            values |= {"query_group": query, "candidate_group": candidate}
            values["positive"] = (query[:, None] == candidate[None, :]).to(scores.device)
        elif self.query_group is not None or self.candidate_group is not None:
            raise InputError("positive and groups both define the matching pairs; give one of them")
        values.setdefault("negative", ~values["positive"])
        values["scores"] = torch.where(values["positive"] | values["negative"], scores, 0)
        _check_pairs(values["scores"], values["positive"], values["negative"])
        if "logq" in values:
            number = int(values["candidate_index"].max()) + 1 if "candidate_index" in values else shape[1]
            if values["logq"].ndim != 1 or len(values["logq"]) < number:
                raise InputError(f"logq: shape {tuple(values['logq'].shape)}, expected ({number},), one per candidate")
            _check_logq(values["logq"])
            values["logq"] = values["logq"].to(scores)
        vars(self).update(values, notes=tuple(self.notes), marks=marks.each(self.marks, *shape))
        lonely = (~self.positive.any(dim=1)).nonzero().flatten().tolist()
        if len(lonely) == len(scores):
            raise Unfit("no query has any positive: no pair is labelled 1")
        if lonely and self.unlisted is None:
            raise Unfit(f"query {rows(lonely)}: no positive. Remove the rows or add positives")

    def __repr__(self) -> str:
        sizes = f"{int(self.positive.sum())} positive, {int(self.negative.sum())} negative"
        return f"Scores({tuple(self.scores.shape)}, {sizes})"

    # What a run reads of its source: a query is the row of its scores, and each query has one direction.
    directions = ("q2c",)
    shared = proxies = is_queued = False
    negatives = candidate_negatives = candidate_variance = grades = pictures = queue = None
    metric = "given"  # name of the scores

    @property
    def query(self) -> Tensor:
        """The queries, each the row of its scores, (Q, C)."""
        return self.scores

    @property
    def candidate(self) -> Tensor:
        """The places of the lists, each the column of its scores, (C, Q)."""
        return self.scores.T

    @property
    def teacher(self) -> Teacher | None:
        """Scores of the reference."""
        return None if self.reference is None else Teacher(matrix=self.reference)

    @cached_property
    def groups(self) -> Groups:
        """The groups of both sides; without any, each row is one of its own."""
        if self.query_group is not None and self.candidate_group is not None:
            return Groups.number(self.query_group, self.candidate_group)
        queries, places = self.scores.shape
        return Groups.number(torch.arange(queries), torch.arange(places))

    @cached_property
    def plan(self) -> Plan:
        """One batch: all queries with a positive in their list."""
        asking = self.positive.any(dim=1).nonzero().flatten()
        places = torch.arange(self.scores.shape[1], device=self.scores.device)
        left = len(self.scores) - len(asking)
        note = (f"{left} of {len(self.scores)} queries have no positive in their list and take no part",)
        return Plan((Batch(asking, places, paired=False),), "groups", len(asking), note if left else (), (), "keep")

    def single(self, direction: str) -> "Scores":
        """Return the scores, which have one direction."""
        return self

    def marked(self, labels: dict[str, Any] | None) -> "Scores":
        """Replace the marks of pairs, by their names."""
        return self.unchecked(marks=marks.each(labels, *self.scores.shape))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Scores":
        """Move to another device or dtype; the same object if nothing changes."""
        scores = self.scores.to(device, dtype)
        if scores is self.scores:
            return self
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {name: value.to(scores.device) for name, value in values.items() if isinstance(value, Tensor)}
        return self.unchecked(**moved | {"scores": scores})

    def unchecked(self, **values: Any) -> "Scores":
        """Replace fields without a second check."""
        scores = object.__new__(Scores)
        scores.__dict__.update({field.name: getattr(self, field.name) for field in fields(self)} | values)
        return scores

    def candidates(self, query_index: Tensor, places: Tensor) -> Tensor:
        """Return the numbers of the candidates at places in the lists of queries, (n,) from (n,) and (n,)."""
        return places if self.candidate_index is None else self.candidate_index[query_index, places]

    def pairs(self, query_index: Tensor) -> Pairs:
        """Return the input of a loss for queries by their rows, (q,)."""
        logq, teacher = self.logq, self.grade if self.reference is None else self.reference
        if logq is not None and self.candidate_index is not None:
            logq = logq[self.candidate_index[query_index].clamp(min=0)]
        return Pairs(
            self.scores[query_index],
            self.positive[query_index],
            self.negative[query_index],
            candidate_group=self.candidate_group,
            teacher=teacher if teacher is None else teacher[query_index].to(self.scores.dtype),
            logq=logq if logq is None else logq.to(self.scores.dtype),
        )


def pairs(
    embeddings: Embeddings,
    batch: Batch | None = None,
    *,
    metric: str = "cosine",
    same_group: str = "ignore",
    block: slice | None = None,
    directions: Sequence[str] = sources.DIRECTIONS[:1],
    graded: bool = False,
) -> Pairs:
    """Score the queries of a batch against its candidates, and against the columns of further directions.

    Args:
        embeddings: the whole set. Scores have its dtype and device.
        batch: the rows that are scored together; None: the whole set.
        metric: one of `METRICS`.
        same_group: in a batch of pairs, a candidate of the query's group that is not its own pair: `ignore` leaves
            it out of the gradient, `negative` keeps it as a negative.
        block: only these queries of the batch.
        directions: of `cocos.sources.DIRECTIONS`; the columns of further ones follow the candidates of the batch.
            `embeddings` of the pairs has the candidates of the batch alone.
        graded: for embeddings with `grades`: both queries and candidates are graded pairs, (n, n), scored by their own
            two rows; pairs of a lower grade are negatives.

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
    sources.check(directions)
    if batch is None:
        rows, columns = (torch.arange(len(m), device=m.device) for m in (embeddings.query, embeddings.candidate))
        batch = Batch(rows, columns, paired=False)
    check_pairs(embeddings, batch)
    query_index = batch.query_index[block or slice(None)]
    if graded and embeddings.grades is not None:
        return _with_graded_pairs(embeddings, batch, query_index, metric)
    part = embeddings.rows(query_index, batch.candidate_index)
    same = part.query_group[:, None] == part.candidate_group[None, :]
    if batch.paired:
        place = torch.arange(len(batch.candidate_index), device=same.device)
        positive = place[: len(batch.query_index)][block or slice(None)][:, None] == place[None, :]
        negative = ~positive if same_group == "negative" else ~(same | positive)
    else:
        is_itself = embeddings.shared & (query_index[:, None] == batch.candidate_index[None, :])
        positive, negative = same & ~is_itself, ~same
    variance, teacher = (part.candidate_variance,) if metric == "mahalanobis" else (), embeddings.teacher
    sourced = batch.extra > 0 or embeddings.negatives is not None
    batch_pairs = Pairs(
        METRICS[metric](part.query, part.candidate, *variance),
        positive,
        negative,
        candidate_group=part.candidate_group,
        query_norm=length(part.query),
        candidate_norm=length(part.candidate),
        embeddings=part,
        teacher=teacher and teacher.scores("query", query_index, "candidate", batch.candidate_index),
        source=sources.of_candidates(embeddings, batch, query_index) if sourced else None,
        logq=None if part.logq is None else part.logq.to(part.query.dtype),
    )
    ungrouped = batch.paired and same_group == "negative"
    further = [
        _score_direction(embeddings, batch, query_index, positive, direction, metric, ungrouped=ungrouped)
        for direction in directions[1:]
    ]
    return _join_columns(batch_pairs, further) if further else batch_pairs


def _score_direction(
    embeddings: Embeddings,
    batch: Batch,
    query_index: Tensor,
    positive: Tensor,
    direction: str,
    metric: str,
    *,
    ungrouped: bool,
) -> Pairs:
    """Score the columns of a further direction for some queries of a batch.

    `query-query`: other queries. `candidate-query`: all queries of the batch, scored with the query's positive; its own
    score occurs there again, as a positive, since the published denominators have it twice. `candidate-candidate`:
    candidates scored with the query's positive, without the query's own. A query with several positives takes the
    first; one without any has no scores of its positive. A row that is a query several times is listed as often as the
    flipped batch has it as a candidate.

    Args:
        embeddings: the whole set.
        batch: the rows that are scored together.
        query_index: (q,) some of its queries.
        positive: (q, c) bool, positives among the candidates of the batch.
        direction: one of `sources.DIRECTIONS`.
        metric: of the scores.
        ungrouped: rows of one group are negatives of each other; otherwise they take no part.
    """
    place = sources.SOURCES.index(direction)
    anchor, negative = sources.TABLE[place].anchor, sources.TABLE[place].negative
    partner, has_positive = batch.candidate_index[positive.int().argmax(dim=1)], positive.any(dim=1, keepdim=True)
    groups = {"query": embeddings.query_group, "candidate": embeddings.candidate_group}
    matrices = {"query": embeddings.query, "candidate": embeddings.candidate}
    scored = query_index if anchor == "query" else partner
    columns = batch.flip().partners if negative == "query" else batch.candidate_index
    # The row itself, or else its query's own, which is then numbered as `query_index`.
    is_own = (scored if anchor == negative else query_index)[:, None] == columns
    is_positive = is_own & has_positive if place == sources.CANDIDATE_QUERY else torch.zeros_like(is_own)
    if not ungrouped:
        is_own = is_own | (groups[anchor][scored][:, None] == groups[negative][columns])
    if anchor == negative == "candidate":
        is_own = is_own | (sources.of_candidates(embeddings, batch, query_index) == sources.OWN_HARD)
    column_rows, teacher = matrices[negative][columns], embeddings.teacher
    return Pairs(
        METRICS[metric](matrices[anchor][scored], column_rows),
        is_positive,
        ~is_own if anchor == "query" else ~is_own & has_positive,
        candidate_group=groups[negative][columns],
        candidate_norm=length(column_rows),
        teacher=teacher and teacher.scores(anchor, scored, negative, columns),
        source=torch.full_like(is_own, place, dtype=torch.int8),
    )


def _join_columns(first: Pairs, further: Sequence[Pairs]) -> Pairs:
    """Append the columns of further directions to the pairs of a batch."""
    if first.source is None:
        first = first.unchecked(source=torch.zeros_like(first.positive, dtype=torch.int8))
    if first.logq is not None:  # columns of further directions are not sampled from a catalogue
        further = [part.unchecked(logq=first.logq.new_zeros(part.scores.shape[1])) for part in further]
    columns = {}
    for name in (*PAIR_MATRICES, "candidate_group", "candidate_norm", "logq"):
        values = [getattr(part, name) for part in (first, *further)]
        if values[0] is not None:
            columns[name] = torch.cat(values, dim=-1)
    return replace(first, **columns)


def _with_graded_pairs(embeddings: Embeddings, batch: Batch, query_index: Tensor, metric: str) -> Pairs:
    """Score graded pairs against pairs of a lower grade, (q, n)."""
    query, index = embeddings.query[batch.query_index], batch.candidate_index[: len(batch.query_index)]
    candidate, grades = embeddings.candidate[index], cast(Tensor, embeddings.grades)
    score = torch.cat([METRICS[metric](a[None], b[None])[0] for a, b in zip(query, candidate, strict=True)])
    positive = query_index[:, None] == batch.query_index
    return Pairs(
        score.expand(len(query_index), -1),
        positive,
        (grades[batch.query_index] < grades[query_index][:, None]) & ~positive,
        candidate_group=embeddings.candidate_group[index],
        query_norm=length(embeddings.query[query_index]),
        candidate_norm=length(candidate),
        embeddings=embeddings.rows(query_index, index),
    )
