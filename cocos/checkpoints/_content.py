"""What a file is, by its content, and its content without running any of it."""

import argparse
import hashlib
import io
import json
import pathlib
import pickle
import re
import shlex
import types
import warnings
import zipfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO

import safetensors
import safetensors.torch
import torch

from cocos.checkpoints._imports import RUNS_CODE, UNREADABLE, VALUES, names
from cocos.checkpoints._opcodes import TooMuch, budget
from cocos.checkpoints._plain import bare
from cocos.checkpoints._rehearsal import RATIO, SPARE, Protocol, rehearse
from cocos.checkpoints._stream import Directory, Stream, state, written
from cocos.checkpoints._values import NUMPY
from cocos.errors import InputError, UnsafeFile, unreachable

__all__ = ["File", "Placeholder", "describe"]

HEADER = 2**24  # bytes of the header of a safetensors file
PICKLE = 2**26  # bytes of a pickle within a file, apart from the numbers of its tensors
HELD = 2**26  # bytes of a file that is read once and kept: what is hashed is what is read
LEGACY_MAGIC = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # a number, the first pickle of torch files before 1.6
SAVE_INSTEAD = "save tensors instead: torch.save(model.state_dict(), FILE)"
EMBED_INSTEAD = (
    "encode your training data with the frozen model and save the embeddings: numpy.savez(FILE, query=..., "
    "candidate=..., query_group=..., candidate_group=...), or embeddings=..., labels=... of a labelled set, then "
    "`cocos count FILE`"
)


def _inert(name: str) -> bool:
    """Whether a name is of a class that cocos stands in for, or refuses, so that it is never given anything."""
    return name in ALLOWED or name.startswith("torch.nn.modules.") or not VALUES.match(name)


class Placeholder:
    """Stands for an object of an unknown class: keeps its arguments and state, and does nothing."""

    def __init__(self, *arguments, **keywords):
        self.arguments, self.keywords, self.state = arguments, keywords, None

    def __setstate__(self, state):
        self.state = state


# Classes that training scripts leave in checkpoints and that only hold values, by the name that a file gives.
ALLOWED = {
    "argparse.Namespace": argparse.Namespace,
    "types.SimpleNamespace": types.SimpleNamespace,
    **{f"{home}.PosixPath": pathlib.PurePosixPath for home in ("pathlib", "pathlib._local")},
    **{f"{home}.WindowsPath": pathlib.PureWindowsPath for home in ("pathlib", "pathlib._local")},
    **NUMPY,
}


