"""Files of embeddings: .npz, .safetensors or a torch file, recognised by the names of its arrays."""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import torch

import cocos
from cocos import losses
from cocos.base.errors import InputError, prefixed
from cocos.checkpoints import recorded
from cocos.checkpoints.arrays import npz_headers
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File, plain
from cocos.data import Source, TrainingSet, tables
from cocos.data.precomputed import CAPTIONS_PER_IMAGE
from cocos.data.training_set import annotated_rows
from cocos.embeddings import Embeddings, annotations
from cocos.embeddings.embeddings import GUIDE, NAME_ARRAYS, PICTURE_ARRAYS

# Pair labels, and the sources that candidates come from.
MARK_ARRAYS, SOURCE_ARRAYS = ("query_mark", "candidate_mark"), ("query_source", "candidate_source")
GROUPS, QUEUES = ("query_group", "candidate_group"), ("queue", "query_queue")
TEXT_ARRAYS = {*NAME_ARRAYS, *PICTURE_ARRAYS, *MARK_ARRAYS, *SOURCE_ARRAYS}
ID_ARRAYS = {*GROUPS, "labels", "proxy_labels", "queue_group", "query_queue_group"}
# Arguments of `Embeddings.labelled` and of `Embeddings` that are arrays of these names.
LABELLED = {"embeddings", "labels", "proxies", "proxy_labels", "proxy_variance"}
TWO_SIDED = {"query", "candidate", *GROUPS, "directions", "negatives", "teacher", "grades", "logq", "query_logq"}
FURTHER = {*TEXT_ARRAYS, *QUEUES, "queue_group", "query_queue_group", *GUIDE, "marked", "mark_name", "provenance"}
# Names of matrices and labels in other code; a suffix such as `_features` is ignored.
VECTOR_SUFFIX = re.compile(r"[_ ]?(embeddings?|embeds?|embs?|vectors?|vec|features?|feats?)$")
IMAGES = ("image", "images", "img")
QUERIES = (*IMAGES, "query", "queries", "anchor", "anchors", "question")
CANDIDATES = ("candidate", "candidates", "positive", "positives", "document", "documents", "passage", "answer")
CANDIDATES += ("text", "texts", "caption", "captions", "cap")
SAMPLES = ("embeddings", "features", "feats", "feat", "embedding", "embs", "emb", "vectors", "x", "X")
CLASSES = ("labels", "label", "targets", "target", "classes", "class", "class_ids", "identities", "pids", "y")


def sniff(file: File) -> bool:
    """Recognise one of the names of embeddings, or names of other code."""
    return bool({"query", "candidate", "embeddings"} & set(file.arrays) or rename_arrays(file))


def role(name: str) -> str | None:
    """Return `query` or `candidate` for a name that other code gives to this side, or None."""
    stem = VECTOR_SUFFIX.sub("", name.lower())
    return "query" if stem in QUERIES else "candidate" if stem in CANDIDATES else None


def rename_arrays(file: File) -> dict[str, str]:
    """Return the arrays of two sides or of a labelled set that have names of other code -> names here.

    Empty if their names are those here, or if their shapes do not allow one reading.
    """
    if {"query", "candidate"} <= set(file.arrays) or {"embeddings", "labels"} <= set(file.arrays):
        return {}
    arrays: Any = npz_headers(file.path) if file.kind == "npz" else {name: file.content[name] for name in file.arrays}
    shapes = {
        name: (len(array),) if isinstance(array, list) else tuple(getattr(array, "shape", ()))
        for name, array in arrays.items()
    }
    matrices = [name for name, shape in shapes.items() if len(shape) == 2 and "float" in str(arrays[name].dtype)]
    sides = {side: next((name for name in matrices if role(name) == side), "") for side in ("query", "candidate")}
    if all(sides.values()) and shapes[sides["query"]] == shapes[sides["candidate"]]:
        sides["negatives"] = next((name for name in ("negative", "negatives") if name in arrays), "")
        return {name: side for side, name in sides.items() if name}
    samples = next((name for name in SAMPLES if name in matrices), None)
    labels = next((name for name in CLASSES if samples and shapes.get(name) == shapes[samples][:1]), None)
    return {samples: "embeddings", labels: "labels"} if samples and labels else {}


def read_arrays(file: File, names: Mapping[str, str]) -> dict[str, Any]:
    """Read arrays, `names` in the file -> here, as tensors or text."""
    if file.kind != "npz":
        return {name: as_tensor(file, name, file.content[key]) for key, name in names.items()}
    with tables.readable(file.path), np.load(file.path, allow_pickle=False) as archive:
        return {name: as_tensor(file, name, archive[key]) for key, name in names.items()}


