"""Small data sets in every layout: each function writes one into a folder, and returns its path."""

import gzip
import io
import json
import pickle
from collections import defaultdict

import numpy as np
import scipy.io
from PIL import Image

PAIRS = [
    {"query": "a cat", "positive": "it purrs", "negative_1": "it barks", "negative_2": "it flies"},
    {"query": "a dog", "positive": "it barks", "negative_1": "it purrs", "negative_2": None},
    {"query": "a bird", "positive": "it flies", "negative_1": "", "negative_2": "it swims"},
]
LABELLED = [{"text": "one", "label": 4}, {"text": "two", "label": 4}, {"text": "three", "label": 9}]
CAPTIONS = {"a.jpg": ["a dog, running", "the dog"], "b.jpg": ["one cat"], "c/d.png": ['a "quoted" mat']}
CARS = (1, 1, 98, 98, 99, 99, 196, 196)
LANDMARKS = {"0a1b2c3d4e5f6a7b": 5, "0a1b2c3d4e5f6a7c": 5, "f0e1d2c3b4a59687": 70, "f0e1d2c3b4a59688": 70}


def picture(path, size=(6, 4), form="PNG"):
    """Write random pixels that depend on the file name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(sum(path.name.encode())).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, form)
    return path


def lines(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def table(path, rows):
    """Write rows in the form of the suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix in {".csv", ".tsv"}:
        cells = [list(rows[0]), *([str(value) if value is not None else "" for value in row.values()] for row in rows)]
        sign = "\t" if path.suffix == ".tsv" else ","
        path.write_text("".join(sign.join(row) + "\n" for row in cells), "utf-8-sig")
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1))
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def beir(folder, judged=None, *, zipped=False):
    """Four documents and three queries."""
    corpus = {"d1": ("Cats", "They purr."), "d2": ("", "Dogs bark."), "d3": ("Cows", "They moo."), "d4": ("", "Rain.")}
    queries = {"q1": "which animal purrs", "q2": "which one barks", "q3": "which moos"}
    judged = judged or (("q1", "d1", 2), ("q1", "d2", 0), ("q2", "d2", 1), ("q3", "d3", 1), ("q3", "d1", 1))
    lines(folder / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in judged))
    end = ".jsonl.gz" if zipped else ".jsonl"
    rows = [{"_id": key, "title": title, "text": text} for key, (title, text) in corpus.items()]
    table(folder / f"corpus{end}", rows)
    table(folder / f"queries{end}", [{"_id": key, "text": text} for key, text in queries.items()])
    return folder


def caption_table(path, header=("image", "caption"), sign=",", turned=False, quote='"'):
    """Three images and four captions."""
    for name in CAPTIONS:
        picture(path.parent / "images" / name)
    rows = [(name, text) for name, texts in CAPTIONS.items() for text in texts]
    rows = [row[::-1] if turned else row for row in rows]
    cells = [[f'"{cell.replace(chr(34), 2 * chr(34))}"' if quote else cell for cell in row] for row in rows]
    return lines(path, *([sign.join(header)] if header else []), *(sign.join(row) for row in cells))


def coco(folder):
    """Three images, the last without a caption."""
    for number in range(3):
        picture(folder / "train2017" / f"{number}.jpg")
    content = {
        "images": [{"id": 10 + number, "file_name": f"{number}.jpg"} for number in range(3)],
        "annotations": [
            {"image_id": 10 + image, "caption": text} for image, text in ((0, "one"), (0, "two"), (1, "x"))
        ],
    }
    lines(folder / "annotations" / "captions_train2017.json", json.dumps(content))
    return folder


def karpathy(folder):
    """The folder of VSE++: `dataset_flickr30k.json` and `images`."""
    entries = []
    for number, split in enumerate(("train", "train", "train", "val", "test")):
        picture(folder / "images" / f"{number}.jpg")
        sentences = [{"raw": f"{word} {'dog cat mat one two'.split()[number]}"} for word in ("a", "the")]
        entries.append({"filename": f"{number}.jpg", "split": split, "sentences": sentences})
    lines(folder / "dataset_flickr30k.json", json.dumps({"images": entries, "dataset": "flickr30k"}))
    return folder


def tokens(folder):
    """Flickr's token file."""
    for number in range(2):
        picture(folder / "flickr30k-images" / f"{number}.jpg")
    return lines(folder / "results.token", "0.jpg#0\tone", "0.jpg#1\ttwo", "1.jpg#0\tthree")


