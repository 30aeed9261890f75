"""The figures of the repository: scripts in `analysis/`, their data kept beside the figures."""

import ast
import hashlib
import importlib.util
import io
import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure

import cocos
from cocos.base import writing
from cocos.base.errors import InputError, nearest
from cocos.engine.sampling import Progress
from cocos.reports import captions
from cocos.reports.layout import Table
from cocos.reports.saving import finish, save, styled

PACKAGE = Path(cocos.__file__).parent
# Files and folders of the package that draw, write or parse: the data of a figure do not depend on them.
NOT_DATA = ("plots", "reports", "commands", "summaries.py", "__main__.py", "example")
# Files of a figure; those of .svg and .pdf are not in the repository.
FIGURE_FILES = ("svg", "pdf", "png")
# File, beside the figures and not in the repository, with the hash of the inputs of each and that of its data.
KEYS = ".inputs.json"
PACKED_FIGURE_DATA = {"zlib": True, "complevel": 6, "shuffle": True, "fletcher32": True}


@dataclass(frozen=True)
class Drawn:
    """Result of one script: its name, the files of data and figures, and whether the data were computed or kept."""

    name: str
    files: tuple[Path, ...]
    computed: bool


def names(analysis: Path) -> list[str]:
    """List the scripts of a folder that draw a figure: those with the functions `data` and `draw`."""
    if not analysis.is_dir():
        raise InputError(f"analysis: there is no folder {analysis}; run this in a clone of the repository of cocos")
    found = []
    for path in sorted(analysis.glob("*.py")):
        defined = {node.name for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}
        if {"data", "draw"} <= defined:
            found.append(path.stem)
    if not found:
        raise InputError(f"analysis: no script in {analysis} has the functions data and draw")
    return found


@contextmanager
def _beside(folder: Path) -> Generator[list[Path]]:
    """Make scripts of the folder importable by name, read anew and forgotten afterwards; yields the imported ones."""
    beside = {path.stem: path for path in sorted(folder.glob("*.py"))}
    hidden = {name: sys.modules.pop(name) for name in beside if name in sys.modules}
    compiled, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a change within a second would go unseen
    imported: list[Path] = []
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield imported
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = compiled
        imported += [path for name, path in beside.items() if sys.modules.pop(name, None)]
        sys.modules.update(hidden)


