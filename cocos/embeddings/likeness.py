"""Likeness of texts: equal up to spelling, or nearly equal by the pieces of characters that they share."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cocos.base import ranges

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["cut", "near", "normal", "numbered", "pieces", "similarity"]

# Everything that is no letter or digit in any script, and the underscore.
BETWEEN_WORDS = re.compile(r"[\W_]+")
# Characters of a piece.
PIECE_CHARACTERS = 4
# Characters of a text that `cocos encode` writes as the name of a row.
CUT_CHARACTERS = 300
# Pairs of texts that are compared at once.
COMPARED_AT_ONCE = 2**16
# Texts whose pieces are looked up at once.
LOOKED_UP_AT_ONCE = 2**12


def normal(text: str) -> str:
    """Reduce a text to its words: compatible characters, case, punctuation and white space are made alike.

    A text without any letter or digit, such as an emoji, stays as it is.

    Examples:
        >>> cocos.embeddings.likeness.normal("  What's THAT?") == cocos.embeddings.likeness.normal("what’s that")
        True
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return BETWEEN_WORDS.sub(" ", folded).strip() or " ".join(folded.split())


def numbered(texts: Iterable[str]) -> npt.NDArray[np.int64]:
    """Number texts, (n,): equal ones alike, up to `normal`; -1 for an empty text.

    Examples:
        >>> cocos.embeddings.likeness.numbered(["A cat.", "a dog", "a cat", ""]).tolist()
        [0, 1, 0, -1]
    """
    number: dict[str, int] = {}
    said = (normal(text) for text in texts)
    return np.array([number.setdefault(text, len(number)) if text else -1 for text in said], dtype=np.int64)


def pieces(texts: Sequence[str]) -> "sparse.csr_array":
    """Sets of the pieces of `PIECE_CHARACTERS` characters of some texts, (n, pieces) of 0 and 1; the rarest come first.

    A text is taken as `normal` makes it, with a space at both ends. The columns are in ascending order of the number of
    texts that contain the piece.
    """
    from scipy import sparse  # only where texts are compared

    column: dict[str, int] = {}
    indices: list[int] = []
    ends = [0]
    for text in texts:
        said = f" {normal(text)} "
        held = {said[i : i + PIECE_CHARACTERS] for i in range(max(1, len(said) - PIECE_CHARACTERS + 1))}
        indices.extend(column.setdefault(piece, len(column)) for piece in held) if said.strip() else None
        ends.append(len(indices))
    places = np.array(indices, dtype=np.int64)
    place = np.empty(len(column), dtype=np.int64)
    place[np.bincount(places, minlength=len(column)).argsort(kind="stable")] = np.arange(len(column))
    shape = (len(ends) - 1, max(len(column), 1))
    found = sparse.csr_array((np.ones(len(places), dtype=np.float32), place[places], np.array(ends)), shape=shape)
    found.sort_indices()
    return found


def similarity(held: "sparse.csr_array", one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> npt.NDArray:
    r"""Jaccard similarity :math:`|A \cap B| / |A \cup B|` of pairs of rows of `pieces`, (n,) float64; 0 of empty ones.

    Source: Jaccard 1901; as shingles of a text: Broder 1997, On the resemblance and containment of documents.
    """
    sizes, parts = np.diff(held.indptr), [np.zeros(0)]
    for start in range(0, len(one), COMPARED_AT_ONCE):
        left, right = (each[start : start + COMPARED_AT_ONCE] for each in (one, other))
        both = np.asarray(held[left].multiply(held[right]).sum(axis=1), dtype=np.float64).ravel()
        parts.append(both / np.maximum(sizes[left] + sizes[right] - both, 1))
    return np.concatenate(parts)


def cut(texts: Iterable[str]) -> int:
    """Count the texts that `cocos encode` has cut to `CUT_CHARACTERS`: what was behind that is not compared.

    Examples:
        >>> cocos.embeddings.likeness.cut(["short", "x" * 299 + "…"])
        1
    """
    return sum(len(text) >= CUT_CHARACTERS and text.endswith("…") for text in texts)


@ranges.checked
def near(texts: Sequence[str], least: ranges.Fraction = 0.8) -> tuple[npt.NDArray[np.int64], npt.NDArray]:
    r"""Find all pairs of texts with a Jaccard similarity of their pieces of at least a bound; none is missed.

    Two sets whose similarity is t or more share one of the :math:`|A| - \lceil t |A| \rceil + 1` rarest pieces of A,
    and likewise of B, so that only texts that share a rare piece are compared.

    Args:
        texts: n of them.
        least: the bound, above 0 and up to 1.

    Returns:
        Rows of the pairs, (p, 2), the smaller one first, in ascending order; and their similarities, (p,).

    Source: prefix filtering, Chaudhuri, Ganti & Kaushik 2006, A primitive operator for similarity joins.

    Examples:
        >>> said = ["when was the chapel built", "when was the chapel built in", "who built it"]
        >>> cocos.embeddings.likeness.near(said, 0.8)[0].tolist()
        [[0, 1]]
    """
    held = pieces(texts)
    found = [np.zeros((0, 2), dtype=np.int64)]
    found += [np.stack(pair, axis=1) for pair in _candidates(held, least)]
    pairs = np.concatenate(found)
    alike = similarity(held, pairs[:, 0], pairs[:, 1])
    close = alike >= least - 1e-12
    return pairs[close], alike[close]


def _candidates(
    held: "sparse.csr_array", least: float
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    r"""Yield the pairs of rows, smaller first, that may be near by their sizes and the rarest pieces that they share.

    Near sets share at least :math:`\frac{t}{1 + t} (|A| + |B|)` pieces. A shared piece is among the rarest of both
    sets, or among the :math:`\lceil t |A| \rceil - 1` others of the set whose rarest ones end first.
    """
    from scipy import sparse  # only where texts are compared

    sizes = np.diff(held.indptr)
    rarest = sizes - np.ceil(least * sizes - 1e-9).astype(np.int64) + 1
    rank = np.arange(len(held.indices)) - np.repeat(held.indptr[:-1], sizes)  # of a piece in its row
    kept = rank < np.repeat(rarest, sizes)
    ends = np.concatenate([[0], np.cumsum(np.minimum(rarest, sizes))])
    prefix = sparse.csr_array((held.data[kept], held.indices[kept], ends), shape=held.shape)
    turned = prefix.T.tocsr()
    for start in range(0, held.shape[0], LOOKED_UP_AT_ONCE):
        shared = (prefix[start : start + LOOKED_UP_AT_ONCE] @ turned).tocoo()
        one, other = shared.row.astype(np.int64) + start, shared.col.astype(np.int64)
        needed = least / (1 + least) * (sizes[one] + sizes[other])
        others = np.maximum(sizes[one] - rarest[one], sizes[other] - rarest[other])
        fits = (one < other) & (np.minimum(sizes[one], sizes[other]) >= least * np.maximum(sizes[one], sizes[other]))
        fits &= shared.data + others >= needed - 1e-6
        one, other = one[fits], other[fits]
        order = np.lexsort((other, one))
        yield one[order], other[order]
