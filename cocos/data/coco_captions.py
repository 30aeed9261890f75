"""COCO captions: `captions_train2017.json`, or a folder with its `annotations` and the images."""

import re
from pathlib import Path
from typing import Any

from cocos.base.errors import InputError
from cocos.data import TrainingSet
from cocos.data.images import begin, captioned, places, read

FILE_NAME = re.compile(r"captions_(?P<split>[a-zA-Z]+)(?P<year>\d*)\.json")


def _files(path: Path) -> dict[str, Path]:
    """Find the file of each split; a file of another name is `train`."""
    if path.is_file():
        name = FILE_NAME.fullmatch(path.name)
        return {name["split"] if name else "train": path}
    folder = path / "annotations" if (path / "annotations").is_dir() else path
    found = {file: FILE_NAME.fullmatch(file.name) for file in sorted(folder.glob("captions_*.json"))}
    return {name["split"]: file for file, name in found.items() if name}


def recognises(path: Path) -> bool:
    """A JSON object with `images` and `annotations`, or a folder with files named like those of COCO."""
    if path.is_dir():
        return bool(_files(path))
    head = begin(path)
    keys = (b'"images"', b'"annotations"'), (b'"file_name"', b'"caption"', b'"image_id"')
    return head[:1] == b"{" and all(any(each in head for each in some) for some in keys) and b'"sentids"' not in head


def splits(path: Path) -> tuple[str, ...]:
    """List the splits, as the names of the files have them."""
    return tuple(_files(path))


def load(split: str, path: Path, images: str | None = None) -> TrainingSet:
    """Load the captions of one split, and list the images; a file is read when it is encoded or drawn."""
    files = _files(Path(path))
    file = files[split]
    content = read(file)
    names: dict[Any, str] = {}
    for place, each in enumerate(_list(content, "images", file)):
        _want(isinstance(each.get("file_name"), str), f"{file}, images, entry {place}: {str(each)[:60]}", "file_name")
        names[_id(each.get("id"), f"{file}, images, entry {place}")] = each["file_name"]
    captions: dict[Any, list[str]] = {each: [] for each in names}
    for place, each in enumerate(_list(content, "annotations", file)):
        where = f"{file}, annotations, entry {place}"
        image = _id(each.get("image_id"), where)
        _want(image in captions, f"{where}: image_id {str(image)[:40]}", "id of one of its images")
        _want(isinstance(each.get("caption"), str), f"{where}: {str(each)[:60]}", "caption")
        captions[image].append(" ".join(each["caption"].split()))
    rows = [(names[image], texts) for image, texts in captions.items()]
    return captioned(rows, places(file, images), name=file.stem, split=split, option="--images FOLDER")


def _list(content: dict[str, Any], key: str, file: Path) -> list[dict[str, Any]]:
    found = content.get(key)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InputError(f"{file}: {key} is no list of objects; expected the captions of COCO")
    return found


def _id(value: Any, where: str) -> int | str:
    if not isinstance(value, int | str):
        raise InputError(f"{where}: id {str(value)[:40]}, expected a number or text")
    return value


def _want(right: bool, what: str, expected: str) -> None:
    """Refuse an entry."""
    if not right:
        raise InputError(f"{what}: expected {expected}")
