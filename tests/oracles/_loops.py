"""Loops and sums that the slow losses share, in plain Python floats."""

import math


def rows(pairs):
    """Each query's scores, and the places of its positives and its negatives."""
    for q, row in enumerate(pairs.scores.tolist()):
        positives = [j for j in range(len(row)) if pairs.positive[q, j]]
        negatives = [j for j in range(len(row)) if pairs.negative[q, j]]
        yield row, positives, negatives


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def logsumexp(values):
    values = list(values)
    largest = max(values, default=-math.inf)
    return largest if largest == -math.inf else largest + math.log(math.fsum(math.exp(v - largest) for v in values))


def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
