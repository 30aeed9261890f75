"""Inputs that `verify` tries a loss on, and the questions it asks of each."""

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cocos import losses
from cocos.counting import weights
from cocos.embeddings import Embeddings, regimes, scores
from cocos.embeddings.scores import Pairs
from cocos.embeddings.sources import DIRECTIONS

TRIED_DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}
# Seeds of each regime.
SEEDS = range(4)
# Step of central differences in float64.
STEP = 1e-6
# Part of the value that rounding leaves in a central difference.
NOISE = 1e-5
# Step of differences of a loss that computes in float32, and the largest part of a weight that they are off by.
FLOAT32_STEP, FLOAT32_ERROR = 1e-3, 0.05
# Scores up to which each is moved by itself.
MOVED_SCORES = 400
# Random directions along which larger inputs are moved.
TRIAL_DIRECTIONS = 8
PEER_LIBRARY = "pytorch_metric_learning"
PEER_LENGTH = {"distance": "LpDistance", "distance.normalize_embeddings": False, "distance.power": 1}
PEER_DISTANCES = {
    "cosine": {"distance": "CosineSimilarity"},
    "dot": {"distance": "DotProductSimilarity", "distance.normalize_embeddings": False},
    "euclidean": PEER_LENGTH,
    "squared_euclidean": PEER_LENGTH | {"distance.power": 2},
}
# Seeds of labelled sets with unit embeddings, or of two sides with one positive a query.
PEER_SEEDS = (1, 3)


@dataclass(frozen=True, eq=False)
class Trial:
    """One input.

    Args:
        name: regime and seed, or batch and direction.
        pairs: in float64.
        smooth: finite differences mean something: no score is on a kink on purpose.
    """

    name: str
    pairs: Pairs
    smooth: bool = True


def reads_embeddings(loss) -> bool:
    """The loss looks at embeddings and labels, not at scores."""
    known = losses.traits(loss)
    return known.reads == "embeddings" and not known.through_scores


def fits(loss, trial: Trial) -> bool:
    """Whether a loss can be tried on it: a loss that reads embeddings needs scores and masks that follow from them."""
    beyond = trial.name.startswith("large norms") and loss.metric == "cosine"
    if beyond and loss.gradient == "autograd":
        return False  # these scores are far outside of -1 to 1, which code of others need not survive
    if not reads_embeddings(loss):
        return True
    return trial.pairs.embeddings is not None and not trial.name.startswith("empty rows")


def square(seed: int, metric: str, directions: Sequence[str] = DIRECTIONS[:1]) -> Pairs:
    """As many candidates as queries, one positive each: the shape of batch that a careless loss is right for."""
    given = regimes.embeddings("random", 2 * seed + 1)
    own = given.rows(torch.arange(len(given.query)), torch.arange(len(given.query)))
    return scores.pairs(own, metric=metric, directions=directions)


def synthetic(loss) -> Iterator[Trial]:
    """The nine regimes, a square batch and a labelled set, four seeds each."""
    metric = loss.metric
    for name in regimes.SYNTHETIC_REGIMES:
        for seed in SEEDS:
            smooth = name in {"random", "anti-aligned"}
            yield Trial(f"{name} {seed}", regimes.build(name, metric, seed), smooth)
    for seed in SEEDS:
        yield Trial(f"square {seed}", square(seed, metric, losses.traits(loss).directions))
        # A labelled matrix is symmetric: scores come in equal pairs, which is a kink for losses that choose among them.
        yield Trial(f"labelled {seed}", regimes.labelled(metric, seed), smooth=reads_embeddings(loss))


def hardest(metric: str) -> Pairs:
    """Each query beside its opposite, which is its positive, and beside itself, which is a negative."""
    query = regimes.embeddings("random", 3).query
    group = torch.arange(2 * len(query))
    sides = query, torch.cat([-query, query])
    level = query.new_zeros(len(query), len(group))  # a teacher that is undecided
    given = Embeddings(*sides, group[: len(query)], group, directions=("s2p",), teacher=level)
    return scores.pairs(given, metric=metric)


def cast(pairs: Pairs, dtype: torch.dtype) -> Pairs:
    """The same pairs, rounded to another dtype."""
    part = pairs.embeddings
    return replace(
        pairs,
        scores=pairs.scores.to(dtype),
        teacher=None if pairs.teacher is None else pairs.teacher.to(dtype),
        query_norm=None if pairs.query_norm is None else pairs.query_norm.to(dtype),
        candidate_norm=None if pairs.candidate_norm is None else pairs.candidate_norm.to(dtype),
        embeddings=None if part is None else part.to(dtype=dtype),
    )


def moved(pairs: Pairs, metric: str, query: Tensor, candidate: Tensor) -> Pairs:
    """The same pairs with other embeddings, and their scores; not checked, so that it works under torch.func."""
    part = pairs.embeddings
    other = object.__new__(Embeddings)
    other.__dict__.update(part.__dict__, query=query, candidate=candidate)
    variance = (part.candidate_variance,) if metric == "mahalanobis" else ()
    result = pairs.with_scores(scores.METRICS[metric](query, candidate, *variance))
    norms = {"query_norm": scores.length(query), "candidate_norm": scores.length(candidate)}
    result.__dict__.update(norms, embeddings=other)
    return result


