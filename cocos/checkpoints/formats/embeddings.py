"""Files of embeddings, read and written: .npz, .safetensors or a torch file, recognised by the names of its arrays."""

import difflib
import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import torch

import cocos
from cocos import losses
from cocos.base import writing
from cocos.base.errors import InputError, prefixed, unreachable
from cocos.checkpoints import listing, recorded
from cocos.checkpoints.checkpoint import Checkpoint, holding
from cocos.checkpoints.files import File, plain, reading
from cocos.data import Source, TrainingSet
from cocos.data.precomputed import CAPTIONS_PER_IMAGE
from cocos.data.training_set import annotated_rows
from cocos.embeddings import Embeddings, annotations
from cocos.embeddings.annotations import Pictures
from cocos.embeddings.matrices import npy_header

WRITTEN_SUFFIXES = (".npz", ".safetensors")
# Bytes from which on an uncompressed matrix is mapped and not read, since memory may not hold it. A mapped file that is
# shortened ends the process.
MIN_MAPPED = 2**30
# Header of a member of a zip archive: its mark, and the lengths of its name and extra field.
LOCAL_HEADER = struct.Struct("<4s22xHH")
NOT_HASHED = "{} is mapped, not read, and its sha256 is not taken"
MAX_NOTES, MAX_NOTE = 8, 500  # notes of the provenance that are shown, and characters of one
MAX_NAME = 300  # characters of a name that is written: names are shown, not encoded again
THUMBNAIL = 64  # pixels of a side
TWO_SIDED = ("query", "candidate")
GROUP_ARRAYS = ("query_group", "candidate_group")
LABEL_ARRAYS = ("labels", "proxy_labels")
NAME_ARRAYS, PICTURE_ARRAYS = ("query_name", "candidate_name"), ("query_image", "candidate_image")
MARK_ARRAYS, SOURCE_ARRAYS = ("query_mark", "candidate_mark"), ("query_source", "candidate_source")
TEXT_ARRAYS = (*NAME_ARRAYS, *PICTURE_ARRAYS, *MARK_ARRAYS, *SOURCE_ARRAYS)
GUIDE_ARRAYS, LOGQ_ARRAYS = ("guide_query", "guide_candidate"), ("logq", "query_logq")
# Vectors and groups of a queue, for each side whose candidates its rows are.
QUEUE_ARRAYS = {name: (name, f"{name}_group") for name in ("queue", "query_queue")}
QUEUES = tuple(name for names in QUEUE_ARRAYS.values() for name in names)
ID_ARRAYS = (*GROUP_ARRAYS, *LABEL_ARRAYS, *(group for _, group in QUEUE_ARRAYS.values()))
COMMON_ARRAYS = ("marked", "mark_name", *TEXT_ARRAYS, "provenance")
TWO_SIDED_ARRAYS = (
    *(*TWO_SIDED, *GROUP_ARRAYS, "directions", "negatives", "teacher", *GUIDE_ARRAYS, "grades", *LOGQ_ARRAYS),
    *(*QUEUES, *COMMON_ARRAYS),
)
LABELLED_ARRAYS = ("embeddings", *LABEL_ARRAYS, "proxies", "proxy_variance", *QUEUE_ARRAYS["queue"], *COMMON_ARRAYS)
DEFAULT_MARK = "look-alike"  # name of a mark without `mark_name`
SOURCE_MARK = "source"  # name of the mark of the sources of candidates
# Names of the two sides in other code and their directions: CLIP and variants, VSE++, pairs and triplets.
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
    """Recognise one of the names of embeddings, or names of other code."""
    if file.kind != "npz" and not isinstance(file.content, dict):
        return False
    return bool({"query", "candidate", "embeddings"} & set(names_in(file)) or rename_arrays(file)[0])


def names_in(file: File) -> list[str]:
    """List the names of the arrays in a file."""
    return list(file.arrays if file.kind == "npz" else file.content)


def arrays_of(file: File, names: list[str]) -> dict[str, Any]:
    """Read arrays by their names; large uncompressed matrices in an npz file are mapped."""
    if file.kind != "npz":
        return {name: file.content[name] for name in names}
    arrays = {}
    with reading(file), np.load(file.path, allow_pickle=False) as archive:
        for name in names:
            try:
                mapped = map_array(file.path, archive.zip, name)
                arrays[name] = archive[name] if mapped is None else mapped
            except ValueError as error:
                if "allow_pickle" not in str(error):
                    raise
                fix = f"numpy.savez(FILE, {name}=numpy.asarray({name}.tolist()), ...)"
                raise InputError(
                    f"{file.path}, {name}: an array of Python objects, expected numbers or text: {fix}"
                ) from None
    return arrays


