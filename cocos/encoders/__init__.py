"""The shelf of encoders: one file per architecture that a checkpoint can name, each an `Architecture`.

An installed distribution can add architectures, as entry points of the group `cocos.encoders` (`cocos.plugins`). They
are looked up only where no file of the shelf has the name, and a file can name nothing but what is installed.
"""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from cocos import plugins
from cocos.data import ImageCaptions
from cocos.embeddings import Embeddings
from cocos.errors import InputError, nearest

__all__ = ["Architecture", "Encoder", "build", "device_of", "distribution_of", "embed", "freeze", "names"]

ITEMS_AT_ONCE = 512  # images or captions that are encoded at once


class Encoder(Protocol):
    """A built model, an `nn.Module`. Both methods return embeddings normalised exactly as in training."""

    def encode_images(self, images: Tensor) -> Tensor:
        """Encode images, (N, ...), to (N, D)."""

    def encode_captions(self, captions: Sequence[str]) -> Tensor:
        """Encode M captions, to (M, D)."""


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
    model: nn.Module,
    items: ImageCaptions,
    *,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> Embeddings:
    """Encode a split once: images are the queries, captions the candidates (`i2t`, `t2i`).

    Args:
        model: a frozen model of this shelf.
        items: images and captions.
        device: `auto`, `cpu` or `cuda`.
        progress: called with (items done, items in all).
    """
    place = device_of(device)
    encoder: Any = model.to(place)
    total, done = len(items.images) + len(items.captions), 0

    def encoded(encode: Callable[[Any], Tensor], number: int, read: Callable[[slice], Any]) -> Tensor:
        nonlocal done
        parts = []
        for start in range(0, number, ITEMS_AT_ONCE):
            chunk = read(slice(start, start + ITEMS_AT_ONCE))
            parts.append(encode(chunk).float())
            done += len(chunk)
            if progress:
                progress(done, total)
        return torch.cat(parts)

    query = encoded(
        encoder.encode_images, len(items.images), lambda some: torch.as_tensor(items.images[some]).to(place)
    )
    candidate = encoded(encoder.encode_captions, len(items.captions), lambda some: list(items.captions[some]))
    return Embeddings(query, candidate, items.image_group, items.caption_group, directions=("i2t", "t2i"))
