"""A frozen checkpoint: how its data are encoded, and the loss that it was trained with."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cocos import losses
from cocos.base.errors import InputError, nearest
from cocos.checkpoints import encoding
from cocos.checkpoints.recorded import Recorded
from cocos.data import Source, tables
from cocos.data.training_set import Items
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import Scores
from cocos.embeddings.stored import Stored

# The word that opens the embedded checkpoint instead of a path, and its file.
EXAMPLE, EXAMPLE_FILE = Path("example"), Path(__file__).parent.parent / "example" / "emoji_ntxent.pt"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A frozen checkpoint, or a file of embeddings or scores.

    Examples:
        >>> checkpoint = cocos.open("example")
        >>> checkpoint.loss()[0].temperature
        0.1
    """

    path: Path  # of the file
    sha256: str  # of its bytes; empty if its rows are mapped
    format: str  # name of its format; `own` for a model of the user
    contents: dict  # plain data for `cocos inspect`
    # (split, device, progress) -> embeddings or scores; None if `encoder` encodes `training`.
    embedder: Callable[..., Embeddings | Scores] | None = None
    settings: Recorded = Recorded()  # the loss of the training and its parameters, as recorded
    first_loss: str = "ntxent"  # loss to start with if none is recorded
    notes: tuple[str, ...] = ()  # messages about how the file was read
    # Returns the texts and pictures of the rows, or None if unknown. Without a function, `training` has them.
    rows: Callable[[], Items | None] | None = None
    encoder: Callable[[], nn.Module] | None = None  # builds the frozen encoder; None for embeddings
    training: Source | None = None  # training data, recorded or given
    proxies: Tensor | None = None  # (P, D) class vectors, which a labelled set is counted against
    proxy_labels: Tensor | None = None  # (P,) class of each proxy; default 0 to P-1
    stored: Stored | None = None  # the rows on disk of a set of shards
    dims: int | None = None  # number of leading dimensions of each row; None: all

    def __repr__(self):
        return f"Checkpoint({str(self.path)!r}, format={self.format}, loss={self.settings.loss})"

    def embed(self, split: str = "train", device: str = "auto", progress=None) -> Embeddings | Scores:
        """Encode a split with the frozen model on `auto`, `cpu` or `cuda`; `progress(rows done, rows in all)`."""
        if self.embedder is not None:
            if split not in (splits := self.splits or ("train",)):
                raise InputError(nearest(f"split of {self.path}", split, splits))
            rows = self.embedder(split, device, progress).to(encoding.device_of(device))
        elif self.training is None:
            raise InputError(f"{self.path}: a model without data; add --data DATA, or cocos encode DATA --model MODEL")
        else:  # the user's code reports its own exceptions
            problem = "cannot encode its data", "check that the data fit the model"
            with nullcontext() if self.format == "own" else tables.readable(self.path, *problem):
                data = self.training.load(split)
                rows = encoding.embed(self.model, data, device, progress, self.proxies, self.proxy_labels)
        if self.dims is None:
            return rows
        if isinstance(rows, Scores):
            raise InputError(f"dims: {self.dims}, but {self.path} contains scores, which have no dimensions")
        return rows.truncate(self.dims)

    def truncate(self, dims: int) -> "Checkpoint":
        """Return the checkpoint with the first dimensions of its embeddings, see `Embeddings.truncate`."""
        return replace(self, dims=dims, stored=self.stored and self.stored.truncate(dims))

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that can be encoded; empty for a file of embeddings, or if the data are absent."""
        return () if self.training is None else self.training.splits

    @property
    def on_disk(self) -> Stored | None:
        """The rows on disk of a set that is larger than memory; None for all others."""
        return None if self.stored is None or self.stored.in_memory else self.stored

    @cached_property
    def model(self) -> nn.Module:
        """The frozen encoder, built at first use; a module of the user is not changed."""
        if self.encoder is None:
            raise InputError(f"{self.path}: {self.format} has no encoder")
        if self.format == "own":
            return self.encoder()
        with tables.readable(self.path, "cannot be built", "check its weights"):
            return self.encoder().eval().requires_grad_(False)

    def items(self, split: str = "train") -> Items | None:
        """Load the texts and pictures of the rows of a split; None if unknown."""
        if self.rows is not None:
            return self.rows()
        return None if self.training is None else self.training.load(split)

    def loss(self, name: str | None = None, parameters: dict | None = None):
        """Return a loss with the recorded parameters, and a text with the source of each parameter.

        Args:
            name: argument of `cocos.losses.load`; None: the loss of the training, or else `first_loss`.
            parameters: have precedence over recorded ones. In a sum each term has those recorded for it.
        """
        # A file can only name built-in losses, the user also code.
        alias = (self.settings.loss or self.first_loss) if name is None else name
        name = losses.find_file(alias) if name is None else losses.canonical(alias)
        implied = losses.implied_parameters(alias)
        accepted = losses.parameter_names(name) or set()
        user_parameters = losses.qualify(name, dict(parameters or {}))
        recorded = dict(self.settings.parameters.get(name, {}))
        if (equivalent := losses.counterpart(name)) and not recorded:  # the same loss under the names of a library
            values = self.settings.parameters.get(equivalent, {})
            recorded = losses.qualify(name, {key: value for key, value in values.items() if key in accepted})
        for term, values in self.settings.parameters.items():
            recorded |= {f"{term}.{key}": value for key, value in values.items() if f"{term}.{key}" in accepted}
        number = {"temperature", "scale"}  # two names of one number: the user's replaces both
        if number & user_parameters.keys():
            recorded = {key: value for key, value in recorded.items() if key not in number}
        if number & (recorded.keys() | user_parameters.keys()):
            implied = {key: value for key, value in implied.items() if key not in number}
        loss = losses.load(name, implied | recorded | user_parameters)
        sources = dict.fromkeys(implied, f"default of {alias}")
        sources |= dict.fromkeys(recorded, f"recorded in {self.settings.source}")
        sources |= dict.fromkeys(user_parameters, "given")
        texts = []
        for key, value in loss.parameters.items():
            source = sources.get(key, "default")
            texts.append(f"{key} {','.join(map(str, value)) if isinstance(value, tuple) else value} ({source})")
        is_alias = name in losses.names() and name != alias.strip().lower().replace("-", "_")
        return loss, f"asked for as {alias}: " * is_alias + (", ".join(texts) or "no parameters given")

    def queries_only(self, loss: losses.Loss) -> bool:
        """Return whether the checkpoint was trained with this loss, in one direction."""
        return self.settings.one_direction and loss.name == self.settings.loss

    def identity(self) -> dict[str, str]:
        """Return the provenance: path, sha256, format, dimensions and data."""
        path = os.fsencode(self.path).decode("utf-8", "replace")
        attributes: dict[str, Any] = {"checkpoint_path": path, "checkpoint_sha256": self.sha256}
        attributes |= {"checkpoint_format": self.format} | ({} if self.dims is None else {"checkpoint_dims": self.dims})
        if self.training is not None:
            attributes |= {"data_path": str(self.training.path or ""), "data_kind": self.training.kind}
        return attributes
