"""Ranges of options: each says what it checks, and what is out of it is refused, for all losses and all measures.

The values that are tried are made from the types in the signatures, so that a new option needs no test of its own.
"""

import dataclasses
import inspect
import math
import operator
import re

import pytest

from cocos import InputError, losses, measures
from cocos.base import ranges

# Numbers among which every range has an end, and words.
NUMBERS = (*range(-2, 8), 28.6, 29, 99, 100, 101, 1000, 1001, 10_000, 10_001, 100_001, 10**7, 10**16, *(-0.5, -0.1))
TRIED = (*NUMBERS, 0.1, 0.49, 0.5, 0.7, 0.99, 1.5, 2.5, 3.1, 3.2, 1e308, math.inf, -math.inf, math.nan, True, "x")
# Values of options that are several numbers.
SEVERAL = ((), (0.5, 0.5), (2.0, 1.0), (-2.0,), (0.5, 5.0))
# A number, or pi, in the words of a range.
END = r"(-?[\d.]*\d|pi)"
SIDES = {"above": operator.gt, "at least": operator.ge, "below": operator.lt, "at most": operator.le}
# Names of parameters that divide or multiply a score: they are above 0 in every loss.
ABOVE_ZERO = ("temperature", "scale")


def options():
    """Owner and name of every option that has a range, with the range and whether None is allowed."""
    for name in losses.names():
        for field in dataclasses.fields(losses.load(name)):
            allowed, optional = ranges.of(field.type)
            if allowed:
                yield f"losses.{name}", field.name, allowed, optional
    for name in measures.__all__:
        for each in inspect.signature(getattr(measures, name)).parameters.values():
            allowed, optional = ranges.of(each.annotation)
            if allowed and name != "document":
                yield f"measures.{name}", each.name, allowed, optional


OPTIONS = list(options())


def said(words, value):
    """What the words of a range say of a number; None where they say nothing of one number."""
    if found := re.fullmatch(r"an integer (?:of at least (\d+)|from (\d+) to (\d+))", words):
        least, low, high = (each and int(each) for each in found.groups())
        return type(value) is int and (value >= least if least is not None else low <= value <= high)
    if words.startswith(("two", "different")):
        return None
    meant = [(operator.gt, -math.inf), (operator.lt, math.inf)] if "finite" in words else []
    for ends, low, high in re.findall(rf"(from|between) {END} (?:to|and) {END}", words):
        above, below = (operator.ge, operator.le) if ends == "from" else (operator.gt, operator.lt)
        meant += [(above, low), (below, high)]
    meant += [(SIDES[side], bound) for side, bound in re.findall(rf"(above|at least|below|at most) {END}", words)]
    limits = [(holds, math.pi if bound == "pi" else float(bound)) for holds, bound in meant]
    return isinstance(value, int | float) and all(holds(value, bound) for holds, bound in limits) if meant else None


@pytest.mark.parametrize("words", sorted({each.words for *_, each, _ in OPTIONS}))
def test_a_range_checks_what_its_words_say(words):
    read = said(words, 1.0) is not None
    assert read or words.startswith(("one of", "two finite", "different"))
    for owner, name, allowed, _ in OPTIONS:
        if allowed.words == words and read:
            for value in TRIED[:-2]:
                assert allowed.holds(value) == said(words, value), (owner, name, value)


def refused(allowed):
    """Values of the range's own type that it does not hold; there is no range without one."""
    for value in (*TRIED, *SEVERAL):
        try:
            held = allowed.holds(value)
        except TypeError:
            continue
        if not held:
            yield value


@pytest.mark.parametrize(("owner", "name", "allowed", "optional"), OPTIONS, ids=str)
def test_a_value_out_of_its_range_gets_a_sentence(owner, name, allowed, optional):
    wrong = list(refused(allowed))
    assert wrong
    room, _, owner = owner.partition(".")
    for value in wrong:
        with pytest.raises((ValueError, InputError)) as error:
            if room == "losses":
                dataclasses.replace(losses.load(owner), **{name: value})
            else:
                getattr(measures, owner)(None, **{name: value})
        words = str(error.value)
        assert (
            allowed.words in words
            and str(value) in words
            and name.rstrip("_").replace("_", " ") in words.replace("_", " ")
        ), words


@pytest.mark.parametrize("name", losses.names())
def test_every_number_of_a_loss_has_a_range(name):
    """MagFace alone checks its bounds by each other."""
    for field in dataclasses.fields(losses.load(name)):
        if re.search(r"(^|\[|')(int|float)\b(?!, \.\.\.)", str(field.type)) and not (
            name == "magface" and field.name[1:2] == "_"
        ):
            allowed, _ = ranges.of(field.type)
            assert allowed is not None, f"{name}: {field.name} has no range"
            assert field.name not in ABOVE_ZERO or not allowed.holds(0.0)
