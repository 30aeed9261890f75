"""Rank correlations of runs: within blocks, beyond a baseline, curved, and at every level side by side.

A unit is what was drawn independently: a setting where losses are compared, a seed within a setting; never a
checkpoint, a batch or a query. A block holds the units that may be exchanged, such as the settings of one loss.
Units with a number that is not finite are left out and counted; a block in which a column is constant up to rounding,
or which has fewer than three units, is left out by its name. Where too little is left there is no number, but the
reason, in `undefined`: a test of a constant column or of NaN has no p-value.

Intervals are percentile intervals of the bootstrap over units within blocks, with ranks taken anew in each resample.
In simulations of normal pairs with correlations from 0 to .9, an interval of 95 % contained the truth in 94 to 98 % of
samples of 8 to 40 units, but in 62 to 98 % of samples of 4 to 6: there look at p. An interval is one point where the
order is perfect. Units that lie on a grid, such as the temperatures of a loss, are not drawn independently: `ordered`
tests them against smooth curves.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cocos.base import ranges
from cocos.base.errors import InputError

__all__ = [
    "LEVELS",
    "Association",
    "Beyond",
    "Ordered",
    "Quadratic",
    "beyond",
    "levels",
    "means",
    "ordered",
    "quadratic",
    "spearman",
    "within",
]

Floats = NDArray[np.float64]
Names = NDArray[np.str_]
Block = Sequence[object] | NDArray[np.generic] | None
Permutations = Annotated[int, ranges.whole(1)]
# Of fewer resamples, the ends of an interval are single ones.
Resamples = Annotated[int, ranges.whole(100)]
Seed = Annotated[int, ranges.whole(0)]
# Levels from the finest: what varies, and the unit.
LEVELS: Mapping[str, tuple[str, str]] = {
    "within_run": ("checkpoints of a run", "settings"),
    "seeds": ("seeds of a setting", "runs"),
    "settings": ("settings of a family", "settings"),
    "families": ("families", "families"),
    "pooled": ("pooled: not a finding", "points"),
}
# Minimum number of units of a block: two are always in perfect order.
FEWEST_OF_BLOCK = 3
# Minimum number of units of all blocks: the smallest p-value of three is 1/3.
FEWEST_UNITS = 4
# Blocks that a reason names.
MOST_NAMED = 3
# Significant digits of means over seeds, so that equal ones are ties.
MEAN_DIGITS = 12
# Largest difference between values of a constant column, in parts of the largest: ten times the rounding of float32.
CONSTANT_WITHIN = 1e-6
# Smallest part of the variance of a column that may be left once another one is regressed out: less is rounding.
LEFT_OVER = 1e-9
# Rounding of a sum of products of ranks, in parts of its largest value.
SUM_ROUNDING = 1e-9
# Length scales of a smooth curve that are tried, in steps of the grid; beyond the first, units are nearly exchangeable.
CURVE_LENGTHS = (0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Variances of the noise on a curve that are tried, in parts of the variance of the curve.
CURVE_NOISES = (0.001, 0.03, 0.1, 0.3, 1.0)
# Maximum number of values that are drawn at once: 1 MiB of float64, which stays in the cache of a core.
PIECE_VALUES = 2**17


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

    rho: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    number: int = 0
    blocks: int = 0
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


@dataclass(frozen=True)
class Beyond:
    """How well x predicts y beyond a baseline.

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
    x: float = math.nan
    baseline: float = math.nan
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan


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

    curvature: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    slope: float = math.nan
    optimum: float = math.nan
    optimum_low: float = math.nan
    optimum_high: float = math.nan
    bent_down: float = math.nan
    inside: bool = False
    r2: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    number: int = 0
    blocks: int = 0
    left_out: int = 0
    without: tuple[tuple[str, str], ...] = ()
    level: float = 0.95
    undefined: str = ""