def _loaded(path: Path) -> tuple[ModuleType, list[Path]]:
    """Load a script, and list the other scripts of its folder that it imports, directly or not."""
    spec = importlib.util.spec_from_file_location(f"analysis_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with _beside(path.parent.resolve()) as imported:
        spec.loader.exec_module(module)
    return module, imported


def _computing(source: str) -> str:
    """Extract the part of a script that its data depend on: `data`, `INPUTS`, and every name that they reach.

    A change of a caption or a label therefore trains no network again.
    """
    rest, found = [], {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # the docstring
        bound = {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set()
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign):
            bound = {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        if not bound:
            rest.append(node)
        for name in bound:
            found.setdefault(name, []).append(node)
    reached, waiting = list(rest), ["data", "INPUTS", *(each.id for node in rest for each in _names(node))]
    while waiting:
        for node in found.pop(waiting.pop(), []):
            reached.append(node)
            waiting += [each.id for each in _names(node)]
    return "\n".join(ast.unparse(node) for node in sorted(dict.fromkeys(reached), key=lambda node: node.lineno))


def _names(node: ast.AST) -> list[ast.Name]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Name)]


def _key(path: Path, module: ModuleType, imported: Sequence[Path] = ()) -> str:
    """Hash of everything the data depend on: script, its imports, input files, package, versions of the libraries."""
    digest = hashlib.sha256("\n".join([cocos.__version__, torch.__version__, np.__version__]).encode())
    digest.update(_computing(path.read_text("utf-8")).encode())
    sources = [each for each in sorted(PACKAGE.rglob("*.py")) if each.relative_to(PACKAGE).parts[0] not in NOT_DATA]
    for each in (*imported, *sources, *sorted(map(Path, getattr(module, "INPUTS", ())))):
        if not each.is_file():
            raise InputError(f"{path.name}: its input {each} is not there")
        digest.update(each.read_bytes())
    return digest.hexdigest()


def _kept(file: Path | io.BytesIO, version: str | None = None) -> dict[str, xr.Dataset] | None:
    """Load the data of an earlier run; None if there are none, or not of the given version of cocos."""
    if isinstance(file, Path) and not file.is_file():
        return None
    try:
        with xr.open_datatree(file, engine="h5netcdf") as tree:
            if version is not None and tree.attrs.get("cocos") != version:
                return None
            return {name: node.to_dataset().load() for name, node in tree.children.items()}
    except (OSError, ValueError, KeyError):
        return None


def _keys(folder: Path) -> dict[str, list[str]]:
    """Hashes of the inputs and of the data of the figures that were computed here; none where they cannot be read."""
    try:
        found = json.loads((folder / KEYS).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _save(parts: dict[str, xr.Dataset], path: Path) -> None:
    """Write the data; a file that holds the same already is left as it is."""
    tree = xr.DataTree.from_dict({f"/{name}": part for name, part in parts.items()})
    tree.attrs = {"cocos": cocos.__version__}
    packed = {
        f"/{name}": {each: PACKED_FIGURE_DATA for each in part.data_vars if part[each].ndim > 1}
        for name, part in parts.items()
    }
    made, before = tree.to_netcdf(engine="h5netcdf", encoding=packed), _kept(path, cocos.__version__)
    now = _kept(io.BytesIO(made)) or {}
    if before is None or before.keys() != now.keys() or not all(now[name].identical(before[name]) for name in now):
        writing.write(path, made, "data of a figure")


def _draw(module: ModuleType, parts: dict[str, xr.Dataset], name: str, folder: Path) -> list[Path]:
    """Draw and write the files of a figure; their metadata have its caption, version, command, checkpoints, seeds."""
    about = [f"cocos {cocos.__version__}", f"command: cocos figures {name}"]
    for key, what in (("checkpoint_sha256", "checkpoint sha256"), ("seed", "seed")):
        values = dict.fromkeys(str(part.attrs[key]) for part in parts.values() if key in part.attrs)
        about += [f"{what}: {', '.join(values)}"] if values else []
    told, files = captions.write(module, parts), []
    with styled():
        figure = Figure(figsize=getattr(module, "SIZE", (6.4, 4.4)), layout="constrained")
        module.draw(parts, figure)
        finish(figure)
        for suffix in FIGURE_FILES:
            files.append(folder / f"{name}.{suffix}")
            save(figure, files[-1], {"Title": f"{told.claim}. {told.alt}", "Description": "; ".join(about)})
    return files


def index(analysis: Path, folder: Path) -> str:
    """Write the text of the index: every figure of the folder with its caption, filled from its data."""
    lines = ["# Figures", ""]
    lines += ["Written by `cocos figures`; the data of each figure are in the `.nc` file beside it.", ""]
    lines += ["Every number below is computed from those data, and a test compares it.", ""]
    for name in names(analysis):
        if not (folder / f"{name}.png").is_file():
            continue
        parts = _kept(folder / f"{name}.nc")
        if parts is None:
            raise InputError(f"{folder / name}.nc: the data of this figure cannot be read; run cocos figures {name}")
        lines += captions.write(_loaded(analysis / f"{name}.py")[0], parts).lines(name)
    return "\n".join(lines).rstrip() + "\n"


def run(
    wanted: Sequence[str],
    *,
    analysis: Path = Path("analysis"),
    folder: Path = Path("figures"),
    fresh: bool = False,
    progress: Progress | None = None,
) -> list[Drawn]:
    """Make figures: compute their data where an input has changed, draw them, and write the index.

    Without names, all of them. `fresh` computes all data again.
    """
    there = names(analysis)
    for name in wanted:
        if name not in there:
            raise InputError(nearest("figure", name, there))
    if not folder.is_dir():
        raise InputError(f"figures: there is no folder {folder}")
    writing.writable(folder, "figures")
    made, chosen = [], [name for name in there if name in wanted] if wanted else there
    report = progress("figures") if progress else None
    for done, name in enumerate(chosen):
        path = analysis / f"{name}.py"
        (module, imported), data = _loaded(path), folder / f"{name}.nc"
        key = _key(path, module, imported)
        for each in (data, *(data.with_suffix(f".{suffix}") for suffix in FIGURE_FILES)):
            writing.apart(each, path, *imported, *getattr(module, "INPUTS", ()))
        known = not fresh and _keys(folder).get(name) == [key, _sha256(data)]
        parts = _kept(data) if known else None
        computed = parts is None
        if computed:
            _save(module.data(progress), data)
            parts, keys = _kept(data), _keys(folder) | {name: [key, _sha256(data)]}
            writing.write(folder / KEYS, json.dumps(keys, indent=1).encode(), "hashes of the inputs of figures")
        made.append(Drawn(name, (data, *_draw(module, parts, name, folder)), computed))
        if report:
            report(done + 1, len(chosen))
    text = index(analysis, folder)
    writing.write(folder / "README.md", text.encode(), "index of the figures")
    return made


def table(made: Sequence[Drawn]) -> Table:
    """List the figures, whether their data were computed anew, and the number of their files."""
    rows = tuple((each.name, "computed" if each.computed else "kept", str(len(each.files))) for each in made)
    return Table(("figure", "data", "files"), rows)
