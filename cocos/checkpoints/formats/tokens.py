"""Token vectors of late interaction: arrays with lengths in .npz, .safetensors or a torch file, or parquet of lists.

The arrays have the names of the fields of `cocos.Tokens`. In parquet `query_tokens` and `candidate_tokens` are lists of
lists of numbers, a token each; row i of both is a pair unless there are groups, and null is no row.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base import reading
from cocos.base.errors import InputError, nearest
from cocos.checkpoints import Checkpoint, tables
from cocos.checkpoints.checkpoint import holding
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import embeddings
from cocos.checkpoints.formats.scores import ListedNames
from cocos.embeddings.tokens import Tokens

SIDES = ("query", "candidate")
MATRICES = ("query_tokens", "candidate_tokens")
ARRAYS = (*MATRICES, "query_lengths", "candidate_lengths", *embeddings.GROUP_ARRAYS, "negatives")
SETTINGS = ("scoring", "top", "impute")
KNOWN = (*ARRAYS, *SETTINGS, *embeddings.NAME_ARRAYS)


def recognises(file: File) -> bool:
    """Arrays, or columns of parquet, with the tokens of a side."""
    if file.kind == "npz" or isinstance(file.content, dict):
        return bool(set(MATRICES) & set(embeddings.names_in(file)))
    return file.kind == "unknown" and bool(set(MATRICES) & set(_columns(file)))


def _columns(file: File) -> tuple[str, ...]:
    """Names of the columns of parquet; none of any other file."""
    with file.stream() as stream:
        return tables.read(file.path).names if stream.read(4) == b"PAR1" else ()


def read(file: File, data=None) -> Checkpoint:
    """Read tokens of two sides."""
    if data is not None:
        raise InputError(f"data {data}: {file.path} holds tokens already and needs no data")
    held = file.kind == "npz" or isinstance(file.content, dict)
    names = embeddings.names_in(file) if held else _columns(file)
    for name in names:
        if name not in KNOWN:
            raise InputError(f"{file.path}: {nearest('array', str(name)[:40], KNOWN)}")
    if missing := [name for name in MATRICES if name not in names]:
        raise InputError(f"{file.path} has no array {missing[0]!r}: tokens of both sides make a score")
    arrays = _arrays(file, names) if held else _lists(file, names)
    arrays |= {name: file.metadata[name] for name in SETTINGS if name in file.metadata and name not in arrays}
    try:
        found = _tokens(file, arrays)
    except InputError as error:
        raise error if str(file.path) in str(error) else type(error)(f"{file.path}: {error}") from None

    contents = {
        f"{side} rows": f"{len(own)}, {int(own.min())} to {int(own.max())} tokens" for side, own in _sides(found)
    }
    return Checkpoint.of(
        file,
        "tokens",
        contents | {"dimensions": found.query_tokens.shape[1], "scoring": found.scoring},
        embedder=holding(file.path, "tokens", lambda: found),
        rows=lambda _: found.names and ListedNames(*found.names),
        begin_with="ntxent",
    )


def _sides(found: Tokens) -> tuple[tuple[str, Tensor], ...]:
    """Name of each side, and the lengths of its rows."""
    return ("query", found.query_lengths), ("candidate", found.candidate_lengths)


def _arrays(file: File, names: list[str]) -> dict[str, Any]:
    found = embeddings.arrays_of(file, names)
    return {name: each if name in SETTINGS else embeddings.tensor(file, name, each) for name, each in found.items()}


def _lists(file: File, names: tuple[str, ...]) -> dict[str, Any]:
    """The columns of a parquet file; tokens as they lie in it, without a Python object for each number."""
    path = file.path
    arrow, compute = tables.pyarrow(str(path), "pyarrow"), tables.pyarrow(str(path), "pyarrow.compute")
    parquet = tables.pyarrow(str(path), "pyarrow.parquet")

    def side_of(table: Any, side: str, name: str) -> dict[str, Any]:
        there = table.column(name).is_valid()
        rows = table.column(name).filter(there).combine_chunks()
        tokens = compute.list_flatten(rows)
        widths = np.unique(compute.list_value_length(tokens).to_numpy(zero_copy_only=False))
        if len(widths) != 1:
            raise InputError(f"{file.path}, {name}: tokens of {len(widths)} widths, expected lists of one length")
        flat = compute.list_flatten(tokens).to_numpy(zero_copy_only=False)
        lengths = compute.list_value_length(rows).to_numpy(zero_copy_only=False).astype("int64")
        beside = [each for each in (f"{side}_group", f"{side}_name") if each in names]
        return {
            name: torch.from_numpy(np.array(flat)).view(-1, int(widths[0])),
            f"{side}_lengths": torch.from_numpy(lengths),
        } | {each: np.array(table.column(each).filter(there).to_pylist()) for each in beside}

    try:
        table = parquet.ParquetFile(reading.regular(path)).read(list(names))
        made = [side_of(table, side, name) for side, name in zip(SIDES, MATRICES, strict=True)]
    except (arrow.ArrowException, OSError, ValueError, NotImplementedError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{file.path}: no lists of lists of numbers in {' or '.join(MATRICES)} ({tables.reason(error)}); expected "
            "a list of tokens in each row, and a list of numbers for each token"
        ) from None
    return made[0] | made[1]


def _tokens(file: File, arrays: dict[str, Any]) -> Tokens:
    given = {name: arrays[name] for name in ARRAYS if name in arrays}
    if any(name in arrays for name in embeddings.NAME_ARRAYS):
        given["names"] = tuple(arrays.get(name) for name in embeddings.NAME_ARRAYS)
    for name in SETTINGS:
        if name in arrays:
            given[name] = _setting(file, name, arrays[name])
    return Tokens(**given)


def _setting(file: File, name: str, value: Any) -> Any:
    """How scores are made: a word, a whole number, or whether."""
    found = np.asarray(value).reshape(-1)
    one = found[0].decode("utf-8", "replace") if found.dtype.kind == "S" else found[0] if len(found) == 1 else None
    try:
        return str(one) if name == "scoring" else int(one)
    except (TypeError, ValueError):
        raise InputError(f"{file.path}, {name}: {str(value)[:40]!r}, expected a whole number") from None