@dataclass(frozen=True)
class Ordered:
    """The test of a rank correlation of settings that lie on a grid, against smooth curves along the grid.

    Args:
        rho: rank correlation within blocks, as that of `within`.
        p: two-sided p-value against smooth curves.
        length: length scale of the curves, in steps of the grid; the longer, the fewer settings speak for themselves.
        noise: variance of the noise on them, in parts of the variance of the curves.
        number: of units used.
        blocks: number of blocks used.
        left_out: number of units left out because a number is not finite.
        without: blocks left out, each with its reason.
        smallest: smallest p-value that the test can give.
        undefined: why there is no test; empty where there is one.

    Examples:
        >>> x = list(range(8))
        >>> found = cocos.correlation.ordered(x, [1, 2, 4, 7, 8, 9, 9.5, 9.7], order=x)
        >>> round(found.rho, 6), found.number, found.p > 0.05  # one rising curve is no evidence
        (1.0, 8, True)
    """

    rho: float = math.nan
    p: float = math.nan
    length: float = math.nan
    noise: float = math.nan
    number: int = 0
    blocks: int = 0
    left_out: int = 0
    without: tuple[tuple[str, str], ...] = ()
    smallest: float = math.nan
    undefined: str = ""


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation, ties at their mean rank.

    Raises:
        InputError: fewer than three numbers, one that is not finite, or a constant column.

    Examples:
        >>> round(cocos.correlation.spearman([1, 2, 3, 4], [1, 3, 2, 4]), 6)
        0.8
    """
    units = _Units({"x": x, "y": y}, None)
    if units.left_out or units.without:
        reason = f"{units.left_out} units are not finite" if units.left_out else units.without[0][1]
        raise InputError(f"spearman: {reason}; expected three or more finite numbers that differ, in both columns")
    return float(_rho(units.products())[0])


@ranges.checked
def within(
    x: ArrayLike,
    y: ArrayLike,
    block: Block = None,
    *,
    permutations: Permutations = 10_000,
    resamples: Resamples = 10_000,
    level: ranges.Level = 0.95,
    seed: Seed = 0,
    names: tuple[str, str] = ("x", "y"),
) -> Association:
    """Correlate ranks within blocks: ranked and centred in each block, then one correlation of all of them.

    A block of n units weighs about n³, as its ranks are further apart. The test exchanges x within blocks; it lists all
    orders where there are at most `permutations` of them. It assumes that the units of a block are exchangeable, as
    seeds and settings drawn at random are. Neighbours on a grid are alike, and for them its p-values are too small:
    see `ordered`.

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
    drawing = Drawing(permutations, resamples, level, seed)
    units = _Units({names[0]: x, names[1]: y}, block)
    if units.undefined:
        return Association(**units.about, level=level, undefined=units.undefined)
    observed = units.products()
    placed = [_ranks(each) for each in units.values]
    sums, exhaustive = drawing.orders([one for one, _ in placed], [other[:, None] for _, other in placed])
    p, smallest = _two_sided_p_value(float(observed[0, 0, 1]), sums[:, 0], exhaustive)
    low, high = drawing.interval(drawing.resampled(lambda times: _rho(units.products(times)), units.sizes))
    return Association(float(_rho(observed)[0]), low, high, p, **units.about, level=level, smallest=smallest)


