"""Series: the checkpoints of one training run, files or folders with the number of the step in their names."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cocos.base.errors import InputError, unreachable
from cocos.checkpoints import Checkpoint
from cocos.checkpoints._runs import CHECKPOINT_SUFFIXES, Member, members, natural
from cocos.checkpoints.files import file_or_folder
from cocos.checkpoints.formats import format_of
from cocos.embeddings import Embeddings

__all__ = ["Member", "Series", "files", "recorded_alpha", "steps", "unnumbered"]

NAMES_SHOWN = 8  # names of files in a note
RUNS_SHOWN = 4  # folders of runs in a sentence
READ_BY_THEMSELVES = (".jsonl", ".nc")  # suffixes of stores and results, which are no checkpoints


def files(paths: Sequence[Path]) -> dict[str, list[Member]]:
    """Find the checkpoints of each training run, by its name, in the order of their steps.

    Files make one run: sorted if each has a number in its name, and in the order given otherwise. Each folder is a
    run, whose checkpoints are files, folders of models, or the folder itself where it is a model without any step.

    Args:
        paths: files, or folders.

    Raises:
        InputError: both, something that is not there, a folder without checkpoints or around several runs, or two
            folders of one name.
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
        given = [Member.of(path) for path in paths]
        in_order = all(each.step is not None for each in given)
        name = paths[0].resolve().parent.name or "run"
        return {name: sorted(given, key=lambda each: (each.step, natural(each.name))) if in_order else given}
    if len(folders) < len(paths):
        other = next(path for path in paths if not path.is_dir())
        raise InputError(f"{folders[0]} is a folder and {other} is a file: give files of one run, or a folder for each")
    runs = {}
    for folder in folders:
        name = folder.resolve().name
        if name in runs:
            raise InputError(f"{folder}: there are two folders of the name {name!r}; rename one, for their lines")
        runs[name] = _inside(folder)
    return runs


def _inside(path: Path) -> list[Member]:
    """List the checkpoints of one run."""
    folder = file_or_folder(path)
    found = members(folder)
    if not any(each.step is not None for each in found) and _is_model(folder):
        return [Member(path, path.resolve().name, None)]
    if not found:
        others = sorted(name for name in folder.names if name.endswith(READ_BY_THEMSELVES))
        hint = f"; give {shlex.quote(str(path / others[0]))} itself" if others else ""
        raise InputError(
            f"{path}: there is no file with one of the suffixes {', '.join(CHECKPOINT_SUFFIXES)} in it, and no folder "
            f"of a model{hint}"
        )
    within = sorted({each.run for each in found if each.step is not None}, key=natural)
    if "" in within:  # folders beside the checkpoints hold other things
        found, within = [each for each in found if not each.run], [""]
    if len(within) > 1:
        some = " ".join(shlex.quote(str(path / each)) for each in within[:RUNS_SHOWN])
        raise InputError(f"{path} holds the checkpoints of {len(within)} runs; name the folder of each: {some}")
    whole = all(each.step is not None for each in found)
    return found if whole else sorted(found, key=lambda each: natural(each.name))


def _is_model(folder) -> bool:
    """Whether a folder is of a known format."""
    try:
        return format_of(folder) is not None
    except InputError:
        return False


def steps(runs: dict[str, list[Member]]) -> list[int] | None:
    """Read the steps from the names of the files; None unless they ascend and all runs have the same."""
    found = [[each.step for each in inside] for inside in runs.values()]
    first = found[0]
    if not _ascend(first):
        return None
    return first if all(one == first for one in found) else None


def _ascend(found: Sequence[int | None]) -> bool:
    """Whether each has a step, and each but the first a larger one than the one before."""
    return None not in found and all(a < b for a, b in zip(found, found[1:], strict=False))


def unnumbered(runs: dict[str, list[Member]]) -> str:
    """Say why the numbers in the names are no steps, and which steps are used, where `steps` gives None."""
    order, why = "of the names", "the numbers in the names differ between runs"
    for inside in runs.values():
        missing = [each.name for each in inside if each.step is None]
        if not _ascend([each.step for each in inside]):
            why = f"no number in the name of {missing[0]}" if missing else "the numbers in the names do not ascend"
            names = [each.name for each in inside]
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
        members: the checkpoints.
        opener: path -> checkpoint.
        split: of its data.
        device: `auto`, `cpu` or `cuda`.
        report: called after each with (files done, files in all), or None.
        seen: path and sha256 of each checkpoint that was opened.
    """

    members: Sequence[Member]
    opener: Callable[[Path], Checkpoint]
    split: str = "train"
    device: str = "auto"
    report: Callable[[int, int], None] | None = None
    seen: list[tuple[str, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Embeddings]:
        """Yield the samples and proxies of one checkpoint after the other.

        Raises:
            InputError: one has no proxies.
        """
        for done, path in enumerate((each.path for each in self.members), start=1):
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
                self.report(done, len(self.members))
            yield embeddings
