"""Synthetic inputs of the golden comparison, from numpy generators: no change of the package moves them."""

import numpy as np
import torch

import cocos

QUERIES, WIDTH, DISTRACTORS = 7, 6, 4
REGIMES = (
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


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their Euclidean norm."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def angle(query: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Scores of the AnglE loss: the size of the summed real and imaginary parts of unit rows as complex vectors."""
    half = query.shape[1] // 2
    first, second = (rows[:, :half] + 1j * rows[:, half:] for rows in (unit(query), unit(candidate)))
    product = first @ second.conj().T
    return np.abs(product.real + product.imag)


def scores_of(query: np.ndarray, candidate: np.ndarray, metric: str, variance: np.ndarray) -> np.ndarray:
    """Scores (Q, C) of raw rows under a metric; distances are negated, so that a higher score is closer."""
    squared = ((query[:, None] - candidate[None]) ** 2).sum(axis=2)
    if metric == "cosine":
        return unit(query) @ unit(candidate).T
    if metric == "dot":
        return query @ candidate.T
    if metric == "cosine_dot":  # a raw query, a unit candidate
        return unit(query) @ candidate.T
    if metric == "euclidean":
        return -np.sqrt(squared)
    if metric == "squared_euclidean":
        return -squared
    if metric == "squared_chord":
        return 2 * unit(query) @ unit(candidate).T - 2
    if metric == "mahalanobis":
        return -(((query[:, None] - candidate[None]) ** 2) / variance[None]).sum(axis=2)
    if metric == "angle":
        return angle(query, candidate)
    raise ValueError(f"metric: {metric!r}")


def tensors(**arrays: np.ndarray) -> dict[str, torch.Tensor]:
    """The same arrays as tensors."""
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def regime(name: str, metric: str) -> cocos.Pairs:
    """Pairs of one of nine regimes that break careless formulas, in float64, with norms, groups and a teacher."""
    number = REGIMES.index(name)
    random = np.random.default_rng(100 + number)
    if name in ("ties", "tiny"):
        shape = (QUERIES, 3 * QUERIES) if name == "ties" else (2, 2)
        positive = np.eye(*shape, dtype=bool)
        positive = positive | np.roll(positive, QUERIES, axis=1) if name == "ties" else positive
        scores = random.integers(-4, 5, shape) / 4 if name == "ties" else random.normal(size=shape).clip(-1, 1)
        if metric in ("euclidean", "squared_euclidean", "squared_chord", "mahalanobis"):
            scores = -np.abs(scores)
        query_norm, candidate_norm = 1 + random.random(shape[0]), 1 + random.random(shape[1])
        group = np.where(positive.any(axis=0), positive.argmax(axis=0), shape[0] + np.arange(shape[1]))
        negative = ~positive
    else:
        own = np.arange(QUERIES).repeat(1 if number % 2 else 3)
        query = random.normal(size=(QUERIES, WIDTH))
        candidate = query[own] + (0.01 if name == "separated" else 1.0) * random.normal(size=(len(own), WIDTH))
        candidate = np.concatenate([candidate, random.normal(size=(DISTRACTORS, WIDTH))])
        group = np.concatenate([own, QUERIES + np.arange(DISTRACTORS)])
        if name == "collapsed":
            centre = random.normal(size=WIDTH)
            query, candidate = centre + 1e-3 * query, centre + 1e-3 * candidate
        elif name == "duplicates":
            candidate[3] = candidate[-1] = candidate[0]
        elif name == "anti-aligned":
            candidate[: len(own)] = -query[own] + 0.1 * candidate[: len(own)]
        elif name == "large norms":
            query, candidate = 60 * query, 60 * candidate
            metric = "dot" if metric == "cosine" else metric
        variance = np.exp(random.normal(size=candidate.shape).clip(-2, 2))
        scores = scores_of(query, candidate, metric, variance)
        query_norm, candidate_norm = np.linalg.norm(query, axis=1), np.linalg.norm(candidate, axis=1)
        positive = np.arange(QUERIES)[:, None] == group[None]
        negative = ~positive
        if name == "empty rows":
            positive[0], negative[1] = False, False
            positive[2], negative[2] = False, False
    teacher = random.normal(size=scores.shape)
    teacher[random.random(scores.shape) < 0.1] = np.nan
    return cocos.Pairs(
        **tensors(
            scores=scores,
            positive=positive,
            negative=negative,
            candidate_group=group,
            query_norm=query_norm,
            candidate_norm=candidate_norm,
            teacher=teacher,
            logq=np.log(random.dirichlet(np.ones(scores.shape[1]))),
        )
    )


def labelled_pairs(metric: str) -> cocos.Pairs:
    """Pairs of eleven samples of four classes, one alone in its class; a sample is never its own candidate."""
    random = np.random.default_rng(200)
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 3])
    rows = random.normal(size=(4, WIDTH))[labels] + 0.7 * random.normal(size=(len(labels), WIDTH))
    same, other = labels[:, None] == labels[None], ~np.eye(len(labels), dtype=bool)
    variance, norm = np.ones_like(rows), np.linalg.norm(rows, axis=1)
    scores = scores_of(rows, rows, metric, variance)
    teacher = random.normal(size=scores.shape)
    return cocos.Pairs(
        **tensors(
            scores=scores,
            positive=same & other,
            negative=~same,
            candidate_group=labels,
            query_norm=norm,
            candidate_norm=norm,
            teacher=teacher,
        )
    )