def embedding_gradient(loss, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Σ loss, (), and its gradient with respect to the queries and the candidates, one below the other, by autograd.

    In a labelled set, where both are the same rows, it is the gradient of the one matrix.
    """
    part = pairs.embeddings

    base = [part.query] if part.shared else [part.query, part.candidate]
    leaves = [rows.detach().clone().requires_grad_() for rows in base]  # code of others may refuse torch.func
    total = loss(moved(pairs, loss.metric, leaves[0], leaves[-1])).sum()
    return total.detach(), torch.cat(torch.autograd.grad(total, leaves))


def permuted(pairs: Pairs, seed: int = 5, *, together: bool = False) -> tuple[Pairs, Tensor, Tensor]:
    """The same pairs with queries and candidates in another order, and the two orders; `together`: in the same one."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randperm(n, generator=generator).to(pairs.scores.device) for n in pairs.scores.shape)
    part = pairs.embeddings
    wide = part is not None and len(part.candidate) < len(columns)  # columns of further directions
    if (part is not None and part.shared and not wide) or (together and len(rows) == len(columns)):
        columns = rows
    return (
        replace(
            pairs,
            scores=pairs.scores[rows][:, columns],
            positive=pairs.positive[rows][:, columns],
            negative=pairs.negative[rows][:, columns],
            teacher=None if pairs.teacher is None else pairs.teacher[rows][:, columns],
            source=None if pairs.source is None else pairs.source[rows][:, columns],
            candidate_group=None if pairs.candidate_group is None else pairs.candidate_group[columns],
            query_norm=None if pairs.query_norm is None else pairs.query_norm[rows],
            candidate_norm=None if pairs.candidate_norm is None else pairs.candidate_norm[columns],
            embeddings=None if part is None or wide else part.rows(rows, columns),
        ),
        rows,
        columns,
    )


def directional(loss, pairs: Pairs, weight: Tensor | None) -> float:
    """Largest difference between a gradient and central differences along random directions.

    Args:
        loss: the loss.
        pairs: in float64.
        weight: ∂ Σ loss / ∂ score, against which the scores are moved; None: the embeddings are moved, against the
            gradient that autograd gives for them.

    Returns:
        The difference in parts of the length of the gradient, the largest derivative that a direction could have.
    """
    part, generator = pairs.embeddings, torch.Generator().manual_seed(0)
    if weight is None:
        gradient, rows = embedding_gradient(loss, pairs)[1], len(part.query)
        base = part.query if part.shared else torch.cat([part.query, part.candidate])

        def value(vectors: Tensor) -> Tensor:
            query, candidate = (vectors, vectors) if part.shared else (vectors[:rows], vectors[rows:])
            return loss(moved(pairs, loss.metric, query, candidate)).sum()

    else:
        gradient, base = weight, pairs.scores

        def value(scores: Tensor) -> Tensor:
            return loss(pairs.with_scores(scores)).sum()

    worst = 0.0
    for _ in range(TRIAL_DIRECTIONS):
        way = torch.randn(base.shape, generator=generator, dtype=torch.float64).to(base)
        way = way / way.norm()
        slope = (value(base + STEP * way) - value(base - STEP * way)) / (2 * STEP)
        worst = max(worst, (slope - (gradient * way).sum()).abs().item())
    return worst / max(gradient.norm().item(), 1e-3)


def slopes(loss, pairs: Pairs, weight: Tensor, size: float) -> tuple[float, tuple[int, int] | None]:
    """How far the weights are from finite differences, in parts of `size`, and at which pair where that is known."""
    if reads_embeddings(loss):
        return directional(loss, pairs, None), None
    if pairs.scores.numel() > MOVED_SCORES:
        return directional(loss, pairs, weight), None
    value = loss(pairs)
    single = value.dtype != torch.float64  # code of others may compute in float32, where only long steps tell
    off = (weights.finite_difference(loss, pairs, FLOAT32_STEP if single else STEP) - weight).abs()
    size = max(size, NOISE * max(1.0, value.abs().sum().item()))  # rounding error that a difference may keep
    worst = off.max().item() / size
    if single and worst < FLOAT32_ERROR:
        return 0.0, None
    return worst, divmod(int(off.argmax()), off.shape[1])


def parity(loss) -> tuple[float, float, str] | None:
    """Largest differences from the same loss of pytorch-metric-learning in value and embedding gradient, in float64.

    Returns:
        Both relative to their size, with the name of the peer; None where there is no peer.
    """
    peer = loss.peer() if isinstance(loss, losses.HasPeer) else None
    if peer is None or importlib.util.find_spec(PEER_LIBRARY) is None:
        return None
    name, arguments, setting = peer
    theirs = losses.load(f"pml:{name}", PEER_DISTANCES[loss.metric] | arguments)
    value_gap = gradient_gap = 0.0
    if setting == "labelled":
        inputs = [regimes.labelled(loss.metric, seed) for seed in PEER_SEEDS]
    else:
        inputs = [scores.pairs(regimes.embeddings("random", seed), metric=loss.metric) for seed in PEER_SEEDS]
    for pairs in inputs:
        (a, ours), (b, other) = (embedding_gradient(each, pairs) for each in (loss, theirs))
        if arguments.get("distance.normalize_embeddings"):  # it divides unit rows by their norms once more
            ours, other = (g - (g * pairs.embeddings.query).sum(dim=1, keepdim=True) * pairs.embeddings.query
                           for g in (ours, other))  # fmt: skip
        value_gap = max(value_gap, ((a - b).abs() / a.abs().clamp(min=1)).item())
        gradient_gap = max(gradient_gap, ((ours - other).abs().max() / ours.abs().max().clamp(min=1e-12)).item())
    return value_gap, gradient_gap, repr(theirs)
