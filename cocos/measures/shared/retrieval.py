"""Retrieval metrics: plain functions of the ranks of positives. Fractions are in percent, 0 to 100.

A negative that ties with a positive ranks above it, so embeddings that are all the same score R@1 = 0, not 100. The
positives of a query are ordered by score, and do not compete: the rank of its m-th best positive is m plus the number
of negatives at or above it. Queries without any positive take no part.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from cocos import engine
from cocos.base.errors import InputError
from cocos.embeddings import Embeddings
from cocos.embeddings.options import Progress
from cocos.embeddings.sampling import Batch
from cocos.embeddings.similarities import NORMALISED_SIDES
from cocos.embeddings.stored import Stored
from cocos.engine.readers.curves import PrecisionRecall
from cocos.engine.readers.ranks import PositiveRanks, Ranks

TIES = "a negative that ties with a positive stands above it"
RECALLS = (1, 5, 10)  # cut-offs of the average recall and of rsum
TIED_SCORES = 1e-12  # largest difference of two scores that tie
SECTION_BYTES = 2**26  # of candidates in float32 that are read from a disk and ranked together
DISTANCE_BLOCK = 2**21  # distances to centres that are computed at once: 8 MiB in float32
CENTRE_COLUMNS = 64  # centres with distances computed together when a start is drawn
SINGLE_DRAWS = 512  # centres up to which a start draws one after the other
ITERATIONS = 100  # most iterations of k-means; most sets need 10 to 40
FEWEST_ITERATIONS = 5  # of k-means that must fit the budget; otherwise classes are drawn
BUDGET = 2**40  # multiplications of k-means: 40 seconds of one core, with SciPy's search for the nearest centre

# Long name and units of metrics and sizes.
METRIC_LABELS = {
    "queries": ("queries with a positive", "queries"),
    "candidates": ("ranked candidates", "candidates"),
    "R@k": ("queries with a positive among the first {k}", "%"),
    "average_recall": ("mean of R@1, R@5 and R@10", "%"),
    "median_rank": ("median rank of the best positive", "rank"),
    "mean_rank": ("mean rank of the best positive", "rank"),
    "MRR": ("mean reciprocal rank of the best positive", "%"),
    "mAP@k": ("mean average precision among the first {k}, over min({k}, positives)", "%"),
    "mAP": ("mean average precision over all positives", "%"),
    "mAP@R": ("mean average precision among the first R, R the number of positives", "%"),
    "R-precision": ("positives among the first R, R their number", "%"),
    "MRR@k": ("mean reciprocal rank of the best positive, 0 beyond {k}", "%"),
    "recall@k": ("positives among the first {k}, mean over queries", "%"),
    "nDCG@k": ("normalised discounted cumulative gain of the first {k}", "%"),
    "MAP": ("mean average precision over all positives, listed or not", "%"),
    "tied": ("queries whose best positive ties with a negative", "%"),
    "left_out": ("queries without any positive, left out", "queries"),
    "unmatched": ("candidates that match no query: distractors", "candidates"),
    "rsum": ("sum of R@1, R@5 and R@10 of both directions", "%"),
    "PR-AUC": ("average precision over all pairs of the first direction, one threshold for all", "%"),
    "accuracy": ("samples whose nearest proxy is of their class", "%"),
    "accuracy@k": ("samples with a proxy of their class among the first {k}", "%"),
    "AvgDTP": ("distance to the own proxy, mean over classes of the mean over samples", "distance"),
    "NMI": ("normalised mutual information of classes and k-means clusters", "%"),
}


def check(ks: Iterable[int]) -> tuple[int, ...]:
    """Check cut-offs, and return them in ascending order, each once."""
    ks = tuple(ks)
    for k in ks:
        if not isinstance(k, Integral) or isinstance(k, bool) or not 1 <= k < 2**31:
            raise InputError(f"k: {k!r}, expected integers of at least 1 and below 2^31, like 1, 5 and 10")
    if not ks:
        raise InputError("k: none is given, expected integers of at least 1, like 1, 5 and 10")
    return tuple(sorted({int(k) for k in ks}))


def label(name: str) -> tuple[str, str]:
    """Return the long name and units of a metric, like `R@5`.

    Examples:
        >>> from cocos.measures.shared import retrieval
        >>> retrieval.label("R@5")
        ('queries with a positive among the first 5', '%')
    """
    kind, _, k = name.partition("@")
    long_name, units = METRIC_LABELS.get(name) or METRIC_LABELS[f"{kind}@k"]
    return long_name.format(k=k), units


def metrics(ranked: PositiveRanks, ks: Iterable[int] = (1, 5, 10)) -> dict[str, float]:
    r"""Return the metrics of one direction, in percent except the two ranks, over the queries with a positive.

    With :math:`r_m` the rank of the m-th best of the R positives of a query:

    - `R@k`: fraction of the queries with a positive among the first k, :math:`r_1 \le k`.
    - `average_recall`: mean of R@1, R@5 and R@10.
    - `median_rank`, `mean_rank`: of the best positive, from 1. VSE++ prints the median rounded down.
    - `MRR`: mean of :math:`1 / r_1`.
    - `mAP`: mean of :math:`\frac1R \sum_m m / r_m`, over all positives.
    - `mAP@k`: mean of :math:`\frac1{\min(k, R)} \sum_{r_m \le k} m / r_m`. The published code of Bleeker & de Rijke
      2022 divides by the positives found among the first k instead, which gives 1 to a single hit at rank 1.
    - `mAP@R`: mean of :math:`\frac1R \sum_{r_m \le R} m / r_m`.
    - `R-precision`: mean fraction of the first R that are positive.
    - `tied`: fraction of the queries with a negative that ties with the best positive.

    Raises:
        InputError: no query has a positive, or a cut-off is not an integer of at least 1.

    Source: mAP@R and R-precision: Musgrave et al. 2020, arXiv:2003.08505, section 3.2. R@k and ranks of images with
    several captions: Faghri et al. 2018, arXiv:1707.05612, by the best-placed caption.
    """
    ks = check(ks)
    if not len(ranked.query):
        raise InputError("no query has any positive: there is nothing to evaluate")
    beaten = ranked.above + ranked.ties
    order = (ranked.above + beaten).argsort(stable=True)  # ascending as the scores descend
    order = order[ranked.query[order].argsort(stable=True)]
    number = ranked.query[order].unique_consecutive(return_counts=True)[1]
    first = number.cumsum(0) - number
    positives = number.repeat_interleave(number)
    place = torch.arange(1, len(order) + 1, device=order.device) - first.repeat_interleave(number)
    rank = place + beaten[order]
    precision, best = place.double() / rank, rank[first]

    def over_queries(values: Tensor) -> float:
        return 100 * float(values.sum(dtype=torch.float64)) / len(number)

    middle = best.sort().values[[(len(best) - 1) // 2, len(best) // 2]]
    return {
        **{f"R@{k}": over_queries(best <= k) for k in ks},
        "average_recall": sum(over_queries(best <= k) for k in RECALLS) / len(RECALLS),
        "median_rank": float(middle.double().mean()),
        "mean_rank": float(best.double().mean()),
        "MRR": over_queries(1 / best.double()),
        **{f"mAP@{k}": over_queries(torch.where(rank <= k, precision / positives.clamp(max=k), 0)) for k in ks},
        "mAP": over_queries(precision / positives),
        "mAP@R": over_queries(torch.where(rank <= positives, precision / positives, 0)),
        "R-precision": over_queries(torch.where(rank <= positives, 1 / positives.double(), 0)),
        "tied": over_queries(ranked.ties[order][first] > 0),
    }


def ranked(embeddings: Embeddings, metric: str, dtype: str, progress: Progress | None = None) -> list:
    """Rank the positives of the whole set in each direction, and return its precision-recall curve, in one pass.

    `dtype` is that of the products; close scores are decided in float64.
    """
    readers = [Ranks(), PrecisionRecall()]
    return engine.run(
        engine.view(embeddings, metric=metric, product=dtype), readers, progress=progress and progress("ranking")
    )


def rank_on_disk(
    stored: Stored, side: int, index: Tensor, metric: str, report: Callable[[int, int], None] | None = None
) -> PositiveRanks:
    """Rank the positives of queries among all candidates, which are read section by section.

    All positives are candidates of every section; ranks among positives are counted once.

    Args:
        stored: the set on a disk.
        side: of the queries: 0, or 1 for the candidates.
        index: (n,) rows of the queries, ascending; each has a positive.
        metric: of the scores.
        report: called with (done, in all) candidates.
    """
    positive = bool(NORMALISED_SIDES.get(metric))
    number, width = stored.sides[1 - side].shape
    positives = index
    if not stored.matched:
        group, other_group = stored.group(side, index), stored.group(1 - side, torch.arange(number))
        positives = torch.isin(other_group, group).nonzero().flatten()

    def rank(candidates: Tensor) -> PositiveRanks:
        if stored.shared:  # the queries are candidates as well
            embeddings = stored.read_rows((candidates, candidates), positive=positive)
            queries = torch.searchsorted(candidates, index)
        else:
            rows = (candidates, index) if side else (index, candidates)
            embeddings = stored.read_rows(rows, positive=positive)
            embeddings = (embeddings.flip() if side else embeddings).single(stored.directions[side])
            queries = torch.arange(len(index))
        batch = Batch(queries, torch.arange(len(candidates)), paired=False)
        ((ranks,),) = engine.run(engine.view(embeddings, batch, metric=metric), [Ranks()])
        order = ranks.score.argsort(stable=True)  # the places of the candidates differ between sections
        order = order[ranks.query[order].argsort(stable=True)]
        return PositiveRanks(*(values[order] for values in vars(ranks).values()))

    among_positives = rank(positives)
    above, ties = among_positives.above.clone(), among_positives.ties.clone()
    size = max(1, SECTION_BYTES // (4 * width))
    for start in range(0, number, size):
        section = torch.arange(start, min(start + size, number))
        is_other = torch.ones(len(section), dtype=torch.bool)
        is_other[positives[(positives >= start) & (positives < start + size)] - start] = False
        section = section[is_other]
        if len(section):
            ranks = rank(torch.cat([positives, section]).sort().values)
            above += ranks.above - among_positives.above
            ties += ranks.ties - among_positives.ties
        if report:
            report(min(start + size, number), number)
    return replace(among_positives, above=above, ties=ties)


def variables(
    directions: Sequence[str], ranks: Iterable[PositiveRanks], curve=None, ks: Iterable[int] = RECALLS
) -> dict[str, tuple]:
    """Return the variables of a Dataset: metrics of each direction, (direction,), and of the whole set."""
    by_direction = [metrics(side, ks) for _, side in zip(directions, ranks, strict=True)]
    first, *second = by_direction
    variables: dict[str, tuple] = {name: ("direction", [side[name] for side in by_direction]) for name in first}
    if curve is not None:
        variables["PR-AUC"] = ((), average_precision(curve.score, curve.negatives))
    if second:
        variables["rsum"] = ((), rsum(first, second[0]))
    return {name: (*variable, *label(name)) for name, variable in variables.items()}


def best_ranks(number: int, asking: Tensor, ranked: PositiveRanks) -> Tensor:
    """Return the rank of the best positive of each row, (number,) float64; NaN for other rows.

    Args:
        number: number of rows.
        asking: (n,) rows that are queries.
        ranked: the ranks; their queries are places among these.
    """
    best = torch.full((number,), torch.inf, dtype=torch.float64, device=ranked.query.device)
    rank = (1 + ranked.above + ranked.ties).double()
    best = best.scatter_reduce(0, asking.to(ranked.query.device)[ranked.query], rank, "amin")
    return torch.where(best.isinf(), torch.nan, best).cpu()


def rsum(first: dict[str, float], second: dict[str, float]) -> float:
    """Return the sum of R@1, R@5 and R@10 of both directions, 0 to 600, from their `metrics`."""
    return len(RECALLS) * (first["average_recall"] + second["average_recall"])


def average_precision(score: Tensor, negatives: Tensor) -> float:
    r"""Return the PR-AUC of one threshold for all queries, in percent: average precision over all pairs.

    .. math:: \sum_i (R_i - R_{i-1}) P_i

    over the thresholds i at which recall R grows, with precision P and without interpolation. Pairs that tie have one
    threshold. It requires comparable scores of all queries; the rank metrics do not. The area by trapezoids differs by
    a few hundredths of a point on sets of some hundred queries (67.56, not 67.60); the paper does not define it.

    Args:
        score: (P,) float64 of all positive pairs, descending.
        negatives: (P,) negative pairs that score at or above each.

    Source: Veit & Wilber 2020, arXiv:2011.08824, table 1.
    """
    positives = torch.searchsorted(-score, TIED_SCORES - score, right=True)
    return 100 * float((positives / (positives + negatives).double()).mean())


def kmeans_plus_plus(vectors: Tensor, number: int, seed: int = 0) -> Tensor:
    """Draw rows to start k-means from, (number, D), each by its squared distance to the rows before it.

    Beyond `SINGLE_DRAWS` centres several are drawn together, evenly over the same distribution, so that the start
    costs no more than one iteration.

    Source: Arthur & Vassilvitskii 2007, "k-means++: the advantages of careful seeding"; draws of several: Bahmani et
    al. 2012, "Scalable k-means++", arXiv:1203.6402.
    """
    generator = torch.Generator().manual_seed(seed)
    turns = torch.rand(number, generator=generator, dtype=torch.float64).to(vectors.device)
    squares = vectors.square().sum(dim=1)
    gap = torch.ones(len(vectors), dtype=torch.float64, device=vectors.device)
    starts, nearest = [], torch.full_like(gap, torch.inf)
    for turn in turns.split(-(-number // SINGLE_DRAWS)):
        total = gap.cumsum(0)
        place = (torch.arange(len(turn), device=turn.device) + turn) / len(turn)
        chosen = torch.searchsorted(total, place * total[-1], right=True).clamp(max=len(vectors) - 1)
        starts.append(vectors[chosen])
        for part in starts[-1].split(CENTRE_COLUMNS):
            distance = squares[:, None] + part.square().sum(dim=1) - 2 * (vectors @ part.T)
            nearest = torch.minimum(nearest, distance.amin(dim=1).clamp(min=0).double())
        gap = torch.where(nearest.sum() > 0, nearest, 1)
    return torch.cat(starts)


def kmeans(vectors: Tensor, centres: Tensor, iterations: int = ITERATIONS) -> tuple[Tensor, int]:
    """Return the cluster of each row, (N,), by Lloyd's iterations from (K, D) centres, and the number of last changes.

    They end when less than one row in a thousand changes. An empty cluster keeps its centre. The clusters are the
    result of `scipy.cluster.vq.kmeans2` from this start, without its matrix of all distances.
    """
    from scipy.cluster.vq import vq  # half a second, which only labelled sets need

    rows, places = vectors.cpu().numpy(), centres.cpu().numpy()
    parts = np.array_split(rows, -(-len(rows) * len(places) // DISTANCE_BLOCK))
    labels, moved = np.full(len(rows), -1), len(rows)
    for _ in range(iterations):
        new = np.concatenate([vq(part, places, check_finite=False)[0] for part in parts]).astype(np.int64)
        moved, labels = int((new != labels).sum()), new
        if 1000 * moved < len(rows):
            break
        order = labels.argsort(kind="stable")
        clusters, first = np.unique(labels[order], return_index=True)
        total = np.add.reduceat(rows[order], first, axis=0, dtype=np.float64)
        places = places.copy()
        places[clusters] = total / np.diff(first, append=len(rows))[:, None]
    return torch.from_numpy(labels).to(vectors.device), moved


def clustered(vectors: Tensor, labels: Tensor, seed: int = 0) -> tuple[float, str]:
    """Return the NMI of classes, (N,), and as many k-means clusters, in percent, and a note if its cost was bounded.

    All iterations and the start together cost at most `BUDGET`. If fewer than `FEWEST_ITERATIONS` fit, classes are
    drawn by the seed, with all of their rows, until they do.
    """
    ids, places, number = labels.unique(return_inverse=True, return_counts=True)
    classes, samples, width, note = len(ids), len(labels), vectors.shape[1], ""
    order = torch.randperm(classes, generator=torch.Generator().manual_seed(seed)).to(labels.device)
    cost = number[order].cumsum(0) * torch.arange(1, classes + 1, device=labels.device) * width
    affordable = max(2, int((cost * (FEWEST_ITERATIONS + 1) <= BUDGET).sum()))
    if affordable < classes:
        inside = torch.isin(places, order[:affordable])
        vectors, labels = vectors[inside], labels[inside]
        part = f"{affordable:,} of the {classes:,} classes"
        note = f"NMI: of {part}, drawn by the seed ({len(labels):,} of {samples:,} samples)"
        classes = affordable
    most = min(ITERATIONS, max(FEWEST_ITERATIONS, BUDGET // (len(labels) * classes * width) - 1))
    clusters, moved = kmeans(vectors, kmeans_plus_plus(vectors, classes, seed), most)
    if 1000 * moved >= len(labels) and moved:
        note += f"{'; ' if note else 'NMI: '}k-means ended after {most} iterations, {moved:,} samples still moving"
    return nmi(labels, clusters), note


def nmi(labels: Tensor, clusters: Tensor) -> float:
    r"""Return the normalised mutual information of two partitions, (N,) each, in percent: :math:`2 I / (H_1 + H_2)`.

    The arithmetic mean normalises, as in scikit-learn; the geometric mean of other code is at least as large.
    """
    _, left, first = labels.unique(return_inverse=True, return_counts=True)
    _, right, second = clusters.unique(return_inverse=True, return_counts=True)
    joint = (left * len(second) + right).unique(return_counts=True)[1]

    def entropy(counts: Tensor) -> float:
        part = counts.double() / len(labels)
        return float(-(part * part.log()).sum())

    apart = entropy(first) + entropy(second)
    return 100.0 if apart == 0 else 100 * min(1.0, max(0.0, 2 * (apart - entropy(joint)) / apart))
