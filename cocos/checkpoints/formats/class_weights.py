"""Class weights or proxies in a file of any other architecture, found by their names."""

from cocos.checkpoints import Checkpoint, class_vectors, inventory
from cocos.checkpoints.class_vectors import ClassVectors
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import partial_fc
from cocos.checkpoints.state_dicts import StateDict, state_dicts

LAST = True


def _find(file: File) -> tuple[StateDict, ClassVectors] | None:
    """Find the state dict with class vectors, and these."""
    for each in state_dicts(file.content):
        if one := class_vectors.found(each.tensors):
            return each, one
    return None


def recognises(file: File) -> bool:
    """A matrix whose name is that of proxies or class weights, wherever the file keeps a state dict."""
    return not partial_fc.recognises(file) and _find(file) is not None


def read(file: File, data=None) -> Checkpoint:
    """Read the class vectors; the rest of the file is of an architecture that cocos does not know."""
    state, one = _find(file)
    about = {"found": state.origin, "other tensors": len(state.tensors) - 1} | inventory.values(file)
    return class_vectors.checkpoint(file, data, one, format="class_weights", contents=about)
