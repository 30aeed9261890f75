"""Hugging Face datasets saved with `save_to_disk`: texts in Arrow files."""

from pathlib import Path
from typing import Any

from cocos.base.errors import InputError, nearest
from cocos.data import tables
from cocos.data.pairs import ALL_ROWS, load_tables, with_all
from cocos.data.tables import Table
from cocos.data.training_set import TrainingSet

OPTIONS = ("columns",)


def sniff(path: Path) -> bool:
    """Return whether a folder has `dataset_dict.json`, or `state.json` and Arrow files."""
    if (path / "dataset_dict.json").is_file():
        return True
    is_described = (path / "state.json").is_file() or (path / "dataset_info.json").is_file()
    return is_described and any(path.glob("*.arrow"))


def open_datasets(path: Path) -> dict[str, Any]:
    """Return the dataset of each split."""
    (datasets,) = tables.require("datasets", path=path)
    try:
        saved = datasets.load_from_disk(str(path))
    except Exception as error:  # datasets and pyarrow raise many types for a damaged folder
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path}: cannot be read as a saved dataset ({reason}); save it again") from None
    return dict(saved) if isinstance(saved, dict) else {str(saved.split or "train"): saved}


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits, and `all` if there are several."""
    return with_all(open_datasets(path))


def load(split: str, path: Path, columns: str | None = None) -> TrainingSet:
    """Load the texts of one split.

    Args:
        split: one of `splits`.
        path: of the folder.
        columns: as in `pairs.load`.
    """
    saved = open_datasets(path)
    if split not in {*saved, ALL_ROWS}:
        raise InputError(nearest(f"split of {path}", split, saved))
    parts = [saved[split]] if split in saved else list(saved.values())
    rows = [
        Table(path, tuple(part.column_names), len(part), lambda name, part=part: list(part[name]), "row {}".format)
        for part in parts
    ]
    return load_tables(rows, path, path.name, split, columns)
