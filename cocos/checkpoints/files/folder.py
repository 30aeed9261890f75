"""A folder of files that belong together, such as a Hugging Face model."""

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cocos.base.errors import InputError, unreachable
from cocos.base.untrusted import parsed
from cocos.checkpoints.files.file import File

# Largest number of files of a folder, and of folders within folders; a model has tens, a training run thousands.
MAX_FILES, MAX_DEPTH = 20_000, 8
# Largest number of bytes of a text file, unless the caller allows another.
MAX_TEXT = 2**22
# Files that do not change what a model computes here: exports to other frameworks, the state of the training, prose.
NOT_WEIGHTS = re.compile(
    r"(^|/)(onnx|openvino|coreml|runs|logs|checkpoint-\d+)/|\.(h5|onnx|msgpack|ot|tflite|md|png|jpe?g|log|py)$"
    r"|(^|/)(optimizer|scheduler|scaler|rng_state\w*|training_args)\.(pt|pth|bin)$"
)


@dataclass(frozen=True, eq=False)
class Folder:
    """A folder whose files are read like `File`: nothing in them is executed.

    A file that is a link to a place outside of the folder is listed and not read, except a link into the store of the
    Hugging Face cache that the folder belongs to.
    """

    path: Path
    kind: str = field(default="folder", init=False)
    is_torch: bool = field(default=False, init=False)
    content: None = field(default=None, init=False)
    members: None = field(default=None, init=False)
    _opened: dict[str, File] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        _ = self._entries

    @property
    def record(self) -> dict:
        """Nothing: a folder has no content of its own."""
        return {}

    @property
    def metadata(self) -> dict:
        """Nothing: a folder has no metadata of its own."""
        return {}

    @cached_property
    def _entries(self) -> dict[str, Path]:
        """Files by their names in the folder, sorted."""
        return dict(sorted(_listed(self.path)))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files, relative to the folder, with `/`; hidden files are left out."""
        return tuple(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return self._entry(name).stat().st_size

    def _entry(self, name: str) -> Path:
        """Find a file that may be read."""
        if name not in self._entries:
            raise InputError(f"{self.path} has no file {name[:100]!r}")
        entry = self._entries[name]
        if not _inside(entry, self.path):
            raise InputError(f"{entry} is a link to a place outside of {self.path}; copy the file into the folder")
        return entry

    def file(self, name: str) -> File:
        """Open a file of the folder; the same object at each call."""
        if name not in self._opened:
            self._opened[name] = File(self._entry(name))
        return self._opened[name]

    def text(self, name: str, most: int = MAX_TEXT) -> str:
        """Read a text file up to a size in bytes."""
        try:
            return self._bytes(name, most).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InputError(f"{self.path / name} is no text in UTF-8") from None

    def _bytes(self, name: str, most: int) -> bytes:
        if (size := self.size(name)) > most:
            raise InputError(f"{self.path / name} is {size} bytes long, expected at most {most}")
        return self.head(name, most + 1)

    def head(self, name: str, most: int) -> bytes:
        """Read at most `most` bytes from the beginning of a file."""
        with self.file(name).stream() as stream:
            return stream.read(most)

    def json(self, name: str, most: int = MAX_TEXT):
        """Read a JSON file up to a size in bytes, as plain data."""
        raw = self._bytes(name, most)
        try:
            return parsed(raw)
        except ValueError as error:
            raise InputError(f"{self.path / name} is no JSON ({str(error)[:100]})") from None

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the names and the SHA-256 of the files that a model may be built from."""
        found = hashlib.sha256()
        for name in self.names:
            if not NOT_WEIGHTS.search(name) and _inside(self._entries[name], self.path):
                found.update(f"{name}\0{self.file(name).sha256}\n".encode("utf-8", "surrogateescape"))
        return found.hexdigest()


def _inside(path: Path, folder: Path) -> bool:
    """Whether a file lies in a folder once links are followed, or in the store of the Hugging Face cache around it."""
    root, place = Path(os.path.realpath(folder)), Path(os.path.realpath(path))
    store = [root.parent.parent / "blobs"] if root.parent.name == "snapshots" else []
    return any(place.is_relative_to(each) for each in (root, *store))


def _listed(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the regular files of a folder; links to folders are not followed."""

    def refused(error: OSError) -> None:
        if Path(error.filename) == folder:
            raise InputError(f"{folder}: {unreachable(error)}")

    number = 0
    for at, inner, files in os.walk(folder, onerror=refused):
        place = Path(at).relative_to(folder)
        deep = len(place.parts) >= MAX_DEPTH
        inner[:] = [] if deep else sorted(name for name in inner if not name.startswith((".", "__pycache__")))
        for name in files:
            if (number := number + 1) > MAX_FILES:
                raise InputError(f"{folder} has more than {MAX_FILES} files; name the folder of one model in it")
            if not name.startswith(".") and (path := Path(at) / name).is_file():
                yield (place / name).as_posix(), path


def file_or_folder(path: Path) -> File | Folder:
    """Open a folder, or any other file."""
    try:
        if path.is_dir():
            return Folder(path)
    except OSError as error:
        raise InputError(f"{path}: {unreachable(error)}") from None
    return File(path)
