"""Captions are filled from the data of their figures, and nobody types a result into one."""

import re
from pathlib import Path

import pytest

from cocos import InputError
from cocos.reports import captions, figures
from typed import typed_digits

ROOT = Path(__file__).parent.parent
ANALYSIS, FOLDER = ROOT / "analysis", ROOT / "figures"


@pytest.mark.slow
def test_the_committed_index_says_what_the_committed_data_say():
    assert (FOLDER / "README.md").read_text("utf-8") == figures.index(ANALYSIS, FOLDER)


def test_the_sentence_under_the_first_picture_says_what_its_data_say():
    module, _ = figures._loaded(ANALYSIS / "contributing_negatives.py")
    sentence = module.hero(figures._kept(FOLDER / "contributing_negatives.nc"))
    assert sentence in " ".join((ROOT / "README.md").read_text("utf-8").split())


@pytest.mark.parametrize("name", figures.names(ANALYSIS))
def test_nobody_types_a_result(name):
    assert not typed_digits((ANALYSIS / f"{name}.py").read_text("utf-8"))


@pytest.mark.parametrize(
    "body",
    [
        "return 'R@1 is 70.1 %'",
        "return f'R@1 is {70.1:.1f} %'",
        "return f'{len(parts)} losses, 46 % idle'",
        "return _said()",
        "return 'a' if parts else 'with k1 = 1'",
        "return DIFFERS",
    ],
)
def test_a_typed_result_is_found(body):
    source = f"DIFFERS = 'of 3 seeds'\ndef _said():\n    return 'r = 0.996'\ndef agrees(parts):\n    {body}\n"
    assert len(typed_digits(source)) == (2 if "_said" in body else 1 + ("DIFFERS" not in body))
    assert not typed_digits(source.replace("of 3 seeds", "").replace(body, "return 'see Table III, eq. 5: k1, R@1'"))


def test_words_that_are_not_true_are_refused():
    assert captions.holds(True, "it rises") == "it rises"
    with pytest.raises(InputError, match="the caption says 'it rises', and its data do not"):
        captions.holds(False, "it rises")


def test_every_picture_has_a_claim_and_a_sentence_for_those_who_cannot_see_it():
    text = (FOLDER / "README.md").read_text("utf-8")
    names = figures.names(ANALYSIS)
    for head in ("Claim", "Evidence", "Published"):
        assert text.count(f"- **{head}:** ") == len(names)
    alts = re.findall(r"!\[(.*)\]\((\w+)\.png\)", text)
    assert [name for _, name in alts] == names
    assert all(len(alt.split()) > 7 and alt.endswith(".") and "nan" not in alt.split() for alt, _ in alts)
