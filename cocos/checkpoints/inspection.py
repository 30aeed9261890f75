"""The document of `cocos inspect`: the contents and records of a file, a folder or a training run, as plain data."""

import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from cocos import data as training_data
from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints import formats, model_card, recorded, runs
from cocos.checkpoints.arrays import npz_headers
from cocos.checkpoints.checkpoint import EXAMPLE, EXAMPLE_FILE, Checkpoint, one_sentence
from cocos.checkpoints.files import DATA_KINDS, MODEL_FOLDER_FILES, NAMESPACES, TENSOR_KINDS, File, describe, plain
from cocos.checkpoints.state_dicts import is_training_state, weight_files
from cocos.data.images import ImagesElsewhere

MISSING_MODEL = "an encoder: the architecture is not known; name a function that builds it, --model file.py:build"
MISSING_DATA = "training data that it encodes: --data DATA"
MISSING_SAMPLES = "samples and their encoder: class vectors alone are counted, each as a sample of its class"
# Kinds of data whose images are files next to a list of them.
IMAGE_KINDS = ("captions", "image_lists")
MAX_DEPTH = 8  # nested containers that are read


def inspect(path: Path | str, data: Path | str | None = None) -> dict:
    """Describe a file or folder as plain data, also if cocos cannot count it. No code in it is executed.

    Args:
        path: the file, a model folder, or the folder of a training run; `example` is the embedded checkpoint.
        data: file or folder of the training data.

    Returns:
        path, sha256, container, format, contents, tensors, the loss and settings of the training, missing parts, the
        `next` command, and `advice` if nothing can be counted; for a run, its checkpoints by step.

    Raises:
        InputError: the file cannot be read.
        UnsafeFile: the file requires code.
    """
    path = Path(path)
    file = File(EXAMPLE_FILE if path == EXAMPLE else path)
    with one_sentence(file.path, "is a damaged file"):
        module = formats.find(file)
        if module is None and file.kind in DATA_KINDS and (kind := training_data.sniff(file.path)):
            document = describe_data(file, kind)
        elif module is None and file.kind == "folder":
            document = describe_run(file)
        else:
            document = describe_checkpoint(file, module, path, data)
    return plain({"path": str(path), "container": file.kind} | document)


def describe_checkpoint(file: File, module: ModuleType | None, path: Path, data) -> dict:
    """Describe a file of a format, or the tensors and settings of any other file."""
    option = f" --data {shlex.quote(str(data)) if data else 'DATA'}"
    command, missing, advice = f"cocos count {shlex.quote(str(path))}", [], None
    candidates = recorded.read_file(file).candidates
    if module is None:
        advice = describe(file)  # raises UnsafeFile for a file that requires code
        if file.kind not in TENSOR_KINDS:
            raise InputError(advice)
        checkpoint = Checkpoint(path, file.sha256, file.kind, top_values(file), settings=recorded.read_file(file))
        missing = [] if file.kind in {"npz", "npy"} else [MISSING_MODEL, MISSING_DATA]
        command = f"{command} --model file.py:build{option}" if missing else None
        if any((file.path.parent / name).is_file() for name in MODEL_FOLDER_FILES):
            command = f"cocos inspect {shlex.quote(str(file.path.parent))}"
    else:
        checkpoint = module.load(file, data)
        if checkpoint.encoder is not None and checkpoint.training is None:
            missing = [MISSING_DATA]
        elif checkpoint.encoder is None and checkpoint.proxies is not None:
            missing = [MISSING_SAMPLES]
        option = option if data or missing == [MISSING_DATA] else ""
        command = f"{command}{option} --loss {checkpoint.settings.loss or checkpoint.first_loss}"
    hyper_parameters = {key: file.record.get(key) for key in recorded.SETTINGS_KEYS}
    state = model_card.trainer_state(file.path) if file.kind == "folder" else {}
    return {
        "sha256": checkpoint.sha256,
        "format": checkpoint.format,
        "splits": list(checkpoint.splits),
        "contents": checkpoint.contents,
        "notes": list(checkpoint.notes),
        "encoder": checkpoint.encoder is not None,
        "proxies": None if checkpoint.proxies is None else list(checkpoint.proxies.shape),
        "missing": missing,
        "advice": advice,
        "data": data and str(data),
        "trained_with": checkpoint.settings.loss,
        "recorded": checkpoint.settings.parameters,
        "loss_settings": [dataclasses.asdict(candidate) for candidate in candidates],
        "training": top_values(file) | {key: state[key] for key in ("epoch", "global_step") if key in state},
        "hyper_parameters": {
            key: value for key, value in hyper_parameters.items() if isinstance(value, (dict, *NAMESPACES))
        },
        "tensors": list_tensors(file),
        "next": command,
    }


def list_tensors(file: File) -> list[dict]:
    """List name, shape and dtype of the model tensors or npz arrays in a file, without the state of the training."""
    names = weight_files(file) if file.kind == "folder" else []
    arrays = npz_headers(file.path) if file.kind == "npz" else file.content
    roots = [(name.rpartition("/")[0], file.file(name).content) for name in names] or [("", arrays)]
    return [
        {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
        for prefix, content in roots
        for name, tensor in walk(content, prefix)
    ]


def walk(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the tensors in nested containers with the keys that lead to them."""
    if hasattr(value, "shape"):
        yield prefix, value
    elif depth < MAX_DEPTH and isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if depth or not is_training_state(key):
                yield from walk(item, f"{prefix}.{key}" if prefix else str(key), depth + 1)


def top_values(file: File) -> dict:
    """Return the numbers and text at the top level of a torch file, such as `epoch`."""
    return {str(key): item for key, item in file.record.items() if isinstance(item, bool | int | float | str)}


def describe_run(folder: File) -> dict:
    """Describe the checkpoints of a training run: name, step, and format or the reason of a refusal."""
    checkpoints = []
    for path, step in runs.list_checkpoints(folder.path).items():
        entry = {"name": path.relative_to(folder.path).as_posix(), "step": step, "format": None, "advice": None}
        try:
            file = File(path)
            entry |= {"format": formats.name_of(formats.find(file)), "container": file.kind}
        except InputError as error:
            entry |= {"container": "refused" if isinstance(error, UnsafeFile) else "unreadable", "advice": str(error)}
        checkpoints.append(entry)
    readable = [entry["name"] for entry in checkpoints if entry["format"]] or [checkpoints[-1]["name"]]
    command = f"cocos inspect {shlex.quote(str(folder.path / readable[-1]))}"
    if len(checkpoints) > 1 and {entry["format"] for entry in checkpoints} == {"embeddings"}:
        command = f"cocos run {shlex.quote(str(folder.path))}"
    return {"format": "run", "checkpoints": checkpoints, "notes": [], "next": command}


def describe_data(file: File, kind: str) -> dict:
    """Describe training data; if their images are elsewhere, the next command has the option for their folder."""
    source, option = training_data.find(file.path), ""
    contents, notes = {}, []
    try:
        for split in source.splits if kind in IMAGE_KINDS else ():
            rows = source.load(split)
            texts = [f"{len(rows.query):,} images"]
            texts += [] if rows.candidate is None else [f"{len(rows.candidate):,} {rows.candidate.kind}s"]
            contents |= {"data set": rows.name, split: ", ".join(texts)}
            notes += rows.notes
    except ImagesElsewhere as error:
        contents, option = contents | {"images": str(error)}, " --images FOLDER"
    command = f"cocos encode {shlex.quote(str(file.path))}{option} --model MODEL --out embeddings.npz"
    return {"format": kind, "splits": list(source.splits), "contents": contents, "notes": notes, "next": command}
