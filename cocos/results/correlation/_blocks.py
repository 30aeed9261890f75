"""Units of blocks, without those that cannot be used, and correlations of their ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cocos.base.errors import InputError
from cocos.results.correlation import _resampling

Floats = NDArray[np.float64]
# Minimum number of units of a block: two are always in perfect order.
FEWEST_OF_BLOCK = 3
# Minimum number of units of all blocks: the smallest p-value of three is 1/3.
FEWEST_UNITS = 4
# Minimum number of resamples: of fewer, the ends of an interval are single ones.
FEWEST_RESAMPLES = 100
# Blocks that a reason names.
MOST_NAMED = 3
# Largest difference between values of a constant column, in parts of the largest: ten times the rounding of float32.
CONSTANT_WITHIN = 1e-6


@dataclass(frozen=True)
class Blocked:
    """Finite units of the blocks that can be used: (columns, n) for each."""

    values: tuple[Floats, ...]
    left_out: int
    without: tuple[tuple[str, str], ...]
    undefined: str

    @property
    def number(self) -> int:
        return sum(each.shape[1] for each in self.values)

    @property
    def sizes(self) -> list[int]:
        return [each.shape[1] for each in self.values]

    @property
    def once(self) -> list[Floats]:
        """Weights of the sample itself, in which each unit is drawn once."""
        return [np.ones((1, size)) for size in self.sizes]


def column(values: ArrayLike, name: str) -> Floats:
    try:
        made = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"correlation: {name} is not made of numbers") from None
    return made


def constant(values: Floats) -> bool:
    return bool(np.ptp(values) <= CONSTANT_WITHIN * np.abs(values).max())


def blocked(columns: dict[str, ArrayLike], block: Sequence[object] | NDArray[np.generic] | None) -> Blocked:
    """Sort units into blocks, without those that cannot be used."""
    arrays = [column(each, name) for name, each in columns.items()]
    names = np.asarray(["all"] * len(arrays[0]) if block is None else block).astype(str)
    if any(each.shape != names.shape or each.ndim != 1 for each in arrays):
        said = ", ".join(f"{name} {list(each.shape)}" for name, each in zip(columns, arrays, strict=True))
        raise InputError(f"correlation: {said} and block {list(names.shape)}, expected one number a unit in each")
    table = np.stack(arrays)
    finite = np.isfinite(table).all(axis=0)
    kept, without = [], []
    for name in np.unique(names):
        own = table[:, (names == name) & finite]
        still = [key for key, each in zip(columns, own, strict=True) if own.shape[1] and constant(each)]
        if own.shape[1] < FEWEST_OF_BLOCK:
            without.append((str(name), f"n = {own.shape[1]} finite, at least {FEWEST_OF_BLOCK} are needed"))
        elif still:
            without.append((str(name), f"{' and '.join(still)} constant, n = {own.shape[1]}"))
        else:
            kept.append(own)
    number, why = sum(each.shape[1] for each in kept), ""
    if number < FEWEST_UNITS:
        why = _too_few(number, without, int(finite.sum()) if block is None else None)
    return Blocked(tuple(kept), int((~finite).sum()), tuple(without), why)


def _too_few(number: int, without: list[tuple[str, str]], finite: int | None) -> str:
    """Why nothing can be computed; `finite` is the number of finite units of a single block."""
    needed = f"at least {FEWEST_UNITS} are needed"
    if finite is not None and finite < FEWEST_UNITS:
        return f"n = {finite} finite, {needed}"
    if finite is not None:
        return without[0][1]
    said = "; ".join(f"{name}: {reason}" for name, reason in without[:MOST_NAMED])
    more = f"; and {len(without) - MOST_NAMED} more" if len(without) > MOST_NAMED else ""
    return f"n = {number} in blocks that can be used, {needed}" + (f" ({said}{more})" if said else "")


def checked(permutations: int, resamples: int, level: float) -> None:
    if permutations < 1:
        raise InputError(f"correlation: {permutations} permutations, expected 1 or more")
    if resamples < FEWEST_RESAMPLES:
        raise InputError(f"correlation: {resamples} resamples, expected {FEWEST_RESAMPLES} or more for an interval")
    if not 0 < level < 1:
        raise InputError(f"correlation: level {level}, expected a number between 0 and 1, like 0.95")


def products(blocks: Sequence[Floats], weights: Sequence[Floats]) -> Floats:
    """Sums of products of the ranks, centred within blocks, in each resample: (resamples, columns, columns)."""
    total: Floats = np.zeros(())
    for values, drawn in zip(blocks, weights, strict=True):
        placed = np.stack([_resampling.midranks(each, drawn) for each in values]) - (values.shape[1] + 1) / 2
        total = total + np.einsum("ibn,jbn->bij", placed * drawn, placed)
    return total


def rho(sums: Floats, one: int = 0, other: int = 1) -> Floats:
    """Correlation of two columns in each resample, of their `products`; NaN where one is constant."""
    size = sums[:, one, one] * sums[:, other, other]
    made: Floats = np.where(size > 0, sums[:, one, other] / np.sqrt(np.where(size > 0, size, 1)), np.nan)
    return made


def ranks(values: Floats) -> Floats:
    """Centred ranks of each column of a block, (columns, n)."""
    once = np.ones((1, values.shape[1]))
    made: Floats = np.stack([_resampling.midranks(each, once)[0] for each in values]) - (values.shape[1] + 1) / 2
    return made
