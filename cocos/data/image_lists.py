"""Metric-learning data sets by their lists: CUB-200-2011, Cars-196, Stanford Online Products, In-shop, Landmarks."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch

from cocos.base.errors import InputError
from cocos.data import tables
from cocos.data.images import ImageFiles, locate
from cocos.data.training_set import Side, TrainingSet

OPTIONS = ("images",)
Row = tuple[str, int | str, str]  # path, class, part: a split, or `gallery` of the test split

# Classes up to this number are trained on: the first half.
TRAINED_BIRDS, TRAINED_CARS = 100, 98
HALVES = "by class: 1 to {} train, the others test; the parts of each class are not used"


class DataSet(NamedTuple):
    """A data set, and how its lists give the path, the class and the part of each image."""

    name: str
    lists: tuple[str, ...]  # files in its folder, of which one is enough to recognise it
    read: Callable[[Path], Iterable[Row]]  # reads one of the lists, and those next to it
    rule: str  # of its splits
    roots: tuple[str, ...] = ("",)  # folders in which the paths may begin
    splits: tuple[str, ...] = ("train", "test")


def read_birds(file: Path) -> Iterable[Row]:
    """Read `image_class_labels.txt` and `images.txt`."""
    classes = dict(tables.read_fields(file, ("image_id", "class_id")))
    for image, path in tables.read_fields(file.with_name("images.txt"), ("image_id", "path")):
        label = int(classes[image])
        yield path, label, "train" if label <= TRAINED_BIRDS else "test"


def read_cars(file: Path) -> Iterable[Row]:
    """Read `cars_annos.mat`, or the files of both parts of the devkit."""
    from scipy.io import loadmat

    parts = [(file, "relative_im_path", "")]
    if file.name != "cars_annos.mat":
        test = file.parent.parent / "cars_test_annos_withlabels.mat"
        test = test if test.is_file() else file.with_name(test.name)
        parts = [(file, "fname", "cars_train/"), (test, "fname", "cars_test/")]
    for path, column, folder in parts:
        with tables.readable(path):
            for row in loadmat(path, squeeze_me=True)["annotations"].reshape(-1):
                yield f"{folder}{row[column]}", int(row["class"]), "train" if row["class"] <= TRAINED_CARS else "test"


def read_products(file: Path) -> Iterable[Row]:
    """Read `Ebay_train.txt` and `Ebay_test.txt`."""
    columns = ("image_id", "class_id", "super_class_id", "path")
    for split in ("train", "test"):
        for _, label, _, path in tables.read_fields(file.with_name(f"Ebay_{split}.txt"), columns, header=1):
            yield path, int(label), split


def read_clothes(file: Path) -> Iterable[Row]:
    """Read `list_eval_partition.txt`."""
    parts = {"train": "train", "query": "test", "gallery": "gallery"}
    for path, item, status in tables.read_fields(file, ("image_name", "item_id", "evaluation_status"), header=2):
        yield path, item, parts[status]


def read_landmarks(file: Path) -> Iterable[Row]:
    """Read a table with `landmark_id` and `id`, or the `images` of each landmark."""
    table = tables.read(file)
    column = "images" if "images" in table.names else "id"
    for names, label in zip(table.column(column), table.column("landmark_id"), strict=True):
        yield from ((f"{'/'.join(name[:3])}/{name}.jpg", int(label), "train") for name in names.split())


DATA_SETS = (
    DataSet("CUB-200-2011", ("image_class_labels.txt",), read_birds, HALVES.format(TRAINED_BIRDS), ("images",)),
    DataSet("Cars-196", ("cars_annos.mat", "devkit/cars_train_annos.mat"), read_cars, HALVES.format(TRAINED_CARS)),
    DataSet("Stanford Online Products", ("Ebay_train.txt",), read_products, "by class: Ebay_train.txt, Ebay_test.txt"),
    DataSet(
        "In-shop Clothes Retrieval",
        ("Eval/list_eval_partition.txt", "list_eval_partition.txt"),
        read_clothes,
        "by item: train, and test, in which queries ask the gallery",
        ("Img", ""),
    ),
    DataSet(
        "Google Landmarks",
        ("train.csv", "train_clean.csv"),
        read_landmarks,
        "train only; the papers test on other images",
        ("train", ""),
        ("train",),
    ),
)


def find(path: Path) -> tuple[DataSet, Path, Path] | None:
    """Return the data set of its folder, a list, or the folder of its images, with its first list and its folder."""
    for folder in (path, path.parent, path.parent.parent):
        for data_set in DATA_SETS:
            for file in (folder / name for name in data_set.lists):
                roots = [folder / root for root in data_set.roots]
                if file.is_file() and path in {folder, file, *roots}:
                    # Other data have a train.csv as well.
                    if file.suffix != ".csv" or "landmark_id" in tables.column_names(file):
                        return data_set, file, folder
    return None


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits of the metric-learning papers."""
    match = find(path)
    return match[0].splits if match else ()


def load(split: str, path: Path, images: str | None = None) -> TrainingSet:
    """List the images of one split, in the folder `images` if they are elsewhere.

    Groups number the classes of all splits from 0, in the order of their ids. The test split of In-shop has queries
    and a gallery.

    Source: the splits of Oh Song et al. 2016, Deep metric learning via lifted structured feature embedding,
    arXiv:1511.06452, section 5 (CUB, Cars, products); Liu et al. 2016, DeepFashion (In-shop).
    """
    data_set, file, folder = find(path)
    with tables.readable(file):
        rows = list(data_set.read(file))
    numbers = {label: number for number, label in enumerate(sorted({label for _, label, _ in rows}))}
    roots = [folder / root for root in data_set.roots] if images is None else [Path(images)]
    sides = []
    for part in (split, "gallery") if split == "test" else (split,):
        listed = [(name, numbers[label]) for name, label, row_part in rows if row_part == part]
        if listed:
            names, groups = zip(*listed, strict=True)
            paths = locate(names, roots, f"{data_set.name}, {part}")
            sides.append(Side(ImageFiles(paths), "image", torch.tensor(groups), names, paths))
    if not sides:
        raise InputError(f"{data_set.name}, {split}: no image in {file}")
    notes = (f"{data_set.name}, {split}: split {data_set.rule}",)
    return TrainingSet(sides[0], sides[1] if sides[1:] else None, data_set.name, split, notes=notes)
