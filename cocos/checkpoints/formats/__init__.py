"""The formats of checkpoints: each a module with `sniff(file) -> bool` and `load(file, data) -> Checkpoint`.

To add one, write a module and put its name into `FORMATS`.
"""

from types import ModuleType

from cocos.checkpoints.files import File
from cocos.checkpoints.formats import (
    class_vectors,
    embeddings,
    huggingface,
    iresnet,
    native,
    open_clip,
    scores,
    shards,
    timm,
    vector_tables,
    vsepp,
    warpnet,
)

# The first format that recognises a file reads it: special formats first, class vectors in any file last.
FORMATS = (native, vsepp, warpnet, iresnet, embeddings, scores, huggingface, timm, open_clip, shards)
FORMATS += (vector_tables, class_vectors)


def find(file: File) -> ModuleType | None:
    """Return the format of a file, or None."""
    return next((module for module in FORMATS if module.sniff(file)), None)