@ranges.checked
def ordered(
    x: ArrayLike,
    y: ArrayLike,
    order: ArrayLike,
    block: Block = None,
    *,
    permutations: Permutations = 10_000,
    seed: Seed = 0,
    names: tuple[str, str, str] = ("x", "y", "order"),
) -> Ordered:
    """Test a rank correlation of settings on a grid against smooth curves that know nothing of x.

    Recall changes smoothly along the temperature of a loss, and so does a count: two smooth curves are correlated by
    chance far more often than as many independent points. The null hypothesis is that y in each block is a smooth
    curve along the grid, drawn without regard to x: a Gaussian process with a squared exponential kernel, a level and
    a scale of its own in each block, a length scale and a noise common to all. These two are estimated by restricted
    maximum likelihood from y, curves are drawn, and the p-value is the fraction of them whose rank correlation with x
    is at least as large. Units at the same place of the grid, such as several learning rates, share a curve.

    Args:
        x: one number a unit.
        y: the other numbers, in the same order.
        order: value of the parameter that the settings of a block differ by; its ranks are the places of the grid.
        block: block of each unit, which has a curve of its own; None: one block.
        permutations: number of random curves.
        seed: for the curves.
        names: of x, y and order, for reasons.

    Source: Patterson & Thompson 1971, Recovery of inter-block information when block sizes are unequal (restricted
    maximum likelihood); the surrogate is the parametric bootstrap of Davison & Hinkley 1997, section 4.2.

    Examples:
        >>> temperature = [0.05, 0.1, 0.2, 0.4] * 3
        >>> count = [2, 5, 9, 20, 1, 3, 8, 22, 2, 4, 7, 30]
        >>> found = cocos.correlation.ordered(count, count, temperature, ["a"] * 4 + ["b"] * 4 + ["c"] * 4)
        >>> round(found.rho, 6), found.blocks
        (1.0, 3)
    """
    units = _Units(dict(zip(names, (x, y, order), strict=True)), block)
    if units.undefined:
        return Ordered(**units.about, undefined=units.undefined)
    curves = [each[1] for each in units.values]
    places = [np.unique(each[2], return_inverse=True)[1].astype(np.float64) for each in units.values]
    length, noise = _smoothness(curves, places)
    roots = [np.linalg.cholesky(_covariance(place, length, noise)) for place in places]
    ranks = [_ranks(each[:2]) for each in units.values]
    observed = sum(float(one @ other) for one, other in ranks)
    size = math.sqrt(math.prod(sum(float(each[k] @ each[k]) for each in ranks) for k in (0, 1)))
    rng, piece, found = np.random.default_rng([seed, 2]), max(1, PIECE_VALUES // units.number), []
    for start in range(0, permutations, piece):
        number, total = min(piece, permutations - start), 0.0
        for root, (one, _) in zip(roots, ranks, strict=True):
            drawn = rng.standard_normal((number, len(root))) @ root.T
            total = total + (drawn.argsort(axis=1).argsort(axis=1) - (len(root) - 1) / 2) @ one
        found.append(total)
    p, smallest = _two_sided_p_value(observed, np.concatenate(found), exhaustive=False)
    return Ordered(observed / size, p, length, noise, **units.about, smallest=smallest)


def _covariance(places: Floats, length: float, noise: float) -> Floats:
    """Covariance of a curve with noise at places of a grid, (n, n), in parts of the variance of the curve."""
    away = np.subtract.outer(places, places)
    made: Floats = np.exp(-(away**2) / (2 * length**2)) + noise * np.eye(len(places))
    return made


def _smoothness(curves: Sequence[Floats], places: Sequence[Floats]) -> tuple[float, float]:
    """Length scale and noise with the largest restricted likelihood, common to all curves, each with its own scale."""
    contrasts = [np.linalg.svd(np.ones((len(each), 1)))[0][:, 1:] for each in curves]
    centred = [part.T @ each for part, each in zip(contrasts, curves, strict=True)]

    def likelihood(length: float, noise: float) -> float:
        total = 0.0
        for part, value, place in zip(contrasts, centred, places, strict=True):
            root = np.linalg.cholesky(part.T @ _covariance(place, length, noise) @ part)
            rest = np.linalg.solve(root, value)
            total -= len(rest) / 2 * math.log(float(rest @ rest) / len(rest)) + float(np.log(np.diag(root)).sum())
        return total

    return max(itertools.product(CURVE_LENGTHS, CURVE_NOISES), key=lambda both: likelihood(*both))


@ranges.checked
def beyond(
    x: ArrayLike,
    baseline: ArrayLike,
    y: ArrayLike,
    block: Block = None,
    *,
    permutations: Permutations = 10_000,
    resamples: Resamples = 10_000,
    level: ranges.Level = 0.95,
    seed: Seed = 0,
    names: tuple[str, str, str] = ("x", "baseline", "y"),
) -> Beyond:
    """Correlate x with y given a baseline, and compare how well each of the two goes with y, over the same units.

    The partial correlation is that of the ranks, centred within blocks, after the baseline's ranks are regressed out.
    Its test exchanges the residuals of x within blocks and regresses the baseline out anew; it is exact only without a
    baseline, and close to it otherwise. The difference of two sizes |rho| is biased where both are near 0. The baseline
    is what x is to surpass, such as validation recall at the same step; the other arguments are those of `within`.

    Source: test: Freedman & Lane 1983, A nonstochastic interpretation of reported significance levels.

    Examples:
        >>> x, y = [1.0, 2, 3, 4, 5, 6, 7], [2.0, 1, 3, 5, 4, 7, 6]
        >>> found = cocos.correlation.beyond(x, [1.0, 3, 2, 5, 4, 6, 7], y, resamples=100)
        >>> round(found.partial.rho, 2)
        0.51
    """
    drawing = Drawing(permutations, resamples, level, seed)
    units = _Units(dict(zip(names, (x, baseline, y), strict=True)), block)
    if units.undefined:
        return Beyond(Association(**units.about, level=level, undefined=units.undefined))

    def compared(sums: Floats) -> Floats:
        return np.stack([_partial(sums), np.abs(_rho(sums, 0, 2)) - np.abs(_rho(sums, 1, 2))], axis=1)

    observed = units.products()
    drawn = drawing.resampled(lambda times: compared(units.products(times)), units.sizes)
    rho = float(_partial(observed)[0])
    if math.isnan(rho):
        why = f"{names[1]} orders as {names[0]} or {names[2]} does, n = {units.number}"
        partial = Association(**units.about, level=level, undefined=why)
    else:
        p, smallest = _permutation_p_value(units, observed[0], drawing)
        partial = Association(rho, *drawing.interval(drawn[:, 0]), p, **units.about, level=level, smallest=smallest)
    own, other = (float(_rho(observed, k, 2)[0]) for k in (0, 1))
    ends = drawing.interval(drawn[:, 1])
    return Beyond(partial, own, other, abs(own) - abs(other), *ends, _smaller_tail(drawn[:, 1]))


def _partial(sums: Floats) -> Floats:
    """Correlation of columns 0 and 2 given column 1 in each resample; NaN where column 1 orders as one of them."""
    own, theirs, other = _rho(sums, 0, 2), _rho(sums, 0, 1), _rho(sums, 1, 2)
    left = (1 - theirs**2) * (1 - other**2)
    left = np.where((1 - theirs**2 > LEFT_OVER) & (1 - other**2 > LEFT_OVER), left, np.nan)
    return (own - theirs * other) / np.sqrt(left)


def _permutation_p_value(units: "_Units", sums: Floats, drawing: "Drawing") -> tuple[float, float]:
    """P-value of the partial correlation, and the smallest one possible."""
    x, base, y = zip(*map(_ranks, units.values), strict=True)
    rest = [one - sums[0, 1] / sums[1, 1] * other for one, other in zip(x, base, strict=True)]
    others = [
        np.stack([one - sums[1, 2] / sums[1, 1] * other, other], axis=1) for one, other in zip(y, base, strict=True)
    ]
    drawn, exhaustive = drawing.orders(rest, others)
    size = sum(float(each @ each) for each in rest)
    left = size - drawn[:, 1] ** 2 / sums[1, 1]
    known = left > LEFT_OVER * size
    reference = np.where(known, drawn[:, 0] / np.sqrt(np.where(known, left, 1)), 0)
    observed = sum(float(one @ other[:, 0]) for one, other in zip(rest, others, strict=True)) / math.sqrt(size)
    return _two_sided_p_value(observed, reference, exhaustive)


@ranges.checked
def quadratic(
    x: ArrayLike,
    y: ArrayLike,
    block: Block = None,
    *,
    resamples: Resamples = 10_000,
    level: ranges.Level = 0.95,
    seed: Seed = 0,
    names: tuple[str, str] = ("x", "y"),
) -> Quadratic:
    """Fit y = block + slope x + curvature x² by least squares, with intervals over resampled units within blocks.

    A significant curvature below 0 is no optimum by itself: look whether the optimum, with its interval, is inside the
    range of x. This is on the scale of the parabola, such as the log of an effective number, and each block has its own
    level of y; the arguments are those of `within`.

    Examples:
        >>> import numpy as np
        >>> x = np.log([2.0, 4, 8, 16, 32, 64])
        >>> found = cocos.correlation.quadratic(x, 400 - (x - np.log(16)) ** 2, resamples=100)
        >>> round(np.exp(found.optimum)), round(found.curvature, 6)
        (16, -1.0)
    """
    drawing, units = Drawing(1, resamples, level, seed), _Units({names[0]: x, names[1]: y}, block)
    if units.undefined:
        return Quadratic(**units.about, level=level, undefined=units.undefined)
    every = np.concatenate(units.values, axis=1)
    middle, scale = float(every[0].mean()), float(every[0].std())
    scaled = [np.stack([(each[0] - middle) / scale, each[1] - every[1].mean()]) for each in units.values]
    observed = _moments(scaled, units.once)
    slope, bend = (float(each[0]) for each in _slope_and_curvature(observed))
    if math.isnan(bend):
        why = f"{names[0]} has too few values, n = {units.number}: a parabola needs three in a block"
        return Quadratic(**units.about, level=level, undefined=why)
    drawn_slope, drawn_bend = drawing.resampled(
        lambda times: np.stack(_slope_and_curvature(_moments(scaled, times)), axis=1), units.sizes
    ).T
    drawn_bend = drawn_bend / scale**2
    down, known = drawn_bend < 0, int(np.isfinite(drawn_bend).sum())
    best = middle - drawn_slope[down] / scale / (2 * drawn_bend[down])
    optimum = middle - scale * slope / (2 * bend) if bend < 0 else math.nan
    own = observed[0]
    rest = (own[2, 2], own[2, 2] - own[0, 2] ** 2 / own[0, 0], own[2, 2] - slope * own[0, 2] - bend * own[1, 2])
    total = float(((every[1] - every[1].mean()) ** 2).sum())
    return Quadratic(
        bend / scale**2,
        *drawing.interval(drawn_bend),
        _smaller_tail(drawn_bend),
        slope / scale - 2 * bend * middle / scale**2,
        optimum,
        *drawing.interval(best),
        float(down.sum() / known) if known else math.nan,
        bool(every[0].min() <= optimum <= every[0].max()),
        tuple(float(1 - each / total) for each in rest),  # type: ignore[arg-type]
        **units.about,
        level=level,
    )


def _moments(blocks: Sequence[Floats], times: Sequence[Floats]) -> Floats:
    """Sums of products of x, x² and y, centred within blocks, in each resample: (resamples, 3, 3)."""
    total: Floats = np.zeros(())
    for (x, y), drawn in zip(blocks, times, strict=True):
        columns = np.stack([x, x**2, y])
        middle = drawn @ columns.T / len(x)
        pairs = (columns[:, None] * columns[None]).reshape(9, -1)
        total = total + (drawn @ pairs.T).reshape(-1, 3, 3) - len(x) * middle[:, :, None] * middle[:, None]
    return total


def _slope_and_curvature(moments: Floats) -> tuple[Floats, Floats]:
    """Slope and curvature in each resample; NaN where x has fewer than three values in it."""
    xx, xz, zz, xy, zy = (moments[:, i, j] for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2)))
    left = xx * zz - xz**2
    known = left > LEFT_OVER * xx * zz
    bend = np.where(known, (xx * zy - xz * xy) / np.where(known, left, 1), np.nan)
    return (xy - bend * xz) / np.where(known, xx, 1), bend


