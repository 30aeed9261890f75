"""Errors of the tokenizer library become one sentence; signals pass."""

import pytest

from cocos.base.errors import InputError
from cocos.checkpoints import tokenizer


class Panicked(BaseException):
    """As the library of tokenizers panics."""


Panicked.__name__ = tokenizer.PANIC


@pytest.mark.parametrize("error", [ValueError("no such\npiece"), Panicked("index out of range")])
def test_errors_and_panics_of_the_library_are_a_sentence(error):
    def fails():
        raise error

    with pytest.raises(
        InputError, match=r"^tokenizer: (ValueError: no such piece|PanicException: index out of range)$"
    ):
        tokenizer._interruptible(fails)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), MemoryError(), InputError("own")])
def test_signals_and_errors_of_the_machine_pass(error):
    def fails():
        raise error

    with pytest.raises(type(error)) as found:
        tokenizer._interruptible(fails)
    assert found.value is error
