"""A file of embeddings: .npz, .safetensors or a torch file of tensors, recognised by the names of its arrays."""

import difflib
import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import torch

from cocos import losses
from cocos.base.errors import InputError
from cocos.checkpoints import listing, recorded
from cocos.checkpoints.checkpoint import Checkpoint, holding
from cocos.checkpoints.files import File, plain, reading
from cocos.data import AnnotatedRows
from cocos.data.precomputed import CAPTIONS_PER_IMAGE
from cocos.embeddings import Embeddings, annotations
from cocos.embeddings.matrices import npy_header

# Bytes from which on an uncompressed matrix is mapped and not read, since memory may not hold it. A mapped file that is
# shortened ends the process.
MIN_MAPPED = 2**30
# Header of a member of a zip archive: its mark, and the lengths of its name and extra field.
LOCAL_HEADER = struct.Struct("<4s22xHH")
NOT_HASHED = "{} is mapped, not read: its sha256 is not taken, save where a result is saved"
MAX_NOTES, MAX_NOTE = 8, 500  # notes of the provenance that are shown, and characters of one
MAX_PICTURE_PATH = 1024  # characters of the path of a picture
TWO_SIDED = ("query", "candidate")
GROUP_ARRAYS = ("query_group", "candidate_group")
LABEL_ARRAYS = ("labels", "proxy_labels")
NAME_ARRAYS, PICTURE_ARRAYS = ("query_name", "candidate_name"), ("query_image", "candidate_image")
MARK_ARRAYS, SOURCE_ARRAYS = ("query_mark", "candidate_mark"), ("query_source", "candidate_source")
TEXT_ARRAYS = (*NAME_ARRAYS, *PICTURE_ARRAYS, *MARK_ARRAYS, *SOURCE_ARRAYS)
GUIDE_ARRAYS, LOGQ_ARRAYS = ("guide_query", "guide_candidate"), ("logq", "query_logq")
# Arrays of a queue, for each side whose candidates its rows are: vectors and groups.
QUEUE_ARRAYS = {name: (name, f"{name}_group") for name in ("queue", "query_queue")}
OF_ANY = ("marked", "mark_name", *TEXT_ARRAYS, "provenance")
QUEUES = tuple(name for names in QUEUE_ARRAYS.values() for name in names)
TWO_SIDED_ARRAYS = (
    *(*TWO_SIDED, *GROUP_ARRAYS, "directions", "negatives", "teacher", *GUIDE_ARRAYS, "grades", *LOGQ_ARRAYS),
    *(*QUEUES, *OF_ANY),
)
LABELLED_ARRAYS = ("embeddings", *LABEL_ARRAYS, "proxies", "proxy_variance", *QUEUE_ARRAYS["queue"], *OF_ANY)
# Name of a mark in a file that gives it none.
DEFAULT_MARK = "look-alike"
# Name of the mark whose kinds are the sources of candidates.
SOURCE_MARK = "source"
# Two sides, and their directions: outputs of CLIP and of its kin, of VSE++, of code for pairs and triples.
IMAGE_TEXT, PAIR = "i2t,t2i", "q2c,c2q"
PAIRS = {
    ("image_features", "text_features"): IMAGE_TEXT,
    ("image_embeds", "text_embeds"): IMAGE_TEXT,
    ("image_embeddings", "text_embeddings"): IMAGE_TEXT,
    ("img_embs", "cap_embs"): IMAGE_TEXT,
    ("img_emb", "cap_emb"): IMAGE_TEXT,
    ("image", "text"): IMAGE_TEXT,
    ("anchor", "positive"): PAIR,
    ("anchors", "positives"): PAIR,
    ("queries", "candidates"): PAIR,
    ("queries", "documents"): PAIR,
    ("query", "document"): PAIR,
    ("query", "passage"): PAIR,
    ("query", "positive"): PAIR,
}
SAMPLES = ("embeddings", "features", "feats", "feat", "embedding", "embs", "emb", "vectors", "x", "X")
CLASSES = ("labels", "label", "targets", "target", "classes", "class_ids", "identities", "pids", "y")


