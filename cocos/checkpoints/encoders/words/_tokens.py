"""Tokens of an English caption, as the word tokenizer of the papers' training code cuts them."""

import re

__all__ = ["tokens"]

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
