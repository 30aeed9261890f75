"""What the examples in docstrings may use without an import, and an empty figure for each of them."""

import sys

import pytest


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
