"""The pickles in a file: which names they would import, and the content of a torch file without running any of it."""

from __future__ import annotations

import argparse
import io
import pathlib
import re
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import IO, TYPE_CHECKING

import torch

from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints.files.operations import RUNS_CODE, UNREADABLE, VALUE_NAMES, TooMuch, budget, most_unpacked, names
from cocos.checkpoints.files.rehearsal import UnsafeOperation, rehearse
from cocos.checkpoints.files.values import NUMPY_STAND_INS, bare

if TYPE_CHECKING:
    from cocos.checkpoints.files.file import File

SAVE_INSTEAD = "save tensors instead: torch.save(model.state_dict(), FILE)"
MAX_PICKLE = 2**26  # bytes of one pickle in an archive, without the numbers of its tensors
LEGACY_PICKLES = 5  # of a torch file before 1.6: magic number, version, machine, object, keys of storages


# Classes that training scripts leave in checkpoints and that only hold values, by the name that a file gives.
VALUE_CLASSES = {
    "argparse.Namespace": argparse.Namespace,
    "types.SimpleNamespace": types.SimpleNamespace,
    **{f"{home}.PosixPath": pathlib.PurePosixPath for home in ("pathlib", "pathlib._local")},
    **{f"{home}.WindowsPath": pathlib.PureWindowsPath for home in ("pathlib", "pathlib._local")},
    **NUMPY_STAND_INS,
}


def _inert(name: str) -> bool:
    """Whether cocos stands in for, or refuses, the class of this name, so that it never receives anything."""
    return name in VALUE_CLASSES or name.startswith("torch.nn.modules.") or not VALUE_NAMES.match(name)


