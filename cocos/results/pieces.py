"""A count piece by piece: pieces that are kept outlive a process that is killed, and a count ends when it is known.

A piece is the result of some batches, next to each other. All pieces together are the count, bit for bit.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cocos import results
from cocos.base import processes
from cocos.base.errors import InputError, unreachable
from cocos.counting import averages, findings
from cocos.results import parts

LEVEL = 0.95  # of the interval that ends a count
FEWEST = 10  # batches before an interval can end it
KEPT_FOR = "kept_for"  # attribute of a kept piece: the count that it belongs to


@dataclass(frozen=True)
class KeptPieces:
    """Pieces in a folder, which a later run of the same count takes from there.

    Args:
        folder: where they are; it is made where it is not there.
        identity: all that the numbers of a piece depend on.
    """

    folder: Path
    identity: str

    def _path(self, piece: slice) -> Path:
        return self.folder / f"batches_{piece.start:08d}_{piece.stop:08d}.nc"

    def find(self, piece: slice) -> xr.Dataset | None:
        """A piece that is there; None where it is not, or is damaged."""
        path = self._path(piece)
        if not path.is_file():
            return None
        try:
            found = results.open(path)
        except InputError:
            return None
        if found.attrs.pop(KEPT_FOR, None) != self.identity:
            raise InputError(f"{path} is kept for another count; take another folder, or remove it")
        return found

    def save(self, piece: slice, found: xr.Dataset) -> xr.Dataset:
        """Keep a piece, whole or not at all; return it as it is read again."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder}: {unreachable(error)}") from None
        results.save(found.assign_attrs({KEPT_FOR: self.identity}), self._path(piece))
        return found


def counted(
    pieces: Sequence[slice],
    count: Callable[[slice], xr.Dataset],
    *,
    kept: KeptPieces | None = None,
    until: float | None = None,
    apart: bool = False,
    report: Callable[[int, int], None] | None = None,
) -> xr.Dataset:
    """Count pieces in their order, and put them together.

    Args:
        pieces: batches of each, next to each other.
        count: counts the batches of a piece.
        kept: where pieces outlive this process.
        until: width at which the interval of the mean ends the count, at the first batch where it is that narrow.
        apart: whether processes take a piece each; otherwise they share the work of each.
        report: called with pieces done, and pieces in all.
    """
    here, found = processes.world(), list[xr.Dataset]()

    def one(piece: slice) -> xr.Dataset:
        made = kept.find(piece) if kept else None
        if made is None:
            if apart:
                with processes.apart():
                    made = count(piece)
            else:
                made = count(piece)
            if kept and (apart or processes.first()):
                kept.save(piece, made)
        return made

    together = here.size if apart else 1
    step = together if until is not None else max(1, len(pieces))
    enough = None
    for start in range(0, len(pieces), step):
        some, mine = pieces[start : start + step], []
        for piece in processes.mine(some) if apart else some:
            mine.append(one(piece))
            if report:
                report(min(start + len(mine) * together, len(pieces)), len(pieces))
        found += processes.collect(mine) if apart else mine
        if until is not None and (enough := known_at(found, until)):
            break
    made = parts.concatenated(found)
    if until is None:
        return made
    if enough:
        made = parts.concatenated([made.isel(batch=slice(enough))])
    return _told(made, until, sum(piece.stop - piece.start for piece in pieces), known=bool(enough))


def _means(data: xr.Dataset) -> np.ndarray:
    """Mean count of the queries of each full batch, (direction, batches); NaN of others."""
    name = "contributing" if data["contributing"].notnull().any() else "relative"
    values = data[name].transpose(*averages.QUERY_DIMS).values
    means = averages.mean(values, ~np.isnan(values), 2)
    means[:, ~averages.full_batches(data)] = np.nan
    return means


def known_at(found: Sequence[xr.Dataset], width: float) -> int | None:
    """Number of batches at which the intervals of all directions are first as narrow as a width; None: of no number."""
    from scipy.special import stdtrit  # which a count that does not end early never needs

    means = np.concatenate([_means(data) for data in found], axis=1)
    known, gap = ~np.isnan(means), np.nan_to_num(means - np.nanmean(means, axis=1, keepdims=True))
    number = np.maximum(known.cumsum(axis=1), 2)
    variance = np.maximum((gap**2).cumsum(axis=1) - gap.cumsum(axis=1) ** 2 / number, 0) / (number - 1)
    near = (2 * stdtrit(number - 1, (1 + LEVEL) / 2) * np.sqrt(variance / number) <= width * 1.001).all(axis=0)
    for place in np.flatnonzero(near):
        if place + 1 >= FEWEST and all(high - low <= width for low, high in map(interval, means[:, : place + 1])):
            return int(place) + 1
    return None


def interval(means: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """Student's interval of the mean of batch means, (batches,); NaN is left out.

    Examples:
        >>> import numpy
        >>> low, high = cocos.results.pieces.interval(numpy.array([1.0, 2.0, 3.0]))
        >>> round(low, 2), round(high, 2)
        (-0.48, 4.48)
    """
    from scipy.special import stdtrit

    values = means[~np.isnan(means)]
    number = len(values)
    if number < 2:
        return -math.inf, math.inf
    half = float(stdtrit(number - 1, (1 + level) / 2) * values.std(ddof=1) / math.sqrt(number))
    return float(values.mean()) - half, float(values.mean()) + half


def _told(data: xr.Dataset, until: float, batches: int, *, known: bool) -> xr.Dataset:
    """The count with the intervals, and what they say."""
    names = [str(name) for name in data["direction"].values]
    found = dict(zip(names, map(interval, _means(data)), strict=True))
    width = max(high - low for low, high in found.values())
    numbers: dict[str, Any] = {
        "number": data.sizes["batch"],
        "batches": batches,
        "width": width,
        "limit": until,
        "level": 100 * LEVEL,
    }
    said = findings.made("known" if known else "not known yet", **numbers)
    attrs = findings.added(data.attrs, said) | {"until": until, "until_level": LEVEL}
    ends = [each for low, high in found.values() for each in (low, high)]
    return data.assign_attrs(attrs | {"until_interval": ends})


def until_document(attrs: Mapping[str, Any], directions: Sequence[str]) -> dict[str, Any]:
    """Intervals of a count that ended at a width, as plain data."""
    if "until" not in attrs:
        return {}
    ends = np.asarray(attrs["until_interval"], dtype=float).reshape(-1, 2).tolist()
    intervals = dict(zip(directions, ends, strict=True))
    reached = all(high - low <= float(attrs["until"]) for low, high in ends)
    about = {"width": float(attrs["until"]), "level": float(attrs["until_level"]), "reached": reached}
    return {"until": about | {"intervals": intervals}}
