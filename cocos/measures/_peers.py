"""Differences from the same loss of pytorch-metric-learning, if it is installed: value and gradient."""

import importlib.util

from cocos import losses, scores
from cocos.measures import _regimes, _trials
from cocos.scores import Pairs

PEER_LIBRARY = "pytorch_metric_learning"
PEER_LENGTH = {"distance": "LpDistance", "distance.normalize_embeddings": False, "distance.power": 1}
PEER_DISTANCES = {
    "cosine": {"distance": "CosineSimilarity"},
    "dot": {"distance": "DotProductSimilarity", "distance.normalize_embeddings": False},
    "euclidean": PEER_LENGTH,
    "squared_euclidean": PEER_LENGTH | {"distance.power": 2},
}
# Seeds of labelled sets with unit embeddings, and of two sides with one positive a query.
UNIT_SEEDS, ONE_POSITIVE_SEEDS = (1, 3), (1, 3)


def _inputs(setting: str, metric: str) -> list[Pairs]:
    if setting == "labelled":
        return [_regimes.labelled(metric, seed) for seed in UNIT_SEEDS]
    return [scores.pairs(_regimes.embeddings("random", seed), metric=metric) for seed in ONE_POSITIVE_SEEDS]


def parity(loss) -> tuple[float, float, str] | None:
    """Largest distance from the library's loss, of the value and of the gradient of the embeddings, in float64.

    Returns:
        Both relative to their size, with the name of the peer; None where there is no peer.
    """
    peer = loss.peer() if isinstance(loss, losses.HasPeer) else None
    if peer is None or importlib.util.find_spec(PEER_LIBRARY) is None:
        return None
    name, arguments, setting = peer
    theirs = losses.load(f"pml:{name}", PEER_DISTANCES[loss.metric] | arguments)
    value_gap = gradient_gap = 0.0
    for pairs in _inputs(setting, loss.metric):
        (a, ours), (b, other) = (_trials.embedding_gradient(each, pairs) for each in (loss, theirs))
        if arguments.get("distance.normalize_embeddings"):  # it divides unit rows by their norms once more
            ours, other = (g - (g * pairs.embeddings.query).sum(dim=1, keepdim=True) * pairs.embeddings.query
                           for g in (ours, other))  # fmt: skip
        value_gap = max(value_gap, ((a - b).abs() / a.abs().clamp(min=1)).item())
        gradient_gap = max(gradient_gap, ((ours - other).abs().max() / ours.abs().max().clamp(min=1e-12)).item())
    return value_gap, gradient_gap, repr(theirs)
