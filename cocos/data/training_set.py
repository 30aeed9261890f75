"""Training data as an encoder reads them, and the texts and pictures by which people recognise their rows."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError, nearest, prefixed
from cocos.embeddings import Embeddings, annotations
from cocos.embeddings.annotations import Picture, Pictures

KINDS = ("text", "image", "features")  # kinds of rows that encoders read
HASHED_AT_ONCE = 1024  # rows

TextOf = Callable[[int], str]  # row -> text
PictureOf = Callable[[int], Picture | None]  # row -> picture (height, width, 3), or None


class Items(Protocol):
    """Texts and pictures of embedding rows, in row order."""

    def texts(self, direction: str) -> tuple[TextOf, TextOf]:
        """Return functions that map a row to its text, of the asking side first."""

    def pictures(self, direction: str) -> tuple[PictureOf | None, PictureOf | None]:
        """Return functions that map a row to its picture, of the asking side first; None for a side without any."""


@dataclass(frozen=True, eq=False)
class Side:
    """The rows of one side of a training set.

    Items are N rows as the encoder reads them: texts, images (N, 3, H, W) uint8, or features. Rows on disk may have a
    method `digest()` that returns a hash of their content.
    """

    items: Any
    kind: str
    group: Tensor  # (N,) int64; rows with the same group are positives
    names: tuple[str, ...] | None = None  # one text per row, if the rows are not texts
    pictures: Pictures | None = None  # uint8 (N, height, width, 3), or N paths, unless `items` are images in memory

    def __post_init__(self):
        if self.kind not in KINDS:
            raise InputError(f"kind of rows {self.kind!r}, expected one of {', '.join(KINDS)}")
        object.__setattr__(self, "group", annotations.groups("group", self.group, "items", len(self.items)))
        object.__setattr__(self, "names", annotations.names("names", self.names, len(self.items)))

    def __len__(self) -> int:
        return len(self.items)

    @property
    def row_texts(self) -> Sequence[str] | None:
        """Names of the rows, or the rows themselves if they are texts, else None."""
        return self.names or (self.items if self.kind == "text" else None)

    @cached_property
    def shown(self) -> Pictures | None:
        """Pictures of the rows as `Embeddings` takes them, or None."""
        items = self.items
        if self.pictures is not None or not isinstance(items, Tensor) or items.dtype != torch.uint8 or items.ndim != 4:
            return self.pictures
        pixels = np.moveaxis(items.numpy(), 1, -1)
        return np.broadcast_to(pixels, (*pixels.shape[:3], 3))

    def sha256(self) -> bytes:
        """Hash the kind, the rows and the groups."""
        digest = hashlib.sha256(f"{self.kind} {len(self)}".encode() + self.group.numpy().tobytes())
        if hasattr(self.items, "digest"):
            digest.update(self.items.digest())
            return digest.digest()
        for start in range(0, len(self), HASHED_AT_ONCE):
            rows = self.items[start : start + HASHED_AT_ONCE]
            if isinstance(rows, Tensor | np.ndarray):
                values = np.ascontiguousarray(rows)
                digest.update(f"{values.dtype} {values.shape[1:]}".encode() + values.tobytes())
                continue
            for row in rows:
                content = row.encode() if isinstance(row, str) else np.asarray(row).tobytes()
                digest.update(len(content).to_bytes(8, "little") + content)
        return digest.digest()


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """The rows of one split, and their matches.

    Examples:
        >>> from cocos.data import Side, TrainingSet
        >>> query = Side(("a cat", "a dog"), "text", torch.tensor([0, 1]))
        >>> candidate = Side(("it purrs", "it barks", "it meows"), "text", torch.tensor([0, 1, 0]))
        >>> TrainingSet(query, candidate, "animals", "train").texts("c2q")[0](1)
        'it barks'
    """

    query: Side
    candidate: Side | None  # None for a labelled set, in which the samples ask each other
    name: str  # of the data, for provenance
    split: str
    directions: tuple[str, ...] = ("q2c", "c2q")  # `s2s` for a labelled set
    negatives: Tensor | None = None  # (Q, K) candidate rows that are a query's own hard negatives, -1 for none
    notes: tuple[str, ...] = ()  # messages that belong to every result of these data
    proxies: Tensor | None = None  # (P, D) class vectors, the candidates of a labelled set
    proxy_labels: Tensor | None = None  # (P,) class of each proxy, 0..P-1 by default
    corpus: Side | None = None  # further candidates that match no query; only `evaluate` ranks them

    def __post_init__(self):
        if self.candidate is None:
            object.__setattr__(self, "directions", ("s2s",))

    @property
    def sides(self) -> tuple[Side, Side]:
        """The side that asks and the side that is ranked, identical in a labelled set."""
        return self.query, self.candidate or self.query

    @cached_property
    def identity(self) -> str:
        """SHA-256 of everything that an encoder and a loss read, in hexadecimal."""
        digest = hashlib.sha256(self.query.sha256())
        digest.update(self.candidate.sha256() if self.candidate else b"labelled")
        if self.negatives is not None:
            digest.update(str(tuple(self.negatives.shape)).encode() + self.negatives.numpy().tobytes())
        return digest.hexdigest()

    def with_corpus(self) -> "TrainingSet":
        """Return the set with the rows of `corpus` among its candidates."""
        if self.corpus is None or self.candidate is None:
            return self
        items = (*self.candidate.items, *self.corpus.items)
        candidate = Side(items, self.candidate.kind, torch.cat([self.candidate.group, self.corpus.group]))
        return replace(self, candidate=candidate, corpus=None)

    def texts(self, direction: str) -> tuple[TextOf, TextOf]:
        """Return functions that map a row to its text, of the asking side first."""
        query, candidate = self.sides
        against_proxies = self.candidate is None and direction == "s2p"
        texts = text_of(query, candidate), "proxy {}".format if against_proxies else text_of(candidate, query)
        return texts[::-1] if direction in self.directions[1:] else texts

    def pictures(self, direction: str) -> tuple[PictureOf | None, PictureOf | None]:
        """Return functions that map a row to its picture, of the asking side first; None for a side without any."""
        query, candidate = (side.shown for side in self.sides)
        pictures = [query, None if self.candidate is None and direction == "s2p" else candidate]
        readers = [None if values is None else partial(annotations.picture, values) for values in pictures]
        return tuple(readers[::-1] if direction in self.directions[1:] else readers)

    def names(self) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """Return the texts of all rows of both sides, or None; text arrays cannot contain zero characters."""
        query, candidate = self.sides
        if query.row_texts is None and candidate.row_texts is None:
            return None, None
        texts = (query, text_of(query, candidate)), (candidate, text_of(candidate, query))
        return tuple(tuple(text(row).replace("\0", " ") for row in range(len(side))) for side, text in texts)


def text_of(side: Side, match_side: Side) -> TextOf:
    """Return a function that maps a row to its text, or to the first text of its group on the matching side."""
    if side.row_texts is not None:
        return side.row_texts.__getitem__
    groups, match_texts = side.group.tolist(), match_side.row_texts
    if match_texts is None:
        return lambda row: f"row {row}, group {groups[row]}"
    match_groups = match_side.group.tolist()
    first_rows = dict(zip(reversed(match_groups), reversed(range(len(match_groups))), strict=True))

    def text(row: int) -> str:
        match = first_rows.get(groups[row])
        return f"{side.kind} of: {'no text' if match is None else match_texts[match]}"

    return text


@dataclass(frozen=True)
class Source:
    """Training data that can be loaded by split."""

    kind: str  # name of the format, or `own` for data of the user
    splits: tuple[str, ...]  # empty if any name is accepted
    loader: Callable[[str], TrainingSet]
    path: Path | None = None  # of the file or folder, if any

    def load(self, split: str = "train") -> TrainingSet:
        """Load one split."""
        if self.splits and split not in self.splits:
            raise InputError(nearest(f"split of {self.path or self.kind}", split, self.splits))
        return self.loader(split)


def image_captions(
    images: Any,
    captions: Sequence[str],
    caption_group: Tensor,
    *,
    name: str,
    split: str,
    kind: str = "image",
    pictures: Pictures | None = None,
) -> TrainingSet:
    """Build a training set of N images, which ask in `i2t`, and M captions, which ask in `t2i`.

    `caption_group` is (M,), the row of the image that each caption describes; `kind` of the images may be `features`.
    """
    with prefixed(f"{name}, {split}"):
        query = Side(images, kind, torch.arange(len(images)), None, pictures)
        return TrainingSet(query, Side(tuple(captions), "text", caption_group), name, split, ("i2t", "t2i"))


def annotated_rows(embeddings: Embeddings) -> TrainingSet:
    """Return the names and pictures of embeddings; a row without a name is described by its number and group."""
    sides = []
    for side in embeddings.sides:
        names = side.names or [""] * len(side.rows)
        texts = (f"row {row}, group {group}" for row, group in enumerate(side.group.tolist()))
        names = tuple(name or text for name, text in zip(names, texts, strict=True))
        sides.append(Side(side.rows, "features", side.group, names, side.pictures))
    return TrainingSet(sides[0], sides[-1], "embeddings", "", embeddings.directions)
