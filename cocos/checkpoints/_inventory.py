"""Find what a file of any architecture holds: tensors, class weights, hyperparameters, a recorded temperature."""

import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from cocos import losses
from cocos.checkpoints.files import NAMESPACES, File, plain
from cocos.errors import InputError

__all__ = ["class_weights", "hyperparameters", "recorded", "tensors", "values"]

MAX_LISTED = 10_000  # tensors that are listed
MAX_CONTAINERS = 8  # containers that a tensor may be in
STATES = ("optimizer", "optim", "lr_scheduler", "scheduler", "loops", "callbacks", "amp", "scaler")  # not of the model
SETTINGS = ("hyper_parameters", "hparams", "args", "opt", "config", "cfg")  # where training scripts keep them
NUMBERS = ("temperature", "tau", "scale", "logit_scale", "margin")
LOSS = ("loss", "criterion", "loss_name", "loss_type", "objective")
TEMPERATURE, MARGIN = ("ntxent", "supcon"), ("triplet", "triplet_sh")  # losses that one number means the same to
LARGEST = 20  # logarithm of a scale
SMALL = 4096  # bytes of an array of one number
PROXIES = re.compile(r"prox(y|ies)|centers?\b|centroids?|prototypes?", re.IGNORECASE)
CLASSES = re.compile(
    r"(^|[._])(classifier|cls|logits?|head|arc|cosface|softmax|fc_?out|metric_fc)\w*\b.*weight$", re.IGNORECASE
)