def map_array(path: Path, archive: zipfile.ZipFile, name: str, *, large: bool = True) -> np.memmap | None:
    """Map an uncompressed array in an npz file, which `numpy.load` would read; None if compressed.

    With `large`, also None for anything but a large matrix.
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


def check_names(file: File, names: list[str], strict: bool) -> list[str]:
    """Refuse missing arrays, and arrays of a labelled set and of two sides in one file; return the unused names.

    `strict` also refuses misspelt names: they may be other arrays in files of other code.
    """
    labelled = "embeddings" in names
    content = ", ".join(str(name)[:40] for name in names[:8]) or "nothing"
    if labelled and set(TWO_SIDED) & set(names):
        raise InputError(f"{file.path} contains a labelled set and two sides ({content}); save two files")
    missing = [name for name in (("embeddings", "labels") if labelled else TWO_SIDED) if name not in names]
    if missing == ["labels"] and file.path.with_name("tokenizer.json").is_file():
        raise InputError(f"{file.path} looks like a static table of tokens; encode with it: --model file.py:build")
    if missing:
        close = difflib.get_close_matches(missing[0], names, n=1, cutoff=0.6)
        raise InputError(
            f"{file.path} has no array {missing[0]!r} (it contains {content})"
            f"{f', so rename {close[0]!r}' if close else ''}; cocos reads query, candidate, query_group and "
            "candidate_group of two sides, or embeddings, labels of a labelled set and optionally proxies, "
            "proxy_labels, proxy_variance"
        )
    known = LABELLED_ARRAYS if labelled else TWO_SIDED_ARRAYS
    unused = [str(name) for name in names if name not in known and not recorded.is_parameter(str(name))]
    for name in unused[:100] if strict else ():
        if close := difflib.get_close_matches(name[:40], set(known) - set(names), n=1, cutoff=0.8):
            raise InputError(f"{file.path}: unknown array {name!r}: did you mean {close[0]!r}?")
    return unused


def read_metadata(file: File) -> dict[str, Any]:
    """Read the texts in the metadata of a safetensors file."""
    texts: dict[str, Any] = {
        name: file.metadata[name] for name in ("directions", "provenance", "mark_name") if name in file.metadata
    }
    for name in TEXT_ARRAYS:
        if name in file.metadata:
            with reading(file):
                texts[name] = json.loads(file.metadata[name])
    return texts


def read_provenance(value: Any) -> dict:
    """Read the description of model and data that `cocos encode` writes; empty if absent."""
    try:
        provenance = json.loads(str(np.asarray(value).reshape(-1)[0]))
    except (ValueError, IndexError, TypeError, RecursionError):
        return {}
    return provenance if isinstance(provenance, dict) else {}


def recorded_loss(provenance: dict) -> recorded.Recorded | None:
    """Return the loss of the training and its parameters; None if absent or not a built-in loss."""
    loss = provenance.get("loss")
    if not isinstance(loss, dict) or not isinstance(loss.get("parameters"), dict):
        return None
    try:
        losses.load(losses.find_file(str(loss.get("name"))), loss["parameters"])
    except (InputError, ValueError, TypeError):
        return None
    return recorded.Recorded(loss["name"], {loss["name"]: loss["parameters"]})


def read_directions(value: Any) -> tuple[str, ...]:
    """Read the names of the directions from an array, a list, or text (JSON or separated by commas)."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str):
        value = json.loads(value) if value.startswith("[") else [part.strip() for part in value.split(",")]
    return annotations.directions(value)


def tensor(file: File, name: str, value: Any) -> Any:
    """Convert an array to a tensor; keep the text of ids, names and paths, and mapped arrays, unchanged."""
    if name in (*ID_ARRAYS, *TEXT_ARRAYS) and annotations.texts(name, value) is not None:
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


