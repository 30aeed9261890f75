r"""Every rounding bound of the engine, each with its derivation: how far a computed number may be from the true one.

Standard model (IEEE 754-2019): an operation that rounds to nearest returns :math:`(a \circ b)(1 + \delta)` with
:math:`|\delta| \le u`; a fused multiply-add rounds once where two operations round twice, so every bound covers it.
:math:`\gamma_n = n u / (1 - n u)` bounds the relative effect of n such factors (Higham 2002, Accuracy and Stability of
Numerical Algorithms, 2nd ed., lemma 3.1). Nothing here overflows: the view rejects scores beyond 1e36 in float32.

Three kinds of bound: of a score (in units of score); relative (of a sum or a share); and logarithmic, in nats: the
largest :math:`|\ln \hat x - \ln x|`. Logarithmic bounds add, and hold on both sides: :math:`\hat x` lies between
:math:`x e^{-w}` and :math:`x e^{w}`. docs/exactness.md shows how the bounds combine to exact counts.
"""

import math

import torch
from torch import Tensor

# For each product: unit roundoff, and smallest normal number: IEEE 754, to nearest.
UNITS = {
    "float64": (2.0**-53, 2.0**-1022),
    "float32": (2.0**-24, 2.0**-126),
}
# Relative error of a float32 2^x for x in the normal range. torch on a CPU: SLEEF's exp2, 1.0 ulp; CUDA's exp2f: 2 ulp
# (CUDA C++ Programming Guide, table of maximum ulp errors); 1 ulp is at most 2^-23 of the number. The kernel's
# polynomial: 2.37e-7 over every float32 number of [1/32, 1/2] and [-1/2, -1/32], 2.15e-7 with fused multiply-adds;
# tests/test_rounding.py checks four million numbers.
EXP2 = 2.0**-22
# Largest difference of two float64 scores of unit vectors that counts as a tie: a convention, see `ties`.
TIE_WIDTH = 1e-12
# Unit roundoff of float64 and of float32, to nearest (IEEE 754).
_DOUBLE, _SINGLE = 2.0**-53, 2.0**-24


def gamma(number: float, unit: float) -> float:
    r"""Relative effect of `number` roundings: :math:`\gamma_n = n u / (1 - n u)`; infinite where n u reaches 1.

    Source: Higham 2002, lemma 3.1.
    """
    return math.nextafter(number * unit / (1 - number * unit), math.inf) if number * unit < 1 else math.inf


def _together(*relative: float) -> float:
    """Combine multiplicative errors, Π (1 + e) - 1, plus 2^-40 of it for rounding in this function."""
    return math.expm1(math.fsum(map(math.log1p, relative))) * (1 + 2.0**-40)


def _logarithmic(relative: float) -> float:
    """Convert a relative bound e to a logarithmic one, -ln(1 - e), the larger of both sides; infinite from 1 on."""
    return -math.log1p(-relative) if relative < 1 else math.inf


def _norm(width: int) -> float:
    r"""Relative error of a float64 norm: :math:`\gamma_d` for squares and sum, halved by the root, which rounds."""
    return gamma(width / 2 + 2, _DOUBLE)


def _factor(width: int, name: str) -> float:
    """Relative error of a factor: norm, its inverse or the origin, and the multiplication by it."""
    return _together(_norm(width), gamma(2, UNITS[name][0]))


