"""Losses that read the scores of a teacher; pairs for which it gave none, NaN, take no part."""

import math

from oracles._loops import logsumexp, rows


def _known(pairs):
    """Scores, the teacher's scores, and the places of the positives and negatives that have one."""
    for (row, positives, negatives), given in zip(rows(pairs), pairs.teacher.tolist(), strict=True):
        yield row, given, *([j for j in places if not math.isnan(given[j])] for places in (positives, negatives))


def margin_mse(pairs):
    """Hofstätter 2020 eq. 5."""
    return [
        math.fsum(
            math.fsum(((row[p] - row[n]) - (given[p] - given[n])) ** 2 for n in negatives) / len(negatives)
            for p in (positives if negatives else ())
        )
        for row, given, positives, negatives in _known(pairs)
    ]


def kl_distill(pairs, temperature, squared, teacher_temperature):
    """Hinton 2015 over the candidates of a query."""
    losses = []
    for row, given, positives, negatives in _known(pairs):
        own = {j: row[j] / temperature for j in positives + negatives}
        taught = {j: given[j] / (teacher_temperature or temperature) for j in positives + negatives}
        if not (positives and negatives):
            losses.append(0.0)
            continue
        totals = logsumexp(own.values()), logsumexp(taught.values())
        divergence = math.fsum(
            math.exp(taught[j] - totals[1]) * ((taught[j] - totals[1]) - (own[j] - totals[0])) for j in own
        )
        losses.append(divergence * (temperature**2 if squared else 1))
    return losses
