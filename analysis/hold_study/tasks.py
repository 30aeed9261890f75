"""The three data sets of the second study, as features of queries and of their candidates, in splits of their own."""

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from analysis.study.tasks import BUCKETS, PIXELS, SPLITS, WORDS, _components, _grams
from cocos.checkpoints.data import emoji_captions

__all__ = ["DATA", "SPLITS", "Split", "Task", "emoji_splits", "task", "words"]

DATA = Path(__file__).parent / "data"
# Concepts of emoji whose hash leaves these rests are validated and tested; the others are trained.
EMOJI_PARTS, EMOJI_VAL, EMOJI_TEST = 20, range(3), range(3, 8)
STEPS = {"photos": 150, "emoji": 400, "abstracts": 300}
HIDDEN = {"photos": 0, "emoji": 192, "abstracts": 0}  # width of the hidden layer; 0: linear heads


@dataclass(frozen=True, eq=False)
class Split:
    """Features of the items of a split.

    Args:
        query: (N, F).
        candidate: (N, K, G), the K candidates of each query.
    """

    query: Tensor
    candidate: Tensor


@dataclass(frozen=True, eq=False)
class Task:
    """A data set and how models are trained on it.

    Args:
        splits: by name.
        hidden: width of the hidden layer of both heads; 0 for linear heads.
        steps: of a training.
    """

    splits: dict[str, Split]
    hidden: int
    steps: int


def words(texts: list[str], fitted: np.ndarray, number: int = WORDS) -> np.ndarray:
    """Principal components of weighted character n-grams, (texts, number), as the first study has them for emoji.

    Args:
        texts: one a row.
        fitted: rows that tell the weights and the components.
        number: of components.
    """
    grams = [sorted(_grams(each)) for each in texts]
    index, start = np.concatenate(grams), np.cumsum([0, *map(len, grams)])
    counted = sparse.csr_matrix((np.ones(len(index)), index, start), shape=(len(texts), BUCKETS))
    rarity = np.log((1 + len(fitted)) / (1 + np.asarray((counted[fitted] > 0).sum(axis=0)).ravel()))
    weighed = counted @ sparse.diags(rarity)
    lengths = np.sqrt(np.asarray(weighed.multiply(weighed).sum(axis=1)).ravel())
    return _components((sparse.diags(1 / np.maximum(lengths, 1e-9)) @ weighed).tocsr(), fitted, number)


def _features(name: str) -> tuple[Tensor, Tensor, np.ndarray]:
    """Rows (N, 1 + K, F) of a file as queries and candidates, and the split of each item."""
    with np.load(DATA / f"{name}.npz") as held:
        return *torch.from_numpy(held["features"]).float().split((1, held["features"].shape[1] - 1), 1), held["split"]


def _photos() -> tuple[Tensor, Tensor, np.ndarray]:
    """First captions of photos that ask for the other four, as unit vectors of MiniLM."""
    query, candidate, split = _features("photos")
    unit = functools.partial(torch.nn.functional.normalize, dim=2)  # int8 keeps the directions
    return unit(query), unit(candidate), split


def emoji_splits(concepts: list[str]) -> np.ndarray:
    """Split of each emoji, 0 to 2, by the hash of its concept, which is another one than that of the first study."""
    rest = np.array([zlib.crc32(f"hold {each}".encode()) % EMOJI_PARTS for each in concepts])
    return np.where(np.isin(rest, EMOJI_VAL), 1, np.where(np.isin(rest, EMOJI_TEST), 2, 0))


def _emoji() -> tuple[Tensor, Tensor, np.ndarray]:
    """Emoji that ask for their five captions: principal components of pixels and of n-grams."""
    records = emoji_captions.records()
    loaded = [emoji_captions.load(name).query.items for name in SPLITS]
    place = np.concatenate([[n for n, each in enumerate(records) if each["split"] == name] for name in SPLITS])
    split = emoji_splits([records[row]["concept"] for row in place])
    small = torch.nn.functional.avg_pool2d(torch.cat(loaded).float(), 2).flatten(1).numpy() / 255
    train = np.flatnonzero(split == 0)
    pixels = _components(small - small[train].mean(axis=0), train, PIXELS)
    texts = [caption for row in place for caption in records[row]["captions"]]
    own = words(texts, np.flatnonzero(np.repeat(split == 0, 5))).reshape(len(place), 5, WORDS)
    return torch.from_numpy(pixels).float()[:, None], torch.from_numpy(own).float(), split


KNOWN: dict[str, Callable[[], tuple[Tensor, Tensor, np.ndarray]]] = {
    "photos": _photos,
    "emoji": _emoji,
    "abstracts": lambda: _features("abstracts"),
}


@functools.cache
def task(name: str) -> Task:
    """A data set by its name, computed once a process."""
    query, candidate, split = KNOWN[name]()
    made = {name: Split(query[split == place, 0], candidate[split == place]) for place, name in enumerate(SPLITS)}
    return Task(made, HIDDEN[name], STEPS[name])
