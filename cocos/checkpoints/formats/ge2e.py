"""Speaker encoders of the generalised end-to-end loss (GE2E), with the scale and bias that were learned with them."""

from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import _networks

__all__ = ["read", "recognises"]


def recognises(file: File) -> bool:
    """An LSTM, a linear layer, and a weight and a bias of the similarity."""
    return _networks.find(file, "ge2e") is not None


def read(file: File, data=None) -> Checkpoint:
    """Read a speaker encoder; the scale is recorded for the softmax losses, in which the bias cancels.

    Args:
        file: the file.
        data: recordings of (frames, mel channels) each, with speakers as labels.
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
