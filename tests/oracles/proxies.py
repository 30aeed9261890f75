"""The losses of DeMoor & Prevost 2024 and of ProxyNCA, on distances."""

import math

from oracles._loops import logsumexp, rows, softplus

_FUNCTIONS = {"t": lambda t: t, "t^2": lambda t: t * t, "sqrt": math.sqrt, "t^1.5": lambda t: math.sqrt(t * t * t)}


def _cross_entropy(own, others):
    """Eq. 8: log(1 + Σ exp(own - other)) of distances that went through their functions."""
    return softplus(logsumexp(own - other for other in others)) if others else 0.0


def euclidean_softmax(pairs, f1, f2, scale):
    """Eqs. 4 to 6 with the functions of Table III."""
    first, second = (_FUNCTIONS[f] if f in _FUNCTIONS else lambda t, k=float(f): k * t for f in (f1, f2))
    return [
        math.fsum(
            _cross_entropy(scale * first(-row[p]), [scale * second(-row[n]) for n in negatives]) for p in positives
        )
        for row, positives, negatives in rows(pairs)
    ]


def warped_softmax(pairs, alpha, k1, k2, delta, scale, frozen=None):
    """Eqs. 7 and 8; Δ is taken at the frozen distances."""
    losses = []
    for (row, positives, negatives), held in zip(rows(pairs), (frozen or pairs).scores.tolist(), strict=True):
        total = 0.0
        for p in positives:
            t = -row[p]
            if t < alpha:
                own = k1 * t + delta * (1 - k1) * -held[p]
            else:
                own = k2 * t + (1 - k2) * alpha
            total += _cross_entropy(scale * own, [scale * -row[n] for n in negatives])
        losses.append(total)
    return losses


def proxynca(pairs, scale):
    """Movshovitz-Attias et al.: the positive is not in the denominator."""
    losses = []
    for row, positives, negatives in rows(pairs):
        if not negatives:
            losses.append(0.0)
            continue
        others = logsumexp(scale * row[n] for n in negatives)
        losses.append(math.fsum(others - scale * row[p] for p in positives))
    return losses


def proxynca_pp(pairs, scale):
    """Teh et al.: minus the log of a softmax over the positive and the negatives."""
    losses = []
    for row, positives, negatives in rows(pairs):
        logs = [logsumexp([scale * row[p], *(scale * row[n] for n in negatives)]) - scale * row[p] for p in positives]
        losses.append(math.fsum(logs) if negatives else 0.0)
    return losses
