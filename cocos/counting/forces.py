"""Decompose the gradient of each query or candidate: pull, push, cancellation, and what the normalisation removes.

Throughout, `weights` are the weights of a loss, (Q, C), and `unit` their natural size; `pairs` have the embeddings that
were scored, as `cocos.scores.pairs` makes them (a TypeError says so where they have none); `metric` is that of the
scores; and `radial` is ∂ Σ loss / ∂ norm of each row, (rows,), for losses that read norms: it is added along the row.
"""

from dataclasses import replace

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.embeddings.similarities import NORMALISED_SIDES, euclidean, length, plus_turned

# Maximum number of entries of the differences in memory at once: 8 MiB in float64.
MAX_DIFFERENCES = 2**20
# Sines below this have lost two digits of 1 - cosine², and are computed as |q - c| |q + c| / 2 instead.
SMALL_SINE = 0.1
DISTANCE_METRICS = ("chord", "euclidean", "squared_chord", "squared_euclidean", "mahalanobis")


def _divided(rows: Tensor, size: Tensor) -> Tensor:
    """Divide each row by its size; a row of size 0 is unchanged."""
    return rows / torch.where(size > 0, size, 1)[:, None]


def _as_the_metric_reads(pairs: Pairs, metric: str) -> tuple[Tensor, Tensor]:
    """Return queries and candidates as the metric reads them: divided by their norms, or raw."""
    if pairs.embeddings is None:
        raise TypeError("pairs.embeddings is None: forces need the rows that were scored, as cocos.scores.pairs gives")
    query, candidate = pairs.embeddings.query, pairs.embeddings.candidate
    unit = NORMALISED_SIDES.get(metric, ())
    return (
        _divided(query, pairs.query_norm) if "query" in unit else query,
        _divided(candidate, pairs.candidate_norm) if "candidate" in unit else candidate,
    )