@dataclass(frozen=True)
class File:
    """A file on disk, by content; a small one is read once, and a change of a large one is noticed.

    Args:
        path: of the file.
        placeholders: put inert placeholders where the file has objects of unknown classes.

    Raises:
        InputError: there is no such file, it cannot be read, or hardly any of it was ever written.
    """

    path: Path
    placeholders: bool = False
    _state: tuple = field(default=(), init=False, repr=False)

    def __post_init__(self):
        try:
            folder, there = self.path.is_dir(), self.path.exists()
        except OSError as error:
            raise InputError(f"{self.path}: {unreachable(error)}") from None
        if folder:
            raise InputError(f"{self.path} is a folder; name a checkpoint file or a file of embeddings in it")
        if not there:
            raise InputError(f"{self.path}: there is no such file")
        if not self.path.is_file():
            raise InputError(f"{self.path} is no regular file but a pipe or device; write its content to a file first")
        try:
            with open(self.path, "rb") as stream:
                object.__setattr__(self, "_state", state(stream))
                stream.read(1)
                there = written(stream, SPARE)
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}") from None
        if self.size > max(SPARE, RATIO * there):
            raise InputError(
                f"{self.path} is {self.size} bytes long, of which {there} were ever written (an unfinished "
                "download?); copy it again"
            )

    @property
    def size(self) -> int:
        """Bytes."""
        return self._state[2]

    @cached_property
    def held(self) -> bytes | None:
        """The bytes of a small file, None of a large one.

        Raises:
            InputError: it changes.
        """
        if self.size > HELD:
            return None
        with open(self.path, "rb") as stream:
            found = stream.read(self.size + 1)
        if len(found) != self.size:
            raise InputError(self._changed())
        return found

    def _changed(self) -> str:
        return f"{self.path} changed while it was read; wait until it is written, and try again"

    def stream(self) -> IO[bytes]:
        """The bytes, from the beginning.

        Raises:
            InputError: the file is no longer the one that was opened.
        """
        if self.held is not None:
            return io.BytesIO(self.held)
        stream = Stream(io.FileIO(self.path))
        if state(stream.raw) != self._state:
            stream.close()
            raise InputError(self._changed())
        return stream

    def refuse_change(self) -> None:
        """Refuse a large file that is no longer the one that was opened.

        Raises:
            InputError: it was written to, or replaced.
        """
        self.stream().close()

    @cached_property
    def sha256(self) -> str:
        """Of the file's bytes, in hexadecimal."""
        with self.stream() as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    @contextmanager
    def archive(self) -> Generator[zipfile.ZipFile]:
        """The file as a zip archive.

        Raises:
            BadZipFile: it is none, or its directory is too large.
        """
        with closing(Directory(self.stream())) as stream, zipfile.ZipFile(stream) as archive:
            stream.most = 0
            yield archive

    @cached_property
    def members(self) -> dict[str, zipfile.ZipInfo] | None:
        """Members of a zip archive, by name; None for anything else, or a damaged one."""
        try:
            with self.archive() as archive:
                return {info.filename: info for info in archive.infolist()}
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
            return None

    @cached_property
    def kind(self) -> str:
        """One word for what the file is."""
        with self.stream() as stream:
            head = stream.read(512)
        inner = {name.split("/", 1)[-1] for name in self.members or ()}
        header = int.from_bytes(head[:8], "little")
        if not head:
            return "empty"
        if head[:4] in {b"PK\x03\x04", b"PK\x05\x06"}:
            if self.members is None:
                return "damaged zip"
            if any(name.endswith(".npy") for name in self.members):
                return "npz"
            if "constants.pkl" in inner or any(name.startswith("code/") for name in inner):
                return "torchscript"
            if "data.pkl" in inner and not any(name.startswith("models/") for name in inner):
                return "torch"
            return "pt2" if any(name.startswith("models/") or name == "archive_format" for name in inner) else "zip"
        if head[0] == 0x80 and LEGACY_MAGIC in head[:32]:
            return "torch legacy"
        if head.startswith(b"\x93NUMPY"):
            return "npy"
        if head.startswith((b"\x89HDF\r\n", b"CDF")):
            return "netcdf"
        if 2 <= header <= 100_000_000 and head[8:9] == b"{":
            return "safetensors"
        if head[257:262] == b"ustar":
            return "tar"
        if head[:2] == b"\x1f\x8b":
            return "gzip"
        if head[0] == 0x80 and len(head) > 1 and head[1] <= pickle.HIGHEST_PROTOCOL:
            return "pickle"
        if self._protocol_0(head):
            return "pickle"
        return "text" if all(byte >= 32 or byte in b"\t\n\r\f" for byte in head) else "unknown"

    def _protocol_0(self, head: bytes) -> bool:
        """A pickle of protocol 0 or 1 has no mark: it must parse to its end and import something."""
        if head[:1] not in {b"c", b"(", b"]", b"}"}:
            return False
        try:
            with self.stream() as stream:
                return any(True for _ in names(stream))
        except ValueError:
            return False

    def _pickles(self) -> Iterator[IO[bytes]]:
        """Streams that each stand at the start of a pickle."""
        if self.kind in {"torch legacy", "pickle"}:
            with self.stream() as stream:
                for _ in range(5 if self.kind == "torch legacy" else 1):  # magic, version, machine, object, keys
                    yield stream
        elif self.members:
            endings = (".pkl", ".pt", ".pth") if self.kind == "pt2" else (".pkl",)
            yield from (self._pickle(name) for name in self.members if name.endswith(endings))

    def _pickle(self, name: str) -> IO[bytes]:
        """A pickle in an archive.

        Raises:
            TooMuch: it is too large.
        """
        about = self.members[name]
        if about.file_size > min(PICKLE, max(SPARE, RATIO * self.size)):
            raise TooMuch(f"a pickle of {about.file_size} bytes")
        with self.archive() as archive:
            return io.BytesIO(archive.read(name))

    @cached_property
    def _rehearsed(self) -> tuple[set[str], Exception | None]:
        """Names that a file of torch imports, and what speaks against loading it."""
        found = set()
        try:
            self._rehearse(found)
        except Exception as error:  # a damaged or hostile file may fail anywhere
            return found, error
        return found, None

    def _rehearse(self, found: set[str]) -> None:
        legacy, asked, left = self.kind == "torch legacy", {}, budget()
        top = None if legacy else self._top()

        def fits(key: str, number: int) -> None:
            if legacy:
                room = self.size - sum(asked.values())
            else:
                about = self.members.get(f"{top}/data/{key}")
                room = about.file_size if about else 0
            if number > room:
                raise ValueError(f"storage {key[:40]} of {number} bytes, of which the file has {room}")
            asked[key] = number

        for stream in self._pickles() if legacy else [self._pickle(f"{top}/data.pkl")]:
            rehearse(stream, fits, _inert, found, left)

    def _top(self) -> str:
        """Folder in the archive that torch reads: the one of the first member.

        Raises:
            TooMuch: its members have more bytes than a file of this size explains.
            ValueError: torch might read another pickle than cocos.
        """
        with self.archive() as archive:
            every = archive.infolist()
        if len({info.filename.casefold() for info in every}) < len(every):
            raise ValueError("two members of its archive have one name")
        if (total := sum(info.file_size for info in every)) > max(SPARE, RATIO * self.size):
            raise TooMuch(f"{total} bytes are packed into {self.size}")
        with self.stream() as stream:
            stream.seek(-22, io.SEEK_END)
            if not re.fullmatch(rb"PK\x05\x06.{16}\0\0", stream.read(22), re.DOTALL):
                raise ValueError("something follows its directory")
        return every[0].filename.partition("/")[0]

    @cached_property
    def imports(self) -> set[str]:
        """Names that the pickles in the file would import if they were loaded the unsafe way."""
        if self.kind in {"torch", "torch legacy"}:
            found, problem = self._rehearsed
            if problem is None:
                return found
        found, left = set(), budget()
        try:
            for stream in self._pickles():
                found.update(names(stream, left))
        except Exception:
            # a damaged or hostile pickle may fail anywhere; what was read so far counts
            found.add(UNREADABLE)
        return found

    def refuse_code(self) -> None:
        """Refuse a file that asks for code to be run.

        Raises:
            UnsafeFile: naming what it asks for.
        """
        calls = sorted(name for name in self.imports if RUNS_CODE.match(name))
        if calls:
            raise UnsafeFile(
                f"{self.path} is refused as unsafe: it would run {', '.join(calls[:3])} when loaded. Nothing was run; "
                "do not load it with another tool, and ask its author for tensors only"
            )

    @cached_property
    def content(self):
        """What a torch file or safetensors file holds, loaded with `weights_only=True`; None for other kinds.

        Raises:
            InputError: the file is damaged, or holds objects of unknown classes (they are named).
            UnsafeFile: it asks for code to be run.
        """
        if self.kind == "safetensors":
            return self._safetensors()
        if self.kind not in {"torch", "torch legacy"}:
            return None
        self.refuse_code()
        problem = self._rehearsed[1]
        if self.foreign and not self.placeholders and not isinstance(problem, Protocol | TooMuch):
            raise UnsafeFile(self.needs_code()) from problem
        if problem is not None or self.strange and not self.placeholders:
            raise InputError(self._why(problem)) from problem
        allowed = dict(ALLOWED)
        if self.placeholders:
            allowed |= {name: type(name.rsplit(".", 1)[-1], (Placeholder,), {}) for name in self.strange}
        try:
            with (
                self.stream() as stream,
                warnings.catch_warnings(action="ignore"),
                torch.serialization.safe_globals([(item, name) for name, item in allowed.items()]),
            ):
                content = torch.load(stream, map_location="cpu", weights_only=True)
            return bare(content, placeholders=self.placeholders)
        except Exception as error:  # torch raises almost anything for a damaged file
            raise InputError(self._why(error)) from error

    def _safetensors(self) -> dict[str, torch.Tensor]:
        """Tensors of a safetensors file, copied: a mapped file that shrinks ends the process.

        Raises:
            InputError: it is damaged, or changes.
        """
        if (header := self._header()) > HEADER:
            raise InputError(f"{self.path} is a damaged safetensors file: a header of {header} bytes")
        try:
            if self.held is not None:
                return safetensors.torch.load(self.held)
            found = {name: tensor.clone() for name, tensor in safetensors.torch.load_file(self.path).items()}
        except (safetensors.SafetensorError, ValueError, KeyError) as error:
            raise InputError(f"{self.path} is a damaged safetensors file: {error}") from error
        self.refuse_change()
        return found

    def _header(self) -> int:
        """Bytes of the header of a safetensors file."""
        with self.stream() as stream:
            return int.from_bytes(stream.read(8), "little")

    @property
    def strange(self) -> list[str]:
        """Names that the file would import and that neither cocos nor torch knows as plain values."""
        return [name for name in sorted(self.imports - ALLOWED.keys() - {UNREADABLE}) if _inert(name)]

    @property
    def foreign(self) -> list[str]:
        """Those of the strange names whose code would have to be imported: of models and libraries, not of Python."""
        return [name for name in self.strange if not name.startswith(("builtins.", "collections."))]

    def needs_code(self) -> str:
        """Which classes of its objects are of unknown code, and what to do."""
        modules = [name for name in self.strange if name.startswith("torch.nn.modules.")]
        if modules:
            return (
                f"{self.path} is a whole pickled model ({modules[0]}), which needs its code to be run; {SAVE_INSTEAD}"
            )
        return (
            f"{self.path} holds objects of class {', '.join(self.strange[:3])}, whose code cocos does not run; "
            f"{SAVE_INSTEAD}, or read it with placeholders and your own --model function (--trust)"
        )

    def _why(self, problem: Exception | None) -> str:
        """Torch's complaint, or that of the rehearsal, as one sentence that says what to do."""
        reason = (
            re.sub(r"\x1b\[[0-9;]*m", "", str(problem or "")).strip().rpartition("WeightsUnpickler error:")[2].strip()
        )
        reason = reason.partition("\n")[0].partition(". Please")[0][:120] or "it ends too early"
        if isinstance(problem, Protocol) or "Unsupported operand" in reason or "pickle protocol" in reason:
            return (
                f"{self.path} has a pickle protocol that torch cannot read safely; save it again with torch.save(...)"
            )
        if reason.startswith(("an array", "a scalar")):
            return f"{self.path} holds {reason}, which cocos does not load; {SAVE_INSTEAD}"
        if self.strange:
            return self.needs_code()
        if isinstance(problem, TooMuch):
            return (
                f"{self.path} asks for more than a file of {self.size} bytes holds ({reason}); cocos does not load it"
            )
        return f"{self.path} is a damaged torch file ({reason}); copy it again"

    @cached_property
    def metadata(self) -> dict[str, str]:
        """Metadata strings of a safetensors file; empty for other kinds.

        Raises:
            InputError: the file is damaged.
        """
        if self.kind != "safetensors":
            return {}
        _ = self.content  # it checks the header
        with self.stream() as stream:
            stream.seek(8)
            return json.loads(stream.read(self._header())).get("__metadata__") or {}


