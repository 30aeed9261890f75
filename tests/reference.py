"""Counts from their definitions, in dense float64: the slow reference of the engine, which shares no code with it.

A loss is known by its name and its parameters. Matrices are numpy arrays, (queries, candidates), in float64. Where the
definition draws a line (a share above eps, a score above another), rounding of float64 itself may put a pair on either
side of it: a count is therefore a pair (least, most), which are equal unless a pair lies within that rounding.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

UNIT = 2.0**-53  # rounding of one operation
TIE = 1e-12  # scores of unit vectors that differ by less are equal, by definition of the ranks
HALF = 0.5


def _long(rows):
    """Lengths of rows, (N,), without overflow."""
    top = np.abs(rows).max(axis=1, keepdims=True)
    top[top == 0] = 1
    return np.sqrt(((rows / top) ** 2).sum(axis=1)) * top[:, 0]


def scores(query, candidate, metric):
    """Scores, (Q, C): cosines, inner products, or minus distances, from differences."""
    if metric == "squared_chord":
        query, candidate = (rows / _long(rows)[:, None] for rows in (query, candidate))
    if metric in {"euclidean", "squared_chord", "squared_euclidean"}:
        square = np.stack([((candidate - row) ** 2).sum(axis=1) for row in query])
        return -np.sqrt(square) if metric == "euclidean" else -square
    if metric in {"cosine", "cosine_dot"}:
        query = query / _long(query)[:, None]
    if metric == "cosine":
        candidate = candidate / _long(candidate)[:, None]
    return query @ candidate.T


def alike(embeddings, metric):
    """`scores` of all rows of some embeddings, a (Q, C) float64 tensor: pairs of equal rows score equally.

    A matrix product need not do so: libraries add up the products of the last rows and columns in another order.
    """
    wide = (side.double().numpy().astype(np.longdouble) for side in (embeddings.query, embeddings.candidate))
    return torch.from_numpy(scores(*wide, metric).astype(np.float64))


def rounding(query, candidate, metric, unit=UNIT):
    """Largest error of a score that is computed as above with this unit roundoff; of distances from differences."""
    width = query.shape[1]
    most = float(np.abs(_long(query)).max()) if metric in {"dot", "euclidean", "squared_euclidean"} else 1.0
    other = 1.0 if metric in {"cosine", "squared_chord"} else float(np.abs(_long(candidate)).max())
    far = {"euclidean": most + other, "squared_euclidean": (most + other) ** 2, "squared_chord": 4.0}.get(
        metric, most * other
    )
    return (width + 8) * unit * far


def masks(query_group, candidate_group, rows, columns, *, paired, shared, same_group="ignore"):
    """Positives and negatives, (Q, C) bool each, of the rows and columns of a batch."""
    same = query_group[rows][:, None] == candidate_group[columns][None, :]
    if paired:
        own = np.arange(len(rows))[:, None] == np.arange(len(columns))[None, :]
        return own, ~own if same_group == "negative" else ~(own | same)
    itself = rows[:, None] == columns[None, :] if shared else np.zeros_like(same)
    return same & ~itself, ~same


def _slots(positive):
    """Column of the k-th positive of each query and whether there is one, (Q,) each, for every k."""
    order = np.argsort(~positive, axis=1, kind="stable")
    for k in range(int(positive.sum(axis=1).max(initial=0))):
        column = order[:, k]
        yield column, positive[np.arange(len(positive)), column]


def _cross_entropy(own, other, positive, negative, *, alone=False):
    """Gradient with respect to the logits of Σ_p -log(e^own_p / (e^own_p + Σ_n e^other_n)), (Q, C).

    `alone` leaves the positive out of the denominator.
    """
    result, row = np.zeros_like(other), np.arange(len(other))
    hardest = np.where(negative, other, -np.inf).max(axis=1, initial=-np.inf)
    there = negative.any(axis=1)
    for column, filled in _slots(positive):
        mine = own[row, column]
        top = np.where(there, hardest, 0) if alone else np.maximum(hardest, mine)
        mass = np.where(negative, np.exp(np.minimum(other - top[:, None], 0)), 0.0)
        whole = mass.sum(axis=1) + (0 if alone else np.exp(mine - top))
        share = np.where((filled & there)[:, None], mass / np.where(whole > 0, whole, 1)[:, None], 0.0)
        result += share
        result[row, column] -= share.sum(axis=1)
    return result


def _hardest(score, negative, fraction):
    """The part of the negatives of each row with the highest scores, the first ones of equals; (Q, C) bool."""
    kept = np.zeros_like(negative)
    for q, row in enumerate(np.where(negative, score, -np.inf)):
        many = max(1, math.floor(fraction * int(negative[q].sum()) + 1e-9))
        kept[q, np.argsort(-row, kind="stable")[:many]] = True
    return kept & negative


def _turned(cosine, margin):
    """cos(θ + m) and its derivative with respect to cos θ."""
    root = np.sqrt(np.maximum((1 - cosine) * (1 + cosine), 0))
    inside = np.abs(cosine) < 1
    slope = np.cos(margin) + np.sin(margin) * np.where(inside, cosine / np.where(inside, root, 1), 0)
    return np.cos(margin) * cosine - np.sin(margin) * np.where(inside, root, 0), slope


def _function(name, distance):
    """f(d) and f'(d) of the distance functions."""
    if name == "t^2":
        return distance**2, 2 * distance
    if name == "sqrt":
        return np.sqrt(distance), np.where(distance > 0, HALF / np.sqrt(np.where(distance > 0, distance, 1)), 0)
    if name == "t^1.5":
        return distance**1.5, 1.5 * np.sqrt(distance)
    factor = 1.0 if name == "t" else float(name)
    return factor * distance, np.full_like(distance, factor)


