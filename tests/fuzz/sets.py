"""Training data of each kind, valid and small: files by name, as `fuzz.models` has them."""

import gzip
import io
import json
from collections.abc import Callable

import numpy as np
from PIL import Image

from fuzz import seeds

__all__ = ["SETS", "captions", "classes", "pairs", "speech"]

PAIRS = [
    {"query": "a cat", "positive": "a dog sat", "negative_1": "the mat", "negative_2": "dogs."},
    {"query": "the dog", "positive": "the mat", "negative_1": "a dog sat", "negative_2": None},
    {"query": "cats sat", "positive": "dogs.", "negative_1": "", "negative_2": "xyz"},
]
LABELLED = [{"text": "a cat", "label": 4}, {"text": "a dog", "label": 4}, {"text": "mats", "label": 9}]
LINES = ["a dog sat on the mat", "the cat", "a mat .", "dogs", "cats sat", "the the dog"]


def _table(random, form: str) -> bytes:
    rows = random.choice([PAIRS, PAIRS, LABELLED])
    if form == "json":
        return json.dumps(rows).encode()
    if form in {"csv", "tsv"}:
        sign = {"csv": ",", "tsv": "\t"}[form]
        lines = [list(rows[0]), *([each[key] or "" for key in rows[0]] for each in rows)]
        return "".join(sign.join(map(str, line)) + "\n" for line in lines).encode()
    if form == "parquet":
        import pyarrow
        import pyarrow.parquet

        stream = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), stream)
        return stream.getvalue()
    lines = "".join(json.dumps(each) + "\n" for each in rows).encode()
    return gzip.compress(lines, mtime=0) if form == "jsonl.gz" else lines


def pairs(random, *forms: str) -> dict[str, bytes]:
    """Pairs of texts with hard negatives, or labelled texts, in one file."""
    form = random.choice(forms or ("jsonl", "csv"))
    return {f"pairs.{form}": _table(random, form)}


def _saved(random) -> dict:
    """A dataset as Hugging Face's library saves it."""
    import pyarrow

    table = pyarrow.Table.from_pylist(random.choice([PAIRS, LABELLED]))
    stream = io.BytesIO()
    with random.choice([pyarrow.ipc.new_stream, pyarrow.ipc.new_stream, pyarrow.ipc.new_file])(
        stream, table.schema
    ) as writer:
        writer.write_table(table)
    name = "data-00000-of-00001.arrow"
    files = {
        "state.json": {"_data_files": [{"filename": name}], "_split": "train", "_format_type": None},
        "dataset_info.json": {"features": {"query": {"dtype": "string", "_type": "Value"}}},
        name: stream.getvalue(),
    }
    if random.random() < 0.5:
        return files
    return {"dataset_dict.json": {"splits": ["train"]}} | {f"train/{key}": each for key, each in files.items()}


def _picture(random) -> tuple[str, bytes]:
    """A suffix, and a picture."""
    stream, form = io.BytesIO(), random.choice(["PNG", "PNG", "JPEG", "WEBP", "GIF", "BMP"])
    values = np.frombuffer(random.randbytes(72), np.uint8).reshape(4, 6, 3)
    Image.fromarray(values).save(stream, form)
    return form.lower(), stream.getvalue()


def classes(random) -> dict[str, bytes]:
    """Images in a folder for each class, with splits above them or without."""
    top = random.choice(["", "", "train/"])
    found = {}
    for row in range(4):
        suffix, payload = _picture(random)
        found[f"{top}{'cats' if row % 2 else 'dogs'}/{row}.{suffix}"] = payload
    return found


def captions(random) -> dict:
    """Images with captions: those of Flickr, COCO or Karpathy."""
    pictures = [_picture(random) for _ in range(3)]
    names = [f"{row}.{suffix}" for row, (suffix, _) in enumerate(pictures)]
    files: dict = {f"images/{name}": payload for name, (_, payload) in zip(names, pictures, strict=True)}
    kind = random.choice(["flickr", "coco", "karpathy"])
    if kind == "flickr":
        lines = [f"{name}#{k}\t{LINES[2 * row + k]}\n" for row, name in enumerate(names) for k in range(2)]
        files["results.token"] = "".join(lines).encode()
    elif kind == "coco":
        notes = [{"id": k, "image_id": k // 2, "caption": line} for k, line in enumerate(LINES)]
        about = [{"id": row, "file_name": name} for row, name in enumerate(names)]
        files["captions_train2017.json"] = {"images": about, "annotations": notes}
    else:
        about = [
            {
                "filename": name,
                "split": "train",
                "sentids": [2 * row, 2 * row + 1],
                "sentences": [{"raw": LINES[2 * row + k], "imgid": row} for k in range(2)],
            }
            for row, name in enumerate(names)
        ]
        files["dataset_flickr30k.json"] = {"images": about, "dataset": "flickr30k"}
    return files


def _arrays(random) -> dict[str, bytes]:
    """Images or features with labels or captions."""
    rows = np.frombuffer(random.randbytes(6 * 4 * 4 * 3), np.uint8).reshape(6, 4, 4, 3)
    held = {"images": rows} if random.random() < 0.5 else {"features": rows[:, :, 0].astype(np.float32)}
    labelled = random.random() < 0.6
    held |= {"labels": np.arange(6) // 2} if labelled else {"captions": np.array(LINES)[:, None]}
    if labelled and random.random() < 0.5:
        held["class_names"] = np.array(["cat", "dog", "mat"])
    if labelled and random.random() < 0.3:
        return {"data.safetensors": seeds.safe(held)}
    return {"data.npz": seeds.npz(held, deflated=random.random() < 0.3)}


def speech(random) -> dict[str, bytes]:
    """Recordings of equal length, with their speakers."""
    rows = np.frombuffer(random.randbytes(4 * 5 * 3), np.uint8).reshape(4, 5, 3).astype(np.float32)
    return {"data.npz": seeds.npz({"features": rows, "labels": np.arange(4) // 2}, deflated=False)}


def _tables(random) -> dict[str, bytes]:
    return pairs(random, "jsonl", "json", "csv", "tsv", "jsonl.gz")


# Kinds of data, each a function of a random generator.
SETS: dict[str, Callable] = {
    "tables": _tables,
    "parquet": lambda random: pairs(random, "parquet"),
    "saved datasets": _saved,
    "image folders": classes,
    "captions": captions,
    "arrays": _arrays,
}
