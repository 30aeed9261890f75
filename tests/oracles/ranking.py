"""Losses that put a number on a ranking: histograms, sigmoids, surrogates, true ranks and shared neighbours."""

import math

from oracles._loops import rows, sigmoid


def _histogram_ap(places, positives, negatives, bins):
    """Average precision of candidates at places on an axis of bin centres 0, 1, ..., best first."""
    found = seen = total = 0.0
    for centre in range(bins):
        own = math.fsum(max(0.0, 1 - abs(places[p] - centre)) for p in positives)
        found += own
        seen += own + math.fsum(max(0.0, 1 - abs(places[n] - centre)) for n in negatives)
        total += own * found / seen if own > 0 else 0.0
    return total / len(positives)


def fastap(pairs, bins):
    """Cakir 2019; squared distances above 4 lie in the last bin."""
    losses = []
    for row, positives, negatives in rows(pairs):
        places = [min(-score, 4.0) / (4 / bins) for score in row]
        losses.append(1 - _histogram_ap(places, positives, negatives, bins + 1) if positives else 0.0)
    return losses


def listwise_ap(pairs, bins, low, high):
    """Revaud 2019, the quantised AP; scores outside of the range lie in the first or the last bin."""
    losses = []
    for row, positives, negatives in rows(pairs):
        places = [(high - min(max(score, low), high)) * (bins - 1) / (high - low) for score in row]
        losses.append(1 - _histogram_ap(places, positives, negatives, bins) if positives else 0.0)
    return losses


def recall_at_k(pairs, temperature, temperature_k, ks):
    """Patel 2022, without the query in its own ranking; nothing to rank without a negative."""
    losses = []
    for row, positives, negatives in rows(pairs):
        if not (positives and negatives):
            losses.append(0.0)
            continue
        ranks = [
            1 + math.fsum(sigmoid((row[j] - row[i]) / temperature) for j in positives + negatives if j != i)
            for i in positives
        ]
        recalls = []
        for k in ks:
            found = math.fsum(sigmoid((k - rank) / temperature_k) for rank in ranks)
            recalls.append(min(found, k) / min(k, len(positives)))
        losses.append(1 - math.fsum(recalls) / len(ks))
    return losses


def sup_ap(pairs, temperature, rho, delta, offset):
    """Ramzi 2021: positives counted by steps, 1 at 0, negatives by the surrogate."""

    def surrogate(x):
        if x > delta:
            return rho * (x - delta) + (0.5 + sigmoid(delta / temperature) if offset is None else offset)
        return sigmoid(x / temperature) + (0.5 if x > 0 else 0.0)

    losses = []
    for row, positives, negatives in rows(pairs):
        precision = 0.0
        for i in positives:
            among = 1 + sum(row[j] >= row[i] for j in positives if j != i)
            precision += among / (among + math.fsum(surrogate(row[n] - row[i]) for n in negatives))
        losses.append(1 - precision / len(positives) if positives else 0.0)
    return losses


def _order(scores):
    """Places by falling score; of equal ones the first leads."""
    return sorted(scores, key=lambda j: (-scores[j], j))


def blackbox_ap(pairs, lam, margin):
    """One minus the textbook average precision: precision at each hit. λ shapes the weights only."""
    losses = []
    for row, positives, negatives in rows(pairs):
        ranked = {j: row[j] - margin / 2 for j in positives} | {j: row[j] + margin / 2 for j in negatives}
        hits, precision = 0, 0.0
        for rank, j in enumerate(_order(ranked), start=1):
            if j in positives:
                hits += 1
                precision += hits / rank
        losses.append(1 - precision / hits if hits else 0.0)
    return losses


def _blackbox_weight(pairs, lam):
    """Rolínek 2020: rank, move the positives along the derivative by their ranks, rank again."""
    weights = []
    for row, positives, negatives in rows(pairs):
        scores = {j: row[j] for j in positives + negatives}
        before = {j: rank / len(scores) for rank, j in enumerate(_order(scores), start=1)}
        hits, moved = 0, dict(scores)
        for j in _order(scores):
            if j in positives:
                hits += 1
                moved[j] += lam * (hits / len(scores)) / before[j] ** 2 / len(positives)
        after = {j: rank / len(scores) for rank, j in enumerate(_order(moved), start=1)}
        weights.append([(after[j] - before[j]) / lam if j in scores else 0.0 for j in range(len(row))])
    return weights


def contextual(pairs, k, eps, alpha):
    """Liao 2023, with sets: k nearest with slack, shared neighbours and strangers, averaged over mutual friends.

    α shapes the gradient only.
    """
    queries, candidates = pairs.scores.shape
    known = (pairs.positive | pairs.negative).tolist()
    scores = pairs.scores.tolist()
    one_set = queries == candidates and not any(known[i][i] for i in range(queries))
    first = 0 if one_set else queries  # where the candidates start among the samples
    size = first + candidates
    distance = {(i, i): 0.0 for i in range(size)}
    for i in range(queries):
        for j in range(candidates):
            if known[i][j]:
                distance[i, first + j] = 2 - 2 * min(scores[i][j], 1.0)
                if not one_set:
                    distance[first + j, i] = distance[i, first + j]

    def nearest(i, number):
        others = sorted(distance[i, j] for j in range(size) if (i, j) in distance)
        reach = others[min(number, len(others)) - 1] + eps
        return {j for j in range(size) if (i, j) in distance and distance[i, j] <= reach} | {i}

    near, friends = ([nearest(i, number) for i in range(size)] for number in (k, k // 2))

    def alike(i, j):
        if j not in near[i]:
            return 0.0
        strangers = size - len(near[i])
        neither = (size - len(near[i] | near[j])) / strangers if strangers else 0.0
        return (len(near[i] & near[j]) / len(near[i]) + neither) / 2

    def mean(i, j):
        mutual = [m for m in friends[i] if i in friends[m]]
        return math.fsum(alike(m, j) for m in mutual) / len(mutual)

    return [
        math.fsum(
            (float(pairs.positive[i, j]) - (mean(i, first + j) + mean(first + j, i)) / 2) ** 2
            for j in range(candidates)
            if known[i][j]
        )
        / candidates
        for i in range(queries)
    ]
