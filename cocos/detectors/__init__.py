"""The shelf of detectors: one file each, a sentence about a training run where the numbers of its records show a fault.

A detector is a frozen dataclass whose fields are thresholds; called with the history of records, oldest first, it
returns an `Alarm` about the last one, or None. It is silent where a record lacks the keys that it reads. Its docstring
is its card. Files whose names begin with `_` are not on the shelf.
"""

import dataclasses
import functools
import importlib
import math
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, cast

from cocos import docstrings
from cocos.detectors._history import Alarm, Record, name_of
from cocos.errors import InputError, nearest

__all__ = ["Alarm", "Detector", "Record", "check", "chosen", "load", "names", "table"]


class Detector(Protocol):
    """A detector: its fields are thresholds."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __call__(self, history: Sequence[Record], /) -> Alarm | None:
        """The alarm at the last record, if any."""


def names() -> list[str]:
    """Names of all detectors on the shelf.

    Examples:
        >>> "collapse" in cocos.detectors.names()
        True
    """
    return list(_files(tuple(__path__)))


@functools.cache
def _files(folders: tuple[str, ...]) -> list[str]:
    return sorted(each.name for each in pkgutil.iter_modules(folders) if not each.name.startswith("_"))


def _class(name: str) -> type:
    """The class of a detector; a hyphen may replace an underscore.

    Raises:
        InputError: no such detector.
    """
    file = name.strip().lower().replace("-", "_")
    if file not in names():
        raise InputError(nearest("detector", name, names()))
    module = importlib.import_module(f"{__name__}.{file}")
    return cast(type, getattr(module, module.__all__[0]))


def load(name: str, parameters: Mapping[str, Any] | None = None) -> Detector:
    """Make a detector from its name and thresholds, numbers or text.

    Raises:
        InputError: no such detector or threshold, or a value that is not a finite number of its type.

    Examples:
        >>> cocos.detectors.load("collapse", {"similarity": 0.95})
        Collapse(similarity=0.95, records=3, warmup=20)
    """
    cls = _class(name)
    own, given = {field.name: field for field in dataclasses.fields(cls)}, {}
    for key, value in (parameters or {}).items():
        if key not in own:
            raise InputError(nearest(f"threshold of {name}", key, own))
        kind = type(own[key].default)
        try:
            given[key] = kind(str(value))
        except ValueError:
            given[key] = math.nan
        if not math.isfinite(given[key]):
            words = "whole number" if kind is int else "finite number"
            raise InputError(f"threshold {name}.{key}: {value!r} is not a {words}")
    return cast(Detector, cls(**given))


def chosen(settings: Mapping[str, Mapping[str, Any] | bool] | None = None) -> tuple[Detector, ...]:
    """Make the detectors of a run: all of the shelf, unless settings say otherwise.

    Args:
        settings: by name: False for off, or thresholds that differ from their defaults.

    Raises:
        InputError: no such detector or threshold, or a value out of range.

    Examples:
        >>> len(cocos.detectors.chosen({"collapse": False})) - len(cocos.detectors.names())
        -1
    """
    asked = {name.strip().lower().replace("-", "_"): each for name, each in (settings or {}).items()}
    for name in asked:
        _class(name)
    made = []
    for name in names():
        each = asked.get(name, True)
        if each is not False:
            made.append(load(name, None if each is True else each))
    return tuple(made)


def check(history: Sequence[Record], detectors: Iterable[Detector]) -> list[Alarm]:
    """Alarms about the last record of a history; none about an empty history.

    Examples:
        >>> history = [{"step": step, "similarity": 0.99} for step in range(0, 200, 50)]
        >>> [alarm.detector for alarm in cocos.detectors.check(history, cocos.detectors.chosen())]
        ['collapse']
    """
    found = (detector(history) for detector in detectors) if history else ()
    return [alarm for alarm in found if alarm is not None]


def table(detectors: Iterable[Detector] | None = None) -> list[dict[str, Any]]:
    """Describe every detector of the shelf as plain data: name, on or off, thresholds, when it fires, what to try.

    Args:
        detectors: those that are on, with their thresholds; None: all, with their defaults.

    Examples:
        >>> cocos.detectors.table()[0].keys()
        dict_keys(['name', 'on', 'thresholds', 'fires_when', 'try', 'source'])
    """
    made = {name_of(each): each for each in (chosen() if detectors is None else detectors)}
    rows = []
    for name in names():
        said = docstrings.sections(_class(name))
        rows.append({
            "name": name,
            "on": name in made,
            "thresholds": dataclasses.asdict(made.get(name) or load(name)),  # type: ignore[call-overload]
            "fires_when": said["Fires when"],
            "try": said["Try"],
            "source": said["Source"],
        })
    return rows
