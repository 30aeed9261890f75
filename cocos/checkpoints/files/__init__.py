"""Safe reading: decide what a file is by its content, and load that content without running any of it."""

from cocos.checkpoints.files.advice import EMBED_INSTEAD, describe
from cocos.checkpoints.files.file import File
from cocos.checkpoints.files.folder import Folder, file_or_folder
from cocos.checkpoints.files.states import StateDict, state_dicts, weight_files, weights, whole_state_dicts
from cocos.checkpoints.files.values import NAMESPACES, plain

__all__ = [
    "EMBED_INSTEAD",
    "NAMESPACES",
    "File",
    "Folder",
    "StateDict",
    "describe",
    "file_or_folder",
    "plain",
    "state_dicts",
    "weight_files",
    "weights",
    "whole_state_dicts",
]
