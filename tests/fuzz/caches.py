"""Folders of the embeddings cache whose files are damaged, planted, or none."""

import json
import os
import struct
from pathlib import Path
from unittest import mock

import torch

from cocos.base import cache
from fuzz import mutations, trees

__all__ = ["ABOUT", "ROWS", "damaged", "opened"]

ABOUT = {"checkpoint": "a" * 64, "data": "b" * 64}
# Rows and width of what is kept, and rows of its first part.
ROWS, WIDTH, PART = 6, 3, 4
# Lengths of an array, most of them none.
SIZES = (0, 1, -1, 6, 6.0, True, 2**31, 2**62, None, "6", [6])


def _kept(folder: Path) -> None:
    """Keep rows: all of them, or a part."""
    rows = torch.arange(float(ROWS * WIDTH)).reshape(ROWS, WIDTH)
    there = cache._Kept(folder, ABOUT, "a model")
    there.keep(rows[:PART], 0)
    part = sorted(folder.iterdir())[0]
    held = part.read_bytes()
    there.keep(rows)
    part.write_bytes(held)
    part.chmod(0o600)


def _changed(random, content: bytes) -> bytes:
    """A file with another header, or damaged bytes."""
    if random.random() < 0.3:
        return mutations.damaged(random, content)
    (length,) = struct.unpack("<Q", content[:8])
    header, rows = json.loads(content[8 : 8 + length]), content[8 + length :]
    shape = [random.choice(SIZES) for _ in range(random.choice([1, 2, 2, 2, 3]))]
    if random.random() < 0.5:
        header["rows"]["shape"] = shape
    if random.random() < 0.3:
        header["rows"]["data_offsets"] = random.choice([[0, 72], [0, -72], [0, 2**70], [0.0, 72.0], None])
    if random.random() < 0.3:
        word = random.choice(["[" * 20_000, "", "{}", 3, None])
        header["__metadata__"][random.choice(["about", "label", "sha256"])] = word
    header = trees.damaged_json(random, header) if random.random() < 0.4 else header
    made = trees.as_json(header)
    if random.random() < 0.15:
        made = b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    return struct.pack("<Q", random.choice([len(made), len(made), len(made), 2**20, 2**63])) + made + rows


def damaged(random, folder: Path) -> Path:
    """Write a folder of the cache and spoil some of its files."""
    place = folder / "cache"
    _kept(place)
    for path in sorted(place.iterdir()):
        way = random.choice(["bytes", "bytes", "bytes", "pipe", "link", "mode", "sparse", "folder", "whole"])
        if way == "bytes":
            path.write_bytes(_changed(random, path.read_bytes()))
        elif way == "mode":
            path.chmod(random.choice([0o666, 0o620, 0o777, 0o400]))
        elif way == "sparse":
            os.truncate(path, random.choice([2**31, 2**40]))
        elif way == "link":
            path.rename(folder / path.name)
            path.symlink_to(random.choice([folder / path.name, "/dev/zero", path.name]))
        elif way in {"pipe", "folder"}:
            path.unlink()
            os.mkfifo(path) if way == "pipe" else path.mkdir()
    if random.random() < 0.15:
        place.chmod(random.choice([0o777, 0o770]))
    return place


def opened(folder: Path) -> str:
    """List the files of a cache, and read its rows as an encoder does.

    Raises:
        RuntimeError: it serves rows that are not those that were written.
    """
    with mock.patch.object(cache, "folder", lambda: folder):
        cache.entries()
    there = cache._Kept(folder, ABOUT, "")
    rows, parts = there.whole(ROWS), there.begun()
    wanted = torch.arange(float(ROWS * WIDTH)).reshape(ROWS, WIDTH)
    for found in (rows, *parts):
        if found is not None and not torch.equal(found, wanted[: len(found)]):
            raise RuntimeError(f"rows of {folder} that nobody wrote: {found}")
    return "refused" if rows is None else "opened"
