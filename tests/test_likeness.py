"""Texts that are equal up to spelling, and names that were cut."""

from cocos.checkpoints import encoded
from cocos.embeddings import likeness


def test_spelling_is_made_alike_in_any_script():
    assert likeness.normal("  Ｆｕｌｌ width_ STRASSE—ok ") == "full width strasse ok"
    assert likeness.normal("Straße") == likeness.normal("STRASSE")
    assert likeness.normal("👍") == "👍" and likeness.normal("  ") == ""
    assert likeness.numbered(["👍", "👎", "👍", " "]).tolist() == [0, 1, 0, -1]


def test_names_that_were_cut_are_those_that_encode_writes():
    assert likeness.CUT_CHARACTERS == encoded.MAX_NAME
    assert likeness.cut([f"{'x' * (encoded.MAX_NAME - 1)}…", "x" * encoded.MAX_NAME, "x…"]) == 1