PROGRAMS = {"torchscript", "pt2"}
WHAT = {
    "empty": "is empty (0 bytes); copy it again",
    "damaged zip": "is a truncated or damaged zip archive (a torch or npz file cut short?); copy it again",
    "torchscript": f"is a TorchScript archive, a program; {SAVE_INSTEAD}",
    "pt2": f"is a torch.export program, which can run code when it is loaded; {SAVE_INSTEAD}",
    "zip": "is a zip archive, but not of torch or numpy; unpack it and name the checkpoint inside",
    "npy": "is a single numpy array, of one side; cocos reads both from one file, which this writes: {}. Row i then "
    "matches row i; query_group= and candidate_group= say otherwise, and a labelled set has embeddings= and labels=",
    "netcdf": "is an HDF5 or netCDF file (a result of cocos?); open it with cocos.results.open_dataset",
    "tar": "is a tar archive; unpack it and name the checkpoint inside",
    "gzip": "is compressed with gzip; unpack it first",
    "pickle": f"is a plain Python pickle, which cocos does not load; {EMBED_INSTEAD}",
    "text": "is a text file, not a checkpoint (a download that failed, or a Git LFS pointer?)",
    "unknown": "is no format that cocos knows (torch, safetensors, npz)",
}


def _joining(path: Path) -> str:
    """The command that puts an array and the only other one beside it into one file; neither is read whole."""
    others = [each for each in path.parent.glob("*.npy") if each.name != path.name]
    other = others[0] if len(others) == 1 else path.with_name("candidates.npy")
    both = path.with_name(f"{path.stem}_and_{other.stem}.npz")
    saved, *read = (json.dumps(str(each), ensure_ascii=False) for each in (both, path, other))
    query, candidate = (f'n.load({name}, "r")' for name in read)
    return "python -c " + shlex.quote(f"import numpy as n; n.savez({saved}, query={query}, candidate={candidate})")