def load(file: File, data=None) -> Checkpoint:
    """Read a file of embeddings; `data` is the folder of its pictures, by default the folder of the file."""
    path = file.path
    new_names, directions = rename_arrays(file)
    old_names = {new_names.get(name, name): name for name in names_in(file)}
    unused, labelled = check_names(file, list(old_names), strict=not new_names), "embeddings" in old_names
    names = [name for name in (LABELLED_ARRAYS if labelled else TWO_SIDED_ARRAYS) if name in old_names]
    values = arrays_of(file, [old_names[name] for name in names])
    arrays = read_metadata(file) | {name: values[old_names[name]] for name in names}
    if data is not None and not set(PICTURE_ARRAYS) & arrays.keys():
        raise InputError(f"data {data}: {path} contains embeddings already and needs no data")
    if directions is not None:
        arrays.setdefault("directions", directions)
    provenance = read_provenance(arrays.pop("provenance", None))
    mark_name, direction_names = arrays.pop("mark_name", None), arrays.pop("directions", None)
    tensors = {name: tensor(file, name, array) for name, array in arrays.items()}
    notes = [f"{path}: {old} is read as {name}" for old, name in new_names.items() if old != name]
    if directions == IMAGE_TEXT and (merged := merge_copies(tensors)):
        tensors |= merged
        notes.append(f"{path}: {CAPTIONS_PER_IMAGE} equal rows of an image, one per caption, are one query")
    if labelled and "proxies" not in tensors:
        tensors["labels"], noise = separate_noise(tensors["labels"])
        notes += [f"{path}: {noise} samples have the label -1, noise, and no positive"] if noise else []
    notes += [f"{path}: not used: {', '.join(unused[:8])}"] if unused else []
    folder = path.parent if data is None else Path(data)
    provenance_notes = provenance.get("notes")
    options: dict[str, Any] = {
        "marks": read_marks(path, tensors, mark_name),
        "notes": tuple(str(note)[:MAX_NOTE] for note in provenance_notes[:MAX_NOTES])
        if isinstance(provenance_notes, list)
        else (),
    }
    if direction_names is not None and not labelled:
        options["directions"] = read_directions(direction_names)
    embeddings = build_embeddings(file, tensors, options, folder)
    if not labelled and "query_group" not in tensors:
        height, width = embeddings.query.shape
        hint = f" ({height} rows of {width} numbers; if these are {width} items, transpose the arrays)"
        note = f"{path} has no groups: row i of the queries matches row i of the candidates"
        notes.append(note + (hint if height < width else ""))
    contents = {name: describe_array(array) for name, array in tensors.items()}
    contents["directions"] = ", ".join(embeddings.directions)
    if embeddings.notes:
        contents["read as"] = "; ".join(embeddings.notes)
    if provenance:
        contents["provenance"] = plain(provenance)
    is_mapped = any(isinstance(array, np.memmap) for array in arrays.values())
    if is_mapped:
        notes.append(NOT_HASHED.format(path))
    embedder = holding(path, "embeddings", lambda: embeddings)

    def rows(split: str) -> TrainingSet | None:
        annotated = embedder(split, "cpu")
        return annotated_rows(annotated) if annotated.names or annotated.pictures else None

    settings = recorded_loss(provenance) or recorded.read_file(file)
    return Checkpoint(
        path=path,
        sha256="" if is_mapped else file.sha256,
        format="embeddings",
        contents=contents,
        embedder=embedder,
        rows=rows,
        **settings.fields(),
        notes=(*notes, *settings.notes),
    )


def build_embeddings(file: File, tensors: dict[str, Any], options: dict[str, Any], folder: Path) -> Embeddings:
    """Return the embeddings in the arrays of a file, with paths of pictures below `folder`."""
    labelled = "embeddings" in tensors
    names = (*LABEL_ARRAYS, "proxies", "proxy_variance") if labelled else (*TWO_SIDED, *GROUP_ARRAYS, *LOGQ_ARRAYS)
    names += () if labelled else ("negatives", "teacher", "grades")
    options = options | {name: tensors[name] for name in names if name in tensors}
    for name, (rows, group) in QUEUE_ARRAYS.items():
        if group in tensors and rows not in tensors:
            raise InputError(f"{file.path}: {group} without {rows}; give the rows of the queue too")
        if rows in tensors:
            options[name] = (tensors[rows], tensors[group]) if group in tensors else tensors[rows]
    if set(GUIDE_ARRAYS) & tensors.keys():
        if "teacher" in options:
            raise InputError(f"{file.path}: expected teacher, or guide_query and guide_candidate, but not both")
        options["teacher"] = tuple(tensors.get(name) for name in GUIDE_ARRAYS)
    tensors = tensors | {
        name: picture_paths(file, name, tensors[name], folder) for name in PICTURE_ARRAYS if name in tensors
    }
    for option, sides in (("names", NAME_ARRAYS), ("pictures", PICTURE_ARRAYS)):
        pair = tuple(tensors.get(name) for name in sides)
        if labelled and "proxies" not in tensors:  # samples are their own candidates
            options[option] = pair[0]
        elif any(value is not None for value in pair):
            options[option] = pair
    with prefixed(str(file.path)):
        return Embeddings.labelled(tensors["embeddings"], **options) if labelled else Embeddings(**options)


