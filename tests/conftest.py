"""Inputs that every loss must survive: the nine regimes that `verify` uses. How tests are shared; which are slow."""

import contextlib
import functools
import gc
import os
import subprocess

import pytest

import children

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tensors here are small: a second thread costs more than it brings
gc.disable()  # until all is imported: there is no garbage in modules
collect_ignore_glob = ["faults/*", "oracles/*"]  # no tests, and no examples in docstrings
MOST = 8  # processes that run tests: each holds PyTorch


def pytest_xdist_auto_num_workers(config):
    """A run of all tests takes every core; a few named files are done before other processes have started."""
    if any(".py" in argument for argument in config.args):
        return 0
    return min(MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())


def pytest_configure(config):
    """Set up a process that runs tests; one that only hands them out imports nothing heavy.

    A run of all tests leaves out the slow ones, which `-m slow` runs; a run of named files has all that they hold.
    """
    if not config.option.markexpr and not any(".py" in argument for argument in config.args):
        config.option.markexpr = "not slow"
    if config.option.tx:
        return
    import torch
    from hypothesis import settings

    from cocos.engine.kernel import build

    if not build.is_current():  # in a checkout that is not installed
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # without a compiler, PyTorch reads the tiles
            build.main()
    settings.register_profile("cocos", derandomize=True, deadline=None)
    settings.load_profile("cocos")
    torch.set_num_threads(1)


def pytest_itemcollected(item):
    """A test in a browser is slow."""
    if "browser" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """Leave modules and cases, which stay, out of every later collection of garbage."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def fresh():
    """`children.python` in an interpreter that has imported PyTorch, and nothing of cocos; one for all tests."""
    with children.fresh() as python:
        yield python


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Sentences of a table are looked for in one line; tests/test_terminal.py looks at the widths."""
    monkeypatch.setenv("COLUMNS", "300")


@pytest.fixture(scope="session")
def regimes():
    """Name of each regime, and (metric, seed) -> its Pairs, which are built once."""
    from cocos.measures.shared import synthetic_inputs

    built = functools.cache(synthetic_inputs.build)
    return [(name, functools.partial(built, name)) for name in synthetic_inputs.SYNTHETIC_REGIMES]


@pytest.fixture
def random_pairs():
    """Pairs of the random regime."""
    from cocos.measures.shared import synthetic_inputs

    return lambda metric="cosine", seed=0: synthetic_inputs.build("random", metric, seed)