def sniff(file: File) -> bool:
    """Arrays or tensors of which one has a name that embeddings have, here or in other code."""
    if file.kind != "npz" and not isinstance(file.content, dict):
        return False
    return bool({"query", "candidate", "embeddings"} & set(names_in(file)) or renamed(file)[0])


def names_in(file: File) -> list[str]:
    """List the names of the arrays in a file."""
    return list(file.arrays if file.kind == "npz" else file.content)


def arrays_of(file: File, wanted: list[str]) -> dict[str, Any]:
    """Read some arrays in a file by their names."""
    return npz(file, wanted) if file.kind == "npz" else {name: file.content[name] for name in wanted}


def npz(file: File, wanted: list[str]) -> dict[str, np.ndarray]:
    """Read some arrays in an npz file; large uncompressed matrices are mapped."""
    arrays = {}
    with reading(file), np.load(file.path, allow_pickle=False) as archive:
        for name in wanted:
            try:
                mapped = map_array(file.path, archive.zip, name)
                arrays[name] = archive[name] if mapped is None else mapped
            except ValueError as error:
                if "allow_pickle" not in str(error):
                    raise
                raise InputError(
                    f"{file.path}, {name}: an array of Python objects, which only a pickle can store; save numbers or "
                    f"text: numpy.savez(FILE, {name}=numpy.asarray({name}.tolist()), ...)"
                ) from None
    return arrays


def map_array(path: Path, archive: zipfile.ZipFile, name: str, *, large: bool = True) -> np.memmap | None:
    """Map an uncompressed array in an npz file, which `numpy.load` would read; None if it is compressed.

    `large`: None as well unless it is a large matrix.
    """
    info = archive.getinfo(f"{name}.npy" if f"{name}.npy" in archive.namelist() else name)
    if info.compress_type != zipfile.ZIP_STORED or (large and info.file_size < MIN_MAPPED):
        return None
    with open(path, "rb") as stream:
        stream.seek(info.header_offset)
        name_length, extra_length = LOCAL_HEADER.unpack(stream.read(LOCAL_HEADER.size))[1:]
        stream.seek(info.header_offset + LOCAL_HEADER.size + name_length + extra_length)
        shape, fortran, dtype = npy_header(stream)
        if dtype.hasobject or (large and (dtype.kind != "f" or len(shape) != 2)):
            return None
        return np.memmap(path, dtype, "r", stream.tell(), shape, "F" if fortran else "C")


def _sort_out(file: File, arrays: list[str], strict: bool) -> list[str]:
    """Refuse arrays that are missing, misspelt, or of two kinds of file at once; return the names of those not used.

    Names that are not used may be like others where the file is of other code, as `strict` says it is not.
    """
    held = ", ".join(str(name)[:40] for name in arrays[:8]) or "nothing"
    if "embeddings" in arrays and any(name in arrays for name in TWO_SIDED):
        raise InputError(f"{file.path} holds both a labelled set and two sides ({held}); save each in its own file")
    labelled = "embeddings" in arrays
    missing = [name for name in (("embeddings", "labels") if labelled else TWO_SIDED) if name not in arrays]
    if missing == ["labels"] and Path(file.path).with_name("tokenizer.json").is_file():
        raise InputError(f"{file.path} looks like a static table of tokens; encode with it: --model file.py:build")
    if missing:
        close = difflib.get_close_matches(missing[0], arrays, n=1, cutoff=0.6)
        meant = f", so rename {close[0]!r}" if close else ""
        raise InputError(
            f"{file.path} has no array {missing[0]!r} (it holds {held}){meant}; cocos reads query, candidate, "
            "query_group and candidate_group of two sides, or embeddings, labels of a labelled set and optionally "
            "proxies, proxy_labels, proxy_variance"
        )
    known = LABELLED_ARRAYS if labelled else TWO_SIDED_ARRAYS
    unused = [str(name) for name in arrays if name not in known and not recorded.is_parameter(str(name))]
    for name in unused[:100] if strict else ():
        close = difflib.get_close_matches(name[:40], set(known) - set(arrays), n=1, cutoff=0.8)
        if close:
            raise InputError(f"{file.path}: unknown array {name!r}: did you mean {close[0]!r}?")
    return unused


