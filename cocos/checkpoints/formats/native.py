"""cocos's own checkpoint: a torch file of plain data and tensors.

{"cocos": {"schema": 1, "encoder": {"name", "arguments"}, "loss": {"name", "parameters"},
           "data": {"name", "arguments"}, "training": {...}},  "state": {name: tensor}}
"""

import io
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cocos import data as training_data
from cocos import losses
from cocos.base import writing
from cocos.base.errors import InputError
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File, plain
from cocos.checkpoints.formats.networks import fill
from cocos.checkpoints.formats.small_towers import SmallTowers

SCHEMA = 1
ENCODER = "small_towers"


def sniff(file: File) -> bool:
    """Recognise a torch file with a `cocos` record."""
    return "cocos" in file.record


def load(file: File, data: Any = None) -> Checkpoint:
    """Read a checkpoint with its built-in loss and its data, both given by name."""
    record, state = plain(file.record["cocos"]), file.record.get("state")
    try:
        if record["schema"] != SCHEMA:
            raise InputError(f"{file.path}: cocos record of schema {record['schema']!r}, expected {SCHEMA}")
        encoder, arguments = record["encoder"]["name"], record["encoder"]["arguments"]
        loss, parameters = record["loss"]["name"], record["loss"]["parameters"]
        source = record["data"]["name"], record["data"]["arguments"]
    except (KeyError, TypeError):
        raise InputError(f"{file.path}: its cocos record lacks the schema, encoder, loss or data") from None
    if encoder != ENCODER or not isinstance(state, dict):
        raise InputError(f"{file.path}: encoder {encoder!r}, expected {ENCODER} with its state dict")
    losses.load(losses.find_file(loss), parameters)

    def build() -> nn.Module:
        try:
            return fill(SmallTowers(**arguments), state)
        except (TypeError, RuntimeError) as error:
            reason = str(error).partition("\n")[0][:100]
            raise InputError(f"{file.path}: {encoder} cannot be built from {arguments}: {reason}") from None

    return Checkpoint.of(
        file,
        "native",
        {key: value for key, value in record.items() if key != "schema"},
        encoder=build,
        training=find_data(source[0], source[1], data),
        recorded={loss: parameters},
        trained_with=loss,
    )


def find_data(name: str, arguments: dict, data: Any) -> training_data.Source:
    """Return the source of `--data`, of the recorded kind unless another is recognised; or the recorded data."""
    if data is None:
        return training_data.source(name, **arguments)
    if training_data.sniff(Path(data)) is not None:
        return training_data.find(data)
    return training_data.source(name, Path(data))


def write(
    path, model: nn.Module, *, encoder: tuple[str, dict], loss: tuple[str, dict], data: tuple[str, dict], training: dict
) -> Path:
    """Write a self-contained checkpoint.

    Args:
        path: of the file.
        model: `SmallTowers`.
        encoder: its name and arguments.
        loss: name and parameters of the loss that it was trained with.
        data: name and arguments of its training data.
        training: epoch, seed and other plain data.
    """
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
    return writing.write(Path(path), stream.getvalue(), "checkpoint")
