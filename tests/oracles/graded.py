"""Losses of the order of candidates by their grades, which are the scores of the teacher; NaN takes no part."""

import math

from oracles._loops import logsumexp, rows, softplus


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


def lambdaloss(pairs, scheme, scale, mu, k):
    """Wang 2018: candidates stand in a list by their scores; eq. 18 leaves out pairs below the first k."""
    losses = []
    for row, grades, known in _judged(pairs):
        listed = sorted(known, key=lambda j, row=row: (-row[j], j))
        gains = {j: 2.0 ** max(grades[j], 0.0) - 1 for j in known}
        best = sorted(gains.values(), reverse=True)[:k]
        most = math.fsum(gain / math.log2(place + 2) for place, gain in enumerate(best)) or 1.0
        loss = 0.0
        for a, i in enumerate(listed, 1):
            for b, j in enumerate(listed, 1):
                if a == b or min(a, b) > (k or len(known)) or (scheme != "ndcg1" and grades[i] <= grades[j]):
                    continue
                apart, step = abs(gains[i] - gains[j]) / most, abs(a - b)
                rho = abs(1 / math.log2(1 + a) - 1 / math.log2(1 + b))
                delta = 1 / math.log2(1 + step) - 1 / math.log2(2 + step)
                cost = {
                    "lambdarank": rho * apart,
                    "ndcg1": gains[i] / most / math.log2(1 + a),
                    "ndcg2": delta * apart,
                    "ndcg2pp": (rho + mu * delta) * apart,
                }[scheme]
                loss += cost * softplus(-scale * (row[i] - row[j])) / math.log(2)
        losses.append(loss)
    return losses
