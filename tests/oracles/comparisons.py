"""Losses of one difference: a positive and a negative, a chosen and a rejected answer."""

import math

from oracles._loops import rows, softplus


def _pairs_of(pairs):
    """Scores of each query, and its comparisons (positive, negative)."""
    for row, positives, negatives in rows(pairs):
        yield row, [(p, n) for p in positives for n in negatives]


def bpr(pairs):
    """Rendle 2009, BPR-Opt."""
    return [math.fsum(softplus(row[n] - row[p]) for p, n in compared) for row, compared in _pairs_of(pairs)]


def bradley_terry(pairs, margin, centring):
    """Touvron 2023 eq. 2, and the penalty of Eisenstein 2023 eq. 2."""
    return [
        math.fsum(softplus(row[n] - row[p] + margin) + centring * (row[p] + row[n]) ** 2 for p, n in compared)
        for row, compared in _pairs_of(pairs)
    ]
