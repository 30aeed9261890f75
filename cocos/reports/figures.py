"""The figures of the repository: scripts in `analysis/`, their data kept beside the figures."""

import ast
import hashlib
import importlib.util
import io
import json
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import cocos
from cocos.base import writing
from cocos.base.errors import InputError, nearest
from cocos.base.layout import Table
from cocos.engine.sampling import Progress
from cocos.reports import captions, inputs
from cocos.reports.saving import finish, save, styled

# Files of a figure; those of .svg and .pdf are not in the repository.
FIGURE_FILES = ("svg", "pdf", "png")
# File, beside the figures, with what the data of each were computed from, and how long it took.
NOTES = "inputs.json"
# Relative difference of numbers that are equal: embeddings are in single precision, which machines sum in other orders.
ALIKE_WITHIN = 1e-6
# Significant digits that are written.
SIGNIFICANT = {np.dtype(np.float64): 12, np.dtype(np.float32): 7}
# Largest difference of sums of a few numbers about 1 whose order differs: residuals of such a size are equal.
RESIDUAL = 1e-14
# Changed inputs that the reason of a stale figure names.
NAMED = 2
PACKED_FIGURE_DATA = {"zlib": True, "complevel": 6, "shuffle": True, "fletcher32": True}


@dataclass(frozen=True)
class Drawn:
    """Result of one script: its name, the files of data and figures, and whether the data were computed or kept."""

    name: str
    files: tuple[Path, ...]
    computed: bool


@dataclass(frozen=True)
class Checked:
    """State of one figure: why its data are stale, empty if they are not; seconds of the last computation, or None."""

    name: str
    why: str
    seconds: float | None


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


@dataclass(frozen=True)
class Noted:
    """What is kept of the last computation of a figure.

    Args:
        data: hash of the file of its data.
        seconds: time that the computation took; None if it is not known.
        inputs: name -> hash of what the data depend on.
    """

    data: str
    seconds: float | None
    inputs: dict[str, str]


