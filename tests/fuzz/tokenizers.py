"""Tokenizers that would grow texts, look up words without end, or are none, in the folders of static tables."""

import base64
import json
import struct
from collections.abc import Callable
from pathlib import Path

from fuzz import trees

__all__ = ["hostile"]

SIZES = (0, 1, 2, 3, 16, 50, 99, 100, 101, 10_000, 10**6)
# Bytes of a part that repeats a step.
MOST_BYTES = 2**21
PARTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}


def _step(random) -> dict:
    """One step, small or hostile."""
    size = random.choice(SIZES)
    kind = random.choice([
        "Replace",
        "Replace",
        "Prepend",
        "Precompiled",
        "BertNormalizer",
        "ByteLevel",
        "Template",
        "NFKD",
    ])
    text = random.choice(["a", "the", "", " ", "cat"])
    made = {
        "Replace": {"pattern": {random.choice(["String", "Regex"]): text}, "content": random.choice("ab é") * size},
        "Prepend": {"prepend": "a" * size},
        "Precompiled": {"precompiled_charsmap": _charsmap(random, size)},
        "BertNormalizer": {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "ByteLevel": {"add_prefix_space": True, "trim_offsets": True, "use_regex": random.random() < 0.5},
        "Template": _template(random, min(size, 10_000)),
    }.get(kind, {})
    name = {"Template": "TemplateProcessing"}.get(kind, kind)
    return made if random.random() < 0.1 else {"type": name} | made


def _charsmap(random, size: int) -> str:
    """A tree, and texts that replace others."""
    tree = random.choice([0, 4, 8, 2**31, 2**32 - 1])
    content = struct.pack("<I", tree) + bytes(min(tree, 64)) + b"a\0" + b"b" * min(size, 10_000) + b"\0"
    return base64.b64encode(content).decode() if random.random() < 0.9 else "no base 64"


def _template(random, size: int) -> dict:
    """A template that repeats a text, or puts many tokens beside it."""
    text = {"Sequence": {"id": "A", "type_id": 0}}
    token = {"SpecialToken": {"id": "s", "type_id": 0}}
    special = {"s": {"id": "s", "ids": [0] * random.choice([1, size]), "tokens": ["s"] * random.choice([1, size])}}
    return {
        "single": random.choice([[text] * size, [token, text], [text, token] * size]),
        "pair": [text],
        "special_tokens": special,
    }


def _part(random, name: str):
    """A part of a tokenizer, of steps in a row or nested."""
    steps = [_step(random) for _ in range(random.choice([1, 1, 2, 3, 8, 40]))]
    if random.random() < 0.5:
        step = random.choice(steps)
        steps = [step] * min(random.choice([1, 4, 7, 40, 2000]), 1 + MOST_BYTES // len(json.dumps(step)))
    found = steps[0] if len(steps) == 1 else {"type": "Sequence", PARTS[name]: steps}
    for _ in range(random.choice([0, 0, 1, 20, 100])):
        found = {"type": "Sequence", PARTS[name]: [found]}
    return found


def hostile(random, folder: Path, seed: Callable) -> tuple[Path, Path | None]:
    """Write a static table with a hostile tokenizer, and texts for it."""
    path, data = trees.whole_model(random, folder, seed)
    place = next(iter(sorted(folder.rglob("tokenizer.json"))), None)
    if place is None:
        return path, data
    content = json.loads(place.read_text("utf-8"))
    for name in random.sample(list(PARTS), random.choice([1, 1, 2, 3])):
        content[name] = _part(random, name)
    if random.random() < 0.2:
        content["model"]["max_input_chars_per_word"] = random.choice([-1, 0, 100, 1001, 10**9, 2**70, "x", True])
    if random.random() < 0.2:
        content = trees.damaged_json(random, content)
    place.write_bytes(trees.as_json(content))
    return path, data