def _toward(coefficient: Tensor, rows: Tensor, others: Tensor, variance: Tensor | None = None) -> Tensor:
    r""":math:`\sum_j a_{ij} (o_j - r_i)`, (N, K, D), for coefficients a (N, K, M).

    Summed over differences, a block of the others at a time, because for near duplicates
    :math:`\sum_j a_{ij} o_j - r_i \sum_j a_{ij}` is a small difference of large numbers.
    """
    total = rows.new_zeros(*coefficient.shape[:2], rows.shape[1])
    step = max(1, MAX_DIFFERENCES // rows.numel())
    for start in range(0, len(others), step):
        part = slice(start, start + step)
        difference = others[part] - rows[:, None]
        total += coefficient[..., part] @ (difference if variance is None else difference / variance[part])
    return total


def _slope(pairs: Pairs, metric: str) -> Tensor:
    """∂ score / ∂ query of a distance in parts of candidate - query, (Q, C); the variance of a candidate aside."""
    if metric not in {"euclidean", "chord"}:
        return torch.full_like(pairs.scores, 2)
    return 1 / torch.where(pairs.scores < 0, -pairs.scores, 1)  # at distance 0 the difference is 0 too


def _sign_of_angle(query: Tensor, candidate: Tensor) -> Tensor:
    """Return the sign of the sum with the score of the metric `angle` as its size, (Q, C); 0 at 0."""
    return (plus_turned(query) @ candidate.T).sign()


def _weighted_slopes(weights: Tensor, pairs: Pairs, metric: str) -> Tensor:
    r""":math:`\sum_j w_{ij} \, \partial s_{ij} / \partial q_i`, (Q, K, D), for K weights of each pair, (Q, K, C)."""
    query, candidate = _as_the_metric_reads(pairs, metric)
    if metric == "angle":
        return (weights * _sign_of_angle(query, candidate)[:, None]) @ plus_turned(candidate, -1)
    if metric not in DISTANCE_METRICS:
        return weights @ candidate
    variance = pairs.embeddings.candidate_variance if metric == "mahalanobis" else None
    return _toward(weights * _slope(pairs, metric)[:, None], query, candidate, variance)


def sides(weights: Tensor, pairs: Pairs, metric: str) -> tuple[Tensor, Tensor]:
    r"""Pull :math:`\sum_{j \in P} w_{ij} \, \partial s_{ij} / \partial q_i` and push, the same over N, (Q, D) each.

    q is the row that the metric reads: the unit query for `cosine` and `cosine_dot`, before the Jacobian of its
    normalisation, and the raw one elsewhere. Descent goes against both. A distance of 0 has slope 0, as in training.
    """
    parts = torch.stack([torch.where(mask, weights, 0) for mask in (pairs.positive, pairs.negative)], dim=1)
    return _weighted_slopes(parts, pairs, metric).unbind(dim=1)


def _components(vectors: Tensor, unit: Tensor) -> Tensor:
    """Return the components of vectors along unit vectors, (N, 1)."""
    return (vectors * unit).sum(dim=1, keepdim=True)


def _raw_gradient(total: Tensor, rows: Tensor, norm: Tensor, normalised: bool, radial: Tensor | None) -> Tensor:
    """Return the gradient of raw rows from the gradient of normalised ones, plus the slope in the norm."""
    unit = _divided(rows, norm)
    if normalised:
        total = _divided(total - _components(total, unit) * unit, norm)
    return total if radial is None else total + radial[:, None] * unit


def gradient(pull: Tensor, push: Tensor, pairs: Pairs, metric: str, radial: Tensor | None = None) -> Tensor:
    r"""∂ Σ loss / ∂ raw query, candidates fixed, (Q, D).

    For the metrics that read directions it is :math:`(g - (g \cdot \hat q) \hat q) / |x|` with g the sum of pull and
    push; for the others g itself. Where all candidates with a weight are near duplicates of a unit query, this
    difference has the digits that autograd has; `force` keeps them all.
    """
    normalised = "query" in NORMALISED_SIDES.get(metric, ())
    return _raw_gradient(pull + push, pairs.embeddings.query, pairs.query_norm, normalised, radial)


def _on_candidates(weights: Tensor, pairs: Pairs, metric: str) -> Tensor:
    r""":math:`\sum_i w_{ij} \, \partial s_{ij} / \partial c_j`, (C, D), c the candidate that the metric reads."""
    query, candidate = _as_the_metric_reads(pairs, metric)
    if metric in DISTANCE_METRICS:
        total = _toward((weights * _slope(pairs, metric)).T[:, None], candidate, query)[:, 0]
        if metric == "mahalanobis" and pairs.embeddings.candidate_variance is not None:
            total = total / pairs.embeddings.candidate_variance
        return total
    if metric == "angle":
        return (weights * _sign_of_angle(query, candidate)).T @ plus_turned(query)
    return weights.T @ query


def candidate_gradient(weights: Tensor, pairs: Pairs, metric: str, radial: Tensor | None = None) -> Tensor:
    """∂ Σ loss / ∂ raw candidate, queries fixed, (C, D): the same weights read by columns.

    In a labelled set a sample has both roles, and its gradient is the sum of the two.
    """
    normalised = "candidate" in NORMALISED_SIDES.get(metric, ())
    total = _on_candidates(weights, pairs, metric)
    return _raw_gradient(total, pairs.embeddings.candidate, pairs.candidate_norm, normalised, radial)


def candidate_sides(weights: Tensor, pairs: Pairs, metric: str) -> tuple[Tensor, Tensor]:
    """Return pull and push of each candidate by the queries of which it is a positive or negative, (C, D) each.

    On a class proxy they are the pull of its own samples and the push of the samples of other classes.
    Source: DeMoor & Prevost 2024, arXiv:2408.15656, Figs. 2 and 4.
    """
    masks = pairs.positive, pairs.negative
    pull, push = (_on_candidates(torch.where(mask, weights, 0), pairs, metric) for mask in masks)
    return pull, push


def norm_slope(loss, pairs: Pairs, side: str) -> Tensor:
    """Return ∂ Σ loss / ∂ norm of each row of a side (`query`, `candidate`), the scores fixed; 0 if no norm is read."""
    norm = getattr(pairs, f"{side}_norm").detach().requires_grad_()
    with torch.enable_grad():
        total = loss(replace(pairs, **{f"{side}_norm": norm})).sum()
    if not total.requires_grad:
        return torch.zeros_like(norm)
    return torch.autograd.grad(total, norm, materialize_grads=True)[0]


def _sine(query: Tensor, candidate: Tensor) -> Tensor:
    """Return the sine of the angles between unit vectors, (Q, C), accurate for near duplicates too."""
    cosine = query @ candidate.T
    sine = ((1 - cosine) * (1 + cosine)).clamp(min=0).sqrt()
    near = (sine < SMALL_SINE).any(dim=1)
    if near.any():
        sine[near] = euclidean(query[near], candidate) * euclidean(query[near], -candidate) / 2
    return sine


def _lever(pairs: Pairs, metric: str) -> Tensor:
    """Return the length of ∂ score / ∂ query, (Q, C), for unit queries if the metric reads their directions."""
    query, candidate = _as_the_metric_reads(pairs, metric)
    if metric == "dot":
        return pairs.candidate_norm.expand(pairs.scores.shape)
    if metric == "euclidean":
        return (pairs.scores < 0).to(pairs.scores.dtype)
    if metric == "mahalanobis" and (variance := pairs.embeddings.candidate_variance) is not None:
        rows = [2 * length((query - mean) / own) for mean, own in zip(candidate, variance, strict=True)]
        return torch.stack(rows, dim=1)
    if metric == "projection":
        return torch.ones_like(pairs.scores)
    if metric == "chord":
        return torch.where(pairs.scores < 0, _sine(query, candidate) / -pairs.scores, 0)
    if metric == "squared_chord":  # the part along the query is lost to its normalisation
        return 2 * _sine(query, candidate)
    if metric in DISTANCE_METRICS:
        return 2 * (-pairs.scores).sqrt()
    if metric == "angle":
        size = plus_turned(candidate, -1).square().sum(dim=1)
        return torch.where(pairs.scores > 0, (size - pairs.scores.square()).clamp(min=0), 0).sqrt()
    unit = candidate if metric == "cosine" else _divided(candidate, pairs.candidate_norm)
    sine = _sine(query, unit)
    return sine if metric == "cosine" else sine * pairs.candidate_norm


def force(weights: Tensor, pairs: Pairs, metric: str) -> Tensor:
    r"""Return the length of each candidate's part of the gradient of the raw query, (Q, C).

    |w| times :math:`\sin\theta / |x|` (cosine), :math:`|c|` (dot), :math:`|c| \sin\theta / |x|` (cosine_dot), 1
    (euclidean; 0 at distance 0; projection), 2d (squared_euclidean), :math:`\sin\theta / (d |x|)` (chord),
    :math:`2 \sin\theta / |x|` (squared_chord),
    :math:`2 |(c - q) / \sigma^2|` (mahalanobis) or :math:`\sqrt{2 - s^2} / |x|` (angle). A weight that grows without
    bound as θ goes to 0, as with an angular margin, may have a bounded force.
    """
    forces = weights.abs() * _lever(pairs, metric)
    return _divided(forces, pairs.query_norm) if "query" in NORMALISED_SIDES.get(metric, ()) else forces


def force_share(weights: Tensor, unit: Tensor, pairs: Pairs, metric: str) -> Tensor:
    r"""Return shares by force, (Q, C): the share by weight times the lever, as a part of the longest one.

    The longest lever is 1 for `cosine` and `euclidean`, and 2 for `squared_chord`: there the share is
    :math:`|w| \sin\theta`, |w|, and again :math:`|w| \sin\theta` over the unit of the loss. It is the largest norm of a
    candidate for `dot` and `cosine_dot`, and the largest force of a weight of 1 on the query for squared distances. So
    a share by force is never above the share by weight.
    """
    lever = _lever(pairs, metric)
    if metric == "squared_chord":
        lever = lever / 2
    elif metric not in {"cosine", "euclidean"}:
        longest = pairs.candidate_norm.expand(lever.shape) if metric == "cosine_dot" else lever
        longest = torch.where(pairs.positive | pairs.negative, longest, 0).amax(dim=1)
        lever = _divided(lever, longest)
    return weights.abs() / unit * lever


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """Divide parts by their whole; NaN if it is 0."""
    return torch.where(whole > 0, part / torch.where(whole > 0, whole, 1), torch.nan)


def _hardest(sizes: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
    """Find the negative with the largest size: its part of their sum, its rank by score, (Q,), and its column, (Q, 1).

    The most similar negative has rank 1, and is taken among equal sizes. Part and rank are NaN if all sizes are 0.
    """
    sizes = torch.where(pairs.negative, sizes, 0)
    largest = sizes.amax(dim=1, keepdim=True)
    scores = pairs.scores.masked_fill(~pairs.negative, -torch.inf)
    score, column = scores.masked_fill(sizes < largest, -torch.inf).max(dim=1, keepdim=True)
    rank = (1 + (scores > score).sum(dim=1)).to(sizes.dtype)
    share = 1 / _divided(sizes, largest[:, 0]).sum(dim=1)  # first by the largest: the sum of tiny sizes underflows
    pushed = largest[:, 0] > 0
    return torch.where(pushed, share, torch.nan), torch.where(pushed, rank, torch.nan), column


def per_query(weights: Tensor, pairs: Pairs, metric: str, radial: Tensor | None = None) -> dict[str, Tensor]:
    r"""Decompose the gradient of each query, (Q,) each, NaN where it is not defined.

    With g the sum of pull and push, x the raw query, P its positives and N its negatives:

    - `pull_norm`, `push_norm`, `net_norm`: lengths of pull, push and g, before the Jacobian of the normalisation;
      `tangential_norm`: of the part of g that it leaves; `gradient_norm`: of ∂ loss / ∂ x.
    - `mass_ratio`: :math:`\sum_N w / |\sum_P w|`, 1 where a balanced loss pushes its negatives.
    - `pull_push_cosine`: of the angle between pull and push. `cancellation`: :math:`1 - |g| / (|pull| + |push|)`, 0
      where nothing cancels.
    - `radial_fraction`: :math:`|g \cdot \hat q| / |g|`, which the normalisation removes, and that of pull and of push;
      not defined for metrics that read raw queries. `radial`: the loss's own ∂ loss / ∂ |x|, where it is given.
    - `hardest_share`, `hardest_rank`: of the negative that is pushed with the largest weight, its part of the weights
      above zero on negatives, and its rank by score, 1 for the most similar one; with `_force`: by force.
      `hardest_projection`: the part of the push that the former makes along it; it may exceed 1 or be below 0.
    - `pushed_positives`, `pulled_negatives`: positives with w > 0 and negatives with w < 0, int64, and `_part`: their
      part of the sum of \|w\|.
    """
    pushed = weights.clamp(min=0)
    share, rank, column = _hardest(pushed, pairs)
    share_force, rank_force, _ = _hardest(force(pushed, pairs, metric), pairs)
    pulling, pushing = (torch.where(mask, weights, 0) for mask in (pairs.positive, pairs.negative))
    alone = torch.zeros_like(weights).scatter(1, column, pushing.gather(1, column))
    pull, push, hardest = _weighted_slopes(torch.stack([pulling, pushing, alone], dim=1), pairs, metric).unbind(dim=1)
    push_norm, total = length(push), (pulling.abs() + pushing.abs()).sum(dim=1)
    opposed = {"pushed_positives": pulling.clamp(min=0), "pulled_negatives": (-pushing).clamp(min=0)}
    return {
        **parts(pull, push, pairs, metric, radial),
        "mass_ratio": _ratio(pushing.sum(dim=1), pulling.sum(dim=1).abs()),
        "hardest_share": share,
        "hardest_share_force": share_force,
        "hardest_projection": _ratio(_components(hardest, _divided(push, push_norm))[:, 0], push_norm),
        "hardest_rank": rank,
        "hardest_rank_force": rank_force,
        **{name: (part > 0).sum(dim=1) for name, part in opposed.items()},
        **{f"{name}_part": _ratio(part.sum(dim=1), total) for name, part in opposed.items()},
    }


def parts(
    pull: Tensor, push: Tensor, pairs: Pairs, metric: str, radial: Tensor | None = None, side: str = "query"
) -> dict[str, Tensor]:
    """Decompose the gradient of each row of a side (`query`, `candidate`), (rows,) each: see `per_query`."""
    rows, norm = getattr(pairs.embeddings, side), getattr(pairs, f"{side}_norm")
    normalised = side in NORMALISED_SIDES.get(metric, ())
    net = pull + push
    pull_norm, push_norm, net_norm = length(pull), length(push), length(net)
    angle = _components(_divided(pull, pull_norm), _divided(push, push_norm))[:, 0].clamp(-1, 1)
    values = {
        "pull_norm": pull_norm,
        "push_norm": push_norm,
        "net_norm": net_norm,
        "gradient_norm": length(_raw_gradient(net, rows, norm, normalised, radial)),
        "pull_push_cosine": torch.where((pull_norm > 0) & (push_norm > 0), angle, torch.nan),
        "cancellation": (1 - _ratio(net_norm, pull_norm + push_norm)).clamp(min=0),
    }
    if normalised:
        unit = _divided(rows, norm)
        values["tangential_norm"] = length(net - _components(net, unit) * unit)
        for name, vector, size in (("", net, net_norm), ("_pull", pull, pull_norm), ("_push", push, push_norm)):
            values[f"radial_fraction{name}"] = _ratio(_components(vector, unit)[:, 0].abs(), size).clamp(max=1)
    if radial is not None:
        values["radial"] = radial
    return values
