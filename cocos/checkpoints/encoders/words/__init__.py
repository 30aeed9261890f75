"""Words of captions as VSE++ and VSRN read them: tokens, vocabularies, and the words that a vocabulary lacks."""

from collections.abc import Mapping, Sequence

from cocos.checkpoints.encoders.words._tokens import tokens
from cocos.checkpoints.encoders.words._vocabulary import SPECIAL, read_vocabulary

__all__ = ["SPECIAL", "read_vocabulary", "tokens", "unknown"]


def unknown(captions: Sequence[str], vocabulary: Mapping[str, int]) -> tuple[int, int]:
    """Count the tokens of the captions that are not in the vocabulary, and all tokens."""
    known = [token in vocabulary for caption in captions for token in tokens(caption)]
    return known.count(False), len(known)