def _metadata(file: File, arrays: dict) -> dict:
    """Read what a safetensors file has as text in its metadata: directions, names and paths of pictures, provenance."""
    texts = {name: file.metadata[name] for name in ("directions", "provenance", "mark_name") if name in file.metadata}
    for name in TEXT_ARRAYS:
        if name in file.metadata:
            try:
                texts[name] = json.loads(file.metadata[name])
            except ValueError:
                texts[name] = None
            if not isinstance(texts[name], list) or not all(isinstance(text, str) for text in texts[name]):
                raise InputError(f"{file.path}: {name} in its metadata is no JSON list of texts")
    return {name: text for name, text in texts.items() if name not in arrays}


def _provenance(value) -> dict:
    """Read what `cocos encode` says of model and data; nothing where it says nothing."""
    try:
        provenance = json.loads(str(np.asarray(value).reshape(-1)[0]))
    except (ValueError, IndexError, TypeError, RecursionError):
        return {}
    return provenance if isinstance(provenance, dict) else {}


def _loss(provenance: dict) -> tuple[dict, str] | None:
    """The loss of the training and its parameters, as the provenance has them; None for none of the shelf."""
    loss = provenance.get("loss")
    if not isinstance(loss, dict) or not isinstance(loss.get("parameters"), dict):
        return None
    try:
        losses.load(losses.find_file(str(loss.get("name"))), loss["parameters"])
    except (InputError, ValueError, TypeError):
        return None
    return {loss["name"]: loss["parameters"]}, loss["name"]


