"""Data sets of metric learning by the lists that come with them: the path, the class and the split of each image.

CUB-200-2011, Cars-196, Stanford Online Products, In-shop and Google Landmarks, as they are unpacked.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from cocos.base.errors import InputError, nearest
from cocos.data import Side, TrainingSet, mat_files
from cocos.data.images import ImageFiles, inside, located
from cocos.data.tables import fields, first_line, read

Row = tuple[str, int | str, str]  # path, class, split
# Classes up to this number are trained on: the first half of those of each data set.
TRAINED_BIRDS, TRAINED_CARS = 100, 98
# Folders above a folder of images in which its lists may lie: those of In-shop lie above Img/img/MEN/Denim/id_00000080.
MOST_ABOVE = 5
LANDMARK = re.compile(r"[0-9A-Za-z_-]{3,64}")


@dataclass(frozen=True)
class DataSet:
    """How the lists of a data set give the path, the class and the split of each image.

    Args:
        name: of the data set.
        lists: files, relative to its folder, by which it is known; one of them is enough.
        rows: the path of one that is there -> path, class and split of each image.
        images: pattern of the folders that its images lie in, at its top.
        rule: of its splits, in words.
        places: folders that the paths may begin in, relative to its own.
        splits: names of its splits, and of the parts of the list that ask and are ranked; one part is a labelled set.
        whole: all images must be there; otherwise a note says how many are left out.
    """

    name: str
    lists: tuple[str, ...]
    rows: Callable[[Path], Iterable[Row]]
    images: str
    rule: str
    places: tuple[str, ...] = ("",)
    splits: tuple[tuple[str, tuple[str, ...]], ...] = (("train", ("train",)), ("test", ("test",)))
    whole: bool = True


def _number(value: object, where: str) -> int:
    """Read the number of a class."""
    if not re.fullmatch(r"\d{1,9}", str(value)):
        raise InputError(f"{where}: class {str(value)[:40]!r}, expected a whole number")
    return int(str(value))


def _birds(file: Path) -> Iterable[Row]:
    """Read the lists of CUB-200-2011: `images.txt` and `image_class_labels.txt`."""
    paths = dict(fields(file.with_name("images.txt"), ("image_id", "path")))
    classes = dict(fields(file, ("image_id", "class_id")))
    if odd := sorted(paths.keys() ^ classes.keys()):
        raise InputError(f"{file}: image {odd[0]} stands in one of images.txt and {file.name} alone; copy both again")
    for image, path in paths.items():
        label = _number(classes[image], f"{file}, image {image}")
        yield path, label, "train" if label <= TRAINED_BIRDS else "test"


def _cars(file: Path) -> Iterable[Row]:
    """Read the lists of Cars-196: `cars_annos.mat`, or those of the two parts of the devkit."""
    if file.name == "cars_annos.mat":
        parts = [(file, "relative_im_path", "")]
    else:
        name, folder = "cars_test_annos_withlabels.mat", file.parent.parent
        test = next((each for each in (folder / name, file.with_name(name)) if each.is_file()), folder / name)
        parts = [(file, "fname", "cars_train/"), (test, "fname", "cars_test/")]
    for each, path, place in parts:
        found = mat_files.struct_array(each, "annotations", (path, "class"))
        if missing := {path, "class"} - found.keys():
            raise InputError(f"{each}: its annotations have no {min(missing)}; expected those of Cars-196 with labels")
        for row, (own, label) in enumerate(zip(found[path], found["class"], strict=True)):
            if not isinstance(own, str):
                raise InputError(f"{each}, entry {row}: {path} {str(own)[:40]!r}, expected text")
            number = _number(label, f"{each}, entry {row}")
            yield place + own, number, "train" if number <= TRAINED_CARS else "test"


def _products(file: Path) -> Iterable[Row]:
    """Read the lists of Stanford Online Products: `Ebay_train.txt` and `Ebay_test.txt`."""
    for split in ("train", "test"):
        one = file.with_name(f"Ebay_{split}.txt")
        for image, label, _, path in fields(one, ("image_id", "class_id", "super_class_id", "path"), header=1):
            yield path, _number(label, f"{one}, image {image}"), split


def _clothes(file: Path) -> Iterable[Row]:
    for path, item, part in fields(file, ("image_name", "item_id", "evaluation_status"), header=2):
        if part not in {"train", "query", "gallery"}:
            raise InputError(f"{file}: {path} is in {part[:40]!r}, expected train, query or gallery")
        yield path, item, part


def _landmarks(file: Path) -> Iterable[Row]:
    """Read a table of Google Landmarks: `id` and `landmark_id`, or the `images` of each landmark.

    An image lies in the folders of its first letters.
    """
    table = read(file)
    cleaned = "images" in table.names
    listed = zip(table.column("images" if cleaned else "id"), table.column("landmark_id"), strict=True)
    for row, (found, label) in enumerate(listed):
        where = f"{file}, {table.line(row)}"
        for name in str(found).split() if cleaned else [str(found)]:
            if not LANDMARK.fullmatch(name):
                raise InputError(f"{where}: id {name[:40]!r}, expected letters and digits")
            yield f"{'/'.join(name[:3])}/{name}.jpg", _number(label, where), "train"


DATA_SETS = (
    DataSet(
        "CUB-200-2011",
        ("image_class_labels.txt",),
        _birds,
        images="images",
        rule=f"by class: 1 to {TRAINED_BIRDS} train, the others test; train_test_split.txt, which parts each class, is "
        "not used",
        places=("images",),
    ),
    DataSet(
        "Cars-196",
        ("cars_annos.mat", "devkit/cars_train_annos.mat"),
        _cars,
        images="car_ims|cars_train|cars_test",
        rule=f"by class: 1 to {TRAINED_CARS} train, the others test; the two parts of each class are not used",
    ),
    DataSet(
        "Stanford Online Products",
        ("Ebay_train.txt",),
        _products,
        images=r"\w+_final",
        rule="by class: Ebay_train.txt and Ebay_test.txt; super-categories are not used",
    ),
    DataSet(
        "In-shop Clothes Retrieval",
        ("Eval/list_eval_partition.txt", "list_eval_partition.txt"),
        _clothes,
        images="Img|img|img_highres",
        rule="by item: train, and test, in which queries ask the gallery",
        places=("Img", ""),
        splits=(("train", ("train",)), ("test", ("query", "gallery"))),
    ),
    DataSet(
        "Google Landmarks",
        ("train.csv", "train_clean.csv"),
        _landmarks,
        images="train|[0-9a-f]",
        rule="train alone; its papers test on other images",
        places=("train", ""),
        splits=(("train", ("train",)),),
        whole=False,
    ),
)


@dataclass(frozen=True)
class Found:
    """A data set, the list that it was known by, and the folder of the data set."""

    data_set: DataSet
    file: Path
    folder: Path


def _is_list(data_set: DataSet, file: Path) -> bool:
    """Whether a file is a list of a data set: by its name, and a table by its columns."""
    if file.suffix != ".csv" or not file.is_file():
        return file.is_file()
    names = set(first_line(file))
    return {"id", "landmark_id"} <= names or {"images", "landmark_id"} <= names


def _in_folder(folder: Path) -> Found | None:
    """Find the data set whose lists lie in a folder."""
    every = ((data_set, folder / name) for data_set in DATA_SETS for name in data_set.lists)
    return next((Found(each, file, folder) for each, file in every if _is_list(each, file)), None)


def _found(path: Path) -> Found | None:
    """Find the data set of a folder, or of a list in it."""
    if not path.is_file():
        return _in_folder(path) if path.is_dir() else None
    if path.suffix == ".csv":
        return Found(DATA_SETS[-1], path, path.parent) if _is_list(DATA_SETS[-1], path) else None
    above = (_in_folder(folder) for folder in (path.parent, path.parent.parent))
    return next((each for each in above if each and path.samefile(each.file)), None)


def of_parent(path: Path) -> Found | None:
    """Find the data set that a folder is a part of: its lists lie above, and the folder among its images."""
    whole = path.resolve()
    for folder in whole.parents[:MOST_ABOVE] if path.is_dir() else ():
        found = _in_folder(folder)
        if found and re.fullmatch(found.data_set.images, whole.relative_to(folder).parts[0]):
            return found
    return None


def recognises(path: Path) -> bool:
    """A folder with the lists of a data set, one of the lists, or a folder of its images."""
    return _found(path) is not None or of_parent(path) is not None


def _data_set(path: Path) -> Found:
    """Find the data set of a path, of which a folder of images is only a part."""
    if (found := _found(path)) is not None:
        return found
    if (found := of_parent(path)) is not None:
        raise InputError(
            f"{path} holds images of {found.data_set.name}, whose classes and splits are in {found.file}; name the "
            f"folder {found.folder}"
        )
    known = ", ".join(f"{each.name} ({each.lists[0]})" for each in DATA_SETS)
    raise InputError(f"{path}: no list of a data set; there are {known}")


def _rows(found: Found) -> list[Row]:
    """Read the lists of a data set, each of whose paths must lie in its folder."""
    rows = list(found.data_set.rows(found.file))
    paths: set[str] = set()
    for path, *_ in rows:
        if path in paths:
            raise InputError(f"{found.file}: image {path[:80]} is listed twice; copy it again")
        paths.add(path)
        inside(found.folder, path, str(found.file))
    return rows


def splits(path: Path) -> tuple[str, ...]:
    """List the splits, as papers of metric learning have them."""
    return tuple(split for split, _ in _data_set(Path(path)).data_set.splits)


def describe(path: Path) -> dict[str, str]:
    """Name the data set, the rule of its splits, and the number of images and classes of each."""
    found = _data_set(path)
    rows = _rows(found)
    told = {"data set": found.data_set.name, "split": found.data_set.rule}
    for split, parts in found.data_set.splits:
        sizes = [f"{sum(part == own for *_, own in rows):,} {part}" for part in parts]
        classes = len({label for _, label, own in rows if own in parts})
        told[split] = f"{' and '.join(sizes) if len(parts) > 1 else sizes[0].split()[0]} images of {classes:,} classes"
    return told


def load(split: str, path: Path, images: str | None = None) -> TrainingSet:
    """List the images of one split; a file is read when it is encoded or drawn.

    The groups of the labelled set number the classes of all splits from 0, in the order of their ids; the test split of
    In-shop has its queries and its gallery.

    Source: the splits of Oh Song et al. 2016, Deep metric learning via lifted structured feature embedding,
    arXiv:1511.06452, section 5 (CUB, Cars, products); Liu et al. 2016, DeepFashion (In-shop).
    """
    found = _data_set(Path(path))
    parts = dict(found.data_set.splits)
    if split not in parts:
        raise InputError(nearest(f"split of {path}", split, parts))
    rows = _rows(found)
    number = {label: k for k, label in enumerate(sorted({label for _, label, _ in rows}))}
    places = [found.folder / each for each in found.data_set.places] if images is None else [Path(images)]
    notes = [f"{found.data_set.name}, {split}: split {found.data_set.rule}"]
    side = partial(_side, found, rows, number, places, notes)
    query, *candidate = [side(f"{found.data_set.name}, {part}", part) for part in parts[split]]
    return TrainingSet(query, candidate[0] if candidate else None, found.data_set.name, split, notes=tuple(notes))


def _side(
    found: Found, rows: list[Row], number: dict, places: list[Path], notes: list[str], what: str, part: str
) -> Side:
    own = [(path, number[label]) for path, label, each in rows if each == part]
    if len(own) < 2:
        raise InputError(f"{what}: {len(own)} images in {found.file}, expected at least two")
    there = located([path for path, _ in own], places, what, whole=found.data_set.whole)
    kept = [(path, name, group) for path, (name, group) in zip(there, own, strict=True) if path]
    if len(kept) < len(own):
        notes.append(f"{what}: {len(own) - len(kept)} of {len(own)} listed images are not there, and are left out")
    paths, names, groups = zip(*kept, strict=True)
    return Side(ImageFiles(paths), "image", torch.tensor(groups), names, paths)
