"""The two data sets of the study, as features of queries and of their candidates."""

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from cocos.checkpoints.data import emoji_captions

__all__ = ["SPLITS", "Split", "Task", "task"]

CAPTIONS = Path(__file__).parent / "data" / "captions.npz"
SPLITS = ("train", "val", "test")
LOOK_ALIKE = 0.7  # cosine of MiniLM from which two captions of different photos are look-alikes
PIXELS, WORDS, BUCKETS = 200, 256, 2**14  # components of the pictures and of the texts; hashed n-grams


@dataclass(frozen=True, eq=False)
class Split:
    """Features of the items of a split.

    Args:
        query: (N, F).
        candidate: (N, K, G), the K candidates of each query.
        concept: (N,), equal for items that look alike; None where the cosine of the features decides.
    """

    query: Tensor
    candidate: Tensor
    concept: Tensor | None = None

    def look_alikes(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Pairs of different items that look alike, (B, B) bool: queries (B,) and candidates (B,) of these items.

        Args:
            rows: (B,) items.
            columns: (B,) which of the candidates of each item.
        """
        if self.concept is not None:
            same = self.concept[rows, None] == self.concept[rows]
        else:
            same = self.query[rows] @ self.candidate[rows, columns].T > LOOK_ALIKE
        return same & ~torch.eye(len(rows), dtype=torch.bool)


@dataclass(frozen=True, eq=False)
class Task:
    """A data set and how models are trained on it.

    Args:
        splits: by name.
        hidden: width of the hidden layer of both heads; 0 for linear heads.
        steps: of a training.
        checkpoints: steps after which a model is measured, evenly spaced in their logarithm.
    """

    splits: dict[str, Split]
    hidden: int
    steps: int
    checkpoints: tuple[int, ...]


def _captions() -> Task:
    """First captions of photos that ask for the other four, as unit vectors of MiniLM."""
    with np.load(CAPTIONS) as held:
        rows, split = torch.from_numpy(held["embeddings"]).float(), held["split"]
    rows = torch.nn.functional.normalize(rows, dim=2)  # float16 rounds the norms
    chosen = {name: torch.from_numpy(np.flatnonzero(split == number)) for number, name in enumerate(SPLITS)}
    made = {name: Split(rows[index, 0], rows[index, 1:]) for name, index in chosen.items()}
    return Task(made, hidden=0, steps=150, checkpoints=(4, 10, 25, 60, 150))


def _grams(caption: str) -> set[int]:
    """Buckets of the character n-grams, n from 3 to 5, of the words of a caption."""
    text = f" {caption.lower()} "
    return {zlib.crc32(text[at : at + n].encode()) % BUCKETS for n in (3, 4, 5) for at in range(len(text) - n + 1)}


def _components(values: "np.ndarray | sparse.csr_matrix", fitted: np.ndarray, number: int) -> np.ndarray:
    """Project rows on the first right singular vectors of some of them, scaled to a mean square of 1."""
    found = sparse.linalg.svds(values[fitted], k=number, v0=np.ones(min(values[fitted].shape)))[2]
    made = np.asarray(values @ found.T)
    return made / np.sqrt(np.square(made[fitted]).mean())


def _emoji() -> Task:
    """Emoji that ask for their five captions: principal components of pixels and of hashed n-grams."""
    records = emoji_captions.records()
    split = np.array([SPLITS.index(each["split"]) for each in records])
    place = np.concatenate([np.flatnonzero(split == number) for number in range(3)])
    images = torch.cat([emoji_captions.load(name).query.items for name in SPLITS]).float()
    small = torch.nn.functional.avg_pool2d(images, 2).flatten(1).numpy() / 255
    train = np.flatnonzero(split[place] == 0)
    pixels = _components(small - small[train].mean(axis=0), train, PIXELS)
    texts = [_grams(caption) for row in place for caption in records[row]["captions"]]
    index = np.concatenate([sorted(each) for each in texts])
    start = np.cumsum([0, *map(len, texts)])
    counted = sparse.csr_matrix((np.ones(len(index)), index, start), shape=(len(texts), BUCKETS))
    fitted = np.flatnonzero(np.repeat(split[place] == 0, 5))
    rarity = np.log((1 + len(fitted)) / (1 + np.asarray((counted[fitted] > 0).sum(axis=0)).ravel()))
    weighed = counted @ sparse.diags(rarity)
    lengths = np.sqrt(np.asarray(weighed.multiply(weighed).sum(axis=1)).ravel())
    words = _components((sparse.diags(1 / np.maximum(lengths, 1e-9)) @ weighed).tocsr(), fitted, WORDS)
    concepts = np.unique([records[row]["concept"] for row in place], return_inverse=True)[1]
    made = {}
    for number, name in enumerate(SPLITS):
        own = split[place] == number
        parts = (pixels[own], words.reshape(len(place), 5, WORDS)[own])
        made[name] = Split(*(torch.from_numpy(each).float() for each in parts), torch.from_numpy(concepts[own]))
    return Task(made, hidden=192, steps=400, checkpoints=(6, 17, 49, 140, 400))


@functools.cache
def task(name: str) -> Task:
    """A data set by its name, `captions` or `emoji`, computed once a process."""
    known: dict[str, Callable[[], Task]] = {"captions": _captions, "emoji": _emoji}
    return known[name]()
