"""Speaker encoders of the generalised end-to-end loss (GE2E), with the scale and bias that were learned with them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_sequence

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import _networks

# The similarity of the loss is `similarity_weight` times the cosine plus `similarity_bias`.
LOSS_NUMBERS = {"similarity_weight": "scale", "similarity_bias": "bias"}


class SpeakerEncoder(nn.Module):
    """An LSTM over mel frames, a linear layer, a unit vector; the numbers of the similarity are not read.

    A frame has 40 mel channels, of windows of 25 ms every 10 ms of sound at 16 kHz.

    Source: Wan et al. 2018, Generalized end-to-end loss for speaker verification, arXiv:1710.10467; names and sizes
    follow the public re-implementation by Jemine (Resemblyzer), which adds the ReLU.
    """

    kinds = ("speech", "features")
    name = "GE2E"

    def __init__(self, *, channels: int = 40, hidden: int = 256, num_layers: int = 3, dimensions: int = 256):
        super().__init__()
        self.lstm = nn.LSTM(channels, hidden, num_layers, batch_first=True)
        self.linear = nn.Linear(hidden, dimensions)
        self.similarity_weight, self.similarity_bias = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))

    def encode(self, items: Sequence[Any], kind: str, side: str) -> Tensor:
        """Encode recordings of (frames, channels) each to unit vectors without negative numbers, (n, dimensions)."""
        width = self.lstm.input_size
        recordings = [torch.as_tensor(each).to(self.linear.weight) for each in items]
        for each in recordings:
            if each.ndim != 2 or each.shape[1] != width or not len(each):
                raise InputError(f"recording {tuple(each.shape)}: expected (frames, {width}) mel energies")
        return self(recordings)

    def forward(self, recordings: Sequence[Tensor]) -> Tensor:
        """Encode n recordings, (frames, channels) each, to (n, dimensions): the state after the last frame."""
        _, (state, _) = self.lstm(pack_sequence(list(recordings), enforce_sorted=False))
        return normalize(self.linear(state[-1]).relu(), dim=1, eps=0.0)


build = SpeakerEncoder


def arguments(state: Mapping[str, Tensor]) -> dict[str, Any] | None:
    """Read the sizes of a speaker encoder off its weights; None unless it has the layers of one."""
    first, last = state.get("lstm.weight_ih_l0"), state.get("linear.weight")
    if first is None or last is None or first.ndim != 2 or last.ndim != 2:
        return None
    layers = sum(key.startswith("lstm.weight_ih_l") for key in state)
    return {"channels": first.shape[1], "hidden": last.shape[1], "num_layers": layers, "dimensions": last.shape[0]}


def describe(arguments: dict[str, Any]) -> str:
    """Name a network in the words of its field."""
    return f"LSTM of {arguments['num_layers']} layers over {arguments['channels']} mel channels"


def recognises(file: File) -> bool:
    """An LSTM, a linear layer, and a weight and a bias of the similarity."""
    return _networks.find(file, "ge2e") is not None


def read(file: File, data=None) -> Checkpoint:
    """Read a speaker encoder; the scale is recorded for the softmax losses, in which the bias cancels.

    Its data are recordings of (frames, mel channels) each, with speakers as labels.
    """
    found = _networks.find(file, "ge2e")
    scale, bias = (float(found.state[f"similarity_{name}"]) for name in ("weight", "bias"))
    recorded = {}
    if scale > 0:
        recorded = {"normalized_softmax": {"scale": scale}} | {
            name: {"temperature": 1 / scale} for name in ("ntxent", "supcon")
        }
    return _networks.checkpoint(
        file,
        found,
        format="ge2e",
        contents={"similarity": f"{scale:.6g} cosine {bias:+.6g}, both learned"},
        recorded=recorded,
        trained_with=None,
    )