def _names(file: File, value) -> tuple[str, ...]:
    """Read the names of the directions from an array, a list, or text (JSON or comma-separated)."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "US":
        value = np.char.decode(value, "utf-8") if value.dtype.kind == "S" else value
        value = value.tolist()
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.startswith("[") else [part.strip() for part in value.split(",")]
        except ValueError:
            value = None
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise InputError(f"{file.path}: directions are no list of names, like q2c and c2q")
    return tuple(value)


def tensor(file: File, name: str, value):
    """Convert an array to a tensor; keep the text of ids, names and paths, and mapped arrays, unchanged."""
    ids = (*GROUP_ARRAYS, *LABEL_ARRAYS, *(each[1] for each in QUEUE_ARRAYS.values()))
    if name in (*ids, *TEXT_ARRAYS) and annotations.texts(value) is not None:
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiub" or value.dtype.itemsize > 8:
            raise InputError(f"{file.path}, {name}: dtype {value.dtype}, expected numbers of up to 64 bits")
        if isinstance(value, np.memmap) and value.dtype.isnative:
            return value
        value = value.astype(value.dtype.newbyteorder("=")) if not value.dtype.isnative else value
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{file.path}, {name}: {type(value).__name__}, expected an array of numbers") from None


def _paths(file: File, name: str, value, folder: Path):
    """Return pictures as they are, and paths of pictures as paths inside of a folder."""
    if (paths := annotations.texts(value)) is None:
        return value
    inside = []
    for row, path in enumerate(annotations.spelled(f"{file.path}, {name}", paths)):
        parts = PureWindowsPath(path)  # knows both kinds of separators, and drives
        if len(path) > MAX_PICTURE_PATH or not path.isprintable() or parts.anchor or ".." in parts.parts:
            raise InputError(
                f"{file.path}, {name}: row {row} is {path[:60]!r}, expected a path inside of the folder of the file, "
                "or of --data"
            )
        inside.append(str(folder / path) if path else "")
    return inside


def _pair(tensors: dict, names: tuple[str, str]) -> tuple | None:
    pair = tuple(tensors.get(name) for name in names)
    return None if all(array is None for array in pair) else pair


def _shown(value) -> str:
    """Describe an array by shape and dtype, or texts by their number."""
    if isinstance(value, torch.Tensor | np.memmap):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return f"({len(value)},) text"


def _embeddings(file: File, tensors: dict, extra: dict, folder: Path) -> Embeddings:
    shown = tensors | {name: _paths(file, name, tensors[name], folder) for name in PICTURE_ARRAYS if name in tensors}
    labelled = "embeddings" in tensors
    pairs = (*TWO_SIDED, *GROUP_ARRAYS, "negatives", "teacher", "grades", *LOGQ_ARRAYS)
    options = {
        name: tensors.get(name) for name in ((*LABEL_ARRAYS, "proxies", "proxy_variance") if labelled else pairs)
    }
    options |= extra | _queues(file, tensors)
    if (guide := _pair(tensors, GUIDE_ARRAYS)) is not None:
        if options["teacher"] is not None:
            raise InputError(
                f"{file.path}: teacher and guide_query, guide_candidate are both present; keep one of them"
            )
        options["teacher"] = guide
    options |= {"names": _pair(tensors, NAME_ARRAYS), "pictures": _pair(shown, PICTURE_ARRAYS)}
    if labelled and "proxies" not in tensors:  # samples are their own candidates
        options |= {name: options[name] and options[name][0] for name in ("names", "pictures")}
    try:
        return Embeddings.labelled(tensors["embeddings"], **options) if labelled else Embeddings(**options)
    except InputError as error:
        raise type(error)(f"{file.path}: {error}") from None


def separate_noise(labels: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Give each sample with the label -1, as clusterings mark noise, a class of its own, and count them.

    Labels of two classes, -1 and another, are kept.
    """
    noise = labels == -1 if isinstance(labels, torch.Tensor) and labels.ndim == 1 and labels.dtype.is_signed else None
    if noise is None or not noise.any() or labels.is_floating_point() or len(labels[labels >= 0].unique()) < 2:
        return labels, 0
    number = int(noise.sum())
    labels = labels.to(torch.int64)
    return labels.masked_scatter(noise, torch.arange(number) + labels.max() + 1), number


def _queues(file: File, tensors: dict) -> dict[str, Any]:
    """Rows of queues, and their groups where they have any."""
    queues = {}
    for name, (rows, group) in QUEUE_ARRAYS.items():
        if rows in tensors:
            queues[name] = (tensors[rows], tensors[group]) if group in tensors else tensors[rows]
        elif group in tensors:
            raise InputError(f"{file.path}: {group} without {rows}; give the rows of the queue too")
    return queues


