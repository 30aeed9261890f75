"""Captions with the splits of Karpathy: `dataset_flickr30k.json`, `dataset_flickr8k.json`, `dataset_coco.json`."""

from pathlib import Path
from typing import Any

from cocos.base.errors import InputError
from cocos.data import TrainingSet
from cocos.data.images import begin, captioned, places, read


def _file(path: Path) -> Path:
    """Find the file of a folder, as VSE++ and others have it beside `images`."""
    return next(iter(sorted(path.glob("dataset_*.json"))), path) if path.is_dir() else path


def recognises(path: Path) -> bool:
    """A JSON object whose images have `sentences`; or a folder with one `dataset_NAME.json`."""
    if path.is_dir() and len(list(path.glob("dataset_*.json"))) != 1:
        return False
    path = _file(path)
    head = begin(path) if path.is_file() else b""
    return head[:1] == b"{" and b'"images"' in head and (b'"sentids"' in head or b'"sentences"' in head)


def _entries(path: Path) -> list[dict[str, Any]]:
    path = _file(path)
    found = read(path).get("images")
    if not isinstance(found, list):
        raise InputError(f"{path}: images is no list of objects; expected the captions and splits of Karpathy")
    for place, each in enumerate(found):
        if not _whole(each):
            raise InputError(f"{path}, images, entry {place}: expected filename, split, and sentences with raw text")
    return found


def _whole(entry: Any) -> bool:
    """Whether an entry has what is read of it."""
    if not isinstance(entry, dict) or not isinstance(entry.get("sentences"), list):
        return False
    names = (entry.get("filename"), entry.get("split"), entry.get("filepath", ""))
    texts = (each.get("raw") if isinstance(each, dict) else None for each in entry["sentences"])
    return all(isinstance(each, str) for each in (*names, *texts))


def splits(path: Path) -> tuple[str, ...]:
    """List the splits."""
    return tuple(dict.fromkeys(each["split"] for each in _entries(path)))


def load(split: str, path: Path, images: str | None = None) -> TrainingSet:
    """Load the captions of one split, and list the images; a file is read when it is encoded or drawn.

    Source: Karpathy & Fei-Fei 2015, Deep visual-semantic alignments, arXiv:1412.2306, whose splits they are.
    """
    path = _file(Path(path))
    rows = [
        (
            "/".join(filter(None, (each.get("filepath", ""), each["filename"]))),
            [" ".join(some["raw"].split()) for some in each["sentences"]],
        )
        for each in _entries(path)
        if each["split"] == split
    ]
    return captioned(rows, places(path, images), name=path.stem, split=split, option="--images FOLDER")
