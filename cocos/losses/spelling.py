"""Names of losses: built-in and third-party losses, sums and wrappers, such as `triplet+0.5*top_k(ntxent)`."""

import importlib
import itertools
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cocos.base.errors import InputError, nearest
from cocos.losses import catalogue, parameters
from cocos.losses.base import Loss
from cocos.losses.combined import WRAPPERS, Sum

# Prefixes of libraries; a name with another prefix is the user's module or file.
LIBRARIES = ("ce", "colpali", "lightly", "open_clip", "pml", "pylate", "st")


@dataclass(frozen=True)
class Spelling:
    """A parsed name of a loss: a sum if `terms`, a wrapper `word` around a loss if `inner`, else one loss.

    Args:
        name: the one spelling of the loss, as in `Loss.name`.
        alias: the text of a single loss as it was written.
        word: name of a wrapper.
        inner: the loss in a wrapper.
        terms: coefficients and losses of a sum.
    """

    name: str
    alias: str = ""
    word: str = ""
    inner: "Spelling | None" = None
    terms: "tuple[tuple[float, Spelling], ...]" = ()

    @property
    def parts(self) -> "list[tuple[str, Spelling]]":
        """The losses in it, each with the prefix of its parameters."""
        if self.inner is not None:
            return [("" if self.inner.terms else f"{self.inner.name}.", self.inner)]
        return [(f"{term.name}.", term) for _, term in self.terms]

    @property
    def own_names(self) -> set[str]:
        """Names of the parameters of a wrapper itself."""
        return parameters.fields_by_name(WRAPPERS[self.word]).keys() - {"loss"} if self.word else set()

    def parameter_names(self) -> set[str] | None:
        """Return the names of all parameters, with the prefixes of their losses; None if any name may be one."""
        if not self.parts:
            file = third_party_file(self.name)
            return file.known(self.name) if file else parameters.accepted_names(catalogue.find_class(self.name))
        names = self.own_names
        for prefix, part in self.parts:
            part_names = part.parameter_names()
            if part_names is None:
                return None
            names |= {f"{prefix}{name}" for name in part_names}
        return names

    def implied(self) -> dict[str, Any]:
        """Return the parameters that aliases imply, with the prefixes of their losses."""
        if not self.parts:
            return {} if third_party_file(self.name) else catalogue.implied_parameters(self.alias)
        return {f"{prefix}{name}": value for prefix, part in self.parts for name, value in part.implied().items()}

    def qualify(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters by their full names: with the prefix of their loss, `scale` as `temperature`.

        Raises:
            InputError: an unknown or ambiguous parameter, or one that is given twice.
        """
        if not self.parts:
            file = third_party_file(self.name)
            if file:
                return file.qualified(self.name, values)
            return parameters.resolve_scale(self.name, catalogue.find_class(self.name), values)
        wrapper_values, by_part = self.split(values)
        for (prefix, part), part_values in zip(self.parts, by_part, strict=True):
            wrapper_values |= {f"{prefix}{name}": value for name, value in part.qualify(part_values).items()}
        return wrapper_values

    def split(self, values: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the parameters of a wrapper itself, and those of each part without their prefixes."""
        wrapper_values: dict[str, Any] = {}
        by_part: list[dict[str, Any]] = [{} for _ in self.parts]
        for name, value in values.items():
            if name in self.own_names:
                wrapper_values[name] = value
                continue
            index = self.find_part(name)
            short_name = name.removeprefix(self.parts[index][0])
            if short_name in by_part[index]:
                raise InputError(f"parameter {self.parts[index][0]}{short_name} of {self.name} is given twice")
            by_part[index][short_name] = value
        return wrapper_values, by_part

    def find_part(self, name: str) -> int:
        """Return the index of the part to which a parameter belongs.

        Raises:
            InputError: no part has it, or more than one.
        """
        if self.inner is not None:
            return 0  # which refuses an unknown parameter
        prefixed = [index for index, (prefix, _) in enumerate(self.parts) if name.startswith(prefix)]
        if prefixed:
            return prefixed[0]
        accepted = [part.parameter_names() for _, part in self.parts]
        indices = [i for i, names in enumerate(accepted) if names is None or name in names]
        if not indices:
            raise InputError(nearest(f"parameter of {self.name}", name, self.parameter_names() or ()))
        if len(indices) > 1:
            full_names = " or ".join(f"{self.parts[i][0]}{name}" for i in indices)
            raise InputError(f"parameter {name!r} of {self.name}: more than one term has it; write {full_names}")
        return indices[0]

    def build(self, values: dict[str, Any]) -> Loss:
        """Build the loss.

        Raises:
            InputError: an unknown, ambiguous or missing parameter, or a value out of range.
        """
        if not self.parts:
            file = third_party_file(self.name)
            if file:
                return file.load(self.name, values)
            loss_class = catalogue.find_class(self.name)
            values = self.implied() | parameters.resolve_scale(self.name, loss_class, values)
            return parameters.build(self.name, loss_class, values)
        wrapper_values, by_part = self.split(values)
        built = [part.build(part_values) for (_, part), part_values in zip(self.parts, by_part, strict=True)]
        if self.terms:
            return Sum(tuple((c, loss) for (c, _), loss in zip(self.terms, built, strict=True)))
        if "k" in self.own_names - wrapper_values.keys():
            raise InputError(f"{self.name}: k: missing, expected a number of negatives, such as -p k=16")
        return parameters.build(self.name, WRAPPERS[self.word], wrapper_values, loss=built[0])


def parse(text: str) -> Spelling:
    """Parse the name of a loss.

    Raises:
        InputError: an unknown loss, or a sum with a wrong coefficient or one term twice.

    Examples:
        >>> parse("VSE++ + 0.5*Top-K(InfoNCE)").name
        'triplet_sh+0.5*top_k(ntxent)'
    """
    text = text.strip() if ":" in text else text.strip().replace("++", "pp")  # as in VSE++
    parts = [] if Path(text.rpartition(":")[0]).is_file() else split_sum(text)  # a path may contain a plus
    if len(parts) > 1 or (parts and "*" in blank_parentheses(text)):
        terms = tuple(parse_term(text, part) for part in parts)
        names = [term.name for _, term in terms]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"loss {text!r}: {name} twice, expected once; add up its coefficients")
        return Spelling("+".join(("" if c == 1 else f"{c:.15g}*") + term.name for c, term in terms), terms=terms)
    call = re.fullmatch(r"([a-z_-]+)\s*\((.*)\)", text, re.IGNORECASE)
    word = call[1].lower().replace("-", "_") if call else ""
    if call and word in WRAPPERS:
        inner = parse(call[2])
        return Spelling(f"{word}({inner.name})", word=word, inner=inner)
    file = third_party_file(text)
    return Spelling(file.canonical(text) if file else catalogue.find_file(text), alias=text)


