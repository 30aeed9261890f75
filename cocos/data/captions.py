"""Image captions: COCO, Karpathy's splits, Flickr's token files, and tables such as `image,caption`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import torch

from cocos.base.errors import InputError
from cocos.data import tables
from cocos.data.images import ImageFiles, locate
from cocos.data.pairs import choose_columns
from cocos.data.training_set import TrainingSet, image_captions

OPTIONS = ("images",)
COCO_FILE = re.compile(r"captions_(?P<split>[a-zA-Z]+)(?P<year>\d*)\.json")
TOKEN_LINE = re.compile(r"(?P<image>[^\t#]+)#\d+\t(?P<caption>.*)")  # image.jpg#0<tab>caption
# Column names in order of precedence.
IMAGE_COLUMNS = ("image", "image_name", "image_path", "filepath", "file_name", "filename")
CAPTION_COLUMNS = ("caption", "title", "comment")
TABLE_FILES = ("captions.txt", "captions.csv", "captions.tsv")  # as Flickr8k is often unpacked, next to Images
IMAGE_FOLDERS = ("flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Images")  # in the published archives


def find_files(path: Path) -> dict[str, Path]:
    """Return the file of each split; a single file with several splits, or without a split, has the key ""."""
    folder = path / "annotations" if (path / "annotations").is_dir() else path
    files = [path] if path.is_file() else sorted(folder.glob("captions_*.json"))
    if coco := {match["split"]: file for file in files if (match := COCO_FILE.fullmatch(file.name))}:
        return coco
    if path.is_dir():
        files = [file for pattern in ("dataset_*.json", *TABLE_FILES) for file in sorted(path.glob(pattern))]
    return {"": files[0]} if files else {}


def layout_of(file: Path) -> str | None:
    """Return `coco`, `karpathy`, `tokens` or `table`, by the first bytes of a file."""
    try:
        head = tables.read_bytes(file, 2**16).lstrip()
    except (OSError, EOFError):
        return None
    if head[:1] == b"{":
        if b'"sentids"' in head or b'"sentences"' in head:
            return "karpathy"
        return "coco" if b'"file_name"' in head or b'"image_id"' in head else None
    if TOKEN_LINE.fullmatch(head.partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r")):
        return "tokens"
    return "table" if head[:4] != b"PAR1" and table_columns(tables.column_names(file)) else None


def table_columns(names: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the columns of images and captions; None for a table without them, or with pairs of texts."""
    lower = {name.lower(): name for name in reversed(names)}
    image = next((lower[name] for name in IMAGE_COLUMNS if name in lower), None)
    caption = next((lower[name] for name in CAPTION_COLUMNS if name in lower), None)
    return (image, caption) if image and caption and choose_columns(names, {}) is None else None


def read_rows(file: Path) -> Iterator[tuple[str, str, str]]:
    """Yield split, image and caption of each line or entry."""
    layout = layout_of(file)
    if layout == "coco":
        content = json.loads(tables.read_text(file))
        names = {entry["id"]: entry["file_name"] for entry in content["images"]}
        captions: dict[int, list[str]] = {number: [] for number in names}
        for entry in content["annotations"]:
            captions[entry["image_id"]].append(entry["caption"])
        yield from (("", names[number], text) for number, texts in captions.items() for text in texts)
    elif layout == "karpathy":  # Karpathy & Fei-Fei 2015, arXiv:1412.2306
        for entry in json.loads(tables.read_text(file))["images"]:
            name = "/".join(filter(None, (entry.get("filepath", ""), entry["filename"])))
            yield from ((entry["split"], name, sentence["raw"]) for sentence in entry["sentences"])
    elif layout == "tokens":
        for number, line in enumerate(tables.read_text(file).split("\n"), 1):
            if line.strip():
                if (match := TOKEN_LINE.fullmatch(line)) is None:
                    raise InputError(f"{file}, line {number}: {line[:60]!r}, expected image.jpg#0, a tab and a caption")
                yield "", match["image"], match["caption"]
    else:
        table = tables.read(file)
        columns = [table.column(name) for name in table_columns(table.names)]
        splits = table.column("split") if "split" in table.names else [""] * table.rows
        for row, (split, image, caption) in enumerate(zip(splits, *columns, strict=True)):
            if not image or not caption.strip():
                raise InputError(f"{file}, {table.line(row)}: an empty image or caption; correct or remove the row")
            yield split, image, caption


def read_splits(path: Path) -> dict[str, dict[str, list[str]]]:
    """Return the captions of each image of each split."""
    captions: dict[str, dict[str, list[str]]] = {}
    for file_split, file in find_files(path).items():
        with tables.readable(file):
            for split, image, caption in read_rows(file):
                by_image = captions.setdefault(split or file_split or "train", {})
                by_image.setdefault(str(image), []).append(" ".join(caption.split()))
    return captions


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits in the names of the files, or in the file, if all have one of the four layouts."""
    files = find_files(path)
    if not files or not all(map(layout_of, files.values())):
        return ()
    return tuple(read_splits(path)) or ("train",) if "" in files else tuple(files)


def load(split: str, path: Path, images: str | None = None) -> TrainingSet:
    """List the captioned images of one split, in the folder `images` or in one of several near the file."""
    captions, files = read_splits(path), find_files(path)
    if split not in captions:
        raise InputError(f"{path}, {split}: no image with a caption")
    file = files.get(split) or next(iter(files.values()))
    stem = re.sub(r"^(captions|dataset)_", "", file.stem)
    names = (".", stem, "images", f"images/{stem}", f"{stem}_images", f"{stem}-images", *IMAGE_FOLDERS)
    nearby = [folder / name for folder in (file.parent, file.parent.parent) for name in names]
    folders = nearby if images is None else [Path(images)]
    paths = locate(list(captions[split]), folders, f"{file.stem}, {split}")
    texts = [(row, text) for row, by_image in enumerate(captions[split].values()) for text in by_image]
    group = torch.tensor([row for row, _ in texts])
    return image_captions(
        ImageFiles(paths), [text for _, text in texts], group, name=file.stem, split=split, pictures=paths
    )
