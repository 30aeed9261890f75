"""The checkpoints of training runs, as they lie on the disk: files in folders, with a number in their names."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import xarray as xr

from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.errors import InputError, unreachable

__all__ = ["Opened", "alpha", "files", "same_classes", "steps", "unnumbered"]

SUFFIXES = (".npz", ".safetensors", ".pt", ".pth", ".tar", ".ckpt", ".bin")
SHOWN = 8  # names of files in a note
DIGITS = 16  # of a number that is no step but an identifier
NUMBER = re.compile(r"\d+")


def _natural(path: Path) -> list:
    """Sorts epoch_2 before epoch_10."""
    parts = NUMBER.split(path.name), [int(number) for number in NUMBER.findall(path.name)]
    return [part for pair in zip(parts[0], [*parts[1], -1], strict=True) for part in pair]


def _numbered(path: Path) -> int | None:
    """The last number in the name of a file, its suffixes aside; None without any."""
    while path.suffix in SUFFIXES:
        path = path.with_suffix("")
    found = NUMBER.findall(path.name)
    return int(found[-1]) if found and len(found[-1]) < DIGITS else None


def files(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """The files of each run, by its name, in the order of their steps.

    Files make one run; they are sorted where each has a number in its name, and stay in their order otherwise. Of
    folders each is a run, whose files are sorted by name, numbers as numbers; hidden files are not its own.

    Args:
        paths: files, or folders.

    Raises:
        InputError: both, something that is not there, a folder without checkpoints, or two folders of one name.
    """
    for path in paths:
        try:
            there = path.exists()
        except OSError as error:
            raise InputError(f"{path}: {unreachable(error)}") from None
        if not there:
            raise InputError(f"{path}: there is no such file or folder")
    folders = [path for path in paths if path.is_dir()]
    if not folders:
        numbered = all(_numbered(path) is not None for path in paths)
        name = paths[0].resolve().parent.name or "run"
        return {name: sorted(paths, key=_natural) if numbered else list(paths)}
    if len(folders) < len(paths):
        other = next(path for path in paths if not path.is_dir())
        raise InputError(f"{folders[0]} is a folder and {other} is a file: give files of one run, or a folder for each")
    runs = {}
    for folder in folders:
        name = folder.resolve().name
        if name in runs:
            raise InputError(f"{folder}: there are two folders of the name {name!r}; rename one, for their lines")
        shown = (path for path in folder.iterdir() if not path.name.startswith("."))
        inside = [path for path in shown if path.is_file() and path.suffix in SUFFIXES]
        if not inside:
            raise InputError(f"{folder}: there is no file with one of the suffixes {', '.join(SUFFIXES)} in it")
        runs[name] = sorted(inside, key=_natural)
    return runs


def steps(runs: dict[str, list[Path]]) -> list[int] | None:
    """The numbers in the names of the files, where they ascend and are those of every run; None otherwise."""
    found = [[_numbered(path) for path in inside] for inside in runs.values()]
    first = found[0]
    if None in first or any(a >= b for a, b in zip(first, first[1:], strict=False)):
        return None
    return first if all(one == first for one in found) else None


def unnumbered(runs: dict[str, list[Path]]) -> str:
    """Why the numbers in the names are no steps, and which steps are taken: a sentence, where `steps` gives None."""
    order, why = "of the names", "the numbers in the names differ between runs"
    for inside in runs.values():
        found = [_numbered(path) for path in inside]
        missing = [path.name for path, number in zip(inside, found, strict=True) if number is None]
        if missing or any(a >= b for a, b in zip(found, found[1:], strict=False)):
            why = f"no number in the name of {missing[0]}" if missing else "the numbers in the names do not ascend"
            names = [path.name for path in inside]
            order = ", ".join(names if len(names) <= SHOWN else [*names[: SHOWN - 2], "...", names[-1]])
            break
    last = max(map(len, runs.values())) - 1
    return f"{why}: " + (f"steps are 0 to {last}, in the order {order}" if last else "the step is 0")


def alpha(checkpoint: Checkpoint) -> float | None:
    """The boundary of the warp that a checkpoint was trained with, where it says so."""
    recorded = checkpoint.recorded.get("warped_softmax", {}) if checkpoint.trained_with == "warped_softmax" else {}
    return float(recorded["alpha"]) if "alpha" in recorded else None


@dataclass(frozen=True)
class Opened:
    """The checkpoints of one run, each opened when its turn comes, so that one at a time is held.

    Args:
        paths: of the files.
        opener: path -> checkpoint.
        split: of its data.
        device: `auto`, `cpu` or `cuda`.
        report: called after each with (files done, files in all); None: nobody is told.
        seen: what was opened, (path, sha256).
    """

    paths: Sequence[Path]
    opener: Callable[[Path], Checkpoint]
    split: str = "train"
    device: str = "auto"
    report: Callable[[int, int], None] | None = None
    seen: list[tuple[str, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[Embeddings]:
        """Samples and proxies of one file after the other.

        Raises:
            InputError: one has no proxies.
        """
        for done, path in enumerate(self.paths, start=1):
            checkpoint = self.opener(path)
            embeddings = checkpoint.embed(self.split, self.device)
            if not embeddings.proxies:
                sides = ", ".join(embeddings.directions)
                raise InputError(
                    f"{path} has no proxies of classes (its directions: {sides}); save embeddings, labels, proxies and "
                    "proxy_labels of each checkpoint: numpy.savez(FILE, embeddings=..., labels=..., proxies=...)"
                )
            self.seen.append((str(path), checkpoint.sha256))
            if self.report:
                self.report(done, len(self.paths))
            yield embeddings


def same_classes(data: xr.Dataset) -> None:
    """Refuse averages over unlike classes: they are other numbers.

    Args:
        data: of `cocos.measures.dtp`.

    Raises:
        InputError: naming a step of a run, and a class that is missing there.
    """
    missing = data["per_class"].isnull()
    for name in missing["run"].values:
        for place, step in enumerate(missing["step"].values):
            absent = missing["class"].values[missing.sel(run=name).isel(step=place).values]
            if len(absent):
                more = f" (and of {len(absent) - 1} more)" if len(absent) > 1 else ""
                raise InputError(
                    f"{name}, step {step:g}: no sample with a proxy of class {absent[0]}{more}, which others have; an "
                    "average over other classes cannot be compared: save the same classes at every step"
                )
