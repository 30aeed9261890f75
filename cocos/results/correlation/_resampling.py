"""Random orders and resamples of units within blocks, all at once: what tests and intervals of a correlation need.

A unit is what was drawn independently, such as a setting; a block holds units that may be exchanged with each
other, such as the settings of one loss. Everything is drawn from a seed, in pieces of bounded size.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Maximum number of values of one piece: 1 MiB of float64, which stays in the cache of a core.
PIECE_VALUES = 2**17
# Rounding of a sum of products of ranks, in parts of its largest value.
SUM_ROUNDING = 1e-9


def midranks(values: Floats, weights: Floats) -> Floats:
    """Ranks from 1 of the values in each resample, ties at their mean, (resamples, n).

    Args:
        values: (n,).
        weights: how often each value is in a resample, (resamples, n).

    Examples:
        >>> import numpy as np
        >>> from cocos.correlation import _resampling
        >>> _resampling.midranks(np.array([5.0, 7.0, 5.0]), np.ones((1, 3)))
        array([[1.5, 3. , 1.5]])
    """
    order = np.argsort(values, kind="stable")
    first, last = (np.searchsorted(values[order], values, side) for side in ("left", "right"))
    until = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights[:, order], axis=1)], axis=1)
    ranks: Floats = (until[:, first] + until[:, last] + 1) / 2
    return ranks


def resampled(statistic: Callable[[list[Floats]], Floats], sizes: Sequence[int], resamples: int, seed: int) -> Floats:
    """The statistic of units drawn with replacement within each block, (resamples, ...).

    Args:
        statistic: function of how often each unit was drawn, (piece, n) for each block, to (piece, ...).
        sizes: number of units of each block.
        resamples: number of resamples.
        seed: for drawing them.

    Examples:
        >>> from cocos.correlation import _resampling
        >>> means = _resampling.resampled(lambda drawn: drawn[0] @ [1.0, 3.0] / 2, [2], 1000, seed=0)
        >>> means.min(), means.max(), abs(means.mean() - 2) < 0.1
        (np.float64(1.0), np.float64(3.0), np.True_)
    """
    rng, piece = np.random.default_rng([seed, 1]), max(1, PIECE_VALUES // sum(sizes))
    counts = [min(piece, resamples - start) for start in range(0, resamples, piece)]
    return np.concatenate([statistic([_drawn(rng, size, count) for size in sizes]) for count in counts])


def _drawn(rng: np.random.Generator, size: int, count: int) -> Floats:
    """How often each unit is drawn, (count, size); rows sum to size."""
    places = rng.integers(size, size=(count, size)) + size * np.arange(count)[:, None]
    return np.bincount(places.ravel(), minlength=count * size).reshape(count, size).astype(np.float64)


def null(first: Sequence[Floats], second: Sequence[Floats], permutations: int, seed: int) -> tuple[Floats, bool]:
    """Sums of products after exchanging the units of `first` within their blocks, (orders, m), and whether exhaustive.

    Every order is listed where there are at most `permutations` of them.

    Args:
        first: one number a unit, (n,) for each block.
        second: (n, m) for each block.
        permutations: number of random orders.
        seed: for drawing them.

    Examples:
        >>> import numpy as np
        >>> from cocos.correlation import _resampling
        >>> sums, exhaustive = _resampling.null([np.array([-1.0, 0, 1])], [np.array([[-1.0], [0], [1]])], 100, 0)
        >>> sorted(sums[:, 0].tolist()), exhaustive
        ([-2.0, -1.0, -1.0, 1.0, 1.0, 2.0], True)
    """
    sums = np.zeros((1, second[0].shape[1]))
    if math.prod(math.factorial(min(len(each), 20)) for each in first) <= permutations:
        for one, other in zip(first, second, strict=True):
            orders = np.array(list(itertools.permutations(range(len(one)))))
            sums = (sums[:, None] + (one[orders] @ other)[None]).reshape(-1, sums.shape[1])
        return sums, True
    rng, piece = np.random.default_rng([seed, 0]), max(1, PIECE_VALUES // sum(map(len, first)))
    found = []
    for start in range(0, permutations, piece):
        shape = min(piece, permutations - start)
        drawn = [rng.permuted(np.broadcast_to(one, (shape, len(one))), axis=1) for one in first]
        found.append(np.sum([one @ other for one, other in zip(drawn, second, strict=True)], axis=0))
    return np.concatenate(found), False


def signs(values: Floats, permutations: int, seed: int) -> tuple[Floats, bool]:
    """Sums of the values with random signs, (signs,), and whether these are all there are.

    Examples:
        >>> import numpy as np
        >>> from cocos.correlation import _resampling
        >>> sums, exhaustive = _resampling.signs(np.array([1.0, 2.0]), 100, seed=0)
        >>> sorted(sums.tolist()), exhaustive
        ([-3.0, -1.0, 1.0, 3.0], True)
    """
    if 2 ** min(len(values), 60) <= permutations:
        return np.array(list(itertools.product((-1.0, 1.0), repeat=len(values)))) @ values, True
    drawn = np.random.default_rng([seed, 0]).integers(2, size=(permutations, len(values)))
    return (2.0 * drawn - 1) @ values, False


def tail(observed: float, reference: Floats, exhaustive: bool) -> tuple[float, float]:
    """Two-sided p-value of a permutation test, and the smallest one that it can give.

    With all orders p is the fraction at least as extreme; with random ones (1 + number at least as extreme) /
    (1 + their number), which is never zero.

    Source: Phipson & Smyth 2010, Permutation p-values should never be zero.

    Examples:
        >>> import numpy as np
        >>> from cocos.correlation import _resampling
        >>> _resampling.tail(2.0, np.array([-2.0, -1, -1, 1, 1, 2]), exhaustive=True)
        (0.3333333333333333, 0.3333333333333333)
    """
    size = np.abs(reference)
    rounding = SUM_ROUNDING * max(float(size.max()), abs(observed))
    extreme = int((size >= abs(observed) - rounding).sum())
    if exhaustive:
        return extreme / len(size), int((size >= size.max() - rounding).sum()) / len(size)
    return (1 + extreme) / (1 + len(size)), 1 / (1 + len(size))


def smaller_tail(values: Floats) -> float:
    """Two-sided p-value of a statistic being 0: twice the smaller tail of its resamples, each with one added.

    NaN where the statistic is defined in no resample.

    Examples:
        >>> import numpy as np
        >>> from cocos.correlation import _resampling
        >>> _resampling.smaller_tail(np.array([1.0] * 17 + [-1.0, -1.0]))
        0.3
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return math.nan
    tails = (1 + int((known <= 0).sum()), 1 + int((known >= 0).sum()))
    return min(1.0, 2 * min(tails) / (1 + len(known)))


def interval(values: Floats, level: float) -> tuple[float, float]:
    """Percentile interval of the resamples in which the statistic is defined; NaN where it is in none.

    Examples:
        >>> import numpy as np
        >>> from cocos.correlation import _resampling
        >>> _resampling.interval(np.arange(101.0), 0.5)
        (25.0, 75.0)
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return math.nan, math.nan
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
