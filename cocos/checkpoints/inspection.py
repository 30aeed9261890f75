"""The document of `cocos inspect`: the contents and records of a file, a folder or a training run, as plain data."""

import dataclasses
import shlex
from pathlib import Path
from types import ModuleType

from cocos import data as training_data
from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints import formats, recorded, runs
from cocos.checkpoints.arrays import npz_headers
from cocos.checkpoints.checkpoint import EXAMPLE, EXAMPLE_FILE, Checkpoint
from cocos.checkpoints.files import DATA_KINDS, TENSOR_KINDS, File, describe, plain, walk, weight_files
from cocos.data import tables


def inspect(path: Path | str, data: Path | str | None = None) -> dict:
    """Describe a checkpoint, a model folder, data or the folder of a run as plain data. No code in it is executed.

    Raises:
        InputError: the file cannot be read; `UnsafeFile`: it requires code.
    """
    path = Path(path)
    file = File(EXAMPLE_FILE if path == EXAMPLE else path)
    with tables.readable(file.path):
        module = formats.find(file)
        if module is None and file.kind in DATA_KINDS and (kind := training_data.sniff(file.path)):
            command = f"cocos encode {shlex.quote(str(path))} --model MODEL --out embeddings.npz"
            document = {"format": kind, "splits": list(training_data.find(file.path).splits)}
            document |= {"contents": {}, "notes": [], "next": command}
        elif module is None and file.kind == "folder":
            document = describe_run(file)
        else:
            document = describe_checkpoint(file, module, path, data)
    return plain({"path": str(path), "container": file.kind} | document)


def describe_checkpoint(file: File, module: ModuleType | None, path: Path, data) -> dict:
    """Describe a file of a format, or the tensors and settings of any other file."""
    top_values: dict = {str(key): item for key, item in file.record.items() if isinstance(item, int | float | str)}
    option = f" --data {shlex.quote(str(data)) if data else 'DATA'}"
    command, advice = f"cocos count {shlex.quote(str(path))}", None
    settings = recorded.read_file(file)
    if module is None:
        advice = describe(file)  # raises UnsafeFile for a file that requires code
        if file.kind not in TENSOR_KINDS:
            raise InputError(advice)
        checkpoint = Checkpoint(path, file.sha256, file.kind, top_values, settings=settings)
        command = None if file.kind in {"npz", "npy"} else f"{command} --model file.py:build{option}"
    else:
        checkpoint = module.load(file, data)
        needs_data = checkpoint.encoder is not None and checkpoint.training is None
        option = option if data or needs_data else ""
        command = f"{command}{option} --loss {checkpoint.settings.loss or checkpoint.first_loss}"
    hyper_parameters = {key: value for key, value in file.record.items() if key in recorded.SETTINGS_KEYS}
    return {
        "sha256": checkpoint.sha256,
        "format": checkpoint.format,
        "splits": list(checkpoint.splits),
        "contents": checkpoint.contents,
        "notes": list(checkpoint.notes),
        "encoder": checkpoint.encoder is not None,
        "proxies": None if checkpoint.proxies is None else list(checkpoint.proxies.shape),
        "advice": advice,
        "data": data and str(data),
        "trained_with": checkpoint.settings.loss,
        "recorded": checkpoint.settings.parameters,
        "loss_settings": [dataclasses.asdict(candidate) for candidate in settings.candidates],
        "training": top_values,
        "hyper_parameters": hyper_parameters,
        "tensors": list_tensors(file),
        "next": command,
    }


def list_tensors(file: File) -> list[dict]:
    """List name, shape and dtype of the model tensors or npz arrays in a file, without the state of the training."""
    content = npz_headers(file.path) if file.kind == "npz" else file.content
    if file.kind == "folder":
        content = {name: file.file(name).content for name in weight_files(file)}
    return [
        {"name": ".".join(keys), "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
        for keys, tensor, _ in walk(content)
        if hasattr(tensor, "shape")
    ]


def describe_run(folder: File) -> dict:
    """Describe the checkpoints of a training run: name, step, and format or the reason of a refusal."""
    checkpoints = []
    for path, step in runs.list_checkpoints(folder.path).items():
        entry = {"name": path.relative_to(folder.path).as_posix(), "step": step, "format": None, "advice": None}
        try:
            module = formats.find(File(path))
            entry |= {"format": module and module.__name__.rpartition(".")[2], "container": File(path).kind}
        except InputError as error:
            entry |= {"container": "refused" if isinstance(error, UnsafeFile) else "unreadable", "advice": str(error)}
        checkpoints.append(entry)
    readable = [entry["name"] for entry in checkpoints if entry["format"]] or [checkpoints[-1]["name"]]
    command = f"cocos inspect {shlex.quote(str(folder.path / readable[-1]))}"
    return {"format": "run", "checkpoints": checkpoints, "notes": [], "next": command}
