"""Comparisons of paired numbers: mean differences with their intervals, tests corrected together, and multiples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# Long name and units of each number of a mean of paired differences.
DIFFERENCE_LABELS = {
    "low": ("lower limit", ""),
    "high": ("upper limit", ""),
    "p": ("p (paired t-test)", "1"),
    "p_holm": ("p (Holm)", "1"),
    "pairs": ("queries with a value in both", "queries"),
    "groups": ("groups of dependent queries", "groups"),
}


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences with its confidence interval.

    Args:
        mean: of the differences.
        low: lower end of the interval.
        high: its upper end.
        p: two-sided p-value of the paired t-test, 1 if all differences are 0.
        number: of pairs.
        level: of the interval, 0 to 1.
        groups: number of groups of dependent pairs; None if each pair is its own group.

    Examples:
        >>> cocos.statistics.Difference(1.0, 0.5, 1.5, 0.01, 5, 0.95).resolved
        True
    """

    mean: float
    low: float
    high: float
    p: float
    number: int
    level: float
    groups: int | None = None

    @property
    def resolved(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    def short(self, digits: int = 1) -> str:
        """Return the mean and its interval as text."""
        return f"{self.mean:+.{digits}f} [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"


def paired(
    first: Sequence[float] | Tensor,
    second: Sequence[float] | Tensor,
    level: float = 0.95,
    *,
    groups: Sequence[int] | Tensor | None = None,
) -> Difference:
    r"""Compare paired measurements, first minus second, by Student's t.

    Pairs of one group may depend on each other, like the captions of one image or neighbouring steps of a run. With
    :math:`u_g` the sum over group g of the differences less their mean, and :math:`h_g` the part of the N pairs that
    is in g, the variance of the mean is :math:`\sum_g u_g^2 / (1 - h_g) / N^2` (CR2), and t has Satterthwaite's degrees
    of freedom for pairs that correlate within groups as the differences do: few where few groups are large. Of G groups
    of one size there are G - 1; with one pair in each group this is the usual test.

    Args:
        first: one number a pair.
        second: the other numbers, in the same order.
        level: of the confidence interval.
        groups: group of each pair; None: each pair is its own group.

    Raises:
        ValueError: different lengths, fewer than two pairs or groups, or a number that is not finite.

    Source: groups: Bell & McCaffrey 2002, Bias reduction in standard errors for linear regression with multi-stage
        samples; degrees of freedom: Imbens & Kolesár 2016, Robust standard errors in small samples, section 4.

    Examples:
        >>> found = cocos.statistics.paired([3.0, 4.0, 5.0], [1.0, 2.0, 3.5])
        >>> round(found.mean, 2), found.resolved
        (1.83, True)
    """
    from scipy.special import stdtr, stdtrit

    values = [torch.as_tensor(numbers, dtype=torch.float64) for numbers in (first, second)]
    if values[0].ndim != 1 or values[0].shape != values[1].shape or len(values[0]) < 2:
        shapes = " and ".join(str(list(numbers.shape)) for numbers in values)
        raise ValueError(f"paired: shapes {shapes}, expected two lists of one length, at least 2")
    difference = values[0] - values[1]
    if not difference.isfinite().all():
        raise ValueError("paired: NaN or infinity, expected finite numbers")
    mean, freedom, number = float(difference.mean()), float(len(difference) - 1), None
    if groups is None:
        error = float(difference.std()) / len(difference) ** 0.5
    else:
        index = torch.as_tensor(groups).unique(return_inverse=True)[1]
        number = int(index.max()) + 1 if index.shape == difference.shape else 0
        if number < 2:
            raise ValueError(
                f"paired: groups of shape {list(index.shape)}, expected one for each of {len(difference)} pairs, and "
                "at least two groups"
            )
        error, freedom = grouped_error(difference - mean, index, number)
    reach = float(stdtrit(freedom, (1 + level) / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(mean) / error)) if error else float(mean == 0)
    return Difference(mean, mean - reach, mean + reach, p, len(difference), level, number)


def differences(first: np.ndarray, second: np.ndarray, group: np.ndarray, level: float) -> dict[str, float]:
    """Compare paired values, (n,) each, NaN if absent: the second less the first.

    Returns:
        `pairs` with a value in both and their `groups`; if there are any, `base`, the mean of the first, and
        `difference`; and its interval `low` to `high` with `p`, unless all differences are equal or of one group.
    """
    present = np.isfinite(first) & np.isfinite(second)
    first, second, group = first[present], second[present], group[present]
    numbers: dict[str, float] = {"pairs": len(first), "groups": len(np.unique(group))}
    if len(first):
        numbers |= {"base": float(first.mean()), "difference": float((second - first).mean())}
    if numbers["groups"] < 2 or np.ptp(second - first) == 0:
        return numbers
    test = paired(torch.from_numpy(second), torch.from_numpy(first), level, groups=torch.from_numpy(group))
    return numbers | {"low": test.low, "high": test.high, "p": test.p}


def grouped_error(residual: Tensor, group: Tensor, number: int) -> tuple[float, float]:
    """Return the standard error of a mean of pairs in groups (CR2), and Satterthwaite's degrees of freedom.

    The variance is a quadratic form of the pairs. Its mean and variance follow from the covariance of the sums of two
    groups under a model: variance `single` + `shared` of a pair, and covariance `shared` of two pairs of one group.

    Args:
        residual: differences less their mean, (n,).
        group: number of the group of each pair, (n,).
        number: of groups.
    """
    size = torch.bincount(group, minlength=number).double()
    part = size / len(residual)
    squares = torch.zeros(number, dtype=torch.float64).index_add(0, group, residual).square()
    error = float((squares / (1 - part)).sum().sqrt()) / len(residual)
    total, couples = residual.square().sum(), (size * (size - 1)).sum()
    shared = ((squares.sum() - total) / couples.clamp(min=1)).clamp(min=0)
    shared = torch.minimum(shared, total / len(residual))
    single = total / len(residual) - shared
    variance = size * single + size.square() * shared  # of the sum of each group
    whole, factor = variance.sum(), 1 / (1 - part)
    # Covariance of two groups' sums less their parts of the whole: `variance` on the diagonal, and off it this.
    off = part * (part * whole - 2 * variance)
    a, b, c = (factor * part.square()).sum(), (factor * variance.square()).sum(), (factor * part * variance).sum()
    trace = (factor * (variance + off)).sum()
    square = 2 * a * b + (whole * a).square() + 2 * c.square() - 4 * whole * a * c
    square = square + (factor.square() * variance * (variance + 2 * off)).sum()
    return error, float(trace.square() / square) if error else float(number - 1)


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values of several tests so that the chance of any false finding stays below the level.

    Source: Holm 1979, A simple sequentially rejective multiple test procedure.

    Examples:
        >>> cocos.statistics.holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = largest
    return adjusted


def adjusted(p: np.ndarray) -> np.ndarray:
    """Return p-values adjusted by `holm` for the number of tests, in the shape of `p`; NaN, without a test, stays."""
    values, tested = p.copy(), np.isfinite(p)
    values[tested] = holm(p[tested].tolist())
    return values


@dataclass(frozen=True)
class Fit:
    """How far one set of numbers is a multiple of another.

    Args:
        ratio: least-squares factor of the second over the first; NaN where the first is zero and the second is not.
        off: largest difference from that multiple, in the unit of the numbers.
        size: largest number of the first.
        other: largest number of the second.
    """

    ratio: float
    off: float
    size: float
    other: float


def fit(first: Tensor, second: Tensor, mask: Tensor | None = None) -> Fit:
    """Fit one tensor, where a mask is set, as a multiple of another of the same shape.

    Examples:
        >>> from cocos.counting.comparisons import fit
        >>> found = fit(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 0.0]), torch.tensor([True, True, False]))
        >>> found.ratio, found.off
        (2.0, 0.0)
    """
    if mask is not None:
        first, second = first[mask], second[mask]
    if not first.numel():
        return Fit(1.0, 0.0, 0.0, 0.0)
    size, other = float(first.abs().max()), float(second.abs().max())
    if size == 0:
        return Fit(1.0 if other == 0 else math.nan, other, size, other)
    scaled = first / size
    ratio = float((scaled * second).sum() / (scaled * first).sum())
    return Fit(ratio, float((second - ratio * first).abs().max()), size, other)