def as_tensor(file: File, name: str, value: Any) -> Any:
    """Convert an array to a tensor; keep texts."""
    is_text = name in ID_ARRAYS | TEXT_ARRAYS and annotations.texts(name, value) is not None
    if is_text or name in {"provenance", "mark_name", "directions"}:
        return value
    if isinstance(value, np.ndarray):
        value = value.astype(value.dtype.newbyteorder("="), copy=False)
    dtype = getattr(value, "dtype", type(value).__name__)
    return annotations.as_tensor(f"{file.path}, {name} of dtype {dtype}", value, "numbers of up to 64 bits")


def load(file: File, data=None) -> Checkpoint:
    """Read a file of embeddings."""
    path, renamed = file.path, rename_arrays(file)
    has_queries = renamed or {"query", "embeddings"} & set(file.arrays)
    renamed = renamed if has_queries else {"candidate": "embeddings"}  # distractors of `evaluate`
    names = {str(name): renamed.get(name, str(name)) for name in file.arrays}
    labelled = "embeddings" in names.values()
    accepted = FURTHER | (LABELLED if labelled else TWO_SIDED)
    required = ("embeddings", "labels") if labelled else ("query", "candidate")
    if has_queries and (missing := [name for name in required if name not in names.values()]):
        listed = ", ".join(list(names)[:8])
        expected = "query, candidate, query_group, candidate_group; or embeddings, labels, proxies, proxy_labels"
        raise InputError(f"{path} has no array {missing[0]!r} (it has {listed}), expected {expected}")
    arrays = read_arrays(file, {old: name for old, name in names.items() if name in accepted})
    if not has_queries:
        arrays["labels"] = torch.zeros(len(arrays["embeddings"]), dtype=torch.int64)
    if "directions" in file.metadata:
        arrays["directions"] = file.metadata["directions"]
    notes = [f"{path}: {old} is read as {name}" for old, name in renamed.items() if old != name]
    unused = [old for old, name in names.items() if name not in accepted and not recorded.is_parameter(old)]
    notes += [f"{path}: not used: {', '.join(unused[:8])}"] if unused else []
    return open_arrays(file, "embeddings", arrays, renamed, notes)


def open_arrays(
    file: File, format_name: str, arrays: dict[str, Any], names: Iterable[str], notes: Iterable[str] = ()
) -> Checkpoint:
    """Return a checkpoint of arrays; `names` are other names in the file."""
    path, notes = file.path, list(notes)
    if "query" in arrays and any(name.lower().startswith(IMAGES) for name in names):
        arrays = {"directions": "i2t,t2i"} | arrays | merge_copies(arrays)
    if "labels" in arrays and "proxies" not in arrays:
        arrays["labels"], noise_notes = separate_noise(path, arrays["labels"])
        notes += noise_notes
    if "query" in arrays and "query_group" not in arrays:
        notes.append(f"{path} has no groups: row i of the queries matches row i of the candidates")
    arrays |= {name: picture_paths(path, arrays[name]) for name in PICTURE_ARRAYS if name in arrays}
    provenance, settings = read_provenance(arrays.pop("provenance", None))
    embeddings = build_embeddings(path, arrays, tuple(map(str, provenance.get("notes") or ())))
    contents = {name: plain(array) if hasattr(array, "dtype") else f"({len(array)},)" for name, array in arrays.items()}
    contents["directions"] = ", ".join(embeddings.directions)
    contents |= {"provenance": provenance} if provenance else {}
    settings = settings or recorded.read_file(file)
    options = {"settings": settings, "notes": (*notes, *settings.notes)}
    if embeddings.names or embeddings.pictures:
        options["rows"] = lambda: annotated_rows(embeddings)
    return Checkpoint(path, file.sha256, format_name, contents, lambda *_: embeddings, **options)


