"""The document of `cocos inspect`: the contents and records of a file, a folder or a training run, as plain data."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from cocos import data as shelf
from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints import formats, listing, model_card, recorded, runs
from cocos.checkpoints.checkpoint import EXAMPLE, EXAMPLE_FILE, Checkpoint, one_sentence
from cocos.checkpoints.files import DATA_KINDS, TENSOR_KINDS, File, describe, plain
from cocos.data.images import ImagesElsewhere

OWN_MODEL = "an encoder: the architecture is not known; name a function that builds it, --model file.py:build"
OWN_DATA = "training data that it encodes: --data DATA"
OWN_SAMPLES = "samples and their encoder: class vectors alone are counted, each as a sample of its class"
MAX_LISTED = 10_000  # tensors in the document
# Kinds of data whose images are files next to a list of them.
IMAGE_KINDS = ("captions", "image_lists")
# Files in a training folder that may be pickles.
PICKLES = re.compile(r"\.(bin|pt|pth|pkl|ckpt|p)$")


def about(path: Path, data=None) -> dict:
    """Describe a file, a folder, or the run of a training."""
    file = File(EXAMPLE_FILE if path == EXAMPLE else path)
    with one_sentence(file.path, "is a damaged file"):
        format = formats.find(file)
        if format is None and (told := _of_none(file)) is not None:
            return plain(told)
        if format is not None:
            opened = format.load(file, data)
            if data is not None and opened.encoder and opened.training is None and opened.embedder is None:
                opened = replace(opened, training=shelf.find(data))
            found = _of_format(opened, format)
        else:
            found = _of_kind(file)
        found = _common(file, data) | found | {"path": str(path)}
    return plain(found | {"next": _next(found)})


def _common(file: File, data) -> dict:
    """Return the entries of any file: tensors, and the records of its training."""
    tensors = listing.list_tensors(file)
    settings = model_card.read_folder(file.path) if file.kind == "folder" else recorded.read_file(file)
    refused = []  # pickles in a folder, with the names that they would import; none of them is needed
    for name in file.names if file.kind == "folder" else ():
        if PICKLES.search(name) and (names := file.file(name).wanted_names):
            refused.append({"file": name, "names": names})
    return {
        "path": str(file.path),
        "container": file.kind,
        "data": data and str(data),
        "trained_with": settings.loss,
        "recorded": settings.parameters,
        "loss_settings": [
            {
                "parameter": candidate.parameter,
                "value": candidate.value,
                "source": candidate.path,
                "learned": candidate.learned,
                "used": not candidate.reason,
                "reason": candidate.reason,
            }
            for candidate in settings.candidates
        ],
        "training": listing.training_progress(file),
        "hyper_parameters": listing.hyper_parameters(file),
        "towers": listing.list_towers(file),
        "refused": refused,
        "tensors_in_all": len(tensors),
        "tensors": [tensor._asdict() | {"shape": list(tensor.shape)} for tensor in tensors[:MAX_LISTED]],
    }


def _of_format(found: Checkpoint, format: ModuleType) -> dict:
    missing: list[str] = []
    if found.encoder is not None and found.training is None:
        missing.append(OWN_DATA)
    elif found.encoder is None and found.proxies is not None:
        missing.append(OWN_SAMPLES)
    of_format = {"trained_with": found.trained_with, "recorded": found.recorded}
    return {name: value for name, value in of_format.items() if value} | {
        "sha256": found.sha256,
        "format": found.format,
        "why": formats.describe(format),
        "splits": list(found.splits),
        "contents": found.contents,
        "notes": list(found.notes),
        "encoder": found.encoder is not None,
        "proxies": None if found.proxies is None else list(found.proxies.shape),
        "missing": missing,
        "advice": None,
    }


def _of_none(file: File) -> dict | None:
    """Describe training data, or the folder of a run; None of a file that may hold a checkpoint."""
    kind = shelf.sniff(file.path) if file.kind in DATA_KINDS else None
    if kind is not None:
        return _of_data(file, kind)
    advice = describe(file)  # refuses files that require code
    if file.kind in TENSOR_KINDS:
        return None
    if file.kind == "folder":
        return describe_run(file)
    raise InputError(advice)


def _of_kind(file: File) -> dict:
    """Describe a file of tensors that no format recognises."""
    missing = [] if file.kind in {"npz", "npy"} else [OWN_MODEL, OWN_DATA]
    return {
        "sha256": file.sha256,
        "format": file.kind,
        "why": None,
        "splits": [],
        "contents": listing.top_values(file),
        "notes": [],
        "encoder": False,
        "proxies": None,
        "missing": missing,
        "advice": describe(file),
    }


def _next(found: dict) -> str | None:
    """Write the command to type next; None where there is only advice."""
    path, data = shlex.quote(found["path"]), found["data"]
    given = f" --data {shlex.quote(data) if data else 'DATA'}" if data or OWN_DATA in found["missing"] else ""
    if found["advice"] is not None:
        if "name the folder" in found["advice"]:
            return f"cocos inspect {shlex.quote(str(Path(found['path']).parent))}"
        return f"cocos count {path} --model file.py:build{given}" if OWN_MODEL in found["missing"] else None
    otherwise = "normalized_softmax" if found["proxies"] else "ntxent"
    loss = found["trained_with"] or found["contents"].get("loss to begin with") or otherwise
    return f"cocos count {path}{given} --loss {loss}"


def describe_run(folder: File) -> dict:
    """Describe the checkpoints of a training run: name, step, bytes, and format or the reason of a refusal."""
    checkpoints = []
    for path, step in runs.list_checkpoints(folder.path).items():
        files = [path] if path.is_file() else [member for member in path.rglob("*") if member.is_file()]
        entry = {
            "name": path.relative_to(folder.path).as_posix(),
            "step": step,
            "size": sum(member.stat().st_size for member in files),
            "format": None,
            "advice": None,
        }
        try:
            file = File(path)
            format = formats.find(file)
            entry |= {"format": format and formats.name_of(format), "container": file.kind}
        except InputError as error:
            entry |= {"container": "refused" if isinstance(error, UnsafeFile) else "unreadable", "advice": str(error)}
        checkpoints.append(entry)
    readable = [entry["name"] for entry in checkpoints if entry["format"]] or [checkpoints[-1]["name"]]
    if len(checkpoints) > 1 and {entry["format"] for entry in checkpoints} == {"embeddings"}:
        command = f"cocos run {shlex.quote(str(folder.path))}"
    else:
        command = f"cocos inspect {shlex.quote(str(folder.path / readable[-1]))}"
    return {
        "path": str(folder.path),
        "container": folder.kind,
        "format": "run",
        "checkpoints": checkpoints,
        "notes": [],
        "next": command,
    }


def _of_data(file: File, kind: str) -> dict:
    """Describe training data; where their images are elsewhere, the next command names the folder."""
    found, path, more = shelf.find(file.path), shlex.quote(str(file.path)), ""
    contents, notes = {}, []
    if kind in IMAGE_KINDS:
        try:
            for split in found.splits if kind == "image_lists" else found.splits[:1]:
                rows = found.load(split)
                contents |= _sizes(rows)
                notes += rows.notes
        except ImagesElsewhere as error:
            contents, more = contents | {"images": str(error)}, " --images FOLDER"
    return {
        "path": str(file.path),
        "container": file.kind,
        "format": kind,
        "splits": list(found.splits),
        "contents": contents,
        "notes": notes,
        "next": f"cocos encode {path}{more} --model MODEL --out embeddings.npz",
    }


def _sizes(rows: shelf.TrainingSet) -> dict[str, str]:
    """Describe the data set and the numbers of images, and of captions or classes, of a split."""
    images, candidate = len(rows.query), rows.candidate
    if candidate is not None and candidate.kind == "text":
        return {rows.split: f"{images:,} images, {len(candidate):,} captions"}
    classes = f"{len(rows.query.group.unique()):,} classes"
    if candidate is None:
        return {"data set": rows.name, rows.split: f"{images:,} images of {classes}"}
    return {"data set": rows.name, rows.split: f"{images:,} query and {len(candidate):,} gallery images of {classes}"}
