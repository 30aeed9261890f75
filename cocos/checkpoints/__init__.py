"""The shelf of checkpoint formats: one file per format, each with `recognises(file)` and `read(file, ...)`.

`open` decides by content, never by the suffix, and nothing in a file is ever executed.
"""

import importlib
import os
import pkgutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from cocos import losses
from cocos.checkpoints._content import File, describe
from cocos.checkpoints._plain import plain
from cocos.embeddings import Embeddings, Mapped
from cocos.errors import InputError, nearest

__all__ = ["Checkpoint", "inspect", "names", "open"]


@contextmanager
def _one_sentence(path: Path, what: str) -> Generator[None]:
    """A file can be wrong in more ways than anyone has thought of: all that reading it raises becomes a sentence on it.

    Raises:
        InputError: from what was raised.
    """
    try:
        yield
    except InputError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error
    except MemoryError as error:
        raise InputError(f"{path} {what}: it takes more memory than there is") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path} {what} ({type(error).__name__}: {reason}); write or copy it again") from error


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A frozen checkpoint, or a file of embeddings.

    Args:
        path: the file.
        sha256: of its bytes.
        format: name of its format on this shelf.
        contents: what the file says of itself, as plain data (`cocos inspect`).
        embedder: (split, device, progress) -> Embeddings.
        splits: that can be encoded; empty where the file holds embeddings, or where the data are not there.
        recorded: loss name -> parameters that the file recorded of its training.
        trained_with: name of the loss that it was trained with, where the file says so.
        notes: what the user should know of how the file was read.
        mapped: the file, where it is mapped: its sha256 is empty, and is taken where a result is saved.

    Examples:
        >>> import cocos
        >>> from importlib import resources
        >>> checkpoint = cocos.open(resources.files("cocos") / "example" / "emoji_ntxent.pt")
        >>> checkpoint.loss()[0].temperature
        0.1
    """

    path: Path
    sha256: str
    format: str
    contents: dict
    embedder: Callable[..., Embeddings]
    splits: tuple[str, ...] = ()
    recorded: dict[str, dict] = field(default_factory=dict)
    trained_with: str | None = None
    notes: tuple[str, ...] = ()
    mapped: tuple[Mapped, ...] = ()

    def __repr__(self):
        splits = f", splits={'/'.join(self.splits)}" if self.splits else ""
        trained = f", trained_with={self.trained_with}" if self.trained_with else ""
        return f"Checkpoint({str(self.path)!r}, format={self.format}, sha256={self.sha256[:12]}{splits}{trained})"

    def embed(self, split: str = "train", device: str = "auto", progress=None) -> Embeddings:
        """Encode a split with the frozen model; each call encodes anew.

        Args:
            split: of the checkpoint's data; a file of embeddings has only what is in it.
            device: `auto`, `cpu` or `cuda`.
            progress: called with (items done, items in all).

        Raises:
            InputError: no such split or device, or the data cannot be read.
        """
        if self.splits and split not in self.splits:
            raise InputError(nearest(f"split of {self.path}", split, self.splits))
        if self.format == "own":  # code of the user's
            return self.embedder(split, device, progress)
        with _one_sentence(self.path, "or its data cannot be encoded"):
            return self.embedder(split, device, progress)

    def loss(self, name: str | None = None, parameters: dict | None = None):
        """A loss with the parameters that the checkpoint recorded for it, and a sentence on where they come from.

        Args:
            name: whatever `cocos.losses.load` takes; None is the loss of the shelf that the checkpoint was trained
                with, NT-Xent where it does not say.
            parameters: take precedence over what is recorded. In a sum each term has what is recorded for it.

        Returns:
            The loss, and the sentence.

        Raises:
            InputError: an unknown loss or parameter.
        """
        # What a file names is of the shelf: only the user can name code.
        asked = (self.trained_with or "ntxent") if name is None else name
        name = losses.module_name(asked) if name is None else losses.canonical(asked)
        own = losses.brought(asked)
        usable, given = losses.known(name) or set(), losses.qualified(name, dict(parameters or {}))
        recorded = dict(self.recorded.get(name, {}))
        for term, theirs in self.recorded.items():
            recorded |= {f"{term}.{key}": value for key, value in theirs.items() if f"{term}.{key}" in usable}
        if {"temperature", "scale"} & given.keys():  # two words for one number: what is given replaces either
            recorded = {key: value for key, value in recorded.items() if key not in {"temperature", "scale"}}
        if {"temperature", "scale"} & (recorded.keys() | given.keys()):
            own = {key: value for key, value in own.items() if key not in {"temperature", "scale"}}
        loss = losses.load(name, own | recorded | given)
        origin = []
        for key, value in losses.parameters(loss).items():
            where = "given" if key in given else "recorded in the checkpoint" if key in recorded else "default"
            origin.append(f"{key} {value} ({where}{f' of {asked}' if where == 'default' and key in own else ''})")
        if name in losses.names() and name != asked.strip().lower().replace("-", "_"):
            return loss, f"asked for as {asked}: {', '.join(origin) or 'no parameters'}"
        return loss, ", ".join(origin) or "no parameters given"

    def identity(self) -> dict[str, str]:
        """Provenance: path, sha256 and format; size and time of a mapped file, of which there is no sha256 yet."""
        state = {"checkpoint_mapped": f"{self.mapped[0].size} {self.mapped[0].time}"} if self.mapped else {}
        return state | {
            "checkpoint_path": os.fsencode(self.path).decode("utf-8", "replace"),
            "checkpoint_sha256": self.sha256,
            "checkpoint_format": self.format,
        }


def names() -> list[str]:
    """Names of all formats on the shelf."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def open(path, data=None, model=None, trust: bool = False) -> Checkpoint:
    """Open a frozen checkpoint or a file of embeddings. Nothing in the file is executed.

    Args:
        path: the file.
        data: folder of the training data, for formats that do not carry or name it.
        model: your own `function(content, data, split, device) -> Embeddings`, or its name as `file.py:function` or
            `package.module:function`, for a file whose architecture cocos does not know; or a list of it and of files
            and folders that it needs. It is your code, named by you; a file can never name it.
        trust: read a file that holds objects of unknown classes, with an inert placeholder for each; their code is
            not imported or run either. Only `model` sees the placeholders.

    Raises:
        InputError: the file cannot be read; the sentence says what it is and what to do.
        UnsafeFile: it asks for code to be run.

    Examples:
        >>> import cocos
        >>> from importlib import resources
        >>> cocos.open(resources.files("cocos") / "example" / "emoji_ntxent.pt").format
        'native'
    """
    if trust and model is None:
        raise InputError("trust: placeholders are only of use to a model function of your own; name one (--model)")
    file = File(Path(path), placeholders=trust)
    if model is not None:
        return _remembers(file, importlib.import_module(f"{__name__}._own").read(file, data, model))
    with _one_sentence(file.path, "is a damaged file"):
        found = _read(file, data)
        found = replace(found, contents=plain(found.contents))
        file.refuse_change()
        return found


