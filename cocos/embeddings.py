"""Embeddings: what a frozen model says of its training data, and which rows belong together."""

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cocos import annotations
from cocos.annotations import Pictures, numbered
from cocos.errors import InputError, rows

__all__ = ["Embeddings", "Groups", "Mapped"]

SAME = (
    "query and candidate are the same rows with the same groups: read as a labelled set, in which no sample is its own "
    "candidate (embeddings=, labels= say so)"
)
OWN = (
    "query and candidate are the same rows, and no two of them share a group: each is the only positive of itself "
    "(embeddings=, labels= are for a labelled set)"
)
PROXIES = (("s2p",), ("p2s",))  # directions of samples and class proxies, which may be the same rows
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Entries of a matrix that are read at once, and stay in the cache until all is known of them.
PIECE = 2**18
COLUMNS = 32  # leading columns that the lines of `Embeddings.places` run through


@dataclass(frozen=True)
class Mapped:
    """A file that rows are mapped from: nothing of it is copied, so it must stay as it is.

    Args:
        path: of the file.
        size: bytes, when it was mapped.
        time: of its last change, in nanoseconds since 1970.
    """

    path: Path
    size: int
    time: int

    @classmethod
    def of(cls, path) -> "Mapped":
        """The file as it is now."""
        found = os.stat(path)
        return cls(Path(path), found.st_size, found.st_mtime_ns)

    def unchanged(self) -> None:
        """Refuse a file that was written to since it was mapped.

        Raises:
            InputError: naming it.
        """
        try:
            same = Mapped.of(self.path) == self
        except OSError:
            same = False
        if not same:
            raise InputError(f"{self.path} changed while it was read; wait until it is written, and try again")


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of both sides as numbers 0 to G - 1 in ascending order of their ids, on the CPU.

    Args:
        query: (Q,) int64.
        candidate: (C,) int64.
        queries: (G,) queries of each group.
        candidates: (G,) candidates of each.
    """

    query: Tensor
    candidate: Tensor
    queries: Tensor
    candidates: Tensor

    @classmethod
    def of(cls, query: Tensor, candidate: Tensor) -> "Groups":
        """Number the ids of both sides: counted where they are dense, sorted where they are not."""
        ids = torch.cat([query, candidate]).cpu()
        low, high = (int(each) for each in ids.aminmax())
        if high - low < 4 * len(ids):
            ids = ids - low if low else ids
            there = torch.bincount(ids) > 0
            ids = ids if there.all() else (there.cumsum(0) - 1)[ids]
        else:
            ids = ids.unique(return_inverse=True)[1]
        sides, number = ids.split([len(query), len(candidate)]), int(ids.max()) + 1
        return cls(*sides, *(torch.bincount(side, minlength=number) for side in sides))

    @property
    def single(self) -> bool:
        """No group has two rows of one side."""
        return int(self.queries.max()) < 2 and int(self.candidates.max()) < 2


def _tensor(values) -> Tensor:
    """Values as a tensor, without a copy and without a word on maps that cannot be written to: nothing writes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        found = torch.as_tensor(values)
    return found.detach() if found.requires_grad else found


