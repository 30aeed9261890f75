r"""Health of embeddings: spread, rank and duplicates of a side; cancellation of pull and push.

A weight is the derivative by a score. Where all candidates are one point c, the weights of a query may be as large as
ever, but its gradient is :math:`\sum_j w_j c = c \sum_j w_j`, which is zero for a balanced loss: a count of weights
says nothing about a collapsed model. A side is called collapsed only if its rows are one point up to rounding: classes
that have each become one point (neural collapse, Papyan et al. 2020, arXiv:2008.08186) are no defect, and few
dimensions (dimensional collapse, Jing et al. 2022, arXiv:2110.09348) show in the effective rank.
"""

import functools
import math

import numpy as np
import torch
from torch import Tensor

from cocos.counting.findings import Finding
from cocos.counting.forces import gradient, sides
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import Pairs
from cocos.embeddings.similarities import NORMALISED_SIDES, length
from cocos.losses import Loss

SPREAD_ROWS = 256  # rows of a side, drawn with a fixed seed, of which spread and spectrum are computed
# Maximum number of rows of the first batch that are weighed, so that the cost is small beside that of the count.
FELT_ROWS = 128
FELT_QUERIES = 64  # queries of the first batch whose pull and push are summed
FELT_CANDIDATES = 4096  # candidates of the first batch that take part in the sums
LEAST_PAIRED = 20  # fewest queries whose mean rank is compared with chance
RESOLVED_DEVIATIONS = 2.0  # standard deviations within which a mean rank counts as chance
SPLIT_COLUMNS = 16  # columns whose lengths are computed at once
OUTLIERS = 0.01  # largest part of the rows of a collapsed side that may lie elsewhere
# Largest distance from one point, relative to the length of a row, that a forward pass in float32 may leave. Cosines of
# such rows differ from 1 by less than 1e-8 and are exactly 1 in float32; differences of rows keep more digits.
CLOSE = {"euclidean": 1e-5, "squared_euclidean": 1e-5, "mahalanobis": 1e-5}
ANGLE = 1e-4  # the same distance for the other metrics
ROUNDING = 4 * torch.finfo(torch.float32).eps  # of the length of a row: distance of rows that are equal up to rounding
# Largest difference of equal scores in float64, relative to the largest score.
TIE_ROUNDING = 16 * torch.finfo(torch.float64).eps
# Mean cosine of pairs of candidates above which they are hard to tell apart: where more than OUTRANKED of the negatives
# score above a positive (0.5 by chance), and wherever positives rank. The thresholds of the detector `collapse`.
NEARLY_ONE, OUTRANKED, CERTAINLY_ALIKE = 0.9, 0.35, 0.98
WINDOW = 4  # neighbours along a random line that a row is compared with
MAX_DOUBLES = 2**22  # maximum number of entries in float64 at once: 32 MiB
# Metrics that read the lengths of the embeddings, and the variances where there are any.
LENGTH_METRICS = ("euclidean", "squared_euclidean", "mahalanobis")
UNIT_NORM_TOLERANCE = 1e-3  # largest deviation of a norm from 1 for a row to count as a unit vector
TINY = 1e-15  # norms between this and 1/TINY are accurate in float32: their squares are in its range


def _effective_rank(centred: Tensor, size: float) -> float:
    """Effective rank: exp of the entropy of the singular values above rounding; 0 without any.

    Source: Roy & Vetterli 2007, "The effective rank: a measure of effective dimensionality", EUSIPCO.
    """
    wide = centred.shape[1] > centred.shape[0]
    squares = torch.linalg.eigvalsh(centred @ centred.T if wide else centred.T @ centred).clamp(min=0)
    values = squares.sqrt()
    values = values[values > ROUNDING * size * len(centred) ** 0.5]
    return torch.special.entr(values / values.sum()).sum().exp().item() if len(values) else 0.0