@dataclass(frozen=True)
class Found:
    """A tensor of a file.

    Args:
        name: keys that lead to it, with dots.
        shape: of it.
        dtype: without `torch.`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


def _walk(value, prefix: str = "", deep: int = 0) -> Iterator[tuple[str, Tensor | np.ndarray]]:
    if isinstance(value, Tensor | np.ndarray):
        yield prefix, value
    elif deep < MAX_CONTAINERS and isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if not (deep == 0 and isinstance(key, str) and key.lower().startswith(STATES)):
                yield from _walk(item, f"{prefix}.{key}" if prefix else str(key), deep + 1)


def _arrays(file: File) -> Iterator[Found]:
    """Arrays of an npz, of which only the headers are read."""
    with file.archive() as archive:
        for name in [each for each in archive.namelist() if each.endswith(".npy")]:
            with archive.open(name) as stream:
                reads = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
                shape, _, dtype = reads[np.lib.format.read_magic(stream)[0]](stream)
                yield Found(name.removesuffix(".npy"), shape, str(dtype))


def tensors(file: File) -> list[Found]:
    """Tensors of the model, in the order of the file; those of optimizers and schedulers are left out."""
    if file.kind == "npz":
        return list(_arrays(file))
    every = _walk(file.content) if file.content is not None else ()
    return [Found(name, tuple(each.shape), str(each.dtype).removeprefix("torch.")) for name, each in every]


def class_weights(found: list[Found]) -> list[dict]:
    """Matrices that look like proxies or class weights, by their names, each with how to count them."""
    shown = []
    for each in found:
        if len(each.shape) != 2 or not each.dtype.startswith(("float", "bfloat")) or min(each.shape) < 2:
            continue
        what = "proxies" if PROXIES.search(each.name) else "class weights" if CLASSES.search(each.name) else None
        if what:
            loss = "proxynca" if what == "proxies" else "normalized_softmax"
            advice = (
                f"{each.name} looks like {what} {each.shape}: count them with numpy.savez(FILE, embeddings=..., "
                f"labels=..., proxies=...), a row a class, and cocos count FILE --loss {loss}"
            )
            shown.append({"name": each.name, "shape": list(each.shape), "what": what, "advice": advice})
    return shown


def _settings(file: File) -> Iterator[tuple[str, object]]:
    for key in SETTINGS:
        held = file.record.get(key)
        held = vars(held) if isinstance(held, NAMESPACES) else held
        if isinstance(held, dict):
            yield key, held


def values(file: File) -> dict:
    """Numbers and text that stand at the top of a torch file, as `epoch` does."""
    return {str(key): plain(each) for key, each in file.record.items() if isinstance(each, bool | int | float | str)}


def hyperparameters(file: File) -> dict:
    """Settings of its training that a file holds, as plain data, by the name that it keeps them under."""
    return {key: plain(held) for key, held in _settings(file)}


def _flat(values: dict, deep: int = 0) -> Iterator[tuple[str, object]]:
    for key, value in values.items():
        held = vars(value) if isinstance(value, NAMESPACES) else value
        if isinstance(held, dict) and deep < MAX_CONTAINERS:
            yield from _flat(held, deep + 1)
        else:
            yield str(key).rpartition(".")[2].lower(), held


def _number(value) -> float | None:
    """A finite number above 0, from a number, text, or a tensor of one number."""
    try:
        if isinstance(value, Tensor | np.ndarray):
            value = value.reshape(-1)[0] if math.prod(value.shape) == 1 else None
        found = None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return found if found is not None and 0 < found < math.inf else None


def _said(file: File) -> Iterator[tuple[str, object]]:
    """Names and values that may be of the loss: of settings, of tensors of one number, of the metadata."""
    for _, held in _settings(file):
        yield from _flat(held)
    yield from file.metadata.items()
    if file.kind == "npz":
        for name in (each for each in NUMBERS if f"{each}.npy" in file.members):
            if file.members[f"{name}.npy"].file_size <= SMALL:
                with file.archive() as archive:
                    yield name, np.load(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)
    elif file.content is not None:
        for name, each in _walk(file.content):
            if each.ndim < 2 and math.prod(each.shape) == 1:
                yield name.rpartition(".")[2].lower(), each
        if isinstance(file.content, dict):
            yield from ((str(key).lower(), value) for key, value in file.content.items() if _number(value) is not None)


def recorded(file: File) -> tuple[dict[str, dict], str | None, dict[str, float]]:
    """What a file records of its loss, where only one reading of it is possible.

    Args:
        file: of any kind.

    Returns:
        Loss -> parameters; the loss that it names, if that is on the shelf; and every number found, as a hint. A number
        that is recorded with two values is none of them. `logit_scale` is the logarithm of a scale, as CLIP has it.
    """
    seen: dict[str, set] = {}
    named = set()
    for key, value in _said(file):
        if key in LOSS and isinstance(value, str) and len(value) < 100:
            named.add(value)
        elif key in NUMBERS and (number := _exponential(value) if key == "logit_scale" else _number(value)) is not None:
            name = {"tau": "temperature", "logit_scale": "scale"}.get(key, key)
            seen.setdefault(name, set()).add(float(f"{number:.6g}"))  # float32 writes 0.07 as 0.0700000003
    hints = {name: values.pop() for name, values in sorted(seen.items()) if len(values) == 1}
    loss = _loss(named.pop()) if len(named) == 1 else None
    if loss is not None:
        usable = {name: value for name, value in hints.items() if name in losses.known(loss)}
        if "temperature" in usable:
            usable.pop("scale", None)
        return ({loss: usable} if usable else {}), loss, hints
    every = {}
    temperature = hints.get("temperature", 1 / hints["scale"] if "scale" in hints and "margin" not in hints else None)
    if temperature is not None and not ("temperature" in hints and "scale" in hints):
        every |= {name: {"temperature": temperature} for name in TEMPERATURE}
    if "margin" in hints and "scale" not in hints:  # with a scale it is the margin of an angle
        every |= {name: {"margin": hints["margin"]} for name in MARGIN}
    return every, None, hints


def _exponential(value) -> float | None:
    """A scale from its logarithm."""
    found = _number(value)
    return math.exp(found) if found is not None and found < LARGEST else None


def _loss(name: str) -> str | None:
    """A loss of the shelf by any of its names; never code: a file cannot name any."""
    try:
        found = losses.module_name(name)
    except InputError:
        return None
    return found if found in losses.names() else None
