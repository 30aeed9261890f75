"""The shelf of encoders: one file per architecture that a checkpoint can name, each an `Architecture`.

A family of checkpoints, whose format and encoder belong together, is one file of `cocos.checkpoints.formats`; its
encoder is on this shelf by the same name.
"""

import importlib
import pkgutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from cocos.base import cache, user_code
from cocos.base.errors import InputError, NotFinite, nearest
from cocos.checkpoints.pictures import IMAGES_AT_ONCE, Preparation
from cocos.data import KINDS, Side, TrainingSet
from cocos.embeddings import Embeddings

__all__ = [
    "Architecture",
    "Encoder",
    "OwnEncoder",
    "build",
    "completed",
    "device_of",
    "embed",
    "fits",
    "freeze",
    "names",
    "own",
    "without_memory",
]

# Rows that are encoded at once, unless an encoder has an `items_at_once` of its own.
ITEMS_AT_ONCE = 512
SIDES = ("query", "candidate")
# Preparation of images in files for an encoder of the user's that asks for no other: numbers from 0 to 1.
UNNORMALISED = Preparation(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
COUNTER = "num_batches_tracked"  # of batch normalisation; files of PyTorch before 0.4.1 have none


class Encoder(Protocol):
    """A built model, an `nn.Module`.

    An encoder that pads texts to the longest one of a batch sets `pads = True`: its texts come in order of length.
    `items_at_once` is the largest batch that it wants. `identity`, a text, is what its vectors depend on beside its
    weights, such as settings.

    Attributes:
        kinds: of rows that it reads (`cocos.data.KINDS`).
    """

    kinds: tuple[str, ...]

    def encode(self, items: Any, kind: str, side: str) -> Tensor:
        """Encode rows to (n, D), normalised exactly as in training.

        Args:
            items: n rows: a list of texts, or as many rows of an array, a tensor or a list.
            kind: of the rows, one of `kinds`.
            side: `query` or `candidate`, for encoders that treat them differently.
        """


class Architecture(Protocol):
    """A file of this shelf."""

    def build(self, **arguments: Any) -> nn.Module:
        """Build an `Encoder` with random weights from the arguments that a checkpoint records."""


def names() -> list[str]:
    """Return the names of all architectures on the shelf."""
    from cocos.checkpoints import formats  # which are read with this module

    families = {name for name in formats.names() if hasattr(formats.load(name), "build")}
    return sorted({m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")} | families)


def load(name: str) -> Any:
    """Import an architecture: of this shelf, or of a family of checkpoints."""
    from cocos.checkpoints import formats

    if name not in names():
        raise InputError(nearest("encoder", name, names()))
    own = any(m.name == name for m in pkgutil.iter_modules(__path__))
    return importlib.import_module(f"{__name__}.{name}") if own else formats.load(name)


def build(name: str, arguments: dict) -> nn.Module:
    """Build an architecture, by its name, from the arguments that a checkpoint recorded."""
    architecture: Architecture = load(name)
    try:
        return architecture.build(**arguments)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise InputError(f"encoder {name} cannot be built from {str(arguments)[:200]}: {reason}") from None


def freeze(model: nn.Module, state: dict) -> nn.Module:
    """Load a state dict, strictly, and freeze: eval mode, no parameter requires a gradient."""
    own = model.state_dict()
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys(), key=str)
    reshaped = [k for k in own.keys() & state.keys() if own[k].shape != state[k].shape]
    for what, keys in (("missing", missing), ("not in the model", unexpected), ("of another shape", sorted(reshaped))):
        if keys:
            shown = ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
            raise InputError(f"weights do not fit {getattr(model, 'name', type(model).__name__)}: {what}: {shown}")
    model.load_state_dict(state, assign=True)
    return model.eval().requires_grad_(False)


def prepared(images: dict[str, Any]) -> Preparation:
    """Return the preparation of images that a function of the user's asks for.

    Args:
        images: `resize` (the shorter side, or height and width, in pixels), `crop` (height and width of the middle),
            `mean` and `std` (where white is 1), `resampling` (`bilinear` or `bicubic`). What is not named is
            not done.
    """
    given: dict[str, Any] = {"resize": None, "crop": None, "mean": UNNORMALISED.mean, "std": UNNORMALISED.std}
    for key in images:
        if key not in {*given, "resampling"}:
            raise InputError(nearest("key of images", key, [*given, "resampling"]))
    given |= {key: tuple(value) if isinstance(value, list) else value for key, value in images.items()}
    preparation = Preparation(**given)
    if len(preparation.mean) != len(UNNORMALISED.mean):
        raise InputError(f"images: mean {given['mean']}, expected {len(UNNORMALISED.mean)} numbers")
    return preparation


def device_of(name: str | None) -> torch.device:
    """Find a device by name: `cpu`, `cuda` (also `cuda:1`), or `auto` for the GPU where there is one."""
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
    """Encode a training set once, with the names, pictures and hard negatives of its rows.

    Args:
        build: returns the frozen `Encoder`; it is not called where the rows are in the cache.
        training: the rows of both sides, or a labelled set.
        device: `auto`, `cpu` or `cuda`.
        progress: called with (items done, items in all).
        proxies: (P, D) class vectors that a labelled set is counted against, unless it has its own; without any its
            samples ask each other.
        proxy_labels: (P,) class of each proxy; 0..P-1 when left out.
        optional_proxies: leave out proxies that do not fit the rows and their classes, with a note.
        about: all that the model depends on, as the key of the cache; None: nothing is kept.
    """
    sides = (training.query,) if training.candidate is None else training.sides
    if not all(map(len, sides)):
        raise InputError("the data have no rows")
    place = device_of(device)
    key = {**about, "data": training.identity, "device": place.type} if about else {}
    rows = cache.embeddings(
        key,
        sum(map(len, sides)),
        lambda: _work(build().to(place), sides),
        progress=progress,
    )
    found = rows.to(place).split([len(side) for side in sides])
    if proxies is not None and training.candidate is None and training.proxies is None and optional_proxies:
        try:
            _matched(training.query.group, found[0], proxies, proxy_labels)
        except InputError as error:
            training, proxies = replace(training, notes=(*training.notes, f"proxies are not used: {error}")), None
    return _assembled(found, training, proxies, proxy_labels)


def _assembled(
    found: Sequence[Tensor], training: TrainingSet, proxies: Tensor | None, proxy_labels: Tensor | None
) -> Embeddings:
    """Put the rows of the sides together with their annotations."""
    names, notes, (query, candidate) = training.names(), training.notes, training.sides
    if training.candidate is None:
        if training.proxies is not None:
            proxies, proxy_labels = training.proxies, training.proxy_labels
        elif proxies is not None:
            notes = (*notes, _matched(query.group, found[0], proxies, proxy_labels))
        if proxies is None:
            return Embeddings.labelled(found[0], query.group, names=names[0], pictures=query.shown, notes=notes)
        proxies = proxies.to(found[0])
        given: dict[str, Any] = {"names": (names[0], None), "pictures": (query.shown, None), "notes": notes}
        return Embeddings.labelled(found[0], query.group, proxies, proxy_labels, **given)
    return Embeddings(
        found[0],
        found[1],
        query.group,
        candidate.group,
        directions=training.directions,
        names=names,
        pictures=(query.shown, candidate.shown),
        negatives=training.negatives,
        notes=notes,
    )


def _matched(classes: Tensor, rows: Tensor, proxies: Tensor, labels: Tensor | None) -> str:
    """Say how the classes of the data and the proxies of a checkpoint were matched: by number."""
    if rows.shape[1] != proxies.shape[1]:
        raise InputError(f"proxies: {proxies.shape[1]} dimensions, expected {rows.shape[1]} as the samples")
    known = torch.arange(len(proxies)) if labels is None else labels.cpu()
    found = classes.unique()
    if missing := found[~torch.isin(found, known)].tolist():
        shown = ", ".join(map(str, missing[:5])) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise InputError(
            f"class {shown} of the data has no proxy: the checkpoint has {len(proxies)}, of classes {int(known.min())} "
            f"to {int(known.max())}; give the data of its training, whose classes are numbered alike"
        )
    return (
        f"class k of the data is taken for the class k of the proxies that came with the model ({len(found)} classes "
        f"in the data, {len(known.unique())} among the proxies); folders of classes are numbered in order of name"
    )


@contextmanager
def _evaluating(model: nn.Module) -> Generator[None]:
    """Put an encoder into eval mode, and a user's, which may be in training, back into its own."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _work(model: Any, sides: tuple[Side, ...]) -> cache.Work:
    """Divide the rows of the sides into batches for an encoder."""
    named = getattr(model, "name", type(model).__name__)
    batches: list[tuple[Side, str, Sequence[int]]] = []
    for side, name in zip(sides, ("query", "candidate"), strict=False):
        if side.kind not in model.kinds:
            raise InputError(f"{named} reads {' and '.join(model.kinds)}, and the data have {side.kind}")
        rows: Sequence[int] = range(len(side))
        if side.kind == "text" and getattr(model, "pads", False):
            rows = sorted(rows, key=lambda row: -len(side.items[row]))  # the longest first: memory fails early
        files = side.kind == "image" and not isinstance(side.items, Tensor | np.ndarray)  # of any size in pixels
        most = min(ITEMS_AT_ONCE, getattr(model, "items_at_once", IMAGES_AT_ONCE if files else ITEMS_AT_ONCE))
        batches += [(side, name, rows[start : start + most]) for start in range(0, len(side), most)]

    def encode(batch: int) -> Tensor:
        side, name, rows = batches[batch]
        some = side.items[rows.start : rows.stop] if isinstance(rows, range) else [side.items[row] for row in rows]
        with _evaluating(model):
            found = model.encode(list(some) if side.kind == "text" else some, side.kind, name)
        if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != len(rows) or not found.is_floating_point():
            what = f"{found.dtype} of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise InputError(
                f"{named} returned {what} for {len(rows)} rows of the {name} side, expected floats of shape "
                f"({len(rows)}, D)"
            )
        return found.float()

    first = {"query": 0, "candidate": len(sides[0])}
    order = torch.cat([torch.as_tensor(list(rows)) + first[name] for _, name, rows in batches])
    return cache.Work([len(rows) for *_, rows in batches], encode, order)


class OwnEncoder(nn.Module):
    """Functions of the user's, one for each side; modules among them move with this one.

    Args:
        name: for messages.
        functions: `query` and `candidate` -> function of a batch of rows, as `Encoder.encode` gets them: a list
            of texts, or a tensor on the device of the computation. It returns (n, D), as a tensor or an array.

    Images in files come as (n, 3, 224, 224) of float32 from 0 to 1: the shorter side is 256 pixels, and the middle is
    cut out. An attribute `images` of the function (`prepared`) says otherwise, also of images in arrays,
    which are otherwise (n, 3, H, W) of uint8, as they are in the data.
    """

    kinds = KINDS

    def __init__(self, name: str, functions: dict[str, Callable]):
        super().__init__()
        self.name, self.functions = name, functions
        self.preparation = UNNORMALISED
        told = (getattr(each, "images", None) for each in functions.values())  # a module may have a tower of this name
        if images := next((each for each in told if isinstance(each, dict)), None):
            self.preparation = prepared(images)
        self.modules_of = nn.ModuleList(
            dict.fromkeys(each for each in functions.values() if isinstance(each, nn.Module))
        )
        self.register_buffer("place", torch.empty(0), persistent=False)

    def encode(self, items: Any, kind: str, side: str) -> Tensor:
        """Encode rows to (n, D)."""
        device: Any = self.place.device  # type: ignore[union-attr]
        if kind == "image" and not (self.preparation is UNNORMALISED and isinstance(items, Tensor | np.ndarray)):
            items = self.preparation(items)
        if isinstance(items, Tensor | np.ndarray):
            items = torch.as_tensor(items).to(device)
        with user_code.reported(self.name):
            found = self.functions[side](items)
        try:
            found = torch.as_tensor(found).detach()
        except (TypeError, ValueError, RuntimeError):
            raise InputError(f"{self.name} returned {type(found).__name__}, expected vectors, (n, D)") from None
        if not found.is_floating_point() or found.ndim != 2:
            return found  # refused, with its shape, where all encoders are
        if wrong := (~found.isfinite().all(dim=1)).nonzero().flatten().tolist():
            shown = f", for {str(items[wrong[0]])[:60]!r}" if kind == "text" else ""
            raise NotFinite(
                f"{self.name} returned NaN or infinity in row {wrong[0]} of a batch of {len(found)} rows of the {side} "
                f"side{shown}"
            )
        return found.to(device)


def own(found: Any, name: str) -> nn.Module:
    """Make an encoder of what a user has.

    Args:
        found: an `Encoder`, any function of a batch of rows (a module is one), or a dictionary of two, by side.
        name: of it, for messages.

    Examples:
        >>> encoder = cocos.encoders.own(lambda texts: [[float(len(text)), 1.0] for text in texts], "lengths")
        >>> encoder.encode(["a", "to"], "text", "query")
        tensor([[1., 1.],
                [2., 1.]])
    """
    if isinstance(found, nn.Module) and hasattr(found, "kinds") and callable(getattr(found, "encode", None)):
        return found
    if isinstance(found, Mapping):
        for side in found:
            if side not in SIDES:
                raise InputError(f"{name}: {nearest('side', str(side), SIDES)}")
        if wrong := [side for side in SIDES if not callable(found.get(side))]:
            raise InputError(f"{name}: no function for the side {wrong[0]!r} in a dictionary of encoders")
        return OwnEncoder(name, dict(found))
    if not callable(found):
        raise InputError(
            f"{name}: {type(found).__name__}, expected a function from a batch of rows to vectors, a module, or a "
            "dictionary of two, query and candidate"
        )
    return OwnEncoder(name, dict.fromkeys(SIDES, found))


class _Unfilled(TorchFunctionMode):
    """Initialise no layer with normal numbers: on the meta device PyTorch imports its compiler to do so (2 s)."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return kwargs["tensor"] if func is nn.init.normal_ else func(*args, **(kwargs or {}))


@contextmanager
def without_memory() -> Generator[None]:
    """Build models whose tensors have shapes and no memory."""
    with torch.device("meta"), _Unfilled():
        yield


def completed(state: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Add the counters of batch normalisation that files of an old PyTorch lack; inference does not read them."""
    absent = [key for key in model.state_dict().keys() - state.keys() if key.endswith(COUNTER)]
    return dict(state) | {key: torch.tensor(0) for key in absent}


def fits(build: Callable[[], nn.Module], state: Mapping[str, Tensor]) -> bool:
    """Whether a model, built from sizes read from a state dict, has exactly its names and shapes, save for counters."""
    try:
        with without_memory():
            own = build().state_dict()
    except (InputError, RuntimeError, ValueError, TypeError, OverflowError):
        return False  # sizes of other layers, read as if they were of this model
    absent = own.keys() - state.keys()
    if state.keys() - own.keys() or any(not key.endswith(COUNTER) for key in absent):
        return False
    return all(state[key].shape == each.shape for key, each in own.items() if key not in absent)
