"""Statistics of the weights of a query: plain functions of (shares, pairs, eps), one number per query.

A share is |weight| / unit of the loss, so that eps means the same for every loss (docs/eps.md). The push of a query is
the sum of the weights above zero on its negatives; a negative that is pulled has no part of it. All functions return
(Q,). Those that describe how the push is spread over the negatives (`effective`, `participation`, `n90`,
`hardest_share`) do not depend on eps, and are 0 for a query whose negatives are not pushed; otherwise
they are at least 1, except the last.

`STATISTICS` has one row a statistic: its name, label and units, the numbers that a batch has of it, and where tables
show these. A statistic that a loss computes itself is counted, averaged, saved and shown once it has a row there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cocos.counting.comparisons import Difference as Difference
from cocos.counting.comparisons import holm as holm
from cocos.counting.comparisons import paired as paired
from cocos.embeddings.scores import Pairs
from cocos.embeddings.sources import SOURCES

# Weights of which the statistics are computed at once on a CPU: 2 MiB in float64, which stay in the cache.
WEIGHTS_AT_ONCE = 2**18
# Queries in a mean, and their description in a label.
AVERAGED_OVER = {
    "all": "mean over all queries",
    "any": "mean over queries with at least one",
    "pushed": "mean over queries with push",
}


@dataclass(frozen=True)
class Number:
    """One number that a batch, or a whole count, has of a statistic of its queries.

    Examples:
        >>> cocos.statistics.BATCH_NUMBERS["idle"].about
        ('queries without a contributing negative (C^0)', 'queries')
    """

    name: str = ""  # in a Dataset and in a JSON document; empty: as the statistic
    label: str = ""  # empty: as the statistic, with the queries of the mean
    units: str = ""  # empty: as the statistic
    how: str = "mean"  # or `sum`, of one batch and averaged over the full ones; or `value`, of the batch as a whole
    over: str = "all"  # queries of the mean: `all`, `any`, for which the statistic is above 0, or `pushed`
    value: float | None = None  # a query counts as 1 if the statistic has this value, else as 0; None: the statistic
    by: str = ""  # statistic that weighs the queries of a mean, which makes it a ratio of sums
    symbol: str = ""  # in the published tables
    row: str = ""  # label in the table of `cocos count`, with places for `batch` and `percent`; empty: no row
    scale: float = 1  # factor in tables, 100 for percent
    record: str = ""  # name in a record of `cocos.Monitor`; empty: it is not recorded
    of: str = ""  # name of the statistic, which fills it in

    @property
    def about(self) -> tuple[str, str]:
        """Long name and units."""
        return f"{self.label} ({self.symbol})" if self.symbol else self.label, self.units


@dataclass(frozen=True)
class Statistic:
    """A statistic of each query, and the numbers that a batch has of it.

    Examples:
        >>> cocos.statistics.BY_NAME["effective"].about
        ('effective number of negatives', 'candidates')
    """

    name: str  # in the records of a count
    label: str
    units: str = "candidates"
    numbers: tuple[Number, ...] = ()  # of a batch; none: only single queries have it
    by_unit: bool = False  # it is by the natural unit of the loss, and NaN if that is not known
    by_loss: bool = False  # a loss computes it (`Loss.extra`)
    rare: bool = False  # a table shows it only if it is not 0
    asked: bool = False  # it is computed only on request
    compared: bool = False  # `cocos diff` compares two results by it, query by query

    def __post_init__(self) -> None:
        """Fill in the fields that a number has from its statistic."""
        numbers = (
            replace(
                number,
                name=number.name or self.name,
                label=number.label or f"{self.label}, {AVERAGED_OVER[number.over]}",
                units=number.units or self.units,
                of=self.name,
            )
            for number in self.numbers
        )
        object.__setattr__(self, "numbers", tuple(numbers))

    @property
    def variable(self) -> str:
        """Its name in a Dataset, in which the plain one is the number of a batch."""
        return f"{self.name}_per_query" if self.numbers and self.name != "contributing" else self.name

    @property
    def about(self) -> tuple[str, str]:
        """Label and units."""
        return self.label, self.units


# Every statistic of a query, in the order of the table of `cocos count`, save that sums over a batch follow the means
# there, and the rows of `own` statistics come last. All else follows: Datasets, JSON, tables, records, comparisons.
STATISTICS = (
    Statistic("contributing", "contributing negatives", by_unit=True, compared=True, numbers=(
        Number("contributing_all", row="contributing negatives per query", record="contributing"),
        Number("contributing_mean", over="any", symbol="C^A", row="of the queries with any (C^A)"),
        Number("idle_fraction", "fraction of queries without a contributing negative", "1", value=0,
               row="queries without any, %", scale=100),
        Number("idle_pull", "pull fraction of queries without a contributing negative", "1", value=0,
               by="pull", row="their fraction of the pull, %", scale=100),
        Number("contributing_sum", "contributing negatives, sum over the batch", how="sum", symbol="C^B",
               row="full batch of {batch}: contributing (C^B)"),
        Number("idle", "queries without a contributing negative", "queries", how="sum", value=0, symbol="C^0",
               row="full batch of {batch}: queries without any (C^0)",
               record="idle"),
    )),
    Statistic("relative", "negatives with a push fraction above eps", compared=True, numbers=(
        Number(row="negatives with more than {percent} of the push", record="relative"),
    )),
    Statistic("effective", "effective number of negatives", compared=True, numbers=(
        Number(over="pushed", row="effective number of negatives", record="effective"),
    )),
    Statistic("participation", "participation ratio of the negatives", numbers=(
        Number(over="pushed", row="participation ratio of the negatives"),
    )),
    Statistic("n90", "negatives with 90 % of the push", asked=True, compared=True, numbers=(
        Number(over="pushed", row="negatives with 90 % of the push"),
    )),
    Statistic("hardest_share", "push fraction of the heaviest negative", "1", compared=True, numbers=(
        Number(over="pushed", row="push fraction of the heaviest negative",
               record="hardest_share"),
    )),
    Statistic("weight_above", "summed share of the negatives above eps", "share", by_unit=True, compared=True, numbers=(
        Number("", "share of the negatives above eps, mean over all queries", symbol="W^{qv-}",
               row="share of the negatives above eps (W-)"),
    )),
    Statistic("weight_below", "summed share of the negatives not above eps", "share", by_unit=True, numbers=(
        Number("", "share of the negatives not above eps, mean over all queries",
               row="share of the negatives not above eps"),
    )),
    Statistic("weight_positive", "summed share of the positives", "share", by_unit=True, compared=True, numbers=(
        Number("", "share of the positives, mean over all queries", symbol="W^{qv+}",
               row="share of the positives (W+)",
               record="weight_positive"),
    )),
    Statistic("eq7", "count of Eq. 7", "pairs per positive", by_loss=True, numbers=(
        Number("eq7_mean", over="any", symbol="C^q", row="Eq. 7 count, queries with any (C^q)"),
        Number("eq7_sum", "count of Eq. 7, sum over the batch", how="sum", row="full batch of {batch}: Eq. 7 count"),
        Number("eq7_idle", "queries without any count of Eq. 7", "queries", how="sum", value=0, symbol="C^0",
               row="full batch of {batch}: Eq. 7 count of 0"),
    )),
    Statistic("clamped", "fraction of positives at the clamp (HCL), without push", "1", by_loss=True,
              numbers=(
        Number("", "queries with all positives at the clamp (HCL), without push", "queries", how="sum", value=1,
               row="full batch of {batch}: queries at the clamp", record="clamped"),
    )),
    Statistic("pulled_negatives", "pulled contributing negatives", by_unit=True, rare=True, numbers=(
        Number(row="pulled contributing negatives"),
    )),
    Statistic("pushed_positives", "pushed positives with a share above eps", by_unit=True, rare=True,
              numbers=(
        Number(row="pushed positives"),
    )),
    Statistic("masked", "negatives suspected by the filter of the loss", by_loss=True, rare=True, numbers=(
        Number(row="negatives suspected by the filter"),
    )),
    Statistic("masked_push", "push fraction of the suspected negatives, without the filter", "1",
              by_loss=True, rare=True, numbers=(
        Number("", "push fraction of the suspected negatives, without the filter", by="unfiltered_push", scale=100,
               row="their push fraction without the filter, %"),
    )),
    Statistic("below_zero", "positive scores below 0", "1",
              by_loss=True, numbers=(
        Number("", "fraction of queries with a positive score below 0"),
    )),
    Statistic("relative_uncertain", "candidates with a push fraction within rounding of eps"),
    Statistic("uncertain", "candidates with a share within rounding of eps"),
    Statistic("unfiltered_push", "total weight above zero of the negatives without the filter", "weight", by_loss=True),
    Statistic("negative_push", "total weight above zero of the negatives", "weight"),
    Statistic("push", "total weight above zero", "weight"),
    Statistic("pull", "total weight below zero", "weight"),
    Statistic("negatives", "negatives in the batch"),
)  # fmt: skip
# Statistics of a query and a source of candidates; its `push` is a part of all push in the numbers.
OF_SOURCES = (
    Statistic("source_negatives", "negatives of the source", numbers=(
        Number("negatives", row="negatives per query"),
    )),
    Statistic("source_contributing", "contributing negatives of the source", by_unit=True, numbers=(
        Number("contributing", row="contributing negatives"),
    )),
    Statistic("source_pulled", "pulled contributing negatives of the source", by_unit=True, rare=True,
              numbers=(
        Number("pulled", row="pulled contributing negatives"),
    )),
    Statistic("source_push", "total weight above zero of the negatives of the source", "weight", numbers=(
        Number("push", "push fraction", "1", row="push fraction, %", scale=100),
    )),
)  # fmt: skip
# Statistics by their names.
BY_NAME = {row.name: row for row in STATISTICS}
# Numbers of a batch by their names.
BATCH_NUMBERS = {number.name: number for row in STATISTICS for number in row.numbers}
# Statistics by the natural unit of a loss, NaN where it is not known.
BY_SHARE = tuple(row.name for row in (*STATISTICS, *OF_SOURCES) if row.by_unit)
SOURCE_STATISTICS = tuple(row.name for row in OF_SOURCES)
# Long name and units of what a query has of each kind of marked candidates.
MARKED_LABELS = {
    "marked_negatives": ("marked negatives", "candidates"),
    "marked_push_per_query": ("push fraction of the marked negatives", "1"),
    "placebo_push_per_query": ("push fraction of as many random negatives", "1"),
}
# Numbers of a batch and a kind of marked candidates, by their names in a JSON document.
MARKED_PARTS = {
    "negatives": Number("marked_share", "fraction of negatives with the mark", "1",
                        row="fraction of negatives, %", scale=100),
    "push": Number("marked_push", "push fraction of the marked negatives", "1", row="push fraction, %", scale=100),
    "placebo": Number("placebo_push", "push fraction of as many random negatives", "1",
                      row="push fraction of as many random negatives, %", scale=100),
    "enrichment": Number("enrichment", "push fraction / fraction of negatives", "1",
                         row="push fraction / fraction of negatives"),
}  # fmt: skip


def names(over: str) -> tuple[str, ...]:
    """Return the statistics with a mean over some of the queries: `all`, `any` or `pushed`."""
    return tuple(row.name for row in STATISTICS if any(number.over == over for number in row.numbers))


def _by_unit(values: Tensor, share: Tensor) -> Tensor:
    """Return statistics by share, (..., Q), with NaN for queries with shares of NaN, as for an unknown unit."""
    unknown = share[:, :1].isnan().any(dim=1)
    return torch.where(unknown, torch.nan, values.double()) if unknown.any() else values


def contributing(share: Tensor, pairs: Pairs, eps: float = 0.01) -> Tensor:
    """Return the number of negatives with a share above eps, strictly (COCOS), int64; NaN where the shares are.

    Source: Bleeker & de Rijke 2022, arXiv:2202.07474, section 4 and eq. 6.

    Examples:
        The positive is not counted, and 0.008 is not above 0.01:

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> share = torch.tensor([[0.9, 0.5, 0.008]])
        >>> cocos.statistics.contributing(share, pairs)
        tensor([1])
    """
    return _by_unit(((share > eps) & pairs.negative).sum(dim=1), share)


def pushed_positives(share: Tensor, weights: Tensor, pairs: Pairs, eps: float = 0.01) -> Tensor:
    """Return the number of positives that are pushed, with a share above eps, int64."""
    return _by_unit(((share > eps) & pairs.positive & (weights > 0)).sum(dim=1), share)


def by_source(weights: Tensor, unit: Tensor, pairs: Pairs, eps: float = 0.01) -> dict[str, Tensor]:
    """Count negatives, contributing ones, pulled ones and push by the source of the candidate, (Q, S) each.

    The sources are those of `cocos.sources.SOURCES`; without any, all candidates are from the batch.

    Examples:
        >>> source = torch.tensor([[0, 0, 1]], dtype=torch.int8)
        >>> scores, positive = torch.tensor([[0.8, 0.7, 0.9]]), torch.tensor([[True, False, False]])
        >>> pairs = cocos.Pairs(scores, positive, source=source)
        >>> triplet = cocos.losses.load("triplet")
        >>> values = cocos.statistics.by_source(triplet.weight(pairs), triplet.unit(pairs), pairs)
        >>> values["source_contributing"][:, :2].tolist(), values["source_push"][:, :2].tolist()
        ([[1, 1]], [[1.0, 1.0]])
    """
    source = torch.zeros_like(pairs.negative, dtype=torch.int8) if pairs.source is None else pairs.source
    share, pushed = weights.abs() / unit, push_of_negatives(weights, pairs)
    columns = []
    for number in range(len(SOURCES)):
        mask = pairs.negative & (source == number)
        above = mask & (share > eps)
        push = torch.where(mask, pushed, 0).sum(dim=1)
        columns.append((mask.sum(dim=1), above.sum(dim=1), (above & (weights < 0)).sum(dim=1), push))
    stacked = (torch.stack(values, dim=1) for values in zip(*columns, strict=True))
    values = dict(zip(SOURCE_STATISTICS, stacked, strict=True))
    return values | {name: _by_unit(values[name].T, share).T for name in SOURCE_STATISTICS if name in BY_SHARE}


def push(weights: Tensor) -> Tensor:
    """Return the total weight above zero: how hard candidates are pushed away."""
    return weights.clamp(min=0).sum(dim=1)


def push_of_negatives(weights: Tensor, pairs: Pairs) -> Tensor:
    """Return the weight above zero of each negative, (Q, C), 0 elsewhere.

    A *part of the push* is the sum of some of these over the sum of all, over all queries.
    """
    return torch.where(pairs.negative, weights.clamp(min=0), 0)


def pull(weights: Tensor) -> Tensor:
    """Return the total weight below zero, as a positive number: how hard candidates are pulled closer."""
    return (-weights).clamp(min=0).sum(dim=1)


def spread(weights: Tensor, pairs: Pairs) -> Tensor:
    """Return each negative's part of the push of its query, (Q, C): rows sum to one, or are zero without any push.

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
    """Return the number of negatives with a part of the query's own push above eps, strictly, int64."""
    return (part > eps).sum(dim=1)


