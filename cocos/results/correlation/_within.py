"""Rank correlation within blocks, with its interval and its test."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cocos.base.errors import InputError
from cocos.results.correlation import _resampling
from cocos.results.correlation._blocks import Blocked, blocked, checked, products, ranks, rho


@dataclass(frozen=True)
class Association:
    """A rank correlation with its interval and p-value, or the reason why there is none.

    Args:
        rho: the correlation; NaN where undefined.
        low: lower end of the interval.
        high: its upper end.
        p: two-sided p-value of the permutation test; NaN where none is made.
        number: of units used.
        blocks: number of blocks used; of runs for checkpoints of one run.
        left_out: number of units left out because a number is not finite.
        without: blocks left out, each with its reason.
        level: of the interval, 0 to 1.
        smallest: smallest p-value that the test can give.
        undefined: why there is no correlation; empty where there is one.

    Examples:
        >>> cocos.correlation.Association(0.7, 0.2, 0.9, 0.01, 20, 2).short()
        '+0.70 [+0.20, +0.90], p = 0.01'
    """

    rho: float
    low: float
    high: float
    p: float
    number: int
    blocks: int
    left_out: int = 0
    without: tuple[tuple[str, str], ...] = ()
    level: float = 0.95
    smallest: float = math.nan
    undefined: str = ""

    @property
    def resolved(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    def short(self, digits: int = 2) -> str:
        """Correlation, interval and p-value; the reason where there is none."""
        if self.undefined:
            return f"undefined: {self.undefined}"
        p = "" if math.isnan(self.p) else f", p = {self.p:.2g}"
        there = "" if math.isnan(self.low) else f" [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"
        return f"{self.rho:+.{digits}f}{there}{p}"


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation, ties at their mean rank.

    Examples:
        >>> round(cocos.correlation.spearman([1, 2, 3, 4], [1, 3, 2, 4]), 6)
        0.8
    """
    found = blocked({"x": x, "y": y}, None)
    if found.left_out or found.without:
        reason = f"{found.left_out} units are not finite" if found.left_out else found.without[0][1]
        raise InputError(f"spearman: {reason}; expected three or more finite numbers that differ, in both columns")
    return float(rho(products(found.values, found.once))[0])


def within(
    x: ArrayLike,
    y: ArrayLike,
    block: Sequence[object] | NDArray[np.generic] | None = None,
    *,
    permutations: int = 10_000,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    names: tuple[str, str] = ("x", "y"),
) -> Association:
    """Correlate ranks within blocks: ranked and centred in each block, then one correlation of all of them.

    A block of n units weighs about n³, as its ranks are further apart. The test exchanges x within blocks; it lists all
    orders where there are at most `permutations` of them.

    Args:
        x: one number a unit.
        y: the other numbers, in the same order.
        block: block of each unit; None: one block.
        permutations: number of random orders of the test.
        resamples: number of resamples of the bootstrap.
        level: of the interval.
        seed: for both.
        names: of x and y, for reasons.

    Examples:
        Two losses, between which both numbers differ, and within which one falls while the other rises:

        >>> x, y = [1, 2, 3, 4, 11, 12, 13, 14], [4, 3, 2, 1, 14, 13, 12, 11]
        >>> found = cocos.correlation.within(x, y, ["triplet"] * 4 + ["ntxent"] * 4)
        >>> round(found.rho, 6), round(cocos.correlation.spearman(x, y), 2), found.number, found.blocks
        (-1.0, 0.52, 8, 2)
    """
    checked(permutations, resamples, level)
    made = blocked({names[0]: x, names[1]: y}, block)
    if made.undefined:
        return nothing(made, level)
    observed = products(made.values, made.once)
    placed = [ranks(each) for each in made.values]
    sums, exhaustive = _resampling.null([r[0] for r in placed], [r[1][:, None] for r in placed], permutations, seed)
    p, smallest = _resampling.tail(float(observed[0, 0, 1]), sums[:, 0], exhaustive)
    drawn = _resampling.resampled(lambda w: rho(products(made.values, w)), made.sizes, resamples, seed)
    low, high = _resampling.interval(drawn, level)
    return Association(float(rho(observed)[0]), low, high, p, made.number, len(made.values), made.left_out,
                       made.without, level, smallest)  # fmt: skip


def nothing(made: Blocked, level: float) -> Association:
    nan = math.nan
    return Association(nan, nan, nan, nan, made.number, len(made.values), made.left_out, made.without, level,
                       undefined=made.undefined)  # fmt: skip
