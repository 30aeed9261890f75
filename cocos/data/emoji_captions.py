"""The embedded example: emoji drawn by Noto, each with five captions in four languages from CLDR."""

import gzip
import json
from pathlib import Path

import numpy as np
import torch

from cocos.data import tables
from cocos.data.training_set import TrainingSet, image_captions

EXAMPLE_FOLDER = Path(__file__).parent.parent / "example"
FILES = ("captions.jsonl.gz", "images.webp")
SPLITS = ("train", "val", "test")
IMAGE_SIDE = 32  # pixels
IMAGES_ACROSS = 57  # images in a row of the sheet


def splits(path: Path | None = None) -> tuple[str, ...]:
    """Return the splits of a folder with the two files of the example."""
    files = [(path or EXAMPLE_FOLDER) / name for name in FILES]
    return SPLITS if all(file.is_file() for file in files) else ()


def load(split: str, path: Path | None = None) -> TrainingSet:
    """Load one split into memory, by default from the package: 2497 images to train, 376 to validate, 358 to test.

    Images are (N, 3, 32, 32) uint8, on white. The five captions of each image are its name and keywords in English, and
    its name in German, French and Spanish.
    """
    from PIL import Image

    captions_file, sheet_file = ((path or EXAMPLE_FOLDER) / name for name in FILES)
    with tables.readable(captions_file), gzip.open(captions_file) as stream:
        records = [json.loads(line) for line in stream]  # image_id, split, concept, captions, languages
    with tables.readable(sheet_file):
        sheet = np.asarray(Image.open(sheet_file).convert("RGB"))
    tiles = sheet.reshape(-1, IMAGE_SIDE, IMAGES_ACROSS, IMAGE_SIDE, 3).transpose(0, 2, 4, 1, 3)
    rows = [row for row, record in enumerate(records) if record["split"] == split]
    return image_captions(
        torch.from_numpy(tiles.reshape(-1, 3, IMAGE_SIDE, IMAGE_SIDE)[rows]),
        [caption for row in rows for caption in records[row]["captions"]],
        torch.tensor([group for group, row in enumerate(rows) for _ in records[row]["captions"]]),
        name="emoji_captions",
        split=split,
    )
