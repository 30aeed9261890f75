"""Entry points: losses, encoders and checkpoint formats that other installed distributions add by name.

A distribution declares them in its `pyproject.toml`; cocos reads them only where a name or a file is unknown to it, so
that start-up does not pay for them::

    [project.entry-points."cocos.losses"]
    my_loss = "my_package.my_loss:MyLoss"

`find(group, name)` gives the plugin of a name, `installed(group)` all of them, for files that have no name.
`str(plugin)` is the distribution with its version, for provenance. An entry point that cannot be imported is an
`InputError` of one sentence.
"""

import importlib.metadata
from dataclasses import dataclass
from typing import Any

from cocos.base.errors import InputError

LOSSES, ENCODERS, CHECKPOINTS = "cocos.losses", "cocos.encoders", "cocos.checkpoints"


@dataclass(frozen=True)
class Plugin:
    """An object that another distribution provides."""

    name: str
    target: Any
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


def _entry_points(group: str) -> list[importlib.metadata.EntryPoint]:
    """Entry points of a group; one that the search path shows twice is listed once."""
    found: dict[tuple[str, str, str], importlib.metadata.EntryPoint] = {}
    for point in importlib.metadata.entry_points(group=group):
        found.setdefault((point.name, point.value, _distribution(point)[0]), point)
    return list(found.values())


def _distribution(point: importlib.metadata.EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist else ("unknown distribution", "0")


def _load(group: str, point: importlib.metadata.EntryPoint, needs: tuple[str, ...]) -> Plugin:
    owner, version = _distribution(point)
    try:
        target = point.load()
        for function in needs:
            getattr(target, function)
        return Plugin(point.name, target, owner, version)
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"entry point {point.name} = {point.value} ({group}) of {owner} {version}: "
            f"{type(error).__name__}: {reason}; repair or uninstall {owner}"
        ) from error


def names(group: str) -> list[str]:
    """Names that other distributions add to a group; nothing is imported."""
    return sorted({point.name for point in _entry_points(group)})


def find(group: str, name: str, needs: tuple[str, ...] = ()) -> Plugin | None:
    """Import the plugin of a name, which must have some functions; None where no distribution has one."""
    found = [point for point in _entry_points(group) if point.name == name]
    if len(found) > 1:
        owners = " and ".join(" ".join(_distribution(point)) for point in found)
        raise InputError(f"entry point {name!r} ({group}): {owners} both define it; uninstall one of them")
    return _load(group, found[0], needs) if found else None


def installed(group: str, needs: tuple[str, ...] = ()) -> list[Plugin]:
    """Import every plugin of a group, in order of name."""
    declared = sorted(_entry_points(group), key=lambda point: (point.name, point.value))
    return [_load(group, point, needs) for point in declared]
