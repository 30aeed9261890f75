"""A folder of shards that are one set: numbered .npy of each side, or numbered .npz, .safetensors or parquet.

Names and headers alone are read here. A count then reads the rows of its batches (`embeddings/stored.py`). What needs
all rows has them in memory or, of a large set, in one file without a name in the temporary folder, which is mapped and
goes with the process.
"""

import logging
import math
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base import machine
from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint, shard_rows
from cocos.checkpoints.checkpoint import holding
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import embeddings as single
from cocos.checkpoints.shard_rows import FLOATS, Shard, ShardRows, ShardTexts, native, values
from cocos.data import TextOf
from cocos.embeddings import Embeddings
from cocos.embeddings.stored import Stored

# Names of the arrays of shards, as columns of parquet and before the number of a .npy, and what they are here.
MATRICES = {
    **{name: name for name in ("query", "candidate", "embeddings", "proxies")},
    **{"img_emb": "query", "text_emb": "candidate", "embedding": "embeddings"},
}
GROUPS = {**{name: name for name in (*single.GROUP_ARRAYS, *single.LABEL_ARRAYS)}, "label": "labels"}
# Texts of the rows, as `Embeddings.names` has them.
NAMES = {name: name for name in single.NAME_ARRAYS} | {"query_text": "query_name", "candidate_text": "candidate_name"}
NAMES |= {"text": "row_name", "name": "row_name"}  # of a labelled set
LOGQ = {name: name for name in single.LOGQ_ARRAYS}
VECTORS = GROUPS | NAMES | LOGQ
SHARD_ARRAYS = MATRICES | VECTORS
DIGITS = "0123456789"
# More digits than a number of a shard has.
LONGEST_NUMBER = 12
# Words before the number of a checkpoint of a training, of which each is a set by itself.
NO_SHARD = re.compile(r"(step|iter|iteration|epoch|checkpoint|ckpt|model|seed|run)s?$", re.IGNORECASE)
KINDS = tuple(kind for kind in shard_rows.KINDS if kind != "npy")
# `cocos inspect` takes no sha256: it would read everything.
UNREAD = True
# Bytes of the rows of one side from which on they are not held in memory.
MIN_MAPPED = 2**30
GIB = 2**30
# What reads less than all rows.
READ_ALONE = "a number of batches (--batches) reads its rows alone, and so do --queries of count, evaluate and diff"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class StoredTexts:
    """Texts of rows in shards, read when a row is named.

    Args:
        sides: of queries and of candidates; None where a side has none, whose rows are named by their numbers.
        asks: the direction in which the queries ask.
    """

    sides: tuple[TextOf | None, ...]
    asks: str

    def texts(self, direction: str) -> tuple[TextOf, TextOf]:
        """Return functions of a row that give the text of a query and of a candidate."""
        query, candidate = (each or "row {}".format for each in self.sides)
        return (query, candidate) if direction == self.asks else (candidate, query)

    def pictures(self, direction: str) -> tuple[None, None]:
        """There are none."""
        return None, None


def recognises(file: File) -> bool:
    """A folder of numbered files whose arrays have names that embeddings have."""
    return file.kind == "folder" and file.path.is_dir() and bool(_files(file))


def _files(folder: File) -> dict[str, list[tuple[int, str, int | None]]]:
    """Number, name and announced number of the files of each sequence: by array for .npy, and the one of whole sets."""
    found: dict[str, list] = {}
    for name in folder.names:
        # train/query_3-of-8.npy has the path `train/query_` and the stem `query`.
        before, _, kind = name.rpartition(".")
        head, sign, announced = before.rpartition("-of-")
        if not sign or not _is_number(announced):
            head, announced = before, ""
        path = head.rstrip(DIGITS)
        if not _is_number(number := head[len(path) :]):
            continue
        entry = int(number), name, int(announced) if announced else None
        stem = path.rpartition("/")[2]
        stem = stem[:-1] if stem.endswith(("-", "_", ".")) else stem
        if kind == "npy" and stem in SHARD_ARRAYS:
            found.setdefault(stem, []).append(entry)
        elif kind in KINDS and not NO_SHARD.search(stem):
            found.setdefault(f"{path}*.{kind}", []).append(entry)
    if found.keys() & MATRICES.keys():
        return {name: sorted(each) for name, each in found.items() if name in SHARD_ARRAYS}
    whole = {name: sorted(each) for name, each in found.items() if len(each) > 1 or each[0][2]}
    if len(whole) != 1:
        return {}
    ((first, *_),) = whole.values()
    try:
        held = {SHARD_ARRAYS.get(each.name) for each in _headers(folder, first[1])}
    except InputError:
        return {}
    return whole if {"query", "candidate"} <= held or {"embeddings", "labels"} <= held else {}


def _is_number(digits: str) -> bool:
    return 0 < len(digits) <= LONGEST_NUMBER and not digits.strip(DIGITS)


