"""A frozen checkpoint as its format read it: what it says of itself, and how its data are encoded."""

import os
import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cocos import losses
from cocos.base.errors import InputError, nearest
from cocos.checkpoints import encoding
from cocos.checkpoints.files import File
from cocos.data import Items, Source
from cocos.embeddings import Embeddings
from cocos.embeddings.matrices import Mapped
from cocos.embeddings.scored import Scores
from cocos.embeddings.stored import Stored

# The word that opens the embedded checkpoint in the place of a path, and its file.
EXAMPLE, EXAMPLE_FILE = Path("example"), Path(__file__).parent.parent / "example" / "emoji_ntxent.pt"


@contextmanager
def one_sentence(path: Path, what: str, then: str = "write or copy it again") -> Generator[None]:
    """Turn all that reading a file raises into one sentence on it: files can be wrong in unforeseen ways."""
    try:
        yield
    except InputError as error:
        said = " ".join(str(error).splitlines())  # names of keys, and reasons of libraries, may have several lines
        if said == str(error) and str(path) in said:
            raise
        raise type(error)(said if str(path) in said else f"{path}: {said}") from error
    except MemoryError as error:
        raise InputError(f"{path} {what}: it takes more memory than there is") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path} {what} ({type(error).__name__}: {reason}); {then}") from error


