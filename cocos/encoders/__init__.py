"""The shelf of encoders: one file per architecture that a checkpoint can name, each an `Architecture`.

An installed distribution can add architectures, as entry points of the group `cocos.encoders` (`cocos.plugins`). They
are looked up only where no file of the shelf has the name, and a file can name nothing but what is installed.
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from cocos import plugins
from cocos.data import Side, TrainingSet
from cocos.embeddings import Embeddings
from cocos.errors import InputError, nearest

__all__ = ["Architecture", "Encoder", "build", "device_of", "distribution_of", "embed", "freeze", "names"]

# Rows that are encoded at once, unless an encoder has an `items_at_once` of its own.
ITEMS_AT_ONCE = 512


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
        """Build an `Encoder` with random weights from the arguments that a checkpoint records.

        Raises:
            InputError: arguments that fit no model.
        """


def names() -> list[str]:
    """Return the names of all architectures on the shelf."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not (m.ispkg or m.name.startswith("_")))


def _plugin(name: str) -> plugins.Plugin:
    """Import an architecture of another distribution.

    Raises:
        InputError: none has one of this name, or it cannot be used.
    """
    found = plugins.find(plugins.ENCODERS, name, needs=("build",))
    if found is None:
        raise InputError(nearest("encoder", name, [*names(), *plugins.names(plugins.ENCODERS)]))
    return found


def distribution_of(name: str) -> str:
    """Name the distribution, with its version, that provides an architecture; empty for those of cocos.

    Raises:
        InputError: no such architecture.
    """
    return "" if name in names() else str(_plugin(name))


def build(name: str, arguments: dict, state: dict[str, Tensor] | None = None) -> nn.Module:
    """Build an architecture from the arguments that a checkpoint recorded.

    Args:
        name: of the architecture.
        arguments: of its `build`.
        state: weights that it is built for: there are no more layers (`num_...`) than tensors, and no size is larger
            than all numbers together.

    Raises:
        InputError: no such architecture, or arguments that it does not have.
    """
    own = name in names()
    architecture: Architecture = importlib.import_module(f"{__name__}.{name}") if own else _plugin(name).target
    if state is not None:
        _bound(name, arguments, len(state), sum(map(torch.numel, state.values())))
    try:
        return architecture.build(**arguments)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise InputError(f"encoder {name} cannot be built from {str(arguments)[:200]}: {reason}") from None


def _bound(name: str, arguments: dict, tensors: int, numbers: int) -> None:
    """Refuse sizes that the weights of a file do not explain, before anything is built from them.

    Raises:
        InputError: naming the argument.
    """
    for key, value in arguments.items():
        most, of = (tensors, "tensors") if key.startswith("num_") else (numbers, "numbers")
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, int) and not isinstance(item, bool) and not 0 < item <= most:
                raise InputError(f"encoder {name}: {key} {item}, expected 1 to {most}: the weights have {most} {of}")


def freeze(model: nn.Module, state: dict) -> nn.Module:
    """Load a state dict, strictly, and freeze: eval mode, no parameter requires a gradient.

    Raises:
        InputError: keys or shapes that do not fit (the first few are named).
    """
    own = model.state_dict()
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys(), key=str)
    reshaped = [k for k in own.keys() & state.keys() if own[k].shape != state[k].shape]
    for what, keys in (
        ("missing", missing),
        ("not in the model", unexpected),
        ("of another shape", sorted(reshaped)),
    ):
        if keys:
            shown = ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
            raise InputError(f"weights do not fit {getattr(model, 'name', type(model).__name__)}: {what}: {shown}")
    model.load_state_dict(state, assign=True)
    return model.eval().requires_grad_(False)


def device_of(name: str | None) -> torch.device:
    """Find a device by name: `cpu`, `cuda` (also `cuda:1`), or `auto` for the GPU where there is one.

    Raises:
        InputError: another name, or a GPU that is not there.
    """
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
    model: Any,
    training: TrainingSet,
    *,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
    proxies: Tensor | None = None,
    proxy_labels: Tensor | None = None,
) -> Embeddings:
    """Encode a training set once, with the names, pictures and hard negatives of its rows.

    Args:
        model: a frozen `Encoder`.
        training: the rows of both sides, or a labelled set.
        device: `auto`, `cpu` or `cuda`.
        progress: called with (items done, items in all).
        proxies: (P, D) class vectors that a labelled set is counted against; None: its samples ask each other.
        proxy_labels: (P,) class of each proxy; 0..P-1 when left out.

    Raises:
        InputError: rows of a kind that the encoder does not read, or vectors that are none.
    """
    sides = (training.query,) if training.candidate is None else training.sides
    _readable(model, sides)
    model = model.to(device_of(device))
    total, done = sum(map(len, sides)), 0

    def report(number: int) -> None:
        nonlocal done
        done += number
        if progress:
            progress(done, total)

    found = [_encoded(model, side, name, report) for side, name in zip(sides, ("query", "candidate"), strict=False)]
    names, (query, candidate) = training.names(), training.sides
    if training.candidate is None:
        if proxies is None:
            return Embeddings.labelled(found[0], query.group, names=names[0], pictures=query.shown)
        proxies = proxies.to(found[0])
        given = {"names": (names[0], None), "pictures": (query.shown, None)}
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
    )


def _readable(model: Any, sides: tuple[Side, ...]) -> None:
    """Refuse rows that an encoder does not read.

    Raises:
        InputError: naming their kind.
    """
    for side in sides:
        if side.kind not in model.kinds:
            name = getattr(model, "name", type(model).__name__)
            raise InputError(f"{name} reads {' and '.join(model.kinds)}, and the data have {side.kind}")
        if not len(side):
            raise InputError("the data have no rows")


def _encoded(model: Any, side: Side, name: str, report: Callable[[int], None]) -> Tensor:
    """Encode the rows of one side, (N, D), in float32.

    Raises:
        InputError: the encoder returns anything but a vector for each row.
    """
    size = min(ITEMS_AT_ONCE, getattr(model, "items_at_once", ITEMS_AT_ONCE))
    order = None
    if side.kind == "text" and getattr(model, "pads", False):
        order = sorted(range(len(side)), key=lambda row: -len(side.items[row]))  # the longest first: memory fails early
    parts = []
    for start in range(0, len(side), size):
        rows = range(start, min(start + size, len(side)))
        some = side.items[rows.start : rows.stop] if order is None else [side.items[order[row]] for row in rows]
        some = list(some) if side.kind == "text" else some
        part = model.encode(some, side.kind, name)
        if not isinstance(part, Tensor) or part.ndim != 2 or len(part) != len(rows) or not part.is_floating_point():
            what = f"{part.dtype} of shape {tuple(part.shape)}" if isinstance(part, Tensor) else type(part).__name__
            raise InputError(
                f"{getattr(model, 'name', type(model).__name__)} returned {what} for {len(rows)} rows of the {name} "
                f"side, expected floats of shape ({len(rows)}, D)"
            )
        parts.append(part.float())
        report(len(rows))
    if (widths := {part.shape[1] for part in parts}) and len(widths) > 1:
        raise InputError(f"{name}: vectors of {' and '.join(map(str, sorted(widths)))} numbers, expected one width")
    found = torch.cat(parts)
    return found if order is None else found[torch.tensor(order, device=found.device).argsort()]
