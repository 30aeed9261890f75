"""Known bugs of libraries: each is caught with its sentence, and its right twin is the same."""

import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from analysis.known_bugs import page, recreated
from analysis.known_bugs.__main__ import app
from analysis.known_bugs.bugs import BUGS, said
from cocos.engine.pair_gradients import synthetic

PAGE = Path(__file__).parent.parent / "docs" / "library_bugs.md"


@pytest.fixture(scope="module")
def written():
    return PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", BUGS)
def test_the_fault_is_named_and_the_corrected_version_is_the_same(name, written):
    bug = BUGS[name]
    verdict = said(bug)
    assert bug.names in verdict and bug.names != "the same"
    assert said(bug, cured=True) == "the same"
    section = written.partition(f"## {name}\n")[2].partition("\n## ")[0]
    assert bug.fault in section and f"({bug.thread})" in section and bug.library in section
    assert f"verdict: *{verdict}*" in section and "corrected: *the same*" in section


def test_the_page_has_all_of_them_and_no_other(written):
    assert re.findall(r"^## (.*)$", written, re.MULTILINE) == list(BUGS)
    assert written.startswith(page.HEAD.format(number=len(BUGS)))
    assert len({bug.thread for bug in BUGS.values()}) == len(BUGS) >= 8


def test_the_command_lists_and_shows_one():
    listed = CliRunner().invoke(app, ["list"])
    assert listed.exit_code == 0 and all(bug.thread in listed.stdout for bug in BUGS.values())
    one = CliRunner().invoke(app, ["scale-as-stored"])
    assert one.exit_code == 0 and "cocos: another temperature" in one.stdout and "cocos: the same" in one.stdout
    assert CliRunner().invoke(app, ["nothing"]).exit_code == 2


def test_values_tell_nothing_where_only_a_gradient_is_lost():
    """The fault of a collective without backward does not show in the loss."""
    rows = synthetic(64, 0, 0, torch.device("cpu"))
    for wrong, right in (
        (recreated.reduced_without_gradient, recreated.reduced_with_gradient),
        (recreated.local_loss_alone, recreated.local_loss_and_gradient),
        (recreated.guide_with_offset, recreated.guide_whole),
    ):
        torch.testing.assert_close(wrong(rows.query, rows.candidate), right(rows.query, rows.candidate))
