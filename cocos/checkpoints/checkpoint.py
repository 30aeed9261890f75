"""A frozen checkpoint: how its data are encoded, and the loss that it was trained with."""

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
from cocos.data import Source
from cocos.data.training_set import Items
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import Scores
from cocos.embeddings.stored import Stored

# The word that opens the embedded checkpoint instead of a path, and its file.
EXAMPLE, EXAMPLE_FILE = Path("example"), Path(__file__).parent.parent / "example" / "emoji_ntxent.pt"


@contextmanager
def one_sentence(path: Path, problem: str, advice: str = "write or copy it again") -> Generator[None]:
    """Turn the exceptions of reading a file into one sentence with its path."""
    try:
        yield
    except InputError as error:
        message = " ".join(str(error).splitlines())  # names of keys, and reasons of libraries, may have several lines
        if message == str(error) and str(path) in message:
            raise
        raise type(error)(message if str(path) in message else f"{path}: {message}") from error
    except MemoryError as error:
        raise InputError(f"{path} {problem}: it takes more memory than there is") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path} {problem} ({type(error).__name__}: {reason}); {advice}") from error


def holding(
    path: Path, content: str, rows: Callable[[], Embeddings], splits: tuple[str, ...] = ("train",)
) -> Callable[..., Embeddings]:
    """Return the embedder of a file that contains its rows; `content` describes them in messages."""

    def embedder(split: str, device: str, progress: Any = None) -> Embeddings:
        if split not in splits:
            raise InputError(f"split {split!r}: {path} contains {content} and has no splits")
        return rows().to(encoding.device_of(device))

    return embedder


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A frozen checkpoint, or a file of embeddings.

    Args:
        path: of the file.
        sha256: of its bytes; empty if it is mapped.
        format: name of its format.
        contents: plain data for `cocos inspect`.
        embedder: (split, device, progress) -> Embeddings; None if `encoder` encodes `training`.
        splits: splits that can be encoded; empty for a file of embeddings, or if the data are absent.
        recorded: loss -> recorded parameters.
        trained_with: built-in loss of the training, if recorded.
        begin_with: loss to start with if none is recorded.
        notes: messages about how the file was read.
        rows: split -> texts and pictures of the rows, or None if unknown; None: those of `training`.
        encoder: builds the frozen encoder; None for embeddings.
        training: training data, recorded or given.
        proxies: (P, D) class vectors, which a labelled set is counted against.
        proxy_labels: (P,) class of each proxy; default 0 to P-1.
        settings: what the embeddings depend on besides the file; None: the `identity` of the encoder.
        recorder: source of `recorded`, for messages.
        batch_size: of the training, as recorded; the default of commands.
        one_direction: whether the loss of the training only compares queries with candidates.
        stored: returns the rows on disk of a set larger than memory.
        dims: number of leading dimensions of each row; None: all.

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
    rows: Callable[[str], Items | None] | None = None
    encoder: Callable[[], nn.Module] | None = None
    training: Source | None = None
    proxies: Tensor | None = None
    proxy_labels: Tensor | None = None
    settings: str | None = ""
    recorder: str = "the checkpoint"
    batch_size: int | None = None
    one_direction: bool = False
    stored: Callable[[], Stored | None] | None = None
    dims: int | None = None

    def __post_init__(self):
        if self.training is not None and not self.splits:
            object.__setattr__(self, "splits", self.training.splits)

    @classmethod
    def of(cls, file: File, format: str, contents: dict, **fields: Any) -> "Checkpoint":
        """Return the checkpoint of a file or folder, with its path and hash, and further fields."""
        return cls(file.path, file.sha256, format, contents, **fields)

    def __repr__(self):
        splits = f", splits={'/'.join(self.splits)}" if self.splits else ""
        trained = f", trained_with={self.trained_with}" if self.trained_with else ""
        return f"Checkpoint({str(self.path)!r}, format={self.format}, sha256={self.sha256[:12]}{splits}{trained})"

    def embed(self, split: str = "train", device: str = "auto", progress=None) -> Embeddings:
        """Encode a split with the frozen model, or take its rows from the cache.

        Args:
            split: of the data.
            device: `auto`, `cpu` or `cuda`.
            progress: called with (rows done, rows in all).
        """
        if self.splits and split not in self.splits:
            data = self.path if self.training is None else self.training.path or self.training.kind
            raise InputError(nearest(f"split of {data}", split, self.splits))
        embed = self.embedder or self._encode
        if self.format == "own":  # the user's code reports its own exceptions
            rows = embed(split, device, progress)
        else:
            with one_sentence(self.path, "or its data cannot be encoded", "check that the data fit the model"):
                rows = embed(split, device, progress)
        if self.dims is None:
            return rows
        if isinstance(rows, Scores):
            raise InputError(f"dims: {self.dims}, but {self.path} contains scores, which have no dimensions")
        return rows.truncate(self.dims)

    def truncate(self, dims: int) -> "Checkpoint":
        """Return the checkpoint with the first dimensions of its embeddings, see `Embeddings.truncate`."""
        stored = self.stored
        return replace(self, dims=dims, stored=stored and (lambda: (rows := stored()) and rows.truncate(dims)))

    @cached_property
    def on_disk(self) -> Stored | None:
        """The rows on disk of a set that is larger than memory; None for all others."""
        rows = self.stored() if self.stored is not None else None
        return None if rows is None or rows.held else rows

    @cached_property
    def model(self) -> nn.Module:
        """The frozen encoder, built at first use; a module of the user is not changed."""
        if self.encoder is None:
            raise InputError(f"{self.path}: {self.format} has no encoder")
        model = self.encoder()
        return model if self.format == "own" else model.eval().requires_grad_(False)

    def _encode(self, split: str, device: str, progress) -> Embeddings:
        """Encode a split of the training data."""
        if self.training is None:
            path = shlex.quote(str(self.path))
            raise InputError(
                f"{self.path} is a model without data: add them, cocos count {path} --data DATA, or write embeddings, "
                f"cocos encode DATA --model {path} --out embeddings.npz"
            )
        return encoding.embed(
            lambda: self.model,
            self.training.load(split),
            device=device,
            progress=progress,
            proxies=self.proxies,
            proxy_labels=self.proxy_labels,
            optional_proxies=self.format == "own",
            about=self._cache_key(),
        )

    def _cache_key(self) -> dict[str, str] | None:
        """Return everything that the encoder depends on; None for user code."""
        if not self.sha256 or self.format == "own":
            return None
        settings = getattr(self.model, "identity", "") if self.settings is None else self.settings
        return {"checkpoint": self.sha256, "format": self.format, "settings": settings}

    def items(self, split: str = "train") -> Items | None:
        """Load the texts and pictures of the rows of a split; None if unknown."""
        if self.rows is not None:
            return self.rows(split)
        return None if self.training is None else self.training.load(split)

    def loss(self, name: str | None = None, parameters: dict | None = None):
        """Load a loss with the recorded parameters.

        Args:
            name: argument of `cocos.losses.load`; None: the loss of the training, or else of the class vectors in the
                file, or else NT-Xent.
            parameters: have precedence over recorded ones. In a sum each term has those recorded for it.

        Returns:
            The loss, and a text with the source of each parameter.
        """
        # A file can only name built-in losses, the user also code.
        alias = (self.trained_with or self.begin_with) if name is None else name
        name = losses.find_file(alias) if name is None else losses.canonical(alias)
        implied = losses.implied_parameters(alias)
        accepted = losses.parameter_names(name) or set()
        user_parameters = losses.qualify(name, dict(parameters or {}))
        recorded = dict(self.recorded.get(name, {}))
        if (equivalent := losses.counterpart(name)) and not recorded:  # the same loss under the names of a library
            values = self.recorded.get(equivalent, {})
            recorded = losses.qualify(name, {key: value for key, value in values.items() if key in accepted})
        for term, values in self.recorded.items():
            recorded |= {f"{term}.{key}": value for key, value in values.items() if f"{term}.{key}" in accepted}
        if {"temperature", "scale"} & user_parameters.keys():  # two names of one number: the user's replaces both
            recorded = {key: value for key, value in recorded.items() if key not in {"temperature", "scale"}}
        if {"temperature", "scale"} & (recorded.keys() | user_parameters.keys()):
            implied = {key: value for key, value in implied.items() if key not in {"temperature", "scale"}}
        loss = losses.load(name, implied | recorded | user_parameters)
        texts = []
        for key, value in loss.parameters.items():
            if key in user_parameters:
                source = "given"
            elif key in recorded:
                source = f"recorded in {self.recorder}"
            else:
                source = f"default of {alias}" if key in implied else "default"
            texts.append(f"{key} {','.join(map(str, value)) if isinstance(value, tuple) else value} ({source})")
        if name in losses.names() and name != alias.strip().lower().replace("-", "_"):
            return loss, f"asked for as {alias}: {', '.join(texts) or 'no parameters'}"
        return loss, ", ".join(texts) or "no parameters given"

    def queries_only(self, loss: losses.Loss) -> bool:
        """Return whether the checkpoint was trained with this loss, in one direction."""
        return self.one_direction and loss.name == self.trained_with

    def identity(self) -> dict[str, str]:
        """Return the provenance: path, sha256 and format; the data."""
        attributes: dict[str, Any] = {
            "checkpoint_path": os.fsencode(self.path).decode("utf-8", "replace"),
            "checkpoint_sha256": self.sha256,
            "checkpoint_format": self.format,
        }
        if self.dims is not None:
            attributes["checkpoint_dims"] = self.dims
        if self.training is not None:
            attributes |= {"data_path": str(self.training.path or ""), "data_kind": self.training.kind}
        return attributes
