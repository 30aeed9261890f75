"""Metric-learning data sets by their lists: CUB-200-2011, Cars-196, Stanford Online Products, In-shop, Landmarks."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from cocos.base.errors import InputError
from cocos.data import tables
from cocos.data.images import ImageFiles, join_inside, locate
from cocos.data.training_set import Side, TrainingSet

OPTIONS = ("images",)
Row = tuple[str, int | str, str]  # path, class, part

# Classes up to this number are trained on: the first half.
TRAINED_BIRDS, TRAINED_CARS = 100, 98


@dataclass(frozen=True)
class DataSet:
    """How the lists of a data set give the path, the class and the part of each image.

    Args:
        name: of the data set.
        lists: files in its folder, of which one is enough to recognise it.
        read: reads the path, class and part of each image, given one of the lists.
        rule: of its splits, in words.
        roots: folders that the paths may begin in.
        splits: the parts of each split; two parts are queries and a gallery.
        complete: whether all images must exist; otherwise a note counts the missing ones.
    """

    name: str
    lists: tuple[str, ...]
    read: Callable[[Path], Iterable[Row]]
    rule: str
    roots: tuple[str, ...] = ("",)
    splits: tuple[tuple[str, tuple[str, ...]], ...] = (("train", ("train",)), ("test", ("test",)))
    complete: bool = True


def parse_class(value: object, where: str) -> int:
    """Return the number of a class."""
    if not re.fullmatch(r"\d{1,9}", str(value)):
        raise InputError(f"{where}: class {str(value)[:40]!r}, expected an integer")
    return int(str(value))


def read_birds(file: Path) -> Iterable[Row]:
    """Read CUB-200-2011: `images.txt` and `image_class_labels.txt`."""
    paths = dict(tables.read_fields(file.with_name("images.txt"), ("image_id", "path")))
    classes = dict(tables.read_fields(file, ("image_id", "class_id")))
    if unmatched := paths.keys() ^ classes.keys():
        raise InputError(f"{file}: image {min(unmatched)} is in only one of images.txt and {file.name}; copy both")
    for image, path in paths.items():
        label = parse_class(classes[image], f"{file}, image {image}")
        yield path, label, "train" if label <= TRAINED_BIRDS else "test"


def read_cars(file: Path) -> Iterable[Row]:
    """Read Cars-196: `cars_annos.mat`, or the files of both parts of the devkit."""
    parts = [(file, "relative_im_path", "")]
    if file.name != "cars_annos.mat":
        name, folder = "cars_test_annos_withlabels.mat", file.parent.parent
        test = next((path for path in (folder / name, file.with_name(name)) if path.is_file()), folder / name)
        parts = [(file, "fname", "cars_train/"), (test, "fname", "cars_test/")]
    for path, column, prefix in parts:
        for row, annotation in enumerate(read_annotations(path, (column, "class"))):
            label = parse_class(annotation["class"], f"{path}, entry {row}")
            yield f"{prefix}{annotation[column]}", label, "train" if label <= TRAINED_CARS else "test"


def read_annotations(path: Path, columns: tuple[str, ...]):
    """Return the struct array `annotations` of a MATLAB file, which has these columns."""
    from scipy.io import loadmat

    try:
        annotations = loadmat(path, squeeze_me=True, variable_names=["annotations"])["annotations"].reshape(-1)
    except Exception as error:  # scipy raises many types for a damaged file
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path}: cannot be read as the annotations of Cars-196 ({reason}); copy it again") from None
    if missing := set(columns) - set(annotations.dtype.names or ()):
        raise InputError(f"{path}: its annotations have no {min(missing)}, expected Cars-196 with labels")
    return annotations


def read_products(file: Path) -> Iterable[Row]:
    """Read Stanford Online Products: `Ebay_train.txt` and `Ebay_test.txt`."""
    for split in ("train", "test"):
        path = file.with_name(f"Ebay_{split}.txt")
        names = ("image_id", "class_id", "super_class_id", "path")
        for image, label, _, image_path in tables.read_fields(path, names, header=1):
            yield image_path, parse_class(label, f"{path}, image {image}"), split


def read_clothes(file: Path) -> Iterable[Row]:
    """Read In-shop: `list_eval_partition.txt`."""
    for path, item, part in tables.read_fields(file, ("image_name", "item_id", "evaluation_status"), header=2):
        if part not in {"train", "query", "gallery"}:
            raise InputError(f"{file}: {path} is in {part[:40]!r}, expected train, query or gallery")
        yield path, item, part


def read_landmarks(file: Path) -> Iterable[Row]:
    """Read Google Landmarks: `id` and `landmark_id`, or the `images` of each landmark."""
    table = tables.read(file)
    column = "images" if "images" in table.names else "id"
    for row, (ids, label) in enumerate(zip(table.column(column), table.column("landmark_id"), strict=True)):
        where = f"{file}, {table.line(row)}"
        for name in ids.split() if column == "images" else [ids]:
            yield f"{'/'.join(name[:3])}/{name}.jpg", parse_class(label, where), "train"


DATA_SETS = (
    DataSet(
        "CUB-200-2011",
        ("image_class_labels.txt",),
        read_birds,
        rule=f"by class: 1 to {TRAINED_BIRDS} train, the others test; train_test_split.txt, which splits each class, "
        "is not used",
        roots=("images",),
    ),
    DataSet(
        "Cars-196",
        ("cars_annos.mat", "devkit/cars_train_annos.mat"),
        read_cars,
        rule=f"by class: 1 to {TRAINED_CARS} train, the others test; the two parts of each class are not used",
    ),
    DataSet(
        "Stanford Online Products",
        ("Ebay_train.txt",),
        read_products,
        rule="by class: Ebay_train.txt and Ebay_test.txt; super-categories are not used",
    ),
    DataSet(
        "In-shop Clothes Retrieval",
        ("Eval/list_eval_partition.txt", "list_eval_partition.txt"),
        read_clothes,
        rule="by item: train, and test, in which queries ask the gallery",
        roots=("Img", ""),
        splits=(("train", ("train",)), ("test", ("query", "gallery"))),
    ),
    DataSet(
        "Google Landmarks",
        ("train.csv", "train_clean.csv"),
        read_landmarks,
        rule="train only; the papers test on other images",
        roots=("train", ""),
        splits=(("train", ("train",)),),
        complete=False,
    ),
)


def is_list(file: Path) -> bool:
    """Return whether a file is a list of a data set; a table is recognised by its columns."""
    if file.suffix != ".csv" or not file.is_file():
        return file.is_file()
    names = set(tables.column_names(file))
    return {"id", "landmark_id"} <= names or {"images", "landmark_id"} <= names


def find(path: Path) -> tuple[DataSet, Path, Path] | None:
    """Return the data set of a folder or of one of its lists, with its first list and its folder."""
    if path.suffix == ".csv":
        return (DATA_SETS[-1], path, path.parent) if is_list(path) else None
    for folder in [path] if path.is_dir() else [path.parent, path.parent.parent]:
        for data_set in DATA_SETS:
            for file in (folder / name for name in data_set.lists):
                if is_list(file) and (path.is_dir() or path.samefile(file)):
                    return data_set, file, folder
    return None


def sniff(path: Path) -> bool:
    """Return whether a path is the folder of a data set, or one of its lists."""
    return path.exists() and find(path) is not None


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits of the metric-learning papers."""
    return tuple(split for split, _ in find(path)[0].splits)


