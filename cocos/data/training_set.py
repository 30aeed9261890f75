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

from cocos.base.errors import InputError, prefixed
from cocos.embeddings import Embeddings, annotations
from cocos.embeddings.annotations import Picture, Pictures

KINDS = ("text", "image", "features")  # kinds of rows that encoders read
HASHED_AT_ONCE = 1024  # rows

TextOf = Callable[[int], str]  # row -> text
PictureOf = Callable[[int], Picture | None]  # row -> picture (height, width, 3), or None


class Rows(Protocol):
    """Texts, a tensor, an array, or rows that stay on disk until they are indexed."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> Any: ...


class Items(Protocol):
    """Texts and pictures of embedding rows, in row order."""

    def texts(self, direction: str) -> tuple[TextOf, TextOf]:
        """Return functions that map a row to its text, of the asking side first."""

    def pictures(self, direction: str) -> tuple[PictureOf | None, PictureOf | None]:
        """Return functions that map a row to its picture, of the asking side first; None for a side without any."""


@dataclass(frozen=True, eq=False)
class Side:
    """The rows of one side of a training set.

    Args:
        items: N rows as the encoder reads them: texts, images (N, 3, H, W) uint8, or features. Rows on disk may
            have a method `digest()` that returns a hash of their content.
        kind: `text`, `image` or `features`.
        group: (N,) int64; rows with the same group are positives.
        names: one text per row, if the rows are not texts.
        pictures: uint8 (N, height, width, 3), or N paths; not needed if `items` are images in memory.
    """

    items: Rows
    kind: str
    group: Tensor
    names: tuple[str, ...] | None = None
    pictures: Pictures | None = None

    def __post_init__(self):
        if self.kind not in KINDS:
            raise InputError(f"kind of rows {self.kind!r}, expected one of {', '.join(KINDS)}")
        object.__setattr__(self, "group", annotations.groups("group", self.group, "items", len(self.items)))
        object.__setattr__(self, "names", annotations.names("names", self.names, len(self.items)))

    def __len__(self) -> int:
        return len(self.items)

    @property
    def row_texts(self) -> Rows | None:
        """Names of the rows, or the rows themselves if they are texts, else None."""
        return self.names or (self.items if self.kind == "text" else None)

    @cached_property
    def shown(self) -> Pictures | None:
        """Pictures of the rows as `Embeddings` takes them, or None."""
        if self.pictures is not None or self.kind != "image" or not isinstance(self.items, Tensor):
            return self.pictures
        if self.items.ndim != 4 or self.items.shape[1] not in {1, 3} or self.items.dtype != torch.uint8:
            return None
        pixels = np.moveaxis(self.items.numpy(), 1, -1)
        return np.broadcast_to(pixels, (*pixels.shape[:3], 3))

    def sha256(self) -> bytes:
        """Hash the kind, the rows and the groups."""
        digest = hashlib.sha256(f"{self.kind} {len(self)}".encode())
        digest.update(self.group.numpy().tobytes())
        if hasattr(self.items, "digest"):
            digest.update(self.items.digest())
            return digest.digest()
        for start in range(0, len(self), HASHED_AT_ONCE):
            rows = self.items[start : start + HASHED_AT_ONCE]
            if isinstance(rows, Tensor | np.ndarray):
                values = np.ascontiguousarray(rows)
                digest.update(f"{values.dtype} {values.shape[1:]}".encode() + values.tobytes())
            else:
                for row in rows:
                    content = row.encode() if isinstance(row, str) else np.asarray(row).tobytes()
                    digest.update(len(content).to_bytes(8, "little") + content)
        return digest.digest()


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """The rows of one split, and their matches.

    Args:
        query: the side that asks.
        candidate: the ranked side; None for a labelled set, in which the samples ask each other.
        name: of the data, for provenance.
        split: of the data.
        directions: names of the directions; `s2s` for a labelled set.
        negatives: (Q, K) candidate rows that are a query's own hard negatives, -1 for none.
        notes: messages that belong to every result of these data.
        proxies: (P, D) class vectors, the candidates of a labelled set.
        proxy_labels: (P,) class of each proxy, 0..P-1 by default.
        corpus: further candidates that match no query; only `evaluate` ranks them.

    Examples:
        >>> from cocos.data import Side, TrainingSet
        >>> query = Side(("a cat", "a dog"), "text", torch.tensor([0, 1]))
        >>> candidate = Side(("it purrs", "it barks", "it meows"), "text", torch.tensor([0, 1, 0]))
        >>> animals = TrainingSet(query, candidate, "animals", "train")
        >>> animals.texts("c2q")[0](1)
        'it barks'
    """

    query: Side
    candidate: Side | None
    name: str
    split: str
    directions: tuple[str, ...] = ("q2c", "c2q")
    negatives: Tensor | None = None
    notes: tuple[str, ...] = ()
    proxies: Tensor | None = None
    proxy_labels: Tensor | None = None
    corpus: Side | None = None

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
        candidate_text = "proxy {}".format if direction == "s2p" else text_of(candidate, query)
        texts = text_of(query, candidate), candidate_text
        return texts[::-1] if direction in self.directions[1:] else texts

    def pictures(self, direction: str) -> tuple[PictureOf | None, PictureOf | None]:
        """Return functions that map a row to its picture, of the asking side first; None for a side without any."""
        query, candidate = (picture_of(side.shown) for side in self.sides)
        pictures = query, None if direction == "s2p" else candidate
        return pictures[::-1] if direction in self.directions[1:] else pictures

    def names(self) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """Return the texts of all rows of both sides as `Embeddings` takes them, None for a side without texts."""
        query, candidate = self.sides
        return all_texts(query, candidate), all_texts(candidate, query)


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


def all_texts(side: Side, match_side: Side) -> tuple[str, ...] | None:
    """Return the texts of all rows without zero characters, which text arrays drop, or None."""
    if side.row_texts is None and match_side.row_texts is None:
        return None
    text = text_of(side, match_side)
    return tuple(text(row).replace("\0", " ") for row in range(len(side)))


def picture_of(pictures: Pictures | None, folder: Path | None = None) -> PictureOf | None:
    """Return a function that reads the picture of a row, or None without pictures."""
    return None if pictures is None else partial(annotations.picture, pictures, folder=folder)


def image_captions(
    images: Rows,
    captions: Sequence[str],
    image_group: Tensor,
    caption_group: Tensor,
    *,
    name: str,
    split: str,
    kind: str = "image",
    pictures: Pictures | None = None,
) -> TrainingSet:
    """Build a training set of images, which ask in `i2t`, and captions, which ask in `t2i`.

    Args:
        images: (N, ...) as the image encoder reads them; rows may stay on disk.
        captions: M texts.
        image_group: (N,) id of each image.
        caption_group: (M,) id of the image that each caption describes.
        name: of the data, for provenance.
        split: of the data.
        kind: of the images, `image` or `features`.
        pictures: of images that are features: uint8 (N, height, width, 3), or N paths.
    """
    with prefixed(f"{name}, {split}"):
        candidate = Side(tuple(captions), "text", caption_group)
        query = Side(images, kind, image_group, None, pictures)
    if kind == "features":  # named like images, since they have no other name
        text = text_of(Side(images, "image", image_group), candidate)
        query = replace(query, names=tuple(map(text, range(len(query)))))
    return TrainingSet(query, candidate, name, split, directions=("i2t", "t2i"))


@dataclass(frozen=True, eq=False)
class AnnotatedRows:
    """Embeddings with names or pictures; picture files must be inside `folder`, if given."""

    embeddings: Embeddings
    folder: Path | None = None

    def asking_first(self, direction: str) -> Embeddings:
        """Return the embeddings with the asking side as queries."""
        return self.embeddings if direction == self.embeddings.directions[0] else self.embeddings.flip()

    def texts(self, direction: str) -> tuple[TextOf, TextOf]:
        """Return functions that map a row to its name, or to its number and group, of the asking side first."""
        side = self.asking_first(direction)
        groups, texts = (side.query_group.tolist(), side.candidate_group.tolist()), []
        for names, ids in zip(side.names or (None, None), groups, strict=True):
            texts.append(lambda row, names=names, ids=ids: (names and names[row]) or f"row {row}, group {ids[row]}")
        return texts[0], texts[1]

    def pictures(self, direction: str) -> tuple[PictureOf | None, PictureOf | None]:
        """Return functions that read the picture of a row, of the asking side first; None for a side without any."""
        query, candidate = self.asking_first(direction).pictures or (None, None)
        return picture_of(query, self.folder), picture_of(candidate, self.folder)
