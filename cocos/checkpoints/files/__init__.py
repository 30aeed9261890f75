"""Safe reading: decide what a file is by its content, and load that content without running any of it."""

from cocos.checkpoints.files.advice import EMBED_INSTEAD, describe
from cocos.checkpoints.files.file import File
from cocos.checkpoints.files.known_values import NAMESPACES, plain

__all__ = ["EMBED_INSTEAD", "NAMESPACES", "File", "describe", "plain"]
