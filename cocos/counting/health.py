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
# Maximum number of rows of the first batch that are weighed, so that the cost is small compared with the count.
FELT_ROWS = 128
FELT_QUERIES = 64  # queries of the first batch whose pull and push are summed
FELT_CANDIDATES = 4096  # candidates of the first batch that take part in the sums
LEAST_PAIRED = 20  # fewest queries with a mean rank that is compared with chance
RESOLVED_DEVIATIONS = 2.0  # standard deviations within which a mean rank counts as chance
OUTLIERS = 0.01  # largest part of the rows of a collapsed side that may be elsewhere
# Largest distance from one point, relative to the length of a row, that a forward pass in float32 may leave. Cosines of
# such rows differ from 1 by less than 1e-8 and are exactly 1 in float32; differences of rows keep more digits.
CLOSE = {"euclidean": 1e-5, "squared_euclidean": 1e-5, "mahalanobis": 1e-5}
ANGLE = 1e-4  # the same distance for the other metrics
ROUNDING = 4 * torch.finfo(torch.float32).eps  # of the length of a row: distance of rows that are equal up to rounding
# Largest difference of equal scores in float64, relative to the largest score.
TIE_ROUNDING = 16 * torch.finfo(torch.float64).eps
# Mean cosine of pairs of candidates above which they are hard to tell apart: if more than OUTRANKED of the negatives
# score above a positive (0.5 by chance), and wherever positives rank. The thresholds of the detector `collapse`.
NEARLY_ONE, OUTRANKED, CERTAINLY_ALIKE = 0.9, 0.35, 0.98
WINDOW = 4  # neighbours along a random line that a row is compared with
MAX_DOUBLES = 2**22  # maximum number of entries in float64 at once: 32 MiB
# Metrics that read the lengths of the embeddings, and the variances if there are any.
LENGTH_METRICS = ("euclidean", "squared_euclidean", "mahalanobis")
UNIT_NORM_TOLERANCE = 1e-3  # largest deviation of a norm from 1 for a row to count as a unit vector


def _effective_rank(centred: Tensor, size: float) -> float:
    """Return exp of the entropy of the singular values above rounding; 0 without any.

    Source: Roy & Vetterli 2007, "The effective rank: a measure of effective dimensionality", EUSIPCO.
    """
    wide = centred.shape[1] > centred.shape[0]
    squares = torch.linalg.eigvalsh(centred @ centred.T if wide else centred.T @ centred).clamp(min=0)
    values = squares.sqrt()
    values = values[values > ROUNDING * size * len(centred) ** 0.5]
    return torch.special.entr(values / values.sum()).sum().exp().item() if len(values) else 0.0


def _duplicates(rows: Tensor, norm: Tensor, projections: Tensor) -> tuple[int, int]:
    """Count the rows that repeat another one, exactly and up to rounding.

    Equal rows are neighbours in the order of their projections on one random line, so each row is compared with its
    next neighbours there. A few of the rows that are equal up to rounding may be missed.

    Args:
        rows: (N, D).
        norm: (N,) that rows are divided by.
        projections: (N, 2) of the rows on two lines, of which the first gives the order.
    """
    first, second = (projections.double() / norm[:, None]).unbind(dim=1)
    order = torch.from_numpy(np.argsort(first.cpu().numpy())).to(rows.device)  # four times as fast as torch's sort
    first, second, step = first[order], second[order], max(1, MAX_DOUBLES // rows.shape[1])
    equal, near = (torch.zeros(len(rows), dtype=torch.bool, device=rows.device) for _ in range(2))
    for ahead in range(1, min(WINDOW, len(rows) - 1) + 1):
        index = (first[ahead:] - first[:-ahead] <= 2 * ROUNDING).nonzero().flatten()
        index = index[((second[index + ahead] - second[index]).abs() <= 2 * ROUNDING) & ~near[index + ahead]]
        if ahead > 1 and len(index) > len(rows) // 4:  # rows are so dense that neighbours on a line mean little
            break
        for part in index.split(step):
            one, partner = order[part], order[part + ahead]
            difference = rows[one].double() / norm[one, None] - rows[partner].double() / norm[partner, None]
            near[part + ahead] = difference.norm(dim=1) <= ROUNDING
            equal[part + ahead] = (rows[one] == rows[partner]).all(dim=1)
    return int(equal.sum()), int(near.sum())


def _on_sphere(rows: Tensor) -> Tensor:
    """Return rows in float64, of length 1; a zero vector stays one."""
    size = length(rows := rows.double())
    return rows / torch.where(size > 0, size, 1)[:, None]


def uniformity(rows: Tensor) -> float | None:
    """Return the log of the mean of exp(-2 |x - y|²) over the pairs of unit rows, at most 0; None of fewer than two.

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
    squares = torch.pdist(unit).square()
    return min((torch.logsumexp(-2 * squares, dim=0) - math.log(len(squares))).item(), 0.0)


def similarity(rows: Tensor) -> float | None:
    """Return the mean cosine of the pairs of some rows, drawn with a fixed seed; None of fewer than two.

    Examples:
        >>> cocos.counting.health.similarity(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]))  # 0, 0 and 1
        0.3333333333333333
    """
    index = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:SPREAD_ROWS].to(rows.device)
    unit = _on_sphere(rows[index][(rows[index] != 0).any(dim=1)])
    number = len(unit)
    return (unit.sum(dim=0).square().sum().item() - number) / (number * (number - 1)) if number > 1 else None


def _sample(embeddings: Embeddings, candidates: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw queries and some of their candidates with a fixed seed: rows of both, and positive and negative masks."""
    generator = torch.Generator().manual_seed(0)
    device = embeddings.query.device
    query = torch.randperm(len(embeddings.query), generator=generator)[:SPREAD_ROWS].to(device)
    matches = torch.isin(embeddings.candidate_group, embeddings.query_group[query]).nonzero().flatten()
    candidate = matches[torch.randperm(len(matches), generator=generator)[:candidates].sort().values.to(device)]
    same = embeddings.query_group[query][:, None] == embeddings.candidate_group[candidate]
    itself = query[:, None] == candidate if embeddings.shared else torch.zeros_like(same)
    return embeddings.query[query], embeddings.candidate[candidate], same & ~itself, ~same


