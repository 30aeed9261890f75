"""cocos's own checkpoint: a torch file of plain data and tensors that says how to use it.

{"cocos": {"schema": 1, "encoder": {"name", "arguments"}, "loss": {"name", "parameters"},
           "data": {"name", "arguments"}, "training": {...}},  "state": {name: tensor}}
"""

import io
from pathlib import Path

import torch
from torch import Tensor, nn

from cocos import data as shelf
from cocos import losses
from cocos.base import writing
from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint, encoders
from cocos.checkpoints.files import File, plain

SCHEMA = 1


def recognises(file: File) -> bool:
    """A torch file with a `cocos` record."""
    return "cocos" in file.record


def _record(file: File) -> dict:
    record = plain(file.record["cocos"])
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        found = record.get("schema") if isinstance(record, dict) else type(record).__name__
        raise InputError(f"{file.path}: cocos record of schema {found!r}, this version reads schema {SCHEMA}")
    shape = {"encoder": "arguments", "loss": "parameters", "data": "arguments"}
    for name, inner in shape.items():
        part = record.get(name)
        if not isinstance(part, dict) or not isinstance(part.get("name"), str) or not isinstance(part.get(inner), dict):
            raise InputError(f"{file.path}: the cocos record has no {name} with a name and {inner}")
    state = file.record.get("state")
    named = isinstance(state, dict) and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in state.items())
    if not named:
        raise InputError(f"{file.path}: no state dict under 'state', which names tensors")
    return record


def read(file: File, data=None) -> Checkpoint:
    """Build the frozen encoder that the file names, and find its data; all names are of the shelves."""
    record, state = _record(file), file.record["state"]
    name = record["encoder"]["name"]
    encoders.load(name)  # imports it, which must not happen on the meta device
    with encoders.without_memory():  # the file's sizes: nothing is allocated before they fit its weights
        model = encoders.build(name, record["encoder"]["arguments"])
    model = encoders.freeze(model, state)
    name, parameters = record["loss"]["name"], record["loss"]["parameters"]
    losses.load(losses.find_file(name), parameters)  # of the shelf: a file never names code

    return Checkpoint.of(
        file,
        "native",
        {key: value for key, value in record.items() if key != "schema"}
        | {"parameters": sum(p.numel() for p in model.parameters())},
        encoder=lambda: model,
        settings="",
        training=_training(file.path, record["data"]["name"], record["data"]["arguments"], data),
        recorded={name: parameters},
        trained_with=name,
    )


def _training(path: Path, name: str, arguments: dict, data) -> shelf.Source:
    """Data given, of the recorded kind unless another recognises them; or those that a checkpoint records."""
    if data is not None and shelf.sniff(Path(data)) is not None:
        return shelf.find(data)
    try:
        return shelf.source(name, **arguments) if data is None else shelf.source(name, Path(data))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def write(
    path, model: nn.Module, *, encoder: tuple[str, dict], loss: tuple[str, dict], data: tuple[str, dict], training: dict
) -> Path:
    """Write a self-contained checkpoint.

    Args:
        path: of the file; written under a temporary name first.
        model: an encoder of the shelf.
        encoder: its name and arguments.
        loss: name and parameters of the loss that it was trained with.
        data: name and arguments of its training data.
        training: epoch, seed and whatever else is worth keeping; plain data.
    """
    path = Path(path)
    record = {
        "schema": SCHEMA,
        "encoder": {"name": encoder[0], "arguments": encoder[1]},
        "loss": {"name": loss[0], "parameters": loss[1]},
        "data": {"name": data[0], "arguments": data[1]},
        "training": training,
    }
    state = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
    stream = io.BytesIO()  # given a path, torch.save writes its name into the archive: equal weights, other bytes
    torch.save({"cocos": record, "state": state}, stream)
    return writing.write(path, stream.getvalue(), "checkpoint")
