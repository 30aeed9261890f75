"""Tables of images and captions: CSV or TSV with a header (`image,caption`), or of captions and paths without one."""

from pathlib import Path

from cocos.base.errors import InputError, nearest
from cocos.data import TrainingSet, pairs
from cocos.data.images import IMAGE_SUFFIXES, captioned, places
from cocos.data.tables import Columns, first_line, missing, read

# Names of the columns, in the order in which they are tried.
IMAGE_COLUMNS = ("image", "image_name", "image_path", "filepath", "file_name", "filename", "image_url", "url")
CAPTION_COLUMNS = ("caption", "title", "comment")
# Columns of a table without a header, as Conceptual Captions have them.
WITHOUT_HEADER = ("caption", "image")
ADDRESSES = ("http://", "https://")
# Names of the table in a folder, as Flickr8k is often unpacked: beside `Images`.
IN_A_FOLDER = ("captions.txt", "captions.csv", "captions.tsv")


def _columns(names: tuple[str, ...]) -> tuple[str, str] | None:
    """Find the columns of the images and of the captions; None where a table has none, or has pairs of texts."""
    try:
        pairs.roles(names, {}, Path())
    except InputError:
        known = {name.lower(): name for name in reversed(names)}
        image, caption = (
            next((known[each] for each in some if each in known), None) for some in (IMAGE_COLUMNS, CAPTION_COLUMNS)
        )
        return None if image is None or caption is None else (image, caption)
    return None


def _headless(names: tuple[str, ...]) -> bool:
    """Whether the first line is a caption and the path or the address of its image."""
    if len(names) != 2:
        return False
    return names[1].startswith(ADDRESSES) or names[1].lower().endswith(IMAGE_SUFFIXES)


def _file(path: Path) -> Path:
    """Find the table of a folder."""
    return next((path / name for name in IN_A_FOLDER if (path / name).is_file()), path) if path.is_dir() else path


def recognises(path: Path) -> bool:
    """A table with a column of images and one of captions, or a first line with a caption and an image; or a folder."""
    path = _file(path)
    first = first_line(path) if path.is_file() else ()
    return _headless(first) or _columns(first) is not None


def _table(path: Path) -> tuple[Columns, tuple[str, str]]:
    """Read a table, and name its columns of images and captions."""
    first = first_line(path)
    if _headless(first):
        return read(path, WITHOUT_HEADER), (WITHOUT_HEADER[1], WITHOUT_HEADER[0])
    if (columns := _columns(first)) is None:
        raise InputError(
            f"{path}: columns {', '.join(first[:8]) or 'none'}, expected one of {', '.join(IMAGE_COLUMNS)} and one of "
            f"{', '.join(CAPTION_COLUMNS)}"
        )
    return read(path), columns


def splits(path: Path) -> tuple[str, ...]:
    """List the splits: values of the column `split`; `train` where there is none."""
    table, _ = _table(_file(Path(path)))
    if "split" not in table.names:
        return ("train",)
    return pairs.with_all(str(each) for each in table.column("split") if not missing(each)) or ("train",)


def load(split: str, path: Path, images: str | None = None) -> TrainingSet:
    """Load the captions of one split, and list the images; a file is read when it is encoded or drawn.

    Rows with the same image are captions of one image. The split `all` has every row, where no split has that name.
    """
    path = _file(Path(path))
    table, (image, caption) = _table(path)
    if split not in (known := splits(path)):
        raise InputError(nearest(f"split of {path}", split, known))
    parts = table.column("split") if "split" in table.names else [split] * table.rows
    rows: dict[str, list[str]] = {}
    for row, (name, text, part) in enumerate(zip(table.column(image), table.column(caption), parts, strict=True)):
        where = f"{path}, {table.line(row)}"
        if name.startswith(ADDRESSES):
            raise InputError(
                f"{where}: {name[:80]} is an address, and cocos downloads nothing; write the path of the image instead"
            )
        if not name or not text.strip():
            raise InputError(f"{where}: an empty {caption if name else image}; correct the row or leave it out")
        if part == split or split == pairs.ALL_ROWS:
            rows.setdefault(name, []).append(" ".join(text.split()))
    return captioned(list(rows.items()), _places(path, images), name=path.stem, split=split, option="--images FOLDER")


def _places(path: Path, images: str | None) -> list[Path]:
    """List the folders in which images may lie; the paths of a table usually begin in its own."""
    usual = places(path, images)
    return usual if images is not None else [path.parent, path.parent / "Images", *usual]
