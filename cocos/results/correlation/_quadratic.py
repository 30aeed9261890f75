"""A parabola within blocks: is there an optimum, and where?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cocos.results.correlation import _resampling
from cocos.results.correlation._blocks import Blocked, Floats, blocked, checked

# Smallest part of the variance of x² that may be left once x is regressed out: less is rounding.
BENT_PART = 1e-9


@dataclass(frozen=True)
class Quadratic:
    """A parabola within blocks: y = block + slope x + curvature x².

    Args:
        curvature: coefficient of x²; below 0 there is an optimum.
        low: lower end of its interval.
        high: its upper end.
        p: two-sided p-value of the curvature, twice the smaller tail of the resamples.
        slope: coefficient of x.
        optimum: x at which the parabola is largest; NaN where the curvature is not below 0.
        optimum_low: lower end of its interval, over the resamples with a curvature below 0.
        optimum_high: its upper end.
        bent_down: fraction of the resamples with a curvature below 0.
        inside: whether the optimum lies between the smallest and the largest x.
        r2: part of the variance of y that blocks alone, with x, and with x² explain.
        number: of units used.
        blocks: number of blocks used.
        left_out: number of units left out because a number is not finite.
        without: blocks left out, each with its reason.
        level: of the intervals, 0 to 1.
        undefined: why there is no parabola; empty where there is one.

    Examples:
        >>> import numpy as np
        >>> x = np.arange(9.0)
        >>> found = cocos.correlation.quadratic(x, -((x - 3) ** 2), resamples=100)
        >>> round(found.optimum, 6), found.inside
        (3.0, True)
    """

    curvature: float
    low: float
    high: float
    p: float
    slope: float
    optimum: float
    optimum_low: float
    optimum_high: float
    bent_down: float
    inside: bool
    r2: tuple[float, float, float]
    number: int
    blocks: int
    left_out: int = 0
    without: tuple[tuple[str, str], ...] = ()
    level: float = 0.95
    undefined: str = ""


def quadratic(
    x: ArrayLike,
    y: ArrayLike,
    block: Sequence[object] | NDArray[np.generic] | None = None,
    *,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    names: tuple[str, str] = ("x", "y"),
) -> Quadratic:
    """Fit y = block + slope x + curvature x² by least squares, with intervals over resampled units within blocks.

    A significant curvature below 0 is no optimum by itself: look whether the optimum, with its interval, is inside the
    range of x.

    Args:
        x: one number a unit, on the scale of the parabola, such as the log of an effective number.
        y: the other numbers, in the same order.
        block: block of each unit, which has its own level of y; None: one block.
        resamples: number of resamples of the bootstrap.
        level: of the intervals.
        seed: for the resamples.
        names: of x and y, for reasons.

    Examples:
        >>> import numpy as np
        >>> x = np.log([2.0, 4, 8, 16, 32, 64])
        >>> found = cocos.correlation.quadratic(x, 400 - (x - np.log(16)) ** 2, resamples=100)
        >>> round(np.exp(found.optimum)), round(found.curvature, 6)
        (16, -1.0)
    """
    checked(1, resamples, level)
    made, nan = blocked({names[0]: x, names[1]: y}, block), math.nan
    if made.undefined:
        return _nowhere(made, level, made.undefined)
    every = np.concatenate(made.values, axis=1)
    middle, scale = float(every[0].mean()), float(every[0].std())
    scaled = [np.stack([(each[0] - middle) / scale, each[1] - every[1].mean()]) for each in made.values]
    observed = _moments(scaled, made.once)
    slope, bend = (float(each[0]) for each in _solved(observed))
    if math.isnan(bend):
        why = f"{names[0]} has too few values, n = {made.number}: a parabola needs three in a block"
        return _nowhere(made, level, why)
    drawn_slope, drawn_bend = _resampling.resampled(
        lambda w: np.stack(_solved(_moments(scaled, w)), axis=1), made.sizes, resamples, seed
    ).T
    drawn_bend = drawn_bend / scale**2
    down = drawn_bend < 0
    best = middle - drawn_slope[down] / scale / (2 * drawn_bend[down])
    known, optimum = int(np.isfinite(drawn_bend).sum()), middle - scale * slope / (2 * bend) if bend < 0 else nan
    own = observed[0]
    rest = (own[2, 2], own[2, 2] - own[0, 2] ** 2 / own[0, 0], own[2, 2] - slope * own[0, 2] - bend * own[1, 2])
    total = float(((every[1] - every[1].mean()) ** 2).sum())
    return Quadratic(
        bend / scale**2,
        *_resampling.interval(drawn_bend, level),
        _resampling.smaller_tail(drawn_bend),
        slope / scale - 2 * bend * middle / scale**2,
        optimum,
        *_resampling.interval(best, level),
        float(down.sum() / known) if known else nan,
        bool(every[0].min() <= optimum <= every[0].max()),
        tuple(float(1 - each / total) for each in rest),  # type: ignore[arg-type]
        made.number,
        len(made.values),
        made.left_out,
        made.without,
        level,
    )


def _nowhere(made: Blocked, level: float, why: str) -> Quadratic:
    """No parabola, with the reason."""
    nan, about = math.nan, (made.number, len(made.values), made.left_out, made.without, level)
    return Quadratic(nan, nan, nan, nan, nan, nan, nan, nan, nan, False, (nan, nan, nan), *about, undefined=why)


def _moments(blocks: Sequence[Floats], weights: Sequence[Floats]) -> Floats:
    """Sums of products of x, x² and y, centred within blocks, in each resample: (resamples, 3, 3)."""
    total: Floats = np.zeros(())
    for (x, y), drawn in zip(blocks, weights, strict=True):
        columns = np.stack([x, x**2, y])
        means = drawn @ columns.T / len(x)
        pairs = (columns[:, None] * columns[None]).reshape(9, -1)
        total = total + (drawn @ pairs.T).reshape(-1, 3, 3) - len(x) * means[:, :, None] * means[:, None]
    return total


def _solved(moments: Floats) -> tuple[Floats, Floats]:
    """Slope and curvature in each resample; NaN where x has fewer than three values in it."""
    xx, xz, zz, xy, zy = (moments[:, i, j] for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2)))
    left = xx * zz - xz**2
    known = left > BENT_PART * xx * zz
    bend = np.where(known, (xx * zy - xz * xy) / np.where(known, left, 1), np.nan)
    return (xy - bend * xz) / np.where(known, xx, 1), bend
