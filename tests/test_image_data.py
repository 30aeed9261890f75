"""Images by class, with captions, and in arrays become training sets; images are read late, hashed by their bytes."""

import json
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from cocos import data
from cocos.base import annotations
from cocos.base.errors import InputError
from cocos.data import images as image_files

rng = np.random.default_rng(0)


def picture(path, size=(6, 4), **options):
    """Write a picture, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(path, **options)
    return path


@pytest.fixture
def classes(tmp_path):
    """A folder of images by class."""
    for name in ("cats/a.png", "cats/more/b.png", "dogs/c.png", "dogs/d.webp"):
        picture(tmp_path / "pets" / name, **{"lossless": True} if name.endswith("webp") else {})
    (tmp_path / "pets" / "dogs" / "notes.txt").write_text("mine")
    return tmp_path / "pets"


def test_a_folder_for_each_class(classes):
    source = data.find(classes)
    assert (source.kind, source.splits) == ("image_folders", ("train",))
    found = source.load()
    assert found.candidate is None and found.query.kind == "image"
    assert found.query.names == ("cats/a.png", "cats/more/b.png", "dogs/c.png", "dogs/d.webp")
    assert found.query.group.tolist() == [0, 0, 1, 1]
    for row, name in enumerate(found.query.names):
        expected = np.asarray(Image.open(classes / name).convert("RGB"))
        assert found.query.items[row].dtype == torch.uint8
        assert torch.equal(found.query.items[row], torch.from_numpy(expected.copy()).permute(2, 0, 1))
        assert np.array_equal(annotations.picture(found.query.shown, row), expected)
    part = found.query.items[1:3]
    assert len(part) == 2 and [tuple(each.shape) for each in part] == [(3, 4, 6)] * 2


def test_splits_above_the_classes(classes):
    for part in ("train", "val"):
        picture(classes.parent / "all" / part / "cats" / "a.png")
        picture(classes.parent / "all" / part / "dogs" / f"{part}.png")
    source = data.find(classes.parent / "all")
    assert source.splits == ("train", "val")
    assert source.load("val").query.names == ("cats/a.png", "dogs/val.png")


def test_the_identity_is_that_of_the_bytes(classes):
    before = data.find(classes).load().identity
    assert data.find(classes).load().identity == before
    content = bytearray((classes / "cats/a.png").read_bytes())
    content[-1] ^= 1
    (classes / "cats/a.png").write_bytes(content)
    assert data.find(classes).load().identity != before


@pytest.mark.parametrize("damage", ["text", "cut", "gone", "bomb", "large", "many", "vector"])
def test_an_image_that_is_none_is_named(damage, classes, monkeypatch):
    path = classes / "cats/a.png"
    found = data.find(classes).load()
    if damage == "text":
        path.write_text("mine")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:60])
    elif damage == "gone":
        path.unlink()
    elif damage == "vector":  # a format that Pillow reads with the help of another program
        path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")
    elif damage == "bomb":  # a header that claims more pixels than there are bytes
        content = bytearray(path.read_bytes())
        content[16:24] = (2**15).to_bytes(4, "big") * 2
        path.write_bytes(content)
    elif damage == "many":  # few bytes, and more pixels than are unpacked
        Image.new("RGB", (100, 100)).save(path)
        monkeypatch.setattr(image_files, "MAX_IMAGE", 5000)
    else:
        monkeypatch.setattr(image_files, "MAX_IMAGE", 10)
    with pytest.raises(InputError, match="cats/a.png"):
        _ = found.query.items[0]


@pytest.fixture
def captions(tmp_path):
    """COCO, Karpathy's splits and Flickr, over the same three images."""
    images = [picture(tmp_path / "train2017" / f"{k}.jpg") for k in range(3)]
    texts = {0: ["one", "two"], 1: ["three"], 2: []}
    coco = {
        "images": [{"id": 10 + k, "file_name": path.name} for k, path in enumerate(images)],
        "annotations": [{"image_id": 10 + k, "caption": text} for k in texts for text in texts[k]],
    }
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "captions_train2017.json").write_text(json.dumps(coco))
    entries = [
        {
            "filename": f"{k}.jpg",
            "split": ("train", "test", "val")[k],
            "sentences": [{"raw": text} for text in texts[k]],
        }
        for k in texts
    ]
    (tmp_path / "dataset_some.json").write_text(json.dumps({"images": entries, "dataset": "some"}))
    lines = [f"{k}.jpg#{place}\t{text}\n" for k in texts for place, text in enumerate(texts[k])]
    (tmp_path / "results.token").write_text("".join(lines))
    return tmp_path