def _added(number: int, unit: float, deep: int | None) -> float:
    """Relative error of a sum in any order; or in an order that first sums pieces of `deep` terms, then the pieces."""
    if deep is None or number <= deep:
        return gamma(number, unit)
    pieces = -(-number // deep)
    return gamma(-(-number // pieces) + pieces, unit)


def product(width: int, name: str, left: float = 1.0, right: float = 1.0, deep: int | None = None) -> float:
    r"""Bound the error of an inner product of two rows, in any order, with or without fused multiply-add.

    The factors have a relative error a: they come from a float64 row, or are scaled by the rounded inverse of a norm
    (two roundings and the norm's own error). The sum adds :math:`\gamma_d`:

    .. math:: |\widehat{x \cdot y} - x \cdot y| \le ((1 + a)^2 (1 + \gamma_d) - 1) \sum_k |x_k y_k|

    and by Cauchy-Schwarz the last sum is at most :math:`|x| |y|`. Underflow, gradual or flushed to zero, adds less than
    the smallest normal number for each factor and each term.

    Args:
        width: d, number of factors in a row.
        name: one of `UNITS`.
        left: largest norm of a row of the left side, after scaling.
        right: largest norm of a row of the right side.
        deep: number of terms summed at a time in equal pieces (the kernel's DEEP): :math:`\gamma` of the terms of a
            piece and of the pieces replaces :math:`\gamma_d`; None: any order.

    Source: Higham 2002, section 3.1, eq. 3.5; section 4.2 for sums in pieces.
    """
    added, smallest = UNITS[name]
    factor = _factor(width, name)
    relative = _together(factor, factor, _added(width, added, deep))
    return relative * left * right + width * smallest * (1 + left) * (1 + right)


def squared_distance(width: int, name: str, left: float, right: float, deep: int | None = None) -> float:
    r"""Bound the error of a squared distance computed as one product of rows with two more columns.

    :math:`(2x, -|x|^2, -1) \cdot (y, 1, |y|^2) = -|x - y|^2`, for rows about a common origin. The sizes of all d + 2
    terms sum to at most :math:`(|x| + |y|)^2`, by Cauchy-Schwarz; factors and sum err as in `product`, and a square by
    twice its norm's error in addition. The bound depends on the norms, not on the distance: near duplicates far from
    the origin cancel.

    Args:
        width: d, without the two columns.
        name: one of `UNITS`.
        left: largest norm of a row of the left side about the origin.
        right: largest norm of a row of the right side about the origin.
        deep: as in `product`.

    Source: Higham 2002, section 3.1, with the identity above.
    """
    added, smallest = UNITS[name]
    factor = _together(_factor(width, name), _factor(width, name), _norm(width))
    relative = _together(factor, factor, _added(width + 2, added, deep))
    return relative * (left + right) ** 2 + (width + 2) * smallest * (1 + left + right) ** 2


def distance(square: float, score: Tensor | float, name: str) -> Tensor:
    r"""Bound the error of a distance whose square may be off by `square`, near a distance of `score`.

    :math:`|\hat r - r| = |\hat r^2 - r^2| / (\hat r + r)` is at most square / |score|, whichever of the two the score
    is, and never above :math:`\sqrt{square}`, as :math:`(\hat r - r)^2 \le |\hat r^2 - r^2|`. Clamping a negative
    square at zero brings it nearer. The root itself rounds once (twice the unit, for devices without a correctly
    rounded root).

    Args:
        square: error of the square, from `squared_distance`.
        score: distances, or scores, which are negated distances.
        name: one of `UNITS`.
    """
    size = torch.as_tensor(score, dtype=torch.float64).abs()
    return (square / size.clamp(min=2.0**-1000)).clamp(max=square**0.5) + 2 * UNITS[name][0] * size


def outward(level: Tensor, width: Tensor | float, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Ends (low, high) of the undecided scores: up to `low` certainly not above the level, beyond `high` above.

    The sum in float64 and its conversion round to nearest, for both of which one step outward makes up.

    Args:
        level: float64; an infinite level has ends beyond all finite numbers.
        width: how far a computed score may be from the true one, including ties.
        dtype: dtype of the scores that are compared.
    """
    return lowered(level - width, dtype), -lowered(-level - width, dtype)


def lowered(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert float64 values to the largest numbers of a dtype below their nearest ones, so to numbers below them."""
    nearest = values.to(dtype)
    return torch.nextafter(nearest, torch.full_like(nearest, -torch.inf))


def exponential(size: float, span: float = 126.0) -> float:
    r"""Logarithmic error of a float32 :math:`2^{z - r}`, z = scale times score, for an exact float32 score.

    The scale rounds and so does the product, :math:`\gamma_2 |z|`; subtracting the reference r and separating the
    integer part round once each, by u times the exponent and by u; a change of the exponent by e changes the logarithm
    by e ln 2. The error of the power itself is `EXP2`.

    Args:
        size: largest |z|, an exponent of two.
        span: largest |z - r|; at most 126, where exponents are clamped.
    """
    exponent = gamma(2, _SINGLE) * size + _SINGLE * (min(span, 126.0) + 2)
    return math.log(2) * exponent + _logarithmic(EXP2)


def sigmoid(size: float) -> float:
    r"""Logarithmic error of a float32 sigmoid as a power of two, for an exact float32 score.

    Scale and bias round, and so do their product and sum, :math:`\gamma_4` of the exponent. The logarithm of the
    sigmoid, two library functions and a sum (6 u), a product and a difference are never larger than exponent and
    reference; the power of the result errs by `EXP2`.

    Args:
        size: largest |exponent|, of two.
    """
    return math.log(2) * gamma(12, _SINGLE) * (size + 16) + _logarithmic(EXP2)


def total(short: int, long: int) -> float:
    r"""Logarithmic error of a sum of positive numbers: `short` additions in float32, then `long` in float64.

    Every number passes through at most short + long additions, so the sum errs by :math:`\gamma_{short}` and
    :math:`\gamma_{long}` of itself, in whatever order.

    Source: Higham 2002, section 4.2, eq. 4.4, for positive terms.
    """
    return _logarithmic(_together(gamma(short, _SINGLE), gamma(long, _DOUBLE)))


def clamped(number: int, least: float) -> float:
    """Relative error of a sum of at least 2^least in which `number` pairs that take no part count as 2^-126 each."""
    return number * 2.0 ** min(0.0, -126.0 - least)


def log_sum(bound: Tensor | float, nats: float, size: float, short: int, long: int) -> Tensor | float:
    r"""Logarithmic error of Σ exp(nats · score) over float32 scores.

    Each score is off by at most `bound`, which multiplies its exponential, and hence the sum, by at most :math:`e^{\pm
    nats \cdot bound}`; `exponential` and `total` add.
    """
    return bound * nats + exponential(size) + total(short, long)


def exact_dot(width: int) -> float:
    r"""Bound the error of a float64 inner product, divided by the norms or relative to the largest norms.

    :math:`\gamma_d` for the product (products of two float32 numbers are exact, which is not needed), and for each norm
    its own error and a division. Stays below :math:`(2d + 12) 2^{-53}`: 1.2e-13 for unit rows of 512.
    """
    norm = _together(_norm(width), gamma(1, _DOUBLE))
    return _together(gamma(width, _DOUBLE), norm, norm) + 4 * width * UNITS["float64"][1]


def exact_distance(width: int) -> float:
    """Bound the relative error of a float64 distance: a difference rounds once, its square twice, the root halves.

    There is no cancellation: the differences of the rows are squared, not the rows. A squared distance errs by twice
    this.
    """
    return gamma((width + 3) / 2 + 1, _DOUBLE)


def ties(width: int, most: float) -> float:
    """Largest difference of two float64 scores that counts as a tie.

    1e-12 for unit rows, by convention; never less than the joint error of two scores (`exact_dot`, `exact_distance`),
    which is larger from a width of about 2,240 on.

    Args:
        width: d.
        most: largest |score|; at least 1 is assumed.
    """
    return max(TIE_WIDTH, 2 * exact_dot(width), 4 * exact_distance(width)) * max(1.0, most)


def equal(bound: float, nats: float, number: int) -> float:
    """Relative difference of a share and eps below which float64 cannot tell them apart.

    At least 1e-11, by convention. Both the score and the sum of `number` exponentials err by nats times the bound of an
    exact score; exponential, sum and quotient round with the unit of float64, and so does a logarithm (at most 2^11).
    """
    rounded = gamma(number + 8, _DOUBLE) + 8 * 2.0**11 * _DOUBLE
    return max(1e-11, math.expm1(min(700.0, 2 * bound * nats)) + rounded)
