"""Tokenizers from the files of a Hugging Face folder, read as data: no class that a file names is imported."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

from cocos.encoders._transformers import installed
from cocos.errors import InputError

__all__ = ["FILES", "Tokenizer"]

# Files that a tokenizer is made of: the first that is there, with those that belong to it, decides.
FILES = {
    "tokenizer.json": ("tokenizer_config.json",),
    "vocab.txt": ("tokenizer_config.json", "special_tokens_map.json"),
    "vocab.json": ("merges.txt", "tokenizer_config.json"),
}
# How the published tokenizer of CLIP cuts a text into words.
CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
# Keys of tokenizer_config.json, and what the normaliser of BERT calls them.
BERT_SWITCHES = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


class Tokenizer:
    """Texts to the ids of their tokens.

    Args:
        files: contents of the files of one of `FILES`: text of `tokenizer.json`, `vocab.txt`, `vocab.json` and
            `merges.txt`, plain data of the others.
        longest: tokens that a text is cut to, with the special ones; None cuts nothing.
        lower: lower the case of every text first.
        special: put the special tokens of the model around each text.

    Raises:
        InputError: the files define no tokenizer.
    """

    def __init__(self, files: Mapping[str, Any], longest: int | None = None, lower: bool = False, special: bool = True):
        tokenizers = installed("tokenizers")
        self.special = special
        try:
            definition = _definition(files, lower)
            self.backend = tokenizers.Tokenizer.from_str(json.dumps(definition))
            if longest is not None:
                self.backend.enable_truncation(longest)
        except BaseException as error:
            _refuse(error)

    @cached_property
    def size(self) -> int:
        """One more than the largest id."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the special tokens."""
        return frozenset(i for i, token in self.backend.get_added_tokens_decoder().items() if token.special)

    @cached_property
    def unknown(self) -> int | None:
        """Id of the token that stands for unknown words; None where the model of the tokenizer names none."""
        name = getattr(self.backend.model, "unk_token", None)
        return self.backend.token_to_id(name) if name else None

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text.

        Raises:
            InputError: the tokenizer fails on a text.
        """
        try:
            return [found.ids for found in self.backend.encode_batch(list(texts), add_special_tokens=self.special)]
        except BaseException as error:
            _refuse(error)


def _refuse(error: BaseException) -> NoReturn:
    """Turn what the library of tokenizers raised into a sentence; its own panics are no Exception.

    Raises:
        InputError: from anything that was not meant for the process.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError | InputError):
        raise error
    raise InputError(f"tokenizer: {type(error).__name__}: {' '.join(str(error).split())[:120]}") from None


def _definition(files: Mapping[str, Any], lower: bool) -> dict:
    """Return a tokenizer as the plain data of a `tokenizer.json`.

    Raises:
        InputError: no such file, or one that defines no tokenizer.
    """
    about = files.get("tokenizer_config.json") or {}
    if not isinstance(about, dict):
        raise InputError("tokenizer_config.json is no dictionary")
    if "tokenizer.json" in files:
        found = json.loads(files["tokenizer.json"])
    elif "vocab.txt" in files:
        found = _word_pieces(files["vocab.txt"].splitlines(), (files.get("special_tokens_map.json") or {}) | about)
    elif "vocab.json" in files and "merges.txt" in files:
        found = _byte_pairs(json.loads(files["vocab.json"]), files["merges.txt"].splitlines(), about)
    else:
        raise InputError(f"no tokenizer: expected one of {', '.join(FILES)}")
    if not isinstance(found, dict) or not isinstance(found.get("model"), dict):
        raise InputError("tokenizer.json holds no model of a tokenizer")
    normaliser = found.get("normalizer")
    if isinstance(normaliser, dict) and normaliser.get("type") == "BertNormalizer":
        normaliser |= {ours: about[theirs] for theirs, ours in BERT_SWITCHES.items() if theirs in about}
    if lower:
        steps = [{"type": "Lowercase"}, *([normaliser] if normaliser else [])]
        found["normalizer"] = {"type": "Sequence", "normalizers": steps}
    return found | {"truncation": None, "padding": None}


def _token(about: Mapping[str, Any], name: str, default: str) -> str:
    """A special token, which files write as a text or as a dictionary with its content."""
    found = about.get(name) or default
    return str(found.get("content", default) if isinstance(found, dict) else found)


def _special(tokens: Sequence[str], vocabulary: Mapping[str, int]) -> list[dict]:
    """Special tokens as a `tokenizer.json` lists them.

    Raises:
        InputError: one is not in the vocabulary.
    """
    for token in tokens:
        if token not in vocabulary:
            raise InputError(f"vocabulary of {len(vocabulary)} tokens without the special token {token!r}")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": vocabulary[token], "content": token, **flags} for token in dict.fromkeys(tokens)]


def _around(start: str, end: str, vocabulary: Mapping[str, int]) -> dict:
    """Put one token in front of a text and one behind it."""
    one = [{"SpecialToken": {"id": start, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    one += [{"SpecialToken": {"id": end, "type_id": 0}}]
    tokens = {name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in (start, end)}
    return {"type": "TemplateProcessing", "single": one, "pair": [*one, *one], "special_tokens": tokens}


def _word_pieces(lines: Sequence[str], about: Mapping[str, Any]) -> dict:
    """The tokenizer of BERT from its vocabulary, one token a line."""
    vocabulary = {token: row for row, token in enumerate(lines)}
    unknown, start, end = (_token(about, f"{name}_token", f"[{name.upper()}]") for name in ("unk", "cls", "sep"))
    return {
        "added_tokens": _special((unknown, start, end), vocabulary),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _around(start, end, vocabulary),
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }


def _byte_pairs(vocabulary: Mapping[str, int], merges: Sequence[str], about: Mapping[str, Any]) -> dict:
    """The tokenizer of CLIP, which marks pieces that end a word, or that of RoBERTa, from vocabulary and merges."""
    clip = "<|startoftext|>" in vocabulary
    start = _token(about, "bos_token", "<|startoftext|>" if clip else "<s>")
    end = _token(about, "eos_token", "<|endoftext|>" if clip else "</s>")
    unknown = _token(about, "unk_token", end if clip else "<unk>")
    bytes_alone = {"type": "ByteLevel", "trim_offsets": True, "use_regex": not clip}
    bytes_alone["add_prefix_space"] = bool(about.get("add_prefix_space")) and not clip
    words = {"type": "Split", "pattern": {"Regex": CLIP_WORDS}, "behavior": "Removed", "invert": True}
    spaces = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
    return {
        "added_tokens": _special((start, end, unknown), vocabulary),
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, spaces, {"type": "Lowercase"}]}
        if clip
        else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [words, bytes_alone]} if clip else bytes_alone,
        "post_processor": _around(start, end, vocabulary),
        "model": {
            "type": "BPE",
            "unk_token": unknown,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "</w>" if clip else "",
            "vocab": dict(vocabulary),
            "merges": [line for line in merges if line and not line.startswith("#version")],
        },
    }
