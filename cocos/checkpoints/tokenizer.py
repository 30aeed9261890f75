"""Tokenizers from the files of a Hugging Face folder, read as data: no class that a file names is imported."""

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from cocos.base.errors import InputError
from cocos.base.untrusted import parsed
from cocos.checkpoints.files import File
from cocos.checkpoints.transformers import installed

# Files that a tokenizer is made of: the first that is there, with those that belong to it, decides.
FILES = {
    "tokenizer.json": ("tokenizer_config.json",),
    "vocab.txt": ("tokenizer_config.json", "special_tokens_map.json"),
    "vocab.json": ("merges.txt", "tokenizer_config.json"),
}
# Largest tokenizer in bytes: the largest vocabularies need 35 million. Its settings need a million at most.
MAX_TOKENIZER = 3 * 2**24
# How the published tokenizer of CLIP cuts a text into words.
CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
# Class of the panics of the library, which is no Exception.
PANIC = "PanicException"
# Characters or tokens that one character of a text may become: the published charsmap of SentencePiece makes 18.
MAX_GROWTH = 100
# Steps of a normaliser, a splitter and a processor, together.
MAX_TOKENIZER_STEPS = 1000
# Characters of a word that is looked up piece by piece, in time that grows with their third power; published: 100.
MAX_WORD = 1000
# Keys of tokenizer_config.json, and what the normaliser of BERT calls them.
BERT_SWITCHES = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}

Result = TypeVar("Result")


class Tokenizer:
    """Texts to the ids of their tokens.

    Args:
        files: contents of the files of one of `FILES`: text of `tokenizer.json`, `vocab.txt`, `vocab.json` and
            `merges.txt`, plain data of the others.
        longest: tokens that a text is cut to, with the special ones; None cuts nothing.
        lower: lower the case of every text first.
    """

    def __init__(self, files: Mapping[str, Any], longest: int | None = None, lower: bool = False):
        tokenizers = installed("tokenizers")

        def built() -> Any:
            definition = _definition(files, lower)
            _refuse_growth(definition)
            backend = tokenizers.Tokenizer.from_str(json.dumps(definition))
            if longest is not None:
                backend.enable_truncation(longest)
            return backend

        self.backend: Any = _interruptible(built)

    def within(self, rows: int, of: str) -> "Tokenizer":
        """Return it, unless it knows more tokens than a model has."""
        if self.size > rows:
            raise InputError(f"the tokenizer has ids up to {self.size - 1}, and the {of} has {rows} tokens")
        return self

    @cached_property
    def size(self) -> int:
        """One more than the largest id."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the special tokens."""
        return frozenset(i for i, token in self.backend.get_added_tokens_decoder().items() if token.special)

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        encode = self.backend.encode_batch
        return _interruptible(lambda: [found.ids for found in encode(list(texts), add_special_tokens=True)])


def tokenizer_files(folder: File, within: str = "") -> dict[str, Any]:
    """Read the files of a tokenizer in a folder of a model, or in the folder `within` it."""
    for first, others in FILES.items():
        if f"{within}{first}" in folder and (first != "vocab.json" or f"{within}merges.txt" in folder):
            found: dict[str, Any] = {first: (folder.path / within / first).read_text("utf-8")}
            for name in others:
                if f"{within}{name}" in folder:
                    json_file = name.endswith(".json")
                    path = folder.path / within / name
                    found[name] = folder.json(within + name) if json_file else path.read_text("utf-8")
            return found
    raise InputError(
        f"{folder.path / within} has no tokenizer.json, vocab.txt, or vocab.json with merges.txt; write one: "
        "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
    )


def _interruptible(call: Callable[[], Result]) -> Result:
    """Call the library in a thread of its own, so that this one hears a signal meanwhile, and return its result."""
    done: list[Result] = []
    failed: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
        try:
            done.append(call())
        except BaseException as error:
            failed.append(error)
        ended.set()

    threading.Thread(target=work, daemon=True).start()
    ended.wait()
    for error in failed:
        ours = isinstance(error, MemoryError | InputError)
        if ours or not (isinstance(error, Exception) or type(error).__name__ == PANIC):
            raise error
        raise InputError(f"tokenizer: {type(error).__name__}: {' '.join(str(error).split())[:120]}") from None
    return done[0]


