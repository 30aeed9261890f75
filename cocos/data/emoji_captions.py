"""The embedded example: emoji drawn by Noto, each with five captions in four languages from CLDR."""

import gzip
import json
from pathlib import Path

import numpy as np
import torch

from cocos.data import tables
from cocos.data.training_set import TrainingSet, image_captions

EXAMPLE_FOLDER = Path(__file__).parent.parent / "example"
SPLITS = ("train", "val", "test")
IMAGE_SIDE = 32  # pixels
IMAGES_ACROSS = 57  # images in a row of the sheet


def sniff(path: Path) -> bool:
    """Return whether a folder has the two files of the example."""
    return (path / "captions.jsonl.gz").is_file() and (path / "images.webp").is_file()


def splits(path: Path | None = None) -> tuple[str, ...]:
    """Return the splits."""
    return SPLITS


def read_records(path: Path | None = None) -> list[dict]:
    """Return the record of each image in sheet order: image_id, split, concept, captions, languages."""
    file = (path or EXAMPLE_FOLDER) / "captions.jsonl.gz"
    with tables.readable(file), gzip.open(file) as stream:
        return [json.loads(line) for line in stream]


def load(split: str, path: Path | None = None) -> TrainingSet:
    """Load one split into memory: 2497 images to train, 376 to validate, 358 to test.

    Args:
        split: `train`, `val` or `test`.
        path: of the folder with `images.webp` and `captions.jsonl.gz`, by default inside the package.

    Returns:
        Images (N, 3, 32, 32) uint8, on white, and 5 N captions, consecutive for each image: name and keywords in
        English, name in German, French and Spanish. The group of an image is its index in the split.
    """
    from PIL import Image

    records, file = read_records(path), (path or EXAMPLE_FOLDER) / "images.webp"
    down = -(-len(records) // IMAGES_ACROSS)
    with tables.readable(file), Image.open(file) as image:
        sheet = np.asarray(image.convert("RGB")).reshape(down, IMAGE_SIDE, IMAGES_ACROSS, IMAGE_SIDE, 3)
    tiles = sheet.transpose(0, 2, 4, 1, 3).reshape(-1, 3, IMAGE_SIDE, IMAGE_SIDE)
    rows = [row for row, record in enumerate(records) if record["split"] == split]
    captions = [records[row]["captions"] for row in rows]
    return image_captions(
        images=torch.from_numpy(tiles[rows]),
        captions=tuple(caption for texts in captions for caption in texts),
        image_group=torch.arange(len(rows)),
        caption_group=torch.tensor([index for index, texts in enumerate(captions) for _ in texts]),
        name="emoji_captions",
        split=split,
    )
