r"""How far a computed number may be from the true one: every rounding bound of the engine, each with its derivation.

Standard model (IEEE 754-2019): an operation that rounds to nearest returns :math:`(a \circ b)(1 + \delta)` with
:math:`|\delta| \le u`; a fused multiply-add rounds once where two operations round twice, so it keeps every bound.
:math:`\gamma_n = n u / (1 - n u)` bounds the relative effect of n such factors (Higham 2002, Accuracy and Stability of
Numerical Algorithms, 2nd ed., lemma 3.1). Nothing here overflows: the view refuses scores beyond 1e36 in float32.

Kinds of bound: of a score (in units of score), relative (of a sum or a share), and logarithmic, in nats: the largest
:math:`|\ln \hat x - \ln x|`. Logarithmic bounds add, and hold on both sides: :math:`\hat x` lies between
:math:`x e^{-w}` and :math:`x e^{w}`. docs/exactness.md shows how they combine to exact counts.
"""

import math

import torch
from torch import Tensor

__all__ = [
    "EXP2",
    "LOG2",
    "TIES",
    "UNITS",
    "bin_place",
    "clamped",
    "cut",
    "distance",
    "equal",
    "exact_distance",
    "exact_dot",
    "exponential",
    "gamma",
    "log_sum",
    "near_one",
    "outward",
    "product",
    "room",
    "rounded",
    "sigmoid",
    "slope",
    "squared_distance",
    "ties",
    "total",
]

# Unit roundoff of reduced factors, of the additions, and smallest normal number, by product. float32 and float64: IEEE
# 754, to nearest. tf32 and bfloat16: PTX lets the unit drop the low bits of a float32 factor (2^-10 for tf32; bfloat16
# is rounded by us, to nearest, 2^-8), and tensor cores add blocks of at least four products with truncation at the
# largest of them: (4 + 1) 2^-23 a block, below 2^-22 a term (Fasi, Higham, Mikaitis & Pranesh 2021, PeerJ CS 7:e330).
UNITS = {
    "float64": (0.0, 2.0**-53, 2.0**-1022),
    "float32": (0.0, 2.0**-24, 2.0**-126),
    "tf32": (2.0**-10, 2.0**-22, 2.0**-126),
    "bfloat16": (2.0**-8, 2.0**-22, 2.0**-126),
}
# Relative error of a float32 2^x at a float32 x of the normal range. torch on a CPU: SLEEF's exp2 with 1.0 ulp; CUDA's
# exp2f: 2 ulp (CUDA C++ Programming Guide, table of maximum ulp errors); 1 ulp is at most 2^-23 of the number. The
# kernel's polynomial: 2.37e-7 over every float32 number of [1/32, 1/2] and [-1/2, -1/32], 2.15e-7 with fused
# multiply-adds; tests/test_rounding.py tries four million.
EXP2 = 2.0**-22
# Relative error of a float32 log2, in units of its result: CUDA's log2f 1 ulp, SLEEF's 1.0 ulp, libm's below 2 ulp.
LOG2 = 2.0**-22
# Scores of unit vectors that differ by no more in float64 are equal: a convention, see `ties`.
TIES = 1e-12
_DOUBLE, _SINGLE = 2.0**-53, 2.0**-24


def gamma(number: float, unit: float) -> float:
    r"""Relative effect of `number` roundings: :math:`\gamma_n = n u / (1 - n u)`; infinite where n u reaches 1.

    Source: Higham 2002, lemma 3.1.
    """
    return math.nextafter(number * unit / (1 - number * unit), math.inf) if number * unit < 1 else math.inf


def _together(*relative: float) -> float:
    """Relative effect of errors that multiply, Π (1 + e) - 1, with 2^-40 of itself for rounding in this function."""
    return math.expm1(math.fsum(map(math.log1p, relative))) * (1 + 2.0**-40)


def _logarithmic(relative: float) -> float:
    """Logarithmic bound of a relative one, -ln(1 - e): the larger of both sides; infinite from 1 on."""
    return -math.log1p(-relative) if relative < 1 else math.inf


