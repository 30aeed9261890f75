"""Training data as an encoder reads them, and the texts and pictures by which people know their rows."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cocos.base import annotations
from cocos.base.annotations import Picture, Pictures
from cocos.base.errors import InputError
from cocos.embeddings import Embeddings

# Kinds of rows that encoders read.
KINDS = ("text", "image", "features")
HASHED_AT_ONCE = 1024  # rows that are read at once to be hashed

TextOf = Callable[[int], str]  # row -> its text
PictureOf = Callable[[int], Picture | None]  # row -> its picture (height, width, 3), or None


class Rows(Protocol):
    """Texts, a tensor, an array, or rows that stay on disk until they are indexed."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: Any, /) -> Any: ...


class Items(Protocol):
    """Texts and pictures of the rows of embeddings, in the order of the rows."""

    def texts(self, direction: str) -> tuple[TextOf, TextOf]:
        """Return functions of a row that give the text of a query and of a candidate."""

    def pictures(self, direction: str) -> tuple[PictureOf | None, PictureOf | None]:
        """Return functions of a row that give the picture of a query and of a candidate, read when they are called.

        A side without pictures has None instead of a function.
        """


@dataclass(frozen=True, eq=False)
class Side:
    """The rows of one side of a training set.

    Args:
        items: N rows, each as the encoder reads it: texts, images (N, 3, H, W) of uint8, features. Rows may
            stay on disk; a method `digest()` of theirs then gives bytes that stand for their content.
        kind: of the rows, one of `text`, `image`, `features`.
        group: (N,) int64, what a row shares with its positives.
        names: a text for each row, where it is not a text itself.
        pictures: uint8 (N, height, width, 3), or N paths; images that are in `items` need none.
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
        """Names of the rows, or the rows where they are texts; None where they have no text."""
        return self.names or (self.items if self.kind == "text" else None)

    @cached_property
    def shown(self) -> Pictures | None:
        """Pictures of the rows, as `Embeddings` takes them; None where there are none."""
        if self.pictures is not None or self.kind != "image" or not isinstance(self.items, Tensor):
            return self.pictures
        if self.items.ndim != 4 or self.items.shape[1] not in {1, 3} or self.items.dtype != torch.uint8:
            return None
        whole = np.moveaxis(self.items.numpy(), 1, -1)
        return np.broadcast_to(whole, (*whole.shape[:3], 3))

    def hashed(self) -> bytes:
        """Hash the kind, the rows and the groups."""
        found = hashlib.sha256(f"{self.kind} {len(self)}".encode())
        found.update(self.group.numpy().tobytes())
        if (digest := getattr(self.items, "digest", None)) is not None:
            found.update(digest())
            return found.digest()
        for start in range(0, len(self), HASHED_AT_ONCE):
            some = self.items[start : start + HASHED_AT_ONCE]
            if isinstance(some, Tensor | np.ndarray):
                values = np.ascontiguousarray(some)
                found.update(f"{values.dtype} {values.shape[1:]}".encode() + values.tobytes())
            else:
                for each in some:
                    row = each.encode() if isinstance(each, str) else np.asarray(each).tobytes()
                    found.update(len(row).to_bytes(8, "little") + row)
        return found.digest()


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """The rows of one split, and which belong together.

    Args:
        query: the side that asks.
        candidate: the side that is ranked; None for a labelled set, whose samples ask each other.
        name: of the data, for provenance.
        split: of the data.
        directions: names of the directions; `s2s` for a labelled set.
        negatives: (Q, K) rows of the candidates that are a query's own hard negatives, -1 for none.
        notes: sentences that belong beside every result of these data.
        proxies: (P, D) class vectors that a labelled set is counted against.
        proxy_labels: (P,) class of each proxy; 0..P-1 when left out.

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

    def __post_init__(self):
        if self.candidate is None:
            object.__setattr__(self, "directions", ("s2s",))

    @property
    def sides(self) -> tuple[Side, Side]:
        """The side that asks and the side that is ranked, which are one in a labelled set."""
        return self.query, self.query if self.candidate is None else self.candidate

    @cached_property
    def identity(self) -> str:
        """SHA-256 of all that an encoder and a loss read of the set, in hexadecimal."""
        found = hashlib.sha256(self.query.hashed())
        found.update(self.candidate.hashed() if self.candidate else b"labelled")
        if self.negatives is not None:
            found.update(str(tuple(self.negatives.shape)).encode() + self.negatives.numpy().tobytes())
        return found.hexdigest()

    def _by_direction(self, direction: str, query: Any, candidate: Any) -> tuple[Any, Any]:
        """Order what belongs to the queries and to the candidates: that of the side that asks first."""
        return (candidate, query) if direction in self.directions[1:] else (query, candidate)

    def texts(self, direction: str) -> tuple[TextOf, TextOf]:
        """Return functions of a row that give the text of a query and of a candidate, from the side that asks.

        A row without a text of its own is described by the first text of its group on the other side; the candidates of
        `s2p` are proxies.
        """
        query, candidate = self.sides
        asked = "proxy {}".format if direction == "s2p" else _text_of(candidate, query)
        return self._by_direction(direction, _text_of(query, candidate), asked)

    def pictures(self, direction: str) -> tuple[PictureOf | None, PictureOf | None]:
        """Return functions of a row that give the picture of a query and of a candidate; None for a side without."""
        query, candidate = (_picture_of(side.shown) for side in self.sides)
        return self._by_direction(direction, query, None if direction == "s2p" else candidate)

    def names(self) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """Return the texts of the rows of both sides, as `Embeddings` takes them; None for a side without."""
        query, candidate = self.sides
        return _names(query, candidate), _names(candidate, query)


