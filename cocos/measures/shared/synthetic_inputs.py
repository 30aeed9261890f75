"""Nine regimes of synthetic input that every loss must survive: random ones, and those that break careless formulas."""

from dataclasses import replace

import torch
from torch import Tensor

from cocos.base.errors import InputError, nearest
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import Pairs, pairs

SYNTHETIC_REGIMES = (
    "random",
    "collapsed",
    "separated",
    "duplicates",
    "anti-aligned",
    "large norms",
    "ties",
    "empty rows",
    "tiny",
)
# Queries of a regime, width of its embeddings, and candidates without a query.
REGIME_QUERIES, REGIME_WIDTH, REGIME_DISTRACTORS = 7, 6, 4
# Metrics whose scores are at most 0.
NEGATIVE_METRICS = ("chord", "euclidean", "squared_chord", "squared_euclidean", "mahalanobis")
# Part of the pairs that have no score of the teacher.
UNTAUGHT = 0.1


def _teacher(shape: torch.Size | tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Scores of a teacher that knows nothing of the scores of the student, some of them missing."""
    found = torch.randn(shape, generator=generator, dtype=torch.float64)
    return found.masked_fill(torch.rand(shape, generator=generator, dtype=torch.float32) < UNTAUGHT, torch.nan)


def embeddings(name: str = "random", seed: int = 0) -> Embeddings:
    """Seven queries, their candidates and four candidates without a query, in float64.

    Args:
        name: of a regime that is made of embeddings; `ties` and `tiny` are made of scores, and give the random ones.
        seed: of the numbers. An even one gives three positives a query, an odd one gives one; from each four seeds the
            first two give raw embeddings and the last two unit ones (not under `large norms`).
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    group = torch.arange(REGIME_QUERIES).repeat_interleave(1 if seed % 2 else 3)
    query = normal(REGIME_QUERIES, REGIME_WIDTH)
    candidate = query[group] + (0.01 if name == "separated" else 1.0) * normal(len(group), REGIME_WIDTH)
    candidate = torch.cat([candidate, normal(REGIME_DISTRACTORS, REGIME_WIDTH)])
    candidate_group = torch.cat([group, torch.arange(REGIME_QUERIES, REGIME_QUERIES + REGIME_DISTRACTORS)])
    if name == "collapsed":
        centre = normal(1, REGIME_WIDTH)
        query, candidate = centre + 1e-3 * query, centre + 1e-3 * candidate
    elif name == "duplicates":
        candidate[3], candidate[-1] = candidate[0], candidate[0]
    elif name == "anti-aligned":
        candidate[: len(group)] = -query[group] + 0.1 * candidate[: len(group)]
    if seed // 2 % 2:
        query, candidate = (rows / rows.norm(dim=1, keepdim=True) for rows in (query, candidate))
    if name == "large norms":
        query, candidate = 60 * query, 60 * candidate
    variance = normal(*candidate.shape).clamp(-2, 2).exp()
    return Embeddings(
        query,
        candidate,
        torch.arange(REGIME_QUERIES),
        candidate_group,
        directions=("s2p",),
        candidate_variance=variance,
        teacher=_teacher((len(query), len(candidate)), generator),
    )


def _of_scores(scores: Tensor, positive: Tensor, metric: str, generator: torch.Generator) -> Pairs:
    """Pairs of given scores; a distance is their size."""
    group = torch.where(positive.any(dim=0), positive.to(torch.int8).argmax(dim=0), len(scores))
    lengths = 1 + torch.rand(sum(scores.shape), generator=generator, dtype=torch.float64)
    return Pairs(
        -scores.abs() if metric in NEGATIVE_METRICS else scores,
        positive,
        candidate_group=torch.where(group < len(scores), group, len(scores) + torch.arange(len(group))),
        query_norm=lengths[: len(scores)],
        candidate_norm=lengths[len(scores) :],
        teacher=_teacher(scores.shape, generator),
    )


def build(name: str, metric: str = "cosine", seed: int = 0) -> Pairs:
    """Pairs of one regime, with scores of one metric, norms, candidate groups and a teacher, in float64.

    Args:
        name: one of `SYNTHETIC_REGIMES`. `collapsed`: all embeddings within 1e-3. `separated`: positives near queries.
            `duplicates`: equal candidates, one of them a negative. `anti-aligned`: positives opposite to their query.
            `large norms`: 60 times as long; inner products in place of cosines. `ties`: scores on a dyadic grid, so
            that every sum, every difference and every tie is exact. `empty rows`: queries without a positive, without a
            negative, and without either. `tiny`: 1 x 1, 1 x 2 and 2 x 2.
        metric: of `cocos.similarities.METRICS`.
        seed: see `embeddings`; for `tiny` it also chooses the shape.
    """
    if name not in SYNTHETIC_REGIMES:
        raise InputError(nearest("regime", name, SYNTHETIC_REGIMES))
    generator = torch.Generator().manual_seed(seed)
    if name == "ties":
        positive = torch.eye(REGIME_QUERIES, 3 * REGIME_QUERIES, dtype=torch.bool)
        positive = (
            positive
            if seed % 2
            else positive | positive.roll(REGIME_QUERIES, dims=1) | positive.roll(-REGIME_QUERIES, dims=1)
        )
        values = torch.randint(-4, 5, positive.shape, generator=generator).to(torch.float64) / 4
        return _of_scores(values, positive, metric, generator)
    if name == "tiny":
        rows, columns = ((1, 1), (1, 2), (2, 2))[seed % 3]
        values = torch.randn(rows, columns, generator=generator, dtype=torch.float64).clamp(-1, 1)
        return _of_scores(values, torch.eye(rows, columns, dtype=torch.bool), metric, generator)
    found = pairs(embeddings(name, seed), metric="dot" if name == "large norms" and metric == "cosine" else metric)
    if name == "empty rows":
        positive, negative = found.positive.clone(), found.negative.clone()
        positive[0], negative[1] = False, False
        positive[2], negative[2] = False, False
        found = replace(found, positive=positive, negative=negative)
    return found


def labelled(metric: str = "cosine", seed: int = 0) -> Pairs:
    """Pairs of eleven samples of four classes, one alone in its class, none its own candidate; odd seeds: unit rows."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 3])
    centres = torch.randn(4, REGIME_WIDTH, generator=generator, dtype=torch.float64)
    rows = centres[labels] + 0.7 * torch.randn(len(labels), REGIME_WIDTH, generator=generator, dtype=torch.float64)
    rows = rows / rows.norm(dim=1, keepdim=True) if seed % 2 else rows
    found = Embeddings.labelled(rows, labels).replace(teacher=_teacher((len(rows), len(rows)), generator))
    return pairs(found, metric=metric)
