"""Known networks in the state dicts of a file: found by names and shapes, built without memory, loaded strictly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from cocos.checkpoints import Checkpoint, encoders, formats, inventory
from cocos.checkpoints.class_vectors import ClassVectors
from cocos.checkpoints.files import File, Folder, StateDict, state_dicts
from cocos.checkpoints.formats import _trunks

# Prefixes of wrappers: a state dict without them is still that of a whole model, not of a part.
WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
IMAGENET_CLASSES = 1000
ASSUMED = (
    "how its images were prepared: the shorter side is resized to 256 pixels, of which the middle 224 are read, with "
    "the mean and the standard deviation of ImageNet"
)
MAX_SHOWN = 8  # names of tensors that are listed
OF_A_LOSS = ("loss", "criterion", "miner", "metric")  # parts of a name that belong to a loss, not to the encoder


@dataclass(frozen=True)
class Network:
    """A network of the shelf of encoders in a file.

    Args:
        encoder: its name.
        arguments: of its `build`.
        state: its weights, by the names of the encoder.
        origin: where they were found.
        rest: tensors of the same model that do not belong to it.
        notes: what the user should know of how it was found.
    """

    encoder: str
    arguments: dict
    state: dict[str, Tensor]
    origin: str
    rest: dict[str, Tensor]
    notes: tuple[str, ...] = ()


def whole(file: File | Folder) -> list[StateDict]:
    """Find the state dicts of whole models, not of parts of them."""
    return [each for each in state_dicts(file.content) if set(each.stripped) <= set(WRAPPERS)]


def find(file: File | Folder, family: str) -> Network | None:
    """Find a network of a family, named as its file, that is all of a state dict; None if there is none."""
    return next((found for each in whole(file) if (found := in_family(each, family)) is not None), None)


def in_family(part: StateDict, family: str) -> Network | None:
    """Find a network of a family that is all of one state dict; None if it is another."""
    module: Any = formats.load(family)
    arguments = module.arguments(part.tensors)
    if arguments is None or not encoders.fits(lambda: module.build(**arguments), part.tensors):
        return None
    return Network(family, arguments, part.tensors, part.origin, {})


def trunk_in(file: File | Folder, any_family: bool = True) -> Network | None:
    """Find a known image network that is a model, or a part of one, with the one head that fits it; None without.

    With `any_family`, also a network of a file of the shelf that has `arguments`.
    """
    every = state_dicts(file.content)
    families = [name for name in formats.names() if hasattr(formats.load(name), "arguments")] if any_family else []
    for part in every:
        found = _trunks.trunk(part.tensors)
        if found is not None:
            arguments = {"trunk": found[0], "sizes": found[1], "layers": []}
            trunk = Network("image_network", arguments, _named("trunk.", part.tensors), part.origin, {})
            return _with_head(trunk, _around(part, every))
        for family in families:
            if (known := in_family(part, family)) is not None:
                return replace(known, rest=_around(part, every))
    return None


def _named(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{key}": each for key, each in state.items()}


def _around(part: StateDict, every: list[StateDict]) -> dict[str, Tensor]:
    """Return the tensors of the whole model that a part lies in, without those of the part."""
    outer = next(each for each in every if each.place == part.place)
    inside = {id(each) for each in part.tensors.values()}
    return {key: each for key, each in outer.tensors.items() if id(each) not in inside}


def _with_head(found: Network, rest: dict[str, Tensor]) -> Network:
    """Add the layers after the trunk, where one group of the other tensors fits its width, and is no class weights."""
    classes, fitting = found.arguments["sizes"].get("classes", 0), []
    bare = _without_classes(found)
    widths = {_width(bare): bare} | ({classes: found} if classes else {})
    for name, group in _groups(rest).items():
        layers, state = _trunks.head(group) or ([], {})
        first = next((each for each in layers if each[0] == "linear"), None)
        if first is not None and first[1] in widths and not _of_a_loss(name):
            fitting.append((name, layers, state, widths[first[1]]))
    if len(fitting) != 1:
        said = f"layers {', '.join(name for name, *_ in fitting)} could each follow the network: none was used"
        return replace(found, rest=rest, notes=(said,) if fitting else ())
    name, layers, state, trunk = fitting[0]
    said = f"layers {name} follow the network"
    if ["relu"] in layers:
        said += ", with ReLU where a layer has no weights"
    left = {key: each for key, each in rest.items() if not key.startswith(f"{name}.")}
    arguments, weights = trunk.arguments | {"layers": layers}, trunk.state | _named("embedder.", state)
    return replace(trunk, arguments=arguments, state=weights, rest=left, notes=(said,))


def _without_classes(found: Network) -> Network:
    """Leave the last layer of a trunk out."""
    last = f"trunk.{_trunks.trunk_class(found.arguments['trunk']).last_layer}."
    sizes = {key: value for key, value in found.arguments["sizes"].items() if key != "classes"}
    state = {key: each for key, each in found.state.items() if not key.startswith(last)}
    return replace(found, arguments=found.arguments | {"sizes": sizes}, state=state)


def without_imagenet(found: Network) -> Network:
    """Leave the last layer of a trunk out if it has the classes of ImageNet, and nothing follows it."""
    arguments = found.arguments
    if found.encoder != "image_network" or arguments["layers"] or arguments["sizes"].get("classes") != IMAGENET_CLASSES:
        return found
    said = f"its last layer has {IMAGENET_CLASSES} outputs, the classes of ImageNet: the embedding is its input"
    return replace(_without_classes(found), notes=(*found.notes, said))


def _groups(rest: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Group tensors by the names of the modules that could be a head: all in front of a number, or of the last dot."""
    found: dict[str, dict[str, Tensor]] = {}
    for key, each in rest.items():
        parts = key.split(".")
        cut = next((place for place, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
        if cut:
            found.setdefault(".".join(parts[:cut]), {})[".".join(parts[cut:])] = each
    return found


def _of_a_loss(name: str) -> bool:
    """Whether a name is that of class weights, proxies, or a part of a loss."""
    weight = f"{name}.weight"
    patterns = (inventory.PROXY_NAMES, inventory.CLASS_WEIGHT_NAMES)
    named = any(word in name.lower() for word in OF_A_LOSS) or any(each.search(weight) for each in patterns)
    return named and not name.lower().endswith("head")


def _width(found: Network) -> int:
    """Width of the embeddings of a network; 0 where only its library knows it, once it has built it."""
    width = getattr(formats.load(found.encoder), "width", lambda arguments: arguments.get("dimensions", 0))
    return width(found.arguments)


def frozen(found: Network) -> nn.Module:
    """Build a network and load its weights, in float32; nothing is allocated before names and shapes agree."""
    with encoders.without_memory():
        model = encoders.build(found.encoder, found.arguments, found.state)
    state = {key: each.float() if each.is_floating_point() else each for key, each in found.state.items()}
    return encoders.freeze(model, encoders.completed(state, model))


def checkpoint(
    file: File | Folder,
    found: Network,
    *,
    format: str,
    contents: dict | None = None,
    classes: ClassVectors | None = None,
    depends: Sequence[str] = (),
    **more: Any,
) -> Checkpoint:
    """Make a checkpoint of a network.

    Class vectors of another width than the embeddings are left out, with a note. `depends` are sha256 of other files
    that weights were read from, and `more` arguments of `Checkpoint`; what the file records of its loss is read where
    they do not say.
    """
    recorded, loss, _ = inventory.recorded(file) if isinstance(file, File) else ({}, None, {})
    notes = [*found.notes, *more.pop("notes", ())]
    if found.encoder == "image_network" and "preparation" not in found.arguments:
        notes.append(f"{file.path} does not record {ASSUMED}")
    if classes is not None:
        fits_width = classes.vectors.shape[1] == _width(found)
        if fits_width:
            against = f"{classes.name}, {len(classes.vectors)} {classes.what}"
            notes += [f"{file.path}: a labelled set is counted against {against}", *classes.notes]
            more |= {"proxies": classes.vectors.float(), "proxy_labels": classes.labels}
        else:
            notes.append(f"{file.path}: {classes.name} has another width than the embeddings and is left out")
    network = formats.load(found.encoder).describe(found.arguments)
    about = {
        **(inventory.values(file) if isinstance(file, File) else {}),
        **(contents or {}),
        "network": f"{network}, {_width(found) or 'an unknown number of'} numbers for each row",
        "found": found.origin,
    }
    if classes is not None and "proxies" in more and loss is None and "trained_with" not in more:
        about["loss to begin with"] = more["begin_with"] = inventory.FIRST_LOSSES[classes.what]
    if found.rest:
        more_of_them = f" and {len(found.rest) - MAX_SHOWN} more" if len(found.rest) > MAX_SHOWN else ""
        about["not used"] = ", ".join(list(found.rest)[:MAX_SHOWN]) + more_of_them
    return Checkpoint.of(
        file,
        format,
        about,
        encoder=lambda: frozen(found),
        settings=" ".join([found.encoder, str(found.arguments), *depends]),
        **{"recorded": recorded, "trained_with": loss, "notes": tuple(notes)} | more,
    )
