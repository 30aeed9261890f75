"""Embeddings: what a frozen model says of its training data, and which rows belong together."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cocos.errors import InputError, rows

__all__ = ["Embeddings"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _matrix(name: str, values) -> Tensor:
    try:
        values = torch.as_tensor(values).detach()
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
    bad = (~values.isfinite()).any(dim=1).nonzero().flatten().tolist()
    if bad:
        raise InputError(f"{name}: NaN or infinity in {rows(bad)} (of {len(values)}); remove or repair them")
    return values


def _groups(name: str, values, side: str, length: int) -> Tensor:
    try:
        values = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: {type(values).__name__}, expected whole numbers, one for each row") from None
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise InputError(f"{name}: dtype {values.dtype}, expected whole numbers (ids of groups or classes)")
    if values.shape != (length,):
        raise InputError(f"{name}: shape {tuple(values.shape)}, expected ({length},): one id for each row of {side}")
    return values.to(torch.int64)


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Query and candidate embeddings; a query's positives are the candidates of its group.

    Args:
        query: (Q, D) floating point, as the frozen encoder returned them.
        candidate: (C, D), same width, dtype and device as `query`.
        query_group: (Q,) whole numbers: the id that a query shares with its positives, or the class of a sample.
        candidate_group: (C,) likewise. Both may be left out where Q == C: row i then matches row i.
        directions: names of the directions to analyse. The first is query -> candidate; a second one is
            candidate -> query. Images that ask for texts are `i2t`, `t2i`. Class proxies and labelled sets have one.
        shared: queries and candidates are the same samples, and a sample is never its own candidate.
        candidate_variance: (C, D) above 0, where each candidate is the mean of a normal distribution (HIST).

    Raises:
        InputError: wrong shape, dtype, width or length; NaN or infinity (the rows are named).
    """

    query: Tensor
    candidate: Tensor
    query_group: Tensor | None = None
    candidate_group: Tensor | None = None
    directions: tuple[str, ...] = ("q2c", "c2q")
    shared: bool = False
    candidate_variance: Tensor | None = None

    def __post_init__(self):
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
            query_group = _groups("query_group", self.query_group, "query", len(query))
            candidate_group = _groups("candidate_group", self.candidate_group, "candidate", len(candidate))
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
        object.__setattr__(self, "query_group", query_group.to(query.device))
        object.__setattr__(self, "candidate_group", candidate_group.to(query.device))
        object.__setattr__(self, "directions", directions)

    @classmethod
    def labelled(cls, embeddings, labels, proxies=None, proxy_labels=None, proxy_variance=None) -> "Embeddings":
        """A labelled set: every sample asks for the others of its class, or for the proxy of its class.

        Args:
            embeddings: (N, D) samples.
            labels: (N,) class of each sample, whole numbers.
            proxies: (P, D) learned class vectors; without them the samples are each other's candidates.
            proxy_labels: (P,) class of each proxy; 0..P-1 when left out. A class may have several proxies.
            proxy_variance: (P, D), where each proxy is the mean of a normal distribution (HIST).

        Returns:
            Embeddings with the one direction `s2p` (sample to proxy) or `s2s` (sample to sample).

        Raises:
            InputError: as the class; or a variance without proxies.
        """
        embeddings = _matrix("embeddings", embeddings)
        labels = _groups("labels", labels, "embeddings", len(embeddings))
        if proxies is None:
            if proxy_variance is not None:
                raise InputError("proxy_variance is given and proxies are not: a variance belongs to a proxy")
            return cls(embeddings, embeddings, labels, labels, directions=("s2s",), shared=True)
        proxies = _matrix("proxies", proxies)
        if proxy_labels is None:
            proxy_labels = torch.arange(len(proxies))
        proxy_labels = _groups("proxy_labels", proxy_labels, "proxies", len(proxies))
        return cls(embeddings, proxies, labels, proxy_labels, directions=("s2p",), candidate_variance=proxy_variance)

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
        return replace(
            self,
            query=self.candidate,
            candidate=self.query,
            query_group=self.candidate_group,
            candidate_group=self.query_group,
            directions=directions,
        )

    def to(self, device=None, dtype=None) -> "Embeddings":
        """The same embeddings on another device or in another dtype."""
        variance = self.candidate_variance
        return replace(
            self,
            query=self.query.to(device, dtype),
            candidate=self.candidate.to(device, dtype),
            candidate_variance=None if variance is None else variance.to(device, dtype),
        )

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
        for name, value in values.items():
            object.__setattr__(part, name, value)
        return part
