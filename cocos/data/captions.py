"""Image captions: COCO, Karpathy's splits, Flickr's token files, and tables such as `image,caption`."""

import json
import re
from pathlib import Path
from typing import Any

from cocos.base.errors import InputError, nearest
from cocos.data import tables
from cocos.data.images import IMAGE_SUFFIXES, captioned_images
from cocos.data.pairs import ALL_ROWS, choose_columns, with_all
from cocos.data.training_set import TrainingSet

OPTIONS = ("images",)
COCO_FILE = re.compile(r"captions_(?P<split>[a-zA-Z]+)(?P<year>\d*)\.json")
TOKEN_LINE = re.compile(r"(?P<image>[^\t#]+)#\d+\t(?P<caption>.*)")  # image.jpg#0<tab>caption
# Column names in order of precedence.
IMAGE_COLUMNS = ("image", "image_name", "image_path", "filepath", "file_name", "filename", "image_url", "url")
CAPTION_COLUMNS = ("caption", "title", "comment")
HEADERLESS = ("caption", "image")  # columns of Conceptual Captions, whose file has no header
URLS = ("http://", "https://")
TABLE_FILES = ("captions.txt", "captions.csv", "captions.tsv")  # as Flickr8k is often unpacked, next to Images
IMAGE_FOLDERS = ("flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Images")  # in the published archives

Captions = list[tuple[str, list[str]]]  # image and its captions


def find_files(path: Path) -> dict[str, Path]:
    """Return the file of each split; a single file with several splits, or without a split, has the key ""."""
    if path.is_file():
        match = COCO_FILE.fullmatch(path.name)
        return {match["split"] if match else "": path}
    folder = path / "annotations" if (path / "annotations").is_dir() else path
    matches = {file: COCO_FILE.fullmatch(file.name) for file in sorted(folder.glob("captions_*.json"))}
    if coco := {match["split"]: file for file, match in matches.items() if match}:
        return coco
    karpathy = sorted(path.glob("dataset_*.json"))
    candidates = [path / name for name in TABLE_FILES if (path / name).is_file()]
    if len(karpathy) == 1:
        candidates.insert(0, karpathy[0])
    return {"": candidates[0]} if candidates else {}