def load(split: str, path: Path, images: str | None = None) -> TrainingSet:
    """List the images of one split; an image is read when it is encoded or drawn.

    Groups number the classes of all splits from 0, in the order of their ids. The test split of In-shop has queries
    and a gallery.

    Args:
        split: one of `splits`.
        path: of the folder, or of one of its lists.
        images: folder of the images, if they are elsewhere.

    Source: the splits of Oh Song et al. 2016, Deep metric learning via lifted structured feature embedding,
    arXiv:1511.06452, section 5 (CUB, Cars, products); Liu et al. 2016, DeepFashion (In-shop).
    """
    data_set, file, folder = find(path)
    rows = list(data_set.read(file))
    if repeated := [name for name, number in Counter(name for name, *_ in rows).items() if number > 1]:
        raise InputError(f"{file}: image {repeated[0][:80]} is listed twice; copy it again")
    for name, *_ in rows:
        join_inside(folder, name, str(file))
    number = {label: index for index, label in enumerate(sorted({label for _, label, _ in rows}))}
    roots = [folder / root for root in data_set.roots] if images is None else [Path(images)]
    sides, notes = [], [f"{data_set.name}, {split}: split {data_set.rule}"]
    for part in dict(data_set.splits)[split]:
        where = f"{data_set.name}, {part}"
        listed = [(name, number[label]) for name, label, row_part in rows if row_part == part]
        if len(listed) < 2:
            raise InputError(f"{where}: {len(listed)} images in {file}, expected at least two")
        paths = locate([name for name, _ in listed], roots, where, complete=data_set.complete)
        present = [(image, name, group) for image, (name, group) in zip(paths, listed, strict=True) if image]
        if len(present) < len(listed):
            notes.append(f"{where}: {len(listed) - len(present)} of {len(listed)} listed images are missing, skipped")
        image_paths, names, groups = zip(*present, strict=True)
        sides.append(Side(ImageFiles(image_paths), "image", torch.tensor(groups), names, image_paths))
    query, candidate = sides if len(sides) == 2 else (sides[0], None)
    return TrainingSet(query, candidate, data_set.name, split, notes=tuple(notes))