def jpeg(seed):
    stream = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (9, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(stream, "JPEG")
    return stream.getvalue()


def bleeker(folder, splits=("train", "val", "test"), protocol=3):
    """The pickles of the study: a defaultdict of two dictionaries."""
    content = defaultdict(dict)
    for image in range(4):
        content["images"][image] = {"image": jpeg(image), "caption_ids": [2 * image, 2 * image + 1]}
        for caption in (2 * image, 2 * image + 1):
            text = f"{'a the'.split()[caption % 2]} {'dog cat mat one'.split()[image]}"
            content["captions"][caption] = {"caption": text, "imgid": image, "tokens": text.split()}
    folder.mkdir(parents=True, exist_ok=True)
    for split in splits:
        (folder / f"{split}_set.p").write_bytes(pickle.dumps(content, protocol))
    return folder


def precomputed(folder, stored=1, per_image=5, images=2):
    """Features of images, and captions."""
    folder.mkdir(parents=True, exist_ok=True)
    features = np.random.default_rng(0).normal(size=(images, 3)).astype("float32")
    np.save(folder / "train_ims.npy", features.repeat(stored, axis=0))
    lines(folder / "train_caps.txt", *(f"caption {number}" for number in range(per_image * images)))
    return folder


def arrays(path, **content):
    """An npz or safetensors file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npz":
        np.savez_compressed(path, **content)
    else:
        from safetensors.numpy import save_file

        save_file({name: np.ascontiguousarray(values) for name, values in content.items()}, path)
    return path


def class_folders(folder):
    """Two classes of two images, one in a subfolder."""
    for name in ("cats/a.png", "cats/more/b.png", "dogs/c.png", "dogs/d.png"):
        picture(folder / name)
    lines(folder / "dogs" / "notes.txt", "mine")
    return folder


def birds(folder):
    """CUB-200-2011: two images of each of four of its classes."""
    classes = [(1, "001.Albatross"), (100, "100.Brown_Pelican"), (101, "101.White_Pelican"), (200, "200.Wren")]
    rows = [(label, f"{name}/{name[4:]}_{k}.jpg") for label, name in classes for k in (0, 1)]
    lines(folder / "images.txt", *(f"{image} {path}" for image, (_, path) in enumerate(rows, 1)))
    lines(folder / "image_class_labels.txt", *(f"{image} {label}" for image, (label, _) in enumerate(rows, 1)))
    lines(folder / "train_test_split.txt", *(f"{image} {image % 2}" for image in range(1, 9)))
    for _, path in rows:
        picture(folder / "images" / path)
    return folder


def annotations(path, rows, **arrays):
    """Write a struct array as MATLAB does, with the fields of the boxes too."""
    kinds = [(name, object) for name in ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", *rows[0])]
    content = np.empty((1, len(rows)), kinds)
    for number, row in enumerate(rows):
        content[0, number] = (39, 116, 569, 375, *row.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, {**arrays, "annotations": content}, do_compression=True)
    return path


def cars(folder):
    """Cars-196 as `car_ims.tgz` and `cars_annos.mat`; the two images of a class are in different parts."""
    rows = [{"relative_im_path": f"car_ims/{k:06d}.jpg", "class": c, "test": k % 2} for k, c in enumerate(CARS)]
    names = np.array([["AM General Hummer SUV 2000", "Acura RL Sedan 2012"]], dtype=object)
    annotations(folder / "cars_annos.mat", rows, class_names=names)
    for row in rows:
        picture(folder / row["relative_im_path"])
    return folder


def cars_devkit(folder):
    """Cars-196 as `cars_train.tgz`, `cars_test.tgz` and the devkit, with the labels of the test part."""
    for part, classes in {"train": CARS[::2], "test": CARS[1::2]}.items():
        rows = [{"class": label, "fname": f"{number + 1:05d}.jpg"} for number, label in enumerate(classes)]
        file = "cars_test_annos_withlabels.mat" if part == "test" else "devkit/cars_train_annos.mat"
        annotations(folder / file, rows)
        for row in rows:
            picture(folder / f"cars_{part}" / row["fname"])
    return folder


def products(folder):
    """Stanford Online Products: four products in two super-categories."""
    image = 0
    for split, classes in (("train", (1, 2)), ("test", (11319, 11320))):
        rows = []
        for super_class, label in enumerate(classes):
            for k in (0, 1):
                image += 1
                path = f"{('bicycle', 'mug')[super_class]}_final/{label:012d}_{k}.JPG"
                rows.append(f"{image} {label} {super_class + 1} {path}")
                picture(folder / path)
        lines(folder / f"Ebay_{split}.txt", "image_id class_id super_class_id path", *rows)
    return folder


def clothes(folder, place="Eval/"):
    """In-shop: `Eval/list_eval_partition.txt`, and the images of `img.zip` in `Img`."""
    items = (
        ("WOMEN", "Dresses", 2, ("train", "train")),
        ("MEN", "Denim", 7, ("train", "train")),
        ("WOMEN", "Dresses", 4, ("query", "gallery", "gallery")),
        ("MEN", "Denim", 9, ("query", "gallery")),
    )
    rows = [
        (f"img/{who}/{what}/id_{item:08d}/0{number}_1_front.jpg", item, part)
        for who, what, item, parts in items
        for number, part in enumerate(parts, 1)
    ]
    listed = [f"{path:<70} id_{item:08d} {part:>12}" for path, item, part in rows]
    lines(folder / f"{place}list_eval_partition.txt", len(rows), "image_name item_id evaluation_status", *listed)
    for path, *_ in rows:
        picture(folder / ("Img" if place else "") / path)
    return folder


def landmarks(folder):
    """Google Landmarks: `train.csv`, and images in folders of the first letters of their ids."""
    rows = [f'{name},"http://static.example.org/{name}, large.jpg",{label}' for name, label in LANDMARKS.items()]
    lines(folder / "train.csv", "id,url,landmark_id", *rows)
    for name in LANDMARKS:
        picture(folder / "train" / name[0] / name[1] / name[2] / f"{name}.jpg")
    return folder
