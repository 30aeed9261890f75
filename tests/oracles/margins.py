"""The softmaxes of classifiers and proxies, with and without a margin."""

import math

from oracles._loops import logsumexp, rows, softplus


def _cross_entropy(own, others):
    """Minus the log of the softmax of `own` among all; 0 where there is nothing else."""
    others = list(others)
    return softplus(logsumexp(others) - own) if others else 0.0


def normalized_softmax(pairs, temperature):
    """Zhai & Wu: cosines over a temperature."""
    return [
        math.fsum(_cross_entropy(row[p] / temperature, [row[n] / temperature for n in negatives]) for p in positives)
        for row, positives, negatives in rows(pairs)
    ]


def linear_softmax(pairs, smoothing):
    """The label gives 1 - ε to the class and shares ε among the others."""
    losses = []
    for row, positives, negatives in rows(pairs):
        total = 0.0
        for p in positives if negatives else ():
            whole = logsumexp([row[p], *(row[n] for n in negatives)])
            total += (1 - smoothing) * (whole - row[p])
            total += math.fsum(smoothing / len(negatives) * (whole - row[n]) for n in negatives)
        losses.append(total)
    return losses


def l2_softmax(pairs, scale):
    """Ranjan et al.: the query has length α."""
    return normalized_softmax(pairs, 1 / scale)


def cosface(pairs, scale, margin):
    """CosFace eq. 4."""
    return [
        math.fsum(_cross_entropy(scale * (row[p] - margin), [scale * row[n] for n in negatives]) for p in positives)
        for row, positives, negatives in rows(pairs)
    ]


def _added(cosine, margin):
    """A real angle plus a margin; cosines beyond 1 have no angle and are turned as if sin θ were 0."""
    if cosine > 1:
        return math.cos(margin) * cosine
    theta = math.acos(max(-1.0, cosine))
    return math.cos(theta + margin) if theta < math.pi - margin else cosine - margin * math.sin(margin)


def arcface(pairs, scale, margin):
    """ArcFace eq. 3."""
    return [
        math.fsum(
            _cross_entropy(scale * _added(row[p], margin), [scale * row[n] for n in negatives]) for p in positives
        )
        for row, positives, negatives in rows(pairs)
    ]


def adaface(pairs, scale, margin, h, mean, deviation):
    """AdaFace eqs. 11 to 15 with a real angle that stays between 0 and π, and the moments of the given norms."""
    norms = [1.0] * len(pairs.scores) if pairs.query_norm is None else pairs.query_norm.tolist()
    if mean is None:
        mean = math.fsum(norms) / len(norms)
    if deviation is None:
        centre, spare = math.fsum(norms) / len(norms), max(1, len(norms) - 1)
        deviation = math.sqrt(math.fsum((norm - centre) ** 2 for norm in norms) / spare)

    def target(cosine, turn):
        if (cosine > 1 and turn <= 0) or (cosine < -1 and turn >= 0):
            turned = math.cos(turn) * cosine
        else:
            turned = math.cos(min(max(math.acos(min(max(cosine, -1.0), 1.0)) - turn, 0.0), math.pi))
        return turned - (margin + turn)

    losses = []
    for norm, (row, positives, negatives) in zip(norms, rows(pairs), strict=True):
        turn = margin * min(max(h * (norm - mean) / (deviation + 0.001), -1.0), 1.0)
        others = [scale * row[n] for n in negatives]
        losses.append(math.fsum(_cross_entropy(scale * target(row[p], turn), others) for p in positives))
    return losses


def curricularface(pairs, scale, margin, t):
    """CurricularFace eqs. 5 to 9: each positive has hard negatives of its own."""
    losses = []
    for row, positives, negatives in rows(pairs):
        total = 0.0
        for p in positives:
            edge = math.cos(margin) * row[p] - math.sin(margin) * math.sqrt(max(0.0, 1 - row[p] ** 2))
            others = [scale * (row[n] * (t + row[n]) if row[n] > edge else row[n]) for n in negatives]
            total += _cross_entropy(scale * _added(row[p], margin), others)
        losses.append(total)
    return losses


def magface(pairs, scale, l_a, u_a, l_m, u_m, lambda_g):
    """MagFace with easy margin and its regulariser."""
    losses = []
    for q, (row, positives, negatives) in enumerate(rows(pairs)):
        length = 1.0 if pairs.query_norm is None else pairs.query_norm[q].item()
        length = min(max(length, l_a), u_a)
        margin = l_m + (u_m - l_m) * (length - l_a) / (u_a - l_a)
        total = lambda_g * (length / u_a**2 + 1 / length) if positives and negatives else 0.0
        for p in positives:
            cosine = row[p]
            if cosine > 0:
                cosine = math.cos(math.acos(cosine) + margin) if cosine <= 1 else math.cos(margin) * cosine
            total += _cross_entropy(scale * cosine, [scale * row[n] for n in negatives])
        losses.append(total)
    return losses