def two_sided_pairs(metric: str, *, flipped: bool) -> cocos.Pairs:
    """Eight matched rows of two sides, asked from one side or from the other."""
    random = np.random.default_rng(300)
    first = random.normal(size=(8, WIDTH))
    second = first + 0.8 * random.normal(size=first.shape)
    if flipped:
        first, second = second, first
    scores = scores_of(first, second, metric, np.ones_like(second))
    positive = np.eye(len(first), dtype=bool)
    return cocos.Pairs(
        **tensors(
            scores=scores,
            positive=positive,
            negative=~positive,
            candidate_group=np.arange(len(first)),
            query_norm=np.linalg.norm(first, axis=1),
            candidate_norm=np.linalg.norm(second, axis=1),
            teacher=random.normal(size=scores.shape),
        )
    )


def pairs_set() -> dict[str, np.ndarray]:
    """Image-caption pairs: 90 matched rows, three of them near-duplicates."""
    random = np.random.default_rng(1)
    query = random.normal(size=(90, 12))
    candidate = query + 0.9 * random.normal(size=query.shape)
    candidate[5], candidate[17] = candidate[4] + 1e-3, candidate[16] - 1e-3
    group = np.arange(90)
    return {"query": query, "candidate": candidate, "query_group": group, "candidate_group": group}


def groups_set() -> dict[str, np.ndarray]:
    """Groups: 40 images, each with three captions."""
    random = np.random.default_rng(2)
    query, own = random.normal(size=(40, 12)), np.arange(40).repeat(3)
    candidate = query[own] + 1.1 * random.normal(size=(120, 12))
    return {"query": query, "candidate": candidate, "query_group": np.arange(40), "candidate_group": own}


def labelled_set() -> dict[str, np.ndarray]:
    """A labelled set: 96 samples of twelve classes."""
    random = np.random.default_rng(3)
    labels = random.permutation(np.arange(12).repeat(8))
    return {"embeddings": random.normal(size=(12, 12))[labels] + 0.9 * random.normal(size=(96, 12)), "labels": labels}


def proxies_set() -> dict[str, np.ndarray]:
    """Class proxies: 80 samples of ten classes, and a proxy of each class, with norms as a trained network has them."""
    random = np.random.default_rng(4)
    labels, proxies = np.arange(80) % 10, 3 * random.normal(size=(10, 12))
    samples = proxies[labels] + 2 * random.normal(size=(80, 12))
    return {"embeddings": samples, "labels": labels, "proxies": proxies, "proxy_labels": np.arange(10)}


def negatives_set() -> dict[str, np.ndarray]:
    """Queries with three own hard negatives each, one of them missing."""
    random = np.random.default_rng(5)
    query = random.normal(size=(60, 12))
    candidate = query + 0.9 * random.normal(size=query.shape)
    negatives = query[:, None] + 1.2 * random.normal(size=(60, 3, 12))
    negatives[7, 2] = np.nan
    group = np.arange(60)
    sides = {"query": query, "candidate": candidate, "query_group": group, "candidate_group": group}
    return sides | {"negatives": negatives}


def scores_set() -> dict[str, np.ndarray]:
    """Scores of a ranker, 30 x 45, with one or two positives a query, and log sampling probabilities."""
    random = np.random.default_rng(6)
    scores, positive = random.normal(size=(30, 45)), np.zeros((30, 45), dtype=bool)
    positive[np.arange(30), np.arange(30)] = True
    positive[np.arange(15), 30 + np.arange(15)] = True
    scores[positive] += 1.5
    logq = np.log(random.dirichlet(np.ones(45)))
    return {"scores": scores, "positive": positive, "logq": logq}


SETS = {
    "pairs": pairs_set,
    "groups": groups_set,
    "labelled": labelled_set,
    "proxies": proxies_set,
    "negatives": negatives_set,
    "scores": scores_set,
}


def source(name: str, dtype: torch.dtype = torch.float64) -> "cocos.Embeddings | cocos.Scores":
    """One of the six sets as cocos takes it."""
    arrays = SETS[name]()
    rows = {
        key: torch.from_numpy(array).to(dtype) if array.dtype == np.float64 else torch.from_numpy(array)
        for key, array in arrays.items()
    }
    if name == "scores":
        return cocos.Scores(**rows)
    if name == "labelled":
        return cocos.Embeddings.labelled(rows["embeddings"], rows["labels"])
    if name == "proxies":
        sides = rows["embeddings"], rows["proxies"], rows["labels"], rows["proxy_labels"]
        return cocos.Embeddings(*sides, directions=("s2p",))
    return cocos.Embeddings(**rows, directions=("i2t", "t2i") if name != "negatives" else ("q2c", "c2q"))


def large_set() -> "cocos.Embeddings":
    """Clustered pairs in float32, 600 rows a side, as a trained model has them."""
    random = np.random.default_rng(7)
    centres = random.normal(size=(40, 24))[np.arange(600) % 40]
    query = centres + 0.5 * random.normal(size=(600, 24))
    candidate = query + 0.4 * random.normal(size=query.shape)
    return cocos.Embeddings(torch.from_numpy(query).float(), torch.from_numpy(candidate).float())


def ensemble_member() -> "cocos.Embeddings":
    """Another model of the set of groups."""
    random, arrays = np.random.default_rng(9), groups_set()
    for side in ("query", "candidate"):
        arrays[side] = arrays[side] + 0.5 * random.normal(size=arrays[side].shape)
    rows = {key: torch.from_numpy(array) for key, array in arrays.items()}
    return cocos.Embeddings(**rows, directions=("i2t", "t2i"))
