"""Statistics of the weights of a query: plain functions of (shares, pairs, eps), one number per query.

A share is |weight| / unit of the loss, so that eps means the same for every loss (docs/eps.md). The push of a query is
the sum of the weights above zero on its negatives; a negative that is pulled has no part of it. All functions return
(Q,). Those that describe how the push is spread over the negatives (`effective`, `participation`, `n90`,
`hardest_share`) do not depend on eps, and are 0 for a query whose negatives are not pushed; otherwise
they are at least 1, except the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.scores import Pairs

__all__ = [
    "Difference",
    "as_many",
    "contributing",
    "effective",
    "hardest_share",
    "holm",
    "n90",
    "paired",
    "participation",
    "per_query",
    "pull",
    "push",
    "relative",
    "spread",
    "uncertain",
    "weight_above",
    "weight_below",
    "weight_positive",
]


def contributing(share: Tensor, pairs: Pairs, eps: float = 0.01) -> Tensor:
    """Number of negatives with a share above eps, strictly (COCOS), int64.

    Source: Bleeker & de Rijke 2022, arXiv:2202.07474, section 4 and eq. 6.

    Examples:
        The positive is not counted, and 0.008 is not above 0.01:

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> share = torch.tensor([[0.9, 0.5, 0.008]])
        >>> cocos.statistics.contributing(share, pairs)
        tensor([1])
    """
    return ((share > eps) & pairs.negative).sum(dim=1)


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
    return torch.where((share > eps) & pairs.negative, share, 0).sum(dim=1)


def weight_below(share: Tensor, pairs: Pairs, eps: float = 0.01) -> Tensor:
    """Summed share of the negatives that are not above eps, which the count leaves out.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> share = torch.tensor([[0.9, 0.5, 0.008]])
        >>> cocos.statistics.weight_below(share, pairs)
        tensor([0.0080])
    """
    return torch.where((share <= eps) & pairs.negative, share, 0).sum(dim=1)


def weight_positive(share: Tensor, pairs: Pairs) -> Tensor:
    """Summed share of the positives: W^{qv+}, 1 - p(match) for NT-Xent.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> share = torch.tensor([[0.9, 0.5, 0.008]])
        >>> cocos.statistics.weight_positive(share, pairs)
        tensor([0.9000])
    """
    return torch.where(pairs.positive, share, 0).sum(dim=1)


def push(weights: Tensor) -> Tensor:
    """Total weight above zero: how hard candidates are pushed away.

    Examples:
        >>> cocos.statistics.push(torch.tensor([[-3.0, 1.0, 2.0]]))
        tensor([3.])
    """
    return weights.clamp(min=0).sum(dim=1)


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
    part = torch.where(pairs.negative, weights.clamp(min=0), 0)
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
        unit: natural size of one weight, broadcastable to (Q, C).
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
        "relative": relative(part, eps),
        "weight_above": weight_above(share, pairs, eps),
        "weight_below": weight_below(share, pairs, eps),
        "weight_positive": weight_positive(share, pairs),
        "push": push(weights),
        "pull": pull(weights),
        "effective": effective(part),
        "participation": participation(part),
        "hardest_share": hardest_share(part),
    }


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences with its confidence interval.

    Args:
        mean: of the differences.
        low: lower end of the interval.
        high: its upper end.
        p: two-sided p-value of the paired t-test, 1 where all differences are 0.
        number: of pairs.
        level: of the interval, 0 to 1.
        groups: number of groups of pairs that depend on each other; None where each pair stands for itself.

    Examples:
        >>> cocos.statistics.Difference(1.0, 0.5, 1.5, 0.01, 5, 0.95).resolved
        True
    """

    mean: float
    low: float
    high: float
    p: float
    number: int
    level: float
    groups: int | None = None

    @property
    def resolved(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    def short(self, digits: int = 1) -> str:
        """Mean and interval, for a row among others whose heading says the rest."""
        return f"{self.mean:+.{digits}f} [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"

    def said(self, unit: str = "", of: str = "seeds", digits: int = 1) -> str:
        """The difference in words for a caption, which claims none where the interval contains 0.

        Args:
            unit: of the difference, such as `points`.
            of: name of the pairs.
            digits: behind the point.
        """
        unit = f" {unit}" if unit else ""
        interval = f"[{self.low:+.{digits}f}, {self.high:+.{digits}f}], n = {self.number} paired {of}"
        if not self.resolved:
            return f"no difference can be resolved: {self.mean:+.{digits}f}{unit} {interval}"
        return f"{self.mean:+.{digits}f}{unit} {interval}"


def paired(
    first: Sequence[float] | Tensor,
    second: Sequence[float] | Tensor,
    level: float = 0.95,
    *,
    groups: Sequence[int] | Tensor | None = None,
) -> Difference:
    r"""Compare paired measurements, first minus second, by Student's t.

    Pairs of one group may depend on each other, like the captions of one image or neighbouring steps of a run. With
    :math:`u_g` the sum over group g of the differences less their mean, the variance of the mean of N differences in G
    groups is :math:`\frac{G}{G-1} \sum_g u_g^2 / N^2`, and t has G - 1 degrees of freedom; with one pair in each
    group this is the usual test.

    Args:
        first: one number a pair.
        second: the other numbers, in the same order.
        level: of the confidence interval.
        groups: group of each pair; None: each pair is a group of its own.

    Raises:
        ValueError: different lengths, fewer than two pairs or groups, or a number that is not finite.

    Source: groups: Liang & Zeger 1986, Longitudinal data analysis using generalized linear models.

    Examples:
        >>> found = cocos.statistics.paired([3.0, 4.0, 5.0], [1.0, 2.0, 3.5])
        >>> round(found.mean, 2), found.resolved
        (1.83, True)
    """
    from scipy.special import stdtr, stdtrit

    one, other = (torch.as_tensor(each, dtype=torch.float64) for each in (first, second))
    if one.ndim != 1 or one.shape != other.shape or len(one) < 2:
        raise ValueError(f"paired: two lists of the same length from 2 up, got {list(one.shape)}, {list(other.shape)}")
    away = one - other
    if not away.isfinite().all():
        raise ValueError("paired: a number is not finite")
    mean, free = float(away.mean()), len(away) - 1
    if groups is None:
        error = float(away.std()) / len(away) ** 0.5
    else:
        own = torch.as_tensor(groups).unique(return_inverse=True)[1]
        free = int(own.max()) if own.shape == away.shape else 0
        if not free:
            raise ValueError(f"paired: a group for each of {len(away)} pairs, two at least, got {list(own.shape)}")
        sums = torch.zeros(free + 1, dtype=torch.float64).index_add(0, own, away - mean)
        error = float((sums.square().sum() * (free + 1) / free).sqrt()) / len(away)
    reach = float(stdtrit(free, (1 + level) / 2)) * error
    p = 2 * float(stdtr(free, -abs(mean) / error)) if error else float(mean == 0)
    return Difference(mean, mean - reach, mean + reach, p, len(away), level, None if groups is None else free + 1)


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values of several tests so that the chance of any false finding stays below the level.

    Source: Holm 1979, A simple sequentially rejective multiple test procedure.

    Examples:
        >>> cocos.statistics.holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted, running = [0.0] * len(p), 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        running = max(running, min(1.0, (len(p) - rank) * p[place]))
        adjusted[place] = running
    return adjusted
