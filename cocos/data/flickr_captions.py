"""Flickr captions: `results_20130124.token`, `Flickr8k.token.txt`: a line `image.jpg#0<tab>caption` for each."""

import re
from pathlib import Path

from cocos.base.errors import InputError, unreachable
from cocos.data import TrainingSet
from cocos.data.images import begin, captioned, places

SPLITS = ("train",)
LINE = re.compile(r"(?P<image>[^\t#]+)#\d+\t(?P<caption>.*)")
# Folders of the images in the published archives.
USUAL_FOLDERS = ("flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Images")


def recognises(path: Path) -> bool:
    """A text whose first line is that of a caption."""
    first = begin(path).partition(b"\n")[0].decode("utf-8", "replace") if path.is_file() else ""
    return LINE.fullmatch(first.rstrip("\r")) is not None


def load(split: str, path: Path, images: str | None = None) -> TrainingSet:
    """Load all captions, and list the images; a file is read when it is encoded or drawn."""
    path = Path(path)
    rows: dict[str, list[str]] = {}
    try:
        with open(path, "rb") as stream:
            lines = stream.read().decode("utf-8").split("\n")
    except OSError as error:
        raise InputError(f"{path}: {unreachable(error)}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error.reason} at byte {error.start})") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            if (found := LINE.fullmatch(line.rstrip("\r"))) is None:
                raise InputError(f"{path}, line {number}: {line[:60]!r}, expected image.jpg#0, a tab and a caption")
            rows.setdefault(found["image"], []).append(" ".join(found["caption"].split()))
    where = [*places(path, images), *([] if images else [path.parent / name for name in USUAL_FOLDERS])]
    return captioned(list(rows.items()), where, name=path.stem, split=split, option="--images FOLDER")
