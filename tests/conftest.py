"""Inputs that every loss must survive: the nine regimes that `verify` uses. How tests are shared among processes."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tensors here are small: a second thread costs more than it brings

import pytest
import torch
from hypothesis import settings

from cocos.measures import _regimes

settings.register_profile("cocos", derandomize=True, deadline=None)
settings.load_profile("cocos")
torch.set_num_threads(1)
MOST = 8  # processes that run tests: each holds PyTorch


def pytest_xdist_auto_num_workers(config):
    """A run of all tests takes every core; a few named files are done before other processes have started."""
    if any(".py" in argument for argument in config.args):
        return 0
    return min(MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())


@pytest.fixture(autouse=True, scope="session")
def embeddings_cache(tmp_path_factory):
    """Tests share a cache of embeddings of their own; processes that they start inherit it."""
    os.environ["COCOS_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Sentences of a table are looked for in one line; tests/test_terminal.py looks at the widths."""
    monkeypatch.setenv("COLUMNS", "300")


@pytest.fixture(params=_regimes.SYNTHETIC_REGIMES)
def regime(request):
    """(metric, seed) -> Pairs, for one regime at a time."""

    def build(metric, seed=0):
        return _regimes.build(request.param, metric, seed)

    build.name = request.param
    return build


@pytest.fixture
def random_pairs():
    """Pairs of the random regime."""
    return lambda metric="cosine", seed=0: _regimes.build("random", metric, seed)
