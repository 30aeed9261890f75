"""Statistics of the weights of a query: plain functions of (shares, pairs, eps), one number per query.

A share is |weight| / unit of the loss, so that eps means the same for every loss (docs/eps.md). The push of a query is
the sum of the weights above zero on its negatives; a negative that is pulled has no part of it. All functions return
(Q,). Those that describe how the push is spread over the negatives (`effective`, `participation`, `n90`,
`hardest_share`) do not depend on eps, and are 0 for a query whose negatives are not pushed; otherwise
they are at least 1, except the last.
"""

import torch
from torch import Tensor

from cocos.counting.comparisons import Difference, holm, paired
from cocos.embeddings.scores import Pairs
from cocos.embeddings.sources import SOURCES

__all__ = [
    "BY_SHARE",
    "SOURCES_BY_UNIT",
    "SOURCE_STATISTICS",
    "Difference",
    "as_many",
    "by_source",
    "contributing",
    "effective",
    "hardest_share",
    "holm",
    "n90",
    "paired",
    "participation",
    "per_query",
    "pull",
    "pulled_negatives",
    "push",
    "pushed_positives",
    "relative",
    "spread",
    "uncertain",
    "weight_above",
    "weight_below",
    "weight_positive",
]

# Statistics by the natural unit of a loss, NaN where it is not known.
BY_SHARE = (
    "contributing",
    "weight_above",
    "weight_below",
    "weight_positive",
    "pulled_negatives",
    "pushed_positives",
)
# Statistics of each source: its negatives, those that contribute, those of them that are pulled, and its push.
SOURCE_STATISTICS = ("source_negatives", "source_contributing", "source_pulled", "source_push")
# Those of them by the unit of a loss.
SOURCES_BY_UNIT = SOURCE_STATISTICS[1:3]


def _by_unit(values: Tensor, share: Tensor) -> Tensor:
    """Statistics by share, (..., Q), NaN for the queries whose shares are NaN, as those of an unknown unit are."""
    unknown = share[:, :1].isnan().any(dim=1)
    return torch.where(unknown, torch.nan, values.double()) if unknown.any() else values


def contributing(share: Tensor, pairs: Pairs, eps: float = 0.01) -> Tensor:
    """Number of negatives with a share above eps, strictly (COCOS), int64; NaN where the shares are.

    Source: Bleeker & de Rijke 2022, arXiv:2202.07474, section 4 and eq. 6.

    Examples:
        The positive is not counted, and 0.008 is not above 0.01:

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> share = torch.tensor([[0.9, 0.5, 0.008]])
        >>> cocos.statistics.contributing(share, pairs)
        tensor([1])
    """
    return _by_unit(((share > eps) & pairs.negative).sum(dim=1), share)


def uncertain(share: Tensor, pairs: Pairs, eps: float, equal: float) -> Tensor:
    """Number of negatives whose share, or part of the push, is too close to eps to be decided, int64.

    Args:
        share: (Q, C).
        pairs: the masks.
        eps: smallest share that contributes.
        equal: difference of a share and eps, in parts of eps, that rounding can make.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> share = torch.tensor([[0.9, 0.5, 0.01]], dtype=torch.float64)
        >>> cocos.statistics.uncertain(share, pairs, eps=0.01, equal=1e-11)
        tensor([1])
    """
    return (((share - eps).abs() <= equal * eps) & pairs.negative & (share > 0)).sum(dim=1)


def weight_above(share: Tensor, pairs: Pairs, eps: float = 0.01) -> Tensor:
    """Summed share of the negatives above eps: W^{qv-} of the published tables.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> share = torch.tensor([[0.9, 0.5, 0.008]])
        >>> cocos.statistics.weight_above(share, pairs)
        tensor([0.5000])
    """
    return _by_unit(torch.where((share > eps) & pairs.negative, share, 0).sum(dim=1), share)


def weight_below(share: Tensor, pairs: Pairs, eps: float = 0.01) -> Tensor:
    """Summed share of the negatives that are not above eps, which the count leaves out.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> share = torch.tensor([[0.9, 0.5, 0.008]])
        >>> cocos.statistics.weight_below(share, pairs)
        tensor([0.0080])
    """
    return _by_unit(torch.where((share <= eps) & pairs.negative, share, 0).sum(dim=1), share)


def weight_positive(share: Tensor, pairs: Pairs) -> Tensor:
    """Summed share of the positives: W^{qv+}, 1 - p(match) for NT-Xent.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> share = torch.tensor([[0.9, 0.5, 0.008]])
        >>> cocos.statistics.weight_positive(share, pairs)
        tensor([0.9000])
    """
    return _by_unit(torch.where(pairs.positive, share, 0).sum(dim=1), share)


