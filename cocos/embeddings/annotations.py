"""Annotations of the rows of embeddings: ids of groups, names, pictures, own hard negatives."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cocos.base.errors import InputError, rows

PICTURE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_PICTURE = 2**26  # bytes of the file of a picture, and its pixels
MAX_SIDE = 256  # pixels of the longer side of a picture that is drawn
Picture = npt.NDArray[np.uint8]  # (height, width, 3)
Pictures = Picture | tuple[str, ...]  # (N, H, W, 3) of uint8, or a path each; an empty path is no picture


READ_AS_LABELLED = (
    "query and candidate are the same rows with the same groups: read as a labelled set, in which no sample is its own "
    "candidate (embeddings=, labels= say so)"
)
EACH_ITS_OWN_POSITIVE = (
    "query and candidate are the same rows, and no two of them share a group: each is the only positive of itself "
    "(embeddings=, labels= are for a labelled set)"
)


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of both sides as numbers 0 to G - 1 in ascending order of their ids, on the CPU.

    `queries` and `candidates`, (G,), are the rows of each group on either side.
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
        """Whether no group has two rows of one side."""
        return int(self.queries.max()) < 2 and int(self.candidates.max()) < 2


def texts(values: Any) -> list[Any] | None:
    """Return values that are text as a list; None where they are something else."""
    if isinstance(values, np.ndarray) or (hasattr(values, "to_numpy") and not isinstance(values, torch.Tensor)):
        values = np.asarray(values)
        if values.ndim != 1 or values.dtype.kind not in "USO":
            return None
        values = values.tolist()
    if not isinstance(values, list | tuple) or not any(isinstance(each, str | bytes) for each in values):
        return None
    return list(values)


def spelled(name: str, values: list[Any]) -> list[str]:
    """Decode bytes among texts as UTF-8; texts stay as they are."""
    found = []
    for row, each in enumerate(values):
        try:
            text = each.decode("utf-8") if isinstance(each, bytes) else each
        except UnicodeDecodeError:
            raise InputError(f"{name}: row {row} is {each[:40]!r}, which is not UTF-8") from None
        if not isinstance(text, str):
            raise InputError(
                f"{name}: row {row} is {type(text).__name__} among text; give all as text, or all as numbers"
            )
        if "\0" in text:
            raise InputError(f"{name}: row {row} is {text[:40]!r}, with a zero character, which arrays of text drop")
        found.append(text)
    return found


def numbered(given: dict[str, Any], *, empty: int | None = None) -> dict[str, Any]:
    """Number ids that are text, equal texts alike under every name; other ids stay as they are.

    Args:
        given: name -> ids, or None.
        empty: number of an empty text; None: it is a text like any other.
    """
    said = {name: spelled(name, found) for name, values in given.items() if (found := texts(values)) is not None}
    others = [name for name, values in given.items() if values is not None and name not in said]
    if said and others:
        raise InputError(f"{next(iter(said))} is text and {others[0]} is numbers; give both the same kind of ids")
    number = {text: k for k, text in enumerate(sorted({text for values in said.values() for text in values}))}
    number |= {} if empty is None else {"": empty}
    return given | {name: torch.tensor([number[text] for text in values]) for name, values in said.items()}


def _tensor(name: str, values: Any, expected: str) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: {type(values).__name__}, expected {expected}") from None


def groups(name: str, values: Any, side: str, length: int) -> Tensor:
    """Check the ids of the rows of one side, (N,) int64."""
    found = _tensor(name, values, "integers or text, one for each row")
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise InputError(f"{name}: dtype {found.dtype}, expected integers (ids of groups or classes)")
    if found.shape != (length,):
        raise InputError(f"{name}: shape {tuple(found.shape)}, expected ({length},): one id for each row of {side}")
    ids = found.to(torch.int64)
    if found.dtype == torch.uint64 and (large := (ids < 0).nonzero().flatten().tolist()):
        raise InputError(
            f"{name}: {rows(large)} above 2^63 - 1 (as {int(ids[large[0]]) % 2**64}); number the ids anew, or give "
            "them as text"
        )
    return ids


def both_groups(query: Any, candidate: Any, queries: int, candidates: int) -> tuple[Tensor, Tensor]:
    """Ids of the groups of both sides, (Q,) and (C,) int64; row i matches row i where none are given."""
    if (query is None) != (candidate is None):
        missing = "query_group" if query is None else "candidate_group"
        raise InputError(f"{missing} is missing: give the groups of both sides, or of neither")
    if query is not None:
        ids = numbered({"query_group": query, "candidate_group": candidate})
        return (
            groups("query_group", ids["query_group"], "query", queries),
            groups("candidate_group", ids["candidate_group"], "candidate", candidates),
        )
    if queries != candidates:
        raise InputError(
            f"{queries} query rows, {candidates} candidate rows and no groups: rows can only match one to one; give "
            "query_group and candidate_group"
        )
    return torch.arange(queries), torch.arange(candidates)


def directions(given: Any) -> tuple[str, ...]:
    """Check the names of one direction, or of two."""
    found = tuple(given)
    named = all(isinstance(name, str) and name.strip() and name.isprintable() for name in found)
    if not named or len(found) not in {1, 2} or len(set(found)) != len(found):
        raise InputError(f"directions: {found}, expected one name or two different ones, like q2c and c2q")
    return found


def pair(name: str, given: Any, shared: bool) -> tuple[Any, Any] | None:
    """Check a pair (of the queries, of the candidates); for a labelled set one value stands for both."""
    if given is None:
        return None
    if not isinstance(given, tuple) or len(given) != 2 or all(isinstance(each, str) for each in given):
        if not shared:
            raise InputError(
                f"{name}: {type(given).__name__}, expected a pair: of the queries, of the candidates (or None)"
            )
        given = (given, given)
    return None if given[0] is None and given[1] is None else given


def names(name: str, values: Any, length: int) -> tuple[str, ...] | None:
    """Check names: one text a row."""
    if values is None:
        return None
    said = texts(values)
    if said is None or len(said) != length:
        size = f"{len(said)} texts" if said is not None else type(values).__name__
        raise InputError(f"{name}: {size}, expected {length} texts, one for each row")
    return tuple(spelled(name, said))


def pictures(name: str, values: Any, length: int) -> Pictures | None:
    """Check pictures: one array a row, or its path."""
    if values is None or (said := texts(values)) is not None:
        return None if values is None else names(name, said, length)
    try:
        found = values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        found = np.zeros(())
    if found.dtype != np.uint8 or found.ndim != 4 or found.shape[3] != 3 or len(found) != length or 0 in found.shape:
        raise InputError(
            f"{name}: {found.dtype} of shape {found.shape}, expected uint8 of shape ({length}, height, width, 3), or "
            f"{length} paths of files"
        )
    return found


def negative_rows(values: Any, query: Tensor, candidate: Tensor) -> tuple[Tensor, Any]:
    """Put hard negatives that are vectors, (Q, K, D) or (Q, D), behind the candidates; rows of candidates stay.

    Vectors are NaN throughout for none. Returns the candidates, (C + n, D), and (Q, K) rows of them, -1 for none.
    """
    if not isinstance(values, Tensor | np.ndarray) or values.ndim < 2:
        return candidate, values
    found = torch.as_tensor(values)
    if found.ndim == 2 and (not found.is_floating_point() or found.shape != query.shape):
        return candidate, values
    found = found[:, None] if found.ndim == 2 else found
    if not found.is_floating_point() or found.shape[::2] != query.shape or not found.shape[1]:
        raise InputError(
            f"negatives: {found.dtype} of shape {tuple(found.shape)}, expected floating point vectors of shape "
            f"({len(query)}, K, {query.shape[1]}), or rows of candidate, ({len(query)}, K)"
        )
    found = found.to(candidate)
    there = ~found.isnan().all(dim=2)
    if not there.any():
        raise InputError(f"negatives: all {there.numel()} vectors are NaN, so that no query has any; leave them out")
    index = torch.where(there, there.flatten().cumsum(0).view_as(there) - 1 + len(candidate), -1)
    return torch.cat([candidate, found[there]]), index


def longer(name: str, given: tuple[Any, Any] | None, more: int) -> tuple[Any, Any] | None:
    """Describe hard negatives behind the candidates by empty texts, in `names` or `pictures`."""
    if not isinstance(given, tuple) or len(given) != 2 or given[1] is None or not more:
        return given
    said = texts(given[1])
    if said is None:
        raise InputError(f"{name} of candidate: an array, and negatives are vectors; give paths, or negatives as rows")
    return given[0], [*said, *[""] * more]


def grades(values: Any, queries: int, candidates: int) -> Tensor | None:
    """Check the grades of pairs, (n,) floating point: of row i of the queries and row i of the candidates."""
    if values is None:
        return None
    found = _tensor("grades", values, "numbers, one for each pair of rows").double()
    if queries != candidates or found.shape != (queries,):
        raise InputError(
            f"grades: shape {tuple(found.shape)}, with {queries} query rows and {candidates} candidate rows; expected "
            "one grade for row i of the queries and row i of the candidates"
        )
    if wrong := (~found.isfinite()).nonzero().flatten().tolist():
        raise InputError(f"grades: NaN or infinity in {rows(wrong)}")
    if found.min() == found.max():
        raise InputError(f"grades: all are {float(found[0]):g}, so that no pair is better than another")
    return found


def logq(name: str, values: Any, number: int, side: str) -> Tensor | None:
    """Check the logs of the probabilities with which the rows of a side are sampled, (number,), at most 0."""
    if values is None:
        return None
    found = _tensor(name, values, f"numbers, one for each row of {side}").double()
    if found.shape != (number,):
        raise InputError(f"{name}: shape {tuple(found.shape)}, expected ({number},), one for each row of {side}")
    if (wrong := (~(found.isfinite() & (found <= 0))).nonzero()).numel():
        place = int(wrong[0, 0])
        value = f"{float(found[place]):g} of row {place}"
        raise InputError(f"{name}: {value}, expected the log of a probability, finite and at most 0")
    return found


def negatives(name: str, values: Any, asks: Tensor, asked: Tensor, sides: tuple[str, str]) -> Tensor | None:
    """Check own hard negatives: rows of the other side, (Q, K), -1 for none."""
    if values is None:
        return None
    found = _tensor(name, values, f"rows of {sides[1]}, ({len(asks)}, K)")
    shape = tuple(found.shape)
    whole = not (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool)
    if not whole or found.ndim != 2 or shape[0] != len(asks) or shape[1] == 0:
        raise InputError(
            f"{name}: {found.dtype} of shape {shape}, expected integers of shape ({len(asks)}, K): rows of "
            f"{sides[1]}, -1 for none"
        )
    found = found.to(device=asks.device, dtype=torch.int64)
    wrong = ((found < -1) | (found >= len(asked))).nonzero()
    if len(wrong):
        row, place = wrong[0].tolist()
        raise InputError(
            f"{name}: {int(found[row, place])} in row {row}, expected rows of {sides[1]}, 0 to {len(asked) - 1}, or "
            f"-1 for none ({len(wrong)} such entries)"
        )
    own = ((found >= 0) & (asked[found.clamp(min=0)] == asks[:, None])).nonzero()
    if len(own):
        row, place = own[0].tolist()
        raise InputError(
            f"{name}: {sides[1]} {int(found[row, place])} is named by {sides[0]} {row}, whose positive it is: they "
            f"share group {int(asks[row])} ({len(own)} such entries)"
        )
    return found


def lies_in(path: Path, folder: Path) -> bool:
    """Whether a path lies in a folder once links are followed; links that lead to themselves are left as they are."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def picture(pictures: Pictures, row: int, folder: Path | None = None) -> Picture | None:
    """Read one picture, (height, width, 3) of uint8; None for an empty path.

    Its file must lie in `folder`, links followed, where one is given.
    """
    if isinstance(pictures, np.ndarray):
        return np.asarray(pictures[row])
    if not pictures[row]:
        return None
    path = Path(pictures[row])
    if folder is not None and not lies_in(path, folder):
        raise InputError(f"picture {path}: it lies outside of {folder}")
    try:
        known = path.is_file() and path.stat().st_size <= MAX_PICTURE
        found = _read(path) if known else None
    except Exception as error:  # Pillow has many for a damaged or hostile file
        raise InputError(f"picture {path}: it cannot be read ({type(error).__name__})") from error
    if found is None:
        raise InputError(f"picture {path}: no file of at most {MAX_PICTURE >> 20} MiB and as many pixels")
    return found


def _read(path: Path) -> Picture | None:
    """Read a picture and shrink it; None if it is too large to be unpacked."""
    from PIL import Image  # only where a picture is shown

    with open(path, "rb") as stream, Image.open(stream, formats=PICTURE_FORMATS) as image:
        if image.width * image.height > MAX_PICTURE:
            return None
        image.thumbnail((MAX_SIDE, MAX_SIDE))
        return np.asarray(image.convert("RGB"))
