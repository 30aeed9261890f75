"""Series: the checkpoints of one training run, files on the disk with the number of the step in their names."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cocos.checkpoints import Checkpoint
from cocos.checkpoints._runs import CHECKPOINT_SUFFIXES, natural, numbered
from cocos.embeddings import Embeddings
from cocos.errors import InputError, unreachable

__all__ = ["Series", "files", "recorded_alpha", "steps", "unnumbered"]

NAMES_SHOWN = 8  # names of files in a note


def files(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """Find the files of each training run, by its name, in the order of their steps.

    Files make one run: sorted if each has a number in its name, and in the order given otherwise. Each folder is a
    run, whose files are sorted by name, numbers as numbers; hidden files are left out.

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
        in_order = all(numbered(path.name) is not None for path in paths)
        name = paths[0].resolve().parent.name or "run"
        return {name: sorted(paths, key=lambda path: natural(path.name)) if in_order else list(paths)}
    if len(folders) < len(paths):
        other = next(path for path in paths if not path.is_dir())
        raise InputError(f"{folders[0]} is a folder and {other} is a file: give files of one run, or a folder for each")
    runs = {}
    for folder in folders:
        name = folder.resolve().name
        if name in runs:
            raise InputError(f"{folder}: there are two folders of the name {name!r}; rename one, for their lines")
        shown = (path for path in folder.iterdir() if not path.name.startswith("."))
        inside = [path for path in shown if path.is_file() and path.suffix in CHECKPOINT_SUFFIXES]
        if not inside:
            raise InputError(
                f"{folder}: there is no file with one of the suffixes {', '.join(CHECKPOINT_SUFFIXES)} in it"
            )
        runs[name] = sorted(inside, key=lambda path: natural(path.name))
    return runs


def steps(runs: dict[str, list[Path]]) -> list[int] | None:
    """Read the steps from the names of the files; None unless they ascend and all runs have the same."""
    found = [[numbered(path.name) for path in inside] for inside in runs.values()]
    first = found[0]
    if None in first or any(a >= b for a, b in zip(first, first[1:], strict=False)):
        return None
    return first if all(one == first for one in found) else None


def unnumbered(runs: dict[str, list[Path]]) -> str:
    """Say why the numbers in the names are no steps, and which steps are used, where `steps` gives None."""
    order, why = "of the names", "the numbers in the names differ between runs"
    for inside in runs.values():
        found = [numbered(path.name) for path in inside]
        missing = [path.name for path, number in zip(inside, found, strict=True) if number is None]
        if missing or any(a >= b for a, b in zip(found, found[1:], strict=False)):
            why = f"no number in the name of {missing[0]}" if missing else "the numbers in the names do not ascend"
            names = [path.name for path in inside]
            order = ", ".join(names if len(names) <= NAMES_SHOWN else [*names[: NAMES_SHOWN - 2], "...", names[-1]])
            break
    last = max(map(len, runs.values())) - 1
    return f"{why}: " + (f"steps are 0 to {last}, in the order {order}" if last else "the step is 0")


def recorded_alpha(checkpoint: Checkpoint) -> float | None:
    """Return the boundary of the warp that a checkpoint was trained with; None if it does not say."""
    recorded = checkpoint.recorded.get("warped_softmax", {}) if checkpoint.trained_with == "warped_softmax" else {}
    return float(recorded["alpha"]) if "alpha" in recorded else None


@dataclass(frozen=True)
class Series:
    """The checkpoints of one training run, opened one after the other, so that only one is in memory.

    Args:
        paths: of the files.
        opener: path -> checkpoint.
        split: of its data.
        device: `auto`, `cpu` or `cuda`.
        report: called after each with (files done, files in all), or None.
        seen: path and sha256 of each checkpoint that was opened.
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
        """Yield the samples and proxies of one file after the other.

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
