"""The checkpoints of a run: those that are measured, and those of an earlier Dataset whose numbers still hold."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cocos.base.errors import InputError, NotFinite
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings


def stamp(checkpoint: Checkpoint) -> str:
    """Size and time of the files that a checkpoint depends on beside its own bytes: its data, and a mapped file."""
    identity, training = checkpoint.identity(), checkpoint.training
    found = [identity.get("checkpoint_mapped", ""), identity.get("data_kind", "")]
    if training is not None and training.path is not None:
        files = [training.path] if training.path.is_file() else _files(training.path)
        states = [file.stat() for file in files]
        total, newest = sum(each.st_size for each in states), max((each.st_mtime_ns for each in states), default=0)
        found += [str(training.path), f"{len(states)} {total} {newest}"]
    return "|".join(found)


def _files(folder: Path) -> list[Path]:
    return [Path(place, name) for place, _, names in os.walk(folder) for name in names]


def _place(known: xr.Dataset, given: Embeddings | Checkpoint) -> int | None:
    """Place of a checkpoint in an earlier Dataset; None where it is not there, or is code of the user's."""
    if not isinstance(given, Checkpoint) or given.format == "own" or not (given.sha256 or given.mapped):
        return None
    if given.training is not None and given.training.kind == "own":
        return None
    same = (known["sha256"].values == given.sha256) & (known["stamp"].values == stamp(given))
    return int(np.flatnonzero(same)[0]) if same.any() else None


@dataclass
class Checkpoints:
    """Checkpoints that were measured, those that were left out, and a Dataset of an earlier call.

    Args:
        options: what the numbers depend on.
        known: of an earlier call; None, or of other options: nothing is taken from it.
    """

    options: str
    known: xr.Dataset | None
    parts: list[tuple[int, xr.Dataset]] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    errors: list[InputError] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    since: float = field(default_factory=time.monotonic)

    def __post_init__(self):
        if self.known is not None and (self.known.attrs.get("options") != self.options or "stamp" not in self.known):
            self.known = None

    def earlier(self, given: Embeddings | Checkpoint) -> xr.Dataset | None:
        """The numbers of the same bytes and data in the earlier Dataset."""
        place = None if self.known is None else _place(self.known, given)
        if place is None:
            return None
        self.taken.append(place)
        data = self._entry(place)
        data["file"] = ((), str(given.path), data["file"].attrs)  # type: ignore[union-attr]
        return data

    def _entry(self, place: int) -> xr.Dataset:
        """One checkpoint of the earlier Dataset."""
        assert self.known is not None
        return self.known.isel(checkpoint=place).drop_vars(["checkpoint", "alarm"], errors="ignore")

    @property
    def so_far(self) -> list[tuple[int, xr.Dataset]]:
        """What is measured, and what is left of the earlier Dataset, which an interrupted run may not lose."""
        if self.known is None:
            return self.parts
        steps = self.known["checkpoint"].values
        rest = [(int(step), self._entry(k)) for k, step in enumerate(steps) if k not in self.taken]
        return sorted([*self.parts, *rest], key=lambda each: each[0])

    def leave_out(self, step: int, name: str, error: InputError) -> None:
        """Note a checkpoint that cannot be measured."""
        finite = not isinstance(error, NotFinite)
        self.left_out.append({"file": name, "step": step, "reason": str(error), "finite": finite})
        self.errors.append(error)

    def add(self, step: int, name: str, data: xr.Dataset) -> None:
        """Keep a checkpoint."""
        if self.parts:
            (_, first) = self.parts[0]
            sides = [", ".join(map(str, each["direction"].values)) for each in (first, data)]
            if sides[0] != sides[1]:
                raise InputError(
                    f"{name}: its directions are {sides[1]}, and those of the checkpoints before {sides[0]}"
                )
            if first.attrs["loss"] != data.attrs["loss"]:
                raise InputError(
                    f"{name} was trained with {data.attrs['loss']}, and checkpoints before it with "
                    f"{first.attrs['loss']}; name the loss that is counted of all of them"
                )
        self.parts.append((step, data))
