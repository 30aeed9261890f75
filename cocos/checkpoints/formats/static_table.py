"""Static embedding tables as model2vec and tokenlearn save them: a table, a tokenizer, and a configuration."""

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import File, Folder
from cocos.checkpoints.formats import _table

__all__ = ["read", "recognises"]

LIBRARIES = ("tokenizers",)

LONGEST = 512  # tokens that model2vec cuts a text to, unless it is told otherwise


def recognises(file: File | Folder) -> bool:
    """A folder with a table and a tokenizer, and without modules or a type of model."""
    if file.kind != "folder" or "modules.json" in file or "tokenizer.json" not in file:
        return False
    config = file.json("config.json") if "config.json" in file else {}
    if not isinstance(config, dict) or config.get("model_type") not in {None, "model2vec"}:
        return False
    return "model.safetensors" in file and any(name in file.file("model.safetensors").content for name in _table.TABLES)


def read(file: Folder, data=None) -> Checkpoint:
    """Read a static table: unknown words are left out, and texts are cut to 512 tokens, as model2vec does.

    Args:
        file: the folder.
        data: training data, found by the caller.

    Raises:
        InputError: tensors that are missing, or do not fit each other.
    """
    config = file.json("config.json") if "config.json" in file else {}
    longest = config.get("seq_length", LONGEST)
    if not isinstance(longest, int) or longest < 1:
        raise InputError(f"{file.path / 'config.json'}: seq_length {longest!r}, expected a whole number above 0")
    unit = bool(config.get("normalize"))
    encoder, contents = _table.table(file, known_alone=True, longest=longest, unit=unit)
    return Checkpoint(
        path=file.path,
        sha256=file.sha256,
        format="static_table",
        contents=contents | {"vectors of texts": "of length 1" if unit else "not normalised", "config": config},
        encoder=encoder,
        settings="",
        notes=(f"{file.path} records no loss: NT-Xent is counted unless another is named",),
    )