def _whole(folder: File, name: str, files: list[tuple[int, str, int | None]]) -> list[str]:
    """The files of a sequence in the order of their numbers; a number that is missing or doubled is named."""
    numbers, announced = [each for each, _, _ in files], next((each for _, _, each in files if each), None)
    begin = min(numbers[0], 1)
    expected = range(begin, begin + (announced or 0) if announced else numbers[-1] + 1)
    missing = sorted(set(expected) - set(numbers))
    if missing:
        raise InputError(
            f"{folder.path}: the shards of {name} go from {expected[0]} to {expected[-1]}, and number {missing[0]} is "
            f"missing ({len(missing)} in all); copy it, or number the others without a gap"
        )
    for (number, one, _), (after, other, _) in zip(files, files[1:], strict=False):
        if number == after:
            raise InputError(f"{folder.path}: {one} and {other} are both shard {number} of {name}; keep one of them")
    return [each for _, each, _ in files]


def _headers(folder: File, name: str) -> list[Shard]:
    """The arrays of a file of the folder by its header alone."""
    return shard_rows.headers(folder.path / name, list(VECTORS), list(MATRICES))


def _inventory(folder: File) -> dict[str, list[Shard]]:
    """The shards of each array, by its name here, in the order of their rows; an odd one is named."""
    found: dict[str, list[Shard]] = {}
    for name, files in _files(folder).items():
        for file in _whole(folder, name, files):
            every = _headers(folder, file)
            held = {name if name in SHARD_ARRAYS else each.name: each for each in every}
            known = {SHARD_ARRAYS[each]: shard for each, shard in held.items() if each in SHARD_ARRAYS}
            before = {role for role in found if found[role][0].kind == file.rpartition(".")[2]}
            if name not in SHARD_ARRAYS and found and known.keys() != before:
                lacking = ", ".join(sorted(known.keys() ^ before))
                raise InputError(f"{folder.path / file}: {lacking} is not in all shards; write it again like the first")
            for role, shard in known.items():
                found.setdefault(role, []).append(shard)
    return found


def _refuse_odd(held: dict[str, list[Shard]]) -> None:
    """Refuse a shard of another width or dtype than the first of its array."""
    for role, shards in held.items():
        first, matrix = shards[0], role in MATRICES.values()
        for each in shards:
            fits = len(each.shape) == (2 if matrix else 1) and each.shape[1:] == first.shape[1:]
            text = not matrix and each.dtype.startswith(("<U", "|S", "<S")) and first.dtype[:2] == each.dtype[:2]
            if not fits or (each.dtype != first.dtype and not text):
                raise InputError(
                    f"{each.path}: {role} is {each.dtype} {each.shape}, and {first.dtype} {first.shape} "
                    f"in {first.path.name}; expected {'(rows, width)' if matrix else '(rows,)'} of one dtype and width"
                )


def _say_size(path: Path, rows: dict[str, ShardRows]) -> None:
    """Say how large a set is, before all rows of it are read; refuse one that does not fit.

    Rows of a large side are mapped, and take memory where they are widened to float32 to be scored.
    """
    size = {name: math.prod(each.shape) * each.dtype.itemsize for name, each in rows.items()}
    if max(size.values()) < MIN_MAPPED:
        return
    wide = sum(4 * math.prod(each.shape) for each in rows.values() if each.dtype.itemsize < 4)
    held = max(wide, sum(each for each in size.values() if each < MIN_MAPPED))
    disk, has = sum(each for each in size.values() if each >= MIN_MAPPED), machine.memory()
    takes = f"all rows are needed: {disk / GIB:.1f} GiB in {tempfile.gettempdir()}, and {held / GIB:.1f} GiB of memory"
    if has is not None and held > has:
        raise InputError(f"{path}: {takes}, of which there are {has / GIB:.1f}; {READ_ALONE}")
    logger.warning("note: %s: %s; %s", path, takes, READ_ALONE)