def load(file: File, data=None) -> Checkpoint:
    """Read a file of embeddings; `data` is the folder of its pictures, by default its own folder."""
    new_names, directions = renamed(file)
    old_names = {name: old for old, name in new_names.items()}
    names = [new_names.get(name, name) for name in names_in(file)]
    unused, labelled = _sort_out(file, names, strict=not new_names), "embeddings" in names
    wanted = [name for name in (LABELLED_ARRAYS if labelled else TWO_SIDED_ARRAYS) if name in names]
    if data is not None and not any(name in wanted or name in file.metadata for name in PICTURE_ARRAYS):
        raise InputError(f"data {data}: {file.path} holds embeddings already and needs no data")
    names_in_file = [old_names.get(name, name) for name in wanted]
    arrays = {new_names.get(name, name): value for name, value in arrays_of(file, names_in_file).items()}
    if directions is not None:
        arrays.setdefault("directions", directions)
    arrays |= _metadata(file, arrays)
    provenance = _provenance(arrays.pop("provenance", None))
    wanted = [name for name in dict.fromkeys((*wanted, *TEXT_ARRAYS)) if name in arrays]
    options = {} if labelled or "directions" not in arrays else {"directions": _names(file, arrays["directions"])}
    tensors = {name: tensor(file, name, arrays[name]) for name in wanted if name not in {"directions", "mark_name"}}
    images = len(tensors.get("query", ()))
    if directions == IMAGE_TEXT:
        tensors |= merge_copies(tensors)
    options["marks"] = marks_of(file.path, tensors, arrays.get("mark_name"))
    folder = Path(data) if data is not None else Path(file.path).parent
    provenance_notes = provenance.get("notes")
    noise = 0
    if labelled and "proxies" not in tensors:
        tensors["labels"], noise = separate_noise(tensors["labels"])
    provenance_notes = provenance_notes if isinstance(provenance_notes, list) else []
    options["notes"] = tuple(str(note)[:MAX_NOTE] for note in provenance_notes[:MAX_NOTES])
    rows_of_file = _embeddings(file, tensors, options, folder)
    notes = [f"{file.path}: {old} is read as {name}" for old, name in new_names.items() if old != name]
    if len(tensors.get("query", ())) < images:
        notes.append(f"{file.path}: {CAPTIONS_PER_IMAGE} equal rows of an image, one per caption, are one query")
    notes += [f"{file.path}: {noise} samples have the label -1, noise, and no positive"] if noise else []
    notes += [f"{file.path}: not used: {', '.join(unused[:8])}"] if unused else []
    if not labelled and "query_group" not in tensors:
        height, width = rows_of_file.query.shape
        hint = f" ({height} rows of {width} numbers; if these are {width} items, transpose the arrays)"
        notes.append(
            f"{file.path} has no groups: row i of the queries matches row i of the candidates"
            + (hint if height < width else "")
        )
    contents = {name: _shown(value) for name, value in tensors.items()}
    contents["directions"] = ", ".join(rows_of_file.directions)
    if rows_of_file.notes:
        contents["read as"] = "; ".join(rows_of_file.notes)

    embedder = holding(file.path, "embeddings", lambda: rows_of_file)

    def rows(split: str) -> AnnotatedRows | None:
        annotated = embedder(split, "cpu")
        return AnnotatedRows(annotated, folder) if annotated.names or annotated.pictures else None

    if rows_of_file.mapped:
        notes.append(NOT_HASHED.format(file.path))
    settings = recorded.read_file(file)
    if loss := _loss(provenance):
        settings = recorded.Recorded(loss[1], loss[0])
    if provenance:
        contents["provenance"] = plain(provenance)
    return Checkpoint(
        path=file.path,
        sha256="" if rows_of_file.mapped else file.sha256,
        mapped=rows_of_file.mapped,
        format="embeddings",
        contents=contents,
        embedder=embedder,
        rows=rows,
        **settings.fields(),
        notes=(*notes, *settings.notes),
    )


