"""A manifest: a TOML file that names the shards of each array of one set, where their names do not.

directions = ["i2t", "t2i"]

[arrays.query]
files = ["images/*.parquet"]
name = "vector"
rows = 2_000_000

[arrays.candidate]
files = ["texts/a.npy", "texts/b.npy"]

[arrays.candidate_key]
files = ["texts/ids.npy"]

[tables.candidate]
files = ["captions/*.parquet"]
key = "id"
group = "image"
text = "caption"

[sha256]
"texts/a.npy" = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
"""

import fnmatch
import re
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

from cocos.base import annotations, reading
from cocos.base.errors import InputError, nearest
from cocos.checkpoints import Checkpoint, shard_rows
from cocos.checkpoints.files import File, Folder
from cocos.checkpoints.formats import shards
from cocos.checkpoints.formats.shards import Joined
from cocos.checkpoints.keyed_tables import KeyedTable
from cocos.checkpoints.shard_rows import Shard

MAX_MANIFEST = 2**24  # bytes
MANIFEST_FIELDS = ("arrays", "directions", "sha256", "tables")
ARRAY_FIELDS = ("files", "name", "rows")
# Sides that may have a table, and what its columns are to the rows there.
SIDE_TABLES = {
    "query": {"group": "query_group", "text": "query_name"},
    "candidate": {"group": "candidate_group", "text": "candidate_name"},
    "embeddings": {"group": "labels", "text": "row_name"},
}
TABLE_FIELDS = ("files", "key", "group", "text")
KEY_ARRAYS = {f"{side}_key": side for side in SIDE_TABLES}
# `cocos inspect` takes no sha256 of the shards unless it is asked.
UNREAD = True


def recognises(file: File | Folder) -> bool:
    """A TOML file with a table `arrays`."""
    if not isinstance(file, File) or file.path.suffix != ".toml" or file.size > MAX_MANIFEST:
        return False
    with reading.stream(file.path) as stream:
        return bool(re.search(rb"^[ \t]*\[arrays[.\]]", stream.read(), re.MULTILINE))


def _table(file: File) -> dict[str, Any]:
    try:
        with reading.stream(file.path) as stream:
            found = tomllib.load(stream)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file.path} is no TOML file ({' '.join(str(error).split())[:120]})") from None
    for name in found.keys() - set(MANIFEST_FIELDS):
        raise InputError(f"{file.path}: {nearest('field', name, MANIFEST_FIELDS)}")
    known = found.get("sha256", {})
    if not isinstance(known, dict) or not all(re.fullmatch(r"[0-9a-fA-F]{64}", str(each)) for each in known.values()):
        raise InputError(f"{file.path}, sha256: expected a table of file names, each with a hash of 64 digits")
    return found


def _in_order(name: str) -> tuple[list[Any], str]:
    """Names by the numbers in them, so that 10 stands after 2."""
    return [int(each) if each.isdecimal() else each for each in re.split(r"(\d{1,18})", name)], name


def _files(path: Path, folder: Folder, array: str, given: Any) -> list[str]:
    """Files of an array: as they are listed, those of a pattern in the order of their numbers."""
    if not isinstance(given, list) or not given or not all(isinstance(each, str) for each in given):
        raise InputError(f"{path}, {array}: files are {str(given)[:60]!r}, expected a list of names or patterns")
    found: list[str] = []
    for each in given:
        own = [each] if each in folder else sorted(fnmatch.filter(folder.names, each), key=_in_order)
        if not own:
            raise InputError(f"{path}, {array}: there is no file {each!r} in {folder.path}")
        found += own
    if twice := {each for each in found if found.count(each) > 1} if len(found) < 10**4 else set():
        raise InputError(f"{path}, {array}: {min(twice)} is named twice")
    return found