def _logits(name, p, score, norm):
    """Scale λ of the logits of negatives; logits of positives and their slope, (Q, C) each; units over λ, (Q, C)."""
    ones = np.ones_like(score)
    scale = p.get("scale", 1 / p["temperature"] if "temperature" in p else 1.0)
    own, slope, unit = scale * score, scale * ones, ones
    if name == "cosface":
        own = scale * (score - p["margin"])
    elif name == "arcface":
        turned, steep = _turned(score, p["margin"])
        near = score > -math.cos(p["margin"])
        own = scale * np.where(near, turned, score - p["margin"] * math.sin(p["margin"]))
        slope = scale * np.where(near, steep, 1)
    elif name == "magface":
        length = np.clip(norm, p["l_a"], p["u_a"])[:, None]
        margin = p["l_m"] + (p["u_m"] - p["l_m"]) / (p["u_a"] - p["l_a"]) * (length - p["l_a"])
        turned, steep = _turned(score, margin)
        own, slope = scale * np.where(score > 0, turned, score), scale * np.where(score > 0, steep, 1)
    elif name == "euclidean_softmax":
        value, steep = _function(p["f1"], -score)
        factor = _function(p["f2"], -score)[1][0, 0]
        own, slope = -scale * value, scale * steep
        scale, unit = scale * factor, np.where(steep > 0, steep, 1) / factor
    elif name == "warped_softmax":
        distance, inside = -score, -score < p["alpha"]
        value = p["k1"] * distance + p["delta"] * (distance - p["k1"] * distance)
        own = -scale * np.where(inside, value, p["k2"] * distance + (1 - p["k2"]) * p["alpha"])
        unit = np.where(inside, p["k1"], p["k2"])
        slope = scale * unit
    return scale, own, slope, unit


