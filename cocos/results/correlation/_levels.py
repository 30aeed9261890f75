"""The same two columns at every level: the sign of a correlation depends on what varies."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cocos.base.errors import InputError
from cocos.results.correlation import _resampling
from cocos.results.correlation._blocks import FEWEST_OF_BLOCK, FEWEST_UNITS, Floats, checked, column, constant
from cocos.results.correlation._within import Association, spearman, within

Names = NDArray[np.str_]
# Levels from the finest: what varies, and the unit.
LEVELS: Mapping[str, tuple[str, str]] = {
    "within_run": ("checkpoints of a run", "settings"),
    "seeds": ("seeds of a setting", "runs"),
    "settings": ("settings of a family", "settings"),
    "families": ("families", "families"),
    "pooled": ("pooled: not a finding", "points"),
}
# Significant digits of means over seeds, so that equal ones are ties.
MEAN_DIGITS = 12


def levels(
    x: ArrayLike,
    y: ArrayLike,
    *,
    family: Sequence[object] | NDArray[np.generic],
    config: Sequence[object] | NDArray[np.generic],
    permutations: int = 10_000,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
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
    one, other = (np.atleast_2d(column(each, name).T).T for each, name in zip((x, y), names, strict=True))
    families, configs = np.asarray(family).astype(str), np.asarray(config).astype(str)
    if one.shape != other.shape or one.ndim != 2 or families.shape != configs.shape or families.shape != one.shape[:1]:
        raise InputError(
            f"levels: {names[0]} {list(one.shape)}, {names[1]} {list(other.shape)}, family {list(families.shape)} and "
            f"config {list(configs.shape)}, expected the same number of runs in each"
        )
    checked(permutations, resamples, level)
    drawing = _Drawing(permutations, resamples, level, seed)
    ends = _ends(one, other)
    settings, owners = means(ends, configs, families)
    whole, _ = means(settings, owners, owners)
    return {
        "within_run": _within_run(one, other, configs, drawing),
        "seeds": _seeds(ends, configs, drawing),
        "settings": within(settings[0], settings[1], owners, names=names, **vars(drawing)),
        "families": within(whole[0], whole[1], names=names, **vars(drawing)),
        "pooled": _pooled(one, other, names, level),
    }


@dataclass(frozen=True)
class _Drawing:
    """How intervals and tests are drawn; see `levels`."""

    permutations: int
    resamples: int
    level: float
    seed: int


def _ends(x: Floats, y: Floats) -> Floats:
    """Both columns at the last checkpoint that has either, (2, runs)."""
    there = np.isfinite(x) | np.isfinite(y)
    last = x.shape[1] - 1 - np.argmax(there[:, ::-1], axis=1)
    return np.stack([each[np.arange(len(each)), last] for each in (x, y)])


def _rounded(values: Floats) -> Floats:
    """Values with the digits that a mean has for certain."""
    largest = float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0))
    scale = 10.0 ** math.floor(math.log10(largest)) if largest > 0 else 1.0
    made: Floats = np.round(values / scale, MEAN_DIGITS - 1) * scale
    return made


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
    values = column(columns, "columns")
    group, owner = np.asarray(config).astype(str), np.asarray(family).astype(str)
    known = np.isfinite(values).all(axis=0)
    made, owners = [], []
    for name in np.unique(group):
        own = group == name
        if len(found := np.unique(owner[own])) > 1:
            raise InputError(f"config {str(name)!r} belongs to the families {', '.join(found)}; expected one")
        owners.append(found[0])
        made.append(values[:, own & known].mean(axis=1) if (own & known).any() else np.full(len(values), np.nan))
    table = np.stack(made, axis=1)
    return np.stack([_rounded(each) for each in table]), np.array(owners)


def _orders(values: Floats) -> Floats:
    """Ranks of one column, centred."""
    made: Floats = _resampling.midranks(values, np.ones((1, len(values))))[0] - (len(values) + 1) / 2
    return made


def _within_run(x: Floats, y: Floats, configs: Names, drawing: _Drawing) -> Association:
    """Mean over runs of the correlation over their checkpoints; the unit is the setting."""
    found: dict[str, list[float]] = {}
    without = []
    for place, (one, other) in enumerate(zip(x, y, strict=True)):
        known = np.isfinite(one) & np.isfinite(other)
        name = str(configs[place])
        if (number := int(known.sum())) < FEWEST_OF_BLOCK:
            without.append((
                f"{name}, run {place}",
                f"{number} finite checkpoints, at least {FEWEST_OF_BLOCK} are needed",
            ))
        elif constant(one[known]) or constant(other[known]):
            without.append((f"{name}, run {place}", f"constant over {number} checkpoints"))
        else:
            found.setdefault(name, []).append(spearman(one[known], other[known]))
    number, runs, nan = len(found), sum(map(len, found.values())), math.nan
    if number < FEWEST_UNITS:
        said = f" ({without[0][0]}: {without[0][1]})" if without else ""
        why = f"n = {number} settings with checkpoints, at least {FEWEST_UNITS} are needed{said}"
        why = "the runs have one checkpoint each" if x.shape[1] == 1 else why
        return Association(nan, nan, nan, nan, number, runs, 0, tuple(without), drawing.level, undefined=why)
    sums, counts = (np.array([kind(each) for each in found.values()], dtype=float) for kind in (sum, len))
    p, smallest = _resampling.tail(float(sums.sum()), *_resampling.signs(sums, drawing.permutations, drawing.seed))
    drawn = _resampling.resampled(lambda w: (w[0] @ sums) / (w[0] @ counts), [number], drawing.resamples, drawing.seed)
    low, high = _resampling.interval(drawn, drawing.level)
    rho = float(sums.sum()) / runs
    return Association(rho, low, high, p, number, runs, 0, tuple(without), drawing.level, smallest)


def _seeds(ends: Floats, configs: Names, drawing: _Drawing) -> Association:
    """Correlation of what the seeds of a setting differ by."""
    known = np.isfinite(ends).all(axis=0)
    away, without, owners = [], [], []
    for name in np.unique(configs):
        own = ends[:, (configs == name) & known]
        if own.shape[1] < 2:
            continue
        if constant(own[0]) or constant(own[1]):
            without.append((str(name), f"constant over {own.shape[1]} seeds"))
            continue
        away.append(own - own.mean(axis=1, keepdims=True))
        owners += [len(away) - 1] * own.shape[1]
    nan, number = math.nan, len(owners)
    left_out = int((~known).sum())
    if len(away) < FEWEST_UNITS:
        why = f"n = {len(away)} settings with two seeds or more, at least {FEWEST_UNITS} are needed"
        return Association(
            nan, nan, nan, nan, number, len(away), left_out, tuple(without), drawing.level, undefined=why
        )
    table, at = np.stack([_rounded(each) for each in np.concatenate(away, axis=1)]), np.array(owners)
    x, y = (_orders(each) for each in table)
    parts = [at == k for k in range(len(away))]
    first, second = [x[k] for k in parts], [y[k][:, None] for k in parts]
    sums, exhaustive = _resampling.null(first, second, drawing.permutations, drawing.seed)
    p, smallest = _resampling.tail(float(x @ y), sums[:, 0], exhaustive)

    def statistic(times: list[Floats]) -> Floats:
        weights = times[0][:, at]
        middle = (weights.sum(axis=1, keepdims=True) + 1) / 2
        one, two = (_resampling.midranks(each, weights) - middle for each in table)
        size = np.sqrt((weights * one**2).sum(axis=1) * (weights * two**2).sum(axis=1))
        made: Floats = np.where(size > 0, (weights * one * two).sum(axis=1) / np.where(size > 0, size, 1), np.nan)
        return made

    values = _resampling.resampled(statistic, [len(away)], drawing.resamples, drawing.seed)
    low, high = _resampling.interval(values, drawing.level)
    rho = float(x @ y / math.sqrt((x @ x) * (y @ y)))
    return Association(rho, low, high, p, number, len(away), left_out, tuple(without), drawing.level, smallest)


def _pooled(x: Floats, y: Floats, names: tuple[str, str], level: float) -> Association:
    """Correlation over all points, without interval and p-value."""
    known = np.isfinite(x) & np.isfinite(y)
    left_out, nan = int((np.isfinite(x) ^ np.isfinite(y)).sum()), math.nan
    one, other = x[known], y[known]
    still = [name for name, each in zip(names, (one, other), strict=True) if len(each) and constant(each)]
    why = ""
    if len(one) < FEWEST_UNITS:
        why = f"n = {len(one)} points, at least {FEWEST_UNITS} are needed"
    elif still:
        why = f"{' and '.join(still)} constant, n = {len(one)}"
    rho = nan if why else spearman(one, other)
    return Association(rho, nan, nan, nan, len(one), 1, left_out, level=level, undefined=why)