def _shards(path: Path, folder: Folder, array: str, table: Any) -> list[Shard]:
    if not isinstance(table, dict) or "files" not in table:
        raise InputError(f"{path}, {array}: expected a table with files, and optionally name and rows")
    for field in table.keys() - set(ARRAY_FIELDS):
        raise InputError(f"{path}, {array}: {nearest('field', field, ARRAY_FIELDS)}")
    wanted, found = table.get("name"), []
    for file in _files(path, folder, array, table["files"]):
        folder.size(file)  # refuses a link out of the folder
        if file.rpartition(".")[2] not in shard_rows.KINDS:
            raise InputError(f"{path}, {array}: {file}, expected one of {', '.join(shard_rows.KINDS)}")
        every = shard_rows.headers(folder.path / file, [wanted or array], [wanted or array])
        own = [each for each in every if each.name in ("", wanted or array)]
        if not own and wanted is None and len(every) == 1:
            own = every
        if not own:
            held = [each.name for each in every]
            raise InputError(f"{folder.path / file}: {nearest('array', wanted or array, held)}; give its name")
        found += own
    number = sum(each.shape[0] for each in found if each.shape)
    if table.get("rows", number) != number:
        raise InputError(f"{path}, {array}: {len(found)} shards with {number:,} rows, expected {table['rows']}")
    return found


def _joined(path: Path, folder: Folder, given: dict[str, Any], keys: dict[str, list[Shard]]) -> dict[str, Joined]:
    """Columns of tables that are found by keys, by the names of the arrays that they are."""
    found = {}
    for side, about in given.items():
        name = f"{path}, tables.{side}"
        if side not in SIDE_TABLES:
            raise InputError(f"{path}, tables: {nearest('side', side, SIDE_TABLES)}")
        if not isinstance(about, dict) or not {"files", "key"} < about.keys():
            raise InputError(f"{name}: expected a table with files, key, and group or text")
        for field, column in about.items():
            if field not in TABLE_FIELDS:
                raise InputError(f"{name}: {nearest('field', field, TABLE_FIELDS)}")
            if field != "files" and not isinstance(column, str):
                raise InputError(f"{name}, {field}: {column!r}, expected the name of a column")
        if side not in keys:
            raise InputError(f"{name}: the rows have no keys; add [arrays.{side}_key]")
        files = _files(path, folder, f"tables.{side}", about["files"])
        if other := next((each for each in files if not each.endswith(".parquet")), None):
            raise InputError(f"{name}: {other}, expected parquet")
        rows = sum(each.shape[0] for each in keys[side])
        table = KeyedTable(name, [folder.path / each for each in files], about["key"], partial(shards.ids, keys[side]))
        columns = {what: about[what] for what in SIDE_TABLES[side] if what in about}
        table.refuse_unknown([*columns.values()])
        for what, column in columns.items():
            found[SIDE_TABLES[side][what]] = Joined(rows, partial(table.values, column), f"{about['files']}, {column}")
    return found


def read(file: File, data=None) -> Checkpoint:
    """Read the manifest, and the headers of the shards that it names."""
    if data is not None:
        raise InputError(f"data {data}: {file.path} names embeddings already and needs no data")
    table, folder, held = _table(file), Folder(file.path.resolve().parent), {}
    keys: dict[str, list[Shard]] = {}
    for array, about in (table.get("arrays") or {}).items():
        if array not in {*shards.SHARD_ARRAYS, *KEY_ARRAYS}:
            raise InputError(f"{file.path}: {nearest('array', array, [*shards.SHARD_ARRAYS, *KEY_ARRAYS])}")
        found = _shards(file.path, folder, array, about)
        if array in KEY_ARRAYS:
            keys[KEY_ARRAYS[array]] = found
        else:
            held[shards.SHARD_ARRAYS[array]] = found
    joined = _joined(file.path, folder, table.get("tables") or {}, keys)
    directions = annotations.directions(tuple(table.get("directions", ("q2c", "c2q"))))
    known = {name: each.lower() for name, each in table.get("sha256", {}).items()}
    return shards.of_arrays(file.path, held, directions, "manifest", file.sha256, known, joined)
