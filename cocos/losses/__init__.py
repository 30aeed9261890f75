"""Losses: the built-in ones, one file each, sums and wrappers of them, and third-party losses."""

import importlib
from typing import Any

from cocos.base.errors import InputError
from cocos.losses import catalogue, foreign, libraries, spelling
from cocos.losses.base import Loss, SoftmaxLoss
from cocos.losses.catalogue import UNCOUNTABLE, find_file, names
from cocos.losses.combined import SemiHard, SkipK, Sum, TopK

__all__ = [
    "UNCOUNTABLE",
    "Loss",
    "SemiHard",
    "SkipK",
    "SoftmaxLoss",
    "Sum",
    "TopK",
    "as_loss",
    "canonical",
    "find_file",
    "load",
    "names",
]


def load(name: str, parameters: dict[str, Any] | None = None, **keywords: Any) -> Loss:
    """Return a loss by its name and parameters.

    Args:
        name: a built-in loss, e.g. `ntxent`, or an alias, e.g. `InfoNCE`; your own loss, `package.module:attribute` or
            `file.py:attribute`; one of a library, `pml:CircleLoss` or `open_clip:ClipLoss`; a sum,
            `triplet+0.5*contrastive_cosine`; or a loss of some negatives, `top_k(ntxent)`, `skip_k(...)`,
            `semi_hard(...)`.
        parameters: fields or arguments, as numbers or as text, by default as published. In a sum `triplet.margin`
            belongs to the term triplet, and `margin` to the only term that has one. A loss with a temperature also
            accepts `scale`, 1/temperature.
        keywords: the same as keywords.

    Raises:
        InputError: an unknown loss or parameter (the message contains the nearest one), a value out of range, a
            parameter that is given twice, or a third-party loss that cannot be read.

    Examples:
        >>> cocos.losses.load("ntxent", temperature=0.07)
        NTXent(temperature=0.07)
        >>> cocos.losses.load("InfoNCE", {"scale": 10})
        NTXent(temperature=0.1)

        `(scores, positive, negative)` trains a model in one line; without `negative`, all other pairs are negative:

        >>> triplet = cocos.losses.load("triplet", {"margin": 0.25})
        >>> triplet(torch.tensor([[0.75, 0.75, 0.0]]), torch.tensor([[True, False, False]]))
        tensor([0.2500])
    """
    if repeated := sorted(keywords.keys() & (parameters or {}).keys()):
        raise InputError(f"{name}: {', '.join(repeated)} in the dict of parameters and as a keyword; give it once")
    return spelling.parse(name).build(dict(parameters or {}) | keywords)


def as_loss(loss: Any) -> Loss:
    """Return any object as a loss: a loss is returned as it is, a function, class or module is wrapped.

    A module of a library that `load` knows by its prefix is recognised by its class, and keeps its settings.

    Raises:
        InputError: the object cannot be a loss.

    Examples:
        A function of the scores and masks becomes a loss with the weights of autograd:

        >>> def softest(scores, positive, negative):
        ...     return (scores * negative).sum(dim=1)
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.losses.as_loss(softest).weight(pairs)
        tensor([[0., 1., 1.]])
    """
    if isinstance(loss, Loss):
        return loss
    definition = loss if hasattr(loss, "__qualname__") else type(loss)
    return library_loss(loss) or foreign.as_loss(loss, f"{definition.__module__}:{definition.__qualname__}", {})


def library_loss(module: Any) -> Loss | None:
    """Return the built-in loss of a module of a library with its settings, or None if there is none."""
    settings = libraries.read_instance(module)
    try:
        return None if settings is None else load(*settings)
    except InputError:  # a setting that no built-in loss has
        return None


def canonical(name: str) -> str:
    """Return the one spelling of a loss, as in `Loss.name`.

    Examples:
        >>> cocos.losses.canonical("Multi-Similarity")
        'multi_similarity'
    """
    return spelling.parse(name).name


def parameter_names(name: str) -> set[str] | None:
    """Return the names of the parameters of a loss, in a sum prefixed by their terms; None if any name may be one."""
    return spelling.parse(name).parameter_names()


def qualify(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters by their full names, as in `Loss.parameters`.

    Examples:
        >>> cocos.losses.qualify("triplet+ntxent", {"margin": 0.1})
        {'triplet.margin': 0.1}
    """
    return spelling.parse(name).qualify(parameters)


def implied_parameters(name: str) -> dict[str, Any]:
    """Return the parameters that an alias implies: defaults, which given or recorded values replace."""
    return spelling.parse(name).implied()


def counterpart(name: str) -> str | None:
    """Return the built-in loss from which a loss of a library takes recorded parameters, or None."""
    if not spelling.is_library(name):
        return None
    built_in = libraries.find_row(name)[1].built_in
    return "ntxent" if built_in == "mnrl" else built_in


def __getattr__(name: str) -> Any:
    """Return the class of a built-in loss, such as `cocos.losses.NTXent`, or its module, `cocos.losses.ntxent`."""
    if name in names():
        return importlib.import_module(f"cocos.losses.{name}")
    if name[:1].isupper():
        for loss_class in map(catalogue.class_in_file, names()):
            if loss_class.__name__ == name:
                return loss_class
    raise AttributeError(f"module 'cocos.losses' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, the files of the built-in losses and their classes."""
    return sorted({*__all__, *names(), *(catalogue.class_in_file(file).__name__ for file in names())})