def test_captions_of_coco(captions):
    for path in (captions, captions / "annotations" / "captions_train2017.json"):
        source = data.find(path)
        assert (source.kind, source.splits) == ("coco_captions", ("train",))
        found = source.load()
        assert found.candidate.items == ("one", "two", "three") and found.directions == ("i2t", "t2i")
        assert found.query.group.tolist() == [0, 1] and found.candidate.group.tolist() == [0, 0, 1]
        assert [tuple(each.shape) for each in found.query.items] == [(3, 4, 6)] * 2
        assert found.query.shown[1].endswith("train2017/1.jpg")
        assert found.texts("i2t")[0](0) == "image of: one"


def test_captions_with_the_splits_of_karpathy(captions):
    source = data.find(captions / "dataset_some.json", {"images": str(captions / "train2017")})
    assert (source.kind, source.splits) == ("karpathy_captions", ("train", "test", "val"))
    assert source.load("test").candidate.items == ("three",)
    with pytest.raises(InputError, match="val: no image with a caption"):
        source.load("val")
    with pytest.raises(InputError, match="--images FOLDER"):
        data.find(captions / "dataset_some.json").load()


def test_captions_of_flickr(captions):
    source = data.find(captions / "results.token", {"images": captions / "train2017"})
    assert source.kind == "flickr_captions" and source.load().candidate.items == ("one", "two", "three")
    (captions / "train2017").rename(captions / "flickr30k-images")
    assert len(data.find(captions / "results.token").load().query) == 2
    (captions / "flickr30k-images" / "1.jpg").unlink()
    with pytest.raises(InputError, match="1 of 2 images are not there.*1.jpg"):
        data.find(captions / "results.token").load()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"images": 3}, "images is no list"),
        ({"images": [3]}, "images is no list"),
        ({"images": [{"id": 10}]}, "images, entry 0.*file_name"),
        ({"images": [{"id": [1], "file_name": "a"}]}, "entry 0: id"),
        ({"annotations": [{"image_id": 99, "caption": "a"}]}, "annotations, entry 0: image_id 99"),
        ({"annotations": [{"image_id": 10, "caption": 3}]}, "annotations, entry 0"),
        ({"annotations": []}, "no image with a caption"),
        ({"images": [{"id": 10, "file_name": "../../etc/a.jpg"}]}, r"\.\./\.\./etc"),
        ({"images": [{"id": 10, "file_name": "/etc/a.jpg"}]}, "/etc/a.jpg"),
        ({"images": [{"id": 10, "file_name": "../train2017/0.jpg"}]}, "inside"),  # which is there
    ],
)
def test_captions_that_are_wrong_are_named(change, said, captions):
    path = captions / "annotations" / "captions_train2017.json"
    content = json.loads(path.read_text()) | {"annotations": [{"image_id": 10, "caption": "a"}]} | change
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=said):
        data.find(path, {"kind": "coco_captions"}).load()


@pytest.mark.parametrize(
    ("name", "kind", "content", "said"),
    [
        ("dataset_some.json", "karpathy_captions", '{"images": [{"sentences": 3}]}', "entry 0"),
        ("dataset_some.json", "karpathy_captions", '{"images": 3}', "no list"),
        ("dataset_some.json", "karpathy_captions", "[" * 10**5, "not readable as JSON"),
        ("dataset_some.json", "karpathy_captions", "[1]", "JSON list"),
        ("results.token", "flickr_captions", "a.jpg#0\tone\nnothing\n", "line 2: 'nothing'"),
        ("results.token", "flickr_captions", "a.jpg#0\t\xff\n", "not UTF-8"),
        ("results.token", "flickr_captions", "", "no image with a caption"),
    ],
)
def test_a_damaged_file_of_captions(name, kind, content, said, captions):
    (captions / name).write_bytes(content.encode("latin1"))
    with pytest.raises(InputError, match=said):
        data.find(captions / name, {"kind": kind}).load()


def saved(path, **arrays):
    if path.suffix == ".npz":
        np.savez_compressed(path, **arrays)
    else:
        from safetensors.numpy import save_file

        save_file({name: np.ascontiguousarray(each) for name, each in arrays.items()}, path)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("shape", [(4, 5, 6), (4, 5, 6, 3), (4, 3, 5, 6), (4, 5, 6, 1)])
def test_images_with_labels(suffix, shape, tmp_path):
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    path = saved(tmp_path / f"a{suffix}", images=images, labels=np.array([3, 3, 5, 5]))
    assert data.find(path).kind == "arrays"
    found = data.find(path).load()
    channels = 3 if 3 in shape else 1
    assert tuple(found.query.items.shape) == (4, channels, 5, 6) and found.query.group.tolist() == [3, 3, 5, 5]
    assert found.candidate is None and found.query.shown.shape == (4, 5, 6, 3)