def _remembers(file: File, found: Checkpoint) -> Checkpoint:
    """The same with what the file records of its loss, where its format has no place for that."""
    recorded, loss, _ = importlib.import_module(f"{__name__}._inventory").recorded(file)
    return replace(found, recorded=recorded | found.recorded, trained_with=found.trained_with or loss)


def _known(file: File):
    """The format of a file; None where no file of the shelf recognises it."""
    forms = (importlib.import_module(f"{__name__}.{name}") for name in names())
    return next((form for form in forms if form.recognises(file)), None)


def _read(file: File, data) -> Checkpoint:
    form = _known(file)
    if form is None:
        raise InputError(describe(file))
    found = form.read(file, data)
    return _remembers(file, found) if found.format == "embeddings" else found


def inspect(path, data=None) -> dict:
    """Say what a file is and what is in it, also where cocos cannot count on it. Nothing in the file is executed.

    Args:
        path: the file.
        data: folder of the training data.

    Returns:
        Plain data: path, sha256, format, what the format knows, tensors, class weights, hyperparameters, hints, and
        `advice` where nothing can be counted as it is.

    Raises:
        InputError: the file cannot be read, or is of no kind that could hold a checkpoint.
        UnsafeFile: it asks for code to be run.
    """
    file, inventory = File(Path(path)), importlib.import_module(f"{__name__}._inventory")
    found, advice = None, None
    with _one_sentence(file.path, "is a damaged file"):
        form = _known(file)
        if form is not None and not (file.kind == "npz" and inventory.nameless(file)):
            found = open(path, data)
        else:
            advice = describe(file)
            if file.kind not in {"torch", "torch legacy", "safetensors", "npz", "npy"}:
                raise InputError(advice)
        every = inventory.tensors(file)
        recorded, loss, hints = inventory.recorded(file)
        about = {
            "path": str(file.path),
            "sha256": file.sha256,
            "format": found.format if found else file.kind,
            "trained_with": found.trained_with if found else loss,
            "recorded": found.recorded if found else recorded,
            "splits": list(found.splits) if found else [],
            "data": data and str(data),
            "contents": found.contents if found else inventory.values(file),
            "notes": list(found.notes) if found else [],
            "advice": advice,
            "hyper_parameters": inventory.hyperparameters(file) if found is None else {},
            "hints": hints,
            "class_weights": inventory.class_weights(every),
            "tensors_in_all": len(every),
            "tensors": [vars(each) | {"shape": list(each.shape)} for each in every[: inventory.MOST]],
        }
        file.refuse_change()
    return plain(about)
