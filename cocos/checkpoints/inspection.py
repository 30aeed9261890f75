"""The document of `cocos inspect`: the contents and records of a file, a folder or a training run, as plain data."""

import shlex
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from cocos import data as training_data
from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints import formats, listing, model_card, recorded, runs
from cocos.checkpoints.checkpoint import EXAMPLE, EXAMPLE_FILE, one_sentence
from cocos.checkpoints.files import DATA_KINDS, MODEL_FOLDER_FILES, NAMESPACES, TENSOR_KINDS, File, describe, plain
from cocos.data.images import ImagesElsewhere

MISSING_MODEL = "an encoder: the architecture is not known; name a function that builds it, --model file.py:build"
MISSING_DATA = "training data that it encodes: --data DATA"
MISSING_SAMPLES = "samples and their encoder: class vectors alone are counted, each as a sample of its class"
# Kinds of data whose images are files next to a list of them.
IMAGE_KINDS = ("captions", "image_lists")


def inspect(path: Path | str, data: Path | str | None = None) -> dict:
    """Describe a file or folder as plain data, also if cocos cannot count it. No code in it is executed.

    Args:
        path: the file, a model folder, or the folder of a training run; `example` is the embedded checkpoint.
        data: file or folder of the training data.

    Returns:
        path, sha256, container, format and the reason, contents, tensors, the loss and settings of the training,
        missing parts, the `next` command, and `advice` if nothing can be counted; for a run, its checkpoints by step.

    Raises:
        InputError: the file cannot be read.
        UnsafeFile: the file requires code.
    """
    path = Path(path)
    file = File(EXAMPLE_FILE if path == EXAMPLE else path)
    with one_sentence(file.path, "is a damaged file"):
        format = formats.find(file)
        if format is None and file.kind in DATA_KINDS and (kind := training_data.sniff(file.path)):
            document = describe_data(file, kind)
        elif format is None and file.kind == "folder":
            document = describe_run(file)
        else:
            document = describe_checkpoint(file, format, path, data)
    return plain({"path": str(path), "container": file.kind} | document)


def describe_checkpoint(file: File, format: ModuleType | None, path: Path, data) -> dict:
    """Describe a file of a format, or the tensors and settings of any other file."""
    option = f" --data {shlex.quote(str(data)) if data else 'DATA'}"
    command = f"cocos count {shlex.quote(str(path))}"
    if format is None:
        advice = describe(file)  # raises UnsafeFile for a file that requires code
        if file.kind not in TENSOR_KINDS:
            raise InputError(advice)
        document = {"sha256": file.sha256, "format": file.kind, "why": None, "splits": [], "notes": []}
        document |= {"contents": listing.top_values(file), "encoder": False, "proxies": None}
        missing = [] if file.kind in {"npz", "npy"} else [MISSING_MODEL, MISSING_DATA]
        next_command = f"{command} --model file.py:build{option}" if missing else None
        if any((file.path.parent / name).is_file() for name in MODEL_FOLDER_FILES):
            next_command = f"cocos inspect {shlex.quote(str(file.path.parent))}"
        trained_with, parameters = None, {}
    else:
        checkpoint = format.load(file, data)
        if data is not None and checkpoint.encoder and checkpoint.training is None and checkpoint.embedder is None:
            checkpoint = replace(checkpoint, training=training_data.find(data))
        advice, missing = None, []
        if checkpoint.encoder is not None and checkpoint.training is None:
            missing.append(MISSING_DATA)
        elif checkpoint.encoder is None and checkpoint.proxies is not None:
            missing.append(MISSING_SAMPLES)
        trained_with, parameters = checkpoint.trained_with, checkpoint.recorded
        is_classifier = checkpoint.encoder is not None and checkpoint.proxies is not None
        loss = trained_with or ("normalized_softmax" if is_classifier else checkpoint.begin_with)
        next_command = f"{command}{option if data or MISSING_DATA in missing else ''} --loss {loss}"
        document = {
            "sha256": checkpoint.sha256,
            "format": checkpoint.format,
            "why": formats.describe(format),
            "splits": list(checkpoint.splits),
            "contents": checkpoint.contents,
            "notes": list(checkpoint.notes),
            "encoder": checkpoint.encoder is not None,
            "proxies": None if checkpoint.proxies is None else list(checkpoint.proxies.shape),
        }
    settings = model_card.read_folder(file.path) if file.kind == "folder" else recorded.read_file(file)
    hyper_parameters = {key: file.record.get(key) for key in recorded.SETTINGS_KEYS}
    return document | {
        "missing": missing,
        "advice": advice,
        "data": data and str(data),
        "trained_with": trained_with or settings.loss,
        "recorded": parameters or settings.parameters,
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
        "training": training_progress(file),
        "hyper_parameters": {
            key: value for key, value in hyper_parameters.items() if isinstance(value, (dict, *NAMESPACES))
        },
        "tensors": [tensor._asdict() | {"shape": list(tensor.shape)} for tensor in listing.list_tensors(file)],
        "next": next_command,
    }


def training_progress(file: File) -> dict:
    """Return how far a training was and its best score, from the file, Lightning's callbacks or the trainer."""
    progress = listing.top_values(file)
    callbacks = file.record.get("callbacks")
    for state in callbacks.values() if isinstance(callbacks, dict) else ():
        if isinstance(state, dict):
            keys = ("monitor", "best_model_score")
            progress |= {key: state[key] for key in keys if state.get(key) is not None}
    if file.kind == "folder":
        state = model_card.trainer_state(file.path)
        keys = ("epoch", "global_step", "best_metric", "best_model_checkpoint")
        progress |= {key: state[key] for key in keys if state.get(key) is not None}
    return progress


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
    return {"format": "run", "checkpoints": checkpoints, "notes": [], "next": command}


def describe_data(file: File, kind: str) -> dict:
    """Describe training data; if their images are elsewhere, the next command has the option for their folder."""
    source, option = training_data.find(file.path), ""
    contents, notes = {}, []
    if kind in IMAGE_KINDS:
        try:
            for split in source.splits if kind == "image_lists" else source.splits[:1]:
                rows = source.load(split)
                contents |= describe_split(rows)
                notes += rows.notes
        except ImagesElsewhere as error:
            contents, option = contents | {"images": str(error)}, " --images FOLDER"
    return {
        "format": kind,
        "splits": list(source.splits),
        "contents": contents,
        "notes": notes,
        "next": f"cocos encode {shlex.quote(str(file.path))}{option} --model MODEL --out embeddings.npz",
    }


def describe_split(rows: training_data.TrainingSet) -> dict[str, str]:
    """Return the name of the data set and the numbers of images, and of captions or classes, of a split."""
    images, candidate = len(rows.query), rows.candidate
    if candidate is not None and candidate.kind == "text":
        return {rows.split: f"{images:,} images, {len(candidate):,} captions"}
    classes = f"{len(rows.query.group.unique()):,} classes"
    if candidate is None:
        return {"data set": rows.name, rows.split: f"{images:,} images of {classes}"}
    return {"data set": rows.name, rows.split: f"{images:,} query and {len(candidate):,} gallery images of {classes}"}