def build_embeddings(path: Path, arrays: dict[str, Any], notes: tuple[str, ...] = ()) -> Embeddings:
    """Return the embeddings in the arrays of a file."""
    labelled = "embeddings" in arrays
    is_shared = labelled and "proxies" not in arrays  # samples are their own candidates
    options = {name: array for name, array in arrays.items() if name in (LABELLED if labelled else TWO_SIDED)}
    for name in arrays.keys() & set(QUEUES):
        group = arrays.get(f"{name}_group")
        options[name] = arrays[name] if group is None else (arrays[name], group)
    if set(GUIDE) & arrays.keys():
        options["teacher"] = tuple(arrays.get(name) for name in GUIDE)
    if (directions := options.get("directions")) is not None:
        text = directions if isinstance(directions, str) else ",".join(map(str, np.ravel(directions)))
        options["directions"] = annotations.directions([name.strip(' "') for name in text.strip("[]").split(",")])
    for option, names in (("names", NAME_ARRAYS), ("pictures", PICTURE_ARRAYS)):
        query, candidate = (arrays.get(name) for name in names)
        options[option] = query if is_shared else (query, candidate)
    marks: dict[str, Any] = {}
    label = str(np.asarray(arrays.get("mark_name", "look-alike")).reshape(-1)[0])
    if "query_mark" in arrays or "marked" in arrays:
        sides = arrays.get("query_mark"), arrays.get("candidate_mark", arrays.get("query_mark"))
        marks[label] = arrays.get("marked", sides)
    if sources := {name.removesuffix("_source"): arrays[name] for name in SOURCE_ARRAYS if name in arrays}:
        marks["source"] = {"candidate": sources["query"]} if is_shared else sources
    with prefixed(str(path)):
        return (Embeddings.labelled if labelled else Embeddings)(**options, marks=marks, notes=notes)


def picture_paths(path: Path, pictures: Any) -> Any:
    """Return the paths of pictures in the folder of a file; pictures in arrays stay as they are."""
    names = annotations.texts(f"{path}, pictures", pictures)
    for name in names or ():
        parts = PureWindowsPath(name)  # recognises both kinds of separators, and drives
        if parts.anchor or ".." in parts.parts or not name.isprintable():
            raise InputError(f"{path}: picture {name[:60]!r}, expected a path inside of {path.parent}")
    return pictures if names is None else [str(path.parent / name) if name else "" for name in names]


def read_provenance(value: Any) -> tuple[dict, recorded.Recorded | None]:
    """Read the description of model and data that `cocos encode` writes, and the loss of the training in it."""
    provenance, settings = {}, None
    with suppress(ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        provenance = dict(json.loads(str(np.asarray(value).reshape(-1)[0])))
        name, parameters = provenance["loss"]["name"], provenance["loss"]["parameters"]
        losses.load(losses.find_file(name), parameters)
        settings = recorded.Recorded(name, {name: parameters})
    return provenance, settings


def separate_noise(path: Path, labels: Any) -> tuple[Any, list[str]]:
    """Give each sample with the label -1, as clusterings mark noise, a class of its own, with a note.

    Labels of two classes, -1 and another, are kept.
    """
    if not isinstance(labels, torch.Tensor) or not str(labels.dtype).startswith("torch.int"):
        return labels, []
    noise, labels = labels == -1, labels.to(torch.int64)
    number = int(noise.sum())
    if not number or len(labels.unique()) < 3:
        return labels, []
    labels = labels.masked_scatter(noise, torch.arange(number) + labels.max() + 1)
    return labels, [f"{path}: {number} samples have the label -1, noise, and no positive"]


def merge_copies(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return each image once, and groups, if images are stored once per caption, up to rounding, as VSE++ does."""
    query = torch.as_tensor(arrays["query"])
    if "query_group" in arrays or len(query) != len(arrays["candidate"]) or len(query) % CAPTIONS_PER_IMAGE:
        return {}
    copies = query.unflatten(0, (-1, CAPTIONS_PER_IMAGE)).double()
    if (copies - copies[:, :1]).abs().max() > 1e-5 * copies.abs().max():
        return {}
    group = torch.arange(len(copies))
    groups = {"query_group": group, "candidate_group": group.repeat_interleave(CAPTIONS_PER_IMAGE)}
    return {"query": query[::CAPTIONS_PER_IMAGE].contiguous()} | groups


def describe_provenance(checkpoint: Checkpoint, source: Source, rows: TrainingSet) -> dict[str, Any]:
    """Describe the model and the data of embeddings as JSON data."""
    settings, path = checkpoint.settings, str(source.path or source.kind)
    return {
        "cocos": cocos.__version__,
        "model": {"path": str(checkpoint.path), "sha256": checkpoint.sha256, "format": checkpoint.format},
        "data": {"path": path, "kind": source.kind, "split": rows.split, "sha256": rows.identity},
        "notes": list(rows.notes),
        "loss": settings.loss and {"name": settings.loss, "parameters": settings.parameters.get(settings.loss, {})},
    }
