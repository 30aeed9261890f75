"""Scores without vectors: of a ranker, a reward model, a recommender or a benchmark."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError, Unfit, rows
from cocos.embeddings import UNGIVEN, annotations, marks
from cocos.embeddings.annotations import Groups
from cocos.embeddings.sampling import Batch, Plan
from cocos.embeddings.scores import Pairs
from cocos.embeddings.teachers import Teacher, read_numbers

# Queries alone ask: a score is nobody's but theirs.
DIRECTION = "q2c"
NO_BATCHES = "each row is a query as it stands, with its own candidates: no batches are drawn from scores"


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of queries and candidates, and which pairs are positive, for every measure that needs no vectors.

    Each row is a query with its own candidates: no batches are drawn.

    Args:
        scores: (Q, C) floating point, in the units of the loss that reads them; higher is better.
        positive: (Q, C) bool, or 0 and 1. Without it groups say it, and without these row i matches column i.
        query_group: (Q,) whole numbers or text: ids that a query shares with its positives.
        candidate_group: (C,) likewise.
        logq: (C,) log of the probability with which each candidate is sampled, at most 0.
        negative: (Q, C) bool, disjoint from `positive`; None: all that are not positive. A pair in neither mask takes
            no part, and its score may be NaN: lists of different lengths are padded so.
        reference: (Q, C) scores of a reference model, a teacher or a guide, NaN where it gave none.
        grade: (Q, C) graded relevance, finite, for nDCG, and for losses that read grades as scores of a teacher
            (RankNet, ListMLE), where there is no `reference`; None: 1 of a positive.
        unlisted: (Q, U) grades of relevant candidates that a ranking does not list, 0 for none.
        candidate_index: (Q, C) which candidate each place of a list is, -1 for padding; None: column j is candidate j.
        names: of the queries, and of the candidates, one text each; either may be None.
        notes: sentences that belong beside every result.
        marks: on pairs, by their names, such as (n, 2) rows and columns of those that nobody judged: `cocos.marks.of`.

    Raises:
        InputError: wrong shapes, NaN or infinity in a pair that takes part, labels that are neither 0 nor 1, masks that
            overlap, a logq above 0.
        Unfit: a query without any positive, unless it has some that are unlisted.

    Source: the weights of a loss are derivatives with respect to these scores; they need no vectors.

    Examples:
        A ranker gives three documents 2, 1 and 0, and the first one is right:

        >>> scores = cocos.Scores(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[True, False, False]]))
        >>> data = cocos.measures.count(scores, cocos.losses.load("ntxent", temperature=1))
        >>> data["contributing"].item()
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
        scores = read_numbers("scores", self.scores)
        scores = scores if scores.is_floating_point() else scores.double()
        if scores.ndim != 2 or 0 in scores.shape:
            raise InputError(f"scores: shape {tuple(scores.shape)}, expected (queries, candidates)")
        shape, device = (scores.shape[0], scores.shape[1]), scores.device
        positive = self._positives(shape).to(device)
        negative = ~positive if self.negative is None else _mask("negative", self.negative, shape).to(device)
        overlap = positive & negative
        if overlap.any():
            raise InputError(f"pair {tuple(overlap.nonzero()[0].tolist())} is both positive and negative")
        taking_part = positive | negative
        if bad := (taking_part & ~scores.isfinite()).any(dim=1).nonzero().flatten().tolist():
            raise InputError(f"scores: NaN or infinity in {rows(bad)}; leave a pair out with the masks instead")
        values: dict[str, Any] = {"scores": torch.where(taking_part, scores, 0)}
        values |= {"positive": positive, "negative": negative}
        for name in ("reference", "grade", "candidate_index"):
            if getattr(self, name) is not None:
                values[name] = read_numbers(name, getattr(self, name)).to(device)
                if tuple(values[name].shape) != shape:
                    raise InputError(f"{name}: shape {tuple(values[name].shape)}, expected {shape}, as the scores")
        if self.unlisted is not None:
            values["unlisted"] = read_numbers("unlisted", self.unlisted).to(device)
        if self.logq is not None:
            values["logq"] = self._checked_logq(shape, values.get("candidate_index")).to(scores)
        self.__dict__.update(values, notes=tuple(self.notes), marks=marks.each(self.marks, *shape))
        if not positive.any():
            raise Unfit("no query has any positive: no pair is labelled 1")
        has_positive = positive.any(dim=1)
        if self.unlisted is None and not has_positive.all():
            lonely = (~has_positive).nonzero().flatten().tolist()
            raise Unfit(f"query without any positive: {rows(lonely)}; remove it or give it a positive")

    def _positives(self, shape: tuple[int, int]) -> Tensor:
        """The mask of the positives: as it is given, by groups, or the diagonal."""
        if self.positive is not None:
            if self.query_group is not None or self.candidate_group is not None:
                raise InputError("positive and groups both say which pairs match; give one of them")
            return _mask("positive", self.positive, shape)
        if self.query_group is None and self.candidate_group is None and shape[0] != shape[1]:
            raise InputError(
                f"scores of {shape[0]} queries and {shape[1]} candidates, and neither positive nor groups: give "
                "positive (queries, candidates), or query_group and candidate_group"
            )
        query, candidate = annotations.both_groups(self.query_group, self.candidate_group, *shape)
        self.__dict__.update(query_group=query, candidate_group=candidate)
        return query[:, None] == candidate[None, :]

    def _checked_logq(self, shape: tuple[int, int], index: Tensor | None) -> Tensor:
        """The log-probabilities of the candidates, (candidates,)."""
        logq = read_numbers("logq", self.logq)
        number = shape[1] if index is None else int(index.max()) + 1
        if logq.ndim != 1 or len(logq) < number or (index is None and len(logq) != number):
            raise InputError(f"logq: shape {tuple(logq.shape)}, expected ({number},), one for each candidate")
        if (wrong := (~(logq.isfinite() & (logq <= 0))).nonzero()).numel():
            place = int(wrong[0, 0])
            value = f"{float(logq[place]):g} of candidate {place}"
            raise InputError(f"logq: {value}, expected the log of a probability, finite and at most 0")
        return logq

    def __repr__(self) -> str:
        sizes = f"{int(self.positive.sum())} positive, {int(self.negative.sum())} negative"
        present = [name for name in ("reference", "grade", "logq", "names") if getattr(self, name) is not None]
        more = f", with {', '.join(present)}" if present else ""
        return f"Scores({tuple(self.scores.shape)}, {sizes}{more})"

    # What a run asks of its source: a query is the row of its scores.
    directions = (DIRECTION,)
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

    def unchanged(self) -> None:
        """Scores are held in memory."""

    def single(self, direction: str) -> "Scores":
        """The same scores: there is one direction."""
        return self

    def marked(self, labels: dict[str, Any] | None) -> "Scores":
        """Give the pairs other marks, by their names."""
        return self.unchecked(marks=marks.each(labels, *self.scores.shape))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Scores":
        """Move to another device or dtype; the same object where nothing changes."""
        scores = self.scores.to(device, dtype)
        if scores is self.scores:
            return self
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {name: value.to(scores.device) for name, value in values.items() if isinstance(value, Tensor)}
        return self.unchecked(**moved | {"scores": scores})

    def unchecked(self, **values: Any) -> "Scores":
        """The same scores with other values of some fields, without a second check."""
        scores = object.__new__(Scores)
        scores.__dict__.update({field.name: getattr(self, field.name) for field in fields(self)} | values)
        return scores

    def candidates(self, query_index: Tensor, places: Tensor) -> Tensor:
        """Number of the candidates at some places of the lists of some queries, (n,) from (n,) and (n,)."""
        return places if self.candidate_index is None else self.candidate_index[query_index, places]

    def pairs(self, query_index: Tensor) -> Pairs:
        """Make the input of a loss of some queries.

        Args:
            query_index: (q,) their rows.
        """
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


def _mask(name: str, values: Any, shape: tuple[int, int]) -> Tensor:
    """A mask of pairs, bool, from one or from labels 0 and 1."""
    mask = torch.as_tensor(values)
    if tuple(mask.shape) != shape:
        raise InputError(f"{name}: shape {tuple(mask.shape)}, expected {shape}, that of the scores")
    if mask.dtype != torch.bool:
        wrong = mask[(mask != 0) & (mask != 1)]
        if len(wrong):
            raise InputError(f"{name}: {wrong[0].item():g}, expected True and False, or 1 and 0")
        mask = mask.bool()
    return mask
