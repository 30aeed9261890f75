"""Checks of the annotations of rows: group ids, names, pictures, hard negatives, grades."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cocos.base.errors import InputError, rows

PICTURE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_SIDE = 256  # pixels of the longer side of a picture in a figure
Picture = npt.NDArray[np.uint8]  # (height, width, 3)
Pictures = Picture | tuple[str, ...]  # (N, height, width, 3) uint8, or N paths, empty for a row without a picture

READ_AS_LABELLED = "query and candidate are the same rows and groups: read as a labelled set (embeddings=, labels=)"
EACH_ITS_OWN_POSITIVE = "query and candidate are equal, no two rows in one group: each is the only positive of itself"


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of both sides as numbers 0 to G - 1 in ascending order of their ids, on the CPU."""

    query: Tensor  # (Q,) number of the group of each query
    candidate: Tensor  # (C,) number of the group of each candidate
    queries: Tensor  # (G,) queries in each group
    candidates: Tensor  # (G,) candidates in each group

    @classmethod
    def number(cls, query: Tensor, candidate: Tensor) -> "Groups":
        """Number the ids of both sides: dense ids by counting, others by sorting."""
        ids = torch.cat([query, candidate]).cpu()
        low, high = (int(bound) for bound in ids.aminmax())
        if high - low < 4 * len(ids):
            ids = ids - low if low else ids
            occurs = torch.bincount(ids) > 0
            ids = ids if occurs.all() else (occurs.cumsum(0) - 1)[ids]
        else:
            ids = ids.unique(return_inverse=True)[1]
        sides, number = ids.split([len(query), len(candidate)]), int(ids.max()) + 1
        return cls(*sides, *(torch.bincount(side, minlength=number) for side in sides))

    @property
    def single(self) -> bool:
        """Whether no group has two rows of one side."""
        return int(self.queries.max()) < 2 and int(self.candidates.max()) < 2


def texts(name: str, values: Any) -> list[str] | None:
    """Return a sequence of texts, or of bytes in UTF-8, as a list of texts; None for anything else."""
    if isinstance(values, np.ndarray) or (hasattr(values, "to_numpy") and not isinstance(values, Tensor)):
        array = np.asarray(values)
        values = array.tolist() if array.ndim == 1 and array.dtype.kind in "USO" else None
    if not isinstance(values, list | tuple) or not any(isinstance(value, str | bytes) for value in values):
        return None
    decoded = []
    for row, value in enumerate(values):
        try:
            text = value.decode("utf-8") if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            raise InputError(f"{name}: row {row} is {value[:40]!r}, expected UTF-8") from None
        if not isinstance(text, str):
            raise InputError(f"{name}: row {row} is {type(text).__name__}, expected text as in other rows")
        decoded.append(text)
    return decoded


def number_texts(ids: dict[str, Any], *, empty: int | None = None) -> dict[str, Any]:
    """Replace ids that are text by numbers, the same for equal texts under every name.

    Args:
        ids: name -> ids, or None.
        empty: number of an empty text; None numbers it like any other.
    """
    by_name = {name: row_texts for name, values in ids.items() if (row_texts := texts(name, values))}
    numbers = [name for name, values in ids.items() if values is not None and name not in by_name]
    if by_name and numbers:
        raise InputError(f"{next(iter(by_name))} is text and {numbers[0]} is numbers, expected the same type of ids")
    number = {text: k for k, text in enumerate(sorted({text for values in by_name.values() for text in values}))}
    number |= {} if empty is None else {"": empty}
    return ids | {name: torch.tensor([number[text] for text in values]) for name, values in by_name.items()}


def as_tensor(name: str, values: Any, expected: str) -> Tensor:
    """Convert values to a tensor."""
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: {type(values).__name__}, expected {expected}") from None


def integers(name: str, values: Any, expected: str) -> Tensor:
    """Convert integers to an int64 tensor."""
    numbers = as_tensor(name, values, expected)
    if numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool:
        raise InputError(f"{name}: dtype {numbers.dtype}, expected {expected}")
    return numbers.to(torch.int64)