def effective(part: Tensor) -> Tensor:
    """Return exp of the entropy of the negatives' parts: how many share the push (Hill order 1).

    Examples:
        Two equal parts are two effective negatives:

        >>> part = torch.tensor([[0.0, 0.5, 0.5]])
        >>> cocos.statistics.effective(part)
        tensor([2.])
    """
    entropy = (part * part.clamp(min=torch.finfo(part.dtype).tiny).log()).sum(dim=1).neg()  # faster than `entr`
    return torch.where(part.sum(dim=1) != 0, entropy.exp(), 0)


def participation(part: Tensor) -> Tensor:
    """Return the participation ratio of the negatives, 1 / Σ part² (Hill order 2)."""
    active = part.sum(dim=1) != 0
    return torch.where(active, 1 / torch.where(active, part.square().sum(dim=1), 1), 0)


def n90(part: Tensor) -> Tensor:
    """Return the smallest number of negatives that together have 90 % of the push, int64.

    Examples:
        >>> cocos.statistics.n90(torch.tensor([[0.0, 0.8, 0.15, 0.05]]))
        tensor([2])
    """
    cumulative = part.sort(dim=1, descending=True).values.cumsum(dim=1)
    return torch.where(part.any(dim=1), (cumulative < 0.9 - 1e-9).sum(dim=1) + 1, 0)


