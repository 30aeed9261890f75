"""Tokenizers from the files of strangers: those that grow texts are refused, and a signal ends any of them."""

import base64
import json
import os
import signal
import struct
import threading
import time

import pytest

from cocos.base.errors import InputError
from cocos.checkpoints import tokenizer
from cocos.checkpoints.tokenizer import Tokenizer
from cocos.commands._program import Signalled

PLAIN = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1}},
}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": True}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
SPECIAL = {"SpecialToken": {"id": "s", "type_id": 0}}


def replace(pattern, content, **more):
    return {"type": "Replace", "pattern": pattern, "content": content} | more


def sequence(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def charsmap(*texts):
    """What SentencePiece stores: bytes of a tree of 8 bytes, and the texts that replace others."""
    tree = struct.pack("<I", 8) + bytes(8)
    return base64.b64encode(tree + b"\0".join(text.encode() for text in texts) + b"\0").decode()


def template(pieces, ids=1):
    return {"type": "TemplateProcessing", "single": pieces, "special_tokens": {"s": {"id": "s", "ids": [0] * ids}}}


GROWING = {
    "four that write a letter 50 times": ("normalizer", sequence(*[replace({"String": "a"}, "a" * 50)] * 4)),
    "six nested, 16-fold": (
        "normalizer",
        sequence(
            sequence(*[replace({"String": "a"}, "a" * 16)] * 3), sequence(*[replace({"String": "a"}, "a" * 16)] * 3)
        ),
    ),
    "without a type": ("normalizer", {"normalizers": [{"pattern": {"String": "a"}, "content": "a" * 50}] * 4}),
    "one alone": ("normalizer", replace({"String": "a"}, "a" * 1000)),
    "an expression": ("normalizer", replace({"Regex": "(?=.)"}, "a" * 101)),
    "an empty text": ("normalizer", sequence(*[replace({"String": ""}, "aa")] * 5)),
    "prefixes": ("normalizer", sequence(*[{"type": "Prepend", "prepend": "a" * 10**6}] * 20)),
    "blanks": ("normalizer", sequence(*[BERT] * 60)),
    "a charsmap": ("normalizer", {"type": "Precompiled", "precompiled_charsmap": charsmap("a", "b" * 2000)}),
    "bytes of bytes": ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [BYTES] * 40}),
    "bytes of bytes as normalisers": ("normalizer", sequence(*[{"type": "ByteLevel"}] * 40)),
    "a template of copies": ("post_processor", template([TEXT] * 1000)),
    "a template of tokens": ("post_processor", template([SPECIAL, TEXT], ids=10**5)),
    "thousands of steps": ("normalizer", sequence(*[{"type": "Lowercase"}] * 5000)),
}
KEPT = {
    "BERT": ("normalizer", BERT),
    "CLIP": ("normalizer", sequence({"type": "NFC"}, replace({"Regex": r"\s+"}, " "), {"type": "Lowercase"})),
    "Llama": ("normalizer", sequence({"type": "Prepend", "prepend": "▁"}, replace({"String": " "}, "▁"))),
    "XLM-R": (
        "normalizer",
        sequence(
            {"type": "Precompiled", "precompiled_charsmap": charsmap("a", "صلى الله عليه وسلم")},
            replace({"Regex": " {2,}"}, "▁"),
        ),
    ),
    "two special tokens": ("post_processor", template([SPECIAL, TEXT, SPECIAL])),
    "RoBERTa": ("pre_tokenizer", BYTES),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_tokenizer_that_grows_texts_is_refused(name, monkeypatch):
    part, steps = GROWING[name]
    with pytest.raises(InputError, match=f"tokenizer: step \\d+ \\({part}.*grow without end"):
        tokenizer._refuse_growth(PLAIN | {part: steps})


@pytest.mark.parametrize("name", KEPT)
def test_published_steps_are_kept(name):
    part, steps = KEPT[name]
    tokenizer._refuse_growth(PLAIN | {part: steps})


def test_the_growth_of_the_charsmap_of_sentence_piece_is_that_of_its_longest_text():
    assert tokenizer._longest_of(charsmap("a", "صلى الله عليه وسلم")) == 18
    assert tokenizer._longest_of(base64.b64encode(bytes(4)).decode()) == 1


@pytest.mark.parametrize("content", [b"abc", struct.pack("<I", 2**32 - 1) + b"a", struct.pack("<I", 5) + b"abcd"])
def test_a_charsmap_that_ends_before_its_tree_is_refused(content):
    """The library takes memory for the tree that it announces, 8 GiB, and aborts where there is none."""
    charsmap = base64.b64encode(content).decode()
    with pytest.raises(InputError, match=f"a charsmap of {len(content)} bytes with a tree of"):
        tokenizer._refuse_growth(PLAIN | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap}})


