"""Likeness of texts: the pairs that are found are all there are."""

import numpy as np
import pytest

from cocos.base.errors import InputError
from cocos.checkpoints import encoded
from cocos.embeddings import likeness

WORDS = "a man rides the blue red wave surf board dog cat sits on street near two large".split()


def captions(number=120, seed=0):
    generator = np.random.default_rng(seed)
    made = [" ".join(generator.choice(WORDS, generator.integers(1, 9))) for _ in range(number)]
    return [*made, *(f"{text}s" for text in made[:30]), *(text.title() + "!" for text in made[:5]), "", "?!", "x"]


def shingles(text):
    said = f" {likeness.normal(text)} "
    return {said[i : i + 4] for i in range(max(1, len(said) - 3))} if said.strip() else set()


@pytest.mark.parametrize("least", [0.2, 0.5, 0.8, 1.0])
def test_near_texts_are_those_that_a_loop_finds(least):
    texts = captions()
    held = [shingles(text) for text in texts]
    expected = {}
    for i, one in enumerate(held):
        for j in range(i):
            alike = len(one & held[j]) / max(len(one | held[j]), 1)
            if alike >= least:
                expected[j, i] = alike
    pairs, alike = likeness.near(texts, least)
    assert dict(zip(map(tuple, pairs.tolist()), alike.tolist(), strict=True)) == pytest.approx(expected)
    assert len(expected) >= 5


def test_texts_in_parts_are_the_texts_together(monkeypatch):
    texts = captions()
    whole = likeness.near(texts, 0.5)
    monkeypatch.setattr(likeness, "LOOKED_UP_AT_ONCE", 7)
    monkeypatch.setattr(likeness, "COMPARED_AT_ONCE", 3)
    for one, other in zip(whole, likeness.near(texts, 0.5), strict=True):
        assert np.array_equal(one, other)


def test_spelling_is_made_alike_in_any_script():
    assert likeness.normal("  Ｆｕｌｌ width_ STRASSE—ok ") == "full width strasse ok"
    assert likeness.normal("Straße") == likeness.normal("STRASSE")
    assert likeness.normal("👍") == "👍" and likeness.normal("  ") == ""
    assert likeness.numbered(["👍", "👎", "👍", " "]).tolist() == [0, 1, 0, -1]


def test_names_that_were_cut_are_those_that_encode_writes():
    assert likeness.CUT_CHARACTERS == encoded.MAX_NAME
    assert likeness.cut([f"{'x' * (encoded.MAX_NAME - 1)}…", "x" * encoded.MAX_NAME, "x…"]) == 1


def test_no_texts_have_no_pairs():
    for texts in ([], ["", ""], ["one"]):
        assert likeness.near(texts)[0].shape == (0, 2)


@pytest.mark.parametrize("least", [0, -1, 1.1, float("nan"), "0.8"])
def test_a_bound_out_of_range_is_refused(least):
    with pytest.raises(InputError, match="expected a number above 0 and at most 1"):
        likeness.near(["a", "b"], least)
