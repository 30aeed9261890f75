"""Inputs that every loss must survive: the nine regimes."""

import pytest
import torch
from hypothesis import settings

from cocos import Pairs, scores

settings.register_profile("cocos", derandomize=True, deadline=None)
settings.load_profile("cocos")
torch.set_num_threads(1)  # the tensors here are small: a second thread costs more than it brings

MARGINS = {"triplet": {"margin": 0.25}, "triplet_sh": {"margin": 0.25}}


def _unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


def _two_sided(generator, queries=7, captions=3, width=6, noise=1.0):
    query = torch.randn(queries, width, generator=generator, dtype=torch.float64)
    group = torch.arange(queries).repeat_interleave(captions)
    candidate = query[group] + noise * torch.randn(len(group), width, generator=generator, dtype=torch.float64)
    return query, candidate, torch.arange(queries)[:, None] == group[None, :]


def _regime(name, metric, seed):
    """Pairs of one regime. Scores are those of the metric, in float64."""
    generator = torch.Generator().manual_seed(seed)
    query, candidate, positive = _two_sided(generator)
    negative = ~positive
    if name == "collapsed":
        centre = torch.randn(1, 6, generator=generator, dtype=torch.float64)
        query, candidate = centre + 1e-3 * query, centre + 1e-3 * candidate
    elif name == "separated":
        query, candidate, positive = _two_sided(generator, noise=0.01)
        negative = ~positive
    elif name == "duplicates":
        candidate[5], candidate[11] = candidate[0], candidate[0]
    elif name == "anti-aligned":
        candidate = -query[torch.arange(7).repeat_interleave(3)] + 0.1 * candidate
    elif name == "large norms":
        query, candidate = 60 * query, 60 * candidate
        metric = "dot" if metric == "cosine" else metric  # scores that are far outside -1..1
    elif name == "empty rows":
        positive[0], negative[1] = False, False
        positive[2], negative[2] = False, False
    elif name == "ties":  # on a dyadic grid: every sum and difference is exact, and so is every tie
        values = torch.randint(-4, 5, (7, 21), generator=generator).to(torch.float64) / 4
        return Pairs(values, positive, negative)
    elif name == "tiny":
        shape = ((1, 1), (1, 2), (2, 2))[seed % 3]
        values = torch.randn(*shape, generator=generator, dtype=torch.float64).clamp(-1, 1)
        return Pairs(values, torch.eye(2, dtype=torch.bool)[: shape[0], : shape[1]])
    return Pairs(scores.METRICS[metric](query, candidate), positive, negative)


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


@pytest.fixture(params=REGIMES)
def regime(request):
    """(name, metric, seed) -> Pairs, for one regime at a time."""

    def build(metric, seed=0):
        return _regime(request.param, metric, seed)

    build.name = request.param
    return build


@pytest.fixture
def random_pairs():
    """Pairs of the random regime."""
    return lambda metric="cosine", seed=0: _regime("random", metric, seed)