def alignment(embeddings: Embeddings) -> dict[str, float | int | None]:
    """Return the mean squared distance of unit rows of positives, from some queries drawn with a fixed seed.

    It is 0 if positives agree, and 2 if they are no closer than chance in many dimensions.

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

    def measure(_: Tensor, __: Tensor) -> dict[str, float | int | None]:
        query, candidate, positive, _ = _sample(embeddings, FELT_CANDIDATES)
        x, y = _on_sphere(query), _on_sphere(candidate)
        squares = (x.square().sum(dim=1)[:, None] + y.square().sum(dim=1) - 2 * x @ y.T).clamp(min=0)
        number = positive.sum(dim=1)
        mean = torch.where(positive, squares, 0).sum(dim=1)[number > 0] / number[number > 0]
        return {"alignment": mean.mean().item() if len(mean) else None, "alignment_queries": len(mean)}

    return embeddings.kept("alignment", (embeddings.query, embeddings.candidate), measure)


def pairing(embeddings: Embeddings, metric: str = "cosine") -> dict[str, float | int | bool | None]:
    r"""Compare the score of a positive with those of the negatives, of some queries drawn with a fixed seed.

    If rows do not match, as after one side was shuffled, a negative scores above the positive or below it by chance.
    The part of the negatives above it is uniform on 0 to 1 then: 1/2 in the mean over n queries, with a standard
    deviation of :math:`1/\sqrt{12 n}`. For class proxies, n is the number of classes.

    Returns:
        `negatives_above`, the part of the negatives that score above the positive, ties as one half, a mean over the
        queries; `nearest`, the part of the queries with a best positive that scores above all negatives;
        `pairing_queries`, their number; `at_chance`, whether the first is not resolved from 1/2. None of too few
        queries. `similarity`, the mean cosine of pairs of candidates; `alike`, whether the set has nearly collapsed:
        see `NEARLY_ONE`.

    Examples:
        >>> rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        >>> cocos.counting.health.pairing(cocos.Embeddings(rows, rows))["at_chance"]
        False
        >>> cocos.counting.health.pairing(cocos.Embeddings(rows, rows.flip(0)))["at_chance"]
        True
    """
    reads_length = metric in LENGTH_METRICS  # an offset that all rows have leaves their distances unchanged

    def measure(_: Tensor, __: Tensor) -> dict[str, float | int | bool | None]:
        query, candidate, positive, negative = _sample(embeddings, 2 * SPREAD_ROWS)
        x, y = query.double(), candidate.double()
        if reads_length:
            scores = -torch.cdist(x, y)
        else:
            scores = x @ y.T if metric == "dot" else _on_sphere(x) @ _on_sphere(y).T
        usable = positive.any(dim=1) & negative.any(dim=1)
        number, cosine = int(usable.sum()), similarity(embeddings.candidate)
        certain = not reads_length and (cosine or 0) > CERTAINLY_ALIKE
        values = {"negatives_above": None, "nearest": None, "pairing_queries": number, "at_chance": False}
        values |= {"similarity": cosine, "alike": certain}
        if number < LEAST_PAIRED:
            return values
        own = scores.gather(1, positive.int().argmax(dim=1, keepdim=True))  # of any one positive
        level = (scores > own).double() + (scores == own).double() / 2
        above = (torch.where(negative, level, 0).sum(dim=1) / negative.sum(dim=1))[usable].mean().item()
        best = scores.masked_fill(~positive, -torch.inf).amax(dim=1)
        first = best > scores.masked_fill(~negative, -torch.inf).amax(dim=1)
        nearly = not reads_length and (cosine or 0) > NEARLY_ONE and above > OUTRANKED
        values |= {"negatives_above": above, "nearest": first[usable].double().mean().item()}
        proxies = positive[usable].int().argmax(dim=1)
        ranks = len(proxies.unique()) if embeddings.proxies else number  # one rank per class
        values |= {"at_chance": above > 0.5 - RESOLVED_DEVIATIONS / math.sqrt(12 * ranks), "alike": certain or nearly}
        return values

    key = f"pairing, {metric if reads_length or metric == 'dot' else ''}"
    return embeddings.kept(key, (embeddings.query, embeddings.candidate), measure)


def mispaired(embeddings: Embeddings, metric: str) -> list[Finding]:
    """Find sides with rows that do not match."""
    pairs = pairing(embeddings, metric)
    if not pairs["at_chance"]:
        return []
    sentence = (
        f"pairs: mismatched, {100 * pairs['negatives_above']:.0f} % of negatives score above the positive (chance: "
        f"50 %), R@1 {100 * pairs['nearest']:.1f} % of {pairs['pairing_queries']} queries, alignment "
        f"{alignment(embeddings)['alignment']:.2f}"
    )
    return [Finding("mispaired", "stop", sentence, "check row order and groups, or whether the model is trained")]


def side(rows: Tensor, metric: str, which: str, norms: Tensor, projections: Tensor) -> dict[str, float | int | bool]:
    """Measure how far the rows of one side are from one point.

    Args:
        rows: (N, D).
        metric: of `cocos.scores.METRICS`.
        which: `query` or `candidate`.
        norms: (N,) of the rows, as in `Embeddings.norms`.
        projections: (N, 2) of the rows, as in `Embeddings.projections`.

    Returns:
        `rows`, `dimensions`, and `sampled`, the rows of all numbers but duplicates; `spread`, their root mean square
        distance from their mean in parts of their root mean square length, 0 for one point and 1 for rows in all
        directions; `effective_rank` of their deviations from the mean, at most min(dimensions, sampled - 1), and 0 if
        only rounding is left; `uniformity` of the unit rows, None of fewer than two; `duplicates` and
        `near_duplicates`, rows that repeat another one exactly, and up to rounding; `at_one_point`, the part within
        rounding of the row nearest to the mean; `collapsed`, whether 99 % are. Rows are divided by their lengths if the
        metric reads directions.
    """
    unit = which in NORMALISED_SIDES.get(metric, ())
    index = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:SPREAD_ROWS]
    sample = rows[index.to(rows.device)].double()
    sample = sample / length(sample)[:, None] if unit else sample
    sample = sample / (sample.abs().amax().item() or 1.0)  # squares stay in the range of float64
    size = sample.square().sum(dim=1).mean().sqrt().item() or 1.0
    centred = sample - sample.mean(dim=0)
    distance = centred.norm(dim=1)
    away = (sample - sample[distance.argmin()]).norm(dim=1) / size
    at_one_point = (away <= CLOSE.get(metric, ANGLE)).double().mean().item()
    collapsed = len(rows) > 1 and at_one_point >= 1 - OUTLIERS
    divisor = norms.double() if unit else norms.double().mean().expand(len(norms))
    equal, near = _duplicates(rows, torch.where(divisor > 0, divisor, 1), projections)
    return {
        "rows": len(rows),
        "dimensions": rows.shape[1],
        "sampled": len(sample),
        "spread": distance.square().mean().sqrt().item() / size,
        "effective_rank": 0.0 if collapsed else _effective_rank(centred, size),
        "uniformity": uniformity(sample),
        "duplicates": equal,
        "near_duplicates": near,
        "at_one_point": at_one_point,
        "collapsed": collapsed,
    }


def norms(embeddings: Embeddings, loss: Loss) -> list[Finding]:
    """Find norms that are not 1, for a third-party loss that reads inner products."""
    if loss.reads != "embeddings" or loss.metric != "dot":
        return []
    low = min(norms.min().item() for norms in embeddings.norms)
    high = max(norms.max().item() for norms in embeddings.norms)
    if high - low <= UNIT_NORM_TOLERANCE and abs(high - 1) <= UNIT_NORM_TOLERANCE:
        return []
    sentence = f"embeddings: norms {low:.3g} to {high:.3g}, and {loss.name} reads raw inner products"
    cure = "if the model is trained on unit vectors, divide the embeddings by their norms first"
    return [Finding("raw norms", "look", sentence, cure)]


def grades(embeddings: Embeddings, loss: Loss) -> list[Finding]:
    """Find a loss that takes grades for pairs, or pairs for grades."""
    if bool(loss.graded) == (embeddings.grades is not None):
        return []
    if loss.graded:
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
        pull + push over the same, None if no query has any; `tied`, the part of the queries with a best positive that
        ties with a negative, among the queries that have both.
    """
    pairs, weights = pairs.first(FELT_QUERIES), weights[:FELT_QUERIES]
    pull, push = sides(weights, pairs, metric)
    reached = gradient(pull, push, pairs, metric)
    # In one call, since each has a cost of its own.
    pulled, pushed, net, left = length(torch.cat([pull, push, pull + push, reached])).chunk(4)
    total = pulled + pushed
    left = left * pairs.query_norm if "query" in NORMALISED_SIDES.get(metric, ()) else left
    best = pairs.scores.masked_fill(~pairs.positive, -torch.inf).amax(dim=1, keepdim=True)
    both = pairs.positive.any(dim=1) & pairs.negative.any(dim=1)
    rounding = TIE_ROUNDING * pairs.scores.abs().amax() if pairs.scores.dtype == torch.float64 else 0
    level = (pairs.scores - best).abs() <= rounding
    tied = (level & pairs.negative).any(dim=1)[both]
    moved = total > 0

    def mean(values: Tensor) -> float | None:
        return values[moved].mean().clamp(0, 1).item() if moved.any() else None

    return {
        "queries": len(weights),
        "candidates": weights.shape[1],
        "cancellation": mean(1 - net / total),
        "reaching": mean(left / total),
        "tied": tied.double().mean().item() if len(tied) else None,
    }


