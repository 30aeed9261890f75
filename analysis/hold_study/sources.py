"""Make the two files of `data/` from texts: `python -m analysis.hold_study.sources photos|abstracts TEXTS [ENCODER]`.

TEXTS are lines of JSON: groups of captions (`group_id` like coco-119038, `captions`), or PubMedQA (`query_id` like
pmid-12040336, `query`, `passage`, `answer`). ENCODER is the folder of all-MiniLM-L6-v2 for sentence-transformers.
"""

import json
import sys
from pathlib import Path

import numpy as np

from analysis.hold_study.tasks import DATA, words
from analysis.study.tasks import CAPTIONS

# Seed of the order in which items are divided, and items that are trained and validated; the others are tested.
SEED = 34
PHOTOS, ABSTRACTS = (1400, 478), (480, 160)
MOST = 127  # of int8


def split_of(items: int, sizes: tuple[int, int]) -> np.ndarray:
    """Split of each item: 0 train, 1 validation, 2 test."""
    order, split = np.random.default_rng(SEED).permutation(items), np.full(items, 2, dtype=np.uint8)
    split[order[: sizes[0]]], split[order[sizes[0] : sum(sizes)]] = 0, 1
    return split


def photos(rows: list[dict], encoder: str) -> dict[str, np.ndarray]:
    """Five captions of each photo that the first study does not have, as int8 vectors of the encoder."""
    from sentence_transformers import SentenceTransformer

    with np.load(CAPTIONS) as held:
        before = set(held["coco_id"].tolist())
    numbers = [int(row["group_id"].rpartition("-")[2]) for row in rows]
    chosen = [place for place, number in enumerate(numbers) if number not in before]
    texts = [caption for place in chosen for caption in rows[place]["captions"][:5]]
    vectors = SentenceTransformer(encoder, device="cpu").encode(texts, batch_size=128, normalize_embeddings=True)
    vectors = vectors * (MOST / np.abs(vectors).max(axis=1, keepdims=True))
    features = vectors.round().astype(np.int8).reshape(len(chosen), 5, -1)
    ids = np.array([numbers[place] for place in chosen], dtype=np.int32)
    return {"features": features, "split": split_of(len(chosen), PHOTOS), "coco_id": ids}


def abstracts(rows: list[dict], _: str) -> dict[str, np.ndarray]:
    """Questions, their abstracts and the conclusions of these, as components of n-grams."""
    split = split_of(len(rows), ABSTRACTS)
    texts = [row[key] for row in rows for key in ("query", "passage", "answer")]
    features = words(texts, np.flatnonzero(np.repeat(split == 0, 3))).reshape(len(rows), 3, -1)
    ids = np.array([int(row["query_id"].rpartition("-")[2]) for row in rows], dtype=np.int32)
    return {"features": features.astype(np.float16), "split": split, "pmid": ids}


if __name__ == "__main__":
    name, file, encoder = (*sys.argv[1:], "")[:3]
    lines = [json.loads(line) for line in Path(file).read_text("utf-8").split("\n") if line]
    np.savez_compressed(DATA / f"{name}.npz", **{"photos": photos, "abstracts": abstracts}[name](lines, encoder))
