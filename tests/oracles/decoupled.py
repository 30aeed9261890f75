"""Descendants of InfoNCE that change its denominator or its label: decoupled, debiased, hard, robust, smoothed."""

import math

from oracles._loops import logsumexp, rows


def dcl(pairs, temperature):
    """Yeh 2022 eq. 6: the positive is not in the denominator."""
    return [
        math.fsum(logsumexp(row[n] / temperature for n in negatives) - row[p] / temperature for p in positives)
        if negatives
        else 0.0
        for row, positives, negatives in rows(pairs)
    ]


def dclw(pairs, temperature, sigma, detach, frozen=None):
    """Yeh 2022 eq. 6 with w = 2 - exp(s / sigma) / mean of exp(s / sigma) over the positive pairs of the batch."""
    placed = [[row[p] / sigma for p in positives] if negatives else [] for row, positives, negatives in
              rows(frozen if detach and frozen is not None else pairs)]  # fmt: skip
    every = [z for own in placed for z in own]
    top = max(every, default=0.0)
    mean = math.fsum(math.exp(z - top) for z in every) / max(1, len(every))
    losses = []
    for (row, positives, negatives), own in zip(rows(pairs), placed, strict=True):
        total = logsumexp(row[n] / temperature for n in negatives)
        losses.append(
            math.fsum(
                total - (2 - math.exp(z - top) / mean) * row[p] / temperature
                for p, z in zip(positives, own, strict=True)
            )
            if negatives
            else 0.0
        )
    return losses


def hcl(pairs, temperature, beta, prior):
    """Robinson 2021, the published code: reweighted sum, correction, clamp; a large score is factored out."""
    losses = []
    for row, positives, negatives in rows(pairs):
        loss = 0.0
        for p in positives if negatives else ():
            top = max(row[p], *(row[n] for n in negatives))
            own = math.exp((row[p] - top) / temperature)
            each = [math.exp((row[n] - top) / temperature) for n in negatives]
            high = max(row[n] for n in negatives)
            important = [math.exp(beta * (row[n] - high) / temperature) for n in negatives]
            number = len(negatives)
            total = math.fsum(i * e for i, e in zip(important, each, strict=True)) / (math.fsum(important) / number)
            least = math.log(number) - 1 / temperature - top / temperature
            estimate = (total - prior * number * own) / (1 - prior)
            log = max(math.log(estimate), least) if estimate > 0 else least
            loss += logsumexp([(row[p] - top) / temperature, log]) - (row[p] - top) / temperature
        losses.append(loss)
    return losses


def logq_softmax(pairs, temperature, correction):
    """Yi 2019 sec. 3; of the repaired form the loss whose gradient Khrylchenko 2025 has."""
    logq = [0.0] * pairs.scores.shape[1] if pairs.logq is None else pairs.logq.tolist()
    losses = []
    for row, positives, negatives in rows(pairs):
        loss = 0.0
        for p in positives if negatives else ():
            own, number = {"all": logq[p], "negatives": 0.0}.get(correction), 1
            if correction == "repaired" and pairs.logq is not None:
                own, number = math.log(1 - math.exp(logq[p])), len(negatives)
            z = row[p] / temperature - (own or 0.0)
            loss += logsumexp([z, *(row[n] / temperature - logq[n] - math.log(number) for n in negatives)]) - z
        losses.append(loss)
    return losses


def mil_nce(pairs, temperature):
    """Miech 2020 eq. 1: the positives are summed inside the logarithm."""
    losses = []
    for row, positives, negatives in rows(pairs):
        own = logsumexp(row[p] / temperature for p in positives)
        every = logsumexp(row[j] / temperature for j in positives + negatives)
        losses.append(every - own if positives and negatives else 0.0)
    return losses


def smoothed_softmax(pairs, temperature, smoothing):
    """Szegedy 2016 sec. 7: an even part of the label on the positive and every negative."""
    losses = []
    for row, positives, negatives in rows(pairs):
        loss = 0.0
        for p in positives if negatives else ():
            total = logsumexp(row[j] / temperature for j in [p, *negatives])
            for j in [p, *negatives]:
                label = smoothing / (1 + len(negatives)) + (1 - smoothing) * (j == p)
                loss += label * (total - row[j] / temperature)
        losses.append(loss)
    return losses
