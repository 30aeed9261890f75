"""Vocabularies of the VSE++ and VSRN training code: word -> id, read without running anything."""

import io
import pickle
import pickletools
from pathlib import Path

from cocos.base import reading
from cocos.base.errors import InputError, UnsafeFile
from cocos.base.untrusted import parsed

__all__ = ["SPECIAL", "read_vocabulary"]

SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
MAX_VOCABULARY = 2**24  # bytes of a vocabulary, about a million words
# Operations of the pickle of a vocabulary, four for a word; and those among them that make tuples, hardly any.
MAX_WORD_OPERATIONS, MAX_WORD_TUPLES = 500_000, 100
AS_JSON = 'write it as JSON: json.dump({"word2idx": vocabulary.word2idx}, open("NAME_vocab.json", "w"))'


def _bytes(path: Path) -> bytes:
    """Read the bytes of a vocabulary."""
    with reading.stream(path) as stream:
        content = stream.read(MAX_VOCABULARY + 1)
    if len(content) > MAX_VOCABULARY:
        raise InputError(f"{path} has more than {MAX_VOCABULARY} bytes: no vocabulary of VSE++ or VSRN")
    return content


def _check(path: Path, content: bytes) -> None:
    """Refuse a pickle for which the unpickler would need much memory or stack."""
    tuples = 0
    for number, (operation, argument, _) in enumerate(pickletools.genops(content)):
        if "PUT" in operation.name and (argument or 0) > len(content):
            raise InputError(f"{path} is a damaged vocabulary pickle (place {argument}); {AS_JSON}")
        if isinstance(argument, int) and abs(argument) >= 2**60:  # as keys, such numbers can share one hash
            raise InputError(f"{path} is no vocabulary: it holds a number of {argument.bit_length()} bits; {AS_JSON}")
        tuples += "TUPLE" in operation.name
        # Nested in a key, tuples overflow the stack of Python's hash.
        if tuples > MAX_WORD_TUPLES or number > MAX_WORD_OPERATIONS:
            raise InputError(f"{path} is no vocabulary: {number} operations, {tuples} of them tuples; {AS_JSON}")


def _unpickle(path: Path):
    """Load the one inert object of a vocabulary pickle; nothing is imported, and nothing else can be called."""
    inert = type("Vocabulary", (), {})  # of this call only: a pickle can change a class that it is given

    class Reader(pickle.Unpickler):
        def find_class(self, module, name):
            if name != "Vocabulary":
                raise UnsafeFile(
                    f"{path} is refused as unsafe: a vocabulary holds words, and this file asks for "
                    f"{module}.{name}. Nothing was imported or run; {AS_JSON}"
                )
            return inert

    try:
        content = _bytes(path)
        _check(path, content)
        found = Reader(io.BytesIO(content), encoding="utf-8").load()
    except InputError:
        raise
    except Exception as error:  # a damaged or hostile pickle may fail anywhere
        reason = str(error)[:120] or type(error).__name__
        raise InputError(f"{path} is a damaged vocabulary pickle ({reason}); {AS_JSON}") from None
    return vars(found) if type(found) is inert else found


def _json(path: Path):
    try:
        return parsed(_bytes(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not readable as JSON ({str(error)[:120]})") from None


def read_vocabulary(path: Path, size: int) -> dict[str, int]:
    """Read a vocabulary.

    Args:
        path: `NAME_vocab.pkl`, a pickled `Vocabulary` with the attribute `word2idx`; or JSON, `{"word2idx":
            {...}}` or the mapping of words to ids itself.
        size: words that the checkpoint was trained with: the rows of its word embedding.

    Returns:
        Word -> id; the ids are 0..size-1.
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