def test_a_folder_has_a_file_of_arrays_for_each_split(tmp_path):
    for split, rows in (("train", 4), ("test", 2)):
        saved(tmp_path / f"{split}.npz", images=np.zeros((rows, 5, 5), np.uint8), labels=np.arange(rows) // 2)
    found = data.find(tmp_path)
    assert found.kind == "arrays" and sorted(found.splits) == ["test", "train"]
    assert [len(found.load(split).query.items) for split in ("train", "test")] == [4, 2]


def test_features_text_labels_and_names(tmp_path):
    features, labels = rng.normal(size=(3, 7)).astype(">f4"), np.array(["b", "a", "b"])
    found = data.find(saved(tmp_path / "a.npz", features=features, labels=labels)).load()
    assert found.query.kind == "features" and found.query.group.tolist() == [1, 0, 1]
    assert np.array_equal(found.query.items.numpy(), features)
    more = {"labels": np.array([1, 0, 1]), "class_names": np.array(["cat", "dog"])}
    assert data.find(saved(tmp_path / "b.npz", features=features, **more)).load().query.names == ("dog", "cat", "dog")
    more["ids"] = np.array(["x", "y", "z"])
    assert data.find(saved(tmp_path / "c.npz", features=features, **more)).load().query.names == ("x", "y", "z")


def test_images_with_captions(tmp_path):
    images = rng.integers(0, 256, (2, 4, 4, 3), dtype=np.uint8)
    texts = np.array([["a", "b"], ["c", "d"]])
    found = data.find(saved(tmp_path / "a.npz", images=images, captions=texts)).load()
    assert found.candidate.items == ("a", "b", "c", "d") and found.candidate.group.tolist() == [0, 0, 1, 1]
    groups = {"image_group": np.array([4, 5]), "caption_group": np.array([5, 4, 4])}
    found = data.find(saved(tmp_path / "b.npz", images=images, captions=np.array(["a", "b", "c"]), **groups)).load()
    assert found.query.group.tolist() == [4, 5] and found.candidate.group.tolist() == [5, 4, 4]


IMAGES = np.zeros((2, 4, 4), np.uint8)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"images": IMAGES.astype("float32"), "labels": [1, 1]}, "images: float32"),
        ({"images": IMAGES[0], "labels": [1, 1]}, "images: uint8"),
        ({"images": IMAGES[:0], "labels": []}, "images: uint8"),
        ({"features": IMAGES, "labels": [1, 1]}, "features: uint8"),
        ({"images": IMAGES, "labels": [1.0, np.nan]}, "labels: dtype"),
        ({"images": IMAGES, "labels": [1]}, "labels: shape"),
        ({"images": IMAGES, "captions": [1, 2]}, "captions: dtype"),
        ({"images": IMAGES, "captions": ["a", "b", "c"]}, "no groups"),
        ({"images": IMAGES}, "holds images, expected"),
        ({"images": IMAGES, "labels": np.array([{}, {}])}, "Python objects"),
        ({"images": IMAGES.astype(complex), "labels": [1, 1]}, "images: dtype complex128"),
    ],
)
def test_arrays_that_do_not_fit(arrays, said, tmp_path):
    path = saved(tmp_path / "a.npz", **{name: np.asarray(each) for name, each in arrays.items()})
    with pytest.raises(InputError, match=said):
        data.find(path, {"kind": "arrays"}).load()


@pytest.mark.parametrize("damage", ["cut", "header"])
def test_a_damaged_file_of_arrays(damage, tmp_path):
    path = saved(tmp_path / "a.npz", images=IMAGES, labels=np.array([1, 1]))
    if damage == "header":  # a shape of a petabyte
        with zipfile.ZipFile(path) as archive:
            content = {name: archive.read(name) for name in archive.namelist()}
        content["images.npy"] = content["images.npy"].replace(b"(2, 4, 4)", b"(999999,)")
        with zipfile.ZipFile(path, "w") as archive:
            for name, each in content.items():
                archive.writestr(name, each)
    else:
        whole = path.read_bytes()
        place = whole.index(b"images.npy") + 60
        path.write_bytes(whole[:place] + b"\0" * 20 + whole[place + 20 :])
    with pytest.raises(InputError, match=r"damaged.*in \d+ bytes" if damage == "header" else "damaged"):
        data.find(path, {"kind": "arrays"}).load()


def test_precomputed_features_are_recognised(tmp_path):
    np.save(tmp_path / "train_ims.npy", np.ones((2, 3), "float32"))
    (tmp_path / "train_caps.txt").write_text("one\ntwo\n")
    source = data.find(tmp_path)
    assert (source.kind, source.splits) == ("precomp", ("train",)) and source.load().query.kind == "features"
    assert data.source("precomp", folder=str(tmp_path)).splits == ("train",)  # as a checkpoint records it
