"""Common parts of static tables in folders of sentence-transformers and of model2vec."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cocos.base.errors import InputError
from cocos.checkpoints import encoders
from cocos.checkpoints.files import Folder, weights
from cocos.checkpoints.formats import _text_folder

__all__ = ["TABLES", "table"]

TABLES = ("embeddings", "embedding.weight")  # names of the vectors: of model2vec, of sentence-transformers


def table(folder: Folder, within: str = "", **settings: Any) -> tuple[Callable[[], nn.Module], dict[str, Any]]:
    """Read a static table: a function that builds its encoder, and what it is.

    The vector of a token is `embeddings[mapping[token]] * weights[token]`; a file may lack `mapping` and `weights`.
    Vectors of whole numbers are multiplied by `scale` where the file has one.

    Args:
        folder: with the table and a tokenizer.
        within: folder inside of it.
        **settings: of the encoder.
    """
    state, where = weights(folder, within) or {}, folder.path / within
    vectors = next((state[name] for name in TABLES if name in state), None)
    if vectors is None or vectors.ndim != 2:
        raise InputError(f"{where} has no table of vectors, {' or '.join(TABLES)}; copy model.safetensors too")
    mapping, each = state.get("mapping"), state.get("weights")
    tokens = len(vectors) if mapping is None else len(mapping)
    _check(where, vectors, mapping, each, tokens)
    scale = state.get("scale", torch.ones(1)).float()
    found = {"table": vectors.float() * (scale[:, None] if scale.ndim == 1 and len(scale) > 1 else scale)}
    found |= {} if mapping is None else {"row": mapping.to(torch.int64)}
    found |= {} if each is None else {"weight": each.float()}
    files = _text_folder.tokenizer_files(folder, within)
    arguments = {"rows": vectors.shape[0], "width": vectors.shape[1], "files": files, **settings}
    arguments |= {"tokens": None if mapping is None else tokens, "weighted": each is not None}
    contents = {
        "text tower": f"static table, {tokens} tokens, {len(vectors)} vectors of {vectors.shape[1]} numbers, "
        f"{str(vectors.dtype).removeprefix('torch.')}",
    }

    def encoder() -> nn.Module:
        return encoders.freeze(encoders.build("static_table", arguments), found)

    return encoder, contents


def _check(where, vectors: Tensor, mapping: Tensor | None, each: Tensor | None, tokens: int) -> None:
    """Refuse tensors that do not fit each other."""
    rows = torch.empty(0) if mapping is None else mapping
    if (
        rows.ndim != 1
        or (mapping is not None and rows.is_floating_point())
        or ((rows < 0) | (rows >= len(vectors))).any()
    ):
        raise InputError(f"{where}: mapping points to rows outside of the table of {len(vectors)} vectors")
    if each is not None and each.shape != (tokens,):
        raise InputError(f"{where}: weights {tuple(each.shape)}, expected one for each of {tokens} tokens")
