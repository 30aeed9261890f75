"""Training options that a checkpoint of VSE++ or VSRN records, as plain data."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cocos.checkpoints.files import EMBED_INSTEAD, plain

__all__ = ["Training", "read"]

DEFAULT_SWITCHES = {"use_abs": False, "no_imgnorm": False, "max_violation": False}  # switches of the training scripts
TRIPLET_LOSSES = ("triplet", "triplet_sh")


def _plain(value):
    """Keep numbers, text, booleans and None, take a tensor of one element as its number, and the rest as text."""
    value = plain(value)
    return str(value) if isinstance(value, dict | list) else value


def _switch(value) -> bool | None:
    known = {"true": True, "1": True, "false": False, "0": False}
    return known.get(str(value).lower())


def _number(value) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None


@dataclass(frozen=True, eq=False)
class Training:
    """Training options and progress that a checkpoint records.

    Args:
        path: of the checkpoint.
        options: fields of `opt`.
        progress: epoch, best_rsum, Eiters; None if not recorded.
        rows: number of words in the word embedding.
        raw: the image tower reads images, not precomputed features.
        known: its image tower is one that cocos builds.
    """

    path: Path
    options: dict
    progress: dict
    rows: int
    raw: bool
    known: bool

    def switch(self, name: str) -> bool:
        """Read a switch of the training script; its default if `opt` does not record it."""
        found = _switch(self.options.get(name))
        return DEFAULT_SWITCHES[name] if found is None else found

    @cached_property
    def loss(self) -> tuple[str | None, dict]:
        """Name and recorded parameters of the loss; no name if cocos has no such loss."""
        criterion = self.options.get("criterion")
        if criterion in {None, "triplet"}:  # the code of Faghri et al. has no such option and no other loss
            name = "triplet_sh" if self.switch("max_violation") else "triplet"
        else:
            name = {"ntxent": "ntxent", "ranking": "smoothap"}.get(criterion)
        option, parameter = ("margin", "margin") if name in TRIPLET_LOSSES else ("tau", "temperature")
        value = _number(self.options.get(option))
        return name, {} if name is None or value is None else {parameter: value}

    def recorded(self) -> dict[str, dict]:
        """Return the parameters for `Checkpoint.recorded`; one margin serves both triplet losses."""
        name, parameters = self.loss
        losses = TRIPLET_LOSSES if name in TRIPLET_LOSSES else (name,)
        return dict.fromkeys(losses, parameters) if parameters else {}

    def in_words(self) -> str:
        """Describe the loss."""
        name, parameters = self.loss
        words = {
            "triplet": "triplet loss, sum over all negatives (triplet)",
            "triplet_sh": "triplet loss, hardest negative of each query (triplet_sh)",
            "ntxent": "NT-Xent (ntxent)",
            "smoothap": "SmoothAP (smoothap)",
            None: f"{self.options.get('criterion')!r}, which cocos does not know",
        }[name]
        if self.options.get("criterion") is None:
            words += ", the only one of the first code (opt has no criterion)"
        return ", ".join([words, *(f"{key} {value}" for key, value in parameters.items())])

    def scores(self) -> str:
        """Describe the scores that the training compared."""
        if self.options.get("measure") == "order":
            return "minus the length of max(0, caption - image)"
        if self.switch("no_imgnorm"):
            return "inner products with images that are not normalised (no_imgnorm); losses of cocos read cosines"
        return "cosines"

    def missing(self) -> list[str]:
        """List the entries that the file should record and does not, or not readably; defaults replace switches."""
        name, parameters = self.loss
        absent = [key for key, value in self.progress.items() if value is None]
        needed = [key for key in DEFAULT_SWITCHES if key != "max_violation" or name in TRIPLET_LOSSES]
        absent += [f"opt.{key}" for key in needed if _switch(self.options.get(key)) is None]
        absent += [f"opt.{key}" for key in ("data_name", "measure") if self.options.get(key) is None]
        if name and not parameters:
            absent.append("opt.margin" if name in TRIPLET_LOSSES else "opt.tau")
        return absent

    def refusal(self) -> str | None:
        """Say why this version cannot embed with the checkpoint; None if it can."""
        if not self.known:
            return (
                f"{self.path}: its image tower reads raw images through cnn_type {self.options.get('cnn_type')!r}, "
                f"whose layers are those of no ResNet or VGG that cocos builds; {EMBED_INSTEAD}"
            )
        size = _number(self.options.get("vocab_size"))
        if size is not None and size != self.rows:
            return (
                f"{self.path}: opt.vocab_size is {size:g} and embed.weight has {self.rows} rows; options "
                "and weights are not of one training"
            )
        if self.options.get("measure") == "order":
            return (
                f"{self.path} was trained with measure 'order': it scores by minus the length of max(0, "
                "caption - image), which is no cosine, and no loss of cocos reads it; train with measure "
                "'cosine'"
            )
        if self.options.get("cross_attn") is not None:
            return (
                f"{self.path} was trained with cross attention ({self.options['cross_attn']}) between words "
                "and regions: its image has no embedding of its own, and cocos cannot run it"
            )
        return None


def read(path: Path, content: dict, rows: int, raw: bool, known: bool) -> Training:
    """Read the training options of a file; unusual types become plain numbers or text.

    Args:
        path: of the checkpoint.
        content: of the file.
        rows: number of words in the word embedding.
        raw: the image tower reads images, not precomputed features.
        known: its image tower is one that cocos builds.
    """
    options = {str(key): _plain(value) for key, value in vars(content["opt"]).items()}
    progress = {name: _plain(content.get(name)) for name in ("epoch", "best_rsum", "Eiters")}
    return Training(path, dict(sorted(options.items())), progress, rows, raw, known)
