"""Hugging Face datasets that were saved to disk (`save_to_disk`): texts in Arrow files, with their splits."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cocos.base import reading
from cocos.base.errors import InputError, nearest
from cocos.base.untrusted import parsed
from cocos.data import TrainingSet
from cocos.data.pairs import ALL_ROWS, columns_of, roles, training_set, with_all
from cocos.data.tables import Columns, pyarrow, reason

SUFFIX = ".arrow"


def _json(path: Path) -> dict[str, Any]:
    """Read a file that describes a dataset, as data."""
    try:
        with open(path, "rb") as stream:
            found = parsed(stream.read())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not readable as JSON ({reason(error)}); save the dataset again") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: {type(found).__name__}, expected an object; save the dataset again")
    return found


def recognises(path: Path) -> bool:
    """A folder with `dataset_dict.json`, or with `state.json` or `dataset_info.json` and Arrow files."""
    if (path / "dataset_dict.json").is_file():
        return True
    described = (path / "state.json").is_file() or (path / "dataset_info.json").is_file()
    return described and any(path.glob(f"*{SUFFIX}"))


def _folders(path: Path) -> dict[str, Path]:
    if (path / "dataset_dict.json").is_file():
        names = _json(path / "dataset_dict.json").get("splits")
        if not isinstance(names, list) or not all(map(_plain, names)):
            raise InputError(f"{path / 'dataset_dict.json'}: splits {str(names)[:80]}, expected a list of names")
        return {name: path / name for name in names}
    about = _json(path / "state.json") if (path / "state.json").is_file() else {}
    split = about.get("_split")
    return {split if isinstance(split, str) and _plain(split) else "train": path}


def _plain(name: Any) -> bool:
    """Whether a name is that of a file or folder in the same folder."""
    named = isinstance(name, str) and name.isprintable() and name == Path(name).name and name not in {"", ".", ".."}
    return named and len(name.encode()) <= reading.NAME_BYTES


def splits(path: Path) -> tuple[str, ...]:
    """List the splits; where there are several, `all` is their rows together."""
    return with_all(_folders(path))


def _files(folder: Path) -> list[Path]:
    """Find the Arrow files of a split, in their order."""
    if not (folder / "state.json").is_file():
        found = sorted(folder.glob(f"*{SUFFIX}"))
    else:
        about = _json(folder / "state.json")
        if about.get("_indices_data_files"):
            raise InputError(f"{folder}: a selection of rows (indices); save it with dataset.flatten_indices()")
        listed = about.get("_data_files")
        names = [
            str(each.get("filename")) if isinstance(each, dict) else ""
            for each in (listed if isinstance(listed, list) else [])
        ]
        if not all(map(_plain, names)):
            raise InputError(f"{folder / 'state.json'}: data files {str(listed)[:80]}, expected names of files")
        found = [folder / name for name in names]
    if missing := [each.name for each in found if not os.path.isfile(each)]:
        raise InputError(f"{folder} has no {missing[0]}, which its state.json names; copy the whole folder")
    if not found:
        raise InputError(f"{folder} has no {SUFFIX} file; copy the whole folder")
    return found


def _table(path: Path) -> Columns:
    """Open an Arrow file; a column is read when it is asked for, and the file is never mapped."""
    arrow = pyarrow(str(path))
    damaged = (arrow.ArrowException, OSError, ValueError)
    try:
        names, rows = _counted(path)
    except damaged as error:
        raise InputError(f"{path} is a damaged Arrow file ({reason(error)}); save the dataset again") from None

    def column(name: str) -> list[Any]:
        values: list[Any] = []
        try:
            for batch in _batches(path, names.index(name)):
                batch.validate(full=True)
                values += batch.column(0).to_pylist()
        except damaged as error:
            raise InputError(f"{path}, {name}: damaged ({reason(error)}); save the dataset again") from None
        if len(values) != rows:
            raise InputError(f"{path} changed while it was read; wait until it is written, and try again")
        return values

    return Columns(path, names, rows, column, lambda row: f"row {row}")


def _counted(path: Path) -> tuple[tuple[str, ...], int]:
    """Names of the columns of an Arrow file, and its number of rows."""
    rows = 0
    for batch in _batches(path, None):
        batch.validate()
        rows += batch.num_rows
    with _reader(path) as reader:
        return tuple(reader.schema.names), rows


def _batches(path: Path, place: int | None) -> Iterator[Any]:
    """Yield the batches of an Arrow file one by one, with one column, by its place, or with all."""
    with _reader(path, None if place is None else [place]) as reader:
        stream = not hasattr(reader, "num_record_batches")
        yield from reader if stream else map(reader.get_batch, range(reader.num_record_batches))


def _reader(path: Path, places: list[int] | None = None) -> Any:
    """Open an Arrow file, a stream or one with random access, with some of its columns, or all; read, not mapped."""
    arrow, ipc = pyarrow(str(path)), pyarrow(str(path), "pyarrow.ipc")
    options = ipc.IpcReadOptions(included_fields=places or [], use_threads=False)
    source = arrow.OSFile(str(path))
    try:
        return ipc.open_stream(source, options=options)
    except arrow.ArrowInvalid:
        source.seek(0)
        return ipc.open_file(source, options=options)


def load(split: str, path: Path, columns: Mapping[str, Any] | str | None = None) -> TrainingSet:
    """Load the texts of one split, as `cocos.data.pairs` does. Nothing that the files name is imported.

    Args:
        split: one of `splits`.
        path: of the folder.
        columns: role -> name of a column, as in `cocos.data.pairs.load`.
    """
    folders = _folders(Path(path))
    if split not in {*folders, ALL_ROWS}:
        raise InputError(nearest(f"split of {path}", split, folders))
    kept = [folders[split]] if split in folders else folders.values()
    tables = [_table(each) for folder in kept for each in _files(folder)]
    return training_set(tables, roles(tables[0].names, columns_of(columns), path), name=Path(path).name, split=split)