def _text_of(side: Side, other: Side) -> TextOf:
    """A function of a row that gives its text, or describes it by the texts of the other side."""
    row_texts, theirs = side.row_texts, other.row_texts
    if row_texts is not None:
        return row_texts.__getitem__
    groups = side.group.tolist()
    if theirs is None:
        return lambda row: f"row {row}, group {groups[row]}"
    first: dict[int, int] = {}
    for row, group in enumerate(other.group.tolist()):
        first.setdefault(group, row)

    def text(row: int) -> str:
        place = first.get(groups[row])
        return f"{side.kind} of: {'nothing that is said' if place is None else theirs[place]}"

    return text


def _names(side: Side, other: Side) -> tuple[str, ...] | None:
    """Texts of all rows, without the zero characters that arrays of text drop; None where there are none."""
    if side.row_texts is None and other.row_texts is None:
        return None
    text = _text_of(side, other)
    return tuple(text(row).replace("\0", " ") for row in range(len(side)))


def _picture_of(pictures: Pictures | None, folder: Path | None = None) -> PictureOf | None:
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
    """Make a training set of images, which ask in `i2t`, and captions, which ask in `t2i`.

    Args:
        images: (N, ...) as the image tower reads them; rows may stay on disk.
        captions: M texts.
        image_group: (N,) id of each image.
        caption_group: (M,) id of the image that each caption describes.
        name: of the data, for provenance.
        split: of the data.
        kind: of the images, `image` or `features`.
        pictures: of the images, where they are no images themselves: uint8 (N, height, width, 3), or N paths.
    """
    try:
        candidate = Side(tuple(captions), "text", caption_group)
        query = Side(images, kind, image_group, None, pictures)
        if kind == "features":  # of images, which have no other name
            text = _text_of(Side(images, "image", image_group), candidate)
            query = replace(query, names=tuple(map(text, range(len(query)))))
    except InputError as error:
        raise InputError(f"{name}, {split}: {error}") from None
    return TrainingSet(query, candidate, name, split, directions=("i2t", "t2i"))


@dataclass(frozen=True, eq=False)
class AnnotatedRows:
    """Embeddings whose rows have names or pictures; files of pictures must lie in the folder, where there is one."""

    embeddings: Embeddings
    folder: Path | None = None

    def _asking(self, direction: str) -> Embeddings:
        """The embeddings from the side that asks."""
        return self.embeddings if direction == self.embeddings.directions[0] else self.embeddings.flip()

    def texts(self, direction: str) -> tuple[TextOf, TextOf]:
        """Return functions of a row that give the name of a query and of a candidate.

        A row without a name is named by its number and its group.
        """
        side = self._asking(direction)
        query, candidate = side.names or (None, None)
        return _named(query, side.query_group.tolist()), _named(candidate, side.candidate_group.tolist())

    def pictures(self, direction: str) -> tuple[PictureOf | None, PictureOf | None]:
        """Return functions of a row that give the picture of a query and of a candidate, read when they are called.

        None instead of a function where a side has no pictures; None from a function where a row has none.
        """
        query, candidate = self._asking(direction).pictures or (None, None)
        return _picture_of(query, self.folder), _picture_of(candidate, self.folder)


def _named(names: Sequence[str] | None, groups: list[int]) -> TextOf:
    return lambda row: (names[row] if names else "") or f"row {row}, group {groups[row]}"
