"""The shelf of losses: one file per loss, found by its name."""

import dataclasses
import functools
import importlib
import math
import pkgutil
import re
import types
import typing
from typing import Protocol

from cocos.errors import InputError, nearest

__all__ = [
    "UNSPECIFIED",
    "Loss",
    "brought",
    "canonical",
    "known",
    "load",
    "module_name",
    "name_of",
    "names",
    "of",
    "parameters",
    "qualified",
]

UNSPECIFIED = {"osap": "only its abstract could be read, and it has no published code, so its formula would be a guess"}


class Loss(Protocol):
    """What a file on this shelf holds: a frozen dataclass whose fields are the parameters of the loss.

    Three more methods are found by their names where a loss has them. `radial(pairs)`, (Q,): closed form of
    ∂ Σ loss / ∂ norm of the query, for losses that read norms. `equals()`: other losses of the shelf that it is, as
    (name, parameters, where), which `cocos losses NAME` and the tests check. `peer()`: the same loss in
    pytorch-metric-learning, as (class, arguments, setting), which `cocos verify` compares. Two class variables say how
    to read a share (docs/eps.md): `per_positive`, True where the loss sums one term for each positive, so that the unit
    has their number in it; and `share`, "probability" where a share is one.

    Code of others (`load` with a colon, `of`) has more: `reads`, "embeddings" or "scores"; `weights`, "score" or
    "influence"; `matching`, "labels" or "rows", what it takes for positives; `bind(pairs)`, the same loss with what a
    first batch settles; `notes` on it; `unit_of(weights, pairs)`, its unit where the weights are known already; and
    `unit_from`, where that comes from.
    """

    metric: str  # of `cocos.scores.METRICS`: what `Pairs.scores` must hold
    couples: (
        str  # "query": queries are independent; "batch": they share a term; "candidate": candidates are the anchors
    )
    gradient: str  # "exact", "stop_gradient", "pseudo" (made up by its authors) or "autograd" (no closed form)
    balanced: bool  # the weights of a query sum to zero
    sample: str  # how its training batches are drawn: "pairs", or "groups" for several positives a query

    def __call__(self, pairs):
        """Loss of each query, (Q,), not reduced."""

    def weight(self, pairs):
        """Closed form of ∂ Σ loss / ∂ score, (Q, C): below zero pulls, above zero pushes."""

    def unit(self, pairs):
        """Natural size of one weight, broadcastable to (Q, C): share = |weight| / unit."""


def names() -> list[str]:
    """Names of all losses on the shelf.

    Examples:
        >>> import cocos
        >>> "ntxent" in cocos.losses.names()
        True
    """
    return list(_files(tuple(__path__)))


@functools.cache
def _files(folders: tuple[str, ...]) -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(folders) if not (m.ispkg or m.name.startswith("_")))


def _plain(name: str) -> str:
    """A name without what its spellings differ in: case, hyphens, spaces, the word loss at its end."""
    letters = re.sub(r"[^a-z0-9]", "", name.lower().replace("++", "pp"))
    return letters.removesuffix("loss") or letters


@functools.cache
def _known_names() -> dict[str, tuple[str, dict[str, str]]]:
    """Other names of the losses, as their cards have them: plain name -> file, and the parameters that it brings along.

    A docstring lists them behind `Also called:`; parentheses after a name hold its parameters, or a remark.
    """
    from cocos.losses import _about

    found = {_plain(name): (name, {}) for name in names()}
    for module in names():
        said = _about.sections(_of_file(module)).get("Also called", "")
        for name, remark in _about.listed(said):
            found.setdefault(_plain(name), (module, dict(re.findall(r"(\w+)=([\d.]+)", remark))))
    return found


def module_name(name: str) -> str:
    """The loss's file name; a hyphen may stand for an underscore, and a name that its card knows for the file's.

    Raises:
        InputError: no such loss (the nearest one is named).

    Examples:
        >>> import cocos
        >>> cocos.losses.module_name("InfoNCE")
        'ntxent'
    """
    module = name.strip().lower().replace("-", "_")
    if module in UNSPECIFIED:
        raise InputError(f"loss {name!r} is unspecified: {UNSPECIFIED[module]}")
    if module in names():
        return module
    if module.endswith(".py"):
        raise InputError(f"loss {name!r} is a file: name the function or class in it, like {name}:my_loss")
    known = _known_names()
    if _plain(name) not in known:
        raise InputError(nearest("loss", name, names()))
    return known[_plain(name)][0]