def weights(name, p, score, positive, negative, norm):
    """∂ Σ loss / ∂ score and its unit, (Q, C) each.

    Args:
        name: of the loss.
        p: all of its parameters, by name.
        score: (Q, C).
        positive: (Q, C) bool.
        negative: (Q, C) bool.
        norm: (Q,) lengths of the queries.
    """
    number = np.maximum(positive.sum(axis=1, keepdims=True), 1).astype(float)
    if name in {"triplet", "triplet_euclidean", "triplet_squared", "triplet_sh"}:
        return _hinge(name, p["margin"], score, positive, negative), np.ones_like(score)
    if name == "smoothap":
        return _smooth(p["temperature"], score, positive, negative), np.broadcast_to(
            1 / (p["temperature"] * number), score.shape
        )
    if name == "siglip":
        logits = p["scale"] * score + p["bias"]
        share = np.where(negative, _sigmoid(logits), 0) - np.where(positive, _sigmoid(-logits), 0)
        return p["scale"] * share, np.full_like(score, p["scale"])
    if name == "supcon":
        return _supcon(score / p["temperature"], positive, negative) / p["temperature"], np.full_like(
            score, 1 / p["temperature"]
        )
    if name in {"ce_softmax", "ce_nm"}:
        return _cross_example(name, p, score, positive, negative), np.broadcast_to(p["scale"] * number, score.shape)
    scale, own, slope, unit = _logits(name, p, score, norm)
    taken = _hardest(score, negative, p["fraction"]) if name == "snm" else negative
    residual = _cross_entropy(own, scale * score, positive, taken, alone=name == "proxynca")
    unit = scale * np.where(positive, unit, 1.0) * number
    return residual * np.where(positive, slope, scale), unit


def room(name, p, side, error):
    """Relative error of a share where every score has this error; inf where it lies at a jump of the definition."""
    score, positive = side.score, side.positive
    if not positive.any() or not error:
        return 0.0
    if name == "smoothap":
        return 8 * error / p["temperature"]
    if name in {"supcon", "ce_softmax", "ce_nm", "siglip"}:
        return 4 * error * p.get("scale", 1 / p.get("temperature", 1))
    scale, own, slope, _ = _logits(name, p, score, side.norm)
    mine = score[positive]
    jumps = {"arcface": [-math.cos(p.get("margin", 0))], "magface": [0.0], "warped_softmax": [-p.get("alpha", 0)]}
    if any((np.abs(mine - jump) <= 4 * error).any() for jump in jumps.get(name, [])):
        return math.inf
    if not math.isfinite(error):
        return math.inf
    of_own = np.minimum(np.abs(slope[positive]) * error, scale * math.sqrt(4 * error))
    if name == "euclidean_softmax":
        of_own = np.abs(slope[positive]) * error + scale * error
        if p["f1"] == "sqrt":
            of_own = np.minimum(of_own, scale * math.sqrt(4 * error))
    largest = max(np.abs(own[positive]).max(), np.abs(scale * score).max())
    return float(2 * scale * error + 2 * of_own.max() + largest * 2**-50)


def _hinge(name, margin, score, positive, negative):
    """A negative weighs as many positives as it violates, a positive minus its violators; or the hardest one alone."""
    result, row = np.zeros_like(score), np.arange(len(score))
    if name == "triplet_sh":
        masked = np.where(negative, score, -np.inf)
        first = np.zeros_like(negative)
        first[row, masked.argmax(axis=1)] = True
        negative = negative & first
    for column, filled in _slots(positive):
        violated = negative & (score > (score[row, column] - margin)[:, None]) & filled[:, None]
        result += violated
        result[row, column] -= violated.sum(axis=1)
    return result


def _sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _smooth(temperature, score, positive, negative):
    """SmoothAP: derivative of -mean_i A_i / (A_i + N_i), term by term."""
    result, row = np.zeros_like(score), np.arange(len(score))
    number = np.maximum(positive.sum(axis=1), 1)
    for column, filled in _slots(positive):
        away = (score - score[row, column][:, None]) / temperature
        above, slope = _sigmoid(away), _sigmoid(away) * _sigmoid(-away) / temperature
        other = positive.copy()
        other[row, column] = False
        rank = 1 + np.where(other, above, 0).sum(axis=1)
        over = np.where(negative, above, 0).sum(axis=1)
        steep = (filled / (rank + over) ** 2 / number)[:, None]
        result += np.where(negative, slope * rank[:, None] * steep, 0) - np.where(
            other, slope * over[:, None] * steep, 0
        )
        own = np.where(other, slope, 0).sum(axis=1) * over - np.where(negative, slope, 0).sum(axis=1) * rank
        result[row, column] += own * steep[:, 0]
    return result