def _psi(cosine, margin):
    """L-Softmax eq. 6 with a real angle; beyond ±1 on along the tangent, whose slope is m²."""
    inside = min(max(cosine, -1.0), 1.0)
    theta = math.acos(inside)
    k = min(math.floor(margin * theta / math.pi), margin - 1)
    return (-1) ** k * math.cos(margin * theta) - 2 * k + margin**2 * (cosine - inside)


def l_softmax(pairs, margin, annealing):
    """L-Softmax eq. 4, annealed."""
    losses = []
    for q, (row, positives, negatives) in enumerate(rows(pairs)):
        x = 1.0 if pairs.query_norm is None else pairs.query_norm[q].item()
        w = [1.0] * len(row) if pairs.candidate_norm is None else pairs.candidate_norm.tolist()
        total = 0.0
        for p in positives:
            target = (annealing * row[p] + _psi(row[p], margin)) / (1 + annealing)
            total += _cross_entropy(x * w[p] * target, [x * w[n] * row[n] for n in negatives])
        losses.append(total)
    return losses


def a_softmax(pairs, margin, annealing):
    """SphereFace eq. 7, annealed."""
    losses = []
    for q, (row, positives, negatives) in enumerate(rows(pairs)):
        x = 1.0 if pairs.query_norm is None else pairs.query_norm[q].item()
        total = 0.0
        for p in positives:
            target = (annealing * row[p] + _psi(row[p], margin)) / (1 + annealing)
            total += _cross_entropy(x * target, [x * row[n] for n in negatives])
        losses.append(total)
    return losses


def center_contrastive(pairs, scale, margin, weight):
    """Minus the log of a fraction whose numerator alone holds the pull to the centre."""
    losses = []
    for row, positives, negatives in rows(pairs):
        total = 0.0
        for p in positives:
            own = scale * (row[p] - margin)
            total += logsumexp([own, *(scale * row[n] for n in negatives)]) - (own + 2 * weight * row[p])
        losses.append(total)
    return losses


def hist(pairs, scale):
    """The distribution loss, on squared Mahalanobis distances."""
    return [
        math.fsum(_cross_entropy(-scale * -row[p], [-scale * -row[n] for n in negatives]) for p in positives)
        for row, positives, negatives in rows(pairs)
    ]


def _classes(pairs, negatives):
    """Negatives of each class, as lists of places."""
    found = {}
    for n in negatives:
        name = n if pairs.candidate_group is None else pairs.candidate_group[n].item()
        found.setdefault(name, []).append(n)
    return list(found.values())


def softtriple(pairs, la, gamma, margin):
    """Qian et al.: the relaxed similarity of each class, and a softmax of these."""

    def similarity(row, places):
        total = logsumexp(row[k] / gamma for k in places)
        return math.fsum(math.exp(row[k] / gamma - total) * row[k] for k in places)

    return [
        _cross_entropy(
            la * (similarity(row, positives) - margin),
            [la * similarity(row, places) for places in _classes(pairs, negatives)],
        )
        if positives
        else 0.0
        for row, positives, negatives in rows(pairs)
    ]


def proxy_gml(pairs, ratio):
    """Zhu et al.: the kept proxies of a class add up."""
    losses = []
    for row, positives, negatives in rows(pairs):
        number = math.ceil(ratio * (len(positives) + len(negatives)) - 1e-9)
        nearest = sorted(negatives, key=lambda n, row=row: (-row[n], n))
        kept = sorted(nearest[: max(0, number - len(positives))])
        own = math.fsum(row[p] for p in positives)
        others = [math.fsum(row[n] for n in places) for places in _classes(pairs, kept)]
        losses.append(_cross_entropy(own, others) if positives else 0.0)
    return losses


def subcenter_arcface(pairs, scale, margin):
    """Deng et al. 2020: the nearest proxy of each class, and ArcFace of these."""
    losses = []
    for row, positives, negatives in rows(pairs):
        others = [scale * max(row[n] for n in places) for places in _classes(pairs, negatives)]
        own = scale * _added(max(row[p] for p in positives), margin) if positives else 0.0
        losses.append(_cross_entropy(own, others) if positives else 0.0)
    return losses
