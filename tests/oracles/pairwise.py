"""Losses of pairs, triplets and their sums: contrastive, triplets on distances, N-pair, lifted, MS, circle, CBML..."""

import math

from oracles._loops import logsumexp, rows, softplus


def contrastive(pairs, margin):
    """Hadsell et al. 2006, eq. 4, every pair of a query."""
    return [
        sum(row[p] ** 2 / 2 for p in positives) + sum(max(0.0, margin + row[n]) ** 2 / 2 for n in negatives)
        for row, positives, negatives in rows(pairs)
    ]


def contrastive_linear(pairs, pos_margin, neg_margin):
    """Hinges on the distance itself."""
    return [
        sum(max(0.0, -row[p] - pos_margin) for p in positives) + sum(max(0.0, neg_margin + row[n]) for n in negatives)
        for row, positives, negatives in rows(pairs)
    ]


def contrastive_cosine(pairs, pos_margin, neg_margin):
    """The calibration term of ROADMAP."""
    return [
        sum(max(0.0, pos_margin - row[p]) for p in positives) + sum(max(0.0, row[n] - neg_margin) for n in negatives)
        for row, positives, negatives in rows(pairs)
    ]


def gbce(pairs, calibration, catalogue):
    """Petrov 2023: the power beta of the positive's probability, calibrated by the sampled part of the negatives."""
    losses = []
    for row, positives, negatives in rows(pairs):
        sampled = min(1, len(negatives) / (catalogue - 1)) if catalogue else 1
        beta = 1 - calibration * (1 - sampled)  # alpha (t (1 - 1/alpha) + 1/alpha)
        each = [beta * softplus(-row[p]) for p in positives] + [softplus(row[n]) for n in negatives]
        losses.append(math.fsum(each) / (len(negatives) + 1))
    return losses


def siglip(pairs, scale, bias):
    """Zhai et al. 2023, section 3.2: log(1 / (1 + exp(z (-t x·y - b)))) of each pair, z = 1 for a match, else -1."""
    losses = []
    for row, positives, negatives in rows(pairs):
        match = dict.fromkeys(positives, 1) | dict.fromkeys(negatives, -1)
        losses.append(math.fsum(softplus(z * (-scale * row[j] - bias)) for j, z in match.items()))
    return losses


def triplet_euclidean(pairs, margin):
    """Every triplet of a query, on distances."""
    losses = []
    for row, positives, negatives in rows(pairs):
        distance = [-s for s in row]
        losses.append(sum(max(0.0, margin + distance[p] - distance[n]) for p in positives for n in negatives))
    return losses


def triplet_squared(pairs, margin):
    """FaceNet: the same on squared distances."""
    losses = []
    for row, positives, negatives in rows(pairs):
        square = [-s for s in row]
        losses.append(sum(max(0.0, square[p] - square[n] + margin) for p in positives for n in negatives))
    return losses


def n_pair(pairs):
    """Sohn 2016: log(1 + Σ exp(s_n - s_p)) for each positive."""
    return [
        sum(softplus(logsumexp(row[n] - row[p] for n in negatives)) for p in positives) if negatives else 0.0
        for row, positives, negatives in rows(pairs)
    ]


def lifted_structure(pairs, margin):
    """Song et al. 2016, for each query the sum over its positives, with a pass over the negatives of both ends."""
    distance = [[-s for s in row] for row in pairs.scores.tolist()]
    queries, candidates = range(len(distance)), range(len(distance[0]))
    taken = pairs.positive | pairs.negative
    one_set = len(queries) == len(candidates) and not any(taken[i, i] for i in queries)
    losses = []
    for i in queries:
        total = 0.0
        for p in candidates:
            if not pairs.positive[i, p]:
                continue
            met = [margin - distance[i][n] for n in candidates if pairs.negative[i, n]]
            if one_set:
                met += [margin - distance[p][n] for n in candidates if pairs.negative[p, n]]
            else:
                met += [margin - distance[k][p] for k in queries if pairs.negative[k, p]]
            total += max(0.0, distance[i][p] + logsumexp(met)) ** 2 / 2
        losses.append(total)
    return losses


def generalized_lifted(pairs, margin):
    """Hermans et al. 2017: softened farthest positive plus softened closest negative."""
    return [
        max(0.0, logsumexp(-row[p] for p in positives) + logsumexp(margin + row[n] for n in negatives))
        for row, positives, negatives in rows(pairs)
    ]


