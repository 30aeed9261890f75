"""Slow loops straight from the papers, in plain Python floats; they share no code with the package."""

import math

import torch


def _rows(pairs):
    scores = pairs.scores.tolist()
    for q, row in enumerate(scores):
        positives = [j for j in range(len(row)) if pairs.positive[q, j]]
        negatives = [j for j in range(len(row)) if pairs.negative[q, j]]
        yield row, positives, negatives


def _sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def triplet(pairs, margin):
    """VSE++ eq. 5: every negative within the margin of every positive."""
    return [
        sum(max(0.0, margin - row[p] + row[n]) for p in positives for n in negatives)
        for row, positives, negatives in _rows(pairs)
    ]


def triplet_sh(pairs, margin):
    """VSE++ eq. 6: the hardest negative only."""
    return [
        sum(max(0.0, margin - row[p] + max(row[n] for n in negatives)) for p in positives) if negatives else 0.0
        for row, positives, negatives in _rows(pairs)
    ]


def ntxent(pairs, temperature):
    """SimCLR eq. 1, each positive against all negatives of the query."""
    losses = []
    for row, positives, negatives in _rows(pairs):
        total = 0.0
        for p in positives:
            largest = max([row[p], *(row[n] for n in negatives)])
            own = math.exp((row[p] - largest) / temperature)
            others = math.fsum(math.exp((row[n] - largest) / temperature) for n in negatives)
            total += math.log(own + others) - (row[p] - largest) / temperature
        losses.append(total)
    return losses


def smoothap(pairs, temperature):
    """Smooth-AP eq. 8."""
    losses = []
    for row, positives, negatives in _rows(pairs):
        precision = 0.0
        for i in positives:
            above = [_sigmoid((row[j] - row[i]) / temperature) for j in positives if j != i]
            intruders = [_sigmoid((row[n] - row[i]) / temperature) for n in negatives]
            precision += (1 + math.fsum(above)) / (1 + math.fsum(above) + math.fsum(intruders))
        losses.append(1 - precision / len(positives) if positives else 0.0)
    return losses


def eq7(pairs, temperature, eps):
    """COCOS eq. 7: pairs (positive i, any other candidate j) whose term is above eps, per positive."""
    counts = []
    for row, positives, negatives in _rows(pairs):
        found = 0
        for i in positives:
            others = {j: _sigmoid((row[j] - row[i]) / temperature) for j in positives + negatives if j != i}
            rank = 1 + math.fsum(others.values())
            found += sum(g * (1 - g) / rank**2 > eps for g in others.values())
        counts.append(found / len(positives) if positives else 0.0)
    return counts


def push_of(weights, pairs):
    """Weights of the negatives of each query that are not zero, as fractions of their sum, heaviest first."""
    for q in range(len(weights)):
        row = [abs(float(weights[q, j])) for j in range(weights.shape[1]) if pairs.negative[q, j]]
        total = math.fsum(row)
        yield sorted((w / total for w in row if w > 0), reverse=True) if total > 0 else []


def effective(weights, pairs):
    """Hill number of order 1."""
    return [math.exp(-math.fsum(p * math.log(p) for p in row)) if row else 0.0 for row in push_of(weights, pairs)]


def participation(weights, pairs):
    """Hill number of order 2."""
    return [1 / math.fsum(p * p for p in row) if row else 0.0 for row in push_of(weights, pairs)]


def n90(weights, pairs):
    """Heaviest negatives that hold 90 % of the push."""
    result = []
    for row in push_of(weights, pairs):
        held, number = 0.0, 0
        for p in row:
            if held >= 0.9 - 1e-9:
                break
            held, number = held + p, number + 1
        result.append(number)
    return result


LOSSES = {"triplet": triplet, "triplet_sh": triplet_sh, "ntxent": ntxent, "smoothap": smoothap}


def difference(function, pairs, step=1e-6):
    """Central differences of a summed slow loss with respect to every score."""
    result = torch.zeros_like(pairs.scores)
    for q in range(pairs.scores.shape[0]):
        for c in range(pairs.scores.shape[1]):
            moved = []
            for sign in (1, -1):
                scores = pairs.scores.clone()
                scores[q, c] += sign * step
                moved.append(math.fsum(function(pairs.with_scores(scores))))
            result[q, c] = (moved[0] - moved[1]) / (2 * step)
    return result
