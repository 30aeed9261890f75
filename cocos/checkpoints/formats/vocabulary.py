"""Tokens and vocabularies of captions in VSE++ and VSRN."""

import re
from pathlib import Path

from cocos.base.errors import InputError
from cocos.checkpoints.files import File
from cocos.data.plain_pickles import load_plain

ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st jr sr lt col gen maj sen rep adm co cos corp inc ltd bros vs ave ft mg ok yr ill "
    "wash jan feb aug sep sept oct nov dec tues wed fri a.m p.m a.d u.s u.s.a u.k u.n d.c l.a n.y n.j n.c "
    "s.c ph.d".split()
)
NUMBER = re.compile(r"-?[.,]?\d[\d,.-]*")
STOP = re.compile(r"""(?<!\S)(\S*[^\s.])\.([\])}>"'»”’]*)(?=\s|$)""")
OPENING = re.compile(r"""(^|(?<=[\s(\[{<]))("|'')""")
ALONE = re.compile(r"\.{2,}|--|``|''|[?!;@#$%&*()\[\]{}<>«»“”‘’„‒–—―`]|[,:](?!\d)")
OPENING_QUOTE = re.compile(r"(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)")
CLITIC = re.compile(r"(?<=[^'\s])('(?:s|m|d|ll|re|ve)?|n't)(?='?(?:\s|$))")
JOINED = re.compile(r"\b(can(?=not\b)|gim(?=me\b)|gon(?=na\b)|got(?=ta\b)|lem(?=me\b)|wan(?=na\s))")
SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
AS_JSON = 'write it as JSON: json.dump({"word2idx": vocabulary.word2idx}, open("NAME_vocab.json", "w"))'


def tokens(caption: str) -> list[str]:
    """Split a caption into lower-case tokens.

    Punctuation is separate, except in numbers (`3.5`, `10:30`), abbreviations and hyphenated words. Clitics are split
    off (`man 's`, `do n't`). Opening double quotes become two backticks, closing ones two apostrophes.

    Source: the conventions of the Penn Treebank, in sentences split as in Kiss & Strunk 2006, Unsupervised
    multilingual sentence boundary detection: the results of nltk's `word_tokenize` on ordinary captions.
    """
    text = OPENING.sub(" `` ", caption.lower())
    text = STOP.sub(split_stop, text).replace('"', " '' ")
    text = OPENING_QUOTE.sub("' ", ALONE.sub(r" \g<0> ", text))
    return JOINED.sub(r"\1 ", CLITIC.sub(r" \1", text)).split()


def split_stop(match: re.Match) -> str:
    """Split a full stop off, unless it belongs to an abbreviation, initial or number within a sentence."""
    rest = match.string[match.end() :].lstrip()
    word = match[1].lstrip("\"'([{<`")
    if rest and word.split("-")[-1] in ABBREVIATIONS:
        return match[0]
    if rest[:1].isalpha() and (len(word) == 1 or NUMBER.fullmatch(word)):
        return match[0]
    return f"{match[1]} . {match[2]}"


def read(path: Path, size: int) -> dict[str, int]:
    """Read a vocabulary: word -> id, 0 to size - 1.

    It is `NAME_vocab.pkl`, a pickled `Vocabulary` with the attribute `word2idx`; or JSON, `{"word2idx": {...}}` or the
    mapping itself.
    """
    if path.suffix == ".json":
        content = File(path.parent).json(path.name)
    else:
        inert = type("Vocabulary", (), {})  # a new class for each file: a pickle can change the class
        content = load_plain(path, AS_JSON, {"Vocabulary": inert})
        content = vars(content) if type(content) is inert else content
    words = content.get("word2idx", content) if isinstance(content, dict) else None
    if not isinstance(words, dict) or not words.keys() >= set(SPECIAL) or sorted(words.values()) != list(range(size)):
        expected = f"expected {size} with ids 0 to {size - 1} and {' '.join(SPECIAL)}"
        raise InputError(f"{path}: {len(words or ())} words, {expected}: it belongs to other data, or {AS_JSON}")
    return words