def _norm(width: int) -> float:
    r"""Relative error of a norm in float64: :math:`\gamma_d` for squares and sum, halved by the root, which rounds."""
    return gamma(width / 2 + 2, _DOUBLE)


def _factor(width: int, name: str) -> float:
    """Relative error of a factor: norm, its inverse or the origin, multiplying by it, and reduced precision."""
    reduced, _, _ = UNITS[name]
    stored = _DOUBLE if name == "float64" else _SINGLE
    return _together(_norm(width), gamma(2, stored), reduced)


def _added(number: int, unit: float, deep: int | None) -> float:
    """Relative error of a sum in any order; or in an order that adds up pieces of `deep` terms, and then these."""
    if deep is None or number <= deep:
        return gamma(number, unit)
    pieces = -(-number // deep)
    return gamma(-(-number // pieces) + pieces, unit)


def product(width: int, name: str, left: float = 1.0, right: float = 1.0, deep: int | None = None) -> float:
    r"""Error of the inner product of two rows, any order of the sum, with or without fused multiply-add.

    The factors carry a relative error a: from a float64 row, or scaled by the rounded inverse of a norm (two roundings
    and the norm's own error), or reduced to tf32 or bfloat16. The sum adds :math:`\gamma_d`:

    .. math:: |\widehat{x \cdot y} - x \cdot y| \le ((1 + a)^2 (1 + \gamma_d) - 1) \sum_k |x_k y_k|

    and by Cauchy-Schwarz the last sum is at most :math:`|x| |y|`. What underflows, flushed to zero or not, adds less
    than the smallest normal number for each factor and each term.

    Args:
        width: d, number of factors in a row.
        name: one of `UNITS`.
        left: largest norm of a row of the left side, after scaling.
        right: of the right side.
        deep: the sum is one of sums of so many terms each, in equal pieces (the kernel's DEEP), for which
            :math:`\gamma` of the terms of a piece and the pieces holds in place of :math:`\gamma_d`; None: any order.

    Source: Higham 2002, section 3.1, eq. 3.5; section 4.2 for sums in pieces.
    """
    _, added, smallest = UNITS[name]
    factor = _factor(width, name)
    relative = _together(factor, factor, _added(width, added, deep))
    return relative * left * right + width * smallest * (1 + left) * (1 + right)


def near_one(width: int, left: float, right: float) -> float:
    """Change of a cosine whose rows are taken as they are, though their norms are up to `left` and `right` from one.

    The score, at most one in size, is multiplied by both norms: by at most (1 + left)(1 + right), and the relative
    error of the norms that were measured in float64.
    """
    return _together(left, right, _norm(width), _norm(width)) if left or right else 0.0


def squared_distance(width: int, name: str, left: float, right: float, deep: int | None = None) -> float:
    r"""Error of a squared distance taken as one product of rows with two more columns.

    :math:`(2x, -|x|^2, -1) \cdot (y, 1, |y|^2) = -|x - y|^2`, for rows about a common origin. All d + 2 terms together
    are at most :math:`(|x| + |y|)^2` in size, by Cauchy-Schwarz; factors and sum err as in `product`, a square by twice
    its norm's error besides. Distances are cheap to bound by their ends, not by themselves: near duplicates far from
    the origin cancel.

    Args:
        width: d, without the two columns.
        name: one of `UNITS`.
        left: largest norm of a row of the left side about the origin.
        right: of the right side.
        deep: as in `product`.

    Source: Higham 2002, section 3.1, with the identity above.
    """
    _, added, smallest = UNITS[name]
    factor = _together(_factor(width, name), _factor(width, name), _norm(width))
    relative = _together(factor, factor, _added(width + 2, added, deep))
    return relative * (left + right) ** 2 + (width + 2) * smallest * (1 + left + right) ** 2


def distance(square: float, score: Tensor | float) -> Tensor:
    r"""Error of a distance whose square may be off by `square`, near a distance of `score`.

    :math:`|\hat r - r| = |\hat r^2 - r^2| / (\hat r + r)` is at most square / |score|, whichever of both the score is,
    and never above :math:`\sqrt{square}`, as :math:`(\hat r - r)^2 \le |\hat r^2 - r^2|`. Clamping a negative square
    at zero brings it nearer. The root itself rounds once (twice the unit, for devices without a correct root).

    Args:
        square: as `squared_distance` gives it.
        score: distances, or scores, which are distances negated.
    """
    size = torch.as_tensor(score, dtype=torch.float64).abs()
    return (square / size.clamp(min=2.0**-1000)).clamp(max=square**0.5) + 2 * _SINGLE * size


def rounded(values: Tensor, to: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Some float64 values in another dtype, none on the other side of its value than `to`, which is -inf or +inf."""
    near = values.to(dtype)
    beyond = near.double() > values if to < 0 else near.double() < values
    return torch.where(beyond, _stepped(near, to), near)


def _stepped(values: Tensor, to: float) -> Tensor:
    return torch.nextafter(values, torch.full_like(values, to))


def outward(level: Tensor, width: Tensor | float, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Ends of the undecided scores about some levels: at most `low` is certainly not above, above `high` certainly is.

    The float64 sum rounds once, and one step outward makes up for it; `rounded` does the rest without a factor.

    Args:
        level: float64; an infinite level has infinite ends.
        width: how far a computed score may be from the true one, with the ties.
        dtype: of the scores that are compared.
    """
    ends = (rounded(_stepped(level + to * width, to * torch.inf), to * torch.inf, dtype) for to in (-1, 1))
    return tuple(torch.where(level.isfinite(), end, level.to(dtype)) for end in ends)


def exponential(size: float, span: float = 126.0) -> float:
    r"""Logarithmic error of a float32 :math:`2^{z - r}`, z = scale times score, from a float32 score taken as true.

    The scale rounds and so does the product, :math:`\gamma_2 |z|`; subtracting the reference r and taking off whole
    powers of two round once each, by u times the exponent and u; a change of the exponent by e changes the logarithm by
    e ln 2. Then comes `EXP2`.

    Args:
        size: largest size of z, an exponent of two.
        span: largest size of z - r; at most 126, where exponents are clamped.
    """
    exponent = gamma(2, _SINGLE) * size + _SINGLE * (min(span, 126.0) + 2)
    return math.log(2) * exponent + _logarithmic(EXP2)


def total(short: int, long: int) -> float:
    r"""Logarithmic error of a sum of positive numbers: `short` of them at a time in float32, `long` such in float64.

    Every number passes at most short + long additions, so the sum errs by :math:`\gamma_{short}` and
    :math:`\gamma_{long}` of itself, whatever the order.

    Source: Higham 2002, section 4.2, eq. 4.4, for positive terms.
    """
    return _logarithmic(_together(gamma(short, _SINGLE), gamma(long, _DOUBLE)))


def clamped(number: int, least: float) -> float:
    """Relative error of a sum of at least 2^least when `number` pairs that take no part each count as 2^-126."""
    return number * 2.0 ** min(0.0, -126.0 - least)


def log_sum(bound: Tensor | float, nats: float, size: float, short: int, long: int) -> Tensor | float:
    r"""Logarithmic error of Σ exp(nats · score) over float32 scores.

    Each score is off by at most `bound`, which multiplies its exponential by at most :math:`e^{\pm nats \cdot bound}`,
    and so their sum; `exponential` and `total` add.

    Args:
        bound: of a score.
        nats: what scores are multiplied by.
        size: largest exponent of two, as in `exponential`.
        short: as in `total`.
        long: as in `total`.
    """
    return bound * nats + exponential(size) + total(short, long)


def room(bound: Tensor | float, nats: float, error: Tensor | float, largest: float) -> Tensor | float:
    r"""How far a limit must be lowered so that it drops no negative that may count in the end, in units of score.

    A negative counts if nats · s > ln S + ln eps. The sum so far, P, is part of S, and known to :math:`e^{\pm error}`:
    its logarithm is too large by at most `error`. Dividing by nats, and `bound` for the score of the tile itself, give
    the distance. Forming the limit in float32 (log2 of the rounded sum, the offset, the scale, two subtractions) rounds
    at most eight times by a relative u, in terms no larger than twice `largest`.

    Args:
        bound: of a score.
        nats: what scores are multiplied by.
        error: logarithmic error of the sums so far.
        largest: no logarithm (base 2) of a sum, and no offset, is larger in size.
    """
    formed = (LOG2 + gamma(8, _SINGLE)) * 2 * largest * math.log(2)
    return bound * (1 + gamma(4, _SINGLE)) + (error + formed) / nats


def exact_dot(width: int) -> float:
    r"""Error of an inner product in float64 of the embeddings as they are, over norms, or in parts of the largest ones.

    :math:`\gamma_d` for the product (products of two float32 numbers are exact, which is not needed), and for each
    norm its own error and a division. Stays below :math:`(2d + 12) 2^{-53}`: 1.2e-13 for unit rows of 512.
    """
    norm = _together(_norm(width), gamma(1, _DOUBLE))
    return _together(gamma(width, _DOUBLE), norm, norm) + 4 * width * UNITS["float64"][2]


def exact_distance(width: int) -> float:
    r"""Relative error of a distance in float64: each difference rounds once, its square twice more, the root halves.

    No cancellation: the differences of the rows are squared, not the rows. Of a squared distance it is twice as much.
    """
    return gamma((width + 3) / 2 + 1, _DOUBLE)


def ties(width: int, most: float) -> float:
    """Largest difference of two float64 scores that are taken as equal.

    1e-12 for unit rows, by convention; never less than two scores may be off together (`exact_dot`, `exact_distance`),
    which is more from a width of about 2,240 on.

    Args:
        width: d.
        most: largest size of a score; below 1 it is taken as 1.
    """
    return max(TIES, 2 * exact_dot(width), 4 * exact_distance(width)) * max(1.0, most)


def equal(bound: float, nats: float, number: int) -> float:
    """Relative difference of a share and eps below which float64 cannot tell them apart.

    At least 1e-11, by convention. Both the score and the sum of `number` exponentials err by nats times the bound of an
    exact score; exponential, sum and quotient round with the unit of float64, and so does a logarithm (at most 2^11).
    """
    rounded = gamma(number + 8, _DOUBLE) + 8 * 2.0**11 * _DOUBLE
    return max(1e-11, math.expm1(min(700.0, 2 * bound * nats)) + rounded)


def sigmoid(bound: float, nats: float, size: float) -> float:
    r"""Logarithmic error of a float32 sigmoid :math:`1 / (1 + 2^{-z})`, z = scale times (score - level).

    :math:`|d \ln \sigma(z) / dz| \le \ln 2`, so an error of the exponent carries over at most as it is: of the score
    and the level, of the level's float32 value (u |level|, part of `size`), and of the exponential; then an addition
    and a quotient round.

    Args:
        bound: of a score, with that of the level.
        nats: 1 / temperature.
        size: largest exponent of two, scale times (|score| + |level|).
    """
    return bound * nats + exponential(2 * size) + _logarithmic(gamma(2, _SINGLE))


def slope(bound: float, nats: float, size: float) -> float:
    r"""Logarithmic error of a float32 slope :math:`\sigma (1 - \sigma)`, as :math:`2^{-z} \sigma^2`.

    :math:`|d \ln (\sigma (1 - \sigma)) / dz| = |1 - 2 \sigma| \ln 2`, so the exponent's error carries over once; the
    roundings of the exponential and of two sigmoids given the exponent add, and two products.
    """
    given = _logarithmic(_together(EXP2, gamma(2, _SINGLE)))
    return bound * nats + exponential(2 * size) + 2 * given + _logarithmic(gamma(2, _SINGLE))


def cut(number: int, far: float) -> float:
    """What `number` sigmoids or slopes that are left out may add up to: below 2^-far each."""
    return number * 2.0**-far


def bin_place(bins: int) -> float:
    r"""Error of (score - low) / width in float32, in bins: difference, inverse width and product round, \gamma_3."""
    return gamma(3, _SINGLE) * bins