@ranges.checked
def levels(
    x: ArrayLike,
    y: ArrayLike,
    *,
    family: Sequence[object] | NDArray[np.generic],
    config: Sequence[object] | NDArray[np.generic],
    permutations: Permutations = 10_000,
    resamples: Resamples = 10_000,
    level: ranges.Level = 0.95,
    seed: Seed = 0,
    names: tuple[str, str] = ("x", "y"),
) -> dict[str, Association]:
    """Correlate two columns of a table of runs at every level of `LEVELS`, from checkpoints to families.

    `within_run`: mean over runs of the rank correlation over the checkpoints of each; interval over resampled
    settings, test by exchanging their signs. It is mostly progress of training. The other levels use the last
    checkpoint of each run. `seeds`: less the mean of the setting, exchanged within it, interval over resampled
    settings. `settings`: means over seeds, `within` families. `families`: means over those. `pooled`: all points,
    without interval and p-value, for it mixes the others and its points depend on each other.

    Args:
        x: one number a run, (runs,), or a checkpoint, (runs, checkpoints); NaN where there is none.
        y: the other numbers, of the same shape.
        family: of each run, such as its loss.
        config: setting of each run, unique over the families, the same for its seeds.
        permutations: number of random orders of a test.
        resamples: number of resamples of a bootstrap.
        level: of the intervals.
        seed: for all.
        names: of x and y, for reasons.

    Examples:
        >>> config = [f"{loss} {k}" for loss in "ab" for k in range(4)]
        >>> x, y = [1, 2, 3, 4, 11, 12, 13, 14], [4, 3, 2, 1, 14, 13, 12, 11]
        >>> found = cocos.correlation.levels(x, y, family=["a"] * 4 + ["b"] * 4, config=config)
        >>> round(found["settings"].rho, 6), round(found["pooled"].rho, 2), found["seeds"].undefined[:13]
        (-1.0, 0.52, 'n = 0 setting')
    """
    one, other = (np.atleast_2d(_column(each, name).T).T for each, name in zip((x, y), names, strict=True))
    families, configs = np.asarray(family).astype(str), np.asarray(config).astype(str)
    if one.shape != other.shape or one.ndim != 2 or families.shape != configs.shape or families.shape != one.shape[:1]:
        raise InputError(
            f"levels: {names[0]} {list(one.shape)}, {names[1]} {list(other.shape)}, family {list(families.shape)} and "
            f"config {list(configs.shape)}, expected the same number of runs in each"
        )
    drawing = Drawing(permutations, resamples, level, seed)
    there = np.isfinite(one) | np.isfinite(other)
    last = np.arange(len(one)), one.shape[1] - 1 - np.argmax(there[:, ::-1], axis=1)
    ends = np.stack([one[last], other[last]])
    settings, owners = means(ends, configs, families)
    whole, _ = means(settings, owners, owners)
    return {
        "within_run": _within_run(one, other, configs, drawing),
        "seeds": _between_seeds(ends, configs, drawing),
        "settings": within(settings[0], settings[1], owners, names=names, **vars(drawing)),
        "families": within(whole[0], whole[1], names=names, **vars(drawing)),
        "pooled": _pooled(one, other, names, level),
    }


