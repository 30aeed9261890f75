"""Encode training data with a frozen model.

An encoder is a module with `kinds`, the kinds of rows that it reads (`cocos.data.training_set.KINDS`), and
`encode(items, kind, side)`, which returns (n, D) for n rows of one side, `query` or `candidate`, normalised exactly as
in training. Optional: `items_at_once`, its largest batch; `name`, for messages.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cocos.base import user_code
from cocos.base.errors import InputError
from cocos.checkpoints.pictures import IMAGES_AT_ONCE, Preparation
from cocos.data.training_set import KINDS, Side, TrainingSet
from cocos.embeddings import Embeddings

ITEMS_AT_ONCE = 512
SIDES = ("query", "candidate")


def device_of(name: str | None) -> torch.device:
    """Return a device by name: `cpu`, `cuda` or `cuda:1`, or `auto` for a GPU if available."""
    if name in {None, "auto"}:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    number = torch.cuda.device_count()
    devices = ("cpu", "cuda", *(f"cuda:{index}" for index in range(number)))[: None if number else 1]
    if str(name) not in devices:
        raise InputError(f"device: {name!r}, expected auto or one of {', '.join(devices)} on this machine")
    return torch.device(name)


def embed(
    model: nn.Module,
    training: TrainingSet,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
    proxies: Tensor | None = None,
    proxy_labels: Tensor | None = None,
) -> Embeddings:
    """Encode a training set, with the names, pictures and hard negatives of its rows; `progress(done, total)`.

    `proxies` (P, D) of classes `proxy_labels` (P,) are the candidates of a labelled set, unless it has its own or they
    do not fit its rows and classes.
    """
    sides = (training.query,) if training.candidate is None else training.sides
    if not all(map(len, sides)):
        raise InputError("the data have no rows")
    target, total = device_of(device), sum(map(len, sides))
    modes = {module: module.training for module in model.modules()}  # a user's model may be in training
    try:
        rows = encode_sides(model.to(target).eval(), sides, total, progress)
    finally:
        for module, mode in modes.items():
            module.training = mode
    query, *candidate = rows.to(target).split([len(side) for side in sides])
    names, notes = training.names(), training.notes
    if candidate:
        groups, pictures = zip(*((side.group, side.shown) for side in sides), strict=True)
        options = {"names": names, "pictures": pictures, "negatives": training.negatives, "notes": notes}
        return Embeddings(query, candidate[0], *groups, directions=training.directions, **options)
    classes, shown = training.query.group, {"names": names[0], "pictures": training.query.shown}
    if training.proxies is not None:
        proxies, proxy_labels = training.proxies, training.proxy_labels
    elif proxies is not None:
        numbers = torch.arange(len(proxies)) if proxy_labels is None else proxy_labels.cpu()
        missing = int((~torch.isin(classes.unique(), numbers)).sum())
        if missing or query.shape[1] != proxies.shape[1]:
            fit = f"{missing} classes without one, {proxies.shape[1]} dimensions of {query.shape[1]}"
            notes, proxies = (*notes, f"proxies of the checkpoint are not used: {fit}"), None
        else:
            notes = (*notes, "class k of the data is matched with class k of the checkpoint's proxies")
    if proxies is None:
        return Embeddings.labelled(query, classes, **shown, notes=notes)
    paired = {name: (values, None) for name, values in shown.items()}
    return Embeddings.labelled(query, classes, proxies.to(query), proxy_labels, **paired, notes=notes)


@torch.no_grad()
def encode_sides(
    model: Any, sides: tuple[Side, ...], total: int, progress: Callable[[int, int], None] | None
) -> Tensor:
    """Encode the rows of the sides in batches, (total, D) float32 on the CPU."""
    name, rows, done = getattr(model, "name", type(model).__name__), torch.empty(0), 0
    for side, role in zip(sides, SIDES, strict=False):
        if side.kind not in model.kinds:
            raise InputError(f"{name} reads {' and '.join(model.kinds)}, and the data have {side.kind}")
        images = side.kind == "image" and not isinstance(side.items, Tensor | np.ndarray)
        size = min(ITEMS_AT_ONCE, getattr(model, "items_at_once", IMAGES_AT_ONCE if images else ITEMS_AT_ONCE))
        for first in range(0, len(side), size):
            items = side.items[first : first + size]
            vectors = model.encode(list(items) if side.kind == "text" else items, side.kind, role)
            if not done:
                rows = torch.empty(total, *vectors.shape[1:], dtype=torch.float32)
            shape = len(items), *rows.shape[1:]
            if not vectors.is_floating_point() or tuple(vectors.shape) != shape or rows.ndim != 2:
                result = f"{vectors.dtype} {tuple(vectors.shape)}"
                raise InputError(f"{name} returned {result} for the {role} side, expected floats ({len(items)}, D)")
            rows[done : done + len(items)] = vectors.detach().to("cpu", torch.float32)
            done += len(items)
            if progress:
                progress(done, total)
    return rows


class UserEncoder(nn.Module):
    """Functions or modules of the user, one for each side.

    Texts come as a list, features and images in arrays as a tensor, and images in files as (n, 3, 224, 224) float32
    from 0 to 1. A dictionary `images` of the function (`Preparation.read`) changes this, also for images in arrays.
    """

    kinds = KINDS

    def __init__(self, name: str, functions: Mapping[str, Callable]):
        super().__init__()
        self.name, self.functions = name, functions
        declared = (getattr(function, "images", None) for function in functions.values())
        images = next((images for images in declared if isinstance(images, dict)), None)
        self.prepares_arrays = images is not None
        self.preparation = Preparation.read({"resize": 256, "crop": (224, 224)} if images is None else images)
        self.towers = nn.ModuleList({f: None for f in functions.values() if isinstance(f, nn.Module)})
        self.register_buffer("on_device", torch.empty(0), persistent=False)

    def encode(self, items: Any, kind: str, side: str) -> Tensor:
        """Encode rows to (n, D)."""
        device: Any = self.on_device.device  # type: ignore[union-attr]
        if kind == "image" and (self.prepares_arrays or not isinstance(items, Tensor | np.ndarray)):
            items = self.preparation(items)
        if isinstance(items, Tensor | np.ndarray):
            items = torch.as_tensor(items).to(device)
        with user_code.reported(self.name):
            return torch.as_tensor(self.functions[side](items)).detach().to(device)


def user_encoder(encoder: Any, name: str) -> nn.Module:
    """Return an encoder for a function from a batch of rows to vectors, a module, or a dictionary of one per side."""
    if isinstance(encoder, nn.Module) and hasattr(encoder, "kinds") and callable(getattr(encoder, "encode", None)):
        return encoder
    functions = encoder if isinstance(encoder, Mapping) else dict.fromkeys(SIDES, encoder)
    if not all(callable(functions.get(side)) for side in SIDES):
        value = type(encoder).__name__
        raise InputError(f"{name}: {value}, expected a function from rows to vectors, or one for query and candidate")
    return UserEncoder(name, functions)
