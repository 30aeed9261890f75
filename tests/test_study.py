"""The page of the study contains the estimates that analysis/study.py computes."""

import re
from pathlib import Path

import numpy as np
import pytest

from analysis import study

PAGE = (Path(__file__).parents[1] / "docs" / "study.md").read_text("utf-8")


@pytest.fixture(scope="module")
def numbers():
    return dict(study.numbers())


def test_page_contains_every_estimate(numbers):
    missing = [name for name, text in numbers.items() if not all(part in PAGE for part in text.split(", n = ")[:1])]
    assert not missing


def test_page_has_no_other_interval(numbers):
    intervals = re.findall(r"[+-]?[\d.]+ \[[^]]+, [^]]+\]", PAGE)
    assert len(intervals) > 30 and all(any(one in text for text in numbers.values()) for one in intervals)


def test_paired_matches_hand_computation():
    estimate = study.paired([1.0, 2.0, 3.0])  # mean 2, standard error 1/sqrt(3), t = 4.303 with 2 degrees of freedom
    assert (estimate.value, estimate.n) == (2, 3) and estimate.high - 2 == pytest.approx(4.303 / 3**0.5, rel=1e-3)


def test_rank_correlation_within_blocks():
    x, y = [1, 2, 3, 4, 11, 12, 13, 14], [4, 3, 2, 1, 14, 13, 12, 11]
    estimate = study.rank_correlation(x, y, ["a"] * 4 + ["b"] * 4, draws=1000)
    assert estimate.value == pytest.approx(-1) and estimate.n == 8 and estimate.p == pytest.approx(2 / 576)


def test_two_lines_find_their_slopes():
    number = np.tile([4.0, 8.0, 16.0, 32.0, 64.0], 2)
    score = np.tile([10.0, 20.0, 30.0, 25.0, 20.0], 2) + np.repeat([0.0, 7.0], 5)
    loss = np.repeat(["a", "b"], 5)
    assert [slope.value for slope in study.two_lines(number, score, loss)] == pytest.approx([10, -5])
    assert study.meeting_point(number, score, loss, resamples=20).value == 16