def test_words_without_end_are_refused():
    """Pieces of a word of n characters are looked up n² / 2 times, each in n steps."""
    model = PLAIN["model"] | {"type": "WordPiece", "max_input_chars_per_word": 10**9}
    with pytest.raises(InputError, match="max_input_chars_per_word 1000000000, expected at most 1000"):
        tokenizer._refuse_growth(PLAIN | {"model": model})


def test_the_bound_holds(monkeypatch):
    """No accepted tokenizer makes more of a letter than `MAX_GROWTH` times what a letter is in the bytes of Unicode."""
    tokenizers = pytest.importorskip("tokenizers")
    cases = [GROWING["an expression"], GROWING["an empty text"], GROWING["blanks"], *KEPT.values()]
    for count in (1, 2, 3, 4):
        cases += [
            ("normalizer", sequence(*[replace({"String": "a"}, "a" * 5)] * count)),
            ("normalizer", sequence(*[replace({"Regex": ""}, "aa")] * count)),
            ("normalizer", sequence(*[{"type": "ByteLevel"}] * count)),
            ("normalizer", sequence(*[{"type": "Prepend", "prepend": "aaa"}, replace({"String": "a"}, "aa")] * count)),
        ]
    for part, steps in cases:
        length = 1.0
        for step in tokenizer._steps(steps):
            length = tokenizer._grown(step, length)
        if part != "normalizer" or "charsmap" in json.dumps(steps):  # those here have no tree
            continue
        made = tokenizers.Tokenizer.from_str(json.dumps(PLAIN | {part: steps}))
        for letter in ("a", "é", "中"):
            assert len(made.normalizer.normalize_str(letter)) <= 4 * length, (steps, letter)


def test_a_tokenizer_that_grows_texts_is_refused_when_it_is_built():
    pytest.importorskip("tokenizers")
    content = json.dumps(PLAIN | {"normalizer": GROWING["four that write a letter 50 times"][1]})
    assert len(content) < 1000
    with pytest.raises(InputError, match="step 3"):  # the sequence is the first, and two make 2500 of a letter
        Tokenizer({"tokenizer.json": content})


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


@pytest.mark.parametrize("error", [Signalled(2), KeyboardInterrupt(), SystemExit(3), MemoryError(), InputError("own")])
def test_signals_and_errors_of_the_machine_pass(error):
    def fails():
        raise error

    with pytest.raises(type(error)) as found:
        tokenizer._interruptible(fails)
    assert found.value is error


def test_a_signal_is_heard_while_the_library_works():
    """Python runs the handler of a signal between two of its own steps, of which the library has none."""

    def heard(number, frame):
        raise Signalled(number)

    before, work = signal.signal(signal.SIGTERM, heard), threading.Event()
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGTERM]).start()
    begun = time.monotonic()
    try:
        with pytest.raises(Signalled):
            tokenizer._interruptible(lambda: work.wait(60))
    finally:
        signal.signal(signal.SIGTERM, before)
        work.set()
    assert time.monotonic() - begun < 30
