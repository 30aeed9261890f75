"""Texts that are equal up to spelling, and names that were cut."""

from cocos.embeddings import embeddings
from cocos.measures.shared import equal_texts


def test_spelling_is_made_alike_in_any_script():
    assert equal_texts.normal("  Ｆｕｌｌ width_ STRASSE—ok ") == "full width strasse ok"
    assert equal_texts.normal("Straße") == equal_texts.normal("STRASSE")
    assert equal_texts.normal("👍") == "👍" and equal_texts.normal("  ") == ""
    assert equal_texts.numbered(["👍", "👎", "👍", " "]).tolist() == [0, 1, 0, -1]


def test_names_that_were_cut_are_those_that_encode_writes():
    assert equal_texts.CUT_CHARACTERS == embeddings.MAX_NAME
    assert equal_texts.cut([f"{'x' * (embeddings.MAX_NAME - 1)}…", "x" * embeddings.MAX_NAME, "x…"]) == 1