def _read(values: Tensor) -> tuple[Tensor, Tensor]:
    """What one pass over the rows tells: their norms, (N,), and their places on two lines, (N, 2); see `Embeddings`."""
    wide, columns = torch.promote_types(values.dtype, torch.float32), min(COLUMNS, values.shape[1])
    lines = torch.randn(columns, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lines = (lines / lines.norm(dim=0)).to(values.device, wide)
    norms, places = torch.empty(len(values), dtype=wide), torch.empty(len(values), 2, dtype=wide)
    norms, places = norms.to(values.device), places.to(values.device)
    step = max(1, PIECE // values.shape[1])
    for start in range(0, len(values), step):
        some = slice(start, start + step)
        part = values[some].to(wide)
        torch.linalg.vector_norm(part, dim=1, out=norms[some])
        torch.mm(part[:, :columns], lines, out=places[some])
    return norms, places


def _matrix(name: str, values) -> Tensor:
    """A matrix of the right form; whether its entries are finite, `_finite` tells.

    Raises:
        InputError: wrong shape or dtype.
    """
    try:
        values = _tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: {type(values).__name__}, expected a tensor or an array of numbers") from None
    if values.layout != torch.strided or values.is_meta:
        raise InputError(f"{name}: a {'meta' if values.is_meta else 'sparse'} tensor, expected a dense one with values")
    if values.ndim != 2:
        raise InputError(f"{name}: shape {tuple(values.shape)}, expected two dimensions (rows, width)")
    if 0 in values.shape:
        raise InputError(f"{name}: shape {tuple(values.shape)} holds no embedding")
    if values.dtype not in FLOATS:
        raise InputError(f"{name}: dtype {values.dtype}, expected a floating-point dtype of 16, 32 or 64 bits")
    return values


def _finite(name: str, values: Tensor, norms: Tensor) -> None:
    """Refuse rows that hold NaN or infinity: their norms are not finite, so only such rows are looked at.

    Raises:
        InputError: naming the rows.
    """
    open_ = (~norms.isfinite()).nonzero().flatten()
    if len(open_):
        bad = open_[(~values[open_].isfinite()).any(dim=1)].tolist()
        if bad:
            raise InputError(f"{name}: NaN or infinity in {rows(bad)} (of {len(values)}); remove or repair them")


def _mapped(values) -> list[Mapped]:
    """The file that an array, or the array that it is a part of, is mapped from."""
    while isinstance(values, np.ndarray):
        if isinstance(values, np.memmap) and values.filename is not None:
            return [Mapped.of(values.filename)]
        values = values.base
    return []


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Query and candidate embeddings; a query's positives are the candidates of its group.

    Args:
        query: (Q, D) floating point, as the frozen encoder returned them.
        candidate: (C, D), same width, dtype and device as `query`.
        query_group: (Q,) whole numbers or text: what a query shares with its positives, or the class of a sample.
        candidate_group: (C,) likewise. Both may be left out where Q == C: row i then matches row i.
        directions: names of the directions to analyse. The first is query -> candidate; a second one is
            candidate -> query. Images that ask for texts are `i2t`, `t2i`. Class proxies and labelled sets have one.
        shared: queries and candidates are the same samples, and a sample is never its own candidate.
        candidate_variance: (C, D) above 0, where each candidate is the mean of a normal distribution (HIST).
        names: what the rows are called, (of the queries, of the candidates), one text a row; either may be None.
        negatives: (Q, K) rows of the candidates that are drawn with a query as its own hard negatives, -1 for none.
        pictures: of the rows, (of the queries, of the candidates), each uint8 (N, height, width, 3), or N paths that
            are read when a picture is drawn; either may be None.
        candidate_negatives: (C, K), the same of the candidates where they ask: what `flip` makes of `negatives`.
        notes: what the reader of the numbers should know of these embeddings.
        mapped: files that the rows are mapped from; a `numpy.memmap` names its own file. `unchanged`
            compares them.

    Matrices are never copied, and checked once, in one pass that also takes the norms of their rows. Sides that are the
    same rows with the same groups are read as a labelled set, with a note: every query would be its own positive.

    Raises:
        InputError: wrong shape, dtype, width or length; NaN or infinity (the rows are named); ids above 2^63 - 1; text
            among numbers; a negative that is a positive of its query.

    Examples:
        Two queries, and three candidates of which two belong to the first query:

        >>> import cocos, torch
        >>> embeddings = cocos.Embeddings(torch.randn(2, 8), torch.randn(3, 8), [7, 9], [7, 7, 9])
        >>> embeddings.directions
        ('q2c', 'c2q')
        >>> embeddings.flip().directions
        ('c2q', 'q2c')
    """

    query: Tensor
    candidate: Tensor
    query_group: Tensor | None = None
    candidate_group: Tensor | None = None
    directions: tuple[str, ...] = ("q2c", "c2q")
    shared: bool = False
    candidate_variance: Tensor | None = None
    names: tuple[Sequence[str] | None, Sequence[str] | None] | None = None
    negatives: Tensor | None = None
    pictures: tuple[Pictures | None, Pictures | None] | None = None
    candidate_negatives: Tensor | None = None
    notes: tuple[str, ...] = ()
    mapped: tuple[Mapped, ...] = ()

    def __post_init__(self):
        found = [each for side in (self.query, self.candidate) for each in _mapped(side)]
        object.__setattr__(self, "mapped", tuple(dict.fromkeys((*self.mapped, *found))))
        query, candidate = _matrix("query", self.query), _matrix("candidate", self.candidate)
        if query.shape[1] != candidate.shape[1]:
            raise InputError(
                f"query has width {query.shape[1]} and candidate has width {candidate.shape[1]}: "
                "both sides must come from one joint space"
            )
        if query.dtype != candidate.dtype or query.device != candidate.device:
            raise InputError(
                f"query is {query.dtype} on {query.device} and candidate is {candidate.dtype} on "
                f"{candidate.device}: give both the same dtype and device"
            )
        if (self.query_group is None) != (self.candidate_group is None):
            missing = "query_group" if self.query_group is None else "candidate_group"
            raise InputError(f"{missing} is missing: give the groups of both sides, or of neither")
        if self.query_group is None:
            if len(query) != len(candidate):
                raise InputError(
                    f"{len(query)} query rows, {len(candidate)} candidate rows and no groups: rows can only match "
                    "one to one; give query_group and candidate_group"
                )
            query_group = candidate_group = torch.arange(len(query))
        else:
            ids = numbered({"query_group": self.query_group, "candidate_group": self.candidate_group})
            query_group = annotations.groups("query_group", ids["query_group"], "query", len(query))
            candidate_group = annotations.groups("candidate_group", ids["candidate_group"], "candidate", len(candidate))
        directions = tuple(self.directions)
        named = all(isinstance(name, str) and name.strip() and name.isprintable() for name in directions)
        if not named or len(directions) not in {1, 2} or len(set(directions)) != len(directions):
            raise InputError(f"directions: {directions}, expected one name or two different ones, like q2c and c2q")
        if self.shared and len(query) != len(candidate):
            raise InputError(
                f"shared: {len(query)} query rows and {len(candidate)} candidate rows are not the same set"
            )
        if self.candidate_variance is not None:
            variance = _matrix("candidate_variance", self.candidate_variance)
            _finite("candidate_variance", variance, _read(variance)[0])
            if variance.shape != candidate.shape or not (variance > 0).all():
                raise InputError(
                    f"candidate_variance: shape {tuple(variance.shape)} and smallest value {variance.min().item():g}, "
                    f"expected values above 0 in the shape of candidate, {tuple(candidate.shape)}"
                )
            if len(directions) > 1:
                raise InputError("candidate_variance: only candidates have it, so there is one direction, like s2p")
            object.__setattr__(self, "candidate_variance", variance.to(candidate))
        object.__setattr__(self, "query", query)
        object.__setattr__(self, "candidate", candidate)
        self._check_rows()
        object.__setattr__(self, "query_group", query_group.to(query.device))
        object.__setattr__(self, "candidate_group", candidate_group.to(query.device))
        object.__setattr__(self, "directions", directions)
        self._beside()
        if not self.shared and directions not in PROXIES and self._same():
            self._read_as_labelled()

    def _check_rows(self) -> None:
        """Refuse rows with NaN or infinity.

        Raises:
            InputError: naming them.
        """
        names = ("query", "candidate")
        if self.shared or tuple(self.directions) == PROXIES[0]:
            names = ("embeddings", "embeddings" if self.shared else "proxies")  # as `labelled` calls them
        for name, values, norms in zip(names, (self.query, self.candidate), self.norms, strict=True):
            _finite(name, values, norms)

    @cached_property
    def _kept(self) -> dict:
        """What was derived from tensors of these embeddings, by its name and theirs."""
        return {}

    def kept(self, name: str, tensors: tuple[Tensor, ...], make: Callable):
        """What `make(*tensors)` gives, made once for the same tensors; shared with what `flip` and `single` give.

        Args:
            name: key of the result, with all options that it depends on.
            tensors: of these embeddings.
            make: makes it.
        """
        key = (name, *map(id, tensors))
        if key not in self._kept:
            self._kept[key] = make(*tensors), tensors  # held, so that no other tensor has its id
        return self._kept[key][0]

    @property
    def norms(self) -> tuple[Tensor, Tensor]:
        """Norms of the rows of both sides, (Q,) and (C,), in float32 at least.

        They are inf or 0 where squares leave the range of the dtype; `cocos.scores.length` has the whole range.
        """
        return tuple(self.kept("rows", (side,), _read)[0] for side in (self.query, self.candidate))

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """Where the rows of both sides stand on two random lines through their first columns, (Q, 2) and (C, 2).

        Equal rows stand at equal places, up to the rounding of a product in float32 at least.
        """
        return tuple(self.kept("rows", (side,), _read)[1] for side in (self.query, self.candidate))

    @property
    def groups(self) -> Groups:
        """The groups of both sides, numbered and counted."""
        return self.kept("groups", (self.query_group, self.candidate_group), Groups.of)

    def unchanged(self) -> None:
        """Refuse mapped files that were written to since: to be called before and after each pass over the rows.

        Raises:
            InputError: naming one.
        """
        for each in self.mapped:
            each.unchanged()

    def _beside(self) -> None:
        """Check what the rows carry: names, pictures, hard negatives.

        Raises:
            InputError: negatives of a labelled set.
        """
        for name, read in (("names", annotations.names), ("pictures", annotations.pictures)):
            given = annotations.pair(name, getattr(self, name), self.shared)
            if given is not None:
                sides = zip(("query", "candidate"), given, (self.query, self.candidate), strict=True)
                given = tuple(read(f"{name} of {side}", values, len(matrix)) for side, values, matrix in sides)
            object.__setattr__(self, name, given)
        if self.shared and (self.negatives is not None or self.candidate_negatives is not None):
            raise InputError(
                "negatives: a labelled set has none of its own: the samples of other classes are negatives"
            )
        groups, sides = (self.query_group, self.candidate_group), ("query", "candidate")
        negatives = annotations.negatives("negatives", self.negatives, *groups, sides)
        turned = annotations.negatives("candidate_negatives", self.candidate_negatives, *groups[::-1], sides[::-1])
        object.__setattr__(self, "negatives", negatives)
        object.__setattr__(self, "candidate_negatives", turned)
        object.__setattr__(self, "notes", tuple(self.notes))

    def _same(self) -> bool:
        """Both sides are the same rows, with the same groups."""
        groups = torch.equal(self.query_group, self.candidate_group)
        return groups and torch.equal(self.query, self.candidate)

    def _read_as_labelled(self) -> None:
        """A sample among its own candidates is its own positive: where it has others, the set is a labelled one.

        Raises:
            InputError: it names negatives, which a labelled set has none of.
        """
        note = SAME if len(self.query_group.unique()) < len(self.query_group) else OWN
        if note == SAME:
            if self.negatives is not None or self.candidate_negatives is not None:
                raise InputError(
                    "negatives: query and candidate are the same rows with the same groups, a labelled set, which has "
                    "no negatives of its own; give embeddings=, labels=, or two sides that differ"
                )
            object.__setattr__(self, "shared", True)
            object.__setattr__(self, "directions", ("s2s",))
        if note not in self.notes:
            object.__setattr__(self, "notes", (*self.notes, note))

    @classmethod
    def labelled(
        cls,
        embeddings,
        labels,
        proxies=None,
        proxy_labels=None,
        proxy_variance=None,
        *,
        names=None,
        pictures=None,
    ) -> "Embeddings":
        """A labelled set: every sample asks for the others of its class, or for the proxy of its class.

        Args:
            embeddings: (N, D) samples.
            labels: (N,) class of each sample, whole numbers or text.
            proxies: (P, D) learned class vectors; without them the samples are each other's candidates.
            proxy_labels: (P,) class of each proxy; 0..P-1 when left out. A class may have several proxies.
            proxy_variance: (P, D), where each proxy is the mean of a normal distribution (HIST).
            names: of the samples, one text each; with proxies (of the samples, of the proxies).
            pictures: likewise, as in the class.

        Returns:
            Embeddings with the one direction `s2p` (sample to proxy) or `s2s` (sample to sample).

        Raises:
            InputError: as the class; or a variance without proxies.
        """
        mapped = _mapped(embeddings)
        embeddings = _matrix("embeddings", embeddings)
        ids = numbered({"labels": labels, "proxy_labels": proxy_labels})
        labels = annotations.groups("labels", ids["labels"], "embeddings", len(embeddings))
        beside = {"names": names, "pictures": pictures, "mapped": tuple(mapped)}
        if proxies is None:
            if proxy_variance is not None:
                raise InputError("proxy_variance is given and proxies are not: a variance belongs to a proxy")
            return cls(embeddings, embeddings, labels, labels, directions=("s2s",), shared=True, **beside)
        mapped += _mapped(proxies)
        proxies = _matrix("proxies", proxies)
        if proxy_labels is None:
            ids["proxy_labels"] = torch.arange(len(proxies))
        proxy_labels = annotations.groups("proxy_labels", ids["proxy_labels"], "proxies", len(proxies))
        beside |= {"directions": ("s2p",), "candidate_variance": proxy_variance, "mapped": tuple(mapped)}
        return cls(embeddings, proxies, labels, proxy_labels, **beside)

    def __repr__(self):
        dtype = str(self.query.dtype).removeprefix("torch.")
        sizes = f"query={tuple(self.query.shape)}, candidate={tuple(self.candidate.shape)}"
        groups = len(torch.cat([self.query_group, self.candidate_group]).unique())
        beside = [name for name in ("names", "pictures", "negatives") if getattr(self, name) is not None]
        more = f", with {', '.join(beside)}" if beside else ""
        where = f"{dtype} on {self.query.device}, {groups} groups, {' and '.join(self.directions)}"
        return f"Embeddings({sizes}, {where}{', shared' if self.shared else ''}{more})"

    @property
    def proxies(self) -> bool:
        """Candidates are class proxies (direction `s2p`): all of them take part in every batch."""
        return self.directions == ("s2p",)

    def flip(self) -> "Embeddings":
        """The other direction: candidates ask, queries are ranked. Twice is the identity.

        Raises:
            InputError: candidates are distributions, which cannot ask.
        """
        if self.candidate_variance is not None:
            raise InputError("candidate_variance: candidates that are distributions cannot be queries")
        if len(self.directions) == 1:
            directions = ("2".join(reversed(self.directions[0].split("2"))),)
        else:
            directions = self.directions[::-1]
        return self._alike({
            "query": self.candidate,
            "candidate": self.query,
            "query_group": self.candidate_group,
            "candidate_group": self.query_group,
            "directions": directions,
            "names": self.names and self.names[::-1],
            "pictures": self.pictures and self.pictures[::-1],
            "negatives": self.candidate_negatives,
            "candidate_negatives": self.negatives,
        })

    def single(self, direction: str) -> "Embeddings":
        """The same rows, of which the queries alone ask.

        Args:
            direction: name of the only direction.
        """
        return self._alike({"directions": (direction,)})

    def _alike(self, values: dict) -> "Embeddings":
        """The same but for some fields, without a second look: what was checked once is right."""
        other = object.__new__(Embeddings)
        other.__dict__.update({each.name: getattr(self, each.name) for each in fields(self)}, _kept=self._kept)
        other.__dict__.update(values)
        return other

    def to(self, device=None, dtype=None) -> "Embeddings":
        """The same embeddings on another device or in another dtype; themselves where nothing changes.

        Raises:
            InputError: a narrower dtype does not hold them.
        """
        query = _matrix("query", self.query.to(device, dtype))
        if query is self.query:
            return self
        candidate = query if self.candidate is self.query else self.candidate.to(device, dtype)
        values = {"query": query, "candidate": candidate, "mapped": (), "_kept": {}}
        for name in ("query_group", "candidate_group", "negatives", "candidate_negatives"):
            given = getattr(self, name)
            values[name] = None if given is None else given.to(query.device)
        if self.candidate_variance is not None:
            values["candidate_variance"] = self.candidate_variance.to(query)
        other = self._alike(values)
        if torch.finfo(query.dtype).max < torch.finfo(self.query.dtype).max:
            other._check_rows()
        return other

    def rows(self, query_index: Tensor, candidate_index: Tensor) -> "Embeddings":
        """Some queries and candidates, by their row numbers; not checked again."""
        part = object.__new__(Embeddings)
        variance = self.candidate_variance
        values = {
            "query": self.query[query_index],
            "candidate": self.candidate[candidate_index],
            "query_group": self.query_group[query_index],
            "candidate_group": self.candidate_group[candidate_index],
            "directions": self.directions,
            "shared": self.shared and torch.equal(query_index, candidate_index),
            "candidate_variance": None if variance is None else variance[candidate_index],
        }
        values |= {"names": None, "negatives": None, "pictures": None, "candidate_negatives": None, "notes": ()}
        for name, value in values.items():
            object.__setattr__(part, name, value)
        return part
