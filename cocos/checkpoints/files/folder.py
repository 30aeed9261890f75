"""A folder of files that belong together, such as a Hugging Face model; on disk or in a zip archive of one."""

import hashlib
import os
import re
import shutil
import stat
import tempfile
import weakref
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath

from cocos.base.errors import InputError, unreachable
from cocos.base.untrusted import parsed, refuse_long
from cocos.checkpoints.files.file import File
from cocos.checkpoints.files.operations import most_unpacked

# Largest number of files of a folder, and of folders within folders; a model has tens, a training run thousands.
MAX_FILES, MAX_DEPTH = 20_000, 8
# Largest number of bytes of a text file, unless the caller allows another.
MAX_TEXT = 2**22
UNPACKED_AT_ONCE = 2**20  # bytes that are unpacked at once
# Files that do not change what a model computes here: exports to other frameworks, the state of the training, prose.
NOT_WEIGHTS = re.compile(
    r"(^|/)(onnx|openvino|coreml|runs|logs|checkpoint-\d+)/|\.(h5|onnx|msgpack|ot|tflite|md|png|jpe?g|log|py)$"
    r"|(^|/)(optimizer|scheduler|scaler|rng_state\w*|training_args)\.(pt|pth|bin)$"
)


@dataclass(frozen=True, eq=False)
class Folder:
    """A folder, or a zip archive of one, whose files are read like `File`: nothing in them is executed.

    A file that is a link to a place outside of the folder is listed and not read, except a link into the store of the
    Hugging Face cache that the folder belongs to. A zip archive is measured before anything of it is unpacked, and
    unpacked file by file, into a temporary folder that goes with this object.

    Args:
        path: of the folder, or of the archive.
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
    def _zip(self) -> File | None:
        """The archive; None of a folder on disk."""
        return None if self.path.is_dir() else File(self.path)

    @cached_property
    def _entries(self) -> dict[str, Path | zipfile.ZipInfo]:
        """Files by their names in the folder, sorted."""
        return dict(sorted(_packed(self._zip).items() if self._zip else _listed(self.path)))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files, relative to the folder, with `/`; hidden files are left out."""
        return tuple(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def size(self, name: str) -> int:
        """Bytes of a file, unpacked."""
        entry = self._entry(name)
        return entry.file_size if isinstance(entry, zipfile.ZipInfo) else entry.stat().st_size

    def _entry(self, name: str) -> Path | zipfile.ZipInfo:
        """Find a file that may be read."""
        if name not in self._entries:
            raise InputError(f"{self.path} has no file {name[:100]!r}")
        entry = self._entries[name]
        if isinstance(entry, Path) and not _inside(entry, self.path):
            raise InputError(f"{entry} is a link to a place outside of {self.path}; copy the file into the folder")
        return entry

    def file(self, name: str) -> File:
        """Open a file of the folder; the same object at each call."""
        if name not in self._opened:
            entry = self._entry(name)
            at = entry if isinstance(entry, Path) else self._unpacked(name, entry)
            self._opened[name] = File(self.path / name, at=at)
        return self._opened[name]

    @cached_property
    def _place(self) -> Path:
        """Temporary folder for the files of an archive, removed with this object."""
        made = Path(tempfile.mkdtemp(prefix="cocos-"))
        weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
        return made

    def _unpacked(self, name: str, entry: zipfile.ZipInfo) -> Path:
        """Unpack one file; `zipfile` reads as many bytes as the archive says and no more."""
        target = self._place / str(len(self._opened))
        try:
            with self._zip.archive() as archive, archive.open(entry) as packed, open(target, "wb") as stream:
                shutil.copyfileobj(packed, stream, UNPACKED_AT_ONCE)
        except Exception as error:  # zipfile and zlib each have their own for a damaged or hostile archive
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            raise InputError(f"{self.path}: its member {name[:100]!r} is damaged ({reason}); copy it again") from error
        return target

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
        """SHA-256 of the archive; or of the names and the SHA-256 of the files that a model may be built from."""
        if self._zip:
            return self._zip.sha256
        found = hashlib.sha256()
        for name in self.names:
            if not NOT_WEIGHTS.search(name) and _inside(self._entries[name], self.path):
                found.update(f"{name}\0{self.file(name).sha256}\n".encode("utf-8", "surrogateescape"))
        return found.hexdigest()

    def refuse_change(self) -> None:
        """Refuse a folder of which a file that was read is no longer the one that was opened."""
        for each in self._opened.values():
            each.refuse_change()


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


def _packed(file: File) -> dict[str, zipfile.ZipInfo]:
    """List the members of a zip archive, without a folder that is around all of them."""
    if file.members is None:
        raise InputError(f"{file.path} is no folder, and no zip archive of one")
    with file.archive() as archive:
        every = [info for info in archive.infolist() if not info.filename.endswith("/")]
    for info in every:
        if reason := _evil(info):
            raise InputError(f"{file.path} is refused: its member {info.filename[:100]!r} {reason}")
    refuse_long(file.path, (info.filename for info in every))
    if len(every) > MAX_FILES or len({info.filename.casefold() for info in every}) < len(every):
        raise InputError(f"{file.path} is refused: two members of one name, or more than {MAX_FILES}")
    if (total := sum(info.file_size for info in every)) > most_unpacked(file.size):
        raise InputError(
            f"{file.path} is refused: {total} bytes are packed into {file.size}; unpack it yourself and name the folder"
        )
    shown = [info for info in every if not re.search(r"(^|/)(\.|__MACOSX/|__pycache__/)", info.filename)]
    tops = {info.filename.partition("/")[0] for info in shown}
    around = f"{tops.pop()}/" if len(tops) == 1 and all("/" in info.filename for info in shown) else ""
    return {info.filename.removeprefix(around): info for info in shown}


def _evil(info: zipfile.ZipInfo) -> str | None:
    """Say what is wrong with a member; None if it is a plain file inside of the archive."""
    windows = PureWindowsPath(info.filename)  # knows both kinds of separators, and drives
    if not info.filename:
        return "has no name"
    if windows.anchor or ".." in windows.parts or "\\" in info.filename or not info.filename.isprintable():
        return "leads out of the folder"
    if len(PurePosixPath(info.filename).parts) > MAX_DEPTH:
        return f"lies more than {MAX_DEPTH} folders deep"
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in {0, stat.S_IFREG}:
        return "is a link or a device, no file"
    if info.flag_bits & 1:
        return "is encrypted"
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        return f"is packed by method {info.compress_type}, expected none or deflate"
    return None


def file_or_folder(path: Path) -> File | Folder:
    """Open a folder, a zip archive of one, or any other file."""
    try:
        if path.is_dir():
            return Folder(path)
    except OSError as error:
        raise InputError(f"{path}: {unreachable(error)}") from None
    file = File(path)
    return Folder(path) if file.kind == "zip" else file
