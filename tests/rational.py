"""Rational arithmetic on floats, adversarial rows, and what the tests of bounds say."""

import math
from fractions import Fraction

import numpy as np

WIDTHS = (1, 2, 3, 17, 128, 513, 2048)
# No float is finer than 2^-1074.
FINEST = 1074


def whole(values):
    """Float numbers as whole numbers of 2^-1074."""
    ratios = (float(value).as_integer_ratio() for value in values)
    return [top << (FINEST - below.bit_length() + 1) for top, below in ratios]


def dot(left, right):
    return Fraction(sum(a * b for a, b in zip(whole(left), whole(right), strict=True)), 1 << 2 * FINEST)


def root(square):
    """Square root of a Fraction, to 300 bits behind its first one."""
    shift = 600 + 2 * max(0, square.denominator.bit_length() - square.numerator.bit_length())
    return Fraction(math.isqrt((square.numerator << shift) // square.denominator), 1 << shift // 2)


def rows(width, seed=0):
    """Adversarial pairs of float32 rows, named: unit length is not needed."""
    generator = np.random.default_rng(seed + width)
    ones, sign = np.ones(width), np.where(np.arange(width) % 2, -1.0, 1.0)
    plain = generator.standard_normal((2, width))
    spread = plain * np.exp(8 * generator.standard_normal((2, width)))
    stuck = np.concatenate([[1.0], np.full(width - 1, 2.0**-12)])  # each product vanishes beside the first one
    stuck_below = np.concatenate([[1.0], np.full(width - 1, 0.999 * 2.0**-12.5)])  # and also after scaling
    made = {
        "plain": plain,
        "equal": (plain[0], plain[0]),
        "opposite": (plain[0], -plain[0]),
        "alternating": (ones * 0.1, sign * 0.3),
        "spread": spread,
        "stuck": (stuck, stuck),
        "stuck below one": (stuck_below, stuck_below),
        "cancelling": (spread[0], spread[0][::-1] * sign),
        "one of many": (np.eye(1, width)[0], plain[1]),
    }
    return {name: tuple(np.asarray(each, dtype=np.float32) for each in pair) for name, pair in made.items()}


def norm(row):
    return float(np.linalg.norm(row.astype(np.float64)))


def reached(part, least):
    """The largest part of a bound that was reached is neither above 1 nor below what is known."""
    print(f"reached {part:.3g} of the bound, at least {least:g} expected")
    assert least <= part <= 1
