"""Losses of one difference, that of a positive and a negative."""

import math

from oracles._loops import rows, softplus


def _pairs_of(pairs):
    """Scores of each query, and its comparisons (positive, negative)."""
    for row, positives, negatives in rows(pairs):
        yield row, [(p, n) for p in positives for n in negatives]


def bpr(pairs):
    """Rendle 2009, BPR-Opt."""
    return [math.fsum(softplus(row[n] - row[p]) for p, n in compared) for row, compared in _pairs_of(pairs)]