def _duplicates(rows: Tensor, unit: bool, norm: Tensor, places: Tensor) -> tuple[int, int]:
    """Count the rows that repeat another one, exactly and up to rounding.

    Equal rows stand beside each other in the order of their projections on one random line, so each row is compared
    with its next neighbours there; a few of the rows that are equal up to rounding may be missed, never an equal one
    that has no such row beside it. The line runs through the first columns, where rows were projected when they were
    read, and through all where rows agree in these and nowhere else.
    """
    if not TINY < float(norm.min()) <= float(norm.max()) < 1 / TINY:
        norm = torch.cat([length(part.double()) for part in rows.split(max(1, MAX_DOUBLES // rows.shape[1]))])
    norm = norm.double() if unit else norm.double().mean().expand(len(norm))
    norm = torch.where(norm > 0, norm, 1)
    found = _repeated(rows, norm, places, whole=False)
    if found is None:
        generator, step = torch.Generator().manual_seed(0), max(1, MAX_DOUBLES // rows.shape[1])
        lines = torch.randn(rows.shape[1], 2, generator=generator, dtype=torch.float64).to(rows.device, places.dtype)
        lines /= lines.norm(dim=0)
        places = torch.cat([part.to(places.dtype) @ lines for part in rows.split(step)])
        found = _repeated(rows, norm, places, whole=True)
    return found


def _repeated(rows: Tensor, norm: Tensor, places: Tensor, *, whole: bool) -> tuple[int, int] | None:
    """Count repeated rows, exactly and up to rounding, from their projections on two lines.

    Args:
        rows: (N, D).
        norm: (N,) that rows are divided by.
        places: (N, 2) on lines, of which the first gives the order.
        whole: the lines run through all columns. Otherwise None is returned where they do not tell rows apart.
    """
    first, second = (places.double() / norm[:, None]).unbind(dim=1)
    order = torch.from_numpy(np.argsort(first.cpu().numpy())).to(rows.device)  # four times as fast as torch's sort
    first, second, step = first[order], second[order], max(1, MAX_DOUBLES // rows.shape[1])
    equal, near = (torch.zeros(len(rows), dtype=torch.bool, device=rows.device) for _ in range(2))
    for ahead in range(1, min(WINDOW, len(rows) - 1) + 1):
        open_ = (first[ahead:] - first[:-ahead] <= 2 * ROUNDING).nonzero().flatten()
        open_ = open_[((second[open_ + ahead] - second[open_]).abs() <= 2 * ROUNDING) & ~near[open_ + ahead]]
        if ahead > 1 and len(open_) > len(rows) // 4:  # rows are so dense here that neighbours on a line say little
            if not whole:
                return None
            break
        for some in open_.split(step):
            one, other = (rows[order[each]] for each in (some, some + ahead))
            left, right = (norm[order[each], None] for each in (some, some + ahead))
            close = (one.double() / left - other.double() / right).norm(dim=1) <= ROUNDING
            if not whole and not close.all():
                return None
            equal[some + ahead], near[some + ahead] = (one == other).all(dim=1), close
    return int(equal.sum()), int(near.sum())


def _on_sphere(rows: Tensor) -> Tensor:
    """Rows in float64, of length 1; a zero vector stays one."""
    size = length(rows := rows.double())
    return rows / torch.where(size > 0, size, 1)[:, None]


def uniformity(rows: Tensor) -> float | None:
    """Log of the mean of exp(-2 |x - y|²) over the pairs of unit rows, at most 0; None of fewer than two.

    It is 0 for one point, and about -4 for rows that are spread evenly over a sphere of many dimensions.

    Source: Wang & Isola 2020, arXiv:2005.10242, section 4.1, with t = 2.

    Examples:
        Of four rows in the four directions of a plane, four pairs have a squared distance of 2, and two of 4:

        >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
        >>> round(cocos.counting.health.uniformity(rows), 3)  # log((4 exp(-4) + 2 exp(-8)) / 6)
        -4.396
    """
    unit = _on_sphere(rows[(rows != 0).any(dim=1)])
    if len(unit) < 2:
        return None
    apart = torch.pdist(unit).square()
    return min((torch.logsumexp(-2 * apart, dim=0) - math.log(len(apart))).item(), 0.0)


def similarity(rows: Tensor) -> float | None:
    """Mean cosine of the pairs of some rows, drawn with a fixed seed; None of fewer than two that are not zero.

    Examples:
        >>> cocos.counting.health.similarity(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]))  # 0, 0 and 1
        0.3333333333333333
    """
    index = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:SPREAD_ROWS].to(rows.device)
    unit = _on_sphere(rows[index][(rows[index] != 0).any(dim=1)])
    number = len(unit)
    return (unit.sum(dim=0).square().sum().item() - number) / (number * (number - 1)) if number > 1 else None


def alignment(embeddings: Embeddings) -> dict[str, float | int | None]:
    """Mean squared distance of unit rows of positives, from some queries drawn with a fixed seed.

    It is 0 where positives agree, and 2 where they are no closer than chance in many dimensions.

    Returns:
        `alignment`, a mean over the positives of a query and then over the queries, None without any positive;
        `alignment_queries`, their number.

    Source: Wang & Isola 2020, arXiv:2005.10242, section 4.1, with α = 2.

    Examples:
        Both positives are at a right angle to their queries:

        >>> rows = torch.eye(4)
        >>> cocos.counting.health.alignment(cocos.Embeddings(rows[:2], rows[2:]))
        {'alignment': 2.0, 'alignment_queries': 2}
    """
    query, candidate = embeddings.query, embeddings.candidate

    def measured(_: Tensor, __: Tensor) -> dict[str, float | int | None]:
        generator = torch.Generator().manual_seed(0)
        asks = torch.randperm(len(query), generator=generator)[:SPREAD_ROWS].to(query.device)
        there = torch.isin(embeddings.candidate_group, embeddings.query_group[asks]).nonzero().flatten()
        order = torch.randperm(len(there), generator=generator)[:FELT_CANDIDATES].sort().values.to(there.device)
        answers = there[order]
        same = embeddings.query_group[asks][:, None] == embeddings.candidate_group[answers]
        if embeddings.shared:
            same &= asks[:, None] != answers
        x, y = _on_sphere(query[asks]), _on_sphere(candidate[answers])
        apart = (x.square().sum(dim=1)[:, None] + y.square().sum(dim=1) - 2 * x @ y.T).clamp(min=0)
        number = same.sum(dim=1)
        mean = torch.where(same, apart, 0).sum(dim=1)[number > 0] / number[number > 0]
        return {"alignment": mean.mean().item() if len(mean) else None, "alignment_queries": len(mean)}

    return embeddings.kept("alignment", (query, candidate), measured)


def pairing(embeddings: Embeddings, metric: str = "cosine") -> dict[str, float | int | bool | None]:
    r"""Compare the score of a positive with those of the negatives, of some queries drawn with a fixed seed.

    Where rows do not match, as after one side was shuffled, a negative scores above the positive or below it by chance.
    The part of the negatives above it is uniform on 0 to 1 then: 1/2 in the mean over n queries, with a standard
    deviation of :math:`1/\sqrt{12 n}`.

    Returns:
        `negatives_above`, the part of the negatives that score above the positive, ties as one half, a mean over the
        queries; `nearest`, the part of the queries whose best positive scores above all negatives; `pairing_queries`,
        their number; `at_chance`, whether the first is not resolved from 1/2. None of too few queries. `similarity`,
        the mean cosine of pairs of candidates; `alike`, whether the set has nearly collapsed: see `NEARLY_ONE`.

    Examples:
        >>> rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        >>> cocos.counting.health.pairing(cocos.Embeddings(rows, rows))["at_chance"]
        False
        >>> cocos.counting.health.pairing(cocos.Embeddings(rows, rows.flip(0)))["at_chance"]
        True
    """
    query, candidate = embeddings.query, embeddings.candidate

    def measured(_: Tensor, __: Tensor) -> dict[str, float | int | bool | None]:
        generator = torch.Generator().manual_seed(0)
        asks = torch.randperm(len(query), generator=generator)[:SPREAD_ROWS].to(query.device)
        there = torch.isin(embeddings.candidate_group, embeddings.query_group[asks]).nonzero().flatten()
        order = torch.randperm(len(there), generator=generator)[: 2 * SPREAD_ROWS].sort().values.to(there.device)
        answers = there[order]
        x, y = query[asks].double(), candidate[answers].double()
        if metric in LENGTH_METRICS:
            scores = -torch.cdist(x, y)
        else:
            scores = x @ y.T if metric == "dot" else _on_sphere(x) @ _on_sphere(y).T
        same = embeddings.query_group[asks][:, None] == embeddings.candidate_group[answers]
        itself = asks[:, None] == answers if embeddings.shared else torch.zeros_like(same)
        positive, negative = same & ~itself, ~same
        kept = positive.any(dim=1) & negative.any(dim=1)
        found: dict[str, float | int | bool | None] = {"pairing_queries": int(kept.sum())}
        near = similarity(candidate)
        directed = metric not in LENGTH_METRICS  # an offset that all rows have leaves their distances as they are
        certain = directed and (near or 0) > CERTAINLY_ALIKE
        if found["pairing_queries"] < LEAST_PAIRED:
            unpaired = {"negatives_above": None, "nearest": None, **found, "at_chance": False}
            return unpaired | {"similarity": near, "alike": certain}
        own = scores.gather(1, positive.int().argmax(dim=1, keepdim=True))  # of any one positive
        level = (scores > own).double() + (scores == own).double() / 2
        above = (torch.where(negative, level, 0).sum(dim=1) / negative.sum(dim=1))[kept]
        best = scores.masked_fill(~positive, -torch.inf).amax(dim=1)
        first = best > scores.masked_fill(~negative, -torch.inf).amax(dim=1)
        part = above.mean().item()
        chance = part > 0.5 - RESOLVED_DEVIATIONS / math.sqrt(12 * len(above))
        alike = certain or (directed and (near or 0) > NEARLY_ONE and part > OUTRANKED)
        found |= {"at_chance": chance, "similarity": near, "alike": alike}
        return {"negatives_above": part, "nearest": first[kept].double().mean().item(), **found}

    return embeddings.kept(
        f"pairing, {metric if metric in {*LENGTH_METRICS, 'dot'} else ''}", (query, candidate), measured
    )


def mispaired(embeddings: Embeddings, metric: str) -> list[Finding]:
    """Find sides whose rows do not match, or whose arrays are turned."""
    made, pairs = [], pairing(embeddings, metric)
    if pairs["at_chance"]:
        sentence = (
            f"pairs: mismatched, {100 * pairs['negatives_above']:.0f} % of negatives score above the positive (chance: "
            f"50 %), R@1 {100 * pairs['nearest']:.1f} % of {pairs['pairing_queries']} queries, alignment "
            f"{alignment(embeddings)['alignment']:.2f}"
        )
        cure = "check row order and groups, or whether the model is trained"
        made.append(Finding("mispaired", "stop", sentence, cure))
    names = ("query",) if embeddings.shared else ("query", "candidate")
    if all(_is_transposed(getattr(embeddings, name)) for name in names):
        rows, width = embeddings.query.shape
        sentence = "arrays: transposed, columns have unit norm and rows do not"
        made.append(Finding("turned", "look", sentence, f"transpose them if they are {width} items of {rows} numbers"))
    return made


def _is_transposed(rows: Tensor) -> bool:
    """Whether the columns have length 1, and the rows do not."""
    if len(rows) < 2 or rows.shape[1] < 2:
        return False
    if not ((length(rows[:SPREAD_ROWS].double()) - 1).abs() > UNIT_NORM_TOLERANCE).any():
        return False
    columns = (length(part.T.double()) for part in rows.split(SPLIT_COLUMNS, dim=1))  # the first few tell, as a rule
    return all(bool(((each - 1).abs() <= UNIT_NORM_TOLERANCE).all()) for each in columns)


def side(rows: Tensor, metric: str, which: str, norms: Tensor, places: Tensor) -> dict[str, float | int | bool]:
    """Measure how far the rows of one side are from being one point.

    Args:
        rows: (N, D).
        metric: of `cocos.similarities.METRICS`.
        which: `query` or `candidate`.
        norms: (N,) of the rows, as `Embeddings.norms` has them.
        places: (N, 2) of the rows, as `Embeddings.projections` has them.

    Returns:
        `rows`, `dimensions`, and `sampled`, the rows that all but duplicates are taken of; `spread`, their root mean
        square distance from their mean in parts of their root mean square length, 0 for one point and 1 for rows that
        point everywhere; `effective_rank` of their deviations from the mean, at most min(dimensions, sampled - 1), and
        0 where rounding alone is left; `uniformity` of the unit rows, None of fewer than two; `duplicates` and
        `near_duplicates`, rows that repeat another one exactly, and up to rounding; `at_one_point`, the part within
        rounding of the row nearest to the mean; `collapsed`, whether 99 % are. Rows are divided by their lengths where
        the metric reads directions.
    """
    unit = which in NORMALISED_SIDES.get(metric, ())
    index = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:SPREAD_ROWS]
    some = rows[index.to(rows.device)].double()
    some = some / length(some)[:, None] if unit else some
    some = some / (some.abs().amax().item() or 1.0)  # squares stay in the range of float64
    size = some.square().sum(dim=1).mean().sqrt().item() or 1.0
    centred = some - some.mean(dim=0)
    apart = centred.norm(dim=1)
    away = (some - some[apart.argmin()]).norm(dim=1) / size
    there = (away <= CLOSE.get(metric, ANGLE)).double().mean().item()
    collapsed = len(rows) > 1 and there >= 1 - OUTLIERS
    equal, near = _duplicates(rows, unit, norms, places)
    return {
        "rows": len(rows),
        "dimensions": rows.shape[1],
        "sampled": len(some),
        "spread": apart.square().mean().sqrt().item() / size,
        "effective_rank": 0.0 if collapsed else _effective_rank(centred, size),
        "uniformity": uniformity(some),
        "duplicates": equal,
        "near_duplicates": near,
        "at_one_point": there,
        "collapsed": collapsed,
    }


def lengths(embeddings: Embeddings, metric: str) -> list[Finding]:
    """Find what distances depend on and cosines do not: norms, and variances of the candidates."""
    if metric not in LENGTH_METRICS:
        return []
    norms, made = torch.cat([length(side) for side in (embeddings.query, embeddings.candidate)]), []
    low, high = norms.min().item(), norms.max().item()
    if high - low > UNIT_NORM_TOLERANCE or abs(high - 1) > UNIT_NORM_TOLERANCE:
        sentence = f"distances: between embeddings with norms {low:.3g} to {high:.3g}"
        cure = "normalise them first if the loss is trained on unit vectors"
        made.append(Finding("norms of distances", "note", sentence, cure))
    if metric == "mahalanobis" and embeddings.candidate_variance is None:
        sentence = "variances: none given, so each candidate has variance 1 (proxy_variance in the file sets them)"
        made.append(Finding("no variances", "note", sentence))
    return made


def norms(embeddings: Embeddings, loss: Loss) -> list[Finding]:
    """Find norms that are not 1, for a third-party loss that reads inner products."""
    if loss.reads != "embeddings" or loss.metric != "dot":
        return []
    every = [norm for side in embeddings.norms for norm in (side.min().item(), side.max().item())]
    low, high = min(every), max(every)
    if high - low <= UNIT_NORM_TOLERANCE and abs(high - 1) <= UNIT_NORM_TOLERANCE:
        return []
    sentence = f"embeddings: norms {low:.3g} to {high:.3g}, and {loss.name} reads raw inner products"
    cure = "if the model is trained on unit vectors, divide the embeddings by their norms first"
    return [Finding("raw norms", "look", sentence, cure)]


def grades(embeddings: Embeddings, loss: Loss) -> list[Finding]:
    """Find a loss that takes grades for pairs, or pairs for grades."""
    graded = loss.graded
    if bool(graded) == (embeddings.grades is not None):
        return []
    if graded:
        sentence = f"grades: none given, so {loss.name} ranks the positive of each query above its negatives"
        return [Finding("no grades", "note", sentence)]
    sentence = f"grades: not read by {loss.name}, so every row is a positive pair; cosent and angle read them"
    return [Finding("unread grades", "note", sentence)]


def felt(weights: Tensor, pairs: Pairs, metric: str) -> dict[str, float | int | None]:
    """Measure how much of pull and push reaches the embeddings of the first queries, and how many queries tie.

    Args:
        weights: (Q, C) weights of a loss.
        pairs: with the embeddings that were scored, as `cocos.scores.pairs` gives them.
        metric: of the scores.

    Returns:
        `queries` and `candidates`; the means over the queries with any pull or push of `cancellation`,
        :math:`1 - |pull + push| / (|pull| + |push|)`, and of `reaching`, the length that the normalisation leaves of
        pull + push over the same, None where no query has any; `tied`, the part of the queries whose best positive ties
        with a negative, among those that have both.
    """
    pairs, weights = pairs.first(FELT_QUERIES), weights[:FELT_QUERIES]
    pull, push = sides(weights, pairs, metric)
    reached = gradient(pull, push, pairs, metric)
    sizes = length(torch.cat([pull, push, pull + push, reached]))  # in one call: each has a cost of its own
    pulled, pushed, both_ways, left = sizes.chunk(4)
    total = pulled + pushed
    left = left * pairs.query_norm if "query" in NORMALISED_SIDES.get(metric, ()) else left
    some = total > 0
    best = pairs.scores.masked_fill(~pairs.positive, -torch.inf).amax(dim=1, keepdim=True)
    both = pairs.positive.any(dim=1) & pairs.negative.any(dim=1)
    rounding = TIE_ROUNDING * pairs.scores.abs().amax() if pairs.scores.dtype == torch.float64 else 0
    level = (pairs.scores - best).abs() <= rounding
    tied = (level & pairs.negative).any(dim=1)[both]

    def mean(values: Tensor, where: Tensor) -> float | None:
        return values[where].mean().clamp(0, 1).item() if where.any() else None

    return {
        "queries": len(weights),
        "candidates": weights.shape[1],
        "cancellation": mean(1 - both_ways / total, some),
        "reaching": mean(left / total, some),
        "tied": tied.double().mean().item() if len(tied) else None,
    }


def of(embeddings: Embeddings, metric: str) -> dict[str, dict]:
    """Results of `side` by the name of the side; a labelled set has one. Cached per kind of metric."""
    found = {}
    for k, name in enumerate(("query",) if embeddings.shared else ("query", "candidate")):
        kind = f"health, {name in NORMALISED_SIDES.get(metric, ())}, {CLOSE.get(metric, ANGLE)}"
        known = {"norms": embeddings.norms[k], "places": embeddings.projections[k]}
        make = functools.partial(side, metric=metric, which=name, **known)
        found[name] = embeddings.kept(kind, (getattr(embeddings, name),), make)
    return found


def report(
    sides: dict[str, dict], aligned: dict[str, float | int | None], directions: dict[str, dict | None] | None = None
) -> dict:
    """Combine the numbers to plain data; `collapsed` comes first: whether any side is."""
    found = {"collapsed": any(each["collapsed"] for each in sides.values()), "sides": sides, **aligned}
    return found if directions is None else found | {"directions": directions}


def collapse(embeddings: Embeddings, metric: str) -> list[Finding]:
    """Find sides that are one point."""
    gone, labelled = [], embeddings.shared or embeddings.proxies
    names = {"query": "samples" if labelled else "queries", "candidate": "proxies" if labelled else "candidates"}
    for name, each in of(embeddings, metric).items():
        if each["collapsed"]:
            part = "all" if each["at_one_point"] == 1 else f"{100 * each['at_one_point']:.1f} % of"
            some = "" if each["sampled"] == each["rows"] else f" {each['sampled']} drawn of the"
            gone.append(f"{part}{some} {each['rows']} {names[name]}")
    sentence = (
        f"embeddings: collapsed, {' and '.join(gone)} are identical up to rounding. Counts do not reflect the "
        "encoder's gradient."
    )
    cure = "run `cocos run` on earlier checkpoints to find the step at which it happened"
    return [Finding("collapsed", "stop", sentence, cure)] if gone else []


def alike(embeddings: Embeddings, metric: str) -> list[Finding]:
    """Find candidates that all point almost in one direction."""
    found = pairing(embeddings, metric)
    limit = NEARLY_ONE if (found["negatives_above"] or 0) > OUTRANKED else CERTAINLY_ALIKE
    if not found["alike"]:
        return []
    sentence = (
        f"embeddings: nearly collapsed, mean cosine of random candidates {found['similarity']:.3g} (threshold "
        f"{limit:g}). No temperature separates them."
    )
    cure = (
        "run `cocos run` on earlier checkpoints to find the step at which it happened, and lower the learning rate or "
        "warm it up there; if it was so before training, check the input of the network"
    )
    return [Finding("alike", "stop", sentence, cure)]


def meaningless(embeddings: Embeddings, metric: str) -> list[Finding]:
    """Find what leaves numbers of these embeddings without a meaning.

    Sides that are one point; or else rows that are mispaired, or almost alike.
    """
    return collapse(embeddings, metric) or [*mispaired(embeddings, metric), *alike(embeddings, metric)]
