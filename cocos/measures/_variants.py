"""Variants of a setting: one thing changed at a time, such as the temperature, the batch size or the mining rule."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from cocos import losses
from cocos.base.errors import InputError, nearest
from cocos.counting import sharpness
from cocos.embeddings.batches import WHOLE_SET

# Label of the setting as it is.
AS_IT_IS = "as it is"
# Mining rules, which wrap the loss, and whether each takes a whole number or, where it takes any, a margin.
MINING_RULES = {"top_k": "k", "random_k": "k", "skip_k": "k", "semi_hard": "margin"}
# Settings beside the parameters of the loss and the mining rules.
OTHER_THINGS = ("loss", "batch_size", "eps")
# Largest number of variants of one replay, each a row of its table.
MOST_VARIANTS = 60
# Negatives that the mining rules keep unless others are asked for: a power of two well below the batch of 128.
USUAL_KEPT = 16  # negatives
# Factors of the sharpness and of the batch size unless others are asked for.
USUAL_FACTORS = (0.5, 2.0)  # times the value as it is

Asked = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Variant:
    """One setting of a replay.

    Args:
        changed: name of what differs from the setting as it is; empty: nothing.
        setting: its value, as text.
        loss: the loss.
        eps: smallest share that contributes.
        batch_size: rows of a batch, or `all`.
    """

    changed: str
    setting: str
    loss: losses.Loss
    eps: float
    batch_size: int | str

    @property
    def label(self) -> str:
        """Words for a row of a table."""
        return f"{self.changed.replace('_size', ' size')} {self.setting}".strip() or AS_IT_IS


def read(what: str | Iterable[str] | Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Read what is to be changed: NAME=V1,V2 as text, several separated by spaces, or a mapping of names to values.

    Examples:
        >>> read("temperature=0.05,0.1 semi_hard")
        {'temperature': ('0.05', '0.1'), 'semi_hard': (None,)}
        >>> read({"batch_size": 64})
        {'batch_size': (64,)}
    """
    if isinstance(what, Mapping):
        found = {
            str(name): tuple(value) if isinstance(value, list | tuple) else (value,) for name, value in what.items()
        }
        for name, values in found.items():
            if not values:
                raise InputError(f"what: {name} has no value; give one at least")
        return found
    found = {}
    for text in " ".join([what] if isinstance(what, str) else what).split():
        name, sign, given = text.partition("=")
        name, parts = name.replace("-", "_"), tuple(given.split(","))
        if not name or (sign and not all(parts)) or (not sign and name != "semi_hard"):
            raise InputError(f"what {text!r}: write it as NAME=VALUE,VALUE, like temperature=0.05,0.1 or top_k=16")
        if name in found:
            raise InputError(f"what: {name} is given twice; write its values together, separated by commas")
        found[name] = parts if sign else (None,)
    return found


def usual(base: losses.Loss, batch_size: int | str) -> tuple[dict[str, tuple[Any, ...]], list[str]]:
    """What is changed unless it is said: half and twice the sharpness and batch size, mining rules, another loss.

    Returns:
        As `read` has it, and notes on what this loss does not have.
    """
    found: dict[str, tuple[Any, ...]] = {}
    notes = []
    try:
        name = sharpness.parameter_of(base)
        own = float(losses.parameters(base)[name])
    except InputError as error:
        notes.append(f"sharpness left as it is: {error}")
    else:
        if own:
            found[name] = tuple(factor * own for factor in USUAL_FACTORS)
        else:
            notes.append(f"sharpness left as it is: {name} is 0, and so are half and twice of it")
    if isinstance(batch_size, Integral) and batch_size >= 8:
        found["batch_size"] = tuple(int(factor * batch_size) for factor in USUAL_FACTORS)
    try:
        losses.top_k(base, USUAL_KEPT)
        found |= {"top_k": (USUAL_KEPT,), "random_k": (USUAL_KEPT,), "semi_hard": (None,)}
    except InputError as error:
        notes.append(f"mining rules left out: {error}")
    found["loss"] = tuple(other for other in ("ntxent", "triplet") if other != losses.name_of(base))
    return found, notes


def made(
    base: losses.Loss, eps: float, batch_size: int | str, asked: Asked, load: Callable[[str], losses.Loss]
) -> list[Variant]:
    """The setting as it is, and a variant for each value that is asked for.

    Args:
        base: the loss as it is.
        eps: smallest share that contributes, as it is.
        batch_size: as it is.
        asked: as `read` gives it.
        load: makes a loss of its name.
    """
    found = [Variant("", "", base, eps, batch_size)]
    for name, values in asked.items():
        found += [_changed(found[0], name, value, load) for value in values]
    if len(found) > MOST_VARIANTS + 1:
        raise InputError(f"what: {len(found) - 1} variants, expected at most {MOST_VARIANTS}")
    names = [each.label for each in found]
    for label in names:
        if names.count(label) > 1:
            raise InputError(f"what: {label} is given {names.count(label)} times, expected once")
    return found


def _changed(base: Variant, name: str, value: Any, load: Callable[[str], losses.Loss]) -> Variant:
    """The setting with one change."""
    loss, eps, batch_size = base.loss, base.eps, base.batch_size
    if name == "loss":
        loss = load(value) if isinstance(value, str) else losses.of(value)
        return Variant(name, losses.name_of(loss), loss, eps, batch_size)
    if name == "batch_size":
        batch_size = value if value == WHOLE_SET else _whole("batch_size", value)
        return Variant(name, str(batch_size), loss, eps, batch_size)
    if name == "eps":
        eps = _number("eps", value)
        return Variant(name, _written(eps), loss, eps, batch_size)
    if name in MINING_RULES and name not in losses.parameters(loss):
        value = None if str(value).lower() == "none" else value
        return Variant(name, "" if value is None else _written(value), _mined(loss, name, value), eps, batch_size)
    return Variant(name, _written(value), _with(loss, name, value), eps, batch_size)


def _mined(loss: losses.Loss, rule: str, value: Any) -> losses.Loss:
    """The loss of the negatives that a rule keeps."""
    if rule == "semi_hard":
        return losses.semi_hard(loss, None if value is None else _number(rule, value))
    made_by: dict[str, Callable] = {"top_k": losses.top_k, "random_k": losses.random_k, "skip_k": losses.skip_k}
    wrapped: losses.Loss = made_by[rule](loss, _whole(rule, value))
    return wrapped


def _with(loss: losses.Loss, name: str, value: Any) -> losses.Loss:
    """The loss with another value of a parameter; a scale takes the place of a temperature."""
    spelling, own = losses.name_of(loss), losses.parameters(loss)
    known = losses.known(spelling)
    words = {each.rpartition(".")[2] for each in known or ()}
    if known is not None and name not in known | words:
        raise InputError(nearest(f"thing to change of {spelling}", name, {*known, *OTHER_THINGS, *MINING_RULES}))
    changed = losses.qualified(spelling, {name: value})
    return losses.load(spelling, own | changed)


def _number(name: str, value: Any) -> float:
    """A finite number."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f"what {name}={value}: expected a number")
    return found


def _whole(name: str, value: Any) -> int:
    """A whole number."""
    found = _number(name, value)
    if found != int(found):
        raise InputError(f"what {name}={value}: expected a whole number")
    return int(found)


def _written(value: Any) -> str:
    """A value as text, a number to six digits."""
    try:
        return f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)
