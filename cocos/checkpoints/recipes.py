"""Recipes: a small TOML file that says which model, data and loss belong together.

    [model]
    path = "model"              # a checkpoint or folder; or build = "file.py:function"
    images = {resize = 256, crop = [224, 224], mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225]}
    [data]
    path = "pairs.jsonl"        # or load = "file.py:function"; every other key is an option of the kind of data
    [loss]
    name = "ntxent"
    parameters = {scale = 20}

A recipe named by the user may name code of the user's (`build`, `load`). A recipe beside a checkpoint, which may come
from a stranger, holds data alone: code in it is refused, and its paths lie inside of its folder.
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cocos import losses
from cocos.base import reading
from cocos.base.annotations import lies_in
from cocos.base.errors import InputError, nearest, unreachable

BESIDE = "cocos.toml"  # name of a recipe that lies beside a checkpoint
MAX_RECIPE = 2**14  # bytes; the parser takes a second for a key of that many dots
TABLES = {"model": ("build", "path", "images"), "data": None, "loss": ("name", "parameters")}
CODE = ("build", "load")  # keys that name code
PLACES = ("path", "images")  # keys that name files or folders
TEXTS = ("path", "name", "kind", "images")  # other keys whose values are text


@dataclass(frozen=True)
class Recipe:
    """Contents of a recipe.

    Args:
        path: of its file; None where there is none.
        model: `build` or `path`, and `images`: how images are prepared (`cocos.encoders.prepared`).
        data: `load`, or `path` and options of the kind of data.
        loss: `name` and `parameters`.
    """

    path: Path | None = None
    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    loss: dict[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the kind of data, such as names of columns."""
        return {key: value for key, value in self.data.items() if key not in {"load", "path"}}

    def named(self, table: str) -> str | Path | None:
        """The code that a table names, or the path, never as text: that of a stranger could be read as code."""
        held = getattr(self, table)
        code = next((held[key] for key in CODE if key in held), None)
        return self.path.parent / held["path"] if self.path and "path" in held else code


def _refuse(path: Path, held: dict, inside: bool) -> None:
    """Refuse tables, keys and values that no recipe has, and code in one that lies beside a checkpoint."""
    for table, content in held.items():
        if table not in TABLES:
            raise InputError(f"{path}: {nearest('table', table, TABLES)}")
        if not isinstance(content, dict):
            raise InputError(f"{path}: {table} is {content!r:.60}, expected a table [{table}]")
        known = TABLES[table]
        for key, value in content.items():
            if known and key not in known:
                raise InputError(f"{path}: {nearest(f'key of [{table}]', key, known)}")
            if key in CODE and inside:
                raise InputError(
                    f"{path}: {table}.{key} names the code {value!r:.60}; a recipe beside a checkpoint holds data "
                    f"alone: name your code on the command line, --{table} {value!s:.60}"
                )
            if (table, key) == ("model", "images"):
                continue  # a table, which the encoder reads
            plain = isinstance(value, str) and value.strip() and value.isprintable()
            if key in {*CODE, *TEXTS} and not plain:
                raise InputError(f"{path}: {table}.{key} is {value!r:.60}, expected text")
            if key in PLACES and inside and not lies_in(path.parent / value, path.parent):
                raise InputError(
                    f"{path}: {table}.{key} {value!r:.60} leads out of its folder; name it on the command line, "
                    f"--{table}"
                )
        if table != "loss" and len(content.keys() & {*CODE, "path"}) > 1:
            raise InputError(
                f"{path}: [{table}] has {' and '.join(sorted(content.keys() & {*CODE, 'path'}))}; keep one"
            )
    if (held.get("data") or {}).keys() - {"load"} and "load" in held["data"]:
        raise InputError(f"{path}: [data] has load, and options that only a path has; keep one of them")


def _loss(path: Path, held: dict) -> dict[str, Any]:
    """Check the loss of a recipe, which is one of the shelf."""
    if not held:
        return {}
    name, parameters = held.get("name"), held.get("parameters", {})
    if name is None or not isinstance(parameters, dict):
        raise InputError(f"{path}: [loss] needs a name, and parameters as a table, like parameters = {{margin = 0.2}}")
    try:
        known = losses.canonical(name) if ":" not in name else name
        if known not in losses.names():
            raise InputError(f"{name!r} is no loss of the shelf; name code with --loss")
        losses.load(known, parameters)
    except InputError as error:
        raise InputError(f"{path}: loss {error}") from None
    return {"name": known, "parameters": parameters}


def read(path: Path, *, inside: bool) -> Recipe:
    """Read a recipe; one that lies `inside` the folder of a checkpoint holds data alone."""
    try:
        size = path.stat().st_size
        text = None
        if size <= MAX_RECIPE and not path.is_dir():
            with reading.stream(path) as stream:
                text = stream.read(MAX_RECIPE + 1).decode("utf-8")
    except OSError as error:
        raise InputError(f"recipe {path}: {unreachable(error)}") from None
    except UnicodeDecodeError:
        raise InputError(f"recipe {path}: it is no text in UTF-8") from None
    if text is None:
        raise InputError(f"recipe {path}: expected a TOML file of at most {MAX_RECIPE} bytes")
    try:
        held = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"recipe {path}: it is no TOML ({' '.join(str(error).split())[:120]})") from None
    _refuse(path, held, inside)
    return Recipe(path, held.get("model", {}), held.get("data", {}), _loss(path, held.get("loss", {})))


def beside(path: Path) -> Path | None:
    """The recipe beside a checkpoint, or in its folder; None where there is none."""
    try:
        found = (path if path.is_dir() else path.parent) / BESIDE
        return found if found.is_file() else None
    except OSError:
        return None