def _steps(definition: Any) -> Iterator[dict]:
    """Yield the steps of a part of a tokenizer in their order; the library also takes steps without a type."""
    left = [definition]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            yield found
            left += [each for name in ("processors", "pretokenizers", "normalizers") for each in [found.get(name)]]
        elif isinstance(found, list):
            left += reversed(found)


def _refuse_growth(definition: dict) -> None:
    """Refuse a tokenizer that turns a character into so much text that encoding has no end.

    Steps multiply: four that write each letter 50 times make 6 million of one.
    """
    length, number = 1.0, 0
    for part in ("normalizer", "pre_tokenizer", "post_processor"):
        for step in _steps(definition.get(part)):
            number += 1
            length = _grown(step, length)
            if length > MAX_GROWTH or number > MAX_TOKENIZER_STEPS:
                grown = f"makes more than {MAX_GROWTH} of a character" if length > MAX_GROWTH else "is one too many"
                raise InputError(
                    f"tokenizer: step {number} ({part}, {str(step.get('type'))[:40]!r}) {grown}; cocos refuses texts "
                    "that grow without end"
                )
    word = definition["model"].get("max_input_chars_per_word", 0)
    if isinstance(word, int) and word > MAX_WORD:
        raise InputError(f"tokenizer: max_input_chars_per_word {word}, expected at most {MAX_WORD} (published: 100)")


def _grown(step: Mapping[str, Any], length: float) -> float:
    """Bound the length of a text of `length` characters after a step, beside what Unicode's forms add."""
    kind, content, pattern = step.get("type"), step.get("content"), step.get("pattern")
    if isinstance(content, str) and isinstance(pattern, dict | str):
        text = pattern.get("String") if isinstance(pattern, dict) else pattern
        # An expression, and an empty text, match between characters as well.
        length = length * max(1, len(content) / len(text)) if text else length * (1 + len(content)) + len(content)
    if isinstance(prepend := step.get("prepend"), str):
        length += len(prepend)
    if isinstance(charsmap := step.get("precompiled_charsmap"), str | list):
        length *= _longest_of(charsmap)
    if kind == "ByteLevel" or "trim_offsets" in step and kind in {None, "ByteLevel"}:
        length *= 2  # each byte of a letter becomes a letter, most of them of two bytes
    if kind == "BertNormalizer" or "handle_chinese_chars" in step:
        length += 2  # blanks around Chinese characters
    if isinstance(template := step.get("single"), list):
        pieces = [each for each in template if isinstance(each, dict)]
        copies = sum("Sequence" in each for each in pieces)
        length = length * max(1, copies) + sum(_special_ids(each, step.get("special_tokens")) for each in pieces)
    return length


def _special_ids(piece: Mapping[str, Any], tokens: Any) -> int:
    """Number of ids that a piece of a template puts beside a text."""
    about = piece.get("SpecialToken")
    name = about.get("id") if isinstance(about, dict) else None
    found = tokens.get(name) if isinstance(tokens, dict) and isinstance(name, str) else None
    ids = found.get("ids") if isinstance(found, dict) else None
    return len(ids) if isinstance(ids, list) else 0


def _longest_of(charsmap: str | list) -> int:
    """Characters of the longest text that SentencePiece puts in place of one: behind a tree, ended by zeros."""
    content = base64.b64decode(charsmap) if isinstance(charsmap, str) else bytes(charsmap)
    tree = int.from_bytes(content[:4], "little")
    if len(content) < 4 or tree > len(content) - 4:
        raise InputError(f"tokenizer: a charsmap of {len(content)} bytes with a tree of {tree}; copy the file again")
    texts = content[4 + tree :].split(b"\0")
    return max(1, *(len(each.decode("utf-8", "ignore")) for each in texts))


def _definition(files: Mapping[str, Any], lower: bool) -> dict:
    """Return a tokenizer as the plain data of a `tokenizer.json`."""
    about = files.get("tokenizer_config.json") or {}
    if not isinstance(about, dict):
        raise InputError("tokenizer_config.json is no dictionary")
    if "tokenizer.json" in files:
        found = parsed(files["tokenizer.json"])
    elif "vocab.txt" in files:
        found = _word_pieces(files["vocab.txt"].splitlines(), (files.get("special_tokens_map.json") or {}) | about)
    elif "vocab.json" in files and "merges.txt" in files:
        found = _byte_pairs(parsed(files["vocab.json"]), files["merges.txt"].splitlines(), about)
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
    """Special tokens as a `tokenizer.json` lists them."""
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
