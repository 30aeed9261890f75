"""Embeddings: vectors of a frozen model for its training data, and which rows belong together."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from cocos.base import annotations
from cocos.base.annotations import EACH_ITS_OWN_POSITIVE, READ_AS_LABELLED, Groups, Pictures, numbered
from cocos.base.errors import InputError
from cocos.base.matrices import (
    Mapped,
    check_dims,
    files_of,
    joint,
    matrix,
    norms_and_projections,
    refuse_open_rows,
    variances,
)
from cocos.embeddings import marks, queued, teachers

__all__ = ["UNGIVEN", "Embeddings", "draw"]

logger = logging.getLogger(__name__)
Value = TypeVar("Value")
NO_QUEUE_GROUPS = "the rows of the queue have no groups, so that each of them is a negative of every query"
PROXY_DIRECTIONS = (("s2p",), ("p2s",))  # directions of samples and class proxies, which may be the same rows
UNGIVEN: Any = None  # default of fields that the constructor fills in: typed so that readers see tensors


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Query and candidate embeddings; a query's positives are the candidates of its group.

    Args:
        query: (Q, D) floating point, as the frozen encoder returned them.
        candidate: (C, D), same width, dtype and device as `query`.
        query_group: (Q,) whole numbers or text: ids that a query shares with its positives, or classes of samples.
        candidate_group: (C,) likewise. Without both, where Q == C, row i matches row i.
        directions: names of the directions to analyse. The first is query -> candidate; a second one is
            candidate -> query. Images that ask for texts are `i2t`, `t2i`. Class proxies and labelled sets have one.
        shared: queries and candidates are the same samples, and a sample is never its own candidate.
        candidate_variance: (C, D) above 0, where each candidate is the mean of a normal distribution (HIST).
        names: of the rows, (of the queries, of the candidates), one text a row; either may be None.
        negatives: own hard negatives, drawn with their query: (Q, K) rows of the candidates, -1 for none; or vectors,
            (Q, K, D), NaN for none, which become the last candidates, with groups of their own.
        pictures: of the rows, (of the queries, of the candidates), each uint8 (N, height, width, 3), or N paths that
            are read when a picture is drawn; either may be None.
        candidate_negatives: (C, K), the same of the candidates where they ask: `flip` makes them from `negatives`.
        notes: sentences that belong beside every result of these embeddings.
        mapped: files that the rows are mapped from; a `numpy.memmap` names its own file. `unchanged`
            compares them.
        marks: on pairs of a query and a candidate, by their names, like look-alikes: see `cocos.marks.of`.
        teacher: scores of a teacher or guide, (Q, C) or (Q, 1 + K), or rows of both sides:
            see `cocos.embeddings.teachers.of`.
        grades: (n,) of row i of the queries and row i of the candidates, for losses of graded pairs (CoSENT).
        queue: rows of earlier steps that are candidates of every batch (MoCo, cross-batch memory): rows (K, D), or
            (rows, group (K,)). They become the last candidates, with groups of their own unless these are given, and
            ask for nothing; the field is then a mask of the candidates, (C,) bool. Of a labelled set they are samples,
            and groups are their classes.
        query_queue: the same of the queries where the candidates ask.
        logq: (C,) log of the probability with which each candidate is sampled, at most 0, for losses that correct it.
        query_logq: (Q,) the same of the queries, where the candidates ask.

    Matrices are never copied, and checked once, in one pass that also takes the norms of their rows. Sides that are the
    same rows with the same groups are read as a labelled set, with a note: every query would be its own positive.

    Raises:
        InputError: wrong shape, dtype, width or length; NaN or infinity (the rows are named); ids above 2^63 - 1; text
            among numbers; a negative that is a positive of its query.

    Examples:
        Two queries, and three candidates of which two belong to the first query:

        >>> embeddings = cocos.Embeddings(torch.randn(2, 8), torch.randn(3, 8), [7, 9], [7, 7, 9])
        >>> embeddings.directions
        ('q2c', 'c2q')
        >>> embeddings.flip().directions
        ('c2q', 'q2c')
    """

    query: Tensor
    candidate: Tensor
    query_group: Tensor = UNGIVEN
    candidate_group: Tensor = UNGIVEN
    directions: tuple[str, ...] = ("q2c", "c2q")
    shared: bool = False
    candidate_variance: Tensor | None = None
    names: tuple[Sequence[str] | None, Sequence[str] | None] | None = None
    negatives: Tensor | None = None
    pictures: tuple[Pictures | None, Pictures | None] | None = None
    candidate_negatives: Tensor | None = None
    notes: tuple[str, ...] = ()
    mapped: tuple[Mapped, ...] = ()
    marks: Mapping[str, Any] | None = None
    teacher: Any = None
    grades: Tensor | None = None
    queue: Any = None
    query_queue: Any = None
    logq: Tensor | None = None
    query_logq: Tensor | None = None

    def __post_init__(self) -> None:
        self._set(mapped=tuple(dict.fromkeys((*self.mapped, *files_of(self.query, self.candidate)))))
        query, candidate = matrix("query", self.query), matrix("candidate", self.candidate)
        joint(query, candidate)
        self._set(grades=annotations.grades(self.grades, len(query), len(candidate)))
        queues = [queued.of(self.query_queue, query, "query_queue"), queued.of(self.queue, candidate, "queue")]
        sides = (self.query_group, len(query)), (self.candidate_group, len(candidate))
        known = any(own is not None and own.grouped for own in queues)
        given = [queued.longer(*side, own, known=known) for side, own in zip(sides, queues, strict=True)]
        sizes = [len(side) + (own.grouped if own else 0) for side, own in zip((query, candidate), queues, strict=True)]
        groups = annotations.both_groups(*given, *sizes)
        directions = annotations.directions(self.directions)
        if self.shared and len(query) != (other := len(candidate)):
            raise InputError(f"shared: {len(query)} query rows and {other} candidate rows are not the same set")
        if self.candidate_variance is not None:
            self._set(candidate_variance=variances(self.candidate_variance, candidate, len(directions)))
        queued_groups = groups[0][len(query) :], groups[1][len(candidate) :]
        groups = groups[0][: len(query)], groups[1][: len(candidate)]
        candidate, groups = self._with_hard_vectors(query, candidate, groups)
        query, candidate, groups = self._with_queues((query, candidate), queues, groups, queued_groups)
        self._set(logq=annotations.logq("logq", self.logq, len(candidate), "candidate"))
        self._set(query_logq=annotations.logq("query_logq", self.query_logq, len(query), "query"))
        self._set(query=query, candidate=candidate)
        self._check_rows()
        query_group, candidate_group = (ids.to(query.device) for ids in groups)
        self._set(query_group=query_group, candidate_group=candidate_group, directions=directions)
        self._check_annotations()
        if not self.shared and directions not in PROXY_DIRECTIONS:
            self._read_as_labelled()

    def _set(self, **values: object) -> None:
        """Set fields of this frozen object, within its construction."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _with_hard_vectors(self, query: Tensor, candidate: Tensor, groups: tuple[Tensor, Tensor]) -> tuple[Any, Any]:
        """Put hard negatives that are vectors behind the candidates, each in a group of its own."""
        longer, index = annotations.negative_rows(self.negatives, query, candidate)
        if more := len(longer) - len(candidate):
            new = max(int(each.max()) for each in groups) + 1 + torch.arange(more)
            groups = groups[0], torch.cat([groups[1], new.to(groups[1].device)])
            self._set(names=annotations.longer("names", self.names, more))
            self._set(negatives=index, pictures=annotations.longer("pictures", self.pictures, more))
        return longer, groups

    def _with_queues(
        self,
        sides: tuple[Tensor, Tensor],
        queues: Sequence[queued.Queue | None],
        groups: tuple[Tensor, Tensor],
        given: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Append the rows of queues to their side, in the groups that are given or in new ones."""
        masks: list[Tensor | None] = [None, None]
        rows, ids, same = list(sides), list(groups), self.shared
        for k, own in enumerate(queues):
            if own is None:
                continue
            new = max(int(each.max()) for each in ids) + 1 + torch.arange(len(own.rows), device=ids[k].device)
            group = given[k] if len(given[k]) else new
            if own.group is None:
                self._set(notes=(*self.notes, NO_QUEUE_GROUPS))
            for side in (0, 1) if same else (k,):
                masks[side] = torch.arange(len(sides[side]) + len(own.rows), device=own.rows.device) >= len(sides[side])
                ids[side] = torch.cat([ids[side], group.to(ids[side])])
            rows[k] = torch.cat([rows[k], own.rows])
            rows[1 - k] = rows[k] if same else rows[1 - k]
            if not same and k == 1:
                for name in ("names", "pictures"):
                    self._set(**{name: annotations.longer(name, getattr(self, name), len(own.rows))})
        self._set(query_queue=masks[0], queue=masks[1])
        return rows[0], rows[1], (ids[0], ids[1])

    @property
    def is_queued(self) -> bool:
        """Whether a side has rows of a queue."""
        return self.queue is not None or self.query_queue is not None

    def without_queue(self) -> "Embeddings":
        """The same set without the rows of queues, which stand last on their side."""
        if not self.is_queued:
            return self
        sizes = [
            len(side) if queued is None else int((~queued).sum())
            for side, queued in ((self.query, self.query_queue), (self.candidate, self.queue))
        ]
        names = ("query", "query_group", "query_logq"), ("candidate", "candidate_group", "logq")
        cut: dict[str, Any] = {
            each: values[:size]
            for own, size in zip(names, sizes, strict=True)
            for each in own
            if (values := getattr(self, each)) is not None
        }
        if self.shared:
            cut["candidate"] = cut["query"]
        for name in ("names", "pictures"):
            if (pair := getattr(self, name)) is not None:
                cut[name] = tuple(each and each[:size] for each, size in zip(pair, sizes, strict=True))
        return self.unchecked(**cut, queue=None, query_queue=None, marks={}, teacher=None, _kept={})

    def _check_rows(self) -> None:
        """Refuse rows with NaN or infinity."""
        labelled = ("embeddings", "embeddings" if self.shared else "proxies")  # names of the arguments of `labelled`
        names = labelled if self.shared or self.proxies else ("query", "candidate")
        for name, values, norms in zip(names, (self.query, self.candidate), self.norms, strict=True):
            refuse_open_rows(name, values, norms)

    @cached_property
    def _kept(self) -> dict[tuple[object, ...], Any]:
        """Values derived from tensors of these embeddings, by their names and the identities of the tensors."""
        return {}

    def kept(self, name: str, tensors: tuple[Tensor, ...], make: Callable[..., Value]) -> Value:
        """Return `make(*tensors)`, computed once for the same tensors; `flip` and `single` share it.

        Args:
            name: key of the result, with all options that it depends on.
            tensors: of these embeddings.
            make: computes the result.
        """
        key = (name, *map(id, tensors))
        if key not in self._kept:
            self._kept[key] = make(*tensors), tensors  # kept too, so that no other tensor gets its id
        value: Value = self._kept[key][0]
        return value

    @property
    def norms(self) -> tuple[Tensor, Tensor]:
        """Norms of the rows of both sides, (Q,) and (C,), in float32 at least.

        They are inf or 0 where squares leave the range of the dtype; `cocos.scores.length` has the whole range.
        """
        return self._of_rows(self.query)[0], self._of_rows(self.candidate)[0]

    @property
    def projections(self) -> tuple[Tensor, Tensor]:
        """Projections of the rows of both sides on two random lines through their first columns, (Q, 2) and (C, 2).

        Equal rows have equal projections, up to the rounding of a product in float32 at least.
        """
        return self._of_rows(self.query)[1], self._of_rows(self.candidate)[1]

    def _of_rows(self, side: Tensor) -> tuple[Tensor, Tensor]:
        return self.kept("rows", (side,), norms_and_projections)

    @property
    def groups(self) -> Groups:
        """The groups of both sides, numbered and counted."""
        return self.kept("groups", (self.query_group, self.candidate_group), Groups.of)

    def unchanged(self) -> None:
        """Refuse mapped files that were written to since: to be called before and after each pass over the rows."""
        for each in self.mapped:
            each.unchanged()

    def _check_annotations(self) -> None:
        """Check the names, pictures and hard negatives of the rows."""
        for name, read in (("names", annotations.names), ("pictures", annotations.pictures)):
            given = annotations.pair(name, getattr(self, name), self.shared)
            sides = zip(("query", "candidate"), given or (), (self.query, self.candidate), strict=bool(given))
            self._set(**{name: given and tuple(read(f"{name} of {side}", own, len(m)) for side, own, m in sides)})
        if self.shared and (self.negatives is not None or self.candidate_negatives is not None):
            raise InputError(
                "negatives: a labelled set has none of its own: the samples of other classes are negatives"
            )
        query, candidate = self.query_group, self.candidate_group
        negatives = annotations.negatives("negatives", self.negatives, query, candidate, ("query", "candidate"))
        turned = self.candidate_negatives
        turned = annotations.negatives("candidate_negatives", turned, candidate, query, ("candidate", "query"))
        self._set(negatives=negatives, candidate_negatives=turned, notes=tuple(self.notes))
        self._set(marks=marks.each(self.marks, len(self.query), len(self.candidate)))
        if self.teacher is not None:
            sizes = len(self.query), len(self.candidate)
            made = teachers.of(self.teacher, *sizes, self.negatives, (self.query_group, self.candidate_group))
            self._set(teacher=made.to(self.query))

    def marked(self, given: Mapping[str, Any] | None) -> "Embeddings":
        """Give the pairs other marks, by their names: see `cocos.marks.of`; None: no marks."""
        return self.unchecked(marks=marks.each(given, len(self.query), len(self.candidate)))

    def _read_as_labelled(self) -> None:
        """Read sides that are the same rows as a labelled set, if some samples have other positives than themselves."""
        if not (torch.equal(self.query_group, self.candidate_group) and torch.equal(self.query, self.candidate)):
            return
        note = READ_AS_LABELLED if len(self.query_group.unique()) < len(self.query_group) else EACH_ITS_OWN_POSITIVE
        if note == READ_AS_LABELLED:
            if self.negatives is not None or self.candidate_negatives is not None:
                raise InputError(
                    "negatives: query and candidate are the same rows with the same groups, a labelled set, which has "
                    "no negatives of its own; give embeddings=, labels=, or two sides that differ"
                )
            self._set(shared=True, directions=("s2s",))
        if note not in self.notes:
            self._set(notes=(*self.notes, note))
            logger.info("note: %s", note)

    @classmethod
    def labelled(
        cls,
        embeddings: Any,
        labels: Any,
        proxies: Any = None,
        proxy_labels: Any = None,
        proxy_variance: Any = None,
        *,
        names: Any = None,
        pictures: Any = None,
        notes: tuple[str, ...] = (),
        marks: Mapping[str, Any] | None = None,
        queue: Any = None,
    ) -> "Embeddings":
        """Make a labelled set: the positives of a sample are the others of its class, or the proxy of its class.

        Args:
            embeddings: (N, D) samples.
            labels: (N,) class of each sample, whole numbers or text.
            proxies: (P, D) learned class vectors; without them the samples are each other's candidates.
            proxy_labels: (P,) class of each proxy; 0..P-1 when left out. A class may have several proxies.
            proxy_variance: (P, D), where each proxy is the mean of a normal distribution (HIST).
            names: of the samples, one text each; with proxies (of the samples, of the proxies).
            pictures: likewise, as in the class.
            notes: as in the class.
            marks: as in the class; a labelled set has its samples on both sides.
            queue: as in the class, with classes; only without proxies.

        Returns:
            Embeddings with the one direction `s2p` (sample to proxy) or `s2s` (sample to sample).

        Raises:
            InputError: as the class; or a variance without proxies.
        """
        mapped = files_of(embeddings)
        embeddings = matrix("embeddings", embeddings)
        ids = numbered({"labels": labels, "proxy_labels": proxy_labels})
        labels = annotations.groups("labels", ids["labels"], "embeddings", len(embeddings))
        beside = {"names": names, "pictures": pictures, "mapped": mapped, "notes": notes, "marks": marks}
        if proxies is None:
            if proxy_variance is not None:
                raise InputError("proxy_variance is given and proxies are not: a variance belongs to a proxy")
            if queue is not None and not (isinstance(queue, tuple) and len(queue) == 2):
                raise InputError("queue: rows of a labelled set have classes: give queue_group")
            beside["queue"] = queue
            return cls(embeddings, embeddings, labels, labels, directions=("s2s",), shared=True, **beside)
        if queue is not None:
            raise InputError("queue: proxies are candidates of every batch already; leave one of them out")
        mapped += files_of(proxies)
        proxies = matrix("proxies", proxies)
        if proxy_labels is None:
            ids["proxy_labels"] = torch.arange(len(proxies))
        proxy_labels = annotations.groups("proxy_labels", ids["proxy_labels"], "proxies", len(proxies))
        beside |= {"directions": ("s2p",), "candidate_variance": proxy_variance, "mapped": mapped}
        return cls(embeddings, proxies, labels, proxy_labels, **beside)

    def __repr__(self) -> str:
        sizes = f"query={tuple(self.query.shape)}, candidate={tuple(self.candidate.shape)}"
        more = f", with {', '.join(self._names_of_annotations)}" if self._names_of_annotations else ""
        groups = len(self.groups.queries)
        where = f"{self._dtype} on {self.query.device}, {groups} groups, {' and '.join(self.directions)}"
        return f"Embeddings({sizes}, {where}{', shared' if self.shared else ''}{more})"

    @property
    def _dtype(self) -> str:
        return str(self.query.dtype).removeprefix("torch.")

    @property
    def _names_of_annotations(self) -> list[str]:
        """Names of the annotations that rows have."""
        every = ("names", "pictures", "negatives", "teacher", "grades", "queue")
        given = [name for name in every if getattr(self, name) is not None]
        return given + (["marks"] if self.marks else [])

    @property
    def proxies(self) -> bool:
        """Whether candidates are class proxies (direction `s2p`): all of them take part in every batch."""
        return tuple(self.directions) == PROXY_DIRECTIONS[0]

    def flip(self) -> "Embeddings":
        """Swap the sides: candidates ask, queries are ranked. Twice is the identity.

        Raises:
            InputError: candidates are distributions, which cannot ask.
        """
        if self.candidate_variance is not None:
            raise InputError("candidate_variance: candidates that are distributions cannot be queries")
        directions = self.directions[::-1]
        if len(directions) == 1:
            directions = ("2".join(reversed(directions[0].split("2"))),)
        return self.unchecked(
            query=self.candidate,
            candidate=self.query,
            query_group=self.candidate_group,
            candidate_group=self.query_group,
            directions=directions,
            names=self.names and self.names[::-1],
            pictures=self.pictures and self.pictures[::-1],
            negatives=self.candidate_negatives,
            candidate_negatives=self.negatives,
            queue=self.query_queue,
            query_queue=self.queue,
            logq=self.query_logq,
            query_logq=self.logq,
            marks={name: mark.flip() for name, mark in (self.marks or {}).items()},
            teacher=self.teacher and self.teacher.flip(),
        )

    def single(self, direction: str) -> "Embeddings":
        """Keep one direction: the queries alone ask."""
        return self.unchecked(directions=(direction,))

    def truncate(self, dims: int) -> "Embeddings":
        """Keep the first dimensions of every row, which Matryoshka training makes embeddings of their own.

        Args:
            dims: number of dimensions, from 1 to the width of the rows.

        Raises:
            InputError: there are fewer dimensions, or `dims` is below 1.

        Source: Kusupati et al. 2022, Matryoshka Representation Learning, arXiv:2205.13147.

        Examples:
            >>> cocos.Embeddings(torch.eye(4)[:2], torch.eye(4)[2:]).truncate(3).query.shape
            torch.Size([2, 3])
        """
        width = self.query.shape[1]
        check_dims(dims, width)
        query = self.query[:, :dims].contiguous()
        candidate = query if self.candidate is self.query else self.candidate[:, :dims].contiguous()
        variance = self.candidate_variance
        return self.unchecked(
            query=query,
            candidate=candidate,
            candidate_variance=None if variance is None else variance[:, :dims].contiguous(),
            notes=(*self.notes, f"the first {dims} of {width} dimensions of each row"),
            **{"mapped": (), "_kept": {}},
        )

    def with_rows(self, query: Tensor, candidate: Tensor) -> "Embeddings":
        """The same set with other vectors of its rows, without a second check."""
        return self.unchecked(query=query, candidate=candidate)

    def unchecked(self, **values: object) -> "Embeddings":
        """The same set with other values of some fields, without a second check: fields checked once are right."""
        other = object.__new__(Embeddings)
        other.__dict__.update({each.name: getattr(self, each.name) for each in fields(self)}, _kept=self._kept)
        other.__dict__.update(values)
        return other

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Embeddings":
        """Move to another device or dtype; the same object where nothing changes."""
        query = matrix("query", self.query.to(device, dtype))
        if query is self.query:
            return self
        candidate = query if self.candidate is self.query else self.candidate.to(device, dtype)
        values = {"query": query, "candidate": candidate, "mapped": (), "_kept": {}}
        for name in ("query_group", "candidate_group", "negatives", "candidate_negatives", "queue", "query_queue"):
            given = getattr(self, name)
            values[name] = None if given is None else given.to(query.device)
        if self.candidate_variance is not None:
            values["candidate_variance"] = self.candidate_variance.to(query)
        values["teacher"] = self.teacher and self.teacher.to(query)
        for name in ("grades", "logq", "query_logq"):
            values[name] = None if getattr(self, name) is None else getattr(self, name).to(query.device)
        other = self.unchecked(**values)
        if torch.finfo(query.dtype).max < torch.finfo(self.query.dtype).max:
            other._check_rows()
        return other

    def rows(self, query_index: Tensor, candidate_index: Tensor) -> "Embeddings":
        """Select queries and candidates by their row numbers, without a second check."""
        variance = self.candidate_variance
        return self.unchecked(
            query=self.query[query_index],
            candidate=self.candidate[candidate_index],
            query_group=self.query_group[query_index],
            candidate_group=self.candidate_group[candidate_index],
            shared=self.shared and torch.equal(query_index, candidate_index),
            candidate_variance=None if variance is None else variance[candidate_index],
            teacher=self.teacher and self.teacher.rows(query_index, candidate_index),
            grades=None if self.grades is None else self.grades[query_index],
            logq=None if self.logq is None else self.logq[candidate_index],
            query_logq=None if self.query_logq is None else self.query_logq[query_index],
            **dict.fromkeys(("names", "pictures", "negatives", "candidate_negatives", "queue", "query_queue")),
            **{"notes": (), "mapped": (), "marks": {}, "_kept": {}},
        )