def hardest_share(part: Tensor) -> Tensor:
    """Return the part of the push on the heaviest negative, 0 to 1."""
    return part.amax(dim=1)


def how_spread(
    heaviest: Tensor, effective: Tensor | None = None, participation: Tensor | None = None
) -> dict[str, Tensor]:
    """Name the statistics of how the push is spread, (Q,) each, except those that were not computed."""
    values = {"effective": effective, "participation": participation, "hardest_share": heaviest}
    return {name: value for name, value in values.items() if value is not None}


def as_many(mask: Tensor, negative: Tensor, generator: torch.Generator) -> Tensor:
    """Draw as many random negatives of each query as are in a mask, without replacement, (Q, C) bool.

    The draw is made on the CPU, so that a seed means the same negatives on every device.

    Examples:
        >>> negative = torch.tensor([[False, True, True, True]])
        >>> mask = torch.tensor([[False, True, False, True]])
        >>> drawn = cocos.statistics.as_many(mask, negative, torch.Generator().manual_seed(0))
        >>> drawn.sum().item(), (drawn & ~negative).any().item()
        (2, False)
    """
    draw = torch.rand(negative.shape, generator=generator, dtype=torch.float64).to(negative.device)
    order = draw.masked_fill(~negative, torch.inf)
    number = (mask & negative).sum(dim=1, keepdim=True)
    last = order.sort(dim=1).values.gather(1, (number - 1).clamp(min=0))
    return negative & (order <= last) & (number > 0)


