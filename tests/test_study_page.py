"""The page of the study: every number is filled, none is typed, and a sentence that no number carries is refused."""

import ast
import re

import numpy as np
import pytest
import xarray as xr

import typed
from analysis.study import facts, page, statements
from cocos.base.errors import InputError
from cocos.reports import figures

pytestmark = pytest.mark.slow

FIGURES = [name for name in figures.names(facts.ROOT / "analysis") if name.startswith("study_")]
# Names with digits that are no result: measures, tests, versions of papers, the range of rsum, the level of intervals.
NAMES = re.compile(
    r"R@\d+|HC3|\bP[123]\b|\d{4}\.\d{5}|\d{4}-\d\d-\d\d|\b20\d\d\b|0 to 600|95 %|eps 0\.01|python3|utf-8|"
    r"k1 nor k2 is 1| = 1 |all-MiniLM-L6-v2|\breject 5 %|above 1 % of|--run 417"
)


def unnamed(text):
    """A text without names that have digits."""
    return typed.NAMES_WITH_DIGITS.sub("", NAMES.sub("", text))


@pytest.fixture(scope="module")
def found():
    return page.numbers()


def test_the_committed_page_says_what_the_results_say(found):
    assert page.PAGE.read_text("utf-8") == page.render(page.TEMPLATE.read_text("utf-8"), found), (
        "run: python -m analysis.study page"
    )


def test_nobody_types_a_result_into_the_template():
    prose = page.FIELD.sub("", page.TEMPLATE.read_text("utf-8"))
    assert not re.findall(r".*\d.*", unnamed(prose))


@pytest.mark.parametrize("module", [page, facts, statements])
def test_nobody_types_a_result_into_the_code_that_fills_it(module):
    with open(module.__file__, encoding="utf-8") as source:
        tree = ast.parse(source.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    assert not [text for text in typed.texts(tree.body) if re.search(r"\d", unnamed(text))]


def test_a_number_that_is_not_there_and_a_sentence_that_is_not_carried_are_refused():
    own = {"captions": {"p3": {"mean": 2.0, "low": 1.0, "high": 3.0}}}
    assert page.render("{{ captions/p3 | difference }}.{{ holds captions/p3/low > 0 }}", own) == "+2.0 [+1.0, +3.0]."
    for template, sentence in (
        ("{{ captions/p4 | difference }}", "no number 'captions/p4'"),
        ("{{ captions/p3 | words }}", "has no format"),
        ("{{ holds captions/p3/high < 0 }}", "rewrite the sentence"),
        ("{{ table nothing }}", "no table"),
    ):
        with pytest.raises(InputError, match=sentence):
            page.render(template, own)


@pytest.mark.parametrize(
    ("intervals", "sign", "words"),
    [
        ([(1, 2), (0.1, 3)], 1, "supported"),
        ([(1, 2), (0.1, 3)], -1, "contradicted"),
        ([(-1, 2), (-0.1, 3)], 1, "undecided"),
        ([(1, 2), (-1, 3)], 1, "captions: supported; emoji: undecided"),
        ([(None, None), (-2, -1)], -1, "captions: undecided; emoji: supported"),
    ],
)
def test_the_verdict_follows_from_the_intervals(intervals, sign, words):
    rows = {name: {"low": low, "high": high} for name, (low, high) in zip(page.DATA, intervals, strict=True)}
    assert statements.verdict(rows, sign) == words


def test_a_correlation_of_few_units_needs_its_test_too():
    one = {"rho": 0.9, "low": 0.1, "high": 1.0, "p": 0.083}
    assert statements.verdict({"losses": one}) == "undecided"
    assert statements.verdict({"losses": one | {"p": 0.01}}) == "supported"


def test_the_statements_of_all_papers_have_a_verdict(found):
    rows = statements.rows(found)
    assert {row[0] for row in rows} == {statements.SLIDES, statements.EXTENDED, statements.CROSS, statements.WARP}
    for _, statement, finding, verdict in rows:
        assert re.search(r"\d", finding) and re.search("supported|contradicted|undecided", verdict), statement


@pytest.mark.parametrize("name", FIGURES)
def test_the_figures_show_the_committed_results(name):
    """`cocos figures` keeps data as long as their inputs are the same; these are the results and the findings."""
    module, kept = facts.figure(name)
    fresh = module.data(None)
    assert list(fresh) == list(kept)
    for part, own in fresh.items():
        xr.testing.assert_allclose(own.drop_attrs(), kept[part].drop_attrs(), rtol=1e-12)
        for key, value in own.attrs.items():
            np.testing.assert_equal(kept[part].attrs[key], np.asarray(value) if np.ndim(value) else value)


def test_a_slope_per_doubling_is_the_rise_between_a_number_and_twice_it(found):
    """The results have slopes per unit of the natural logarithm; the page and its figure say them per doubling."""
    for data in page.DATA:
        for side, one in found["again"][data]["arch"]["two_lines"].items():
            rise = {key: one[key] * (np.log(26.0) - np.log(13.0)) for key in ("mean", "low", "high")}
            words = page.FORMATS["doubling"](one)
            assert words == statements.said(rise) and words != statements.said(one)
            module, parts = facts.figure("study_optimum")
            assert module._slope(parts[data], side) == words


def test_rings_of_the_figure_are_the_best_settings_of_the_table(found):
    """Both choose on validation items; on test items the best of NT-Xent is another."""
    module, parts = facts.figure("study_optimum")
    for data in page.DATA:
        rings, table = module._best(parts[data]), found[data]["best"]["128"]
        assert set(rings) == set(table) - {"triplet_sh"}
        for loss, (number, score) in rings.items():
            np.testing.assert_allclose((number, score), (table[loss]["effective"], table[loss]["rsum"]), rtol=1e-9)
