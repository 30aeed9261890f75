"""The losses of Veit & Wilber 2020, SupCon, and alignment with uniformity."""

import math

from oracles._loops import logsumexp, rows, softplus


def _hardest(pairs, fraction):
    """The highest ones of (score, place) pairs; of equal ones the first."""
    pairs = sorted(pairs, key=lambda pair: (-pair[0], pair[1]))
    return [score for score, _ in pairs[: max(1, math.floor(fraction * len(pairs) + 1e-9))]]


def supcon(pairs, temperature):
    """SupCon eq. 2, one positive after the other; nothing to tell apart without a negative."""
    losses = []
    for row, positives, negatives in rows(pairs):
        total = logsumexp(row[j] / temperature for j in positives + negatives)
        each = [total - row[p] / temperature for p in positives]
        losses.append(math.fsum(each) / len(each) if positives and negatives else 0.0)
    return losses


def sampled_softmax(pairs, scale):
    """Eq. 2, each positive against all negatives of the query."""
    return [
        math.fsum(softplus(logsumexp(scale * row[n] for n in negatives) - scale * row[p]) for p in positives)
        if negatives
        else 0.0
        for row, positives, negatives in rows(pairs)
    ]


def snm(pairs, scale, fraction):
    """Eq. 3: the negatives are the hardest ones of the query."""
    losses = []
    for row, positives, negatives in rows(pairs):
        total = logsumexp(scale * s for s in _hardest([(row[n], n) for n in negatives], fraction))
        losses.append(math.fsum(softplus(total - scale * row[p]) for p in positives) if negatives else 0.0)
    return losses


def ce_softmax(pairs, scale):
    """Eqs. 4 and 5: the negatives are those of every query."""
    return ce_nm(pairs, scale, 1.0)


def ce_nm(pairs, scale, fraction):
    """Eq. 6: the negatives are the hardest ones of the batch."""
    found = list(rows(pairs))
    everything = [(row[n], (q, n)) for q, (row, _, negatives) in enumerate(found) for n in negatives]
    if not everything:
        return [0.0] * len(found)
    total = logsumexp(scale * s for s in _hardest(everything, fraction))
    return [math.fsum(softplus(total - scale * row[p]) for p in positives) for row, positives, _ in found]


def align_uniform(pairs, t, weight):
    """Wang & Isola, section 4: squared distance of each positive, and one potential of all negatives."""
    found = list(rows(pairs))
    potentials = [t * row[n] for row, _, negatives in found for n in negatives]
    spread = logsumexp(potentials) - math.log(len(potentials)) if potentials else 0.0
    return [math.fsum(-row[p] + weight * spread for p in positives) for row, positives, _ in found]