def _notes(folder: Path) -> dict[str, Noted]:
    """Notes of the figures of a folder; none where they cannot be read."""
    try:
        return {name: Noted(**held) for name, held in json.loads((folder / NOTES).read_text("utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _note(folder: Path, name: str, noted: Noted) -> None:
    """Write the note of a figure beside the others, a line for each."""
    held = dict(sorted((_notes(folder) | {name: noted}).items()))
    lines = ",\n".join(f"{json.dumps(each)}: {json.dumps(asdict(one))}" for each, one in held.items())
    writing.write(folder / NOTES, f"{{\n{lines}\n}}\n".encode(), "inputs of the figures")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _rounded(part: xr.Dataset) -> xr.Dataset:
    """The Dataset with the significant digits of its numbers."""
    return part.assign({name: each.copy(data=_digits(each.values)) for name, each in part.variables.items()})


def _digits(values: np.ndarray) -> np.ndarray:
    if values.dtype not in SIGNIFICANT:
        return values
    shown = [float(f"{value:.{SIGNIFICANT[values.dtype] - 1}e}") for value in values.ravel().tolist()]
    return np.array(shown, dtype=values.dtype).reshape(values.shape)


def _alike(one: object, other: object) -> bool:
    """Whether two arrays or attributes are equal, but for the last digits of their numbers."""
    first, second = np.asarray(one), np.asarray(other)
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if first.dtype.kind != "f":
        return bool((first == second).all())
    largest = np.abs(first, where=np.isfinite(first), out=np.zeros_like(first)).max(initial=0)
    return np.allclose(
        first, second, rtol=ALIKE_WITHIN, atol=max(RESIDUAL, ALIKE_WITHIN / 10 * largest), equal_nan=True
    )


def _same(one: xr.Dataset, other: xr.Dataset) -> bool:
    """Whether two Datasets hold the same, but for the last digits of their numbers."""
    if one.attrs.keys() != other.attrs.keys() or one.variables.keys() != other.variables.keys():
        return False
    if one.coords.keys() != other.coords.keys() or not all(_alike(one.attrs[k], other.attrs[k]) for k in one.attrs):
        return False
    return all(
        each.dims == other[name].dims
        and each.attrs.keys() == other[name].attrs.keys()
        and all(_alike(each.attrs[key], other[name].attrs[key]) for key in each.attrs)
        and _alike(each.values, other[name].values)
        for name, each in one.variables.items()
    )


def _save(parts: dict[str, xr.Dataset], path: Path) -> None:
    """Write the data, rounded; a file that holds the same is left as it is."""
    tree = xr.DataTree.from_dict({f"/{name}": _rounded(part) for name, part in parts.items()})
    tree.attrs = {"cocos": cocos.__version__}
    packed = {
        f"/{name}": {each: PACKED_FIGURE_DATA for each in part.data_vars if part[each].ndim > 1}
        for name, part in parts.items()
    }
    made, before = tree.to_netcdf(engine="h5netcdf", encoding=packed), _kept(path, cocos.__version__)
    now = _kept(io.BytesIO(made)) or {}
    if before is None or before.keys() != now.keys() or not all(_same(now[name], before[name]) for name in now):
        writing.write(path, made, "data of a figure")


def _draw(module: ModuleType, parts: dict[str, xr.Dataset], name: str, folder: Path) -> list[Path]:
    """Draw and write the files of a figure; their metadata have its caption, version, command, checkpoints, seeds."""
    about = [f"cocos {cocos.__version__}", f"command: cocos figures {name}"]
    for key, what in (("checkpoint_sha256", "checkpoint sha256"), ("seed", "seed")):
        values = dict.fromkeys(str(part.attrs[key]) for part in parts.values() if key in part.attrs)
        about += [f"{what}: {', '.join(values)}"] if values else []
    told, files = captions.write(module, parts), []
    with styled(printed=getattr(module, "PRINTED", False)):
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
    chosen, made = _chosen(wanted, analysis, folder), []
    writing.writable(folder, "figures")
    report = progress("figures") if progress else None
    for done, name in enumerate(chosen):
        path = analysis / f"{name}.py"
        (module, imported), data = _loaded(path), folder / f"{name}.nc"
        now = inputs.of(path, module)
        for each in (data, *(data.with_suffix(f".{suffix}") for suffix in FIGURE_FILES)):
            writing.apart(each, path, *imported, *getattr(module, "INPUTS", ()))
        known = not fresh and not _why(now, _notes(folder).get(name), data)
        parts = _kept(data) if known else None
        computed = parts is None
        if computed:
            begun = time.monotonic()
            _save(module.data(progress), data)
            parts = _kept(data)
            _note(folder, name, Noted(_sha256(data), round(time.monotonic() - begun, 1), now))
        made.append(Drawn(name, (data, *_draw(module, parts, name, folder)), computed))
        if report:
            report(done + 1, len(chosen))
    text = index(analysis, folder)
    writing.write(folder / "README.md", text.encode(), "index of the figures")
    return made


def _chosen(wanted: Sequence[str], analysis: Path, folder: Path) -> list[str]:
    """The scripts that were asked for, all without names."""
    there = names(analysis)
    for name in wanted:
        if name not in there:
            raise InputError(nearest("figure", name, there))
    if not folder.is_dir():
        raise InputError(f"figures: there is no folder {folder}")
    return [name for name in there if name in wanted] if wanted else there


def _why(now: dict[str, str], noted: Noted | None, data: Path) -> str:
    """The reason why the data of a figure are stale; empty if they are not."""
    if not data.is_file():
        return f"{data.name} is not there"
    if noted is None:
        return "nothing is noted of its last computation"
    if noted.data != _sha256(data):
        return f"{data.name} is not the file that was computed"
    differing = inputs.changed(now, noted.inputs)
    more = f" and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
    return f"changed: {', '.join(differing[:NAMED])}{more}" if differing else ""


def check(wanted: Sequence[str], *, analysis: Path = Path("analysis"), folder: Path = Path("figures")) -> list[Checked]:
    """Find the figures whose data are stale, why, and how long they took at the last time; computes nothing."""
    found, notes = [], _notes(folder)
    for name in _chosen(wanted, analysis, folder):
        path = analysis / f"{name}.py"
        module, _ = _loaded(path)
        why = _why(inputs.of(path, module), notes.get(name), folder / f"{name}.nc")
        if not why and not (folder / f"{name}.png").is_file():
            why = f"{name}.png is not there"
        found.append(Checked(name, why, notes[name].seconds if name in notes else None))
    return found


def table(made: Sequence[Drawn]) -> Table:
    """List the figures, whether their data were computed anew, and the number of their files."""
    rows = tuple((each.name, "computed" if each.computed else "kept", str(len(each.files))) for each in made)
    return Table(("figure", "data", "files"), rows)


def checked_table(found: list[Checked]) -> Table:
    """List the stale figures, why, and how long each takes."""
    rows = tuple((each.name, each.why, _seconds(each.seconds)) for each in found if each.why)
    return Table(("figure", "stale because", "time"), rows)


def summary(found: list[Checked]) -> str:
    """Say how many figures are stale, and how long all of them take."""
    stale = [each for each in found if each.why]
    if not stale:
        return f"all {len(found)} figures are fresh"
    known = [each.seconds for each in stale if each.seconds is not None]
    unknown = f" and {len(stale) - len(known)} of unknown time" if len(known) < len(stale) else ""
    return f"{len(stale)} of {len(found)} figures are stale; cocos figures takes {_seconds(sum(known))}{unknown}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min"
