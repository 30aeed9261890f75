"""Known networks in the state dicts of a file: found by names and shapes, built without memory, loaded strictly."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from cocos.checkpoints import Checkpoint, encoders, formats, inventory, recorded
from cocos.checkpoints.files import File
from cocos.checkpoints.state_dicts import StateDict, state_dicts

# Prefixes of wrappers: a state dict without them is still that of a whole model, not of a part.
WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


@dataclass(frozen=True)
class Network:
    """A network of the shelf of encoders in a file.

    Args:
        encoder: its name.
        arguments: of its `build`.
        state: its weights, by the names of the encoder.
        origin: where they were found.
    """

    encoder: str
    arguments: dict
    state: dict[str, Tensor]
    origin: str


def whole(file: File) -> list[StateDict]:
    """Find the state dicts of whole models, not of parts of them."""
    return [each for each in state_dicts(file.content) if set(each.stripped) <= set(WRAPPERS)]


def find(file: File, family: str) -> Network | None:
    """Find a network of a family, named as its file, that is all of a state dict; None if there is none."""
    return next((found for each in whole(file) if (found := in_family(each, family)) is not None), None)


def in_family(part: StateDict, family: str) -> Network | None:
    """Find a network of a family that is all of one state dict; None if it is another."""
    module: Any = formats.load(family)
    arguments = module.arguments(part.tensors)
    if arguments is None or not encoders.fits(lambda: module.build(**arguments), part.tensors):
        return None
    return Network(family, arguments, part.tensors, part.origin)


def frozen(found: Network) -> nn.Module:
    """Build a network and load its weights, in float32; nothing is allocated before names and shapes agree."""
    with encoders.without_memory():
        model = encoders.build(found.encoder, found.arguments)
    state = {key: each.float() if each.is_floating_point() else each for key, each in found.state.items()}
    return encoders.freeze(model, encoders.completed(state, model))


def checkpoint(file: File, found: Network, *, format: str, contents: dict | None = None, **more: Any) -> Checkpoint:
    """Make a checkpoint of a network.

    `more` are arguments of `Checkpoint`; what the file records of its loss is read where they do not say.
    """
    settings = recorded.read_file(file) if isinstance(file, File) else recorded.Recorded()
    network = formats.load(found.encoder).describe(found.arguments)
    about = {
        **(inventory.values(file) if isinstance(file, File) else {}),
        **(contents or {}),
        "network": f"{network}, {found.arguments.get('dimensions', 'an unknown number of')} numbers for each row",
        "found": found.origin,
    }
    return Checkpoint.of(
        file,
        format,
        about,
        encoder=lambda: frozen(found),
        settings=f"{found.encoder} {found.arguments}",
        **settings.fields() | {"notes": settings.notes} | more,
    )
