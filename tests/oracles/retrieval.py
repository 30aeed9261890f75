"""The losses of Bleeker & de Rijke 2022."""

import math

from oracles._loops import rows, sigmoid


def triplet(pairs, margin):
    """VSE++ eq. 5: every negative within the margin of every positive."""
    return [
        sum(max(0.0, margin - row[p] + row[n]) for p in positives for n in negatives)
        for row, positives, negatives in rows(pairs)
    ]


def triplet_sh(pairs, margin):
    """VSE++ eq. 6: the hardest negative only."""
    return [
        sum(max(0.0, margin - row[p] + max(row[n] for n in negatives)) for p in positives) if negatives else 0.0
        for row, positives, negatives in rows(pairs)
    ]


def ntxent(pairs, temperature):
    """SimCLR eq. 1, each positive against all negatives of the query."""
    losses = []
    for row, positives, negatives in rows(pairs):
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
    for row, positives, negatives in rows(pairs):
        precision = 0.0
        for i in positives:
            above = [sigmoid((row[j] - row[i]) / temperature) for j in positives if j != i]
            intruders = [sigmoid((row[n] - row[i]) / temperature) for n in negatives]
            precision += (1 + math.fsum(above)) / (1 + math.fsum(above) + math.fsum(intruders))
        losses.append(1 - precision / len(positives) if positives else 0.0)
    return losses