@torch.no_grad()
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
        equal: difference of a share and eps, in parts of eps, that rounding can make; adds `uncertain`, the negatives
            with a share too close to eps to be decided, and `relative_uncertain`, likewise for `relative`.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> triplet = cocos.losses.load("triplet")
        >>> values = cocos.statistics.per_query(triplet.weight(pairs), triplet.unit(pairs), pairs)
        >>> values["contributing"], values["push"]
        (tensor([1]), tensor([1.]))
    """
    rows = max(1, WEIGHTS_AT_ONCE // max(1, weights.shape[1]))
    if len(weights) > rows and weights.device.type == "cpu":
        unit, slices = unit.broadcast_to(weights.shape), [slice(a, a + rows) for a in range(0, len(weights), rows)]
        parts = [per_query(weights[k], unit[k], pairs.part(k, slice(None)), eps, equal=equal) for k in slices]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    # Each mask is converted once: a product with 0 or 1 is several times as fast as `torch.where`.
    negative, positive = pairs.negative.to(weights.dtype), pairs.positive.to(weights.dtype)
    share, fraction = weights.abs() / unit, spread(weights, pairs)
    negative_share, positive_share = share * negative, share * positive
    above = _ones(torch.gt, negative_share, eps)
    above_share = negative_share * above
    by_share = {
        "contributing": above.sum(dim=1).long(),
        "weight_above": above_share.sum(dim=1),
        "weight_below": (negative_share - above_share).sum(dim=1),
        "weight_positive": positive_share.sum(dim=1),
        "pulled_negatives": above.mul_(_ones(torch.lt, weights, 0)).sum(dim=1).long(),
        "pushed_positives": _ones(torch.gt, positive_share, eps).mul_(_ones(torch.gt, weights, 0)).sum(dim=1).long(),
    }
    statistics = {name: _by_unit(values, share) for name, values in by_share.items()} | {
        "relative": _ones(torch.gt, fraction, eps).sum(dim=1).long(),
        "push": push(weights),
        "pull": pull(weights),
        **how_spread(hardest_share(fraction), effective(fraction), participation(fraction)),
    }
    if equal is not None:
        statistics["uncertain"] = _count_near(negative_share, eps, equal)
        statistics["relative_uncertain"] = _count_near(fraction, eps, equal)
    return statistics


def _ones(compare: Callable[..., Tensor], left: Tensor, right: float) -> Tensor:
    """Compare elements; return 1 or 0 in a dtype that sums them exactly, several times as fast as booleans."""
    dtype = torch.promote_types(left.dtype, torch.float32)
    return compare(left, right, out=torch.empty(left.shape, dtype=dtype, device=left.device))


def _count_near(share: Tensor, eps: float, equal: float) -> Tensor:
    """Count the shares above 0 within `equal` of eps, relative to eps, (Q,) int64."""
    return _ones(torch.le, (share - eps).abs_(), equal * eps).mul_(_ones(torch.gt, share, 0)).sum(dim=1).long()