def brought(name: str) -> dict[str, str]:
    """Parameters that a known name brings along: `MultipleNegativesRankingLoss` is NT-Xent at a temperature of 0.05.

    They are defaults: what is given or recorded takes their place.

    Examples:
        >>> import cocos
        >>> cocos.losses.brought("ClipLoss")
        {'temperature': '0.07'}
    """
    if name.strip().lower().replace("-", "_") in names() or _place(name) is not None:
        return {}
    return dict(_known_names().get(_plain(name), ("", {}))[1])


def _of_file(module: str) -> type:
    found = importlib.import_module(f"{__name__}.{module}")
    return getattr(found, found.__all__[0])


def _class(name: str) -> type:
    return _of_file(module_name(name))


def _settled(name: str, fields, parameters: dict) -> dict:
    """Parameters with a `scale` read as 1/temperature, where the loss has a temperature and no scale.

    Raises:
        InputError: both are given, or the scale is not above 0.
    """
    if "scale" not in parameters or "scale" in fields or "temperature" not in fields:
        return parameters
    if "temperature" in parameters:
        raise InputError(f"{name}: temperature and scale are given; give one of them, scale is 1/temperature")
    scale = _value("scale", parameters["scale"], float)
    if not (0 < scale < math.inf and 1 / scale < math.inf):
        raise InputError(f"{name}: scale is 1/temperature, finite and above 0, got {scale}")
    return {key: value for key, value in parameters.items() if key != "scale"} | {"temperature": 1 / scale}


def _place(name: str):
    """The private file that reads this spelling, and what it reads; None for the shelf.

    Raises:
        InputError: a sum that is not one.
    """
    if name.strip().endswith("++"):
        return None  # VSE++ is a name
    from_sum = importlib.import_module(f"{__name__}.external.sum") if set(name) & set("+*") else None
    terms = from_sum.terms_of(name) if from_sum else None
    if terms:
        return from_sum, (terms,)
    if name.lower().startswith("pml:"):
        return importlib.import_module(f"{__name__}.external.pml"), (name,)
    return (importlib.import_module(f"{__name__}.external.own"), (name,)) if ":" in name else None


def canonical(name: str) -> str:
    """The one spelling of a loss: what `name_of` says of it.

    Raises:
        InputError: no such loss on the shelf or in pytorch-metric-learning, or a sum that is not one.

    Examples:
        >>> import cocos
        >>> cocos.losses.canonical("Multi-Similarity")
        'multi_similarity'
    """
    name = name.strip()
    place = _place(name)
    if place is None:
        return module_name(name)
    return place[0].canonical(*place[1]) if hasattr(place[0], "canonical") else name


def known(name: str) -> set[str] | None:
    """Names of the parameters of a loss, those of a sum with the name of the term before each; None: any.

    Raises:
        InputError: there is no such loss.

    Examples:
        >>> import cocos
        >>> sorted(cocos.losses.known("ntxent"))
        ['scale', 'temperature']
    """
    place = _place(name.strip())
    if place is None:
        fields = {f.name.rstrip("_") for f in dataclasses.fields(_class(name))}
        return fields | ({"scale"} if "temperature" in fields else set())
    return place[0].known(*place[1])


def qualified(name: str, parameters: dict) -> dict:
    """Parameters as `parameters(load(name))` names them: in a sum with the name of the term before each.

    Raises:
        InputError: no term has it, or more than one.

    Examples:
        >>> import cocos
        >>> cocos.losses.qualified("triplet+ntxent", {"margin": 0.1})
        {'triplet.margin': 0.1}
    """
    place = _place(name.strip())
    if place is None:
        return _settled(name, {f.name.rstrip("_") for f in dataclasses.fields(_class(name))}, parameters)
    if not hasattr(place[0], "qualified"):
        return parameters
    return place[0].qualified(name.strip(), *place[1], parameters)


def name_of(loss) -> str:
    """What a loss is called: what `load` takes for it; the class of one that was never loaded.

    Examples:
        >>> import cocos
        >>> cocos.losses.name_of(cocos.losses.load("InfoNCE"))
        'ntxent'
    """
    module, name = type(loss).__module__, getattr(loss, "spelling", None)
    if isinstance(name, str):
        return name
    return module.removeprefix(f"{__name__}.") if module.startswith(f"{__name__}.") else type(loss).__name__