def means(columns: ArrayLike, config: ArrayLike, family: ArrayLike) -> tuple[Floats, Names]:
    """Means over the seeds of each setting: the units in which settings are compared.

    Args:
        columns: one number a run, (columns, runs); a run in which one is not finite has no part in any mean.
        config: setting of each run.
        family: of each run.

    Returns:
        Means, (columns, settings), NaN for a setting without a run, in the order of the names of the settings, and
        the family of each setting.

    Examples:
        >>> cocos.correlation.means([[1, 3, 5]], config=["a", "a", "b"], family=["triplet"] * 3)
        (array([[2., 5.]]), array(['triplet', 'triplet'], dtype='<U7'))
    """
    values = _column(columns, "columns")
    group, owner = np.asarray(config).astype(str), np.asarray(family).astype(str)
    known = np.isfinite(values).all(axis=0)
    made, owners = [], []
    for name in np.unique(group):
        own = group == name
        if len(found := np.unique(owner[own])) > 1:
            raise InputError(f"config {str(name)!r} belongs to the families {', '.join(found)}; expected one")
        owners.append(found[0])
        made.append(values[:, own & known].mean(axis=1) if (own & known).any() else np.full(len(values), np.nan))
    return _rounded(np.stack(made, axis=1)), np.array(owners)


