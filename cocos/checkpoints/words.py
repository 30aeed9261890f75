"""Words of captions as VSE++ and VSRN read them: tokens, vocabularies, and the words that a vocabulary lacks."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cocos.base.errors import InputError
from cocos.base.untrusted import parsed
from cocos.data.plain_pickles import load_plain

ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st jr sr lt col gen maj sen rep adm co cos corp inc ltd bros vs ave ft mg ok yr ill "
    "wash jan feb aug sep sept oct nov dec tues wed fri a.m p.m a.d u.s u.s.a u.k u.n d.c l.a n.y n.j n.c "
    "s.c ph.d".split()
)
NUMBER_WORD = re.compile(r"-?[.,]?\d[\d,.-]*")
# From the beginning of a word only: a long one would be searched anew from each of its letters.
STOP = re.compile(r"""(?<!\S)(\S*[^\s.])\.([\])}>"'»”’]*)(?=\s|$)""")
OPENING = re.compile(r"""(^|(?<=[\s(\[{<]))("|'')""")
ALONE = re.compile(r"\.{2,}|--|``|''|[?!;@#$%&*()\[\]{}<>«»“”‘’„‒–—―`]|[,:](?!\d)")
OPENING_QUOTE = re.compile(r"(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)")
CLITIC = re.compile(r"(?<=[^'\s])('(?:s|m|d|ll|re|ve)?|n't)(?='?(?:\s|$))")
JOINED = re.compile(r"\b(can(?=not\b)|gim(?=me\b)|gon(?=na\b)|got(?=ta\b)|lem(?=me\b)|wan(?=na\s))")
SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
AS_JSON = 'write it as JSON: json.dump({"word2idx": vocabulary.word2idx}, open("NAME_vocab.json", "w"))'


def unknown(captions: Sequence[str], vocabulary: Mapping[str, int]) -> tuple[int, int]:
    """Count the tokens of the captions that are not in the vocabulary, and all tokens."""
    known = [token in vocabulary for caption in captions for token in tokens(caption)]
    return known.count(False), len(known)


def _stop(match: re.Match) -> str:
    """Split a full stop off, unless it belongs to an abbreviation, initial or number within a sentence."""
    rest = match.string[match.end() :].lstrip()
    word = match[1].lstrip("\"'([{<`")
    if rest and word.split("-")[-1] in ABBREVIATIONS:
        return match[0]
    if rest[:1].isalpha() and (len(word) == 1 or NUMBER_WORD.fullmatch(word)):
        return match[0]
    return f"{match[1]} . {match[2]}"


def tokens(caption: str) -> list[str]:
    """Cut a caption into lower-case tokens.

    Punctuation stands alone, except in numbers (`3.5`, `10:30`), abbreviations and hyphened words. Clitics
    are cut off (`man 's`, `do n't`). Double quotes become two backticks where they open, and two apostrophes
    where they close.

    Source: the conventions of the Penn Treebank, in sentences cut as in Kiss & Strunk 2006, Unsupervised
    multilingual sentence boundary detection: what nltk's `word_tokenize` does with ordinary captions.
    """
    text = OPENING.sub(" `` ", caption.lower())
    text = STOP.sub(_stop, text).replace('"', " '' ")
    text = OPENING_QUOTE.sub("' ", ALONE.sub(r" \g<0> ", text))
    return JOINED.sub(r"\1 ", CLITIC.sub(r" \1", text)).split()


def _unpickle(path: Path):
    """Load the one inert object of a vocabulary pickle; nothing is imported, and nothing else can be called."""
    inert = type("Vocabulary", (), {})  # of this call only: a pickle can change a class that it is given
    found = load_plain(path, AS_JSON, {"Vocabulary": inert})
    return vars(found) if type(found) is inert else found


def _json(path: Path):
    try:
        return parsed(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not readable as JSON ({str(error)[:120]})") from None


def read_vocabulary(path: Path, size: int) -> dict[str, int]:
    """Read a vocabulary: word -> id, 0 to size - 1, with as many words as the checkpoint was trained with.

    It is `NAME_vocab.pkl`, a pickled `Vocabulary` with the attribute `word2idx`; or JSON, `{"word2idx": {...}}` or the
    mapping of words to ids itself.
    """
    found = _json(path) if path.suffix == ".json" else _unpickle(path)
    words = found.get("word2idx", found) if isinstance(found, dict) else None
    if not isinstance(words, dict) or not all(type(w) is str and type(i) is int for w, i in words.items()):
        raise InputError(f"{path} holds no mapping of words to ids (word2idx): {type(found).__name__}; {AS_JSON}")
    missing = [word for word in SPECIAL if word not in words]
    if missing:
        raise InputError(
            f"{path} has no {' '.join(missing)} among its {len(words)} words: no vocabulary of VSE++ or VSRN"
        )
    if sorted(words.values()) != list(range(size)):
        raise InputError(
            f"{path} has {len(words)} words with ids {min(words.values())} to {max(words.values())}, and the "
            f"checkpoint was trained with {size} (ids 0 to {size - 1}): it is the vocabulary of other data"
        )
    return dict(words)
