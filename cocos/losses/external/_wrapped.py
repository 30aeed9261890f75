"""Common ground of losses around a loss: the attributes that the inner loss decides, and spellings `WORD(LOSS)`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cocos import losses
from cocos.base.errors import InputError
from cocos.losses.external import sum as sums

Kind = TypeVar("Kind")


def head_of(name: str) -> str:
    """Words before each parameter of a loss; the parameters of a sum have the names of its terms already."""
    return "" if sums.terms_of(name) else f"{name}."


class OfItsLoss:
    """Attributes that a loss has from the loss that it wraps; a wrapper is a dataclass with the field `loss`."""

    loss: losses.Loss

    @property
    def wrapped(self) -> losses.Loss:
        """The inner loss."""
        return self.loss

    @property
    def metric(self) -> str:
        """Scores that the loss reads."""
        return self.loss.metric

    @property
    def directions(self) -> tuple[str, ...]:
        """Columns that the loss reads."""
        return losses.traits(self.loss).directions

    @property
    def requires(self) -> tuple[str, ...]:
        """What the loss cannot do without."""
        return losses.traits(self.loss).requires

    @property
    def graded(self) -> bool:
        """Whether the loss compares graded pairs."""
        return losses.traits(self.loss).graded

    @property
    def couples(self) -> str:
        """Whether the loss couples queries."""
        return self.loss.couples

    @property
    def balanced(self) -> bool:
        """Whether the loss is."""
        return self.loss.balanced

    @property
    def sample(self) -> str:
        """How the loss draws its batches."""
        return self.loss.sample

    @property
    def matching(self) -> str | None:
        """Source of the positives of the loss."""
        return losses.traits(self.loss).matching


@dataclass(frozen=True)
class Spellings(Generic[Kind]):
    """Spellings `WORD(LOSS)` of the wrappers of one file.

    Args:
        kinds: classes by their words.
        own: names of the parameters of a class; others belong to the loss, whose name may stand before them.
    """

    kinds: Mapping[str, type[Kind]]
    own: Callable[[type[Kind]], set[str]]

    def parted(self, text: str) -> tuple[type[Kind], str] | None:
        """The class and the text of the loss in it; None for any other text."""
        found = re.fullmatch(r"([a-z_-]+)\s*\((.*)\)", text.strip(), re.IGNORECASE)
        kind = self.kinds.get(found[1].lower().replace("-", "_")) if found else None
        if not (found and kind):
            return None
        depths = [found[2][: end + 1].count("(") - found[2][: end + 1].count(")") for end in range(len(found[2]))]
        return (kind, found[2].strip()) if min(depths, default=0) >= 0 else None

    def parts(self, text: str) -> tuple[type[Kind], str]:
        """The class and the canonical name of the loss in it."""
        found = self.parted(text)
        if found is None:
            raise InputError(f"loss {text!r}: expected one of {', '.join(self.kinds)} with a loss in parentheses")
        kind, name = found
        inner, word = losses.canonical(name), next(word for word, each in self.kinds.items() if each is kind)
        if own := losses.brought(name):
            key, value = next(iter(own.items()))
            raise InputError(
                f"loss {text!r}: {name} is {inner} with a {key} of its own; write {word}({inner}) and -p {key}={value}"
            )
        return kind, inner

    def canonical(self, text: str) -> str:
        """The one spelling of the loss."""
        kind, inner = self.parts(text)
        return f"{next(word for word, each in self.kinds.items() if each is kind)}({inner})"

    def known(self, text: str) -> set[str] | None:
        """Names of the parameters of the wrapper, and of the loss with its name before each; None: any."""
        kind, inner = self.parts(text)
        found = losses.known(inner)
        return None if found is None else self.own(kind) | {f"{head_of(inner)}{key}" for key in found}

    def qualified(self, text: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters as `known` names them."""
        kind, inner = self.parts(text)
        head, found = head_of(inner), dict[str, Any]()
        for key, value in parameters.items():
            own = key in self.own(kind)
            settled = {key: value} if own else losses.qualified(inner, {key.removeprefix(head): value})
            for name, number in settled.items():
                place = name if own else f"{head}{name}"
                if place in found:
                    raise InputError(f"parameter {place} of {text} is given twice")
                found[place] = number
        return found
