"""cocos's own checkpoint, the embedded example: a torch file of plain data and tensors.

{"cocos": {"schema": 1, "encoder": {"name", "arguments"}, "loss": {"name", "parameters"},
           "data": {"name", "arguments"}, "training": {...}},  "state": {name: tensor}}
"""

from pathlib import Path
from typing import Any

from torch import nn

from cocos import data as training_data
from cocos import losses
from cocos.base.errors import InputError
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File, plain
from cocos.checkpoints.formats.networks import fill
from cocos.checkpoints.formats.small_towers import SmallTowers
from cocos.checkpoints.recorded import Recorded


def sniff(file: File) -> bool:
    """Recognise a torch file with a `cocos` record."""
    return "cocos" in file.record


def load(file: File, data: Any = None) -> Checkpoint:
    """Read a checkpoint with its built-in loss and its data, both given by name."""
    record, state = plain(file.record["cocos"]), file.record.get("state")
    try:
        encoder, arguments = record["encoder"]["name"], record["encoder"]["arguments"]
        loss, parameters = record["loss"]["name"], record["loss"]["parameters"]
        kind, options = record["data"]["name"], record["data"]["arguments"]
    except (KeyError, TypeError):
        raise InputError(f"{file.path}: its cocos record lacks the encoder, loss or data") from None
    if encoder != "small_towers" or not isinstance(state, dict):
        raise InputError(f"{file.path}: encoder {encoder!r}, expected small_towers with its state dict")
    losses.load(losses.find_file(loss), parameters)

    def build() -> nn.Module:
        try:
            return fill(SmallTowers(**arguments), state)
        except (TypeError, RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0][:100]
            raise InputError(f"{file.path}: {encoder} cannot be built from {arguments}: {reason}") from None

    if data is None:
        training = training_data.source(kind, **options)
    else:  # of the recorded kind unless another is recognised
        training = training_data.source(training_data.sniff(Path(data)) or kind, Path(data))
    settings = Recorded(loss, {loss: parameters})
    return Checkpoint(file.path, file.sha256, "native", record, encoder=build, training=training, settings=settings)