def _joined(path: Path, role: str, rows: ShardRows) -> Tensor:
    """The rows of all shards in one matrix, mapped where it is large."""
    (number, width), dtype = rows.shape, rows.dtype
    size = number * width * dtype.itemsize
    made = torch.empty(number, width, dtype=dtype) if size < MIN_MAPPED else _mapped(path, role, number, width, dtype)
    for start in range(0, number, step := max(1, MIN_MAPPED // (16 * width))):
        index = torch.arange(start, min(start + step, number))
        made[start : start + step] = rows.read(index)
    return made


def _mapped(path: Path, role: str, rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """An empty matrix in a file without a name in the temporary folder, which goes with the process."""
    size, place = rows * width * dtype.itemsize, tempfile.gettempdir()
    if (free := shutil.disk_usage(place).free) < size:
        raise InputError(
            f"{path}: {role} has {size:,} bytes, of which {place} has room for {free:,}; "
            "set TMPDIR to a folder of a larger disk"
        )
    with tempfile.TemporaryFile(dir=place) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        held = np.memmap(file, np.uint8, "r+", shape=(size,))
    return torch.from_numpy(held).view(dtype).reshape(rows, width)


def ids(shards: Sequence[Shard]) -> Any:
    """Groups, labels or names of all shards."""
    found = np.concatenate([np.asarray(some) for shard in shards for some in values(shard)])
    return found if found.dtype.kind in "USO" else native(found)


def read(file: File, data=None) -> Checkpoint:
    """Read the headers of shards; their rows when they are counted or encoded."""
    if data is not None:
        raise InputError(f"data {data}: {file.path} holds embeddings already and needs no data")
    path, held = file.path, _inventory(file)
    clip = any(each.path.name.startswith("img_emb") for each in held.get("query", ()))
    directions = ("i2t", "t2i") if clip else ("q2c", "c2q")

    _refuse_odd(held)
    labelled = "embeddings" in held
    for name in ("embeddings", "labels") if labelled else single.TWO_SIDED:
        if name not in held:
            raise InputError(f"{path} has shards of {', '.join(sorted(held))}, and none of {name}; add them")
    for name in held.keys() & {*MATRICES.values()}:
        if held[name][0].dtype not in FLOATS:
            raise InputError(f"{path}: {name} is {held[name][0].dtype}, expected floats")
    numbers = {name: sum(each.shape[0] for each in shards) for name, shards in held.items()}
    _refuse_lengths(path, held, numbers)
    contents = {
        name: f"({', '.join(map(str, (numbers[name], *shards[0].shape[1:])))}) {shards[0].dtype} in {len(shards)} "
        f"shards, {shards[0].path.name} to {shards[-1].path.name}"
        for name, shards in held.items()
    }
    states = {each.path: os.stat(each.path) for shards in held.values() for each in shards}
    whole = sum(each.st_size for each in states.values())
    layout = " and ".join(sorted({each.kind for shards in held.values() for each in shards}))
    contents |= {"rows": f"{max(numbers.values()):,}", "bytes": f"{whole:,} in {len(states)} files", "layout": layout}
    rows = {name: ShardRows(tuple(shards)) for name, shards in held.items() if name in MATRICES.values()}

    def every(names: Sequence[str]) -> dict[str, Any]:
        return {name: ids(held[name]) for name in names if name in held}

    def found() -> Embeddings:
        _say_size(path, rows)
        made: dict[str, Any] = {name: _joined(path, name, each) for name, each in rows.items()}
        made |= every([*GROUPS.values(), *LOGQ])
        made["names"] = _names(every([*NAMES.values()]), labelled, labelled and "proxies" not in held)
        return Embeddings.labelled(**made) if labelled else Embeddings(**made, directions=directions)

    def stored() -> Stored | None:
        if "proxies" in held:
            return None
        own = [name for name in (*(("labels",) if labelled else single.GROUP_ARRAYS), *LOGQ) if name in numbers]
        sides = ("embeddings",) if labelled else single.TWO_SIDED
        size = max(rows[name].shape[0] * rows[name].shape[1] * rows[name].dtype.itemsize for name in sides)
        return Stored(
            name=str(path),
            query=rows[sides[0]],
            candidate=None if labelled else rows["candidate"],
            ids=partial(every, own) if own else None,
            directions=("s2s",) if labelled else directions,
            held=size < MIN_MAPPED,
        )

    def texts_of(name: str) -> TextOf | None:
        return ShardTexts(held[name]) if name in held else None

    def texts(_split: str) -> StoredTexts | None:
        sides = tuple(map(texts_of, ("row_name", "row_name") if labelled else single.NAME_ARRAYS))
        return StoredTexts(sides, "s2s" if labelled else directions[0]) if any(sides) else None

    return Checkpoint(
        path=path,
        sha256="",
        format="shards",
        contents=contents,
        embedder=holding(path, "embeddings", found),
        rows=texts,
        stored=stored,
        notes=(f"{path}: sha256 is not taken: a set of shards is opened by its headers",),
    )


def _refuse_lengths(path: Path, held: dict[str, list[Shard]], numbers: dict[str, int]) -> None:
    """Refuse arrays that do not have a value for each row, and sides without groups that are not equally long."""
    owner = {"labels": "embeddings", "row_name": "embeddings", "proxy_labels": "proxies", "logq": "candidate"}
    for name in numbers.keys() & {*VECTORS.values()}:
        side = owner.get(name, name.rpartition("_")[0])
        if side in numbers and numbers[name] != numbers[side]:
            raise InputError(f"{path}: {name} has {numbers[name]:,} rows and {side} {numbers[side]:,}; give one a row")
    if "query" in held and "query_group" not in numbers and numbers["query"] != numbers["candidate"]:
        for one, other in zip(held["query"], held["candidate"], strict=False):
            if one.shape[0] != other.shape[0]:
                raise InputError(
                    f"{path}: {one.path.name} has {one.shape[0]:,} rows and {other.path.name} {other.shape[0]:,}; "
                    "without groups row i of the queries matches row i of the candidates"
                )


def _names(found: Mapping[str, Any], labelled: bool, single_side: bool) -> Any:
    """Texts of the rows, where there are any."""
    names = ("row_name",) if labelled else single.NAME_ARRAYS
    texts = [None if name not in found else [str(each) for each in found[name]] for name in names]
    if labelled:
        return texts[0] if single_side else texts[0] and (texts[0], None)
    return tuple(texts) if any(texts) else None