def pulled_negatives(share: Tensor, weights: Tensor, pairs: Pairs, eps: float = 0.01) -> Tensor:
    """Number of contributing negatives that are pulled, not pushed: their weight is below zero, int64.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> weights = torch.tensor([[-1.0, 0.5, -0.5]])
        >>> cocos.statistics.pulled_negatives(weights.abs(), weights, pairs)
        tensor([1])
    """
    return _by_unit(((share > eps) & pairs.negative & (weights < 0)).sum(dim=1), share)


def pushed_positives(share: Tensor, weights: Tensor, pairs: Pairs, eps: float = 0.01) -> Tensor:
    """Number of positives that are pushed, with a share above eps, int64.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, True, False]]))
        >>> weights = torch.tensor([[0.25, -0.75, 0.5]])
        >>> cocos.statistics.pushed_positives(weights.abs(), weights, pairs)
        tensor([1])
    """
    return _by_unit(((share > eps) & pairs.positive & (weights > 0)).sum(dim=1), share)


def by_source(weights: Tensor, unit: Tensor, pairs: Pairs, eps: float = 0.01) -> dict[str, Tensor]:
    """Negatives, contributing ones, pulled ones and push by the source of the candidate, (Q, S) each.

    The sources are those of `cocos.sources.SOURCES`; without any, all candidates are from the batch.

    Examples:
        >>> source = torch.tensor([[0, 0, 1]], dtype=torch.int8)
        >>> scores, positive = torch.tensor([[0.8, 0.7, 0.9]]), torch.tensor([[True, False, False]])
        >>> pairs = cocos.Pairs(scores, positive, source=source)
        >>> triplet = cocos.losses.load("triplet")
        >>> found = cocos.statistics.by_source(triplet.weight(pairs), triplet.unit(pairs), pairs)
        >>> found["source_contributing"][:, :2].tolist(), found["source_push"][:, :2].tolist()
        ([[1, 1]], [[1.0, 1.0]])
    """
    source = torch.zeros_like(pairs.negative, dtype=torch.int8) if pairs.source is None else pairs.source
    places = torch.arange(len(SOURCES), device=source.device, dtype=torch.int8)
    share, pushed = weights.abs() / unit, push_of_negatives(weights, pairs)
    found: dict[str, list[Tensor]] = {name: [] for name in SOURCE_STATISTICS}
    for place in places:
        mine = pairs.negative & (source == place)
        above = mine & (share > eps)
        every = (mine.sum(1), above.sum(1), (above & (weights < 0)).sum(1), torch.where(mine, pushed, 0).sum(1))
        for own, values in zip(found.values(), every, strict=True):
            own.append(values)
    made = {name: torch.stack(values, dim=1) for name, values in found.items()}
    return made | {name: _by_unit(made[name].T, share).T for name in SOURCES_BY_UNIT}


def push(weights: Tensor) -> Tensor:
    """Total weight above zero: how hard candidates are pushed away.

    Examples:
        >>> cocos.statistics.push(torch.tensor([[-3.0, 1.0, 2.0]]))
        tensor([3.])
    """
    return weights.clamp(min=0).sum(dim=1)


def push_of_negatives(weights: Tensor, pairs: Pairs) -> Tensor:
    """Weight above zero of each negative, (Q, C), 0 elsewhere.

    A *part of the push* is the sum of some of these over the sum of all, over all queries.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.statistics.push_of_negatives(torch.tensor([[4.0, 3.0, -1.0]]), pairs)
        tensor([[0., 3., 0.]])
    """
    return torch.where(pairs.negative, weights.clamp(min=0), 0)


def pull(weights: Tensor) -> Tensor:
    """Total weight below zero, as a positive number: how hard candidates are pulled closer.

    Examples:
        >>> cocos.statistics.pull(torch.tensor([[-3.0, 1.0, 2.0]]))
        tensor([3.])
    """
    return (-weights).clamp(min=0).sum(dim=1)


def spread(weights: Tensor, pairs: Pairs) -> Tensor:
    """Each negative's part of the push of its query, (Q, C): rows sum to one, or are zero without any push.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.statistics.spread(torch.tensor([[-4.0, 3.0, 1.0]]), pairs)
        tensor([[0.0000, 0.7500, 0.2500]])
    """
    part = push_of_negatives(weights, pairs)
    # First by a power of two, which rounds nothing: the sum of tiny weights underflows, that of huge ones overflows.
    largest = part.amax(dim=1, keepdim=True)
    part = part / torch.where(largest > 0, largest / (2 * largest.frexp().mantissa), 1)
    return part / part.sum(dim=1, keepdim=True).clamp(min=1)


