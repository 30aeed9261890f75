"""Files of embeddings that cocos writes and reads back: names, pictures, groups, hard negatives and provenance."""

import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cocos
from cocos.base import writing
from cocos.base.errors import InputError, unreachable
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.data import Source, TrainingSet
from cocos.embeddings import Embeddings, annotations
from cocos.embeddings.annotations import Pictures

FILE_SUFFIXES = (".npz", ".safetensors")
# What is written of pictures: paths where all lie in the folder of the file, otherwise thumbnails; or one of them.
PICTURES = ("auto", "paths", "thumbnails", "none")
# Characters of a name: names are shown, not encoded again.
MAX_NAME = 300
GUIDE = ("guide_query", "guide_candidate")
THUMBNAIL = 64  # pixels of a side


def write(path: Path, embeddings: Embeddings, provenance: dict[str, Any], pictures: str = "auto") -> Path:
    """Write embeddings, as `.npz` or `.safetensors`, with all that is known of their rows, whole or not at all.

    The provenance, of model and data, is plain data; `pictures` is one of `PICTURES`.
    """
    arrays = _vectors(embeddings)
    texts: dict[str, list[str]] = {}
    for side, names, shown in zip(
        ("query", "candidate"), embeddings.names or (None, None), embeddings.pictures or (None, None), strict=True
    ):
        if embeddings.shared and side == "candidate":
            continue
        if names is not None:
            texts[f"{side}_name"] = [name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…" for name in names]
        found = None if shown is None or pictures == "none" else _pictures(shown, path.parent, pictures)
        if isinstance(found, np.ndarray):
            arrays[f"{side}_image"] = found
        elif found is not None:
            texts[f"{side}_image"] = found
    about = {"directions": list(embeddings.directions)} if "query" in arrays else {}
    said = {**about, **texts, "provenance": json.dumps(provenance, allow_nan=False)}
    try:
        with writing.replacing(path) as temporary:
            (_npz if path.suffix == ".npz" else _safetensors)(temporary, arrays, said)
            with open(temporary, "rb") as stream:
                os.fsync(stream.fileno())
    except OSError as error:
        raise InputError(f"output {path}: cannot be written ({unreachable(error)})") from None
    return path


def describe_provenance(checkpoint: Checkpoint, source: Source, rows: TrainingSet) -> dict[str, Any]:
    """Describe the model and the data of the embeddings."""
    loss = checkpoint.trained_with
    plain = {key: value for key, value in checkpoint.contents.items() if isinstance(value, str | int | float | bool)}
    return {
        "cocos": cocos.__version__,
        "model": {
            "path": str(checkpoint.path),
            "sha256": checkpoint.sha256,
            "format": checkpoint.format,
            "contents": {key: str(value)[:300] for key, value in plain.items()},
        },
        "data": {
            "path": str(source.path or source.kind),
            "kind": source.kind,
            "split": rows.split,
            "sha256": rows.identity,
        },
        "notes": list(rows.notes),
        "loss": {"name": loss, "parameters": checkpoint.recorded.get(loss, {})} if loss else None,
    }


def _vectors(embeddings: Embeddings) -> dict[str, np.ndarray]:
    """Arrays of numbers, by the names that a file of embeddings has."""
    query, candidate = embeddings.query, embeddings.candidate
    groups = embeddings.query_group, embeddings.candidate_group
    if embeddings.shared:
        found = {"embeddings": query, "labels": groups[0]}
    elif embeddings.proxies:
        found = {"embeddings": query, "labels": groups[0], "proxies": candidate, "proxy_labels": groups[1]}
    else:
        found = {"query": query, "candidate": candidate, "query_group": groups[0], "candidate_group": groups[1]}
        if embeddings.negatives is not None:
            found["negatives"] = embeddings.negatives
        if embeddings.grades is not None:
            found["grades"] = embeddings.grades
        if embeddings.teacher is not None:
            guide = embeddings.teacher.guide
            found |= {"teacher": embeddings.teacher.matrix} if guide is None else dict(zip(GUIDE, guide, strict=True))
    return {name: np.ascontiguousarray(each.cpu().numpy()) for name, each in found.items()}


def _pictures(shown: Pictures, folder: Path, kind: str) -> np.ndarray | list[str]:
    """Paths relative to the folder of the file, or thumbnails (N, 64, 64, 3) at most."""
    if isinstance(shown, np.ndarray):
        if kind == "paths":
            raise InputError("pictures paths: the images are in an array, not in files; write thumbnails")
        small = max(shown.shape[1:3]) <= THUMBNAIL
        return np.ascontiguousarray(shown) if small else np.stack([_thumbnail(each) for each in shown])
    if kind != "thumbnails":
        inside = [_relative(path, folder) for path in shown]
        if None not in inside:
            return [each for each in inside if each is not None]
        if kind == "paths":
            elsewhere = shown[inside.index(None)]
            raise InputError(f"pictures paths: {elsewhere} lies outside of {folder}, the folder of the output")
    blank = np.full((1, 1, 3), 255, np.uint8)
    found = (annotations.picture(shown, row) for row in range(len(shown)))
    return np.stack([_thumbnail(blank if each is None else each) for each in found])


def _relative(path: str, folder: Path) -> str | None:
    """The path below a folder; None where it lies elsewhere."""
    if not path:
        return ""
    whole, base = Path(os.path.abspath(path)), Path(os.path.abspath(folder))
    return whole.relative_to(base).as_posix() if whole.is_relative_to(base) else None


def _thumbnail(picture: np.ndarray) -> np.ndarray:
    """Shrink a picture into a white square."""
    from PIL import Image

    image, square = Image.fromarray(np.ascontiguousarray(picture)), Image.new("RGB", (THUMBNAIL, THUMBNAIL), "white")
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    square.paste(image, ((THUMBNAIL - image.width) // 2, (THUMBNAIL - image.height) // 2))
    return np.asarray(square)


def _npz(path: Path, arrays: dict[str, np.ndarray], said: dict[str, str | Sequence[str]]) -> None:
    """Write an archive of arrays: numbers as they are, so that they can be mapped, and texts compressed."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in {**arrays, **{name: np.array(each) for name, each in said.items()}}.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # of 1980: equal arrays give equal bytes
            member.compress_type = zipfile.ZIP_DEFLATED if values.dtype.kind == "U" else zipfile.ZIP_STORED
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, values, allow_pickle=False)


def _safetensors(path: Path, arrays: dict[str, np.ndarray], said: dict[str, str | Sequence[str]]) -> None:
    """Write tensors, with the texts as JSON in the metadata."""
    from safetensors.numpy import save_file

    texts = {name: each if isinstance(each, str) else json.dumps(list(each)) for name, each in said.items()}
    save_file(arrays, path, metadata=texts)
