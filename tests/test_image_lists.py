"""Data sets of metric learning in the layouts that they are unpacked to, made small: classes, splits, and refusals."""

import numpy as np
import pytest
import scipy.io
from PIL import Image
from typer.testing import CliRunner

from cocos import data
from cocos.base.errors import InputError
from cocos.checkpoints import inspect
from cocos.cli import app
from cocos.data import mat_files


def picture(path, size=(6, 4)):
    """Write a picture, and the folders around it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    seed = sum(path.name.encode())
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, "PNG")


def lines(path, *each):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in each))
    return path


def birds(folder):
    """CUB-200-2011: two images of each of four of its classes."""
    own = [(1, "001.Black_footed_Albatross"), (100, "100.Brown_Pelican"), (101, "101.White_Pelican"), (200, "200.Wren")]
    rows = [(2 * k + j + 1, label, f"{name}/{name[4:]}_{j}.jpg") for k, (label, name) in enumerate(own) for j in (0, 1)]
    lines(folder / "images.txt", *(f"{image} {path}" for image, _, path in rows))
    lines(folder / "image_class_labels.txt", *(f"{image} {label}" for image, label, _ in rows))
    lines(folder / "classes.txt", *(f"{label} {name}" for label, name in own))
    lines(folder / "train_test_split.txt", *(f"{image} {image % 2}" for image, *_ in rows))
    for _, _, path in rows:
        picture(folder / "images" / path)
    return folder


def annotations(path, rows, **named):
    """Write a struct array as MATLAB does, with the fields of the boxes too."""
    kinds = [(name, object) for name in ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", *rows[0])]
    made = np.empty((1, len(rows)), kinds)
    for k, row in enumerate(rows):
        made[0, k] = (39, 116, 569, 375, *row.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, {**named, "annotations": made}, do_compression=True)
    return path


CARS = (1, 1, 98, 98, 99, 99, 196, 196)


def cars(folder):
    """Cars-196 as `car_ims.tgz` and `cars_annos.mat`; the two images of a class are in different parts."""
    rows = [{"relative_im_path": f"car_ims/{k:06d}.jpg", "class": c, "test": k % 2} for k, c in enumerate(CARS)]
    names = np.array([["AM General Hummer SUV 2000", "Acura RL Sedan 2012"]], dtype=object)
    annotations(folder / "cars_annos.mat", rows, class_names=names)
    for row in rows:
        picture(folder / row["relative_im_path"])
    return folder


def devkit(folder):
    """Cars-196 as `cars_train.tgz`, `cars_test.tgz` and the devkit, with the labels of the test part."""
    parts = {"train": CARS[::2], "test": CARS[1::2]}
    for part, classes in parts.items():
        rows = [{"class": label, "fname": f"{k + 1:05d}.jpg"} for k, label in enumerate(classes)]
        file = "cars_test_annos_withlabels.mat" if part == "test" else "devkit/cars_train_annos.mat"
        annotations(folder / file, rows)
        for row in rows:
            picture(folder / f"cars_{part}" / row["fname"])
    return folder


def products(folder):
    """Stanford Online Products: four products in two super-categories."""
    start = 1
    for split, classes in (("train", (1, 2)), ("test", (11319, 11320))):
        rows = [(label, k, j) for k, label in enumerate(classes) for j in (0, 1)]
        made = [f"{('bicycle', 'mug')[k]}_final/{label:012d}_{j}.JPG" for label, k, j in rows]
        listed = [
            f"{start + n} {label} {k + 1} {path}"
            for n, ((label, k, _), path) in enumerate(zip(rows, made, strict=True))
        ]
        lines(folder / f"Ebay_{split}.txt", "image_id class_id super_class_id path", *listed)
        start += len(rows)
        for path in made:
            picture(folder / path)
    return folder


def clothes(folder, place="Eval/"):
    """In-shop: `Eval/list_eval_partition.txt`, and the images of `img.zip` in `Img`."""
    rows = [
        (f"img/{who}/{what}/id_{item:08d}/0{k}_1_front.jpg", item, part)
        for who, what, item, parts in (
            ("WOMEN", "Dresses", 2, ("train", "train")),
            ("MEN", "Denim", 7, ("train", "train")),
            ("WOMEN", "Dresses", 4, ("query", "gallery", "gallery")),
            ("MEN", "Denim", 9, ("query", "gallery")),
        )
        for k, part in enumerate(parts, 1)
    ]
    head = (str(len(rows)), "image_name item_id evaluation_status")
    lines(
        folder / f"{place}list_eval_partition.txt",
        *head,
        *(f"{p:<70} id_{item:08d} {part:>12}" for p, item, part in rows),
    )
    for path, *_ in rows:
        picture(folder / ("Img" if place else "") / path)
    return folder


LANDMARKS = {"0a1b2c3d4e5f6a7b": 5, "0a1b2c3d4e5f6a7c": 5, "f0e1d2c3b4a59687": 70, "f0e1d2c3b4a59688": 70}


def landmarks(folder):
    """Google Landmarks: `train.csv`, and images in folders of the first letters of their ids."""
    rows = [f'{name},"http://static.example.org/{name}, large.jpg",{label}' for name, label in LANDMARKS.items()]
    lines(folder / "train.csv", "id,url,landmark_id", *rows)
    for name in LANDMARKS:
        picture(folder / "train" / name[0] / name[1] / name[2] / f"{name}.jpg")
    return folder


MADE = {
    "CUB-200-2011": birds,
    "Cars-196": cars,
    "Stanford Online Products": products,
    "In-shop Clothes Retrieval": clothes,
    "Google Landmarks": landmarks,
}
BY_NAME = pytest.mark.parametrize("name", MADE)


@pytest.mark.parametrize("make", [birds, cars, devkit, products])
def test_the_first_classes_train_and_the_others_test(make, tmp_path):
    source = data.find(make(tmp_path / "set"))
    assert (source.kind, source.splits) == ("image_lists", ("train", "test"))
    train, test = source.load("train"), source.load("test")
    assert train.candidate is None and sorted(train.query.group.tolist()) == [0, 0, 1, 1]
    assert sorted(test.query.group.tolist()) == [2, 2, 3, 3]  # numbered over both splits
    assert not set(train.query.names) & set(test.query.names)
    assert [tuple(each.shape) for each in test.query.items] == [(3, 4, 6)] * 4
    assert all((tmp_path / "set") in (tmp_path / path).parents for path in train.query.shown)


def test_a_product_is_a_class_and_not_its_super_category(tmp_path):
    found = data.find(products(tmp_path)).load("train")
    assert found.query.names[0] == "bicycle_final/000000000001_0.JPG"
    group = dict(zip(found.query.names, found.query.group.tolist(), strict=True))
    assert len(set(group.values())) == 2 and "super-categories are not used" in found.notes[0]
    lines(
        tmp_path / "Ebay_train.txt",
        "image_id class_id super_class_id path",
        "1 7 1 bicycle_final/000000000001_0.JPG",
        "2 8 1 bicycle_final/000000000001_1.JPG",
    )
    assert len(set(data.find(tmp_path).load("train").query.group.tolist())) == 2


@pytest.mark.parametrize("place", ["Eval/", ""])
def test_queries_of_in_shop_ask_its_gallery(place, tmp_path):
    source = data.find(clothes(tmp_path, place))
    train, test = source.load("train"), source.load("test")
    assert train.candidate is None and train.query.group.tolist() == [0, 0, 2, 2]
    assert test.query.group.tolist() == [1, 3] and test.candidate.group.tolist() == [1, 1, 3]
    assert test.candidate.names[0].endswith("id_00000004/02_1_front.jpg")


def test_landmarks_lie_in_folders_of_their_first_letters(tmp_path):
    landmarks(tmp_path)
    for path in (tmp_path, tmp_path / "train.csv"):
        found = data.find(path).load()
        assert found.query.names[0] == "0/a/1/0a1b2c3d4e5f6a7b.jpg" and found.query.group.tolist() == [0, 0, 1, 1]
    (tmp_path / "train/0/a/1/0a1b2c3d4e5f6a7b.jpg").unlink()  # the first, whose address is dead
    found = data.find(tmp_path).load()
    assert found.query.group.tolist() == [0, 1, 1] and "1 of 4 listed images" in found.notes[1]


def test_cleaned_landmarks_name_the_images_of_each(tmp_path):
    landmarks(tmp_path)
    whole = data.find(tmp_path).load().query
    by_label = {label: [name for name, each in LANDMARKS.items() if each == label] for label in LANDMARKS.values()}
    rows = [f"{label},{' '.join(names)}" for label, names in by_label.items()]
    found = data.find(lines(tmp_path / "train_clean.csv", "landmark_id,images", *rows)).load()
    assert dict(zip(found.query.names, found.query.group.tolist(), strict=True)) == dict(
        zip(whole.names, whole.group.tolist(), strict=True)
    )
    (tmp_path / "train.csv").unlink()
    assert len(data.find(tmp_path).load().query) == len(LANDMARKS)


@BY_NAME
def test_inspect_names_the_data_set_its_split_and_its_sizes(name, tmp_path):
    about = inspect(MADE[name](tmp_path / "set"))
    said = about["contents"]
    assert said["data set"] == name and said["split"]
    sizes = {"In-shop Clothes Retrieval": "2 query and 3 gallery images of 2 classes"}
    assert said["train"] == "4 images of 2 classes"
    if name != "Google Landmarks":
        assert said["test"] == sizes.get(name, "4 images of 2 classes")
    assert CliRunner().invoke(app, ["inspect", str(tmp_path / "set")]).exit_code == 0


@BY_NAME
def test_the_command_that_inspect_recommends_works(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "mine.py", "def pixels(images):", "    return images.flatten(1)[:, ::999]")
    words = inspect(MADE[name](tmp_path / "set"))["next"].replace("MODEL", "mine.py:pixels").split()
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, done.stderr
    counted = CliRunner().invoke(app, ["count", "embeddings.npz", "--loss", "triplet", "--batch-size", "all"])
    assert counted.exit_code == 0, counted.stderr


@BY_NAME
def test_folders_of_its_images_are_never_plain_classes(name, tmp_path):
    folder = MADE[name](tmp_path / "set")
    inside = {path for each in folder.rglob("*.[jJ]*") for path in each.parents if folder in path.parents}
    for path in inside:
        with pytest.raises(InputError, match=f"{name}.*name the folder {folder}"):
            data.find(path)
        done = CliRunner().invoke(app, ["inspect", str(path)])
        assert done.exit_code == 2 and done.stderr.count("\n") == 1 and name in done.stderr


def test_classes_sorted_into_a_folder_of_ones_own_are_still_read(tmp_path):
    folder = birds(tmp_path)
    (folder / "images").rename(folder / "sorted")
    assert data.find(folder / "sorted").kind == "image_folders"


def changed(path, before, after):
    path.write_bytes(path.read_bytes().replace(before, after))


def doubled(path):
    path.write_bytes(path.read_bytes() * 2)


@pytest.mark.parametrize(
    ("make", "file", "damage", "said"),
    [
        (birds, "images.txt", lambda p: changed(p, b"001.Black", b"../../001.Black"), r"\.\./\.\./001.*inside"),
        (birds, "images.txt", lambda p: changed(p, b"1 001", b"1 /001"), "inside"),
        (birds, "images.txt", lambda p: changed(p, b"1 001", b"1 one 001"), "line 1: 3 fields, expected 2"),
        (birds, "images.txt", lambda p: changed(p, b"Albatross", b"\xffAlb"), "line 1: not UTF-8"),
        (birds, "images.txt", lambda p: p.unlink(), "images.txt: cannot be read"),
        (birds, "images.txt", lambda p: changed(p, b"Albatross_1", b"Albatross_0"), "listed twice"),
        (birds, "images.txt", lambda p: changed(p, b"Albatross_1", b"Albatross_7"), "1 of 4 images are not there"),
        (birds, "image_class_labels.txt", lambda p: changed(p, b"8 200\n", b""), "image 8 stands in one of"),
        (birds, "image_class_labels.txt", lambda p: changed(p, b"8 200", b"8 two"), "class 'two'"),
        (birds, "image_class_labels.txt", lambda p: p.write_bytes(b""), "image 1 stands in one of"),
        (cars, "cars_annos.mat", lambda p: p.write_bytes(b"cars"), "no MATLAB file"),
        (cars, "cars_annos.mat", lambda p: p.write_bytes(p.read_bytes()[:300]), "damaged MATLAB file"),
        (cars, "cars_annos.mat", lambda p: p.write_bytes(b"MATLAB 7.3 MAT-file" + bytes(200)), "version 7.3"),
        (devkit, "cars_test_annos_withlabels.mat", lambda p: p.unlink(), "cars_test_annos_withlabels.mat: No such"),
        (products, "Ebay_test.txt", lambda p: p.unlink(), "Ebay_test.txt: cannot be read"),
        (products, "Ebay_train.txt", lambda p: changed(p, b"super_class_id ", b""), "line 1.*expected the header"),
        (products, "Ebay_train.txt", lambda p: changed(p, b"1 1 1", b"1 1.5 1"), "class '1.5'"),
        (clothes, "Eval/list_eval_partition.txt", lambda p: changed(p, b"gallery", b"galery"), "'galery', expected"),
        (clothes, "Eval/list_eval_partition.txt", lambda p: changed(p, b"item_id e", b"item_id x e"), "the header"),
        (landmarks, "train.csv", lambda p: changed(p, b",70", b",x"), "line 4: class 'x'"),
        (landmarks, "train.csv", lambda p: changed(p, b"f0e1d2c3b4a59687,", b"../../etc,"), "line 4: id"),
        (landmarks, "train.csv", lambda p: changed(p, b",70\n", b"\n"), "line 4: 2 fields, expected 3"),
        (landmarks, "train.csv", doubled, "class 'landmark_id'|id 'id'"),
    ],
)
def test_a_damaged_list_is_one_sentence(make, file, damage, said, tmp_path):
    folder = make(tmp_path / "set")
    damage(folder / file)
    with pytest.raises(InputError, match=said):
        data.find(folder).load("train")
    done = CliRunner().invoke(app, ["encode", str(folder), "--model", "a.py:b", "--out", str(tmp_path / "e.npz")])
    assert done.exit_code == 2 and done.stderr.count("\n") == 1 and not (tmp_path / "e.npz").exists()


def test_images_elsewhere_are_named(tmp_path):
    folder = birds(tmp_path / "set")
    (folder / "images").rename(tmp_path / "pictures")
    assert " --images FOLDER " in inspect(folder)["next"]
    with pytest.raises(InputError, match="--images FOLDER"):
        data.find(folder).load("train")
    assert len(data.find(folder, {"images": str(tmp_path / "pictures")}).load("train").query) == 4


@pytest.mark.parametrize("packed", [False, True])
def test_struct_arrays_are_read_as_scipy_reads_them(packed, tmp_path):
    rows = [{"fname": f"ä{k}.jpg", "class": k + 1, "test": float(k)} for k in range(5)]
    annotations(tmp_path / "a.mat", rows)
    content = scipy.io.loadmat(tmp_path / "a.mat")
    scipy.io.savemat(tmp_path / "a.mat", {"annotations": content["annotations"]}, do_compression=packed)
    found = mat_files.struct_array(tmp_path / "a.mat", "annotations", ("fname", "class", "test", "none"))
    theirs = scipy.io.loadmat(tmp_path / "a.mat", squeeze_me=True)["annotations"]
    assert found == {name: [each[name] for each in theirs] for name in ("fname", "class", "test")}
