"""Embeddings: vectors of a frozen model for its training data, and which rows belong together."""

import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from cocos.base import writing
from cocos.base.errors import InputError, unreachable
from cocos.embeddings import annotations, teachers
from cocos.embeddings import marks as pair_marks
from cocos.embeddings.annotations import EACH_ITS_OWN_POSITIVE, READ_AS_LABELLED, Groups, Pictures, number_texts
from cocos.embeddings.matrices import check_dims, check_finite, check_joint, matrix, norms_and_projections, variances
from cocos.embeddings.teachers import Teacher

logger = logging.getLogger(__name__)
Value = TypeVar("Value")
SIDES = ("query", "candidate")
NO_QUEUE_GROUPS = "the rows of the queue have no groups, so that each of them is a negative of every query"
PROXY_DIRECTIONS = (("s2p",), ("p2s",))  # directions of samples and class proxies, which may be the same rows
# Arrays of a file, of the queries and of the candidates, and fields that a file has no array for.
NAME_ARRAYS, PICTURE_ARRAYS = ("query_name", "candidate_name"), ("query_image", "candidate_image")
GUIDE = ("guide_query", "guide_candidate")
NOT_WRITTEN = ("candidate_negatives", "queue", "query_queue", "candidate_variance")
MAX_NAME = 300  # characters of a name that is written: names are shown, not encoded again
LABELLED_WITHOUT_NEGATIVES = "negatives: a labelled set has none of its own: the samples of other classes are negatives"