def of(embeddings: Embeddings, metric: str) -> dict[str, dict]:
    """Return the results of `side` by the name of the side; a labelled set has one. Cached per kind of metric."""
    results = {}
    for k, name in enumerate(("query",) if embeddings.shared else ("query", "candidate")):
        key = f"health, {name in NORMALISED_SIDES.get(metric, ())}, {CLOSE.get(metric, ANGLE)}"
        arguments = {"norms": embeddings.norms[k], "projections": embeddings.projections[k]}
        measure = functools.partial(side, metric=metric, which=name, **arguments)
        results[name] = embeddings.kept(key, (embeddings.sides[k].rows,), measure)
    return results


def report(
    sides: dict[str, dict], aligned: dict[str, float | int | None], directions: dict[str, dict | None] | None = None
) -> dict:
    """Combine the numbers to plain data; `collapsed` comes first: whether any side is."""
    document = {"collapsed": any(side["collapsed"] for side in sides.values()), "sides": sides, **aligned}
    return document if directions is None else document | {"directions": directions}


def collapse(embeddings: Embeddings, metric: str) -> list[Finding]:
    """Find sides that are one point."""
    collapsed, labelled = [], embeddings.shared or embeddings.proxies
    names = {"query": "samples" if labelled else "queries", "candidate": "proxies" if labelled else "candidates"}
    for name, numbers in of(embeddings, metric).items():
        if numbers["collapsed"]:
            part = "all" if numbers["at_one_point"] == 1 else f"{100 * numbers['at_one_point']:.1f} % of"
            sample = "" if numbers["sampled"] == numbers["rows"] else f" {numbers['sampled']} drawn of the"
            collapsed.append(f"{part}{sample} {numbers['rows']} {names[name]}")
    sentence = (
        f"embeddings: collapsed, {' and '.join(collapsed)} are identical up to rounding. Counts do not reflect the "
        "encoder's gradient."
    )
    cure = "run `cocos run` on earlier checkpoints to find the step at which it happened"
    return [Finding("collapsed", "stop", sentence, cure)] if collapsed else []


def alike(embeddings: Embeddings, metric: str) -> list[Finding]:
    """Find candidates that all point almost in one direction."""
    pairs = pairing(embeddings, metric)
    limit = NEARLY_ONE if (pairs["negatives_above"] or 0) > OUTRANKED else CERTAINLY_ALIKE
    if not pairs["alike"]:
        return []
    sentence = (
        f"embeddings: nearly collapsed, mean cosine of random candidates {pairs['similarity']:.3g} (threshold "
        f"{limit:g}). No temperature separates them."
    )
    cure = (
        "run `cocos run` on earlier checkpoints to find the step at which it happened, and lower the learning rate or "
        "warm it up there; if it was so before training, check the input of the network"
    )
    return [Finding("alike", "stop", sentence, cure)]


def meaningless(embeddings: Embeddings, metric: str) -> list[Finding]:
    """Find sides that are one point, or else rows that are mispaired or almost alike: numbers have no meaning then."""
    return collapse(embeddings, metric) or [*mispaired(embeddings, metric), *alike(embeddings, metric)]