def multi_similarity(pairs, alpha, beta, base, mining):
    """Wang et al. 2019, after its mining where there is one."""
    losses = []
    for row, positives, negatives in rows(pairs):
        pulled, pushed = positives, negatives
        if mining is not None:
            hardest = max((row[n] for n in negatives), default=-math.inf)
            farthest = min((row[p] for p in positives), default=math.inf)
            pulled = [p for p in positives if row[p] - mining < hardest]
            pushed = [n for n in negatives if row[n] + mining > farthest]
        pull = softplus(logsumexp(-alpha * (row[p] - base) for p in pulled)) if pulled else 0.0
        push = softplus(logsumexp(beta * (row[n] - base) for n in pushed)) if pushed else 0.0
        losses.append(pull / alpha + push / beta)
    return losses


def circle(pairs, margin, gamma, detach, frozen=None):
    """Sun et al. 2020, eq. 6; with detach the paces are those of the frozen scores."""
    losses = []
    fixed = (frozen if detach and frozen is not None else pairs).scores.tolist()
    for (row, positives, negatives), still in zip(rows(pairs), fixed, strict=True):
        terms = [
            gamma * max(0.0, still[n] + margin) * (row[n] - margin)
            - gamma * max(0.0, 1 + margin - still[p]) * (row[p] - (1 - margin))
            for n in negatives
            for p in positives
        ]
        losses.append(softplus(logsumexp(terms)) if terms else 0.0)
    return losses


def proxy_anchor(pairs, alpha, margin):
    """Kim et al. 2020, eq. 4, column by column; each sum is shared in equal parts by its queries."""
    scores = pairs.scores.tolist()
    queries, losses = range(len(scores)), [0.0] * len(scores)
    columns = [
        ([q for q in queries if pairs.positive[q, c]], [q for q in queries if pairs.negative[q, c]])
        for c in range(len(scores[0]))
    ]
    present = sum(bool(own) for own, _ in columns)
    taking_part = sum(bool(own or others) for own, others in columns)
    for c, (own, others) in enumerate(columns):
        for q in own:
            total = softplus(logsumexp(-alpha * (scores[k][c] - margin) for k in own))
            losses[q] += total / len(own) / present
        for q in others:
            total = softplus(logsumexp(alpha * (scores[k][c] + margin) for k in others))
            losses[q] += total / len(others) / taking_part
    return losses


def cbml(pairs, pos_a, pos_b, neg_a, neg_b, margin, weight, hyper):
    """Kan et al. 2022, logarithmic form; the row that is averaged holds the query itself, with cosine 1."""
    losses = []
    for row, positives, negatives in rows(pairs):
        if not positives or not negatives:
            losses.append(0.0)
            continue
        farthest, hardest = min(row[p] for p in positives), max(row[n] for n in negatives)
        mined_p = [row[p] for p in positives if row[p] - margin < hardest]
        mined_n = [row[n] for n in negatives if row[n] + margin > farthest]
        if not mined_p or not mined_n:
            losses.append(0.0)
            continue
        everyone = [1.0, *(row[j] for j in positives + negatives)]
        mean = (1 - hyper) * math.fsum(everyone) / len(everyone) + hyper * (farthest + hardest) / 2
        losses.append(
            softplus(logsumexp(-(s - pos_a) / pos_b for s in mined_p))
            + softplus(logsumexp((s - neg_a) / neg_b for s in mined_n))
            + weight * math.fsum((row[n] - mean) ** 2 for n in negatives)
        )
    return losses


def sgsl(pairs, gamma):
    """Yang et al. 2023: log(1 + exp(LSE(γ s_n)/γ - s_p)) for each positive."""
    losses = []
    for row, positives, negatives in rows(pairs):
        soft = logsumexp(gamma * row[n] for n in negatives) / gamma
        losses.append(sum(softplus(soft - row[p]) for p in positives) if negatives else 0.0)
    return losses


def cosent(pairs, scale):
    """Every comparison of the batch, one by one; a row has the part of the log that its comparisons have of the sum."""
    terms = [
        [scale * (row[n] - row[p]) for p in positives for n in negatives] for row, positives, negatives in rows(pairs)
    ]
    total = softplus(logsumexp(term for row in terms for term in row)) if any(terms) else 0.0
    whole = logsumexp(term for row in terms for term in row)
    return [total * math.exp(logsumexp(row) - whole) if row else 0.0 for row in terms]


def angle(pairs, scale):
    """The same comparisons of other scores."""
    return cosent(pairs, scale)