def _rounded(columns: Floats) -> Floats:
    """Values of each column, (columns, n), with the digits that a mean has for certain."""
    made = []
    for values in columns:
        largest = float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0))
        scale = 10.0 ** math.floor(math.log10(largest)) if largest > 0 else 1.0
        made.append(np.round(values / scale, MEAN_DIGITS - 1) * scale)
    return np.stack(made)


def _within_run(x: Floats, y: Floats, configs: Names, drawing: "Drawing") -> Association:
    """Mean over runs of the correlation over their checkpoints; the unit is the setting."""
    found: dict[str, list[float]] = {}
    without = []
    for place, (one, other) in enumerate(zip(x, y, strict=True)):
        known = np.isfinite(one) & np.isfinite(other)
        name, number = str(configs[place]), int(known.sum())
        if number < FEWEST_OF_BLOCK:
            why = f"{number} finite checkpoints, at least {FEWEST_OF_BLOCK} are needed"
            without.append((f"{name}, run {place}", why))
        elif _constant(one[known]) or _constant(other[known]):
            without.append((f"{name}, run {place}", f"constant over {number} checkpoints"))
        else:
            found.setdefault(name, []).append(spearman(one[known], other[known]))
    number, runs = len(found), sum(map(len, found.values()))
    about: dict[str, Any] = {"blocks": runs, "without": tuple(without), "level": drawing.level}
    if number < FEWEST_UNITS:
        said = f" ({without[0][0]}: {without[0][1]})" if without else ""
        why = f"n = {number} settings with checkpoints, at least {FEWEST_UNITS} are needed{said}"
        why = "the runs have one checkpoint each" if x.shape[1] == 1 else why
        return Association(number=number, **about, undefined=why)
    sums, counts = (np.array([kind(each) for each in found.values()], dtype=float) for kind in (sum, len))
    p, smallest = _two_sided_p_value(float(sums.sum()), *drawing.signs(sums))
    low, high = drawing.interval(drawing.resampled(lambda times: (times[0] @ sums) / (times[0] @ counts), [number]))
    return Association(float(sums.sum()) / runs, low, high, p, number, **about, smallest=smallest)


def _between_seeds(ends: Floats, configs: Names, drawing: "Drawing") -> Association:
    """Correlation of what the seeds of a setting differ by."""
    known = np.isfinite(ends).all(axis=0)
    away, without, owners = [], [], []
    for name in np.unique(configs):
        own = ends[:, (configs == name) & known]
        if own.shape[1] < 2:
            continue
        if _constant(own[0]) or _constant(own[1]):
            without.append((str(name), f"constant over {own.shape[1]} seeds"))
            continue
        away.append(own - own.mean(axis=1, keepdims=True))
        owners += [len(away) - 1] * own.shape[1]
    about: dict[str, Any] = {"number": len(owners), "blocks": len(away), "left_out": int((~known).sum())}
    about |= {"without": tuple(without), "level": drawing.level}
    if len(away) < FEWEST_UNITS:
        why = f"n = {len(away)} settings with two seeds or more, at least {FEWEST_UNITS} are needed"
        return Association(**about, undefined=why)
    table, at = _rounded(np.concatenate(away, axis=1)), np.array(owners)
    x, y = _ranks(table)
    parts = [at == k for k in range(len(away))]
    sums, exhaustive = drawing.orders([x[k] for k in parts], [y[k][:, None] for k in parts])
    p, smallest = _two_sided_p_value(float(x @ y), sums[:, 0], exhaustive)

    def statistic(times: list[Floats]) -> Floats:
        weights = times[0][:, at]
        middle = (weights.sum(axis=1, keepdims=True) + 1) / 2
        one, two = (_midranks(each, weights) - middle for each in table)
        size = np.sqrt((weights * one**2).sum(axis=1) * (weights * two**2).sum(axis=1))
        made: Floats = np.where(size > 0, (weights * one * two).sum(axis=1) / np.where(size > 0, size, 1), np.nan)
        return made

    low, high = drawing.interval(drawing.resampled(statistic, [len(away)]))
    return Association(float(x @ y / math.sqrt((x @ x) * (y @ y))), low, high, p, **about, smallest=smallest)


