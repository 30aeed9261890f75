"""What the examples in docstrings may use without an import, and an empty figure for each of them."""

import importlib.util
import sys

import pytest

# Files that need the library of a trainer, with its name; their examples run where it is installed.
TRAINERS = {"cocos/monitor/lightning.py": "lightning", "cocos/monitor/trainers.py": "transformers"}
collect_ignore = [path for path, library in TRAINERS.items() if importlib.util.find_spec(library) is None]


@pytest.fixture(autouse=True)
def example(request, doctest_namespace):
    """The names `cocos` and `torch`; figures are closed afterwards."""
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    import torch  # not before tests/conftest.py has set the number of threads

    import cocos

    doctest_namespace.update(cocos=cocos, torch=torch)
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