def finite_numbers(name: str, values: Any, length: int, side: str) -> Tensor:
    """Check one number per row, (N,) float64."""
    numbers = as_tensor(name, values, f"numbers, one for each row of {side}").double()
    if numbers.shape != (length,):
        raise InputError(f"{name}: shape {tuple(numbers.shape)}, expected ({length},), one for each row of {side}")
    if wrong := (~numbers.isfinite()).nonzero().flatten().tolist():
        raise InputError(f"{name}: NaN or infinity in {rows(wrong)}")
    return numbers


def groups(name: str, values: Any, side: str, length: int) -> Tensor:
    """Check the group ids of one side, (N,) int64."""
    ids = integers(name, values, "integers or text, one for each row")
    if ids.shape != (length,):
        raise InputError(f"{name}: shape {tuple(ids.shape)}, expected ({length},): one id for each row of {side}")
    return ids


def both_groups(query: Any, candidate: Any, queries: int, candidates: int) -> tuple[Tensor, Tensor]:
    """Check the group ids of both sides, (Q,) and (C,) int64; without any, row i matches row i."""
    if (query is None) != (candidate is None):
        missing = "query_group" if query is None else "candidate_group"
        raise InputError(f"{missing} is missing: give the groups of both sides, or of neither")
    if query is None and queries != candidates:
        sizes = f"{queries} query rows, {candidates} candidate rows and no groups"
        raise InputError(f"{sizes}: rows can only match one to one; give query_group and candidate_group")
    if query is None:
        return torch.arange(queries), torch.arange(candidates)
    ids = number_texts({"query_group": query, "candidate_group": candidate})
    return (
        groups("query_group", ids["query_group"], "query", queries),
        groups("candidate_group", ids["candidate_group"], "candidate", candidates),
    )


def directions(values: Any) -> tuple[str, ...]:
    """Check the names of one or two directions."""
    names = () if isinstance(values, str) or not hasattr(values, "__iter__") else tuple(values)
    valid = all(isinstance(name, str) and name.strip() and name.isprintable() for name in names)
    if not valid or len(names) not in {1, 2} or len(set(names)) != len(names):
        raise InputError(f"directions: {values}, expected one name or two different ones, like q2c and c2q")
    return names


def pair(name: str, values: Any, shared: bool) -> tuple[Any, Any]:
    """Check a pair (of the queries, of the candidates), either of which may be None; a labelled set has one value."""
    if values is None:
        return None, None
    if isinstance(values, tuple) and len(values) == 2 and not all(isinstance(value, str) for value in values):
        return values
    if not shared:
        raise InputError(f"{name}: {type(values).__name__}, expected a pair: of the queries, of the candidates")
    return values, values


def names(name: str, values: Any, length: int) -> tuple[str, ...] | None:
    """Check one text per row."""
    if values is None:
        return None
    row_texts = texts(name, values)
    if row_texts is None or len(row_texts) != length:
        size = f"{len(row_texts)} texts" if row_texts is not None else type(values).__name__
        raise InputError(f"{name}: {size}, expected {length} texts, one for each row")
    return tuple(row_texts)


def pictures(name: str, values: Any, length: int) -> Pictures | None:
    """Check one picture per row: (N, height, width, 3) uint8, or N paths."""
    if values is None or texts(name, values) is not None:
        return names(name, values, length)
    pixels = values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[::3] != (length, 3) or 0 in pixels.shape:
        expected = f"uint8 of shape ({length}, height, width, 3), or {length} paths of files"
        raise InputError(f"{name}: {pixels.dtype} of shape {pixels.shape}, expected {expected}")
    return pixels


def append_negatives(values: Any, query: Tensor, candidate: Tensor) -> tuple[Tensor, Any]:
    """Append hard negatives that are vectors, (Q, K, D) or (Q, D), to the candidates; row numbers are unchanged.

    Returns:
        The candidates, (C + n, D), and (Q, K) rows of them. A vector of NaN is none, with row -1.
    """
    if not isinstance(values, Tensor | np.ndarray) or values.ndim < 2:
        return candidate, values
    vectors = torch.as_tensor(values)
    if vectors.ndim == 2 and (not vectors.is_floating_point() or vectors.shape != query.shape):
        return candidate, values
    vectors = vectors[:, None] if vectors.ndim == 2 else vectors
    if not vectors.is_floating_point() or vectors.shape[::2] != query.shape or not vectors.shape[1]:
        expected = f"floats ({len(query)}, K, {query.shape[1]}), or rows of candidate, ({len(query)}, K)"
        raise InputError(f"negatives: {vectors.dtype} of shape {tuple(vectors.shape)}, expected {expected}")
    vectors = vectors.to(candidate)
    exists = ~vectors.isnan().all(dim=2)
    index = torch.where(exists, exists.flatten().cumsum(0).view_as(exists) - 1 + len(candidate), -1)
    return torch.cat([candidate, vectors[exists]]), index