def _pooled(x: Floats, y: Floats, names: tuple[str, str], level: float) -> Association:
    """Correlation over all points, without interval and p-value."""
    known = np.isfinite(x) & np.isfinite(y)
    one, other = x[known], y[known]
    still = [name for name, each in zip(names, (one, other), strict=True) if len(each) and _constant(each)]
    why = f"{' and '.join(still)} constant, n = {len(one)}" if still else ""
    if len(one) < FEWEST_UNITS:
        why = f"n = {len(one)} points, at least {FEWEST_UNITS} are needed"
    left_out = int((np.isfinite(x) ^ np.isfinite(y)).sum())
    rho = math.nan if why else spearman(one, other)
    return Association(rho, number=len(one), blocks=1, left_out=left_out, level=level, undefined=why)


class _Units:
    """Finite units of the blocks that can be used, (columns, n) for each, and what is left out.

    Args:
        columns: one number a unit, by name.
        block: of each unit; None: one block.
    """

    def __init__(self, columns: Mapping[str, ArrayLike], block: Block):
        table = [_column(each, name) for name, each in columns.items()]
        names = np.asarray(["all"] * len(table[0]) if block is None else block).astype(str)
        if any(each.shape != names.shape or each.ndim != 1 for each in table):
            said = ", ".join(f"{name} {list(each.shape)}" for name, each in zip(columns, table, strict=True))
            raise InputError(f"correlation: {said} and block {list(names.shape)}, expected one number a unit in each")
        finite = np.isfinite(table).all(axis=0)
        self.values, self.without, self.left_out = [], [], int((~finite).sum())
        for name in np.unique(names):
            own = np.stack(table)[:, (names == name) & finite]
            still = [key for key, each in zip(columns, own, strict=True) if own.shape[1] and _constant(each)]
            if own.shape[1] < FEWEST_OF_BLOCK:
                self.without.append((str(name), f"n = {own.shape[1]} finite, at least {FEWEST_OF_BLOCK} are needed"))
            elif still:
                self.without.append((str(name), f"{' and '.join(still)} constant, n = {own.shape[1]}"))
            else:
                self.values.append(own)
        self.sizes = [each.shape[1] for each in self.values]
        self.once = [np.ones((1, size)) for size in self.sizes]  # weights of the sample itself
        self.number = sum(self.sizes)
        self.about: dict[str, Any] = {"number": self.number, "blocks": len(self.values), "left_out": self.left_out}
        self.about["without"] = tuple(self.without)
        self.undefined = self._too_few(int(finite.sum()), block is None) if self.number < FEWEST_UNITS else ""

    def _too_few(self, finite: int, single: bool) -> str:
        """Say why nothing can be computed."""
        needed = f"at least {FEWEST_UNITS} are needed"
        if single:
            return f"n = {finite} finite, {needed}" if finite < FEWEST_UNITS else self.without[0][1]
        said = "; ".join(f"{name}: {reason}" for name, reason in self.without[:MOST_NAMED])
        more = f"; and {len(self.without) - MOST_NAMED} more" if len(self.without) > MOST_NAMED else ""
        return f"n = {self.number} in blocks that can be used, {needed}" + (f" ({said}{more})" if said else "")

    def products(self, times: Sequence[Floats] | None = None) -> Floats:
        """Sums of products of the ranks, centred within blocks, in each resample: (resamples, columns, columns).

        Args:
            times: how often each unit of a block is in a resample, (resamples, n); None: the sample itself.
        """
        total: Floats = np.zeros(())
        for values, drawn in zip(self.values, times or self.once, strict=True):
            placed = _ranks(values, drawn)
            total = total + np.einsum("ibn,jbn->bij", placed * drawn, placed)
        return total


def _column(values: ArrayLike, name: str) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"correlation: {name} is not made of numbers") from None


def _constant(values: Floats) -> bool:
    return bool(np.ptp(values) <= CONSTANT_WITHIN * np.abs(values).max())


def _rho(sums: Floats, one: int = 0, other: int = 1) -> Floats:
    """Correlation of two columns in each resample, of their products; NaN where one is constant."""
    size = sums[:, one, one] * sums[:, other, other]
    made: Floats = np.where(size > 0, sums[:, one, other] / np.sqrt(np.where(size > 0, size, 1)), np.nan)
    return made


def _midranks(values: Floats, times: Floats) -> Floats:
    """Ranks from 1 of the values, (n,), in each resample, ties at their mean, (resamples, n)."""
    order = np.argsort(values, kind="stable")
    first, last = (np.searchsorted(values[order], values, side) for side in ("left", "right"))
    until = np.concatenate([np.zeros((len(times), 1)), np.cumsum(times[:, order], axis=1)], axis=1)
    ranks: Floats = (until[:, first] + until[:, last] + 1) / 2
    return ranks


