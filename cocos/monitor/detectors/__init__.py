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
from contextlib import suppress
from typing import Any, ClassVar, Protocol, cast

from cocos.base import docstrings, ranges
from cocos.base.errors import InputError, nearest
from cocos.monitor.detectors._history import (
    LOOKBACK,
    PLURALS,
    SILENCED,
    Alarm,
    Growing,
    Reason,
    Record,
    name_of,
    number,
)

__all__ = [
    "Alarm",
    "Detector",
    "Growing",
    "Record",
    "check",
    "chosen",
    "episodes",
    "failing",
    "load",
    "names",
    "replay",
    "settings",
    "summary",
    "table",
    "watching",
]


# Number of records in a row in which a detector may be silent within an episode.
SILENCE = 20
# Words that switch a detector on and off.
SWITCH = {"on": True, "off": False}


class Detector(Protocol):
    """A detector: its fields are thresholds."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __call__(self, history: Sequence[Record], /) -> Alarm | None:
        """The alarm at the last record, if any."""

    def watches(self, history: Sequence[Record], /) -> str | None:
        """None where it could fire at the last record; else why it cannot, in words."""


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
    """The class of a detector; a hyphen may replace an underscore."""
    file = name.strip().lower().replace("-", "_")
    if file not in names():
        raise InputError(nearest("detector", name, names()))
    module = importlib.import_module(f"{__name__}.{file}")
    return cast(type, getattr(module, module.__all__[0]))


def _number(name: str, field: dataclasses.Field[Any], value: Any) -> float:
    """Read the value of a threshold."""
    kind = int if isinstance(field.default, int) else float
    allowed, _ = ranges.of(field.type)
    with suppress(ValueError, OverflowError):
        found = kind(str(value))
        if allowed is None or allowed.holds(found):
            return found
    raise InputError(f"threshold {name}.{field.name}: {value!r}, expected {allowed.words if allowed else 'a number'}")


def load(name: str, parameters: Mapping[str, Any] | None = None) -> Detector:
    """Make a detector from its name and thresholds, numbers or text.

    Raises:
        InputError: no such detector or threshold, or a value that is not a number of its type and range.

    Examples:
        >>> cocos.detectors.load("collapse", {"similarity": 0.95})
        Collapse(similarity=0.95, outranked=0.35, certain=0.98, records=3, warmup=20)
    """
    cls = _class(name)
    own, given = {field.name: field for field in dataclasses.fields(cls)}, {}
    for key, value in (parameters or {}).items():
        if key not in own:
            raise InputError(nearest(f"threshold of {name}", str(key), own))
        given[key] = _number(name, own[key], value)
    return cast(Detector, cls(**given))


def settings(given: Iterable[str]) -> dict[str, dict[str, str] | bool]:
    """Read settings of detectors from text: `NAME=off`, `NAME=on` or `NAME.THRESHOLD=VALUE`.

    Examples:
        >>> cocos.detectors.settings(["idle=off", "collapse.similarity=0.95"])
        {'idle': False, 'collapse': {'similarity': '0.95'}}
    """
    found: dict[str, dict[str, str] | bool] = {}
    for text in given:
        path, sign, value = (part.strip() for part in text.partition("="))
        name, dot, key = path.partition(".")
        if not (name and sign and value and (key if dot else value in SWITCH)):
            raise InputError(f"detector {text!r}: write it as NAME=off or NAME.THRESHOLD=VALUE, like idle=off")
        name = _class(name).__module__.rpartition(".")[2]
        earlier = found.get(name)
        if dot and isinstance(earlier, dict | None) and key not in (earlier or {}):
            found[name] = (earlier or {}) | {key: value}
        elif not dot and earlier is None:
            found[name] = SWITCH[value]
        else:
            raise InputError(f"detector {text!r}: {name} is set before in another way; give each setting once")
    return found


def chosen(settings: Mapping[str, Mapping[str, Any] | bool] | None = None) -> tuple[Detector, ...]:
    """Make the detectors of a run: all of the shelf, unless settings say otherwise.

    Args:
        settings: by name: False for off, or thresholds that differ from their defaults.

    Examples:
        >>> len(cocos.detectors.chosen({"collapse": False})) - len(cocos.detectors.names())
        -1
    """
    if not isinstance(settings, Mapping | None):
        right = "expected a dict like {'idle': False, 'collapse': {'similarity': 0.95}}"
        raise InputError(f"detectors: {type(settings).__name__}, {right}")
    asked = {}
    for name, each in (settings or {}).items():
        file = _class(str(name)).__module__.rpartition(".")[2]
        if not isinstance(each, bool | Mapping):
            raise InputError(f"detector {file}: {each!r}, expected False for off, or a dict of thresholds")
        asked[file] = each
    made = []
    for name in names():
        each = asked.get(name, True)
        if each is not False:
            made.append(load(name, None if each is True else each))
    return tuple(made)


def failing(text: str | None, detectors: Iterable[Detector]) -> set[str]:
    """Read the names of the detectors whose alarm is a failure: separated by commas, or `any`.

    Raises:
        InputError: a name is unknown, or its detector is off.
    """
    states = {row["name"]: row["on"] for row in table(detectors)}
    selected = set() if text is None else {name.strip().lower().replace("-", "_") for name in text.split(",")}
    for name in selected - {"any"}:
        if name not in states:
            raise InputError(f"--fail-on: {nearest('detector', name, [*states, 'any'])}")
        if not states[name]:
            raise InputError(f"--fail-on {name}: this detector is off; leave out one of the two options")
    return set(states) if "any" in selected else selected


def check(history: Sequence[Record], detectors: Iterable[Detector]) -> list[Alarm]:
    """Alarms about the last record of a history; none about an empty history, or about a number that overflows.

    Examples:
        >>> history = [{"step": step, "similarity": 0.99} for step in range(0, 200, 50)]
        >>> [alarm.detector for alarm in cocos.detectors.check(history, cocos.detectors.chosen())]
        ['collapse']
    """
    found = (detector(history) for detector in detectors) if history else ()
    return [alarm for alarm in found if alarm is not None and math.isfinite(alarm.value)]


def replay(history: Sequence[Record], detectors: Iterable[Detector]) -> list[Alarm]:
    """Every alarm of a run, record by record, as `cocos.Monitor` finds them; the widths of a record stay apart.

    Examples:
        >>> history = [{"step": step, "similarity": 0.99} for step in range(0, 300, 50)]
        >>> [alarm.step for alarm in cocos.detectors.replay(history, cocos.detectors.chosen())]
        [100, 150, 200, 250]
    """
    made, seen, found = tuple(detectors), dict[float | None, list[Record]](), []
    for record in history:
        own = seen.setdefault(number(record, "width"), [])
        own.append(record)
        found += check(own if len(own) <= LOOKBACK else [own[0], *own[-LOOKBACK:]], made)
    return found


def watching(histories: Iterable[Sequence[Record]], detectors: Iterable[Detector]) -> dict[str, str | None]:
    """Tell of each detector of the shelf whether it could fire at the last record, had the run its fault.

    Args:
        histories: records of each width, oldest first.
        detectors: those that are on.

    Returns:
        By name: None where it watches, else why it does not: it begins later, it cannot see this loss, its fault
        cannot be in this run, or it is off.

    Examples:
        >>> history = [{"step": step, "similarity": 0.1} for step in range(0, 200, 50)]
        >>> said = cocos.detectors.watching([history], cocos.detectors.chosen({"idle": False}))
        >>> [said[name] for name in ("collapse", "scale", "idle")]
        [None, 'cannot see this loss: no scale that is one number', 'is off']
    """
    several, made = list(histories) or [[]], {name_of(each): each for each in detectors}
    found: dict[str, str | None] = {}
    for name in names():
        reasons = [made[name].watches(each) for each in several] if name in made else [Reason(SILENCED)]
        found[name] = None if None in reasons else reasons[0]
    return found


def summary(watched: Mapping[str, str | None]) -> str:
    """Say in one sentence which detectors were watching, from `watching`, and why the others were not.

    Examples:
        >>> cocos.detectors.summary({"collapse": None, "stuck": "begins at step 200", "idle": "is off"})
        '1 of 3 detectors was watching; 1 begins at step 200 (stuck); 1 is off (idle)'
    """
    number = sum(reason is None for reason in watched.values())
    parts = [f"{number} of {len(watched)} detectors {'was' if number == 1 else 'were'} watching"]
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for name, text in watched.items():
        if text is not None and (reason := Reason.kept(text)) is not None:
            groups.setdefault((reason.kind, reason.when), {}).setdefault(reason.why, []).append(name)
    order = list(PLURALS)
    for kind, when in sorted(groups, key=lambda each: (order.index(each[0]), len(each[1]), each[1])):
        those = groups[kind, when]
        named = "; ".join(", ".join(names) + (f": {why}" if why else "") for why, names in those.items())
        number = sum(map(len, those.values()))
        said = kind if number == 1 else PLURALS[kind]
        parts.append(f"{number} {said}{when and ' '}{when} ({named})")
    return "; ".join(parts)


def episodes(history: Sequence[Record]) -> list[dict[str, Any]]:
    """Gather the alarms of records into episodes, in the order of their first steps.

    An episode of a detector lasts from the record at which it begins to fire to the last one before it is silent for
    more than 20 records in a row.

    Args:
        history: records of one width, oldest first, with the list `alarms` of each.

    Returns:
        Entries `kind`, the name of the detector, also as `detector`; `sentence`, `value` and `threshold` of its last
        alarm; `first` and `last` step, the first one also as `step`; and `times`, the number of records.

    Examples:
        >>> alarm = {"detector": "idle", "sentence": "idle: ...", "value": 1.0, "threshold": 0.95}
        >>> found = cocos.detectors.episodes([{"step": step, "alarms": [alarm]} for step in (0, 10, 20)])
        >>> [(each["kind"], each["first"], each["last"], each["times"]) for each in found]
        [('idle', 0, 20, 3)]
    """
    found: list[dict[str, Any]] = []
    last: dict[str, tuple[int, dict[str, Any]]] = {}
    for place, record in enumerate(history):
        for alarm in record.get("alarms", ()):
            name, now = alarm["detector"], int(number(record, "step") or 0)
            before, entry = last.get(name, (-math.inf, {}))
            if place - before > SILENCE + 1:
                entry = {"kind": name, "detector": name, "step": now, "first": now, "times": 0}
                found.append(entry)
            entry |= {key: alarm.get(key) for key in ("sentence", "value", "threshold")}
            entry |= {"last": now, "times": entry["times"] + 1}
            last[name] = place, entry
    return found


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
