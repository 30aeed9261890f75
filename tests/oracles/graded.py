"""Losses of the order of candidates by their grades, which are the scores of the teacher; NaN takes no part."""

import math

from oracles._loops import logsumexp, rows, sigmoid, softplus


def _judged(pairs):
    """Scores, grades and the graded candidates of each query, none without a graded positive and negative."""
    for (row, positives, negatives), grades in zip(rows(pairs), pairs.teacher.tolist(), strict=True):
        sides = [[j for j in side if not math.isnan(grades[j])] for side in (positives, negatives)]
        yield row, grades, sides[0] + sides[1] if all(sides) else []


def ranknet(pairs, scale):
    """Burges 2005 eq. 3, of every two candidates with a known order."""
    return [
        math.fsum(softplus(-scale * (row[i] - row[j])) for i in known for j in known if grades[i] > grades[j])
        for row, grades, known in _judged(pairs)
    ]


def listmle(pairs):
    """Xia 2008 eq. 6."""
    return [
        math.fsum(logsumexp(row[j] for j in known if grades[j] <= grades[i]) - row[i] for i in known)
        for row, grades, known in _judged(pairs)
    ]


def adr_mse(pairs, scale):
    """Schlatt 2025; equal grades have the mean of their ranks."""
    losses = []
    for row, grades, known in _judged(pairs):
        loss = 0.0
        for i in known:
            smooth = 1 + math.fsum(sigmoid(scale * (row[j] - row[i])) for j in known if j != i)
            places = [k + 1 for k, g in enumerate(sorted((grades[j] for j in known), reverse=True)) if g == grades[i]]
            rank = math.fsum(places) / len(places)
            loss += (rank - smooth) ** 2 / math.log2(rank + 1) / len(known)
        losses.append(loss)
    return losses