def _ranks(columns: Floats, times: Floats | None = None) -> Floats:
    """Centred ranks of each column of a block, (columns, n), or in each resample, (columns, resamples, n)."""
    middle = (columns.shape[1] + 1) / 2
    once = np.ones((1, columns.shape[1]))
    made: Floats = np.stack([_midranks(each, once if times is None else times) for each in columns]) - middle
    return made[:, 0] if times is None else made


@dataclass(frozen=True)
class Drawing:
    """Random orders and resamples of units within blocks, drawn from a seed, in pieces of bounded size."""

    permutations: int
    resamples: int
    level: float
    seed: int

    def resampled(self, statistic: Callable[[list[Floats]], Floats], sizes: Sequence[int]) -> Floats:
        """The statistic of units drawn with replacement within each block, (resamples, ...).

        Args:
            statistic: function of how often each unit was drawn, (piece, n) for each block, to (piece, ...).
            sizes: number of units of each block.
        """
        rng, piece = np.random.default_rng([self.seed, 1]), max(1, PIECE_VALUES // sum(sizes))
        counts = [min(piece, self.resamples - start) for start in range(0, self.resamples, piece)]

        def times(size: int, count: int) -> Floats:
            places = rng.integers(size, size=(count, size)) + size * np.arange(count)[:, None]
            return np.bincount(places.ravel(), minlength=count * size).reshape(count, size).astype(np.float64)

        return np.concatenate([statistic([times(size, count) for size in sizes]) for count in counts])

    def orders(self, first: Sequence[Floats], second: Sequence[Floats]) -> tuple[Floats, bool]:
        """Sums of products after exchanging units of `first` within their blocks, (orders, m), and whether all are.

        Every order is listed where there are at most `permutations` of them.

        Args:
            first: one number a unit, (n,) for each block.
            second: (n, m) for each block.
        """
        if math.prod(math.factorial(min(len(each), 20)) for each in first) <= self.permutations:
            sums = np.zeros((1, second[0].shape[1]))
            for one, other in zip(first, second, strict=True):
                listed = np.array(list(itertools.permutations(range(len(one)))))
                sums = (sums[:, None] + (one[listed] @ other)[None]).reshape(-1, sums.shape[1])
            return sums, True
        rng, piece = np.random.default_rng([self.seed, 0]), max(1, PIECE_VALUES // sum(map(len, first)))
        found = []
        for start in range(0, self.permutations, piece):
            shape = min(piece, self.permutations - start)
            drawn = [rng.permuted(np.broadcast_to(one, (shape, len(one))), axis=1) for one in first]
            found.append(np.sum([one @ other for one, other in zip(drawn, second, strict=True)], axis=0))
        return np.concatenate(found), False

    def signs(self, values: Floats) -> tuple[Floats, bool]:
        """Sums of the values with random signs, (signs,), and whether these are all there are."""
        if 2 ** min(len(values), 60) <= self.permutations:
            return np.array(list(itertools.product((-1.0, 1.0), repeat=len(values)))) @ values, True
        drawn = np.random.default_rng([self.seed, 0]).integers(2, size=(self.permutations, len(values)))
        return (2.0 * drawn - 1) @ values, False

    def interval(self, values: Floats) -> tuple[float, float]:
        """Percentile interval of the resamples in which the statistic is defined; NaN where it is in none."""
        known = values[np.isfinite(values)]
        if not len(known):
            return math.nan, math.nan
        low, high = np.quantile(known, [(1 - self.level) / 2, (1 + self.level) / 2])
        return float(low), float(high)


def _two_sided_p_value(observed: float, reference: Floats, exhaustive: bool) -> tuple[float, float]:
    """Two-sided p-value of a permutation test, and the smallest one that it can give.

    With all orders p is the fraction at least as extreme; with random ones (1 + number at least as extreme) /
    (1 + their number), which is never zero.

    Source: Phipson & Smyth 2010, Permutation p-values should never be zero.
    """
    size = np.abs(reference)
    rounding = SUM_ROUNDING * max(float(size.max()), abs(observed))
    extreme = int((size >= abs(observed) - rounding).sum())
    if exhaustive:
        return extreme / len(size), int((size >= size.max() - rounding).sum()) / len(size)
    return (1 + extreme) / (1 + len(size)), 1 / (1 + len(size))


def _smaller_tail(values: Floats) -> float:
    """Two-sided p-value of a statistic being 0: twice the smaller tail of its resamples, each with one added.

    NaN where the statistic is defined in no resample.
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return math.nan
    tails = (1 + int((known <= 0).sum()), 1 + int((known >= 0).sum()))
    return min(1.0, 2 * min(tails) / (1 + len(known)))
