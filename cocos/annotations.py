"""What rows of embeddings carry beside their vectors: ids of groups, names, pictures, hard negatives of their own."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cocos.errors import InputError, rows

__all__ = ["Pictures", "groups", "names", "negatives", "numbered", "pair", "picture", "pictures", "spelled", "texts"]

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
HEAVIEST = 2**26  # bytes of the file of a picture, and its pixels
SIDE = 256  # pixels of the longer side of a picture that is shown
Pictures = np.ndarray | tuple[str, ...]  # (N, H, W, 3) of uint8, or a path each; an empty path is no picture


def texts(values) -> list | None:
    """Values that hold text, as a list; None where they hold something else."""
    if isinstance(values, np.ndarray) or (hasattr(values, "to_numpy") and not isinstance(values, torch.Tensor)):
        values = np.asarray(values)
        if values.ndim != 1 or values.dtype.kind not in "USO":
            return None
        values = values.tolist()
    if not isinstance(values, list | tuple) or not any(isinstance(each, str | bytes) for each in values):
        return None
    return list(values)


def spelled(name: str, values: list) -> list[str]:
    """Text as it stands, bytes as UTF-8.

    Raises:
        InputError: something else is among it, bytes that are not UTF-8, or a zero character, which arrays drop.
    """
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


def numbered(given: dict) -> dict:
    """Ids that are text as numbers, the same text the same number under every name; others as they are.

    Args:
        given: name -> ids, or None.

    Raises:
        InputError: text under one name and numbers under another, or text that is none.
    """
    said = {name: spelled(name, found) for name, values in given.items() if (found := texts(values)) is not None}
    others = [name for name, values in given.items() if values is not None and name not in said]
    if said and others:
        raise InputError(f"{next(iter(said))} is text and {others[0]} is numbers; give both the same kind of ids")
    number = {text: k for k, text in enumerate(sorted({text for values in said.values() for text in values}))}
    return given | {name: torch.tensor([number[text] for text in values]) for name, values in said.items()}


def groups(name: str, values, side: str, length: int) -> Tensor:
    """Ids of the rows of one side, (N,) int64.

    Raises:
        InputError: no whole numbers, another number of them, or one that int64 does not hold.
    """
    try:
        values = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: {type(values).__name__}, expected whole numbers or text, one for each row") from None
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise InputError(f"{name}: dtype {values.dtype}, expected whole numbers (ids of groups or classes)")
    if values.shape != (length,):
        raise InputError(f"{name}: shape {tuple(values.shape)}, expected ({length},): one id for each row of {side}")
    ids = values.to(torch.int64)
    if values.dtype == torch.uint64 and (large := (ids < 0).nonzero().flatten().tolist()):
        raise InputError(
            f"{name}: {rows(large)} above 2^63 - 1 (as {int(ids[large[0]]) % 2**64}); number the ids anew, or give "
            "them as text"
        )
    return ids


def pair(name: str, given, shared: bool) -> tuple | None:
    """Something of both sides, as (of the queries, of the candidates); of a labelled set it may be given once.

    Raises:
        InputError: no pair.
    """
    if given is None:
        return None
    if not isinstance(given, tuple) or len(given) != 2 or all(isinstance(each, str) for each in given):
        if not shared:
            raise InputError(
                f"{name}: {type(given).__name__}, expected a pair: of the queries, of the candidates (or None)"
            )
        given = (given, given)
    return None if given[0] is None and given[1] is None else given


def names(name: str, values, length: int) -> tuple[str, ...] | None:
    """One text a row.

    Raises:
        InputError: no text, or another number of them.
    """
    if values is None:
        return None
    said = texts(values)
    if said is None or len(said) != length:
        size = f"{len(said)} texts" if said is not None else type(values).__name__
        raise InputError(f"{name}: {size}, expected {length} texts, one for each row")
    return tuple(spelled(name, said))


def pictures(name: str, values, length: int) -> Pictures | None:
    """One picture a row, or its path.

    Raises:
        InputError: neither.
    """
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


def negatives(name: str, values, asks: Tensor, asked: Tensor, sides: tuple[str, str]) -> Tensor | None:
    """Rows of own hard negatives, (Q, K), -1 for none.

    Raises:
        InputError: wrong shape or dtype, a row that is not there, or one that is a positive of its query.
    """
    if values is None:
        return None
    try:
        values = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: {type(values).__name__}, expected rows of {sides[1]}, ({len(asks)}, K)") from None
    shape = tuple(values.shape)
    if values.is_floating_point() and values.ndim == 3:
        raise InputError(
            f"{name}: vectors of shape {shape}; put them behind {sides[1]}, with groups of their own, and give their "
            f"rows here: whole numbers of shape ({len(asks)}, K), -1 for none"
        )
    whole = not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)
    if not whole or values.ndim != 2 or shape[0] != len(asks) or shape[1] == 0:
        raise InputError(
            f"{name}: {values.dtype} of shape {shape}, expected whole numbers of shape ({len(asks)}, K): rows of "
            f"{sides[1]}, -1 for none"
        )
    values = values.to(device=asks.device, dtype=torch.int64)
    wrong = ((values < -1) | (values >= len(asked))).nonzero()
    if len(wrong):
        row, place = wrong[0].tolist()
        raise InputError(
            f"{name}: {int(values[row, place])} in row {row}, expected rows of {sides[1]}, 0 to {len(asked) - 1}, or "
            f"-1 for none ({len(wrong)} such entries)"
        )
    own = ((values >= 0) & (asked[values.clamp(min=0)] == asks[:, None])).nonzero()
    if len(own):
        row, place = own[0].tolist()
        raise InputError(
            f"{name}: {sides[1]} {int(values[row, place])} is named by {sides[0]} {row}, whose positive it is: they "
            f"share group {int(asks[row])} ({len(own)} such entries)"
        )
    return values


def picture(pictures: Pictures, row: int, folder: Path | None = None) -> np.ndarray | None:
    """One picture, (height, width, 3) of uint8, read now; None for an empty path.

    Args:
        pictures: of one side.
        row: which.
        folder: that its file must lie in, links followed; None: anywhere.

    Raises:
        InputError: the file is not there, lies elsewhere, or is no picture.
    """
    if isinstance(pictures, np.ndarray):
        return pictures[row]
    if not pictures[row]:
        return None
    path = Path(pictures[row])
    if folder is not None and not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"picture {path}: it lies outside of {folder}")
    try:
        known = path.is_file() and path.stat().st_size <= HEAVIEST
        found = _read(path) if known else None
    except Exception as error:  # Pillow has many for a damaged or hostile file
        raise InputError(f"picture {path}: it cannot be read ({type(error).__name__})") from error
    if found is None:
        raise InputError(f"picture {path}: no file of at most {HEAVIEST >> 20} MiB and as many pixels")
    return found


def _read(path: Path) -> np.ndarray | None:
    """A picture, made small; None if it is too large to be unpacked."""
    from PIL import Image  # only where a picture is shown

    with Image.open(path, formats=FORMATS) as image:
        if image.width * image.height > HEAVIEST:
            return None
        image.thumbnail((SIDE, SIDE))
        return np.asarray(image.convert("RGB"))