def parameters(loss) -> dict:
    """The parameters of a loss by their names in the literature (a field `weight_` is the parameter `weight`).

    Those of a sum have the name of their term before them; of a loss of yours, only those that were given are known.

    Examples:
        >>> import cocos
        >>> cocos.losses.parameters(cocos.losses.load("ntxent"))
        {'temperature': 0.1}
    """
    given = getattr(loss, "given", None)
    if isinstance(given, dict):
        return dict(given)
    if not dataclasses.is_dataclass(loss):
        return {}
    return {f.name.rstrip("_"): getattr(loss, f.name) for f in dataclasses.fields(loss)}


def _value(parameter: str, text, kind):
    """A parameter as its dataclass field wants it; text comes from the command line or a file's record.

    Raises:
        InputError: the value is not of that type.
    """
    options = typing.get_args(kind)
    if isinstance(kind, types.UnionType):  # a number, or None
        return None if text is None or str(text).lower() == "none" else _value(parameter, text, options[0])
    if typing.get_origin(kind) is tuple:
        parts = text if isinstance(text, list | tuple) else str(text).strip("()[] ").split(",")
        return tuple(_value(parameter, part, options[0]) for part in parts)
    if kind is bool and str(text).lower() in {"true", "false", "1", "0"}:
        return str(text).lower() in {"true", "1"}
    if kind is bool:
        raise InputError(f"parameter {parameter}: {text!r} is not true or false")
    try:
        return int(str(text)) if kind is int else kind(text)
    except (TypeError, ValueError):
        raise InputError(f"parameter {parameter}: {text!r} is not a {kind.__name__}") from None


def _build(name: str, cls: type, parameters: dict):
    """A frozen dataclass from its parameters.

    Raises:
        InputError: an unknown parameter, or a value out of range.
    """
    fields = {f.name.rstrip("_"): f for f in dataclasses.fields(cls)}
    chosen = {}
    for key, value in _settled(name, fields, parameters).items():
        if key not in fields:
            raise InputError(nearest(f"parameter of {name}", key, fields))
        chosen[fields[key].name] = _value(key, value, fields[key].type)
    try:
        return cls(**chosen)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None


def load(name: str, parameters: dict | None = None):
    """Build a loss from its name and parameters.

    Args:
        name: a file of the shelf, e.g. `ntxent`, or a name that its card knows, e.g. `InfoNCE`; a loss of yours,
            `package.module:attribute` or `file.py:attribute`; one of pytorch-metric-learning, `pml:CircleLoss`; or a
            sum of such, `triplet+0.5*contrastive_cosine`.
        parameters: its fields or arguments, as numbers or as text; those left out have the paper's value. In a sum
            `triplet.margin` is that of the term triplet, and `margin` that of the one term that has it. A loss with a
            temperature takes `scale`, 1/temperature, as well.

    Raises:
        InputError: an unknown loss or parameter (the nearest one is named), a value out of range, or a loss of yours
            that cannot be read.

    Examples:
        >>> import cocos
        >>> cocos.losses.load("ntxent", {"temperature": 0.07})
        NTXent(temperature=0.07)
        >>> cocos.losses.load("InfoNCE", {"scale": 10})
        NTXent(temperature=0.1)
    """
    name, parameters = name.strip(), dict(parameters or {})
    place = _place(name)
    if place is None:
        cls, own = _class(name), brought(name)
        given = _settled(name, {f.name.rstrip("_") for f in dataclasses.fields(cls)}, parameters)
        return _build(module_name(name), cls, own | given)
    file, (what,) = place
    if file.__name__.endswith(".sum"):
        return file.load(name, what, parameters)
    return file.load(what, parameters)


def of(loss):
    """A loss as the measures need it: itself, or a function, class or module of yours made into one.

    Raises:
        InputError: it cannot be a loss.

    Examples:
        A function of the scores and masks becomes a loss with autograd's weights:

        >>> import cocos, torch
        >>> def softest(scores, positive, negative):
        ...     return (scores * negative).sum(dim=1)
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.of(cocos.losses.of(softest), pairs)
        tensor([[0., 1., 1.]])
    """
    if all(hasattr(loss, name) for name in ("metric", "couples", "gradient", "unit")) and not isinstance(loss, type):
        return loss
    named = loss if hasattr(loss, "__qualname__") else type(loss)
    return importlib.import_module(f"{__name__}.external.own").of(loss, f"{named.__module__}:{named.__qualname__}", {})


def __getattr__(name: str):
    """`cocos.losses.ntxent` without an import statement.

    Raises:
        AttributeError: there is no such loss.
    """
    if not name.startswith("_") and name in names():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