def relative(part: Tensor, eps: float = 0.01) -> Tensor:
    """Number of negatives whose part of the query's own push is above eps, strictly, int64.

    Examples:
        >>> cocos.statistics.relative(torch.tensor([[0.0, 0.995, 0.005]]))
        tensor([1])
    """
    return (part > eps).sum(dim=1)


def effective(part: Tensor) -> Tensor:
    """Effective number of negatives, exp of the entropy of their parts: how many share the push (Hill order 1).

    Examples:
        Two equal parts are two effective negatives:

        >>> part = torch.tensor([[0.0, 0.5, 0.5]])
        >>> cocos.statistics.effective(part)
        tensor([2.])
    """
    return torch.where(part.any(dim=1), torch.special.entr(part).sum(dim=1).exp(), 0)


def participation(part: Tensor) -> Tensor:
    """Participation ratio of the negatives, 1 / Σ part² (Hill order 2).

    Examples:
        >>> part = torch.tensor([[0.0, 0.5, 0.5]])
        >>> cocos.statistics.participation(part)
        tensor([2.])
    """
    active = part.any(dim=1)
    return torch.where(active, 1 / torch.where(active, part.square().sum(dim=1), 1), 0)


def n90(part: Tensor) -> Tensor:
    """Smallest number of negatives that together have 90 % of the push, int64.

    Examples:
        >>> cocos.statistics.n90(torch.tensor([[0.0, 0.8, 0.15, 0.05]]))
        tensor([2])
    """
    held = part.sort(dim=1, descending=True).values.cumsum(dim=1)
    return torch.where(part.any(dim=1), (held < 0.9 - 1e-9).sum(dim=1) + 1, 0)


def hardest_share(part: Tensor) -> Tensor:
    """Part of the push on the heaviest negative, 0 to 1.

    Examples:
        >>> cocos.statistics.hardest_share(torch.tensor([[0.0, 0.8, 0.2]]))
        tensor([0.8000])
    """
    return part.amax(dim=1)


def as_many(mask: Tensor, negative: Tensor, generator: torch.Generator) -> Tensor:
    """Draw as many random negatives of each query as are in a mask, without replacement, (Q, C) bool.

    The draw is made on the CPU, so that a seed means the same negatives on every device.

    Args:
        mask: (Q, C) bool, among the negatives.
        negative: (Q, C) bool.
        generator: on the CPU.

    Examples:
        >>> negative = torch.tensor([[False, True, True, True]])
        >>> mask = torch.tensor([[False, True, False, True]])
        >>> drawn = cocos.statistics.as_many(mask, negative, torch.Generator().manual_seed(0))
        >>> drawn.sum().item(), (drawn & ~negative).any().item()
        (2, False)
    """
    place = torch.rand(negative.shape, generator=generator, dtype=torch.float64).to(negative.device)
    order = place.masked_fill(~negative, torch.inf)
    number = (mask & negative).sum(dim=1, keepdim=True)
    last = order.sort(dim=1).values.gather(1, (number - 1).clamp(min=0))
    return negative & (order <= last) & (number > 0)


def per_query(
    weights: Tensor, unit: Tensor, pairs: Pairs, eps: float = 0.01, *, equal: float | None = None
) -> dict[str, Tensor]:
    """Compute all of these statistics except `n90`, which sorts each row, by name, (Q,) each.

    Args:
        weights: (Q, C) weights of a loss.
        unit: natural size of one weight, broadcastable to (Q, C); NaN where it is unknown, and so are
            `BY_SHARE` then.
        pairs: the scores' masks.
        eps: smallest share that contributes.
        equal: as for `uncertain`, of which there are two then: `uncertain`, and `relative_uncertain` of `relative`.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> triplet = cocos.losses.load("triplet")
        >>> found = cocos.statistics.per_query(triplet.weight(pairs), triplet.unit(pairs), pairs)
        >>> found["contributing"], found["push"]
        (tensor([1]), tensor([1.]))
    """
    share, part = weights.abs() / unit, spread(weights, pairs)
    doubts = {} if equal is None else {"uncertain": uncertain(share, pairs, eps, equal)}
    doubts |= {} if equal is None else {"relative_uncertain": uncertain(part, pairs, eps, equal)}
    return doubts | {
        "contributing": contributing(share, pairs, eps),
        "weight_above": weight_above(share, pairs, eps),
        "weight_below": weight_below(share, pairs, eps),
        "weight_positive": weight_positive(share, pairs),
        "pulled_negatives": pulled_negatives(share, weights, pairs, eps),
        "pushed_positives": pushed_positives(share, weights, pairs, eps),
        "relative": relative(part, eps),
        "push": push(weights),
        "pull": pull(weights),
        "effective": effective(part),
        "participation": participation(part),
        "hardest_share": hardest_share(part),
    }