def layout_of(file: Path) -> str | None:
    """Return `coco`, `karpathy`, `tokens` or `table`, by the first bytes of a file."""
    try:
        head = tables.read_bytes(file, 2**16).lstrip()
    except (OSError, EOFError):
        return None
    if head[:1] == b"{":
        if b'"sentids"' in head or b'"sentences"' in head:
            return "karpathy" if b'"images"' in head else None
        is_coco = any(key in head for key in (b'"images"', b'"annotations"'))
        return "coco" if is_coco and any(key in head for key in (b'"file_name"', b'"caption"')) else None
    if TOKEN_LINE.fullmatch(head.partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r")):
        return "tokens"
    return "table" if head[:4] != b"PAR1" and table_columns(tables.column_names(file)) else None


def table_columns(names: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the columns of images and captions; None for a table without them, or with pairs of texts."""
    if is_headerless(names):
        return HEADERLESS[1], HEADERLESS[0]
    if choose_columns(names, {}) is not None:
        return None
    lower = {name.lower(): name for name in reversed(names)}
    image = next((lower[name] for name in IMAGE_COLUMNS if name in lower), None)
    caption = next((lower[name] for name in CAPTION_COLUMNS if name in lower), None)
    return (image, caption) if image and caption else None


def is_headerless(names: tuple[str, ...]) -> bool:
    """Return whether the first line is a caption and the path or URL of its image."""
    return len(names) == 2 and (names[1].startswith(URLS) or names[1].lower().endswith(IMAGE_SUFFIXES))


def sniff(path: Path) -> bool:
    """Return whether a file, or the files of a folder, have one of the four layouts."""
    files = find_files(path)
    return bool(files) and all(layout_of(file) is not None for file in files.values())


def read_rows(path: Path) -> dict[str, Captions]:
    """Return the images and captions of each split."""
    rows: dict[str, Captions] = {}
    for split, file in find_files(path).items():
        reader = {"coco": read_coco, "karpathy": read_karpathy, "tokens": read_tokens, "table": read_table}
        layout = layout_of(file)
        if layout is None:
            raise InputError(f"{file}: not a caption file, expected COCO, Karpathy, Flickr tokens or image,caption")
        for part, captions in reader[layout](file).items():
            rows[part or split or "train"] = captions
    return rows


def read_coco(file: Path) -> dict[str, Captions]:
    """Read `captions_train2017.json`: images with ids, and annotations with captions."""
    content = tables.read_json(file)
    with tables.readable(file):
        names = {entry["id"]: entry["file_name"] for entry in content["images"]}
        captions: dict[Any, list[str]] = {number: [] for number in names}
        for number, entry in enumerate(content["annotations"]):
            if entry["image_id"] not in names:
                raise InputError(
                    f"{file}, annotations, entry {number}: image_id {str(entry['image_id'])[:40]}, expected the id of "
                    "one of its images"
                )
            captions[entry["image_id"]].append(clean_caption(entry["caption"]))
    return {"": [(names[number], texts) for number, texts in captions.items()]}


def read_karpathy(file: Path) -> dict[str, Captions]:
    """Read `dataset_flickr30k.json` and its kin.

    Source: Karpathy & Fei-Fei 2015, Deep visual-semantic alignments, arXiv:1412.2306.
    """
    rows: dict[str, Captions] = {}
    content = tables.read_json(file)
    with tables.readable(file):
        for entry in content["images"]:
            name = "/".join(filter(None, (entry.get("filepath", ""), entry["filename"])))
            texts = [clean_caption(sentence["raw"]) for sentence in entry["sentences"]]
            rows.setdefault(entry["split"], []).append((name, texts))
    return rows


def read_tokens(file: Path) -> dict[str, Captions]:
    """Read `results_20130124.token` or `Flickr8k.token.txt`: one caption per line."""
    rows: dict[str, list[str]] = {}
    for number, line in enumerate(tables.read_text(file).split("\n"), 1):
        if line.strip():
            if (match := TOKEN_LINE.fullmatch(line.rstrip("\r"))) is None:
                raise InputError(f"{file}, line {number}: {line[:60]!r}, expected image.jpg#0, a tab and a caption")
            rows.setdefault(match["image"], []).append(clean_caption(match["caption"]))
    return {"": list(rows.items())}


def read_table(file: Path) -> dict[str, Captions]:
    """Read a table of images and captions; rows with the same image are its captions."""
    names = tables.column_names(file)
    image, caption = table_columns(names) or HEADERLESS
    table = tables.read(file, HEADERLESS if is_headerless(names) else ())
    splits = table.column("split") if "split" in table.names else [""] * table.rows
    rows: dict[str, dict[str, list[str]]] = {}
    for row, (name, text, split) in enumerate(zip(table.column(image), table.column(caption), splits, strict=True)):
        where = f"{file}, {table.line(row)}"
        if not name or not text.strip():
            raise InputError(f"{where}: an empty {caption if name else image}; correct or remove the row")
        if name.startswith(URLS):
            raise InputError(f"{where}: {name[:80]} is a URL, expected the path of an image (nothing is downloaded)")
        rows.setdefault(split, {}).setdefault(name, []).append(clean_caption(text))
    return {split: list(captions.items()) for split, captions in rows.items()}


def clean_caption(text: str) -> str:
    """Return a caption with single blanks."""
    if not isinstance(text, str):
        raise TypeError(f"{json.dumps(text)[:60]}, expected a caption")
    return " ".join(text.split())


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits in the names of the files, or in the file."""
    files = find_files(path)
    if "" not in files:
        return tuple(files)
    names = tuple(read_rows(path)) or ("train",)
    return with_all(names) if layout_of(files[""]) == "table" else names


def load(split: str, path: Path, images: str | None = None) -> TrainingSet:
    """List the images and captions of one split; an image is read when it is encoded or drawn.

    Args:
        split: one of `splits`.
        path: of the file, or of a folder with it.
        images: folder of the images; by default several folders near the file are searched.
    """
    rows, files = read_rows(path), find_files(path)
    file = files.get(split) or next(iter(files.values()))
    captions = rows.get(split, [])
    if split == ALL_ROWS and split not in rows:
        captions = [image for part in rows.values() for image in part]
    elif split not in rows:
        raise InputError(nearest(f"split of {path}", split, rows))
    stem = re.sub(r"^(captions|dataset)_", "", file.stem)
    names = (stem, "images", f"images/{stem}", f"{stem}_images", f"{stem}-images", ".", *IMAGE_FOLDERS)
    nearby = [folder / name for folder in (file.parent, file.parent.parent) for name in names]
    if layout_of(file) == "table":  # whose paths usually begin in its own folder
        nearby = [file.parent, *nearby]
    folders = nearby if images is None else [Path(images)]
    return captioned_images(captions, folders, name=file.stem, split=split)