def draw(
    source: Embeddings,
    *,
    sample: str = "pairs",
    batch_size: int | str = 128,
    batches: int | None = None,
    per_group: int | None = None,
    seed: int = 0,
    copies: str = "once",
) -> tuple[Any, ...]:
    """Return the row numbers of the batches that every measure draws with these options.

    Args:
        source: the frozen embeddings of the training set.
        sample: `pairs` or `groups`.
        batch_size: at least 2, or `all`.
        batches: their number; None is one pass over the set.
        per_group: with `groups`, candidates of a query or samples of a class.
        seed: of the generator.
        copies: `once` or `keep` repeated candidates of a batch.

    Returns:
        Batches with `query_index` and `candidate_index`, int64.

    Raises:
        InputError: an option out of range, or a query without any positive.

    Examples:
        >>> batches = cocos.embeddings.draw(cocos.Embeddings(torch.eye(4), torch.eye(4) + 1), batch_size=2)
        >>> sorted(torch.cat([batch.query_index for batch in batches]).tolist())
        [0, 1, 2, 3]
    """
    from cocos.embeddings import batches as sampling  # which imports this file

    options: dict[str, Any] = {"sample": sample, "batch_size": batch_size, "batches": batches, "per_group": per_group}
    return tuple(sampling.plan(source, **options, seed=seed, copies=copies).batches)