def picture_paths(file: File, name: str, value: Any, folder: Path) -> Any:
    """Return the paths of pictures below a folder; pictures in arrays stay as they are."""
    if (paths := annotations.texts(f"{file.path}, {name}", value)) is None:
        return value
    for row, path in enumerate(paths):
        parts = PureWindowsPath(path)  # recognises both kinds of separators, and drives
        if not path.isprintable() or parts.anchor or ".." in parts.parts:
            inside = "expected a path inside of the folder of the file, or of --data"
            raise InputError(f"{file.path}, {name}: row {row} is {path[:60]!r}, {inside}")
    return [str(folder / path) if path else "" for path in paths]


def describe_array(value: Any) -> str:
    """Describe an array by shape and dtype, or texts by their number."""
    if isinstance(value, torch.Tensor | np.memmap):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return f"({len(value)},) text"


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
    """Read a file with `candidate` and without queries, as a labelled set; None for other files."""
    if not sniff(file) or {"query", "embeddings"} & set(names := names_in(file)) or "candidate" not in names:
        return None
    rows = tensor(file, "candidate", arrays_of(file, ["candidate"])["candidate"])
    with prefixed(f"{file.path}, candidate"):
        return Embeddings.labelled(rows, torch.zeros(len(rows), dtype=torch.int64))


def read_marks(path: Path, arrays: Mapping[str, Any], name: Any) -> dict[str, Any]:
    """Return the marks in the arrays of a file by their names, as `cocos.marks.of` takes them."""
    marks: dict[str, Any] = {}
    same = "embeddings" in arrays and "proxies" not in arrays  # samples are their own candidates
    required = {MARK_ARRAYS: MARK_ARRAYS[:1] if same else MARK_ARRAYS, SOURCE_ARRAYS: (SOURCE_ARRAYS[not same],)}
    for names, required_names in required.items():
        present = [name for name in names if name in arrays]
        missing = [name for name in required_names if name not in arrays]
        if present and missing:
            raise InputError(f"{path}: {present[0]} without {missing[0]}; give {missing[0]} too")
    if "query_mark" in arrays and "marked" in arrays:
        raise InputError(f"{path}: marked and query_mark both mark pairs; give one of them")
    label = DEFAULT_MARK if name is None else str(np.asarray(name).reshape(-1)[0])
    if "query_mark" in arrays:
        marks[label] = arrays["query_mark"], arrays.get("candidate_mark", arrays["query_mark"])
    elif "marked" in arrays:
        marks[label] = arrays["marked"]
    sources = {side: arrays[name] for side, name in zip(TWO_SIDED, SOURCE_ARRAYS, strict=True) if name in arrays}
    if sources:
        marks[SOURCE_MARK] = sources if "candidate" in sources else {"candidate": sources["query"]}
    return marks