def describe(file: File) -> str:
    """Say what a file that no format recognises is, and what to do with it.

    Raises:
        UnsafeFile: it asks for code to be run.
    """
    if file.kind not in PROGRAMS or any(
        RUNS_CODE.match(name) for name in file.imports if not name.startswith("torch.")
    ):
        file.refuse_code()  # a program of torch imports from torch, and is refused with its own advice
    if file.kind == "pickle" and file.foreign:
        raise UnsafeFile(file.needs_code())
    if file.kind in WHAT:
        said = WHAT[file.kind]
        return f"{file.path} {said.format(_joining(file.path)) if file.kind == 'npy' else said}"
    if file.kind == "npz":
        return f"{file.path} holds arrays, but none called query, candidate or embeddings; {EMBED_INSTEAD}"
    content = file.content
    if not isinstance(content, dict):
        return f"{file.path} holds a {type(content).__name__}, not named tensors; {EMBED_INSTEAD}"
    tensors = {k: v for k, v in content.items() if isinstance(v, torch.Tensor)}
    if tensors and len(tensors) == len(content):
        heads = list(dict.fromkeys(str(k)[:40].split(".")[0] for k in tensors))
        return (
            f"{file.path} is a bare state dict of {len(tensors)} tensors ({', '.join(heads[:6])}), which does not say "
            f"which model or data it belongs to; {EMBED_INSTEAD}, or name your own --model function"
        )
    keys = ", ".join(str(k)[:40] for k in list(content)[:8])
    return (
        f"{file.path} is a training checkpoint of an architecture that cocos does not know (keys {keys}); "
        f"{EMBED_INSTEAD}, or name your own --model function"
    )
