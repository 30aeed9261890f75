"""Encode training data with a frozen model. The rows are kept in a cache.

An encoder is a module with `kinds`, the kinds of rows that it reads (`cocos.data.training_set.KINDS`), and
`encode(items, kind, side)`, which returns (n, D) for n rows of one side, `query` or `candidate`, normalised exactly as
in training. Optional: `items_at_once`, its largest batch; `identity`, a text of the settings that its embeddings depend
on; `name`, for messages.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cocos.base import user_code
from cocos.base.errors import InputError, nearest
from cocos.checkpoints import cache
from cocos.checkpoints.pictures import IMAGES_AT_ONCE, Preparation
from cocos.data.training_set import KINDS, Side, TrainingSet
from cocos.embeddings import Embeddings

ITEMS_AT_ONCE = 512
SIDES = ("query", "candidate")
PREPARATION_KEYS = ("resize", "crop", "mean", "std", "resampling")
# Default preparation of images for a user's encoder: numbers from 0 to 1.
UNNORMALISED = Preparation(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def device_of(name: str | None) -> torch.device:
    """Return a device by name: `cpu`, `cuda` or `cuda:1`, or `auto` for a GPU if available."""
    if name in {None, "auto"}:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InputError(f"device: {name!r}, expected auto, cpu or cuda") from None
    if device.type not in {"cpu", "cuda"}:
        raise InputError(f"device: {name!r}, expected auto, cpu or cuda")
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise InputError(f"device: {name!r}, but PyTorch finds {torch.cuda.device_count()} CUDA devices; use cpu")
    return device


@torch.no_grad()
def embed(
    build: Callable[[], Any],
    training: TrainingSet,
    *,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
    proxies: Tensor | None = None,
    proxy_labels: Tensor | None = None,
    optional_proxies: bool = False,
    about: Mapping[str, str] | None = None,
) -> Embeddings:
    """Encode a training set, with the names, pictures and hard negatives of its rows.

    Args:
        build: returns the frozen encoder; it is not called if the rows are in the cache.
        training: the rows of both sides, or a labelled set.
        device: `auto`, `cpu` or `cuda`.
        progress: called with (rows done, rows in all).
        proxies: (P, D) class vectors of a labelled set, unless it has its own; without any its samples are compared
            with each other.
        proxy_labels: (P,) class of each proxy; default 0 to P-1.
        optional_proxies: leave out proxies that do not fit the rows and their classes, with a note.
        about: all that the encoder depends on, the key of the cache; None: nothing is kept.
    """
    sides = (training.query,) if training.candidate is None else training.sides
    if not all(map(len, sides)):
        raise InputError("the data have no rows")
    target = device_of(device)
    key = {**about, "data": training.identity, "device": target.type} if about else {}
    total = sum(map(len, sides))
    rows = cache.embeddings(key, total, lambda: encode_sides(build().to(target), sides, total, progress))
    query, *candidate = rows.to(target).split([len(side) for side in sides])
    names, notes = training.names(), training.notes
    if candidate:
        return Embeddings(
            query,
            candidate[0],
            training.query.group,
            training.candidate.group,
            directions=training.directions,
            names=names,
            pictures=(training.query.shown, training.candidate.shown),
            negatives=training.negatives,
            notes=notes,
        )
    classes, shown = training.query.group, {"names": names[0], "pictures": training.query.shown}
    if training.proxies is not None:
        proxies, proxy_labels = training.proxies, training.proxy_labels
    elif proxies is not None:
        try:
            notes = (*notes, match_classes(classes, query, proxies, proxy_labels))
        except InputError as error:
            if not optional_proxies:
                raise
            notes, proxies = (*notes, f"proxies are not used: {error}"), None
    if proxies is None:
        return Embeddings.labelled(query, classes, **shown, notes=notes)
    shown = {name: (values, None) for name, values in shown.items()}
    return Embeddings.labelled(query, classes, proxies.to(query), proxy_labels, **shown, notes=notes)


def match_classes(classes: Tensor, rows: Tensor, proxies: Tensor, labels: Tensor | None) -> str:
    """Return the note that the classes of the data and the proxies of a checkpoint are matched by number.

    Raises:
        InputError: a class has no proxy, or the dimensions differ.
    """
    if rows.shape[1] != proxies.shape[1]:
        raise InputError(f"proxies: {proxies.shape[1]} dimensions, expected {rows.shape[1]} as the samples")
    numbers, present = (torch.arange(len(proxies)) if labels is None else labels.cpu()).unique(), classes.unique()
    if missing := present[~torch.isin(present, numbers)].tolist():
        raise InputError(
            f"class {', '.join(map(str, missing[:5]))} of the data has no proxy ({len(missing)} such): the checkpoint "
            f"has {len(proxies)}, of classes {int(numbers[0])} to {int(numbers[-1])}; use the data of its training"
        )
    return (
        f"class k of the data is matched with class k of the checkpoint's proxies ({len(present)} classes in the data, "
        f"{len(numbers)} among the proxies); folders of classes are numbered by name"
    )


def encode_sides(
    model: Any, sides: tuple[Side, ...], total: int, progress: Callable[[int, int], None] | None
) -> Tensor:
    """Encode the rows of the sides in batches, (total, D) float32 on the CPU; texts in order of length."""
    name, rows, done = getattr(model, "name", type(model).__name__), torch.empty(0), 0
    for side, role in zip(sides, SIDES, strict=False):
        if side.kind not in model.kinds:
            raise InputError(f"{name} reads {' and '.join(model.kinds)}, and the data have {side.kind}")
        start, order = done, list(range(len(side)))
        if side.kind == "text" and getattr(model, "pads", False):
            order.sort(key=lambda row: -len(side.items[row]))  # the longest first: memory fails early
        images = side.kind == "image" and not isinstance(side.items, Tensor | np.ndarray)
        size = min(ITEMS_AT_ONCE, getattr(model, "items_at_once", IMAGES_AT_ONCE if images else ITEMS_AT_ONCE))
        for first in range(0, len(side), size):
            batch = order[first : first + size]
            ordered = batch == list(range(first, first + len(batch)))
            items = side.items[first : first + len(batch)] if ordered else [side.items[row] for row in batch]
            with evaluating(model):
                vectors = model.encode(list(items) if side.kind == "text" else items, side.kind, role)
            shape = tuple(vectors.shape) if isinstance(vectors, Tensor) and vectors.is_floating_point() else ()
            if len(shape) != 2 or shape[0] != len(batch):
                is_tensor = isinstance(vectors, Tensor)
                result = f"{vectors.dtype} {tuple(vectors.shape)}" if is_tensor else type(vectors).__name__
                raise InputError(f"{name} returned {result} for the {role} side, expected floats ({len(batch)}, D)")
            if not done:
                rows = torch.empty(total, vectors.shape[1], dtype=torch.float32)
            if vectors.shape[1] != rows.shape[1]:
                raise InputError(f"{name} returned {rows.shape[1]} and {vectors.shape[1]} dimensions, expected one")
            rows[start + torch.tensor(batch)] = vectors.detach().to("cpu", torch.float32)
            done += len(batch)
            if progress:
                progress(done, total)
    return rows


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Put an encoder into eval mode and restore its modes: a user's model may be in training."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


class UserEncoder(nn.Module):
    """Functions or modules of the user, one for each side.

    Texts come as a list; features and images in arrays as a tensor on the device. Images in files come as (n, 3, 224,
    224) float32 from 0 to 1: the shorter side is resized to 256 pixels, and the centre is cropped. A dictionary
    `images` of the function (`read_preparation`) changes this, also for images in arrays.
    """

    kinds = KINDS

    def __init__(self, name: str, functions: dict[str, Callable]):
        super().__init__()
        self.name, self.functions = name, functions
        declared = (getattr(function, "images", None) for function in functions.values())
        images = next((images for images in declared if isinstance(images, dict)), None)
        self.preparation = UNNORMALISED if images is None else read_preparation(images)
        self.towers = nn.ModuleList({f: None for f in functions.values() if isinstance(f, nn.Module)})
        self.register_buffer("place", torch.empty(0), persistent=False)

    def encode(self, items: Any, kind: str, side: str) -> Tensor:
        """Encode rows to (n, D)."""
        device: Any = self.place.device  # type: ignore[union-attr]
        if kind == "image" and not (self.preparation is UNNORMALISED and isinstance(items, Tensor | np.ndarray)):
            items = self.preparation(items)
        if isinstance(items, Tensor | np.ndarray):
            items = torch.as_tensor(items).to(device)
        with user_code.reported(self.name):
            vectors = self.functions[side](items)
        try:
            vectors = torch.as_tensor(vectors).detach()
        except (TypeError, ValueError, RuntimeError):
            raise InputError(f"{self.name} returned {type(vectors).__name__}, expected vectors, (n, D)") from None
        return vectors.to(device)


def user_encoder(encoder: Any, name: str) -> nn.Module:
    """Return an encoder for a function from a batch of rows to vectors, a module, or a dictionary of one per side.

    Examples:
        >>> from cocos.checkpoints import encoding
        >>> encoder = encoding.user_encoder(lambda texts: [[float(len(text)), 1.0] for text in texts], "lengths")
        >>> encoder.encode(["a", "to"], "text", "query")
        tensor([[1., 1.],
                [2., 1.]])
    """
    if isinstance(encoder, nn.Module) and hasattr(encoder, "kinds") and callable(getattr(encoder, "encode", None)):
        return encoder
    functions = dict(encoder) if isinstance(encoder, Mapping) else dict.fromkeys(SIDES, encoder)
    for side in functions:
        if side not in SIDES:
            raise InputError(f"{name}: {nearest('side', str(side), SIDES)}")
    if wrong := [side for side in SIDES if not callable(functions.get(side))]:
        value = type(functions.get(wrong[0])).__name__
        raise InputError(
            f"{name}: {value} for {wrong[0]}, expected a function from a batch of rows to vectors, a module, or a "
            "dictionary of two, query and candidate"
        )
    return UserEncoder(name, functions)


def read_preparation(images: Mapping[str, Any]) -> Preparation:
    """Return the preparation of images that a user's function declares.

    Args:
        images: `resize` (the shorter side, or height and width, in pixels), `crop` (height and width), `mean` and `std`
            (of values from 0 to 1), `resampling` (`bilinear` or `bicubic`). Absent steps are skipped.
    """
    settings: dict[str, Any] = {"resize": None, "crop": None, "mean": UNNORMALISED.mean, "std": UNNORMALISED.std}
    settings |= {key: tuple(value) if isinstance(value, list) else value for key, value in images.items()}
    if unknown := [key for key in images if key not in PREPARATION_KEYS]:
        raise InputError(nearest("key of images", unknown[0], PREPARATION_KEYS))
    preparation = Preparation(**settings)
    if len(preparation.mean) != len(UNNORMALISED.mean):
        raise InputError(f"images: mean {settings['mean']}, expected {len(UNNORMALISED.mean)} numbers")
    return preparation