def split_sum(text: str) -> list[str]:
    """Split a sum at each plus outside parentheses that is not part of a number."""
    pluses = re.finditer(r"(?<![\d.][eE])\+", blank_parentheses(text))
    cuts = [-1, *(plus.start() for plus in pluses), len(text)]
    return [text[start + 1 : end] for start, end in itertools.pairwise(cuts)]


def blank_parentheses(text: str) -> str:
    """Replace everything in parentheses by spaces."""
    depth, letters = 0, ""
    for letter in text:
        depth -= letter == ")"
        letters += " " if depth > 0 else letter
        depth += letter == "("
    return letters


def parse_term(text: str, part: str) -> tuple[float, Spelling]:
    """Parse a term of a sum: a loss, or a number above 0 times one."""
    star = blank_parentheses(part).rfind("*")
    try:
        coefficient = float(part[:star]) if star >= 0 else 1.0
    except ValueError:
        coefficient = math.nan
    name = part[star + 1 :].strip()
    if not 0 < coefficient < math.inf or not name:
        raise InputError(
            f"loss {text!r}: term {part.strip()!r}, expected a loss, or a number above 0 times one, like 0.5*ntxent"
        )
    return coefficient, parse(name)


def third_party_file(name: str) -> Any:
    """Return the module that reads the name of a third-party loss, None for a built-in loss."""
    if ":" not in name:
        return None
    file = "libraries" if name.partition(":")[0].strip().lower() in LIBRARIES else "foreign"
    return importlib.import_module(f"cocos.losses.{file}")