def holding(
    path: Path, what: str, found: Callable[[], Embeddings], splits: tuple[str, ...] = ("train",)
) -> Callable[..., Embeddings]:
    """Make the embedder of a file that holds its rows, which `found` returns; it knows no other splits."""

    def embedder(split: str, device: str, progress: Any = None) -> Embeddings:
        if split not in splits:
            raise InputError(f"split {split!r}: {path} holds {what} and has no splits")
        return found().to(encoding.device_of(device))

    return embedder


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A frozen checkpoint, or a file of embeddings.

    Args:
        path: the file.
        sha256: of its bytes.
        format: name of its format on this shelf.
        contents: what the file says of itself, as plain data (`cocos inspect`).
        embedder: (split, device, progress) -> Embeddings; None where `encoder` encodes `training`.
        splits: that can be encoded: those of `training`; empty where the file holds embeddings, or where the data are
            not there.
        recorded: loss name -> parameters that the file recorded of its training.
        trained_with: name of the loss that it was trained with, where the file says so.
        begin_with: name of the loss to study where the file names none: one that learns such vectors as it has.
        notes: what the user should know of how the file was read.
        mapped: the file, where it is mapped: its sha256 is empty, and is taken where a result is saved.
        rows: split -> texts and pictures of the rows, in the order of the embeddings, or None where nothing is known;
            None where those of `training` are the rows.
        encoder: builds the frozen encoder; None for embeddings.
        training: its training data, recorded or given; None where none are known.
        proxies: (P, D) class vectors that came with it: a labelled set is counted against them.
        proxy_labels: (P,) class of each proxy; 0..P-1 when left out.
        settings: what the vectors depend on beside the bytes of the file, for the cache; None: the built encoder says
            it (`identity`).
        recorder: words for where `recorded` was found.
        batch_size: of the training, as recorded; the default of commands.
        one_direction: whether the loss of the training only searches the candidates of queries.
        dims: number of first dimensions that are kept of each row; None: all.
        stored: gives the rows where they are, for a set that memory need not hold; None: there is no such way.

    Examples:
        >>> checkpoint = cocos.open("example")
        >>> checkpoint.loss()[0].temperature
        0.1
    """

    path: Path
    sha256: str
    format: str
    contents: dict
    embedder: Callable[..., Embeddings] | None = None
    splits: tuple[str, ...] = ()
    recorded: dict[str, dict] = field(default_factory=dict)
    trained_with: str | None = None
    begin_with: str = "ntxent"
    notes: tuple[str, ...] = ()
    mapped: tuple[Mapped, ...] = ()
    rows: Callable[[str], Items | None] | None = None
    encoder: Callable[[], nn.Module] | None = None
    training: Source | None = None
    proxies: Tensor | None = None
    proxy_labels: Tensor | None = None
    settings: str | None = None
    recorder: str = "the checkpoint"
    batch_size: int | None = None
    one_direction: bool = False
    stored: Callable[[], Stored | None] | None = None

    dims: int | None = None

    def __post_init__(self):
        if self.training is not None and not self.splits:
            object.__setattr__(self, "splits", self.training.splits)

    @classmethod
    def of(cls, file: File, format: str, contents: dict, **more: Any) -> "Checkpoint":
        """Make the checkpoint of a file or folder, with its path and hash; `more` are other fields."""
        return cls(file.path, file.sha256, format, contents, **more)

    def __repr__(self):
        splits = f", splits={'/'.join(self.splits)}" if self.splits else ""
        trained = f", trained_with={self.trained_with}" if self.trained_with else ""
        return f"Checkpoint({str(self.path)!r}, format={self.format}, sha256={self.sha256[:12]}{splits}{trained})"

    def embed(self, split: str = "train", device: str = "auto", progress=None) -> Embeddings:
        """Encode a split with the frozen model, or take its rows from the cache.

        Args:
            split: of the checkpoint's data; a file of embeddings has only what is in it.
            device: `auto`, `cpu` or `cuda`.
            progress: called with (items done, items in all).
        """
        if self.splits and split not in self.splits:
            whose = self.path if self.training is None else self.training.path or self.training.kind
            raise InputError(nearest(f"split of {whose}", split, self.splits))
        if self.format == "own":  # code of the user's
            found = (self.embedder or self._encoded)(split, device, progress)
        else:
            with one_sentence(self.path, "or its data cannot be encoded", "see that the data are what it reads"):
                found = (self.embedder or self._encoded)(split, device, progress)
        if self.dims is None:
            return found
        if isinstance(found, Scores):
            raise InputError(f"dims: {self.dims}, and {self.path} holds scores, which have no dimensions")
        return found.truncate(self.dims)

    def truncate(self, dims: int) -> "Checkpoint":
        """Return the checkpoint with the first dimensions of its embeddings alone, see `Embeddings.truncate`."""
        stored = self.stored
        return replace(self, dims=dims, stored=stored and (lambda: (found := stored()) and found.truncate(dims)))

    @cached_property
    def on_disk(self) -> Stored | None:
        """The rows where they are, of a set that is too large to be held in memory; None of any other."""
        found = self.stored() if self.stored is not None else None
        return None if found is None or found.held else found

    @cached_property
    def model(self) -> nn.Module:
        """The frozen encoder, built when it is first asked for; a module of the user's stays as it is."""
        if self.encoder is None:
            raise InputError(f"{self.path}: {self.format} holds no encoder")
        built = self.encoder()
        return built if self.format == "own" else built.eval().requires_grad_(False)

    def _encoded(self, split: str, device: str, progress) -> Embeddings:
        """Encode a split of the training data."""
        if self.training is None:
            typed = shlex.quote(str(self.path))
            raise InputError(
                f"{self.path} holds an encoder and names no data: give data that it encodes, cocos count {typed} "
                f"--data DATA, or write embeddings, cocos encode DATA --model {typed} --out embeddings.npz"
            )
        return encoding.embed(
            lambda: self.model,
            self.training.load(split),
            device=device,
            progress=progress,
            proxies=self.proxies,
            proxy_labels=self.proxy_labels,
            optional_proxies=self.format == "own",
            about=self._encoding(),
        )

    def _encoding(self) -> dict[str, str] | None:
        """All that the encoder depends on, as a key of the cache; None where it is code of the user's."""
        if not self.sha256 or self.format == "own":
            return None
        settings = getattr(self.model, "identity", "") if self.settings is None else self.settings
        return {
            "checkpoint": self.sha256,
            "format": self.format,
            "settings": str(settings),
        }

    def items(self, split: str = "train") -> Items | None:
        """Load the texts and pictures of the rows of a split; None where nothing is known of them."""
        if self.rows is not None:
            return self.rows(split)
        return None if self.training is None else self.training.load(split)

    def loss(self, name: str | None = None, parameters: dict | None = None):
        """Load a loss with the parameters that the checkpoint recorded for it, and say where they come from.

        Args:
            name: whatever `cocos.losses.load` takes; None is the loss of the shelf that the checkpoint was trained
                with, or else the one that learns such class vectors as it has, or else NT-Xent.
            parameters: take precedence over what is recorded. In a sum each term has what is recorded for it.

        Returns:
            The loss, and the sentence.
        """
        # What a file names is of the shelf: only the user can name code.
        asked = (self.trained_with or self.begin_with) if name is None else name
        name = losses.find_file(asked) if name is None else losses.canonical(asked)
        own = losses.implied_parameters(asked)
        usable, given = losses.parameter_names(name) or set(), losses.qualify(name, dict(parameters or {}))
        recorded = dict(self.recorded.get(name, {}))
        if (twin := losses.counterpart(name)) and not recorded:  # the same numbers under the words of a library
            theirs = self.recorded.get(twin, {})
            recorded = losses.qualify(name, {key: value for key, value in theirs.items() if key in usable})
        for term, theirs in self.recorded.items():
            recorded |= {f"{term}.{key}": value for key, value in theirs.items() if f"{term}.{key}" in usable}
        if {"temperature", "scale"} & given.keys():  # two words for one number: what is given replaces either
            recorded = {key: value for key, value in recorded.items() if key not in {"temperature", "scale"}}
        if {"temperature", "scale"} & (recorded.keys() | given.keys()):
            own = {key: value for key, value in own.items() if key not in {"temperature", "scale"}}
        loss = losses.load(name, own | recorded | given)
        origin = []
        for key, value in loss.parameters.items():
            where = "given" if key in given else f"recorded in {self.recorder}" if key in recorded else "default"
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
            origin.append(f"{key} {shown} ({where}{f' of {asked}' if where == 'default' and key in own else ''})")
        if name in losses.names() and name != asked.strip().lower().replace("-", "_"):
            return loss, f"asked for as {asked}: {', '.join(origin) or 'no parameters'}"
        return loss, ", ".join(origin) or "no parameters given"

    def queries_only(self, loss: losses.Loss) -> bool:
        """Return whether the checkpoint was trained with this loss, in one direction."""
        return self.one_direction and loss.name == self.trained_with

    def identity(self) -> dict[str, str]:
        """Return the provenance: path, sha256 and format; size and time of a mapped file; the data."""
        more: dict[str, Any] = {} if self.dims is None else {"checkpoint_dims": self.dims}
        more |= {"checkpoint_mapped": f"{self.mapped[0].size} {self.mapped[0].time}"} if self.mapped else {}
        if self.training is not None:
            more |= {"data_path": str(self.training.path or ""), "data_kind": self.training.kind}
        return more | {
            "checkpoint_path": os.fsencode(self.path).decode("utf-8", "replace"),
            "checkpoint_sha256": self.sha256,
            "checkpoint_format": self.format,
        }