def merge_copies(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return one of five consecutive copies of each image, and groups, if images are stored once per caption.

    VSE++ encodes an image with each of its captions (`encode_data`), so the copies differ by rounding.
    """
    query, candidate = (torch.as_tensor(tensors[side]) for side in TWO_SIDED)
    images, rest = divmod(len(query), CAPTIONS_PER_IMAGE)
    if rest or not images or len(query) != len(candidate) or "query_group" in tensors:
        return {}
    copies = query.unflatten(0, (images, CAPTIONS_PER_IMAGE)).double()
    if not torch.allclose(copies, copies[:, :1].expand_as(copies), rtol=0, atol=1e-5 * float(copies.abs().max())):
        return {}
    group = torch.arange(images)
    groups = {"query_group": group, "candidate_group": group.repeat_interleave(CAPTIONS_PER_IMAGE)}
    return {"query": query[::CAPTIONS_PER_IMAGE].contiguous()} | groups


def candidates(file: File) -> Embeddings | None:
    """Read a file that has `candidate` and no side that asks, as a labelled set; None of any other file."""
    if not sniff(file) or {"query", "embeddings"} & set(names := names_in(file)) or "candidate" not in names:
        return None
    rows = tensor(file, "candidate", arrays_of(file, ["candidate"])["candidate"])
    try:
        return Embeddings.labelled(rows, torch.zeros(len(rows), dtype=torch.int64))
    except InputError as error:
        raise type(error)(f"{file.path}: {str(error).replace('embeddings', 'candidate', 1)}") from None


def marks_of(path: Path | str, arrays: Mapping[str, Any], name: Any = None) -> dict[str, Any]:
    """Marks of the arrays of a file by their names, as `cocos.marks.of` takes them; the one without is `look-alike`."""
    marks: dict[str, Any] = {}
    same = "embeddings" in arrays and "proxies" not in arrays  # samples are their own candidates
    needed = {MARK_ARRAYS: MARK_ARRAYS[:1] if same else MARK_ARRAYS, SOURCE_ARRAYS: (SOURCE_ARRAYS[not same],)}
    for names, wanted in needed.items():
        present = [name for name in names if name in arrays]
        missing = [name for name in wanted if name not in arrays]
        if present and missing:
            raise InputError(f"{path}: {present[0]} without {missing[0]}; give {missing[0]} too")
    if "query_mark" in arrays and "marked" in arrays:
        raise InputError(f"{path}: marked and query_mark both mark pairs; give one of them")
    label = _text(path, name)
    if "query_mark" in arrays:
        marks[label] = arrays["query_mark"], arrays.get("candidate_mark", arrays["query_mark"])
    elif "marked" in arrays:
        marks[label] = arrays["marked"]
    sides = {array.removesuffix("_source"): arrays[array] for array in SOURCE_ARRAYS if array in arrays}
    if sides:
        marks[SOURCE_MARK] = sides if "candidate" in sides else {"candidate": sides["query"]}
    return marks


def _text(path: Path | str, name: Any) -> str:
    """The name of a mark."""
    first = DEFAULT_MARK if name is None else next(iter(np.asarray(name).reshape(-1).tolist()), None)
    first = first.decode("utf-8", "replace") if isinstance(first, bytes) else first
    if not isinstance(first, str):
        raise InputError(f"{path}: mark_name is {first!r}, expected a text")
    return first


def renamed(file: File) -> tuple[dict[str, str], str | None]:
    """Find arrays that are two sides or a labelled set under other names, if their shapes allow no other reading.

    Returns the name in the file -> name here, empty where the names are those used here or unknown; and the directions.
    """
    arrays = {array.name: array for array in listing.list_tensors(file)}
    matrices = {name: array for name, array in arrays.items() if len(array.shape) == 2 and "float" in array.dtype}
    if {"query", "candidate"} <= arrays.keys() or {"embeddings", "labels"} <= arrays.keys():
        return {}, None
    for (query, candidate), directions in PAIRS.items():
        if {query, candidate} <= matrices.keys() and matrices[query].shape == matrices[candidate].shape:
            hard = next((name for name in ("negative", "negatives") if directions == PAIR and name in arrays), None)
            negatives = {hard: "negatives"} if hard else {}
            return {query: "query", candidate: "candidate"} | negatives, directions
    samples = next((name for name in SAMPLES if name in matrices), None)
    if samples is None:
        return {}, None
    rows = matrices[samples].shape[0]
    listed = {name: (len(array),) for name in CLASSES if isinstance(array := file.record.get(name), list)}
    shapes = listed | {name: arrays[name].shape for name in CLASSES if name in arrays}
    labels = next((name for name in CLASSES if shapes.get(name) == (rows,)), None)
    return ({}, None) if labels is None else ({samples: "embeddings", labels: "labels"}, None)