def _supcon(logits, positive, negative):
    """Softmax over positives and negatives minus 1/|P| on the positives, where a query has both."""
    both = positive | negative
    active = (positive.any(axis=1) & negative.any(axis=1))[:, None]
    top = np.where(both, logits, -np.inf).max(axis=1, initial=-np.inf, keepdims=True)
    mass = np.where(both, np.exp(np.minimum(logits - np.where(active, top, 0), 0)), 0)
    target = positive / np.maximum(positive.sum(axis=1, keepdims=True), 1)
    return np.where(active, mass / np.maximum(mass.sum(axis=1, keepdims=True), 1) - target, 0)


def _cross_example(name, p, score, positive, negative):
    """One sum over the negative pairs of the batch, or over the hardest of them, for every positive pair."""
    taken = negative
    if name == "ce_nm" and negative.any():
        taken = _hardest(score.reshape(1, -1), negative.reshape(1, -1), p["fraction"]).reshape(score.shape)
    logits = p["scale"] * score
    if not taken.any():
        return np.zeros_like(score)
    top = logits[taken].max()
    mass = np.where(taken, np.exp(np.minimum(logits - top, 0)), 0)
    total = mass.sum()
    missing = np.where(positive, _sigmoid(top + math.log(total) - logits), 0)
    return p["scale"] * (missing.sum() * mass / total - missing)


def eq7(temperature, score, positive, negative, eps, room):
    """Terms of Eq. 7 above eps per positive, (least, most), (Q,) each."""
    counts, row = np.zeros((2, len(score))), np.arange(len(score))
    for column, filled in _slots(positive):
        away = (score - score[row, column][:, None]) / temperature
        others = positive | negative
        others[row, column] = False
        above = np.where(others, _sigmoid(away), 0)
        term = above * _sigmoid(-away) / (1 + above.sum(axis=1, keepdims=True)) ** 2
        for k, limit in enumerate((eps * (1 + room), eps * (1 - room))):
            counts[k] += ((term > limit) & others & filled[:, None]).sum(axis=1)
    return counts / np.maximum(positive.sum(axis=1), 1)


@dataclass(frozen=True)
class Counted:
    """Pairs above a line: least and most that float64 may count, and those within a wider room of it, (Q,) each."""

    least: np.ndarray
    most: np.ndarray
    near: np.ndarray


def above(share, mask, eps, room, wide):
    """Entries of the mask above eps, strictly; `room` and `wide` are relative."""
    over = [((share > eps * (1 + r)) & mask).sum(axis=1) for r in (room, -room, wide, -wide)]
    return Counted(over[0], over[1], over[3] - over[2])


def ranks(score, positive, negative, tie, room):
    """Count for every positive pair, by query and candidate, the negatives above it and not below it, least and most.

    Returns:
        (4, P): above at least and at most, at or above at least and at most.
    """
    found = []
    for q, c in zip(*positive.nonzero(), strict=True):
        over = score[q, negative[q]] - score[q, c]
        found.append([(over > tie + room).sum(), (over > tie - room).sum()])
        found[-1] += [(over >= -tie + room).sum(), (over >= -tie - room).sum()]
    return np.array(found, dtype=np.int64).reshape(-1, 4).T


def reached(score, positive, negative, tie, room):
    """Count for every positive pair, highest first, the negatives of the matrix at or above it: least and most."""
    own, other = np.sort(score[positive])[::-1], np.sort(score[negative])
    return [len(other) - np.searchsorted(other, own - tie + r) for r in (room, -room)]


def recalls(beaten, query, ks=(1, 5, 10)):
    """R@k and mAP in percent from the number of negatives at or above each positive pair."""
    best, precision = [], []
    for q in np.unique(query):
        rank = np.sort(beaten[query == q]) + np.arange(1, (query == q).sum() + 1)
        best.append(rank[0])
        precision.append(np.mean(np.arange(1, len(rank) + 1) / rank))
    found = {f"R@{k}": 100 * float(np.mean(np.array(best) <= k)) for k in ks}
    return found | {"mAP": 100 * float(np.mean(precision)), "mean_rank": float(np.mean(best))}


def average_precision(score, positive, negative, tie):
    """PR-AUC of one threshold for all pairs, in percent."""
    own, other = np.sort(score[positive])[::-1], np.sort(score[negative])
    found = np.searchsorted(-own, tie - own, side="right")
    beaten = len(other) - np.searchsorted(other, own - tie)
    return 100 * float((found / (found + beaten)).mean())