def pad_with_empty(name: str, values: tuple[Any, Any] | None, number: int) -> tuple[Any, Any] | None:
    """Append empty texts to the `names` or `pictures` of the candidates, for rows that were appended."""
    if not isinstance(values, tuple) or len(values) != 2 or values[1] is None or not number:
        return values
    candidate_texts = texts(name, values[1])
    if candidate_texts is None:
        raise InputError(f"{name} of candidate: an array, and negatives are vectors; give paths, or negatives as rows")
    return values[0], [*candidate_texts, *[""] * number]


def grades(values: Any, queries: int, candidates: int) -> Tensor | None:
    """Check the grades of pairs, (N,) float64, of row i of the queries with row i of the candidates."""
    if values is None:
        return None
    numbers = finite_numbers("grades", values, queries, "query")
    if queries != candidates or numbers.min() == numbers.max():
        raise InputError(
            f"grades: {queries} query rows, {candidates} candidate rows and grades of {float(numbers.min()):g} to "
            f"{float(numbers.max()):g}, expected different grades of row i of the queries and row i of the candidates"
        )
    return numbers


def logq(name: str, values: Any, length: int, side: str) -> Tensor | None:
    """Check the log probabilities with which the rows of a side are sampled, (N,) float64, at most 0."""
    if values is None:
        return None
    logs = finite_numbers(name, values, length, side)
    if logs.max() > 0:
        raise InputError(f"{name}: {float(logs.max()):g} of row {int(logs.argmax())}, expected log probabilities")
    return logs


def negatives(name: str, values: Any, query: Tensor, candidate: Tensor, sides: tuple[str, str]) -> Tensor | None:
    """Check the hard negatives of each query: rows of the other side, (Q, K), -1 for none.

    Args:
        name: of the argument.
        values: the rows.
        query: (Q,) group ids of the side that asks.
        candidate: (C,) group ids of the side that is ranked.
        sides: names of both.
    """
    if values is None:
        return None
    expected = f"integers of shape ({len(query)}, K): rows of {sides[1]}, 0 to {len(candidate) - 1}, or -1 for none"
    index = integers(name, values, expected).to(query.device)
    if index.ndim != 2 or len(index) != len(query) or not index.shape[1]:
        raise InputError(f"{name}: shape {tuple(index.shape)}, expected {expected}")
    if wrong := ((index < -1) | (index >= len(candidate))).nonzero().tolist():
        row, column = wrong[0]
        raise InputError(f"{name}: {int(index[row, column])} in row {row}, expected {expected}")
    if wrong := ((index >= 0) & (candidate[index.clamp(min=0)] == query[:, None])).nonzero().tolist():
        row, column = wrong[0]
        entry = f"{sides[1]} {int(index[row, column])} of {sides[0]} {row}"
        raise InputError(f"{name}: {entry} is its positive: they share group {int(query[row])}")
    return index


def picture(pictures: Pictures, row: int) -> Picture | None:
    """Read one picture, (height, width, 3) uint8, shrunk to `MAX_SIDE`; None for an empty path."""
    if isinstance(pictures, np.ndarray):
        return np.asarray(pictures[row])
    if not pictures[row]:
        return None
    from PIL import Image  # slow to import, and few commands show a picture

    try:
        with Image.open(Path(pictures[row]), formats=PICTURE_FORMATS) as image:
            image.thumbnail((MAX_SIDE, MAX_SIDE))
            return np.asarray(image.convert("RGB"))
    except Exception as error:  # Pillow raises many types for a damaged file
        raise InputError(f"picture {pictures[row]}: cannot be read ({type(error).__name__})") from error
