"""Losses that other distributions add by name: the entry points `cocos.losses`."""

import dataclasses
from typing import Any, cast

from cocos import losses
from cocos.base import plugins
from cocos.losses._calls import takes_tensors
from cocos.losses._parameters import accepted, build, settled
from cocos.losses.external import own


def _target(spelling: str) -> Any:
    """Import the object of an entry point, and note which distribution it comes from."""
    plugin = cast(plugins.Plugin, plugins.find(plugins.LOSSES, spelling))
    losses.PROVIDED[spelling] = plugin
    return plugin.target


def _like_the_shelf(target: Any) -> bool:
    """Whether it is a class as on the shelf: its fields are its parameters."""
    return dataclasses.is_dataclass(target) and all(hasattr(target, name) for name in losses.CONTRACT)


def canonical(spelling: str) -> str:
    """The name itself."""
    return spelling


def known(spelling: str) -> set[str] | None:
    """Names of the parameters that it takes; None: any."""
    target = _target(spelling)
    return accepted(target) if _like_the_shelf(target) else own.taken(target)


def qualified(spelling: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters with a `scale` read as 1/temperature, where it has one."""
    target = _target(spelling)
    return settled(spelling, target, parameters) if _like_the_shelf(target) else parameters


def load(spelling: str, parameters: dict[str, Any]) -> losses.Loss:
    """Build the loss: a class as on the shelf, or any callable that `cocos.losses.external.own` understands.

    Raises:
        InputError: it cannot be imported, is no loss, or a parameter is unknown.
    """
    target = _target(spelling)
    if _like_the_shelf(target):
        return build(spelling, takes_tensors(target), parameters)
    return own.of(target, spelling, parameters)
