"""The page of the second study: every number is filled, none is typed, and its findings are those of the trainings."""

import ast
import json
import re

import pytest

import typed
from analysis.hold_study import findings, page
from analysis.study.page import FIELD
from cocos import results

pytestmark = pytest.mark.slow

# Names with digits that are no result: measures, tests, the rule of the target, the range of rsum, intervals.
NAMES = re.compile(r"R@\d+|\bH[12]\b|1\.35 B\^\(2/3\)|0 to 600|95 %|python3|utf-8")


def unnamed(text):
    """A text without names that have digits."""
    return typed.NAMES_WITH_DIGITS.sub("", NAMES.sub("", text))


def test_the_committed_page_says_what_the_results_say():
    filled = page.render(page.TEMPLATE.read_text("utf-8"), page.numbers(), page.FORMATS, page.TABLES)
    assert page.PAGE.read_text("utf-8") == filled, "run: python -m analysis.hold_study page"


def test_the_committed_findings_are_those_of_the_trainings():
    parts = [results.open(findings.RESULTS / f"{name}.nc") for name in ("cells", "factorial")]
    found = json.loads(json.dumps(findings.computed(*parts), default=lambda value: value.item()))
    kept = json.loads(findings.FILE.read_text("utf-8"))
    assert found.keys() == kept.keys()
    for name in ("tests", "differences", "regret", "edges", "runs"):
        assert flat(found[name]) == pytest.approx(flat(kept[name]))


def flat(found, path=""):
    """Numbers of nested dictionaries by their path."""
    if isinstance(found, dict):
        return {key: value for name, each in found.items() for key, value in flat(each, f"{path}/{name}").items()}
    return {path: found} if isinstance(found, int | float) else {}


def test_nobody_types_a_result_into_the_template():
    prose = FIELD.sub("", page.TEMPLATE.read_text("utf-8"))
    assert not re.findall(r".*\d.*", unnamed(prose))


def test_nobody_types_a_result_into_the_code_that_fills_it():
    tree = ast.parse((page.TEMPLATE.parent / "page.py").read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    assert not [text for text in typed.texts(tree.body) if re.search(r"\d", unnamed(text))]