@dataclass(frozen=True, eq=False)
class Side:
    """The rows of one side, queries or candidates, and what belongs to each row.

    Args:
        rows: (N, D) floating point, as the frozen encoder returned them.
        group: (N,) int64 ids that the rows share with their positives on the other side.
        names: one text per row.
        pictures: of the rows, uint8 (N, height, width, 3), or N paths.
        negatives: (N, K) own hard negatives, as rows of the other side, -1 for none.
        queue: (N,) bool, rows of a queue, which are the last ones and ask for nothing.
        logq: (N,) log of the probability with which each row is sampled as a candidate.
        variance: (N, D), of rows that are the means of normal distributions.
    """

    rows: Tensor
    group: Tensor
    names: Sequence[str] | None = None
    pictures: Pictures | None = None
    negatives: Tensor | None = None
    queue: Tensor | None = None
    logq: Tensor | None = None
    variance: Tensor | None = None

    def select(self, index: Tensor | slice) -> "Side":
        """Select rows, without names, pictures, hard negatives and queue."""
        logq, variance = (None if values is None else values[index] for values in (self.logq, self.variance))
        return Side(self.rows[index], self.group[index], logq=logq, variance=variance)

    def without_queue(self) -> "Side":
        """Return the side without the rows of a queue."""
        if self.queue is None:
            return self
        size = int((~self.queue).sum())
        names, pictures = (None if values is None else values[:size] for values in (self.names, self.pictures))
        return replace(self.select(slice(size)), names=names, pictures=pictures, negatives=self.negatives)

    def with_rows(self, rows: Tensor) -> "Side":
        """Replace the rows, also by rows of another device or dtype, and move everything else to that device."""
        names = ("group", "negatives", "queue", "logq")
        values = {name: None if getattr(self, name) is None else getattr(self, name).to(rows.device) for name in names}
        variance = None if self.variance is None else self.variance.to(rows)
        return replace(self, rows=rows, variance=variance, **values)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Embeddings:
    """Query and candidate embeddings; the positives of a query are the candidates of its group.

    Args:
        query: (Q, D) floating point, as the frozen encoder returned them.
        candidate: (C, D), same width, dtype and device as `query`.
        query_group: (Q,) integers or text: ids that a query shares with its positives, or classes of samples.
        candidate_group: (C,) likewise. Without both, if Q == C, row i matches row i.
        directions: names of the directions to analyse. The first is query -> candidate, a second one is
            candidate -> query. Class proxies and labelled sets have one.
        shared: queries and candidates are the same samples, and a sample is never its own candidate.
        candidate_variance: (C, D) above 0, if each candidate is the mean of a normal distribution (HIST).
        names: (of the queries, of the candidates), one text per row; either may be None.
        negatives: hard negatives, drawn with their query: (Q, K) rows of the candidates, -1 for none; or vectors,
            (Q, K, D), NaN for none, which become the last candidates, each in a group of its own.
        pictures: (of the queries, of the candidates), each uint8 (N, height, width, 3), or N paths; either may be None.
        candidate_negatives: (C, K) hard negatives of the candidates as queries.
        notes: sentences to report with every result.
        marks: labels of pairs by name, see `cocos.marks.of`.
        teacher: scores of a teacher, (Q, C) or (Q, 1 + K), or rows of both sides, see `cocos.embeddings.teachers.of`.
        grades: (n,) of row i of the queries and row i of the candidates, for losses of graded pairs (CoSENT).
        queue: rows of earlier steps that are candidates of every batch (MoCo, cross-batch memory): rows (K, D), or
            (rows, group (K,)). They become the last candidates, in groups of their own by default. The field is then
            a mask of the candidates, (C,) bool.
        query_queue: likewise for the queries, in the second direction.
        logq: (C,) log of the probability with which each candidate is sampled, at most 0.
        query_logq: (Q,) likewise for the queries, in the second direction.

    Matrices are never copied, and checked once. Sides that are the same rows with the same groups are read as a
    labelled set, with a note, since every query would be its own positive.

    Examples:
        Two queries, and three candidates of which two belong to the first query:

        >>> embeddings = cocos.Embeddings(torch.randn(2, 8), torch.randn(3, 8), [7, 9], [7, 7, 9])
        >>> embeddings.directions, embeddings.flip().directions
        (('q2c', 'c2q'), ('c2q', 'q2c'))
    """

    sides: tuple[Side, Side]
    directions: tuple[str, ...]
    shared: bool
    notes: tuple[str, ...]
    marks: Mapping[str, pair_marks.Mark]
    teacher: Teacher | None
    grades: Tensor | None

    def __init__(
        self,
        query: Any,
        candidate: Any,
        query_group: Any = None,
        candidate_group: Any = None,
        directions: Sequence[str] = ("q2c", "c2q"),
        shared: bool = False,
        candidate_variance: Any = None,
        names: Any = None,
        negatives: Any = None,
        pictures: Any = None,
        candidate_negatives: Any = None,
        notes: Sequence[str] = (),
        marks: Mapping[str, Any] | None = None,
        teacher: Any = None,
        grades: Any = None,
        queue: Any = None,
        query_queue: Any = None,
        logq: Any = None,
        query_logq: Any = None,
    ):
        query, candidate = matrix("query", query), matrix("candidate", candidate)
        check_joint(query, candidate)
        if shared and len(query) != len(candidate):
            lengths = f"{len(query)} query rows and {len(candidate)} candidate rows"
            raise InputError(f"shared: {lengths}, expected the same rows on both sides")
        if shared and (negatives is not None or candidate_negatives is not None):
            raise InputError(LABELLED_WITHOUT_NEGATIVES)
        grades = annotations.grades(grades, len(query), len(candidate))
        queues = read_queue("query_queue", query_queue, query), read_queue("queue", queue, candidate)
        groups, queue_groups = read_groups((query_group, candidate_group), (query, candidate), queues)
        directions, notes = annotations.directions(directions), tuple(notes)
        if candidate_variance is not None:
            candidate_variance = variances(candidate_variance, candidate, len(directions))
        number = len(candidate)
        candidate, negatives = annotations.append_negatives(negatives, query, candidate)
        appended = len(candidate) - number
        groups[1] = torch.cat([groups[1], new_groups(groups, appended).to(groups[1])])
        if not shared:
            names = annotations.pad_with_empty("names", names, appended)
            pictures = annotations.pad_with_empty("pictures", pictures, appended)
        matrices, masks = [query, candidate], [None, None]
        for k, (queue_rows, _) in enumerate(queues):
            if queue_rows is None:
                continue
            if queue_groups[k] is None:
                notes = (*notes, NO_QUEUE_GROUPS)
                queue_groups[k] = new_groups(groups, len(queue_rows))
            longer = torch.cat([matrices[k], queue_rows])
            for side in (0, 1) if shared else (k,):
                masks[side] = torch.arange(len(longer), device=longer.device) >= len(matrices[side])
                groups[side] = torch.cat([groups[side], queue_groups[k].to(groups[side])])
                matrices[side] = longer
        query, candidate = matrices
        query_group, candidate_group = (group.to(query.device) for group in groups)
        names = read_pair("names", names, shared, matrices, annotations.names)
        pictures = read_pair("pictures", pictures, shared, matrices, annotations.pictures)
        negatives = annotations.negatives("negatives", negatives, query_group, candidate_group, SIDES)
        candidate_negatives = annotations.negatives(
            "candidate_negatives", candidate_negatives, candidate_group, query_group, SIDES[::-1]
        )
        query_logq = annotations.logq("query_logq", query_logq, len(query), "query")
        logq = annotations.logq("logq", logq, len(candidate), "candidate")
        if teacher is not None:
            groups = query_group, candidate_group
            teacher = teachers.of(teacher, len(query), len(candidate), negatives, groups).to(query)
        first = Side(query, query_group, names[0], pictures[0], negatives, masks[0], query_logq)
        second = Side(candidate, candidate_group, names[1], pictures[1], candidate_negatives, masks[1], logq)
        sides = first, replace(second, variance=candidate_variance)
        marks = pair_marks.each(marks, len(query), len(candidate))
        vars(self).update(sides=sides, directions=directions, shared=shared, notes=notes, marks=marks)
        vars(self).update(teacher=teacher, grades=grades)
        self._check_rows()
        is_same = torch.equal(query_group, candidate_group) and torch.equal(query, candidate)
        if is_same and not shared and directions not in PROXY_DIRECTIONS:
            self._read_as_labelled()

    query = property(lambda self: self.sides[0].rows, doc="Rows of the queries, (Q, D).")
    candidate = property(lambda self: self.sides[1].rows, doc="Rows of the candidates, (C, D).")
    query_group = property(lambda self: self.sides[0].group, doc="Groups of the queries, (Q,).")
    candidate_group = property(lambda self: self.sides[1].group, doc="Groups of the candidates, (C,).")
    negatives = property(lambda self: self.sides[0].negatives, doc="Hard negatives of the queries, (Q, K).")
    candidate_negatives = property(lambda self: self.sides[1].negatives, doc="The same of the candidates, (C, K).")
    query_queue = property(lambda self: self.sides[0].queue, doc="Queue among the queries, (Q,) bool.")
    queue = property(lambda self: self.sides[1].queue, doc="Queue among the candidates, (C,) bool.")
    query_logq = property(lambda self: self.sides[0].logq, doc="Log of the sampling probability of queries, (Q,).")
    logq = property(lambda self: self.sides[1].logq, doc="Log of the sampling probability of candidates, (C,).")
    candidate_variance = property(lambda self: self.sides[1].variance, doc="Variances of the candidates, (C, D).")

    @property
    def names(self) -> tuple[Sequence[str] | None, Sequence[str] | None] | None:
        """Names of the queries and of the candidates; None without any."""
        names = self.sides[0].names, self.sides[1].names
        return None if names == (None, None) else names

    @property
    def pictures(self) -> tuple[Pictures | None, Pictures | None] | None:
        """Pictures of the queries and of the candidates; None without any."""
        pictures = self.sides[0].pictures, self.sides[1].pictures
        return None if pictures[0] is None and pictures[1] is None else pictures

    @property
    def is_queued(self) -> bool:
        """Whether a side has rows of a queue."""
        return any(side.queue is not None for side in self.sides)

    def without_queue(self) -> "Embeddings":
        """Return the same set without the rows of queues, pair labels and teacher."""
        if not self.is_queued:
            return self
        sides = tuple(side.without_queue() for side in self.sides)
        if self.shared:
            sides = sides[0], replace(sides[1], rows=sides[0].rows)
        return self.unchecked(sides=sides, marks={}, teacher=None, _kept={})

    def _check_rows(self) -> None:
        """Refuse rows with NaN or infinity."""
        labelled = ("embeddings", "embeddings" if self.shared else "proxies")  # names of the arguments of `labelled`
        names = labelled if self.shared or self.proxies else SIDES
        for name, side, norms in zip(names, self.sides, self.norms, strict=True):
            check_finite(name, side.rows, norms)

    @cached_property
    def _kept(self) -> dict[tuple[object, ...], Any]:
        """Values derived from tensors of these embeddings, by their names and the identities of the tensors."""
        return {}

    def kept(self, name: str, tensors: tuple[Tensor, ...], make: Callable[..., Value]) -> Value:
        """Return `make(*tensors)`, computed once for the same tensors; `flip` and `single` share it.

        `name` is the key of the result, with all options that it depends on.
        """
        key = (name, *map(id, tensors))
        if key not in self._kept:
            self._kept[key] = make(*tensors), tensors  # with the tensors, so that their ids are not reused
        return self._kept[key][0]

    @property
    def norms(self) -> tuple[Tensor, Tensor]:
        """Norms of the rows of both sides, (Q,) and (C,), in float32 at least.

        They are inf or 0 where squares leave the range of the dtype; `cocos.similarities.length` has the whole range.
        """
        return self._norms_and_projections(0)[0], self._norms_and_projections(1)[0]

    @property
    def projections(self) -> tuple[Tensor, Tensor]:
        """Projections of the rows of both sides on two random lines through their first columns, (Q, 2) and (C, 2).

        Equal rows have equal projections, up to the rounding of a product in float32 at least.
        """
        return self._norms_and_projections(0)[1], self._norms_and_projections(1)[1]

    def _norms_and_projections(self, side: int) -> tuple[Tensor, Tensor]:
        return self.kept("rows", (self.sides[side].rows,), norms_and_projections)

    @property
    def groups(self) -> Groups:
        """The groups of both sides, numbered and counted."""
        return self.kept("groups", (self.query_group, self.candidate_group), Groups.number)

    def marked(self, labels: Mapping[str, Any] | None) -> "Embeddings":
        """Return the same set with other pair labels, by their names: see `cocos.marks.of`; None: no labels."""
        return self.unchecked(marks=pair_marks.each(labels, len(self.query), len(self.candidate)))

    def _read_as_labelled(self) -> None:
        """Read equal sides as a labelled set, if some samples have other positives than themselves."""
        note = READ_AS_LABELLED if len(self.query_group.unique()) < len(self.query_group) else EACH_ITS_OWN_POSITIVE
        if note == READ_AS_LABELLED:
            if self.negatives is not None or self.candidate_negatives is not None:
                raise InputError(LABELLED_WITHOUT_NEGATIVES)
            vars(self).update(shared=True, directions=("s2s",))
        if note not in self.notes:
            vars(self).update(notes=(*self.notes, note))
            logger.info("note: %s", note)

    @classmethod
    def from_sides(
        cls, query: Side, candidate: Side, *, teacher: Teacher | None = None, grades: Tensor | None = None
    ) -> "Embeddings":
        """Return the embeddings of two sides without any check, such as rows that autograd follows."""
        embeddings = object.__new__(cls)
        vars(embeddings).update(sides=(query, candidate), directions=("q2c", "c2q"), shared=False, notes=())
        vars(embeddings).update(marks={}, teacher=teacher, grades=grades)
        return embeddings

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
        """Make a labelled set: the positives of a sample are the others of its class, or the proxies of its class.

        Args:
            embeddings: (N, D) samples.
            labels: (N,) class of each sample, integers or text.
            proxies: (P, D) learned class vectors; without them the samples are each other's candidates.
            proxy_labels: (P,) class of each proxy; 0..P-1 by default. A class may have several proxies.
            proxy_variance: (P, D), if each proxy is the mean of a normal distribution (HIST).
            names: of the samples; with proxies (of the samples, of the proxies).
            pictures: likewise.
            notes: as in the class.
            marks: as in the class.
            queue: (rows, classes) of earlier steps; only without proxies.

        Returns:
            Embeddings with the one direction `s2p` (sample to proxy) or `s2s` (sample to sample).
        """
        if proxies is None and proxy_variance is not None:
            raise InputError("proxy_variance is given and proxies are not: a variance belongs to a proxy")
        if proxies is not None and queue is not None:
            raise InputError("queue: proxies are candidates of every batch already; leave one of them out")
        if queue is not None and not (isinstance(queue, tuple) and len(queue) == 2):
            raise InputError("queue: rows of a labelled set have classes: give queue_group")
        embeddings = matrix("embeddings", embeddings)
        ids = number_texts({"labels": labels, "proxy_labels": proxy_labels})
        labels = annotations.groups("labels", ids["labels"], "embeddings", len(embeddings))
        options = {"names": names, "pictures": pictures, "notes": notes, "marks": marks}
        if proxies is None:
            return cls(embeddings, embeddings, labels, labels, ("s2s",), shared=True, queue=queue, **options)
        proxies = matrix("proxies", proxies)
        proxy_ids = torch.arange(len(proxies)) if proxy_labels is None else ids["proxy_labels"]
        proxy_labels = annotations.groups("proxy_labels", proxy_ids, "proxies", len(proxies))
        return cls(embeddings, proxies, labels, proxy_labels, ("s2p",), candidate_variance=proxy_variance, **options)

    def save(self, path: Path | str, provenance: Mapping[str, Any] | None = None) -> Path:
        """Write to an `.npz` file that `cocos.open` reads, whole or not at all.

        Names are cut to 300 characters. Pictures in files are paths, and left out if one is not below the folder of
        the file. `provenance` is JSON data on the origin of the rows.

        Raises:
            InputError: the path cannot be written, or queues, pair labels, variances or hard negatives of the
                candidates, which such a file has no array for.
        """
        path = Path(path)
        if path.suffix != ".npz":
            raise InputError(f"output {path}: suffix {path.suffix!r}, expected .npz")
        dtype = torch.float32 if self.query.dtype == torch.bfloat16 else None  # NumPy has no bfloat16
        missing = [name for name in NOT_WRITTEN if getattr(self, name) is not None]
        if missing := missing + ["marks"] * bool(self.marks):
            raise InputError(f"output {path}: a file of embeddings has no array for {', '.join(missing)}")
        embeddings = self.to("cpu", dtype)
        query, candidate = embeddings.sides
        if self.shared or self.proxies:
            arrays: dict[str, Any] = {"embeddings": query.rows, "labels": query.group}
            arrays |= {"proxies": candidate.rows, "proxy_labels": candidate.group} if self.proxies else {}
        else:
            teacher = embeddings.teacher or Teacher()
            arrays = {"query": query.rows, "candidate": candidate.rows, "negatives": query.negatives}
            arrays["directions"] = np.array(self.directions)
            arrays |= {"query_group": query.group, "candidate_group": candidate.group, "grades": embeddings.grades}
            arrays |= {"teacher": teacher.matrix} | dict(zip(GUIDE, teacher.guide or (), strict=False))
            arrays |= {"logq": candidate.logq, "query_logq": query.logq}
        arrays = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
        folder, sides = path.parent.absolute(), (query,) if self.shared else (query, candidate)
        for side, name, picture in zip(sides, NAME_ARRAYS, PICTURE_ARRAYS, strict=False):
            if side.names is not None:
                short = (text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…" for text in side.names)
                arrays[name] = np.array([text.encode() for text in short])
            if isinstance(side.pictures, np.ndarray):
                arrays[picture] = side.pictures
            elif side.pictures is not None:
                paths = [Path(path).absolute() if path else None for path in side.pictures]
                if all(path is None or path.is_relative_to(folder) for path in paths):
                    arrays[picture] = np.array([path.relative_to(folder).as_posix() if path else "" for path in paths])
        try:
            with writing.replacing(path) as temporary:
                np.savez(temporary, **arrays, provenance=json.dumps(provenance or {}, allow_nan=False))
        except OSError as error:
            raise InputError(f"output {path}: cannot be written ({unreachable(error)})") from None
        return path

    def __repr__(self) -> str:
        sizes = f"query={tuple(self.query.shape)}, candidate={tuple(self.candidate.shape)}"
        dtype = str(self.query.dtype).removeprefix("torch.")
        return f"Embeddings({sizes}, {dtype} on {self.query.device}, {' and '.join(self.directions)})"

    @property
    def proxies(self) -> bool:
        """Whether candidates are class proxies (direction `s2p`), which take part in every batch."""
        return self.directions == PROXY_DIRECTIONS[0]

    def flip(self) -> "Embeddings":
        """Swap the sides. Twice is the identity.

        Raises:
            InputError: candidates are distributions, which cannot be queries.
        """
        if self.candidate_variance is not None:
            raise InputError("candidate_variance: candidates that are distributions cannot be queries")
        directions = self.directions[::-1]
        if len(directions) == 1:
            directions = ("2".join(reversed(directions[0].split("2"))),)
        return self.unchecked(
            sides=self.sides[::-1],
            directions=directions,
            marks={name: mark.flip() for name, mark in self.marks.items()},
            teacher=self.teacher and self.teacher.flip(),
        )

    def single(self, direction: str) -> "Embeddings":
        """Keep the first direction, with a name."""
        return self.unchecked(directions=(direction,))

    def truncate(self, dims: int) -> "Embeddings":
        """Keep the first dimensions of every row (Matryoshka, Kusupati et al. 2022, arXiv:2205.13147).

        Examples:
            >>> cocos.Embeddings(torch.eye(4)[:2], torch.eye(4)[2:]).truncate(3).query.shape
            torch.Size([2, 3])
        """
        width = self.query.shape[1]
        check_dims(dims, width)
        query = self.query[:, :dims].contiguous()
        candidate = query if self.candidate is self.query else self.candidate[:, :dims].contiguous()
        first, second = self.sides[0].with_rows(query), self.sides[1].with_rows(candidate)
        if second.variance is not None:
            second = replace(second, variance=second.variance[:, :dims].contiguous())
        notes = (*self.notes, f"the first {dims} of {width} dimensions of each row")
        return self.unchecked(sides=(first, second), notes=notes, _kept={})

    def with_rows(self, query: Tensor, candidate: Tensor) -> "Embeddings":
        """Replace the rows, without a second check."""
        return self.unchecked(sides=(self.sides[0].with_rows(query), self.sides[1].with_rows(candidate)))

    def unchecked(self, **values: object) -> "Embeddings":
        """Replace fields, without a second check; derived values stay cached."""
        embeddings = object.__new__(Embeddings)
        vars(embeddings).update(vars(self), _kept=self._kept)
        vars(embeddings).update(values)
        return embeddings

    def replace(self, **values: Any) -> "Embeddings":
        """Return the embeddings of the same arguments with other values of some, checked again."""
        return Embeddings(**{name: getattr(self, name) for name in inspect.signature(Embeddings).parameters} | values)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Embeddings":
        """Move to another device or dtype; the same object if nothing changes."""
        query = matrix("query", self.query.to(device, dtype))
        if query is self.query:
            return self
        candidate = query if self.candidate is self.query else self.candidate.to(device, dtype)
        moved = self.with_rows(query, candidate).unchecked(
            teacher=self.teacher and self.teacher.to(query),
            grades=None if self.grades is None else self.grades.to(query.device),
            _kept={},
        )
        if torch.finfo(query.dtype).max < torch.finfo(self.query.dtype).max:
            moved._check_rows()
        return moved

    def rows(self, query_index: Tensor, candidate_index: Tensor) -> "Embeddings":
        """Select queries and candidates by their row numbers, without a second check."""
        return self.unchecked(
            sides=(self.sides[0].select(query_index), self.sides[1].select(candidate_index)),
            shared=self.shared and torch.equal(query_index, candidate_index),
            teacher=self.teacher and self.teacher.rows(query_index, candidate_index),
            grades=None if self.grades is None else self.grades[query_index],
            notes=(),
            marks={},
            _kept={},
        )


def read_pair(
    name: str, values: Any, shared: bool, sides: Sequence[Tensor], read: Callable[[str, Any, int], Any]
) -> tuple[Any, Any]:
    """Check the names or the pictures of both sides; (None, None) without any."""
    first, second = annotations.pair(name, values, shared)
    return read(f"{name} of query", first, len(sides[0])), read(f"{name} of candidate", second, len(sides[1]))


def new_groups(groups: Sequence[Tensor], number: int) -> Tensor:
    """Return that many ids above all ids of both sides."""
    return max(int(ids.max()) for ids in groups) + 1 + torch.arange(number)


def read_queue(name: str, queue: Any, side: Tensor) -> tuple[Tensor | None, Any]:
    """Return the rows (K, D) of a queue and their ids, either of which may be None."""
    vectors, group = queue if isinstance(queue, tuple) and len(queue) == 2 else (queue, None)
    if vectors is None:
        return None, None
    vectors = matrix(name, vectors)
    if vectors.shape[1] != side.shape[1]:
        raise InputError(f"{name}: shape {tuple(vectors.shape)}, expected floating point (K, {side.shape[1]})")
    return vectors.to(side), group


def read_groups(
    groups: Sequence[Any], sides: Sequence[Tensor], queues: Sequence[tuple[Tensor | None, Any]]
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Return the ids of the rows of both sides, and of their queues, None for a queue without groups.

    Texts are numbered together.
    """
    (first, first_ids), (second, second_ids) = queues
    if first_ids is not None or second_ids is not None:
        groups = [torch.arange(len(side)) if ids is None else ids for ids, side in zip(groups, sides, strict=True)]
    ids = dict(zip(("query_group", "candidate_group"), groups, strict=True))
    ids = number_texts(ids | {"query_queue_group": first_ids, "queue_group": second_ids})
    row_groups = annotations.both_groups(ids["query_group"], ids["candidate_group"], *map(len, sides))
    queue_groups = [
        None if ids[name] is None else annotations.groups(name, ids[name], "the queue", len(rows))
        for name, rows in (("query_queue_group", first), ("queue_group", second))
    ]
    return list(row_groups), queue_groups