def rename_arrays(file: File) -> tuple[dict[str, str], str | None]:
    """Find the arrays of two sides or of a labelled set under names of other code, if their shapes allow one reading.

    Returns the names in the file -> names here, empty if they are the same or unknown; and the directions.
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


def write(path: Path, embeddings: Embeddings, provenance: dict[str, Any], pictures: str = "auto") -> Path:
    """Write embeddings as `.npz` or `.safetensors`, whole or not at all.

    Args:
        path: of the output.
        embeddings: with the groups, names, pictures and hard negatives of their rows.
        provenance: JSON data, see `describe_provenance`.
        pictures: `auto` (paths if all files are in the folder of the output, else thumbnails) or `none`.
    """
    query, candidate = embeddings.query, embeddings.candidate
    query_group, candidate_group = embeddings.query_group, embeddings.candidate_group
    texts: dict[str, str | list[str]] = {"provenance": json.dumps(provenance, allow_nan=False)}
    if embeddings.shared or embeddings.proxies:
        tensors = {"embeddings": query, "labels": query_group}
        tensors |= {"proxies": candidate, "proxy_labels": candidate_group} if embeddings.proxies else {}
    else:
        texts["directions"] = list(embeddings.directions)
        tensors = dict(zip((*TWO_SIDED, *GROUP_ARRAYS), (query, candidate, query_group, candidate_group), strict=True))
        tensors |= {} if embeddings.negatives is None else {"negatives": embeddings.negatives}
        tensors |= {} if embeddings.grades is None else {"grades": embeddings.grades}
        if embeddings.teacher is not None:
            guide = embeddings.teacher.guide
            teacher = {"teacher": embeddings.teacher.matrix}
            tensors |= teacher if guide is None else dict(zip(GUIDE_ARRAYS, guide, strict=True))
    arrays = {name: np.ascontiguousarray(values.cpu().numpy()) for name, values in tensors.items()}
    for side in (0,) if embeddings.shared else (0, 1):
        names, images = ((pair or (None, None))[side] for pair in (embeddings.names, embeddings.pictures))
        if names is not None:
            texts[NAME_ARRAYS[side]] = [text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…" for text in names]
        if images is not None and pictures != "none":
            paths = relative_paths(images, path.parent)
            if paths is None:
                arrays[PICTURE_ARRAYS[side]] = thumbnails(images)
            else:
                texts[PICTURE_ARRAYS[side]] = paths
    try:
        with writing.replacing(path) as temporary:
            (write_npz if path.suffix == ".npz" else write_safetensors)(temporary, arrays, texts)
    except OSError as error:
        raise InputError(f"output {path}: cannot be written ({unreachable(error)})") from None
    return path


def write_npz(path: Path, arrays: Mapping[str, np.ndarray], texts: Mapping[str, str | list[str]]) -> None:
    """Write an archive of uncompressed numbers, which can be mapped, and compressed texts."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in {**arrays, **{name: np.array(text) for name, text in texts.items()}}.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # of 1980: equal arrays give equal bytes
            member.compress_type = zipfile.ZIP_DEFLATED if name in texts else zipfile.ZIP_STORED
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, values, allow_pickle=False)


def write_safetensors(path: Path, arrays: dict[str, np.ndarray], texts: Mapping[str, str | list[str]]) -> None:
    """Write tensors, with the texts as JSON in the metadata."""
    from safetensors.numpy import save_file

    metadata = {name: text if isinstance(text, str) else json.dumps(text) for name, text in texts.items()}
    save_file(arrays, path, metadata=metadata)


def relative_paths(pictures: Pictures, folder: Path) -> list[str] | None:
    """Return the paths of pictures relative to a folder; None if one is outside, or the pictures are arrays."""
    if isinstance(pictures, np.ndarray):
        return None
    base = folder.absolute()
    paths = [Path(path).absolute() if path else None for path in pictures]
    if not all(path is None or path.is_relative_to(base) for path in paths):
        return None
    return ["" if path is None else path.relative_to(base).as_posix() for path in paths]


def thumbnails(pictures: Pictures) -> np.ndarray:
    """Return pictures in white squares, (N, 64, 64, 3); small ones in an array stay as they are."""
    from PIL import Image

    if isinstance(pictures, np.ndarray) and max(pictures.shape[1:3]) <= THUMBNAIL:
        return np.ascontiguousarray(pictures)
    squares = np.full((len(pictures), THUMBNAIL, THUMBNAIL, 3), 255, np.uint8)
    for row in range(len(pictures)):
        if (picture := annotations.picture(pictures, row)) is not None:
            image = Image.fromarray(np.ascontiguousarray(picture))
            image.thumbnail((THUMBNAIL, THUMBNAIL))
            top, left = (THUMBNAIL - image.height) // 2, (THUMBNAIL - image.width) // 2
            squares[row, top : top + image.height, left : left + image.width] = np.asarray(image)
    return squares


def describe_provenance(checkpoint: Checkpoint, source: Source, rows: TrainingSet) -> dict[str, Any]:
    """Describe the model and the data of embeddings as JSON data."""
    loss = checkpoint.trained_with
    values = {key: value for key, value in checkpoint.contents.items() if isinstance(value, str | int | float | bool)}
    return {
        "cocos": cocos.__version__,
        "model": {
            "path": str(checkpoint.path),
            "sha256": checkpoint.sha256,
            "format": checkpoint.format,
            "contents": {key: str(value)[:300] for key, value in values.items()},
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
