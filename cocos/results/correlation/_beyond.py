"""What one column says of another that a baseline does not."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cocos.results.correlation import _resampling
from cocos.results.correlation._blocks import Blocked, Floats, blocked, checked, products, ranks, rho
from cocos.results.correlation._within import Association, nothing

# Smallest part of the variance of a column that may be left once the baseline is regressed out.
LEFT_OVER = 1e-9


@dataclass(frozen=True)
class Beyond:
    """What x says of y that a baseline does not.

    Args:
        partial: rank correlation of x and y given the baseline.
        x: rank correlation of x and y.
        baseline: of the baseline and y.
        difference: |x| less |baseline|, over the same units.
        low: lower end of its interval, of the paired bootstrap.
        high: its upper end.
        p: two-sided p-value of the difference, twice the smaller tail of the resamples.

    Examples:
        >>> x, y = [1.0, 2, 3, 4, 5, 6], [1.0, 3, 2, 5, 4, 6]
        >>> found = cocos.correlation.beyond(x, [3.0, 1, 2, 6, 4, 5], y, resamples=100)
        >>> round(found.x, 2), round(found.baseline, 2)
        (0.89, 0.71)
    """

    partial: Association
    x: float
    baseline: float
    difference: float
    low: float
    high: float
    p: float


def beyond(
    x: ArrayLike,
    baseline: ArrayLike,
    y: ArrayLike,
    block: Sequence[object] | NDArray[np.generic] | None = None,
    *,
    permutations: int = 10_000,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    names: tuple[str, str, str] = ("x", "baseline", "y"),
) -> Beyond:
    """Correlate x with y given a baseline, and compare how well each of the two goes with y, over the same units.

    The partial correlation is that of the ranks, centred within blocks, after the baseline's ranks are regressed out.
    Its test exchanges the residuals of x within blocks and regresses the baseline out anew; it is exact only without a
    baseline, and close to it otherwise. The difference of two sizes |rho| is biased where both are near 0.

    Args:
        x: one number a unit.
        baseline: numbers that x is to surpass, such as validation recall at the same step.
        y: the numbers that both predict.
        block: block of each unit; None: one block.
        permutations: number of random orders of the test.
        resamples: number of resamples of the bootstrap.
        level: of the intervals.
        seed: for all.
        names: of x, baseline and y, for reasons.

    Source: test: Freedman & Lane 1983, A nonstochastic interpretation of reported significance levels.

    Examples:
        >>> x, y = [1.0, 2, 3, 4, 5, 6, 7], [2.0, 1, 3, 5, 4, 7, 6]
        >>> found = cocos.correlation.beyond(x, [1.0, 3, 2, 5, 4, 6, 7], y, resamples=100)
        >>> round(found.partial.rho, 2)
        0.51
    """
    checked(permutations, resamples, level)
    made = blocked(dict(zip(names, (x, baseline, y), strict=True)), block)
    if made.undefined:
        nan = math.nan
        return Beyond(nothing(made, level), nan, nan, nan, nan, nan, nan)
    observed = products(made.values, made.once)
    partial = float(_partial(observed)[0])
    drawn = _resampling.resampled(lambda w: _compared(products(made.values, w)), made.sizes, resamples, seed)
    low, high = _resampling.interval(drawn[:, 0], level)
    p, smallest, why = math.nan, math.nan, ""
    if math.isnan(partial):
        low, high, why = math.nan, math.nan, f"{names[1]} orders as {names[0]} or {names[2]} does, n = {made.number}"
    else:
        p, smallest = _exchanged(made, observed[0], permutations, seed)
    given = Association(partial, low, high, p, made.number, len(made.values), made.left_out, made.without, level,
                        smallest, why)  # fmt: skip
    own, other = (float(rho(observed, k, 2)[0]) for k in (0, 1))
    ends = _resampling.interval(drawn[:, 1], level)
    return Beyond(given, own, other, abs(own) - abs(other), *ends, _resampling.smaller_tail(drawn[:, 1]))


def _partial(sums: Floats) -> Floats:
    """Correlation of columns 0 and 2 given column 1 in each resample; NaN where column 1 orders as one of them."""
    own, theirs, other = rho(sums, 0, 2), rho(sums, 0, 1), rho(sums, 1, 2)
    left = (1 - theirs**2) * (1 - other**2)
    left = np.where((1 - theirs**2 > LEFT_OVER) & (1 - other**2 > LEFT_OVER), left, np.nan)
    return (own - theirs * other) / np.sqrt(left)


def _compared(sums: Floats) -> Floats:
    """Partial correlation, and difference of the two sizes, in each resample, (resamples, 2)."""
    return np.stack([_partial(sums), np.abs(rho(sums, 0, 2)) - np.abs(rho(sums, 1, 2))], axis=1)


def _exchanged(made: Blocked, sums: Floats, permutations: int, seed: int) -> tuple[float, float]:
    """P-value of the partial correlation, and the smallest one possible."""
    x, base, y = zip(*map(ranks, made.values), strict=True)
    rest = [one - sums[0, 1] / sums[1, 1] * other for one, other in zip(x, base, strict=True)]
    others = [
        np.stack([one - sums[1, 2] / sums[1, 1] * other, other], axis=1) for one, other in zip(y, base, strict=True)
    ]
    drawn, exhaustive = _resampling.null(rest, others, permutations, seed)
    size = sum(float(each @ each) for each in rest)
    left = size - drawn[:, 1] ** 2 / sums[1, 1]
    known = left > LEFT_OVER * size
    reference = np.where(known, drawn[:, 0] / np.sqrt(np.where(known, left, 1)), 0)
    observed = sum(float(one @ other[:, 0]) for one, other in zip(rest, others, strict=True)) / math.sqrt(size)
    return _resampling.tail(observed, reference, exhaustive)
