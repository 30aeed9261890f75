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


def _rewards(pairs, beta, of):
    """Sum of a function of beta h over the comparisons whose answers both have a log-probability of the reference."""
    losses = []
    for (row, compared), reference in zip(_pairs_of(pairs), pairs.teacher.tolist(), strict=True):
        known = [(p, n) for p, n in compared if not (math.isnan(reference[p]) or math.isnan(reference[n]))]
        losses.append(math.fsum(of(beta * ((row[p] - row[n]) - (reference[p] - reference[n]))) for p, n in known))
    return losses


def dpo(pairs, beta, label_smoothing):
    """Rafailov 2023 eq. 7; Mitchell 2023 eq. 3."""
    return _rewards(pairs, beta, lambda x: (1 - label_smoothing) * softplus(-x) + label_smoothing * softplus(x))


def robust_dpo(pairs, beta, label_smoothing):
    """Chowdhury 2024 eq. 12."""
    e = label_smoothing
    return _rewards(pairs, beta, lambda x: ((1 - e) * softplus(-x) - e * softplus(x)) / (1 - 2 * e))


def ipo(pairs, beta):
    """Azar 2023 eq. 17."""
    return _rewards(pairs, 1, lambda h: (h - 1 / (2 * beta)) ** 2)


def dpo_hinge(pairs, beta):
    """Liu 2023 eq. 9."""
    return _rewards(pairs, beta, lambda x: max(0.0, 1 - x))


def simpo(pairs, beta, gamma):
    """Meng 2024 eq. 6."""
    return [
        math.fsum(softplus(gamma - beta * (row[p] - row[n])) for p, n in compared) for row, compared in _pairs_of(pairs)
    ]