@dataclass(frozen=True)
class Pickles:
    """The pickles in a file; one without pickles imports nothing."""

    file: File

    def _streams(self) -> Iterator[IO[bytes]]:
        """Streams that each stand at the start of a pickle."""
        kind, members = self.file.kind, self.file.members
        if kind in {"torch legacy", "pickle"}:
            with self.file.stream() as stream:
                for _ in range(LEGACY_PICKLES if kind == "torch legacy" else 1):
                    yield stream
        elif members:
            endings = (".pkl", ".pt", ".pth") if kind == "pt2" else (".pkl",)
            yield from (self._member(name) for name in members if name.endswith(endings))

    def _member(self, name: str) -> IO[bytes]:
        about = self.file.members[name]
        if about.file_size > min(MAX_PICKLE, most_unpacked(self.file.size)):
            raise TooMuch(f"a pickle of {about.file_size} bytes")
        with self.file.archive() as archive:
            return io.BytesIO(archive.read(name))

    @cached_property
    def _rehearsed(self) -> tuple[set[str], Exception | None]:
        """Names that a torch file imports, and the reason not to load it."""
        found: set[str] = set()
        try:
            self._rehearse(found)
        except Exception as error:  # a damaged or hostile file may fail anywhere
            return found, error
        return found, None

    def _rehearse(self, found: set[str]) -> None:
        legacy, asked, left = self.file.kind == "torch legacy", {}, budget()
        top = None if legacy else self._top()

        def fits(key: str, number: int) -> None:
            if legacy:
                room = self.file.size - sum(asked.values())
            else:
                about = self.file.members.get(f"{top}/data/{key}")
                room = about.file_size if about else 0
            if number > room:
                raise ValueError(f"storage {key[:40]} of {number} bytes, of which the file has {room}")
            asked[key] = number

        for stream in self._streams() if legacy else [self._member(f"{top}/data.pkl")]:
            rehearse(stream, fits, _inert, found, left)

    def _top(self) -> str:
        """Find the folder in the archive that torch reads: that of the first member."""
        with self.file.archive() as archive:
            every = archive.infolist()
        if len({info.filename.casefold() for info in every}) < len(every):
            raise ValueError("two members of its archive have one name")
        if (total := sum(info.file_size for info in every)) > most_unpacked(self.file.size):
            raise TooMuch(f"{total} bytes are packed into {self.file.size}")
        with self.file.stream() as stream:
            stream.seek(-22, io.SEEK_END)
            if not re.fullmatch(rb"PK\x05\x06.{16}\0\0", stream.read(22), re.DOTALL):
                raise ValueError("something follows its directory")
        return every[0].filename.partition("/")[0]

    @cached_property
    def imports(self) -> set[str]:
        """Names that the pickles would import if they were loaded the unsafe way."""
        if self.file.is_torch:
            found, problem = self._rehearsed
            if problem is None:
                return found
        found, left = set(), budget()
        try:
            for stream in self._streams():
                found.update(names(stream, left))
        except Exception:
            # a damaged or hostile pickle may fail anywhere; what was read so far counts
            found.add(UNREADABLE)
        return found

    @property
    def strange(self) -> list[str]:
        """Names that the file would import and that neither cocos nor torch knows as plain values."""
        return [name for name in sorted(self.imports - VALUE_CLASSES.keys() - {UNREADABLE}) if _inert(name)]

    @property
    def foreign(self) -> list[str]:
        """Strange names whose code would have to be imported: from models and libraries, not from Python."""
        return [name for name in self.strange if not name.startswith(("builtins.", "collections."))]

    @property
    def refused(self) -> list[str]:
        """Names for which the file is refused: those that would run code, or else those of unknown classes."""
        calls = sorted(name for name in self.imports if RUNS_CODE.match(name))
        return calls or self.strange

    @property
    def values(self) -> list[str]:
        """Names of classes of plain values, such as `argparse.Namespace`, that are read without being imported."""
        return sorted(self.imports & VALUE_CLASSES.keys())

    def refuse_code(self) -> None:
        """Refuse a file that asks for code to be run."""
        calls = sorted(name for name in self.imports if RUNS_CODE.match(name))
        if calls:
            raise UnsafeFile(
                f"{self.file.path} is refused as unsafe: it would run {', '.join(calls[:3])} when loaded. Nothing was "
                "run; do not load it with another tool, and ask its author for tensors only"
            )

    def load(self):
        """Load a torch file with `weights_only=True`, after a rehearsal.

        Raises:
            InputError: the file is damaged, or holds objects of unknown classes (they are named).
            UnsafeFile: it asks for code to be run.
        """
        self.refuse_code()
        problem = self._rehearsed[1]
        if self.foreign and not isinstance(problem, UnsafeOperation | TooMuch):
            raise UnsafeFile(self.needs_code()) from problem
        if problem is not None or self.strange:
            raise InputError(self._why(problem)) from problem
        try:
            with (
                self.file.stream() as stream,
                warnings.catch_warnings(action="ignore"),
                torch.serialization.safe_globals([(item, name) for name, item in VALUE_CLASSES.items()]),
            ):
                content = torch.load(stream, map_location="cpu", weights_only=True)
            return bare(content)
        except Exception as error:  # torch raises almost anything for a damaged file
            raise InputError(self._why(error)) from error

    def needs_code(self) -> str:
        """Name the classes of unknown code among the objects of the file, and say what to do."""
        path, modules = self.file.path, [name for name in self.strange if name.startswith("torch.nn.modules.")]
        if modules:
            return f"{path} is a whole pickled model ({modules[0]}), which needs its code to be run; {SAVE_INSTEAD}"
        return (
            f"{path} holds objects of class {', '.join(self.strange[:3])}, whose code cocos does not run; "
            f"{SAVE_INSTEAD}"
        )

    def _why(self, problem: Exception | None) -> str:
        """Turn a complaint of torch or of the rehearsal into one sentence that says what to do."""
        path = self.file.path
        reason = re.sub(r"\x1b\[[0-9;]*m", "", str(problem or "")).strip()
        reason = reason.rpartition("WeightsUnpickler error:")[2].strip()
        reason = reason.partition("\n")[0].partition(". Please")[0][:120] or "it ends too early"
        if isinstance(problem, UnsafeOperation) or "Unsupported operand" in reason or "pickle protocol" in reason:
            return f"{path} has a pickle protocol that torch cannot read safely; save it again with torch.save(...)"
        if reason.startswith(("an array", "a scalar")):
            return f"{path} holds {reason}, which cocos does not load; {SAVE_INSTEAD}"
        if self.strange:
            return self.needs_code()
        if isinstance(problem, TooMuch):
            size = self.file.size
            return f"{path} asks for more than a file of {size} bytes holds ({reason}); cocos does not load it"
        return f"{path} is a damaged torch file ({reason}); copy it again"
